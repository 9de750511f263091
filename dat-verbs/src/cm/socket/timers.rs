//! Deadlines of connections in progress, on one timer descriptor.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use dat_arena::Mutex;
use dat_os::timerfd::TimerFd;

/// Deadlines by key. The descriptor becomes readable when one has passed.
pub(crate) struct Timers {
    fd: TimerFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: BTreeSet<(Instant, u64)>,
    /// Time at which the descriptor will fire. It is not moved back when its deadline is removed: nearly all are
    /// removed, and one spurious event costs less than a system call for each.
    armed: Option<Instant>,
}

impl Timers {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            fd: TimerFd::new()?,
            state: Mutex::default(),
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Adds a deadline for `key`; returns the value that [`Timers::unset`] takes.
    pub(crate) fn set(&self, after: Duration, key: u64) -> Instant {
        let at = Instant::now() + after;
        let mut state = self.state.lock();
        state.queue.insert((at, key));
        if state.armed.is_none_or(|armed| armed > at) {
            state.armed = Some(at);
            self.fd.set(after);
        }
        at
    }

    /// Removes a deadline. The descriptor may still fire for it.
    pub(crate) fn unset(&self, at: Instant, key: u64) {
        self.state.lock().queue.remove(&(at, key));
    }

    /// Removes and returns the keys whose deadlines have passed.
    pub(crate) fn due(&self) -> Vec<u64> {
        self.fd.clear();
        let now = Instant::now();
        let mut state = self.state.lock();
        state.armed = None;
        let mut due = Vec::new();
        while let Some((at, key)) = state.queue.first().copied() {
            if at > now {
                state.armed = Some(at);
                self.fd.set(at - now);
                break;
            }
            state.queue.pop_first();
            due.push(key);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::{Builder, JoinHandle};

    use dat_os::sleep::{Slept, on_readable};

    use super::*;

    /// Returns true if the timer fires within `time`.
    fn fires(timers: &Timers, time: Duration) -> bool {
        on_readable([timers.fd()], Some(time)) == Slept::Woken
    }

    #[test]
    fn deadlines_fire_in_order_and_forgotten_ones_do_not() {
        let timers = Timers::new().unwrap();
        let later = timers.set(Duration::from_secs(3600), 1);
        timers.set(Duration::from_millis(20), 2);
        let never = timers.set(Duration::from_millis(10), 3);
        timers.unset(never, 3);
        let mut due = Vec::new();
        // The first event is that of the removed deadline.
        while due.is_empty() {
            assert!(fires(&timers, Duration::from_secs(20)));
            due = timers.due();
        }
        assert_eq!(due, [2]);
        assert!(!fires(&timers, Duration::from_millis(1)), "an hour to go");
        assert_eq!(timers.due(), []);
        timers.unset(later, 1);
        assert!(timers.state.lock().queue.is_empty());
    }

    /// `count` threads with stacks of `stack` bytes set a deadline, once they `may_begin`.
    fn setters(
        timers: &Arc<Timers>,
        (count, stack): (u64, usize),
        may_begin: &Arc<AtomicBool>,
    ) -> Vec<JoinHandle<()>> {
        let set = |key| {
            let (timers, may_begin) = (Arc::clone(timers), Arc::clone(may_begin));
            let body = move || {
                while !may_begin.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                timers.set(Duration::from_secs(3600), key);
            };
            let builder = Builder::new().stack_size(stack);
            builder.spawn(body).expect("a thread")
        };
        (0..count).map(set).collect()
    }

    /// The threads of a forked child have the stacks of the parent's. A lock whose waiters are in a table of the process, at addresses in
    /// their stacks, makes the child crash when the table grows (`parking_lot`).
    #[test]
    fn threads_of_a_child_wait_for_locks_that_threads_of_its_parent_waited_for() {
        /// Longer than a thread spins before it sleeps.
        const ASLEEP: Duration = Duration::from_millis(100);
        /// The C library unmaps a stack of this size when its thread has ended.
        const LARGE: usize = 64 << 20;
        const PARENTS: u64 = 6;
        const CHILDS: u64 = 48;
        let timers = Arc::new(Timers::new().unwrap());
        let held = timers.state.lock();
        let threads = setters(&timers, (PARENTS, LARGE), &Arc::new(true.into()));
        std::thread::sleep(ASLEEP);
        let child = || {
            let (timers, may_begin) = (Arc::new(Timers::new().unwrap()), Arc::default());
            let held = timers.state.lock();
            let threads = setters(&timers, (CHILDS, 256 << 10), &may_begin);
            // These get the stacks of the parent's threads, which are unmapped then.
            let large: Vec<_> = (0..PARENTS)
                .map(|_| Builder::new().stack_size(LARGE).spawn(|| {}).unwrap())
                .collect();
            large.into_iter().for_each(|thread| thread.join().unwrap());
            may_begin.store(true, Ordering::SeqCst);
            std::thread::sleep(ASLEEP);
            drop(held);
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
            timers.state.lock().queue.len() as u64 == CHILDS
        };
        // SAFETY: the child ends without a return from here. It takes no lock that a thread of the parent has: these sleep.
        let status = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::alarm(30);
                libc::_exit(i32::from(!child()));
            }
            assert!(pid > 0);
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            status
        };
        assert_eq!(status, 0, "wait status of the child");
        drop(held);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}
