//! The results of `dat perf` as text with perftest's columns, as comma-separated values, and as JSON. No function prints.

use serde_json::{Value, json};

use crate::cli::Measure;
use crate::measure::histogram::Summary;
use crate::measure::plan::{Op, Step};

/// Bytes of perftest's unit of bandwidth.
const MIB: f64 = (1 << 20) as f64;

/// The result of one measurement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) op: Op,
    pub(crate) bytes: usize,
    pub(crate) connections: u32,
    /// Operations of all connections.
    pub(crate) iterations: u64,
    pub(crate) figures: Figures,
}

/// The figures of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Figures {
    /// Microseconds.
    Latency(Summary),
    Bandwidth(Rate),
}

/// Throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    /// Operations per second: over the whole measurement, and in the best part of it.
    pub(crate) average: f64,
    pub(crate) peak: f64,
    pub(crate) seconds: f64,
}

/// Operations of all connections at a time of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) posted: u64,
    pub(crate) done: u64,
    /// Nanoseconds since the begin.
    pub(crate) at: u64,
}

/// Checkpoints between which the peak is looked for.
const MOST: usize = 100;

impl Rate {
    /// Computes the rates from checkpoints. The peak is the highest rate between two of them of the operations that began and ended
    /// there: completions that were only seen late do not raise it.
    pub(crate) fn of(checkpoints: &[Checkpoint]) -> Option<Self> {
        let last = checkpoints.last()?;
        let per_second = |count: u64, nanos: u64| count as f64 * 1e9 / nanos.max(1) as f64;
        let average = per_second(last.done, last.at);
        let every = checkpoints.len().div_ceil(MOST);
        let some = checkpoints.iter().step_by(every);
        let some: Vec<&Checkpoint> = some.chain([last]).collect();
        let mut peak = average;
        for (at, from) in some.iter().enumerate() {
            for to in &some[at + 1..] {
                if to.at > from.at {
                    let count = to.done.saturating_sub(from.posted);
                    peak = peak.max(per_second(count, to.at - from.at));
                }
            }
        }
        Some(Self {
            average,
            peak,
            seconds: last.at as f64 / 1e9,
        })
    }
}

impl Row {
    pub(crate) fn measure(&self) -> Measure {
        match self.figures {
            Figures::Latency(_) => Measure::Latency,
            Figures::Bandwidth(_) => Measure::Bandwidth,
        }
    }

    /// Returns MiB per second for a number of operations per second.
    pub(crate) fn mib(&self, per_second: f64) -> f64 {
        self.bytes as f64 * per_second / MIB
    }

    /// Returns the line of the text table.
    pub(crate) fn line(&self) -> String {
        let (bytes, iterations) = (self.bytes, self.iterations);
        match &self.figures {
            Figures::Latency(l) => format!(
                " {bytes:<10} {iterations:<13} {:<12.2} {:<12.2} {:<17.2} {:<12.2} {:<13.2} {:<20.2} {:<22.2} {:.2}",
                l.min, l.max, l.p50, l.average, l.stdev, l.p99, l.p999, l.p90
            ),
            Figures::Bandwidth(r) => format!(
                " {bytes:<10} {iterations:<13} {:<20.2} {:<20.2} {:.6}",
                self.mib(r.peak),
                self.mib(r.average),
                r.average / 1e6
            ),
        }
    }

    /// Returns the line of comma-separated values.
    pub(crate) fn csv(&self) -> String {
        let head = format!(
            "{},{},{},{},{}",
            self.op.name(),
            measure_name(self.measure()),
            self.bytes,
            self.connections,
            self.iterations
        );
        match &self.figures {
            Figures::Latency(l) => format!(
                "{head},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3},,,",
                l.min, l.max, l.p50, l.average, l.stdev, l.p90, l.p99, l.p999
            ),
            Figures::Bandwidth(r) => format!(
                "{head},,,,,,,,,{:.3},{:.3},{:.1}",
                self.mib(r.peak),
                self.mib(r.average),
                r.average
            ),
        }
    }

