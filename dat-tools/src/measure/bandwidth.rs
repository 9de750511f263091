//! Bandwidth and message rate: each connection has many operations outstanding.
//!
//! Without validation a completed operation is replaced at once. With it the connections work in batches: the bytes are written
//! before a batch and compared after it, and only the batches are timed.

use std::time::{Duration, Instant};

use dat::{CompletionFlags, Remote};

use crate::measure::interrupt::Interrupt;
use crate::measure::pattern;
use crate::measure::plan::{Op, Step, Until};
use crate::measure::protocol::{CHECKED, FIRST_WRONG, HEAD, Request, Task, WORD, buffers};
use crate::measure::report::Checkpoint;
use crate::measure::session::{Fault, PATIENCE, Session, Shape, Target, buffer};

const NONE: CompletionFlags = CompletionFlags::empty();
/// Parts of a measurement between whose rates the peak is found.
const PARTS: u32 = 20;
/// Cookie of a read that checks.
const CHECK: u64 = u64::MAX;
/// Offset of the copy of the server's counters.
const COUNTERS: usize = 0;
/// Bytes of the server's counters.
const COUNTER_BYTES: usize = 16;

/// State of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    posted: u64,
    done: u64,
    /// Number of operations at which the present run ends.
    end: u64,
}

/// A measurement of bandwidth.
pub(crate) struct Bandwidth<'a> {
    step: Step,
    /// Number of buffers of a connection.
    count: usize,
    session: Session<'a>,
    lanes: Vec<Lane>,
    scratch: Vec<u8>,
}

/// Progress of a run: operations of all connections, and the times at which some of them were complete.
struct Clock {
    begin: Instant,
    last: Instant,
    every: Duration,
    checkpoints: Vec<Checkpoint>,
}

impl Clock {
    fn new(every: Duration) -> Self {
        let begin = Instant::now();
        Self {
            begin,
            last: begin,
            every,
            checkpoints: vec![Checkpoint::default()],
        }
    }

    fn add(&mut self, posted: u64, done: u64, now: Instant) {
        self.last = now;
        let nanos = u64::try_from((now - self.begin).as_nanos()).unwrap_or(u64::MAX);
        self.checkpoints.push(Checkpoint {
            posted,
            done,
            at: nanos,
        });
    }
}

impl<'a> Bandwidth<'a> {
    /// Connects.
    pub(crate) fn open(
        target: &'a Target,
        interrupt: &Interrupt,
        step: Step,
    ) -> Result<Self, Fault> {
        let count = if step.op.is_atomic() {
            step.depth as usize
        } else {
            buffers(step.size, step.depth, step.validate)
        };
        let request = Request {
            task: if step.op == Op::Send {
                Task::Sink
            } else {
                Task::Memory
            },
            wait: step.wait,
            validate: step.validate,
            size: step.size as u64,
            depth: step.depth,
            memory: Remote::default(),
        };
        let shape = Shape {
            connections: step.connections,
            requests: step.depth,
            receives: 0,
            memory: HEAD + count * step.size,
            lent: (0, HEAD),
        };
        let session = Session::open(target, interrupt, request, shape, |_, _| Ok(()))?;
        Ok(Self {
            step,
            count,
            lanes: vec![Lane::default(); session.links.len()],
            session,
            scratch: vec![0; step.size],
        })
    }

    /// Measures.
    pub(crate) fn run(mut self, mut progress: impl FnMut(f64)) -> Result<Vec<Checkpoint>, Fault> {
        if self.step.warm_up > 0 {
            self.pass(Until::Iterations(self.step.warm_up), &mut |_| {})?;
        }
        let checkpoints = self.pass(self.step.until, &mut progress)?;
        self.session.close();
        Ok(checkpoints)
    }

