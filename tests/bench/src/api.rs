//! `dat-bench api`: the Rust API beside the function table. Both processes change the way after each block of round trips, on one
//! connection with the same memory, so that a block and its neighbour differ in the way only. Two runs of one program differ by more
//! than the API costs: the layout of memory is another one, and the speed of a virtual machine changes within seconds.

use std::mem::MaybeUninit;
use std::time::Instant;

use dat::{Completion, Event, handles};
use dat_abi::v2_0::table::DatProvider;
use dat_abi::v2_0::types::DatEvent;
use dat_core::iov::LmrTriplet;

use crate::Result;
use crate::ours::{self, Link, MESSAGE, RECEIVE, Side, TIMEOUT};

/// Modes of the other process.
pub(crate) const POLLED: &str = "api-polled";
pub(crate) const WAITING: &str = "api-waiting";

/// Round trips of a block, blocks of each way, and blocks before these.
const BLOCK: usize = 100;
const BLOCKS: usize = 400;
const WARM: usize = 5;
/// Connections, each between new processes.
const CONNECTIONS: usize = 7;

/// How posts are made and completions are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    TableDequeue,
    PollCompletion,
    Poll,
    TableWait,
    WaitCompletion,
    Wait,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::TableDequeue => "table, dat_evd_dequeue",
            Self::PollCompletion => "Evd::poll_completion",
            Self::Poll => "Evd::poll",
            Self::TableWait => "table, dat_evd_wait",
            Self::WaitCompletion => "Evd::wait_completion",
            Self::Wait => "Evd::wait",
        }
    }
}

/// Returns the ways that are compared in a mode; the first one is the table's.
fn ways(mode: &str) -> [Way; 3] {
    if mode == POLLED {
        [Way::TableDequeue, Way::PollCompletion, Way::Poll]
    } else {
        [Way::TableWait, Way::WaitCompletion, Way::Wait]
    }
}

/// The endpoint and its dispatcher, as a C program has them.
struct Table {
    table: &'static DatProvider,
    ep: usize,
    evd: usize,
    message: LmrTriplet,
}

impl Table {
    fn of(side: &Side) -> Self {
        let ep = handles::ep(&side.ep);
        Self {
            // SAFETY: the first word of a handle points to its table, which lives as long as the IA.
            table: unsafe { &**(ep as *const *const DatProvider) },
            ep,
            evd: handles::evd(&side.done),
            message: handles::segment(&side.messages.slice(0..MESSAGE)),
        }
    }

    /// Posts a send of the outgoing message, or a receive of the incoming one.
    #[inline(always)]
    fn post(&self, is_send: bool) -> Result<()> {
        let mut one = self.message;
        let slot = if is_send {
            one.virtual_address += MESSAGE as u64;
            self.table.ep_post_send
        } else {
            self.table.ep_post_recv
        };
        let slot = slot.ok_or("the provider has no posts")?;
        let cookie = if is_send { 2 } else { RECEIVE };
        // SAFETY: a live handle, and a segment of a live region.
        success(unsafe { slot(self.ep, 1, &raw mut one, cookie, 0) })
    }

    /// Takes completions, up to one of a receive.
    #[inline(always)]
    fn message(&self, waits: bool) -> Result<()> {
        let dequeue = self.table.evd_dequeue.ok_or("no dat_evd_dequeue")?;
        let wait = self.table.evd_wait.ok_or("no dat_evd_wait")?;
        loop {
            let mut event = MaybeUninit::<DatEvent>::uninit();
            let at = event.as_mut_ptr();
            if waits {
                let (mut more, limit) = (0, TIMEOUT.as_micros() as u32);
                // SAFETY: a live handle, and room for the answers.
                success(unsafe { wait(self.evd, limit, 1, at, &raw mut more) })?;
            // SAFETY: as above.
            } else if unsafe { dequeue(self.evd, at) } != 0 {
                continue;
            }
            // SAFETY: the dispatcher has completions only.
            let done = unsafe { (*at).event_data.dto_completion_event_data };
            success(done.status)?;
            if done.user_cookie == RECEIVE {
                return Ok(());
            }
        }
    }
}

