//! What `dat perf` measures, one after the other: decided from the arguments and the IA's limits before anything is transferred.

use std::time::Duration;

use serde::Serialize;

use crate::cli::{Measure, OpArgument, Perf};
use crate::measure::protocol::effective_depth;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Op {
    Send,
    Write,
    Read,
    FetchAdd,
    CompareSwap,
}

impl Op {
    const ALL: [Self; 5] = [
        Self::Send,
        Self::Write,
        Self::Read,
        Self::FetchAdd,
        Self::CompareSwap,
    ];

    /// Returns the name of the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
            Self::FetchAdd => "fetch-add",
            Self::CompareSwap => "compare-swap",
        }
    }

    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }

    /// Returns whether the peer's program takes part, so that a latency is half of a round trip.
    pub(crate) fn is_echoed(self) -> bool {
        matches!(self, Self::Send | Self::Write)
    }
}

/// When a measurement ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// After this many operations of each connection.
    Iterations(u64),
    Elapsed(Duration),
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) measure: Measure,
    /// Bytes of an operation.
    pub(crate) size: usize,
    pub(crate) connections: u32,
    /// Outstanding operations of a connection.
    pub(crate) depth: u32,
    pub(crate) until: Until,
    /// Operations of each connection before the measurement.
    pub(crate) warm_up: u64,
    pub(crate) wait: bool,
    pub(crate) validate: bool,
}

/// What bounds the measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Longest message, and longest RDMA operation, in bytes.
    pub(crate) message: u64,
    pub(crate) rdma: u64,
    pub(crate) atomics: bool,
    /// Outstanding posts of an endpoint.
    pub(crate) posts: u32,
    /// Events of a dispatcher.
    pub(crate) events: u32,
}

/// The measurements, and what was left out, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) left_out: Vec<String>,
}

/// Sizes of `-a`.
const LARGEST: usize = 8 << 20;
/// Bytes that a measurement transfers at most, unless a number of iterations is given.
const BYTES: u64 = 1 << 30;
/// Length of an atomic operation's operand.
const ATOMIC: usize = 8;

/// Decides what is measured.
pub(crate) fn plan(arguments: &Perf, limits: Limits) -> Result<Plan, String> {
    let mut plan = Plan {
        steps: Vec::new(),
        left_out: Vec::new(),
    };
    let all_sizes = std::iter::successors(Some(1_usize), |size| Some(size * 2));
    let all_sizes: Vec<usize> = all_sizes.take_while(|size| *size <= LARGEST).collect();
    let sizes = if arguments.all_sizes {
        &all_sizes
    } else {
        &arguments.size
    };
    for op in operations(&arguments.op) {
        if op.is_atomic() && !limits.atomics {
            let text = format!("the IA has no atomic operations: {} is left out", op.name());
            plan.left_out.push(text);
            continue;
        }
        for measure in distinct(&arguments.measure) {
            let most = if op == Op::Send {
                limits.message
            } else {
                limits.rdma
            };
            let of_op = if op.is_atomic() { &[ATOMIC][..] } else { sizes };
            for size in of_op {
                if *size as u64 > most {
                    let text = format!(
                        "{} of {size} bytes is left out: the IA transfers at most {most} bytes at once",
                        op.name()
                    );
                    plan.left_out.push(text);
                    continue;
                }
                plan.steps
                    .push(step(arguments, op, measure, *size, limits)?);
            }
        }
    }
    if plan.steps.is_empty() {
        return Err(format!(
            "nothing is left to measure: {}",
            plan.left_out.join("; ")
        ));
    }
    Ok(plan)
}

fn operations(given: &[OpArgument]) -> Vec<Op> {
    let mut all = Vec::new();
    for op in given {
        match op {
            OpArgument::Send => all.push(Op::Send),
            OpArgument::Write => all.push(Op::Write),
            OpArgument::Read => all.push(Op::Read),
            OpArgument::FetchAdd => all.push(Op::FetchAdd),
            OpArgument::CompareSwap => all.push(Op::CompareSwap),
            OpArgument::All => all.extend(Op::ALL),
        }
    }
    distinct(&all)
}

/// Returns the values without those that were given before.
fn distinct<T: Copy + PartialEq>(given: &[T]) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for value in given {
        if !all.contains(value) {
            all.push(*value);
        }
    }
    all
}

