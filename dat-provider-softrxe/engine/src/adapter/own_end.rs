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

use super::hub::Hub;
use super::state::State;
use crate::clock;

/// How long exit(3) waits in all, where a thread is stopped with a lock, or a helper thread is in the consumer's agent.
const LONGEST: Duration = Duration::from_millis(250);
/// Pause between two attempts to take a lock.
const PAUSE: Duration = Duration::from_micros(50);

/// An open lane of an adapter.
struct Lane {
    hub: Weak<Hub>,
    /// The CA GUID of its engine.
    guid: u64,
}

type Lanes = Mutex<Vec<Lane>>;

/// The process that has opened lanes, and these. A forked child gets a list of its own: another thread may have had the lock of its parent's.
static OPEN: Mutex<Option<(u32, &'static Lanes)>> = Mutex::new(None);
/// Helper threads that were asked to send, and have not finished. exit(3) sleeps on it.
static UNFINISHED: AtomicU32 = AtomicU32::new(0);

#[used]
// With the lowest priority: where this is linked statically, destructors of the program come before it, as they do for a provider.
#[unsafe(link_section = ".fini_array.00100")]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    let _ = catch_unwind(|| {
        let end = Instant::now() + LONGEST;
        if let Some(open) = until(end, || OPEN.try_lock())
            && let Some((process, lanes)) = *open
            && process == std::process::id()
        {
            drop(open);
            leave_all(lanes, end);
        }
    });
}

/// Has the peers of all adapters told that the process ends; waits until `end` at most.
fn leave_all(lanes: &Lanes, end: Instant) {
    let Some(open) = until(end, || lanes.try_lock()) else {
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

fn ask_all(open: &MutexGuard<'_, Vec<Lane>>, end: Instant) {
    for hub in open.iter().filter_map(|lane| lane.hub.upgrade()) {
        // An adapter that is closed disconnects by itself. A thread that was interrupted in a call keeps the lock: the wait would be in vain.
        let is_open = hub.process == std::process::id() && !hub.is_ending();
        if is_open && !hub.state.is_owner_inside() {
            if hub.helper_thread.load(Ordering::Acquire) == dat_arena::current_thread() {
                // The consumer's agent calls exit(3).
                if let Some(mut state) = until(end, || hub.state.try_lock()) {
                    state.say_process_ends(open);
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

/// Returns the lanes of this process.
fn lanes() -> &'static Lanes {
    let process = std::process::id();
    let mut open = OPEN.lock();
    match *open {
        Some((opened_by, lanes)) if opened_by == process => lanes,
        _ => {
            let lanes: &Lanes = Box::leak(Box::default());
            *open = Some((process, lanes));
            lanes
        }
    }
}

/// Adds a lane whose helper thread runs. Without memory for it its peers are not told.
pub(crate) fn add(hub: &Arc<Hub>) {
    let mut open = lanes().lock();
    if open.try_reserve(1).is_ok() {
        open.push(Lane {
            hub: Arc::downgrade(hub),
            guid: hub.guid,
        });
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            lanes().lock().retain(|lane| lane.hub.strong_count() != 0);
        }
    }
}

impl Hub {
    /// Does what exit(3) asks the helper thread for, if it does.
    pub(super) fn say_end_if_asked(&self) {
        if self.says_end.swap(false, Ordering::AcqRel) {
            let say = || {
                let mut state = self.state.lock();
                state.say_process_ends(&lanes().lock());
            };
            let _ = catch_unwind(AssertUnwindSafe(say));
            UNFINISHED.fetch_sub(1, Ordering::AcqRel);
            sleep::wake(&UNFINISHED, i32::MAX);
        }
    }
}

impl State {
    /// Acknowledges what has arrived, as an adapter in hardware has done at that moment, sends what waits, and says to the peers
    /// that the process ends. Those in lanes that are `open` here know it, and their handlers may still run.
    fn say_process_ends(&mut self, open: &[Lane]) {
        let now = clock::now();
        self.receive_all(now);
        self.transmit(now, false);
        let is_open = |guid| open.iter().any(|lane| lane.guid == guid);
        for id in self.engine.open_connections(is_open) {
            self.engine.say_process_ends(now, id);
            self.transmit(now, false);
        }
    }
}

#[cfg(test)]
mod tests;
