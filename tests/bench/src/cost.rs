//! What a message costs each of its ends, in processor time: both live in one thread and take turns, so other work on the
//! machine changes little. `dat-bench cost` prints it, the engine beside bare sockets. No latency and no bandwidth: nothing
//! runs at the same time.

use std::time::Duration;

use crate::{Result, ours, raw};

/// Processor time of both ends.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    /// Of the end that sends.
    pub(crate) sender: Duration,
    /// Of the end that receives.
    pub(crate) receiver: Duration,
    /// Messages that it was for.
    pub(crate) messages: u64,
}

/// Processor time of this thread so far.
pub(crate) fn spent() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` has room for the answer; every thread has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Does `act` and adds what it cost to `to`.
pub(crate) fn charge<R>(to: &mut Duration, act: impl FnOnce() -> R) -> R {
    let begin = spent();
    let result = act();
    *to += spent().saturating_sub(begin);
    result
}

impl Cost {
    fn line(self, what: &str, who: &str) {
        let each = |of: Duration| of.as_secs_f64() * 1e6 / self.messages.max(1) as f64;
        println!(
            "| {what} | {who} | {:.2} | {:.2} |",
            each(self.sender),
            each(self.receiver)
        );
    }
}

/// One line of the table: what, of whom, and how it is taken.
type Line = (&'static str, &'static str, fn() -> Result<Cost>);

/// More than the caches hold.
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

/// Prints the lines that `word` is in, each as the cheapest of three.
pub(crate) fn print(word: &str) -> Result<()> {
    println!("| | | sender, us | receiver, us |");
    println!("|---|---|---:|---:|");
    for (what, who, take) in LINES {
        if !format!("{what}, {who}").contains(word) {
            continue;
        }
        let mut best = take()?;
        for _ in 0..2 {
            let next = take()?;
            best.sender = best.sender.min(next.sender);
            best.receiver = best.receiver.min(next.receiver);
        }
        best.line(what, who);
    }
    Ok(())
}
