//! The end of this process by exit(3) or by return from main, while adapters are open. A kernel disconnects for a process that ends; here a
//! function of `.fini_array` does it. It runs after the handlers of atexit(3), which may use their connections.
//!
//! The thread that ends the process may be anywhere: in a signal handler, on a small stack, with the lock of an adapter or of the allocator. So
//! it takes no lock for which it would have to wait, and no memory: it wakes the helper threads, which send, and waits for them for a bounded
//! time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dat_arena::{Mutex, MutexGuard};
use dat_os::sleep;

use super::hub::{Hub, MAX_LOOKS};
use super::state::State;
use crate::clock;

/// How long exit(3) waits in all, where a thread is stopped with a lock, or a helper thread is in the consumer's agent.
const LONGEST: Duration = Duration::from_millis(250);
/// Pause between two attempts to take a lock.
const PAUSE: Duration = Duration::from_micros(50);

/// The open lanes of all adapters.
static OPEN: Mutex<Vec<Weak<Hub>>> = Mutex::new(Vec::new());
/// The process that has opened them. A forked child has copies of its parent's only, unless it opens one.
static OPENED_BY: AtomicU32 = AtomicU32::new(0);
/// Helper threads that were asked to send, and have not finished. exit(3) sleeps on it.
static UNFINISHED: AtomicU32 = AtomicU32::new(0);

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    let _ = catch_unwind(|| {
        if OPENED_BY.load(Ordering::Acquire) == std::process::id() {
            leave_all(Instant::now() + LONGEST);
        }
    });
}

/// Has the peers of all adapters told that the process ends; waits until `end` at most.
fn leave_all(end: Instant) {
    let Some(open) = until(end, || OPEN.try_lock()) else {
        return;
    };
    ask_all(&open, end);
    // Not held during the wait: a thread that forks meanwhile leaves no lock to its child.
    drop(open);
    loop {
        let unfinished = UNFINISHED.load(Ordering::Acquire);
        let left = end.saturating_duration_since(Instant::now());
        if unfinished == 0 || left.is_zero() {
            return;
        }
        let _ = sleep::on_word(&UNFINISHED, unfinished, Some(left));
    }
}

fn ask_all(open: &MutexGuard<'_, Vec<Weak<Hub>>>, end: Instant) {
    for hub in open.iter().filter_map(Weak::upgrade) {
        // An adapter that is closed disconnects by itself. A thread that was interrupted in a call keeps the lock: the wait would be in vain.
        let is_open = hub.process == std::process::id() && !hub.is_ending();
        if is_open && !hub.state.is_owner_inside() {
            if hub.helper_thread.load(Ordering::Acquire) == dat_arena::current_thread() {
                // The consumer's agent calls exit(3).
                if let Some(mut state) = until(end, || hub.state.try_lock()) {
                    state.say_process_ends();
                }
            } else {
                UNFINISHED.fetch_add(1, Ordering::AcqRel);
                hub.says_end.store(true, Ordering::Release);
                hub.wakers.helper.signal();
            }
        }
        // If a thread that closes it has dropped all others, this one would free it.
        std::mem::forget(hub);
    }
}

/// Calls `attempt` until it succeeds, or until `end`.
fn until<T>(end: Instant, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        let result = attempt();
        if result.is_some() || Instant::now() >= end {
            return result;
        }
        let _ = sleep::on_descriptors(&mut [], Some(PAUSE));
    }
}

/// Adds a lane whose helper thread runs. Without memory for it its peers are not told.
pub(crate) fn add(hub: &Arc<Hub>) {
    let mut open = OPEN.lock();
    open.retain(|other| other.strong_count() != 0);
    if open.try_reserve(1).is_ok() {
        open.push(Arc::downgrade(hub));
    }
    OPENED_BY.store(std::process::id(), Ordering::Release);
}

impl Hub {
    /// Does what exit(3) asks the helper thread for, if it does.
    pub(super) fn say_end_if_asked(&self) {
        if self.says_end.swap(false, Ordering::AcqRel) {
            let _ = catch_unwind(AssertUnwindSafe(|| self.state.lock().say_process_ends()));
            UNFINISHED.fetch_sub(1, Ordering::AcqRel);
            sleep::wake(&UNFINISHED, i32::MAX);
        }
    }
}

impl State {
    /// Acknowledges what has arrived, as an adapter in hardware has done at that moment, sends what waits, and says to the peers
    /// that the process ends.
    fn say_process_ends(&mut self) {
        let now = clock::now();
        // Also in a rest between two looks.
        self.near.drain(&mut self.engine, now);
        // Bounded, as a peer may send without an end.
        for _ in 0..MAX_LOOKS {
            if !self.receive(now, true) {
                break;
            }
        }
        self.transmit(now, false);
        for id in self.engine.open_connections() {
            self.engine.say_process_ends(now, id);
            self.transmit(now, false);
        }
    }
}

#[cfg(test)]
mod tests;
