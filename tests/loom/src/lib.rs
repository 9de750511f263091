//! Types that the crates' `sync` modules take from [loom] instead of std and parking_lot while their models run (`make
//! sanitize`, [docs/sanitizers.md]). Without `--cfg loom` this crate is empty. It imports no crate of the workspace.
//!
//! Loom's own types have no `const` constructor, so statics could not contain them. The types here have one: loom's
//! object is created at the first use. A model's main thread uses each of them before it starts other threads, because
//! loom treats the creation of an atomic as a write.
//!
//! [loom]: https://docs.rs/loom
//! [docs/sanitizers.md]: ../../../docs/sanitizers.md
#![cfg(loom)]

mod atomic;
pub mod futex;
mod mutex;
mod watched;

pub use atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub use loom::hint::spin_loop;
pub use loom::thread;
pub use loom::thread::yield_now;
pub use mutex::{Mutex, MutexGuard};
pub use watched::Watched;

/// Yields to other threads: loom has no clock.
pub fn sleep(_: std::time::Duration) {
    yield_now();
}

/// Returns a number of the calling thread of a model, which is not 0.
pub fn current_thread() -> usize {
    let mut hasher = std::hash::DefaultHasher::new();
    std::hash::Hash::hash(&thread::current().id(), &mut hasher);
    std::hash::Hasher::finish(&hasher) as usize | 1
}

/// Runs `model` in every order of its threads with at most `switches` forced switches; small models allow more.
pub fn explore(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}
