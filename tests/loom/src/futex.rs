//! futex(2): the kernel compares the word and queues the sleeper in one step, which a mutex models.

use std::collections::HashMap;
use std::sync::Arc;

use loom::sync::{Condvar, Mutex};

use crate::{AtomicU32, Ordering};

/// Wait queue of one word.
#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    sleep: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of wake-ups of all.
    woken: u32,
    /// Threads that sleep, and those of them that a wake-up of one is to end.
    sleepers: u32,
    chosen: u32,
}

loom::lazy_static! {
    /// Wait queues by the address of the word.
    static ref QUEUES: Mutex<HashMap<usize, Arc<Queue>>> = Mutex::new(HashMap::new());
}

fn queue(word: &AtomicU32) -> Arc<Queue> {
    let mut queues = QUEUES.lock().expect("no holder panicked");
    let queue = queues
        .entry(std::ptr::from_ref(word) as usize)
        .or_insert_with(|| {
            Arc::new(Queue {
                state: Mutex::new(State::default()),
                sleep: Condvar::new(),
            })
        });
    Arc::clone(queue)
}

/// Sleeps until a [`wake`] or [`wake_all`] if `word` is `value`. A missing wake-up is a deadlock, which loom reports.
///
/// # Panics
/// If a thread of the model panicked.
pub fn wait(word: &AtomicU32, value: u32) {
    let queue = queue(word);
    let mut state = queue.state.lock().expect("no holder panicked");
    // The kernel's comparison is no load of the program: it sees the newest value.
    if word.fetch_add(0, Ordering::SeqCst) != value {
        return;
    }
    let before = state.woken;
    state.sleepers += 1;
    while state.woken == before && state.chosen == 0 {
        state = queue.sleep.wait(state).expect("no holder panicked");
    }
    if state.woken == before {
        state.chosen -= 1;
        state.sleepers -= 1;
    }
}

/// Wakes one thread that sleeps on `word`, whichever that is, or all if there may be several `sleepers` to wake.
///
/// # Panics
/// If a thread of the model panicked.
pub fn wake(word: &AtomicU32, sleepers: i32) {
    if sleepers != 1 {
        return wake_all(word);
    }
    let queue = queue(word);
    let mut state = queue.state.lock().expect("no holder panicked");
    if state.chosen < state.sleepers {
        state.chosen += 1;
        queue.sleep.notify_all();
    }
}

/// Wakes all threads that sleep on `word`.
///
/// # Panics
/// If a thread of the model panicked.
pub fn wake_all(word: &AtomicU32) {
    let queue = queue(word);
    let mut state = queue.state.lock().expect("no holder panicked");
    state.woken += 1;
    (state.sleepers, state.chosen) = (0, 0);
    queue.sleep.notify_all();
}
