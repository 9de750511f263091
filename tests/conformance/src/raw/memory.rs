//! Memory behind pointer arguments: large enough for every structure that a call reads or writes.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::WORDS;

/// Words for each argument: more than the largest structure (`DAT_IA_ATTR`, 688 bytes).
const ROOM: usize = 128;

/// Memory for the arguments of one thread's calls. Calls of the API do not keep pointers to structures.
#[derive(Debug)]
pub(crate) struct ArgumentMemory {
    rooms: Box<[[u64; ROOM]; WORDS]>,
}

impl ArgumentMemory {
    pub(crate) fn new() -> Self {
        let rooms = Box::new([[0; ROOM]; WORDS]);
        Self { rooms }
    }

    /// Returns the buffer of an argument, by its index.
    pub(crate) fn room(&mut self, index: usize) -> &mut [u64; ROOM] {
        &mut self.rooms[index]
    }

    /// Returns the buffer's address, filled with a pattern.
    pub(crate) fn out(&mut self, index: usize) -> usize {
        let room = self.room(index);
        room.fill(0x5555_5555_5555_5555);
        room.as_mut_ptr() as usize
    }

    /// Returns the buffer's address, with these words at its beginning, then zeros.
    pub(crate) fn words(&mut self, index: usize, words: &[u64]) -> usize {
        let room = self.room(index);
        room.fill(0);
        room[..words.len()].copy_from_slice(words);
        room.as_mut_ptr() as usize
    }

    /// Returns the buffer's address, with these 32-bit words at its beginning, then zeros.
    pub(crate) fn halves(&mut self, index: usize, halves: &[u32]) -> usize {
        let words: Vec<u64> = halves
            .chunks(2)
            .map(|two| u64::from(two[0]) | u64::from(two.get(1).copied().unwrap_or(0)) << 32)
            .collect();
        self.words(index, &words)
    }
}

/// Size of [`large`] in bytes.
pub(crate) const LARGE: usize = 64 << 20;

/// Returns zeros for arrays that are far too long.
pub(crate) fn large() -> usize {
    static ZEROS: LazyLock<&'static [u64]> = LazyLock::new(|| vec![0; LARGE / 8].leak());
    ZEROS.as_ptr() as usize
}

/// Returns leaked memory to register: a peer may write to it after a test has ended.
pub(crate) fn arena(bytes: usize) -> &'static [AtomicU64] {
    let words: Vec<AtomicU64> = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
    words.leak()
}

/// Number of calls through the [`impostor`].
static FOLLOWED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn follow() -> u32 {
    FOLLOWED.fetch_add(1, Ordering::Relaxed);
    0
}

/// Returns the address of an object that begins with a function table like a handle, but belongs to no provider.
pub(crate) fn impostor() -> usize {
    static OBJECT: LazyLock<usize> = LazyLock::new(|| {
        let function = follow as extern "C" fn() -> u32 as usize;
        let table: &'static [usize] = vec![function; 128].leak();
        let object: &'static [usize] = vec![table.as_ptr() as usize; 64].leak();
        object.as_ptr() as usize
    });
    *OBJECT
}

/// Returns the number of calls through the [`impostor`]'s table.
pub(crate) fn followed() -> usize {
    FOLLOWED.load(Ordering::Relaxed)
}