    /// Returns the JSON object.
    pub(crate) fn json(&self) -> Value {
        let mut object = json!({
            "operation": self.op,
            "measure": measure_name(self.measure()),
            "bytes": self.bytes,
            "connections": self.connections,
            "iterations": self.iterations,
        });
        match &self.figures {
            Figures::Latency(l) => object["latency_us"] = latency_json(l),
            Figures::Bandwidth(r) => {
                object["bandwidth"] = json!({
                    "peak_mib_per_second": self.mib(r.peak),
                    "average_mib_per_second": self.mib(r.average),
                    "messages_per_second": r.average,
                    "seconds": r.seconds,
                });
            }
        }
        object
    }
}

/// Returns the figures of durations as a JSON object.
pub(crate) fn latency_json(l: &Summary) -> Value {
    json!({
        "min": l.min, "max": l.max, "typical": l.p50, "average": l.average, "stdev": l.stdev,
        "p50": l.p50, "p90": l.p90, "p99": l.p99, "p99.9": l.p999,
    })
}

fn measure_name(measure: Measure) -> &'static str {
    match measure {
        Measure::Latency => "latency",
        Measure::Bandwidth => "bandwidth",
    }
}

/// First line of comma-separated values.
pub(crate) const CSV: &str = "operation,measure,bytes,connections,iterations,t_min_us,t_max_us,t_typical_us,t_avg_us,t_stdev_us,\
p90_us,p99_us,p99.9_us,peak_mib_per_second,average_mib_per_second,messages_per_second";

