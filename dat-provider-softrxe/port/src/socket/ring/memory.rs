//! The mapped memory of a receive ring.

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::layout::{
    DATA, FREED, LENGTH, MAGIC, MAGIC_AT, ROOM, SEGMENT, SEQUENCE, SIZE, SOURCE, TAKEN, TO_SOCKET,
    TURNS, UDP_HEADER, WORD, slot,
};

/// The head of a slot as the program filled it, not checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Bytes of UDP header and payload.
    pub(super) length: usize,
    /// Bytes of each datagram of a coalesced run, or 0.
    pub(super) segment: usize,
    /// IP address of the sender; IPv4 in the first four bytes.
    pub(super) source: [u8; 16],
    /// UDP port of the sender.
    pub(super) port: u16,
}

/// The memory of a ring, mapped as long as this lives. A forked child does not have it.
#[derive(Debug)]
pub(super) struct Memory(NonNull<u8>);

// SAFETY: the memory stays mapped until the drop. All accesses are atomic: a member of the port has the map too, and may write
// at any time.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps the memory of a new map.
    pub(super) fn create(map: RawFd) -> io::Result<Self> {
        let memory = Self::map(map, libc::MAP_SHARED)?;
        memory.at(WORD).store(TO_SOCKET, Ordering::Relaxed);
        memory.at(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok(memory)
    }

    /// Maps the memory of a map that another process created.
    pub(super) fn of_predecessor(map: RawFd) -> io::Result<Self> {
        // Only a map of the kernel keeps its size. A file could be truncated, which would end this process by a signal.
        let link = std::fs::read_link(format!("/proc/self/fd/{map}"))?;
        if link.as_os_str() != "anon_inode:bpf-map" {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let memory = Self::map(map, libc::MAP_SHARED)?;
        if memory.at(MAGIC_AT).load(Ordering::Acquire) != MAGIC {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(memory)
    }

    fn map(fd: RawFd, flags: libc::c_int) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), SIZE, access, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        // SAFETY: the mapping just made.
        let _ = unsafe { libc::madvise(start.as_ptr().cast(), SIZE, libc::MADV_DONTFORK) };
        Ok(Self(start))
    }

    fn at(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset < SIZE);
        // SAFETY: callers pass offsets of the layout, which are aligned and inside the mapping.
        unsafe { &*self.0.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Returns the word.
    pub(super) fn word(&self) -> u64 {
        self.at(WORD).load(Ordering::SeqCst)
    }

    /// Makes the program pass all datagrams to the socket. Slots that are published before the program learns of it are
    /// visible afterwards; for those that are published later it leaves an empty datagram in the socket.
    pub(super) fn turn_to_socket(&self) {
        self.at(WORD).fetch_or(TO_SOCKET, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Makes the program use the ring, if the word is still `word`.
    pub(super) fn turn_to_ring(&self, word: u64) -> bool {
        let to = word & !TO_SOCKET;
        let (set, missed) = (Ordering::SeqCst, Ordering::Relaxed);
        self.at(WORD)
            .compare_exchange(word, to, set, missed)
            .is_ok()
    }

    /// Returns how often the program itself turned to the socket.
    pub(super) fn turns(&self) -> u64 {
        self.at(TURNS).load(Ordering::Acquire)
    }

    /// Returns the position that the last reader came to.
    pub(super) fn taken(&self) -> u64 {
        self.at(TAKEN).load(Ordering::Acquire)
    }

    /// Records the position that the reader came to.
    pub(super) fn set_taken(&self, position: u64) {
        self.at(TAKEN).store(position, Ordering::Release);
    }

    /// Lets the program fill the slots before `position` again.
    pub(super) fn free(&self, position: u64) {
        self.at(FREED).store(position, Ordering::Release);
    }

    /// Returns whether the slot at `position` is filled.
    pub(super) fn is_filled(&self, position: u64) -> bool {
        let sequence = self.at(slot(position) + SEQUENCE);
        sequence.load(Ordering::Acquire) == position.wrapping_add(1)
    }

    /// Returns the word at `offset` of the slot at `position`.
    fn slot_word(&self, position: u64, offset: usize) -> [u8; 8] {
        let word = self.at(slot(position) + offset);
        word.load(Ordering::Relaxed).to_ne_bytes()
    }

    /// Returns the head of the slot at `position`, which is filled. The program writes it only after it is freed; another
    /// writer of this memory could only change the values.
    pub(super) fn head(&self, position: u64) -> Head {
        const { assert!(LENGTH.is_multiple_of(8) && SEGMENT == LENGTH + 4) };
        let [a, b, c, d, e, f, g, h] = self.slot_word(position, LENGTH);
        let mut source = [0; 16];
        let (first, second) = source.split_at_mut(8);
        first.copy_from_slice(&self.slot_word(position, SOURCE));
        second.copy_from_slice(&self.slot_word(position, SOURCE + 8));
        let [high, low, ..] = self.slot_word(position, DATA);
        Head {
            length: u32::from_ne_bytes([a, b, c, d]) as usize,
            segment: u32::from_ne_bytes([e, f, g, h]) as usize,
            source,
            port: u16::from_be_bytes([high, low]),
        }
    }

    /// Copies `length` bytes of the payload of the slot at `position`, rounded up to whole words, as far as `into` and a slot
    /// have room.
    pub(super) fn copy_payload(&self, position: u64, length: usize, into: &mut [u8]) {
        let into = into.as_chunks_mut().0;
        // One bound for both, so that the compiler unrolls the loop: atomics are copied one by one.
        let words = length.min(ROOM - UDP_HEADER).div_ceil(8).min(into.len());
        for (index, to) in into[..words].iter_mut().enumerate() {
            *to = self.slot_word(position, DATA + UDP_HEADER + index * 8);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, which nothing refers to any more.
        let _ = unsafe { libc::munmap(self.0.as_ptr().cast(), SIZE) };
    }
}

#[cfg(test)]
impl Memory {
    /// Memory that no kernel writes.
    pub(super) fn anonymous() -> Self {
        let memory = Self::map(-1, libc::MAP_SHARED | libc::MAP_ANONYMOUS).unwrap();
        memory.at(WORD).store(TO_SOCKET, Ordering::Relaxed);
        memory
    }

    /// Returns a word of the layout.
    pub(super) fn raw(&self, offset: usize) -> &AtomicU64 {
        self.at(offset)
    }

    /// Writes bytes of a slot.
    pub(super) fn write(&self, position: u64, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= super::layout::SLOT);
        // SAFETY: inside the slot.
        unsafe {
            let to = self.0.as_ptr().add(slot(position) + offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }
}