    fn pass(
        &mut self,
        until: Until,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Vec<Checkpoint>, Fault> {
        if self.step.validate {
            self.batches(until, progress)
        } else {
            self.stream(until, progress)
        }
    }

    /// Keeps `depth` operations of each connection outstanding.
    fn stream(
        &mut self,
        until: Until,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Vec<Checkpoint>, Fault> {
        let lanes = self.lanes.len() as u64;
        let (most, every, limit) = match until {
            Until::Iterations(count) => (count, Duration::ZERO, None),
            Until::Elapsed(duration) => (u64::MAX, duration / PARTS, Some(duration)),
        };
        for lane in &mut self.lanes {
            *lane = Lane {
                end: lane.done.saturating_add(most),
                posted: lane.done,
                done: lane.done,
            };
        }
        let part = (most.saturating_mul(lanes) / u64::from(PARTS)).max(1);
        let mut clock = Clock::new(every);
        let mut outstanding = 0_u64;
        for at in 0..self.lanes.len() {
            for _ in 0..most.min(u64::from(self.step.depth)) {
                self.post(at)?;
                outstanding += 1;
            }
        }
        let mut total = 0;
        while outstanding > 0 {
            let done = self.session.next()?;
            let at = done.cookie as usize;
            self.lanes[at].done += 1;
            total += 1;
            outstanding -= 1;
            if self.lanes[at].posted < self.lanes[at].end {
                self.post(at)?;
                outstanding += 1;
            }
            if let Some(limit) = limit {
                let now = Instant::now();
                if now - clock.last >= clock.every {
                    clock.add(total + outstanding, total, now);
                    progress((now - clock.begin).as_secs_f64() / limit.as_secs_f64().max(1e-9));
                }
                if now - clock.begin >= limit {
                    self.lanes
                        .iter_mut()
                        .for_each(|lane| lane.end = lane.posted);
                }
            } else if total % part == 0 {
                clock.add(total + outstanding, total, Instant::now());
                progress(total as f64 / (most * lanes) as f64);
            }
        }
        clock.add(total + outstanding, total, Instant::now());
        Ok(clock.checkpoints)
    }

    #[inline]
    fn post(&mut self, at: usize) -> Result<(), Fault> {
        let number = self.lanes[at].posted;
        self.lanes[at].posted += 1;
        let index = (number % self.count as u64) as usize;
        self.post_on(at, index, number)
            .map_err(|error| self.session.refused(error))
    }

    /// Posts operation `number` of a connection, counted from 0, on buffer `index`.
    #[inline]
    fn post_on(&self, at: usize, index: usize, number: u64) -> Result<(), dat::PostError> {
        let (link, size) = (&self.session.links[at], self.step.size);
        let cookie = at as u64;
        let range = buffer(HEAD, size, index);
        let local = link.local.slice(range.clone());
        let memory = || link.remote.slice(range.start as u32..range.end as u32);
        let word = || link.remote.slice(WORD as u32..WORD as u32 + 8);
        match self.step.op {
            Op::Send => link.ep.post_send(&[local], cookie),
            Op::Write => link.ep.post_rdma_write(&[local], memory(), cookie, NONE),
            Op::Read => link.ep.post_rdma_read(&[local], memory(), cookie, NONE),
            Op::FetchAdd => link.ep.post_fetch_add(local, word(), 1, cookie, NONE),
            Op::CompareSwap => {
                let values = (number, number + 1);
                link.ep
                    .post_compare_swap(local, word(), values, cookie, NONE)
            }
        }
    }

    /// Transfers in batches, and compares the bytes of each.
    fn batches(
        &mut self,
        until: Until,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Vec<Checkpoint>, Fault> {
        let mut checkpoints = vec![Checkpoint::default()];
        let (mut spent, mut each) = (Duration::ZERO, 0);
        let begin = Instant::now();
        loop {
            let size = match until {
                Until::Iterations(count) if each >= count => break,
                Until::Elapsed(duration) if each > 0 && begin.elapsed() >= duration => break,
                Until::Iterations(count) => (count - each).min(self.count as u64),
                Until::Elapsed(_) => self.count as u64,
            };
            spent += self.batch(size as usize)?;
            each += size;
            let nanos = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
            let done = each * self.lanes.len() as u64;
            checkpoints.push(Checkpoint {
                posted: done,
                done,
                at: nanos,
            });
            progress(match until {
                Until::Iterations(count) => each as f64 / count as f64,
                Until::Elapsed(duration) => {
                    begin.elapsed().as_secs_f64() / duration.as_secs_f64().max(1e-9)
                }
            });
        }
        Ok(checkpoints)
    }

    /// Transfers `size` operations of each connection, and returns the time that they took.
    fn batch(&mut self, size: usize) -> Result<Duration, Fault> {
        for at in 0..self.lanes.len() {
            for index in 0..size {
                self.prepare(at, index);
            }
        }
        let begin = Instant::now();
        for at in 0..self.lanes.len() {
            for index in 0..size {
                let number = self.lanes[at].posted + index as u64;
                self.post_on(at, index, number)
                    .map_err(|error| self.session.refused(error))?;
            }
        }
        for _ in 0..size * self.lanes.len() {
            self.session.next()?;
        }
        let spent = begin.elapsed();
        for at in 0..self.lanes.len() {
            let first = self.lanes[at].posted;
            self.lanes[at].posted += size as u64;
            self.lanes[at].done = self.lanes[at].posted;
            if self.step.op == Op::Send {
                self.check_there(at, first + size as u64)?;
                continue;
            }
            for index in 0..size {
                self.check(at, index, first + index as u64)?;
            }
        }
        Ok(spent)
    }

    /// Fills a buffer, or clears it for a read.
    fn prepare(&mut self, at: usize, index: usize) {
        let seed = self.lanes[at].posted + index as u64 + 1;
        match self.step.op {
            Op::Send | Op::Write => pattern::fill(&mut self.scratch, seed),
            Op::Read | Op::FetchAdd | Op::CompareSwap => self.scratch.fill(0),
        }
        let range = buffer(HEAD, self.step.size, index);
        self.session.links[at]
            .local
            .write(range.start, &self.scratch);
    }

    /// Compares what operation `number`, counted from 0, transferred.
    fn check(&mut self, at: usize, index: usize, number: u64) -> Result<(), Fault> {
        let range = buffer(HEAD, self.step.size, index);
        let mut seed = number + 1;
        match self.step.op {
            Op::Send => {}
            Op::Write => {
                // What the server's memory contains comes back into the buffer, which is cleared before.
                let link = &self.session.links[at];
                self.scratch.fill(0);
                link.local.write(range.start, &self.scratch);
                let remote = link.remote.slice(range.start as u32..range.end as u32);
                let local = link.local.slice(range.clone());
                let posted = link.ep.post_rdma_read(&[local], remote, CHECK, NONE);
                posted.map_err(|error| self.session.refused(error))?;
                self.session.next()?;
            }
            Op::Read => seed = index as u64 + 1,
            Op::FetchAdd | Op::CompareSwap => {
                let found = self.session.links[at].local.load_u64(range.start);
                return if found == number {
                    Ok(())
                } else {
                    Err(Fault::WrongWord {
                        message: number + 1,
                        found,
                        expected: number,
                    })
                };
            }
        }
        self.session.links[at]
            .local
            .read(range.start, &mut self.scratch);
        match pattern::difference(&self.scratch, seed) {
            None => Ok(()),
            Some(difference) => Err(Fault::Damaged {
                message: number + 1,
                difference,
            }),
        }
    }

    /// Waits until the server has checked `messages` messages, and asks for its verdict.
    fn check_there(&mut self, at: usize, messages: u64) -> Result<(), Fault> {
        let begin = Instant::now();
        let link = &self.session.links[at];
        loop {
            let local = link.local.slice(COUNTERS..COUNTERS + COUNTER_BYTES);
            let remote = link
                .remote
                .slice(CHECKED as u32..(CHECKED + COUNTER_BYTES) as u32);
            let posted = link.ep.post_rdma_read(&[local], remote, CHECK, NONE);
            posted.map_err(|error| self.session.refused(error))?;
            self.session.next()?;
            let wrong = u64::from_be(link.local.load_u64(FIRST_WRONG));
            if wrong != 0 {
                return Err(Fault::DamagedThere { message: wrong });
            }
            if u64::from_be(link.local.load_u64(CHECKED)) >= messages {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(self.session.silent());
            }
            std::thread::yield_now();
        }
    }
}
