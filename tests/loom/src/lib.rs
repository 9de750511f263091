//! What the `sync` modules of the crates take from [loom] instead of from std and parking_lot while their models run
//! (`make sanitize`, [docs/sanitizers.md]). Without `--cfg loom` this crate is empty.
//!
//! Loom's own types have no `const` constructor, so objects that live in statics could not be built from them. The types here
//! have one: what loom knows of is made at the first use. A model lets its main thread use each of them before it starts
//! other threads, because loom counts the making of an atomic as a write.
//!
//! [loom]: https://docs.rs/loom
//! [docs/sanitizers.md]: ../../../docs/sanitizers.md
#![cfg(loom)]

mod atomic;
pub mod futex;
mod mutex;
mod watched;

pub use atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub use loom::hint::spin_loop;
pub use loom::thread;
pub use loom::thread::yield_now;
pub use mutex::{Mutex, MutexGuard};
pub use watched::Watched;

/// Lets other threads run: loom has no clock.
pub fn sleep(_: std::time::Duration) {
    yield_now();
}

/// Runs `model` in every order that its threads can take while at most `switches` of them are forced: more for small models.
pub fn explore(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}
