//! Measures what an attack costs its victim.

use std::io;
use std::time::Duration;

use crate::Actor;

/// Resources that a process uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Resident memory in KiB.
    pub memory: u64,
    /// Processor time of all threads since the start.
    pub processor: Duration,
    /// Open descriptors.
    pub descriptors: usize,
}

impl Usage {
    /// Reads what the process `pid` uses now.
    ///
    /// # Errors
    /// When there is no such process, or its files in /proc are not readable.
    pub fn of(pid: u32) -> io::Result<Self> {
        let odd = |what: &str| io::Error::other(format!("/proc/{pid} has no {what}"));
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = memory.and_then(|line| line.trim().strip_suffix(" kB"));
        let memory = memory.and_then(|number| number.parse().ok());
        // In nanoseconds for each thread; stat would count hundredths of a second.
        let mut nanos = 0;
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let spent = std::fs::read_to_string(task?.path().join("schedstat"));
            let spent = spent.unwrap_or_default();
            nanos += spent
                .split(' ')
                .next()
                .map_or(0, |n| n.parse().unwrap_or(0));
        }
        Ok(Self {
            memory: memory.ok_or_else(|| odd("VmRSS"))?,
            processor: Duration::from_nanos(nanos),
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
        })
    }
}

/// A table of what a victim used before, during and after an attack.
#[derive(Debug)]
pub struct Figures {
    attack: String,
    rows: Vec<(String, Usage)>,
}

impl Figures {
    /// Creates an empty table.
    #[must_use]
    pub fn new(attack: &str) -> Self {
        Self {
            attack: attack.to_owned(),
            rows: Vec::new(),
        }
    }

    /// Adds what `victim` uses now, and returns it.
    ///
    /// # Panics
    /// When the victim has ended.
    pub fn note(&mut self, when: &str, victim: &Actor) -> Usage {
        let usage = victim.usage();
        self.rows.push((when.to_owned(), usage));
        usage
    }

    /// Prints the table; processor time is the time since the row before.
    pub fn show(&self) {
        println!(
            "\n| {} | memory KiB | processor ms | descriptors |",
            self.attack
        );
        println!("|---|---:|---:|---:|");
        let mut before = None;
        for (when, usage) in &self.rows {
            let spent = usage.processor - before.unwrap_or(usage.processor).min(usage.processor);
            before = Some(usage.processor);
            println!(
                "| {when} | {} | {:.1} | {} |",
                usage.memory,
                spent.as_secs_f64() * 1e3,
                usage.descriptors
            );
        }
    }
}
