//! What our providers do in a forked child. They register it with pthread_atfork(3) when they open something. If a fork has begun by
//! then, the C library does not call it. So the C libraries, whose own handler comes first, run it as well.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A function that a forked child calls.
pub(crate) type Child = unsafe extern "C" fn();

/// `dat_rs_forked` of the libraries that were loaded.
static CHILDREN: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// Adds a function that each forked child calls. Beyond 64 libraries, only the C library calls what they registered.
///
/// # Safety
/// It stays mapped, may run twice, and does only what a signal handler may do.
pub(crate) unsafe fn add(child: Child) {
    let function = child as usize;
    for slot in &CHILDREN {
        let placed = slot.compare_exchange(0, function, Ordering::AcqRel, Ordering::Acquire);
        if placed.is_ok() || placed == Err(function) {
            return;
        }
    }
}

/// Calls the functions. Only for a child in which fork has not returned yet, or has just returned.
pub fn run() {
    for slot in &CHILDREN {
        let function = slot.load(Ordering::Acquire);
        if function != 0 {
            // SAFETY: the promise of `add`, which alone stores here.
            unsafe { std::mem::transmute::<usize, Child>(function)() };
        }
    }
}
