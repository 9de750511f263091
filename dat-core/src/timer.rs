//! The timer thread of core. It runs jobs at a later time: the timeouts of dat_ep_connect, the end of a graceful disconnect, the break of
//! a connection after a failed completion, and the event of an end that waits until a device has flushed.
//!
//! The thread starts with the first call that connects or accepts. That call fails if the thread cannot start, because later jobs
//! have no caller to report a failure to. It runs until [`shut_down`]. A program that makes no connection has no such thread.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dat_os::mutex::lock;

use crate::error::{Error, Result, Subtype};
use crate::reserve::has_thread_room;

type Job = Box<dyn FnOnce() + Send>;

/// When a job is due by [`Queue::now`], and its number, which orders jobs that are due at the same time.
type Key = (Instant, u64);

/// Longest sleep of the thread while jobs wait. A stop of the process costs a job at most so much of its time.
const TICK: Duration = Duration::from_secs(1);
/// A sleep that lasted so much longer than was asked for shows that the process did not run.
const STOPPED: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Queue {
    jobs: BTreeMap<Key, Job>,
    count: u64,
    thread: Option<JoinHandle<()>>,
    stopping: bool,
    /// Time for which the process did not run: it was stopped, or its virtual machine was. No peer could reach it then, and a peer on the
    /// same host did not run either, so it does not count as time in which no answer came.
    lost: Duration,
    /// The process was stopped during the last sleep.
    stopped: bool,
}

impl Queue {
    /// Returns when the first job is due.
    fn next(&self) -> Option<Instant> {
        self.jobs.keys().next().map(|(due, _)| *due)
    }

    /// Returns the time, without that for which the process did not run.
    fn now(&self) -> Instant {
        let now = Instant::now();
        now.checked_sub(self.lost).unwrap_or(now)
    }

    /// Records that the thread slept for `slept` when it asked for `asked`. The process may have been stopped at once, so nothing of that
    /// counts. At the next stop `asked` counts: a process that is stopped again and again gets to its jobs, too.
    fn slept(&mut self, asked: Duration, slept: Duration) {
        let stopped = slept >= asked + STOPPED;
        if stopped {
            let counts = if self.stopped { asked } else { Duration::ZERO };
            self.lost += slept - counts;
        }
        self.stopped = stopped;
    }
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
    let builder = std::thread::Builder::new()
        .name("dat-timer".into())
        .stack_size(256 << 10);
    let thread = dat_os::signals::spawn(builder, run).map_err(|error| {
            tracing::error!(%error, "cannot start the timer thread; raise the limit of memory or threads");
            Error::resource(Subtype::ResourceMemory)
        })?;
    queue.thread = Some(thread);
    Ok(())
}

/// A job that waits for its time, until this is dropped: a program may connect many thousand times within one timeout. The job may run at
/// that moment, so it checks itself whether it still has to act.
#[derive(Debug)]
pub(crate) struct Pending(Key);

impl Pending {
    /// Runs `job` as [`after`] does, unless the value returned is dropped before.
    pub(crate) fn new(delay: Duration, job: impl FnOnce() + Send + 'static) -> Self {
        Self(enqueue(delay, Box::new(job)))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // A statement of its own: the job is dropped without the lock.
        let job = lock(&timer().queue).jobs.remove(&self.0);
        drop(job);
    }
}

/// Runs `job` after `delay` on the timer thread, which holds no locks. A job must be short. It checks itself whether it still has to act.
pub(crate) fn after(delay: Duration, job: impl FnOnce() + Send + 'static) {
    enqueue(delay, Box::new(job));
}

fn enqueue(delay: Duration, job: Job) -> Key {
    let timer = timer();
    let mut queue = lock(&timer.queue);
    queue.count += 1;
    let now = queue.now();
    // A time that the clock cannot represent is never reached.
    let due = now
        .checked_add(delay)
        .unwrap_or(now + Duration::from_secs(1 << 32));
    let key = (due, queue.count);
    if queue.stopping {
        return key;
    }
    let next = queue.next();
    queue.jobs.insert(key, job);
    // `start` logs its failure; the job runs when a later call has started the thread.
    if start(&mut queue).is_ok() && queue.next() != next {
        // The thread sleeps until the first job is due; a later job need not wake it.
        timer.changed.notify_one();
    }
    key
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
    let jobs = std::mem::take(&mut queue.jobs);
    let thread = queue.thread.take();
    timer.changed.notify_one();
    drop(queue);
    drop(jobs);
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
        let left = queue
            .next()
            .map(|due| due.saturating_duration_since(queue.now()));
        queue = match left {
            None => {
                let woken = timer.changed.wait(queue);
                woken.unwrap_or_else(PoisonError::into_inner)
            }
            Some(left) if !left.is_zero() => {
                let (begin, asked) = (Instant::now(), left.min(TICK));
                let woken = timer.changed.wait_timeout(queue, asked);
                let (mut queue, _) = woken.unwrap_or_else(PoisonError::into_inner);
                // Also if another thread woke this one: it may have run first when the process went on.
                queue.slept(asked, begin.elapsed());
                queue
            }
            Some(_) => {
                let first = queue.jobs.pop_first();
                drop(queue);
                if let Some((_, job)) = first {
                    job();
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

    #[test]
    fn time_for_which_the_process_did_not_run_does_not_count() {
        let mut queue = Queue::default();
        let begin = Instant::now();
        let due = begin + Duration::from_secs(10);
        queue.slept(TICK, Duration::from_millis(1900));
        assert_eq!(queue.lost, Duration::ZERO, "a busy machine");
        // The machine's clock went on by an hour while the process was stopped: it is as if it had not.
        let stop = Duration::from_secs(3600);
        queue.slept(TICK, stop);
        let left = |queue: &Queue| due.saturating_duration_since(queue.now());
        assert!(left(&queue) > due - begin);
        assert!(begin.elapsed() < stop);
        // Stops in a row do not keep a job from its time.
        queue.slept(TICK, stop);
        assert_eq!(queue.lost, 2 * stop - TICK);
        queue.slept(TICK, TICK);
        queue.slept(Duration::from_millis(20), stop);
        assert_eq!(queue.lost, 3 * stop - TICK);
    }

    #[test]
    fn a_job_that_is_given_up_is_dropped_at_once() {
        let (send, recv) = mpsc::channel::<()>();
        let job = Pending::new(Duration::from_secs(3600), move || drop(send));
        assert_eq!(recv.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(job);
        assert_eq!(recv.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }
}
