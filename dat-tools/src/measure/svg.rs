//! The plot of `dat perf` as SVG: a panel for latency, one for bandwidth; over the size, or over the operations if there is one size.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::measure::axis::{Axis, bytes_label, label};
use crate::measure::plan::Op;
use crate::measure::report::{Figures, Row};

const WIDTH: f64 = 920.0;
const PANEL: f64 = 360.0;
const TITLE: f64 = 44.0;
/// Margins of a panel: left, right, top, bottom.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 136.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 58.0;

fn colour(op: Op) -> &'static str {
    match op {
        Op::Send => "#0b6e99",
        Op::Write => "#d9730d",
        Op::Read => "#448361",
        Op::FetchAdd => "#9065b0",
        Op::CompareSwap => "#c14c8a",
    }
}

/// What a panel shows of a row: the middle and the range around it.
#[derive(Clone, Copy, Debug)]
struct Point {
    op: Op,
    bytes: usize,
    middle: f64,
    /// Low and high end of the band.
    band: (f64, f64),
    /// Extremes.
    ends: (f64, f64),
}

/// Returns the picture of the results.
pub(crate) fn svg(title: &str, rows: &[Row]) -> String {
    let latency: Vec<Point> = rows.iter().filter_map(latency).collect();
    let bandwidth: Vec<Point> = rows.iter().filter_map(bandwidth).collect();
    let panels = [
        (
            &latency,
            true,
            "latency in microseconds: median; band from 50% to 99%",
            "usec",
        ),
        (
            &bandwidth,
            false,
            "bandwidth in MiB per second: average; band up to the peak",
            "MiB/sec",
        ),
    ];
    let shown: Vec<_> = panels
        .into_iter()
        .filter(|(points, ..)| !points.is_empty())
        .collect();
    let height = TITLE + PANEL * shown.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    write_text(&mut text, (LEFT, 28.0), "start", 17, title);
    for (at, (points, is_latency, heading, unit)) in shown.into_iter().enumerate() {
        let ops = ops(points);
        let has_lines = points.len() > ops.len();
        let axis = match (is_latency, has_lines) {
            (true, _) => Axis::log(points.iter().flat_map(|p| [p.ends.0, p.band.1])),
            (false, true) => Axis::fitting(points.iter().flat_map(|p| [p.middle, p.band.1])),
            // Columns begin at 0.
            (false, false) => Axis::linear(points.iter().map(|p| p.band.1)),
        };
        let scale = if axis.is_log() { "; logarithmic" } else { "" };
        let panel = Panel {
            top: TITLE + PANEL * at as f64 + TOP,
            axis,
            sizes: points.iter().map(|p| p.bytes).collect(),
            ops,
        };
        panel.frame(&mut text, &format!("{heading}{scale}"), unit);
        if has_lines {
            panel.lines(&mut text, points);
        } else {
            panel.bars(&mut text, points, is_latency);
        }
    }
    text + "</svg>\n"
}

fn latency(row: &Row) -> Option<Point> {
    let Figures::Latency(l) = &row.figures else {
        return None;
    };
    Some(Point {
        op: row.op,
        bytes: row.bytes,
        middle: l.p50,
        band: (l.p50, l.p99),
        ends: (l.min, l.max),
    })
}

fn bandwidth(row: &Row) -> Option<Point> {
    let Figures::Bandwidth(rate) = &row.figures else {
        return None;
    };
    let (average, peak) = (row.mib(rate.average), row.mib(rate.peak));
    Some(Point {
        op: row.op,
        bytes: row.bytes,
        middle: average,
        band: (average, peak),
        ends: (average, peak),
    })
}

/// Returns the operations in the order of their first appearance.
fn ops(points: &[Point]) -> Vec<Op> {
    let mut all = Vec::new();
    for point in points {
        if !all.contains(&point.op) {
            all.push(point.op);
        }
    }
    all
}

struct Panel {
    top: f64,
    axis: Axis,
    sizes: BTreeSet<usize>,
    ops: Vec<Op>,
}

impl Panel {
    fn bottom(&self) -> f64 {
        self.top + PANEL - TOP - BOTTOM
    }

    fn y(&self, value: f64) -> f64 {
        let bottom = self.bottom();
        bottom - self.axis.place(value) * (bottom - self.top)
    }

