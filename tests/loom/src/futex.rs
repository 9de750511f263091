//! futex(2): the kernel compares the word and queues the sleeper in one step, which a mutex models. A wake-up ends the
//! sleep of all.

use std::collections::HashMap;
use std::sync::Arc;

use loom::sync::{Condvar, Mutex};

use crate::{AtomicU32, Ordering};

/// Wait queue of one word.
#[derive(Debug)]
struct Queue {
    /// Number of wake-ups.
    woken: Mutex<u32>,
    sleep: Condvar,
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
                woken: Mutex::new(0),
                sleep: Condvar::new(),
            })
        });
    Arc::clone(queue)
}

/// Sleeps until a [`wake_all`] if `word` is `value`. A missing wake-up is a deadlock, which loom reports.
///
/// # Panics
/// If a thread of the model panicked.
pub fn wait(word: &AtomicU32, value: u32) {
    let queue = queue(word);
    let mut woken = queue.woken.lock().expect("no holder panicked");
    // The kernel's comparison is no load of the program: it sees the newest value.
    if word.fetch_add(0, Ordering::SeqCst) != value {
        return;
    }
    let before = *woken;
    while *woken == before {
        woken = queue.sleep.wait(woken).expect("no holder panicked");
    }
}

/// Wakes all threads that sleep on `word`.
///
/// # Panics
/// If a thread of the model panicked.
pub fn wake_all(word: &AtomicU32) {
    let queue = queue(word);
    *queue.woken.lock().expect("no holder panicked") += 1;
    queue.sleep.notify_all();
}