#[inline(always)]
fn success(code: u32) -> Result<()> {
    if code != 0 {
        return Err(format!("a call or an operation failed: {code:#x}").into());
    }
    Ok(())
}

/// Makes a block of round trips; the end that `begins` sends first. Each way is a loop of its own, as a program has it.
fn block(side: &Side, table: &Table, way: Way, begins: bool) -> Result<()> {
    let done = &side.done;
    let of_table = |waits: bool| {
        trips(
            begins,
            || table.post(true),
            || table.message(waits),
            || table.post(false),
        )
    };
    match way {
        Way::TableDequeue => of_table(false),
        Way::TableWait => of_table(true),
        Way::PollCompletion => of_api(side, begins, || Ok(done.poll_completion()?)),
        Way::Poll => of_api(side, begins, || {
            Ok(match done.poll()? {
                Some(Event::Completion(done)) => Some(done),
                _ => None,
            })
        }),
        Way::WaitCompletion => of_api(side, begins, || Ok(Some(done.wait_completion(TIMEOUT)?))),
        Way::Wait => of_api(side, begins, || {
            Ok(match done.wait(TIMEOUT)? {
                Event::Completion(done) => Some(done),
                _ => None,
            })
        }),
    }
}

#[inline(always)]
fn of_api(
    side: &Side,
    begins: bool,
    completion: impl Fn() -> Result<Option<Completion>>,
) -> Result<()> {
    let message = || loop {
        if let Some(done) = completion()?
            && done.result()?.cookie == RECEIVE
        {
            return Ok(());
        }
    };
    trips(begins, || side.send(), message, || side.expect())
}

#[inline(always)]
fn trips(
    begins: bool,
    send: impl Fn() -> Result<()>,
    message: impl Fn() -> Result<()>,
    expect: impl Fn() -> Result<()>,
) -> Result<()> {
    for _ in 0..BLOCK {
        if begins {
            send()?;
            expect()?;
            message()?;
        } else {
            message()?;
            send()?;
            expect()?;
        }
    }
    Ok(())
}

/// Performs the server's part until the connection ends.
pub(crate) fn answer(side: &Side, mode: &str) -> Result<()> {
    let table = Table::of(side);
    for way in ways(mode).into_iter().cycle() {
        block(side, &table, way, false)?;
    }
    Ok(())
}

/// Nanoseconds of half a round trip, by block and way.
type Times = Vec<[f64; 3]>;

fn measure(mode: &str) -> Result<Times> {
    let (_peer, side, _) = ours::connected(Link::Near, mode, mode == POLLED)?;
    let table = Table::of(&side);
    let mut times = Vec::with_capacity(BLOCKS);
    for turn in 0..WARM + BLOCKS {
        let mut of_turn = [0.0; 3];
        for (way, time) in ways(mode).into_iter().zip(&mut of_turn) {
            let begin = Instant::now();
            block(&side, &table, way, true)?;
            *time = begin.elapsed().as_nanos() as f64 / (2 * BLOCK) as f64;
        }
        if turn >= WARM {
            times.push(of_turn);
        }
    }
    Ok(times)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints the table of both modes.
pub(crate) fn print() -> Result<()> {
    println!(
        "| same host, send 64 B, half round trip | best, us | median, us | ratio to the table | of single connections |"
    );
    println!("|---|---:|---:|---:|---:|");
    for mode in [POLLED, WAITING] {
        let runs: Vec<Times> = (0..CONNECTIONS)
            .map(|_| measure(mode))
            .collect::<Result<_>>()?;
        for (at, way) in ways(mode).into_iter().enumerate() {
            let all = || runs.iter().flatten().map(|turn| turn[at] / 1e3);
            let best = all().fold(f64::INFINITY, f64::min);
            let of_run = |run: &Times| median(run.iter().map(|turn| turn[at] / turn[0]));
            let least = runs.iter().map(of_run).fold(f64::INFINITY, f64::min);
            let most = runs.iter().map(of_run).fold(0.0, f64::max);
            println!(
                "| {} | {best:.3} | {:.3} | {:.3} | {least:.3} to {most:.3} |",
                way.name(),
                median(all()),
                median(runs.iter().map(of_run)),
            );
        }
    }
    Ok(())
}
