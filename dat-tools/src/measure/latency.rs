//! Latency: one operation of each connection is outstanding, and each is timed.

use std::time::{Duration, Instant};

use dat::{CompletionFlags, Remote};

use crate::measure::events::Idle;
use crate::measure::histogram::Histogram;
use crate::measure::interrupt::Interrupt;
use crate::measure::pattern;
use crate::measure::plan::{Op, Step, Until};
use crate::measure::protocol::{ECHO_BUFFERS, HEAD, Request, SCRATCH, SCRATCH_BYTES, Task, WORD};
use crate::measure::session::{Fault, Link, Session, Shape, Target, buffer};

/// Requests whose completion need not be seen before the next one is posted: the echo says that the message has arrived.
const UNSEEN: u32 = 4;
/// Cookie of a request; a receive has the number of its buffer.
const REQUEST: u64 = 0xff;
const NONE: CompletionFlags = CompletionFlags::empty();

/// How the end of an operation is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By a message that comes back.
    Message,
    /// By the last byte of memory that the peer writes.
    Memory,
    /// By the immediate data of the peer's write.
    Immediate,
    /// By the completion.
    Completion,
}

impl Way {
    fn of(op: Op, wait: bool) -> Self {
        match op {
            Op::Send => Self::Message,
            Op::Write if wait => Self::Immediate,
            Op::Write => Self::Memory,
            Op::Read | Op::FetchAdd | Op::CompareSwap => Self::Completion,
        }
    }

    fn task(self) -> Task {
        match self {
            Self::Message => Task::Echo,
            Self::Memory => Task::EchoWrite,
            Self::Immediate => Task::EchoImmediate,
            Self::Completion => Task::Memory,
        }
    }
}

/// State of a connection.
#[derive(Clone, Copy, Debug)]
struct Flight {
    /// Operations that have begun.
    begun: u64,
    since: Instant,
    /// Requests without a completion so far.
    requests: u32,
    /// An operation is outstanding.
    is_busy: bool,
    /// The next operation waits for a completion.
    is_blocked: bool,
}

/// A measurement of latency.
pub(crate) struct Latency<'a> {
    step: Step,
    way: Way,
    session: Session<'a>,
    flights: Vec<Flight>,
    times: Histogram,
    scratch: Vec<u8>,
}

/// Offset of what is sent, in the memory of a connection.
const OUT: usize = HEAD;

impl<'a> Latency<'a> {
    /// Connects.
    pub(crate) fn open(
        target: &'a Target,
        interrupt: &Interrupt,
        step: Step,
    ) -> Result<Self, Fault> {
        let way = Way::of(step.op, step.wait);
        let request = Request {
            task: way.task(),
            wait: step.wait,
            validate: step.validate,
            size: step.size as u64,
            depth: 1,
            memory: Remote::default(),
        };
        let into = OUT + step.size;
        let receives = match way {
            Way::Message | Way::Immediate => ECHO_BUFFERS,
            Way::Memory | Way::Completion => 0,
        };
        let shape = Shape {
            connections: step.connections,
            requests: UNSEEN,
            receives: receives as u32,
            memory: into + ECHO_BUFFERS.max(1) * step.size,
            lent: (into, into + step.size),
        };
        let session = Session::open(target, interrupt, request, shape, |at, link| {
            (0..receives).try_for_each(|slot| post_receive(link, at, slot, way, step.size))
        })?;
        let flight = Flight {
            begun: 0,
            since: Instant::now(),
            requests: 0,
            is_busy: false,
            is_blocked: false,
        };
        Ok(Self {
            step,
            way,
            flights: vec![flight; session.links.len()],
            session,
            times: Histogram::default(),
            scratch: vec![0; step.size],
        })
    }

    /// Measures, and returns the durations in nanoseconds. `progress` is told the share that is done.
    pub(crate) fn run(mut self, mut progress: impl FnMut(f64)) -> Result<Histogram, Fault> {
        let first = self.step.warm_up;
        let mut end: Option<Instant> = None;
        for at in 0..self.flights.len() {
            self.begin(at)?;
        }
        let mut active = self.flights.len();
        while active > 0 {
            let at = self.arrival()?;
            let now = Instant::now();
            let flight = &mut self.flights[at];
            flight.is_busy = false;
            let number = flight.begun;
            if number > first {
                self.times
                    .add(u64::try_from((now - flight.since).as_nanos()).unwrap_or(u64::MAX));
            }
            if self.step.validate {
                self.check(at, number)?;
            }
            let go_on = match self.step.until {
                Until::Iterations(count) => number < first + count,
                Until::Elapsed(duration) => {
                    number <= first || now < *end.get_or_insert(now + duration)
                }
            };
            progress(self.share(number, end, now));
            if go_on {
                self.begin_or_block(at)?;
            } else {
                active -= 1;
            }
        }
        self.session.close();
        Ok(self.times)
    }

    fn share(&self, number: u64, end: Option<Instant>, now: Instant) -> f64 {
        match (self.step.until, end) {
            (Until::Iterations(count), _) => {
                number as f64 / (count + self.step.warm_up).max(1) as f64
            }
            (Until::Elapsed(duration), Some(end)) => {
                let left = end.saturating_duration_since(now);
                1.0 - left.as_secs_f64() / duration.max(Duration::from_nanos(1)).as_secs_f64()
            }
            (Until::Elapsed(_), None) => 0.0,
        }
    }

    fn begin_or_block(&mut self, at: usize) -> Result<(), Fault> {
        let flight = &mut self.flights[at];
        if flight.requests >= UNSEEN {
            flight.is_blocked = true;
            return Ok(());
        }
        self.begin(at)
    }

