//! A plot as text: a bar for each row, with its figure.

use std::fmt::Write as _;

use crate::cli::Measure;
use crate::measure::axis::{Axis, bytes_label};
use crate::measure::report::{Figures, Row};

/// Parts of a block character, an eighth each.
const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// Returns the plot of the rows, in groups of one operation and measure. The longest bar has `width` characters.
pub(crate) fn chart(rows: &[Row], width: usize) -> String {
    let mut text = String::new();
    for group in rows.chunk_by(|a, b| a.op == b.op && a.measure() == b.measure()) {
        let values: Vec<f64> = group.iter().map(value).collect();
        let (heading, axis) = match group[0].measure() {
            Measure::Latency => (
                "latency, median in microseconds",
                Axis::log(values.iter().copied()),
            ),
            Measure::Bandwidth => (
                "bandwidth, average in MiB per second",
                Axis::fitting(values.iter().copied()),
            ),
        };
        let scale = if axis.is_log() { ", logarithmic" } else { "" };
        let _ = writeln!(text, "\n{} {heading}{scale}", group[0].op.name());
        for (row, value) in group.iter().zip(values) {
            let _ = writeln!(
                text,
                "{:>8} |{} {value:.2}",
                bytes_label(row.bytes),
                bar(axis.place(value), width)
            );
        }
    }
    text
}

fn value(row: &Row) -> f64 {
    match &row.figures {
        Figures::Latency(l) => l.p50,
        Figures::Bandwidth(rate) => row.mib(rate.average),
    }
}

/// Returns a bar of a share of `width` characters.
fn bar(share: f64, width: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::plan::Op;
    use crate::measure::report::Rate;

    #[test]
    fn bars_have_the_length_of_their_values() {
        assert_eq!(bar(0.0, 10), "");
        assert_eq!(bar(0.5, 2), "█");
        assert_eq!(bar(0.25, 2), "▌");
        assert_eq!(bar(7.0, 3), "███");
    }

    #[test]
    fn each_operation_has_a_group_and_each_size_a_bar() {
        let row = |op, bytes, average| Row {
            op,
            bytes,
            connections: 1,
            iterations: 1,
            figures: Figures::Bandwidth(Rate {
                average,
                peak: average,
                seconds: 1.0,
            }),
        };
        let rows = [
            row(Op::Send, 1 << 20, 50.0),
            row(Op::Send, 2 << 20, 50.0),
            row(Op::Read, 1 << 20, 7.0),
        ];
        let text = chart(&rows, 20);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "send bandwidth, average in MiB per second");
        assert_eq!(lines[2], "      1M |██████████ 50.00");
        assert_eq!(lines[3], "      2M |████████████████████ 100.00");
        assert_eq!(lines[5], "read bandwidth, average in MiB per second");
        let rows = [row(Op::Send, 1, 1e3), row(Op::Send, 1 << 20, 1e3)];
        let text = chart(&rows, 20);
        let heading = "\nsend bandwidth, average in MiB per second, logarithmic\n";
        assert!(text.starts_with(heading), "{text}");
    }
}