/// Returns the head of the text table of a measurement: a title, and perftest's names of the columns.
pub(crate) fn head(step: &Step) -> String {
    let how = if step.wait { "waiting" } else { "polling" };
    let validate = if step.validate { ", validated" } else { "" };
    let connections = match step.connections {
        1 => "1 connection".to_owned(),
        n => format!("{n} connections"),
    };
    match step.measure {
        Measure::Latency => {
            let what = if step.op.is_echoed() {
                "half of a round trip"
            } else {
                "from post to completion"
            };
            format!(
                "{} latency: {what}, {connections}, {how}{validate}\n \
                 #bytes     #iterations   t_min[usec]  t_max[usec]  t_typical[usec]   t_avg[usec]  t_stdev[usec] \
                 99% percentile[usec] 99.9% percentile[usec] 90% percentile[usec]",
                step.op.name()
            )
        }
        Measure::Bandwidth => format!(
            "{} bandwidth: {} outstanding, {connections}, {how}{validate}\n \
             #bytes     #iterations   BW peak[MiB/sec]     BW average[MiB/sec]  MsgRate[Mpps]",
            step.op.name(),
            step.depth
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::histogram::Histogram;
    use crate::measure::plan::Until;

    fn latency() -> Row {
        let mut all = Histogram::default();
        (1..=1000).for_each(|n| all.add(n * 20));
        Row {
            op: Op::Send,
            bytes: 64,
            connections: 1,
            iterations: 1000,
            figures: Figures::Latency(all.summary(0.001 / 2.0).expect("figures")),
        }
    }

    fn checkpoint(posted: u64, done: u64, at: u64) -> Checkpoint {
        Checkpoint { posted, done, at }
    }

    fn bandwidth() -> Row {
        // The second hundred ends with a burst of completions that were posted before.
        let rate = Rate::of(&[
            checkpoint(100, 0, 0),
            checkpoint(200, 100, 1_000_000_000),
            checkpoint(300, 200, 1_000_000_010),
            checkpoint(400, 400, 2_000_000_000),
            checkpoint(400, 400, 4_000_000_000),
        ]);
        Row {
            op: Op::Write,
            bytes: 1 << 20,
            connections: 2,
            iterations: 400,
            figures: Figures::Bandwidth(rate.expect("a rate")),
        }
    }

    #[test]
    fn the_columns_are_those_of_perftest() {
        let step = Step {
            op: Op::Send,
            measure: Measure::Latency,
            size: 64,
            connections: 1,
            depth: 1,
            until: Until::Iterations(1),
            warm_up: 0,
            wait: false,
            validate: true,
        };
        let text = head(&step);
        let (title, columns) = text.split_once('\n').expect("two lines");
        assert_eq!(
            title,
            "send latency: half of a round trip, 1 connection, polling, validated"
        );
        // perftest joins words by blanks in two names.
        let columns = columns.replace("% percentile", "%percentile");
        let names: Vec<&str> = columns.split_whitespace().collect();
        let figures = latency().line();
        let figures: Vec<&str> = figures.split_whitespace().collect();
        let pairs: Vec<_> = names.into_iter().zip(figures).collect();
        assert_eq!(
            pairs,
            [
                ("#bytes", "64"),
                ("#iterations", "1000"),
                ("t_min[usec]", "0.01"),
                ("t_max[usec]", "10.00"),
                ("t_typical[usec]", "5.00"),
                ("t_avg[usec]", "5.00"),
                ("t_stdev[usec]", "2.89"),
                ("99%percentile[usec]", "9.90"),
                ("99.9%percentile[usec]", "9.99"),
                ("90%percentile[usec]", "9.00")
            ]
        );
    }

    #[test]
    fn each_column_begins_below_its_name() {
        let step = |measure| Step {
            op: Op::Read,
            measure,
            size: 64,
            connections: 3,
            depth: 128,
            until: Until::Iterations(1),
            warm_up: 0,
            wait: true,
            validate: false,
        };
        for (row, measure) in [
            (latency(), Measure::Latency),
            (bandwidth(), Measure::Bandwidth),
        ] {
            let head = head(&step(measure));
            let names = head.lines().nth(1).expect("names");
            let line = row.line();
            let begins = |text: &str| -> Vec<usize> {
                let text = text.replace("% percentile", "%.percentile");
                let text = text.replace("BW ", "BW.");
                let bytes = text.as_bytes();
                (1..bytes.len())
                    .filter(|at| bytes[at - 1] == b' ' && bytes[*at] != b' ')
                    .collect()
            };
            assert_eq!(begins(names), begins(&line), "\n{names}\n{line}");
        }
    }

    #[test]
    fn rates_are_an_average_and_the_best_part() {
        let Figures::Bandwidth(rate) = bandwidth().figures else {
            panic!("a rate");
        };
        assert_eq!((rate.average, rate.seconds), (100.0, 4.0));
        // 300 operations from the first checkpoint to the fourth, in two seconds, or 200 from the second in one.
        assert_eq!(rate.peak.round(), 200.0);
        assert_eq!(Rate::of(&[]), None);
        let instant = Rate::of(&[checkpoint(5, 5, 0)]).expect("a rate");
        assert!(instant.average.is_finite() && instant.peak >= instant.average);
    }

    #[test]
    fn values_and_json_have_every_figure_once() {
        let names = CSV.split(',').count();
        for row in [latency(), bandwidth()] {
            assert_eq!(row.csv().split(',').count(), names, "{}", row.csv());
        }
        assert!(
            latency()
                .csv()
                .starts_with("send,latency,64,1,1000,0.010,10.000,5.0")
        );
        assert!(bandwidth().csv().ends_with(",200.000,100.000,100.0"));
        let json = latency().json();
        assert_eq!(
            (&json["operation"], &json["bytes"]),
            (&"send".into(), &64.into())
        );
        let p999 = json["latency_us"]["p99.9"].as_f64().expect("a number");
        assert!((p999 - 9.99).abs() < 0.01, "{p999}");
        assert_eq!(
            bandwidth().json()["bandwidth"]["messages_per_second"],
            100.0
        );
    }
}
