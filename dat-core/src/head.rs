//! The first words of every object: what a C program and the fast paths see of a handle.

use crate::event::RawHandle;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::transport::Token;

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
    /// Arena index of the IA that the object belongs to (an IA: its own).
    pub(crate) ia: AtomicU32,
    /// The ledger's word, see [`crate::use_count`].
    pub(crate) uses: AtomicU64,
    /// The consumer's own word (dat_set_consumer_context); never looked at.
    pub context: AtomicU64,
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

    /// Begins a life: a new generation, no context, nothing on the object. It stays invisible (dead)
    /// until [`Head::publish`]. Called by the one thread that has it from its arena.
    pub(crate) fn begin(&self, ia: u32, table: usize) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.context.store(0, Ordering::Relaxed);
        self.ia.store(ia, Ordering::Relaxed);
        self.set_table(table);
        self.begin_use_count();
    }

    /// Makes the object usable, with the kind's own bits of [`Head::word`].
    pub(crate) fn publish(&self, bits: u64) {
        self.word.store(ALIVE | bits, Ordering::Release);
    }

    /// Turns [`Head::word`] from one value of the kind's to another, unless the object's life has ended.
    #[inline(always)]
    pub(crate) fn turn(&self, from: u64, to: u64) {
        // It fails if the object is dead.
        let _ = self
            .word
            .compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
    }

    /// Kills the object where it stands: nobody frees it any more, and its slot is not used again.
    pub(crate) fn disown(&self) {
        // What is dead already is not written to: a forked child shares the page with its parent.
        if self.word.load(Ordering::Relaxed) != 0 || !self.is_retired() {
            self.word.store(0, Ordering::Release);
            self.uses.store(0, Ordering::Release);
        }
    }

    /// The object's token in its present generation; `index` is its arena index.
    pub(crate) fn token(&self, index: u32) -> Token {
        Token::new(index, self.generation.load(Ordering::Acquire))
    }

    /// The token of the life that [`Head::begin`] will begin; for whoever must name an object to the
    /// transport before it is published. Asked by the one thread that has it from its arena.
    pub(crate) fn next_token(&self, index: u32) -> Token {
        let generation = self.generation.load(Ordering::Acquire);
        Token::new(index, generation.wrapping_add(1))
    }
}

impl Token {
    /// Of an arena index and a generation.
    pub(crate) const fn new(index: u32, generation: u32) -> Self {
        Self(index as u64 | (generation as u64) << 32)
    }

    /// The arena index.
    pub(crate) const fn index(self) -> u32 {
        self.0 as u32
    }
}

/// The C handle of an object: its address.
#[inline(always)]
pub fn raw<O>(object: &'static O) -> RawHandle {
    std::ptr::from_ref(object) as RawHandle
}

/// `Debug` for an object: its head; the rest is behind locks.
macro_rules! debug_by_head {
    ($($object:ident),*) => {$(
        impl<T: crate::transport::Transport> std::fmt::Debug for $object<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($object))
                    .field("head", &self.head)
                    .finish_non_exhaustive()
            }
        }
    )*};
}
pub(crate) use debug_by_head;