fn step(
    arguments: &Perf,
    op: Op,
    measure: Measure,
    size: usize,
    limits: Limits,
) -> Result<Step, String> {
    let connections = arguments.connections;
    let default = if measure == Measure::Latency {
        1000
    } else {
        5000
    };
    let iterations = arguments
        .iterations
        .unwrap_or_else(|| default.min((BYTES / size as u64).max(20)));
    let until = match arguments.duration {
        Some(duration) => Until::Elapsed(duration),
        None => Until::Iterations(iterations),
    };
    let depth = match measure {
        Measure::Latency => 1,
        Measure::Bandwidth => effective_depth(size, arguments.depth, arguments.validate),
    };
    if depth > limits.posts {
        return Err(format!(
            "--depth {depth} is more than the {} posts that an endpoint of the IA holds; give a smaller one",
            limits.posts
        ));
    }
    let step = Step {
        op,
        measure,
        size,
        connections,
        depth,
        until,
        warm_up: arguments.warm_up.unwrap_or((iterations / 10).min(100)),
        wait: arguments.wait,
        validate: arguments.validate,
    };
    if step.events() > u64::from(limits.events) {
        return Err(format!(
            "{connections} connections with {depth} outstanding operations need a queue of {} events, and the IA has at most {}; \
             give smaller numbers for --connections or --depth",
            step.events(),
            limits.events
        ));
    }
    Ok(step)
}

impl Step {
    /// Returns the largest number of completions that are queued at a time.
    pub(crate) fn events(&self) -> u64 {
        // Each connection has a read that checks, and the receives of an echo.
        u64::from(self.connections) * (u64::from(self.depth) + 8)
    }

    /// Describes the measurement for messages.
    pub(crate) fn label(&self) -> String {
        let measure = match self.measure {
            Measure::Latency => "latency",
            Measure::Bandwidth => "bandwidth",
        };
        let unit = if self.size == 1 { "byte" } else { "bytes" };
        format!("{} {measure}, {} {unit}", self.op.name(), self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::cli::Command;
    use clap::Parser as _;

    const LIMITS: Limits = Limits {
        message: 1 << 30,
        rdma: 1 << 30,
        atomics: true,
        posts: 8192,
        events: 1 << 16,
    };

    fn arguments(words: &str) -> Perf {
        let line = format!("dat perf ia host {words}");
        let cli = Cli::try_parse_from(line.split_whitespace()).expect("a command line");
        match cli.command {
            Command::Perf(perf) => perf,
            other => panic!("{other:?}"),
        }
    }

    fn planned(words: &str, limits: Limits) -> Result<Plan, String> {
        plan(&arguments(words), limits)
    }

    #[test]
    fn all_sizes_of_all_operations_are_measured_once() {
        let plan = planned("-a --op all,send", LIMITS).expect("a plan");
        let of = |op| plan.steps.iter().filter(move |step| step.op == op);
        assert_eq!(of(Op::Send).count(), 2 * 24);
        assert_eq!(of(Op::FetchAdd).count(), 2);
        assert!(of(Op::CompareSwap).all(|step| step.size == 8));
        let sizes: Vec<usize> = of(Op::Read).map(|step| step.size).take(24).collect();
        assert_eq!((sizes[0], sizes[1], sizes[23]), (1, 2, 8 << 20));
        assert_eq!(plan.left_out, [] as [String; 0]);
    }

    #[test]
    fn what_the_ia_cannot_do_is_left_out_with_a_reason() {
        let limits = Limits {
            message: 4096,
            atomics: false,
            ..LIMITS
        };
        let plan = planned("-a --op all -m latency", limits).expect("a plan");
        assert!(
            plan.steps
                .iter()
                .all(|s| s.op != Op::Send || s.size <= 4096)
        );
        assert!(
            plan.steps
                .iter()
                .any(|s| s.op == Op::Write && s.size == 8 << 20)
        );
        assert!(plan.left_out.iter().any(|text| text.contains("fetch-add")));
        assert!(
            plan.left_out
                .iter()
                .any(|text| text.contains("at most 4096"))
        );
        let nothing = planned("--op fetch-add", limits).expect_err("nothing");
        assert!(nothing.contains("no atomic operations"), "{nothing}");
    }

    #[test]
    fn large_messages_are_sent_less_often_unless_a_number_is_given() {
        let of = |words| planned(words, LIMITS).expect("a plan").steps[0];
        assert_eq!(of("-m latency").until, Until::Iterations(1000));
        assert_eq!(of("-m bandwidth").until, Until::Iterations(5000));
        assert_eq!(of("-m bandwidth -s 8M").until, Until::Iterations(128));
        assert_eq!(of("-s 8M -n 700").until, Until::Iterations(700));
        assert_eq!(of("-n 700").warm_up, 70);
        assert_eq!(of("-n 5 -w 9").warm_up, 9);
        assert_eq!(of("-D 2").until, Until::Elapsed(Duration::from_secs(2)));
        // Checked messages have memory of their own.
        assert_eq!(of("-m bandwidth -s 8M --validate").depth, 8);
        assert_eq!(of("-m bandwidth -s 8M").depth, 128);
    }

    #[test]
    fn queues_that_are_too_small_are_noticed_before_the_run() {
        let error = planned("-q 1000 -t 128", LIMITS).expect_err("too many");
        assert!(error.contains("at most 65536"), "{error}");
        let limits = Limits {
            posts: 16,
            ..LIMITS
        };
        let error = planned("", limits).expect_err("too deep");
        assert!(error.contains("16 posts"), "{error}");
    }
}