    /// Begins the next operation of a connection.
    fn begin(&mut self, at: usize) -> Result<(), Fault> {
        let (link, size) = (&self.session.links[at], self.step.size);
        let number = self.flights[at].begun + 1;
        if self.step.validate && self.step.op.is_echoed() {
            pattern::fill(&mut self.scratch, number);
            link.local.write(OUT, &self.scratch);
        }
        if self.way == Way::Memory {
            link.local.write(OUT + size - 1, &[number as u8]);
        }
        if self.step.validate && self.step.op == Op::Read {
            link.local.write(OUT, &vec![0; size]);
        }
        let flight = &mut self.flights[at];
        *flight = Flight {
            begun: number,
            since: Instant::now(),
            requests: flight.requests + 1,
            is_busy: true,
            is_blocked: false,
        };
        let posted = self.post(at, number);
        posted.map_err(|error| self.session.refused(error))
    }

    #[inline]
    fn post(&self, at: usize, number: u64) -> Result<(), dat::PostError> {
        let (link, size) = (&self.session.links[at], self.step.size);
        let cookie = cookie(at, REQUEST);
        let out = link.local.slice(OUT..OUT + size);
        let head = u32::try_from(HEAD).unwrap_or(0);
        let memory = || link.remote.slice(head..head + size as u32);
        let word = || {
            let word = WORD as u32;
            link.remote.slice(word..word + 8)
        };
        match self.step.op {
            Op::Send => link.ep.post_send(&[out], cookie),
            Op::Write if self.way == Way::Immediate => {
                let value = number as u32;
                link.ep
                    .post_rdma_write_immediate(&[out], memory(), value, cookie, NONE)
            }
            Op::Write => link.ep.post_rdma_write(&[out], memory(), cookie, NONE),
            Op::Read => link.ep.post_rdma_read(&[out], memory(), cookie, NONE),
            Op::FetchAdd => link.ep.post_fetch_add(out, word(), 1, cookie, NONE),
            Op::CompareSwap => {
                link.ep
                    .post_compare_swap(out, word(), (number - 1, number), cookie, NONE)
            }
        }
    }

    /// Waits until an operation is complete, and returns its connection.
    #[inline]
    fn arrival(&mut self) -> Result<usize, Fault> {
        if self.way == Way::Memory {
            return self.memory_arrival();
        }
        loop {
            let done = self.session.next()?;
            let (at, kind) = (of_cookie(done.cookie), done.cookie & 0xff);
            if kind == REQUEST {
                self.flights[at].requests -= 1;
                if self.way == Way::Completion {
                    return Ok(at);
                }
                if self.flights[at].is_blocked {
                    self.begin(at)?;
                }
                continue;
            }
            if self.step.validate && self.way == Way::Message {
                let from = self.receive(kind as usize);
                self.session.links[at]
                    .local
                    .read(from.start, &mut self.scratch);
            }
            let link = &self.session.links[at];
            post_receive(link, at, kind as usize, self.way, self.step.size)
                .map_err(|error| self.session.refused(error))?;
            return Ok(at);
        }
    }

    fn memory_arrival(&mut self) -> Result<usize, Fault> {
        let last = OUT + 2 * self.step.size - 1;
        let mut idle = Idle::default();
        loop {
            for (at, flight) in self.flights.iter().enumerate() {
                let link = &self.session.links[at];
                if flight.is_busy && link.local.load(last) == flight.begun as u8 {
                    return Ok(at);
                }
            }
            match self.session.poll()? {
                Some(done) => {
                    let at = of_cookie(done.cookie);
                    self.flights[at].requests -= 1;
                    if self.flights[at].is_blocked {
                        self.begin(at)?;
                    }
                }
                None => self.session.after_empty_poll(&mut idle)?,
            }
        }
    }

    fn receive(&self, slot: usize) -> std::ops::Range<usize> {
        buffer(OUT + self.step.size, self.step.size, slot)
    }

    /// Compares what operation `number` transferred.
    fn check(&mut self, at: usize, number: u64) -> Result<(), Fault> {
        let (link, size) = (&self.session.links[at], self.step.size);
        let mut seed = number;
        match self.step.op {
            // `arrival` has copied the message before its buffer was posted again.
            Op::Send => {}
            Op::Write => {
                link.local.read(OUT + size, &mut self.scratch);
                if self.way == Way::Memory {
                    // The last byte is the mark, which `memory_arrival` has compared.
                    self.scratch.pop();
                }
            }
            Op::Read => {
                link.local.read(OUT, &mut self.scratch);
                seed = 1;
            }
            Op::FetchAdd | Op::CompareSwap => {
                let (found, expected) = (link.local.load_u64(OUT), number - 1);
                if found != expected {
                    return Err(Fault::WrongWord {
                        message: number,
                        found,
                        expected,
                    });
                }
                return Ok(());
            }
        }
        let difference = pattern::difference(&self.scratch, seed);
        self.scratch.resize(size, 0);
        match difference {
            None => Ok(()),
            Some(difference) => Err(Fault::Damaged {
                message: number,
                difference,
            }),
        }
    }
}

fn cookie(at: usize, kind: u64) -> u64 {
    (at as u64) << 8 | kind
}

fn of_cookie(cookie: u64) -> usize {
    (cookie >> 8) as usize
}

/// Posts a receive for an echo: for a message, or for immediate data, which brings no bytes.
fn post_receive(
    link: &Link,
    at: usize,
    slot: usize,
    way: Way,
    size: usize,
) -> Result<(), dat::PostError> {
    let range = if way == Way::Immediate {
        SCRATCH..SCRATCH + SCRATCH_BYTES
    } else {
        buffer(OUT + size, size, slot)
    };
    link.ep
        .post_recv(&[link.local.slice(range)], cookie(at, slot as u64))
}
