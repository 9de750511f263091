//! The timer thread of core. It runs jobs at a later time: the timeouts of dat_ep_connect, the end of a graceful disconnect, and the
//! break of a connection after a failed completion.
//!
//! The thread starts with the first call that connects or accepts. That call fails if the thread cannot start, because later jobs
//! have no caller to report a failure to. It runs until [`shut_down`]. A program that makes no connection has no such thread.

use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dat_os::mutex::lock;

use crate::error::{Error, Result, Subtype};
use crate::reserve::has_thread_room;

type Job = Box<dyn FnOnce() + Send>;

struct Entry {
    due: Instant,
    number: u64,
    job: Job,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    /// Orders entries so that the greatest is due first; among entries due at the same time it is the oldest.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

#[derive(Default)]
struct Queue {
    entries: BinaryHeap<Entry>,
    count: u64,
    thread: Option<JoinHandle<()>>,
    stopping: bool,
}

/// Locks that leave nothing in a forked child: parking_lot would keep the entry of this thread, which sleeps most of the time, in a table of
/// the process (`dat-arena/src/mutex.rs`).
#[derive(Default)]
struct Timer {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Returns the timer of this process. A forked child gets a new one: it has copies of the parent's jobs, but not the thread.
fn timer() -> &'static Timer {
    static TIMER: Mutex<Option<(u32, &'static Timer)>> = Mutex::new(None);
    let process = std::process::id();
    let mut current = lock(&TIMER);
    match *current {
        Some((owner, timer)) if owner == process => timer,
        _ => {
            let timer: &Timer = Box::leak(Box::default());
            *current = Some((process, timer));
            timer
        }
    }
}

/// Starts the timer thread unless it runs.
///
/// # Errors
/// `DAT_INSUFFICIENT_RESOURCES` if the thread cannot start.
pub(crate) fn ready() -> Result<()> {
    start(&mut lock(&timer().queue))
}

fn start(queue: &mut Queue) -> Result<()> {
    if queue.thread.is_some() || queue.stopping {
        return Ok(());
    }
    if !has_thread_room() {
        tracing::error!("no memory for the timer thread; free objects, or raise `ulimit -v`");
        return Err(Error::resource(Subtype::ResourceMemory));
    }
    let body = || {
        dat_os::signals::block_asynchronous();
        run();
    };
    let thread = std::thread::Builder::new()
        .name("dat-timer".into())
        .stack_size(256 << 10)
        .spawn(body)
        .map_err(|error| {
            tracing::error!(%error, "cannot start the timer thread; raise the limit of memory or threads");
            Error::resource(Subtype::ResourceMemory)
        })?;
    queue.thread = Some(thread);
    Ok(())
}

/// Runs `job` after `delay` on the timer thread, which holds no locks. A job must be short. It cannot be cancelled, so it checks itself
/// whether it still has to act.
pub(crate) fn after(delay: Duration, job: impl FnOnce() + Send + 'static) {
    let timer = timer();
    let mut queue = lock(&timer.queue);
    if queue.stopping {
        return;
    }
    queue.count += 1;
    let number = queue.count;
    let now = Instant::now();
    let next = queue.entries.peek().map(|first| first.due);
    queue.entries.push(Entry {
        // A time that the clock cannot represent is never reached.
        due: now
            .checked_add(delay)
            .unwrap_or(now + Duration::from_secs(1 << 32)),
        number,
        job: Box::new(job),
    });
    // `start` logs its failure; the job runs when a later call has started the thread.
    if start(&mut queue).is_ok() && queue.entries.peek().map(|first| first.due) != next {
        // The thread sleeps until the first job is due; a later job need not wake it.
        timer.changed.notify_one();
    }
}

/// Runs `job` on the timer thread as soon as possible, for callers that hold locks.
pub(crate) fn run_soon(job: impl FnOnce() + Send + 'static) {
    after(Duration::ZERO, job);
}

/// Drops all jobs and waits until the thread has ended, before a provider is unloaded. A job must not call it.
pub fn shut_down() {
    let timer = timer();
    let mut queue = lock(&timer.queue);
    queue.stopping = true;
    let entries = std::mem::take(&mut queue.entries);
    let thread = queue.thread.take();
    timer.changed.notify_one();
    drop(queue);
    drop(entries);
    if let Some(thread) = thread
        && thread.join().is_err()
    {
        tracing::error!("a timer job panicked; this is a bug, please report it");
    }
    lock(&timer.queue).stopping = false;
}

fn run() {
    let timer = timer();
    let mut queue = lock(&timer.queue);
    while !queue.stopping {
        let due = queue.entries.peek().map(|first| first.due);
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        queue = match left {
            None => {
                let woken = timer.changed.wait(queue);
                woken.unwrap_or_else(PoisonError::into_inner)
            }
            Some(left) if !left.is_zero() => {
                let woken = timer.changed.wait_timeout(queue, left);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            Some(_) => {
                let entry = queue.entries.pop();
                drop(queue);
                if let Some(entry) = entry {
                    (entry.job)();
                }
                lock(&timer.queue)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_run_in_order_of_their_times() {
        let (send, recv) = mpsc::channel();
        // All jobs must be queued before the first one is due; under Miri that takes long.
        let unit = Duration::from_millis(if cfg!(miri) { 100 } else { 1 });
        for (delay, name) in [(30, "late"), (1, "first"), (15, "second")] {
            let send = send.clone();
            after(delay * unit, move || {
                send.send(name).unwrap();
            });
        }
        let wait = Duration::from_secs(10);
        let got: Vec<_> = (0..3).map(|_| recv.recv_timeout(wait).unwrap()).collect();
        assert_eq!(got, ["first", "second", "late"]);
        run_soon(move || send.send("again").unwrap());
        assert_eq!(recv.recv_timeout(wait), Ok("again"));
    }

    #[test]
    fn a_job_runs_before_one_that_was_queued_earlier_and_is_due_later() {
        let (send, recv) = mpsc::channel();
        let far = send.clone();
        after(Duration::from_secs(3600), move || {
            drop(far);
        });
        run_soon(move || send.send(()).unwrap());
        assert_eq!(recv.recv_timeout(Duration::from_secs(10)), Ok(()));
    }
}
