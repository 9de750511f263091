//! First words of every object: the part of a handle that C programs and the fast paths read.

use std::ptr::with_exposed_provenance_mut;
// Loom models the other words only.
use std::sync::atomic::AtomicPtr;

use crate::event::RawHandle;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::transport::Token;

/// Head of an object. Its layout is ABI: classic programs read the function table through the first word of a handle
/// (`*(DAT_PROVIDER **)handle`).
#[derive(Debug, Default)]
#[repr(C)]
pub struct Head {
    /// Address of the C function table (1.2 or 2.0) that created the object. Stays when the object is freed, so that
    /// a stale handle still reaches a thunk that refuses it. A pointer, because it is read as one: an integer that is read as a pointer
    /// leads to no memory in Rust's terms.
    table: AtomicPtr<()>,
    /// Liveness word: 0 if dead. Otherwise bit 0 is set and the object's kind uses the rest (an EVD for its dequeue
    /// state).
    pub word: AtomicU64,
    /// Generation of the slot: counts its objects (and, for endpoints, their connections).
    pub generation: AtomicU32,
    /// Arena index of the IA that the object belongs to (of an IA: its own).
    pub(crate) ia: AtomicU32,
    /// Generation and use count, see [`crate::use_count`].
    pub(crate) uses: AtomicU64,
    /// Word for the consumer (dat_set_consumer_context), which core does not read.
    pub context: AtomicU64,
}

/// Bit 0 of [`Head::word`].
pub const ALIVE: u64 = 1;

impl Head {
    /// Returns true if the object may be used.
    #[inline(always)]
    pub fn alive(&self) -> bool {
        self.word.load(Ordering::Acquire) & ALIVE != 0
    }

    /// Returns the address of the function table.
    #[inline]
    pub fn table(&self) -> usize {
        self.table.load(Ordering::Relaxed) as usize
    }

    /// Sets the function table, before the object is handed out.
    pub fn set_table(&self, table: usize) {
        let table = with_exposed_provenance_mut(table);
        self.table.store(table, Ordering::Relaxed);
    }

    /// Begins a generation without context and claims. The object stays dead until [`Head::publish`]. Called by the
    /// thread that allocated it from its arena.
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

    /// Replaces [`Head::word`] by another value of the object's kind, unless the object is dead.
    #[inline(always)]
    pub(crate) fn replace_word(&self, from: u64, to: u64) {
        // Fails if the object is dead.
        let _ = self
            .word
            .compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
    }

    /// Makes the object dead in a forked child. It is never freed there, and its slot is not reused.
    pub(crate) fn disown(&self) {
        // A dead object is not written to, because a forked child shares the page with its parent.
        if self.word.load(Ordering::Relaxed) != 0 || !self.is_retired() {
            self.word.store(0, Ordering::Release);
            self.uses.store(0, Ordering::Release);
        }
    }

    /// Returns the object's token in its present generation; `index` is its arena index.
    pub(crate) fn token(&self, index: u32) -> Token {
        Token::new(index, self.generation.load(Ordering::Acquire))
    }

    /// Returns the token of the generation that [`Head::begin`] will begin, to name an object to the transport before
    /// it is published. Called by the thread that allocated it from its arena.
    pub(crate) fn next_token(&self, index: u32) -> Token {
        let generation = self.generation.load(Ordering::Acquire);
        Token::new(index, generation.wrapping_add(1))
    }
}

impl Token {
    /// Makes a token of an arena index and a generation.
    pub(crate) const fn new(index: u32, generation: u32) -> Self {
        Self(index as u64 | (generation as u64) << 32)
    }

    /// Returns the arena index.
    pub(crate) const fn index(self) -> u32 {
        self.0 as u32
    }

    /// Returns the generation.
    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Returns the C handle of an object: its address.
#[inline(always)]
pub fn raw<O>(object: &'static O) -> RawHandle {
    std::ptr::from_ref(object) as RawHandle
}

/// Implements `Debug` for an object, with its head only; the rest is behind locks.
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
