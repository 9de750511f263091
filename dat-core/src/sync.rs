//! Atomics of the standard library, which loom's models replace by loom's types.

#[cfg(all(loom, test))]
pub(crate) use dat_loom::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Allocates `count` zeroed slots of these atomics; see [`Cycle::zeroed`](dat_arena::Cycle::zeroed).
pub(crate) fn zeroed<const N: usize>(count: usize) -> Option<dat_arena::Cycle<[AtomicU64; N]>> {
    #[cfg(not(all(loom, test)))]
    let slots = dat_arena::Cycle::zeroed(count);
    #[cfg(all(loom, test))]
    let slots = {
        let slots = std::iter::repeat_with(|| [const { AtomicU64::new(0) }; N]).take(count);
        Some(dat_arena::Cycle::new(slots.collect::<Vec<_>>().leak()))
    };
    slots
}
