//! Processor time of a message at each side. Both sides run in one thread and take turns, so other work on the machine
//! changes little. `dat-bench cost` prints the engine's figures beside bare sockets'. Nothing runs concurrently, so
//! the figures are neither latency nor bandwidth.

use std::time::Duration;

use crate::{Result, ours, raw};

/// Processor time of both sides.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    /// Time of the sending side.
    pub(crate) sender: Duration,
    /// Time of the receiving side.
    pub(crate) receiver: Duration,
    /// Number of messages.
    pub(crate) messages: u64,
}

/// Returns the processor time of this thread.
pub(crate) fn spent() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` has room for the answer; every thread has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs `act` and adds its processor time to `to`.
pub(crate) fn charge<R>(to: &mut Duration, act: impl FnOnce() -> R) -> R {
    let begin = spent();
    let result = act();
    *to += spent().saturating_sub(begin);
    result
}

impl Cost {
    fn line(self, what: &str, contestant: &str) {
        let each = |of: Duration| of.as_secs_f64() * 1e6 / self.messages.max(1) as f64;
        println!(
            "| {what} | {contestant} | {:.2} | {:.2} |",
            each(self.sender),
            each(self.receiver)
        );
    }
}

/// A line of the table: operation, contestant and measurement.
type Line = (&'static str, &'static str, fn() -> Result<Cost>);

/// Size of a buffer larger than the caches.
const COLD: usize = 64 << 20;

const LINES: [Line; 8] = [
    ("64 B, there and back", "user engine", ours::exchange),
    ("64 B, there and back", "raw UDP", raw::exchange),
    ("RDMA write 64 KiB", "user engine", || {
        ours::transfer(1 << 16, 8, 1 << 16)
    }),
    ("RDMA write 64 KiB", "raw UDP", || {
        raw::transfer(1 << 16, 8, 1 << 16)
    }),
    ("RDMA write 64 KiB of 64 MiB", "user engine", || {
        ours::transfer(1 << 16, 8, COLD)
    }),
    ("RDMA write 64 KiB of 64 MiB", "raw UDP", || {
        raw::transfer(1 << 16, 8, COLD)
    }),
    ("RDMA write 1 MiB", "user engine", || {
        ours::transfer(1 << 20, 2, 1 << 20)
    }),
    ("RDMA write 1 MiB", "raw UDP", || {
        raw::transfer(1 << 20, 2, 1 << 20)
    }),
];

/// Prints the lines that contain `word`, each as the lowest of three runs.
pub(crate) fn print(word: &str) -> Result<()> {
    println!("| | | sender, us | receiver, us |");
    println!("|---|---|---:|---:|");
    for (what, contestant, take) in LINES {
        if !format!("{what}, {contestant}").contains(word) {
            continue;
        }
        let mut best = take()?;
        for _ in 0..2 {
            let next = take()?;
            best.sender = best.sender.min(next.sender);
            best.receiver = best.receiver.min(next.receiver);
        }
        best.line(what, contestant);
    }
    Ok(())
}