    /// Returns the place of a size: sizes are at equal distances on a logarithmic scale.
    fn x(&self, bytes: usize) -> f64 {
        let log = |n: &usize| (*n as f64).ln();
        let first = self.sizes.first().map_or(0.0, log);
        let last = self.sizes.last().map_or(0.0, log);
        let share = (log(&bytes) - first) / (last - first).max(f64::MIN_POSITIVE);
        LEFT + 12.0 + share * (WIDTH - LEFT - RIGHT - 24.0)
    }

    fn frame(&self, text: &mut String, heading: &str, unit: &str) {
        let right = WIDTH - RIGHT;
        write_text(text, (LEFT, self.top - 12.0), "start", 13, heading);
        for tick in self.axis.ticks() {
            let y = self.y(tick);
            let _ = writeln!(
                text,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
            );
            write_text(text, (LEFT - 8.0, y + 4.5), "end", 12, &label(tick));
        }
        let (x, y) = (20.0, (self.top + self.bottom()) / 2.0);
        let _ = writeln!(
            text,
            "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 {x} {y:.1})\">{unit}</text>"
        );
        for (at, op) in self.ops.iter().enumerate() {
            let y = self.top + 10.0 + 20.0 * at as f64;
            let (x, fill) = (right + 16.0, colour(*op));
            let _ = writeln!(
                text,
                "<rect x=\"{x}\" y=\"{:.1}\" width=\"14\" height=\"10\" fill=\"{fill}\"/>",
                y - 9.0
            );
            write_text(text, (x + 20.0, y), "start", 13, op.name());
        }
    }

