//! The first two words of every object: what a C program and the fast paths see of a handle.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The head of an object. Its layout is ABI: classic programs read the function table through the first
/// word of a handle (`*(DAT_PROVIDER **)handle`).
#[derive(Debug, Default)]
#[repr(C)]
pub struct Head {
    /// Address of the C function table (1.2 or 2.0) the object was made through. Stays when the object
    /// is freed, so that a stale handle still reaches a thunk that refuses it.
    table: AtomicUsize,
    /// 0: dead. Otherwise bit 0 is set and the rest belongs to the object's kind (an EVD keeps there
    /// whether there can be anything to dequeue).
    pub word: AtomicU64,
    /// Counts the lives (and, for endpoints and service points, the connections) of the slot.
    pub generation: AtomicU32,
    /// How many other objects stand on this one (the ledger: "LMR in use by an RMR").
    pub uses: AtomicU32,
}

/// Bit 0 of [`Head::word`].
pub const ALIVE: u64 = 1;

impl Head {
    /// Whether the object may be used.
    #[inline(always)]
    pub fn alive(&self) -> bool {
        self.word.load(Ordering::Acquire) & ALIVE != 0
    }

    /// The table address, as set by [`Head::set_table`].
    #[inline]
    pub fn table(&self) -> usize {
        self.table.load(Ordering::Relaxed)
    }

    /// Set before the object is handed out; see the field.
    pub fn set_table(&self, table: usize) {
        self.table.store(table, Ordering::Relaxed);
    }
}