    /// Draws a line over the sizes, with a band, for each operation.
    fn lines(&self, text: &mut String, points: &[Point]) {
        let mut last = f64::MIN;
        for size in &self.sizes {
            // Labels that would touch the one before are left out.
            let x = self.x(*size);
            if x - last >= 26.0 {
                let label = bytes_label(*size);
                write_text(text, (x, self.bottom() + 20.0), "middle", 10, &label);
                last = x;
            }
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        write_text(
            text,
            (middle, self.bottom() + 42.0),
            "middle",
            13,
            "bytes of a message",
        );
        for op in &self.ops {
            let mut of_op: Vec<&Point> = points.iter().filter(|p| p.op == *op).collect();
            of_op.sort_by_key(|point| point.bytes);
            let fill = colour(*op);
            let path = |points: &mut dyn Iterator<Item = (usize, f64)>| -> String {
                let places: Vec<String> = points
                    .map(|(bytes, value)| format!("{:.1},{:.1}", self.x(bytes), self.y(value)))
                    .collect();
                places.join(" ")
            };
            let upper = path(&mut of_op.iter().map(|p| (p.bytes, p.band.1)));
            let lower = path(&mut of_op.iter().rev().map(|p| (p.bytes, p.band.0)));
            let line = path(&mut of_op.iter().map(|p| (p.bytes, p.middle)));
            let _ = writeln!(
                text,
                "<polygon points=\"{upper} {lower}\" fill=\"{fill}\" fill-opacity=\"0.15\"/>"
            );
            let _ = writeln!(
                text,
                "<polyline points=\"{line}\" fill=\"none\" stroke=\"{fill}\" stroke-width=\"2\"/>"
            );
            for point in of_op {
                let (x, y) = (self.x(point.bytes), self.y(point.middle));
                let _ = writeln!(
                    text,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{fill}\"/>"
                );
            }
        }
    }

    /// Draws a column for each operation: from the bottom, or the band and the smallest value where the axis is logarithmic.
    fn bars(&self, text: &mut String, points: &[Point], is_range: bool) {
        let each = (WIDTH - LEFT - RIGHT) / points.len().max(1) as f64;
        for (at, point) in points.iter().enumerate() {
            let x = LEFT + each * (at as f64 + 0.5);
            let (fill, width) = (colour(point.op), (each * 0.5).min(60.0));
            let (low, high) = if is_range {
                (self.y(point.band.0), self.y(point.band.1))
            } else {
                (self.bottom(), self.y(point.middle))
            };
            let _ = writeln!(
                text,
                "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"{fill}\" stroke-width=\"2\"/>\n\
                 <rect x=\"{:.1}\" y=\"{high:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{fill}\" fill-opacity=\"0.8\"/>",
                self.y(point.ends.0),
                self.y(point.band.1),
                x - width / 2.0,
                (low - high).max(2.0),
            );
            let value = label((point.middle * 100.0).round() / 100.0);
            let value = if is_range {
                format!("median {value}")
            } else {
                value
            };
            write_text(text, (x, high - 7.0), "middle", 12, &value);
            let name = format!("{}, {} B", point.op.name(), bytes_label(point.bytes));
            write_text(text, (x, self.bottom() + 20.0), "middle", 12, &name);
        }
    }
}

fn write_text(into: &mut String, (x, y): (f64, f64), anchor: &str, size: u32, text: &str) {
    let escaped = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let _ = writeln!(
        into,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{escaped}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::histogram::Histogram;
    use crate::measure::report::Rate;

    fn latency(op: Op, bytes: usize, nanos: u64) -> Row {
        let mut all = Histogram::default();
        (0..100).for_each(|n| all.add(nanos + n * nanos / 50));
        Row {
            op,
            bytes,
            connections: 1,
            iterations: 100,
            figures: Figures::Latency(all.summary(0.001).expect("figures")),
        }
    }

    fn bandwidth(op: Op, bytes: usize, per_second: f64) -> Row {
        Row {
            op,
            bytes,
            connections: 1,
            iterations: 100,
            figures: Figures::Bandwidth(Rate {
                average: per_second,
                peak: per_second * 1.1,
                seconds: 1.0,
            }),
        }
    }

    /// Returns the values of an attribute of all elements of a kind.
    fn values(svg: &str, element: &str, attribute: &str) -> Vec<String> {
        let begin = format!("<{element} ");
        let key = format!(" {attribute}=\"");
        svg.lines()
            .filter(|line| line.starts_with(&begin))
            .filter_map(|line| line.split_once(&key)?.1.split('"').next())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn larger_values_are_higher_and_larger_sizes_further_right() {
        let rows: Vec<Row> = (0..24)
            .map(|n| latency(Op::Send, 1 << n, 10_000 << (n / 2)))
            .collect();
        let picture = svg("a <title>", &rows);
        assert!(picture.contains("a &lt;title&gt;"), "{picture}");
        let number = |text: &String| text.parse::<f64>().expect("a number");
        let x: Vec<f64> = values(&picture, "circle", "cx")
            .iter()
            .map(number)
            .collect();
        let y: Vec<f64> = values(&picture, "circle", "cy")
            .iter()
            .map(number)
            .collect();
        assert_eq!((x.len(), y.len()), (24, 24));
        assert!(x.is_sorted() && x.iter().all(|x| (LEFT..WIDTH - RIGHT).contains(x)));
        assert!(y.is_sorted_by(|a, b| a >= b) && y[0] > y[23]);
        assert!(picture.contains(">8M<") && picture.contains(">1<"));
    }

    #[test]
    fn bandwidths_over_decades_are_on_a_logarithmic_axis() {
        let rows: Vec<Row> = (0..24).map(|n| bandwidth(Op::Write, 1 << n, 1e4)).collect();
        let picture = svg("t", &rows);
        assert!(picture.contains("up to the peak; logarithmic"), "{picture}");
        let y: Vec<f64> = values(&picture, "circle", "cy")
            .iter()
            .map(|text| text.parse().expect("a number"))
            .collect();
        // Each size has twice the bandwidth of the one before, so all are equally far apart.
        let steps = y.windows(2).map(|two| two[0] - two[1]);
        let (least, most) = steps.fold((f64::MAX, 0.0_f64), |(a, b), s| (a.min(s), b.max(s)));
        assert!(least > 5.0 && most - least < 0.3, "{least} to {most}");
    }

    #[test]
    fn each_measure_has_a_panel_and_each_operation_a_colour() {
        let rows = [
            latency(Op::Send, 64, 20_000),
            latency(Op::FetchAdd, 8, 30_000),
            bandwidth(Op::Send, 64, 1e6),
        ];
        let picture = svg("t", &rows);
        assert!(picture.contains("latency in") && picture.contains("bandwidth in"));
        for op in [Op::Send, Op::FetchAdd] {
            assert!(picture.contains(colour(op)) && picture.contains(op.name()));
        }
        let one = svg("t", &rows[2..]);
        assert!(!one.contains("latency in") && one.contains("send, 64 B"));
        assert_eq!(one.matches("<text").count(), one.matches("</text>").count());
    }
}
