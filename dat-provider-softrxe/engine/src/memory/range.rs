//! Ranges of the consumer's memory. The consumer may change memory while the engine reads it, read it while the engine writes it, and
//! unmap it. So there is no Rust reference to it, not even during a checksum: Rust assumes that the bytes behind a `&[u8]` do not
//! change. All access to registered memory goes through these functions, which use the copies of `guard`.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use crc32fast::Hasher;
use softrxe_near::{Lent, PullError, Puller};

use super::guard::{self, CopyMethod, Fault};
use super::probe;

/// Number of bytes at the end of a message that are stored after all others, in one store if aligned.
const TAIL: usize = 8;
/// Number of bytes that a checksum copies at a time.
const CHECKSUM_PIECE: usize = 2048;

/// A range of the consumer's memory that was checked when it was registered.
///
/// An application may unmap memory before it deregisters it, protect it, or truncate the file behind it. Access then fails with
/// [`Failed::Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    base: usize,
    length: u64,
}

/// Bytes of a record in memory that another process may change at any time. The memory stays mapped while they are in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordBytes {
    base: usize,
    length: usize,
}

impl RecordBytes {
    /// No bytes.
    pub(crate) const NONE: Self = Self { base: 0, length: 0 };

    /// Describes the `length` bytes at `base`.
    ///
    /// # Safety
    /// They are mapped for reading and writing as long as this or a part of it is in use, and no Rust reference to them exists.
    pub(crate) unsafe fn new(base: NonNull<u8>, length: usize) -> Self {
        Self {
            base: base.as_ptr() as usize,
            length,
        }
    }

    /// Stores `bytes`, as many as these are. Another process may change them at any time.
    pub(crate) fn store(self, bytes: [u8; 8]) {
        if self.length == bytes.len() {
            // SAFETY: the memory is mapped for writing, and copied by the instructions of all copies.
            unsafe { guard::copy_own(self.base, bytes.as_ptr() as usize, bytes.len()) };
        }
    }

    /// Returns the part of `length` bytes from `at`, or `None` if it is not inside.
    pub(crate) fn part(self, at: usize, length: usize) -> Option<Self> {
        let inside = at <= self.length && length <= self.length - at;
        inside.then_some(Self {
            base: self.base + at,
            length,
        })
    }
}

/// Error of an access to a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failed {
    /// The access is not inside the range, or not aligned.
    Outside,
    /// The memory is no longer mapped, or no longer with the right that it had.
    Fault,
}

impl From<Fault> for Failed {
    fn from(_: Fault) -> Self {
        Self::Fault
    }
}

/// Why a peer's memory was not copied into a range.
#[derive(Debug)]
pub(crate) enum PullFailed {
    /// The range failed.
    Own(Failed),
    /// The peer's memory cannot be read, or was taken back.
    Peer(PullError),
}

impl From<Failed> for PullFailed {
    fn from(failed: Failed) -> Self {
        Self::Own(failed)
    }
}

/// Error of memory that cannot be registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RangeError {
    /// The range is empty or wraps around.
    #[error("{length} bytes at {base:#x} is no range of memory")]
    NoRange {
        /// First byte.
        base: usize,
        /// Bytes.
        length: u64,
    },
    /// A page is not mapped, or not with the rights that registration needs.
    #[error(
        "{length} bytes at {base:#x} cannot be registered {rights}: {source}; map the whole range with that right first"
    )]
    Unmapped {
        /// First byte.
        base: usize,
        /// Bytes.
        length: u64,
        /// "for reading" or "for writing".
        rights: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
}

impl Range {
    /// Checks that `[base, base + length)` is mapped, writable if `writable`, and makes its pages present.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub(crate) fn probe(base: usize, length: u64, writable: bool) -> Result<Self, RangeError> {
        let end = u64::try_from(base).ok().and_then(|b| b.checked_add(length));
        if length == 0 || base == 0 || end.is_none_or(|end| end > isize::MAX as u64) {
            return Err(RangeError::NoRange { base, length });
        }
        // SAFETY: sysconf has no effect.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize;
        let first = base & !(page - 1);
        let bytes = (base + length as usize).next_multiple_of(page) - first;
        probe::present(first..first + bytes, page, writable).map_err(|source| {
            RangeError::Unmapped {
                base,
                length,
                rights: if writable {
                    "for writing"
                } else {
                    "for reading"
                },
                source,
            }
        })?;
        Ok(Self { base, length })
    }

    /// Returns the first address.
    #[must_use]
    pub(crate) const fn base(&self) -> usize {
        self.base
    }

    /// Returns the number of bytes.
    #[must_use]
    pub(crate) const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the address of the byte at `offset` if `count` bytes from there are inside.
    #[inline]
    fn at(&self, offset: u64, count: usize) -> Result<usize, Failed> {
        let end = offset.checked_add(count as u64).ok_or(Failed::Outside)?;
        if end > self.length {
            return Err(Failed::Outside);
        }
        Ok(self.base + offset as usize)
    }

    /// Copies out of the range.
    ///
    /// # Errors
    /// See [`Failed`]; the contents of `into` are unspecified then.
    pub(crate) fn read(
        &self,
        method: CopyMethod,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), Failed> {
        let from = self.at(offset, into.len())?;
        let to = into.as_mut_ptr() as usize;
        // SAFETY: inside a range that the consumer registered. The consumer may write it meanwhile; bytes are only copied.
        unsafe { guard::read(method, from, to, into.len())? };
        Ok(())
    }

    /// Copies out of the range to a record, by the usual stores or `past_caches`.
    ///
    /// # Errors
    /// See [`Failed`]; the contents of the record are unspecified then.
    pub(crate) fn read_to_record(
        &self,
        method: CopyMethod,
        offset: u64,
        record: RecordBytes,
        past_caches: bool,
    ) -> Result<(), Failed> {
        let RecordBytes { base, length } = record;
        let from = self.at(offset, length)?;
        // SAFETY: as in `read`; the record is memory of this crate, of which there is no Rust reference.
        let read = unsafe {
            if past_caches {
                guard::read_past_caches(method, from, base, length)
            } else {
                guard::read(method, from, base, length)
            }
        };
        Ok(read?)
    }

    /// Returns the part of `count` bytes from `offset`, or `None` if it is not inside.
    #[must_use]
    pub(crate) fn part(&self, offset: u64, count: u64) -> Option<Self> {
        let base = self.at(offset, count as usize).ok()?;
        Some(Self {
            base,
            length: count,
        })
    }

    /// Returns the CRC-32 of the whole range, continued from `crc`. The consumer must not write the bytes now, as a posted request
    /// refers to them. If it does, the checksum is wrong, on which nothing but the packet's acceptance depends.
    ///
    /// # Errors
    /// See [`Failed`].
    pub(crate) fn checksum(&self, method: CopyMethod, crc: u32) -> Result<u32, Failed> {
        let mut hasher = Hasher::new_with_initial(crc);
        // The bytes pass through a buffer that stays in the processor's cache.
        let mut piece = [0; CHECKSUM_PIECE];
        let (mut done, end) = (0, self.length);
        while done < end {
            let count = (end - done).min(CHECKSUM_PIECE as u64);
            let piece = &mut piece[..count as usize];
            self.read(method, done, piece)?;
            hasher.update(piece);
            done += count;
        }
        Ok(hasher.finalize())
    }

    /// Copies into the range. The last bytes are stored after all others, so that a consumer that polls the last byte of a message
    /// finds the whole message.
    ///
    /// # Errors
    /// See [`Failed`]. After `Outside` nothing was written; after `Fault` a part may have been.
    pub(crate) fn write(
        &self,
        method: CopyMethod,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Failed> {
        let from = bytes.as_ptr() as usize;
        // SAFETY: `bytes` can be read.
        unsafe { self.copy_in(method, offset, from, bytes.len()) }
    }

    /// Like [`write`](Self::write), from a record.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn write_from_record(
        &self,
        method: CopyMethod,
        offset: u64,
        record: RecordBytes,
    ) -> Result<(), Failed> {
        // SAFETY: a record is mapped as long as its channel exists, and is read under the engine's lock.
        unsafe { self.copy_in(method, offset, record.base, record.length) }
    }

    /// Like [`write_from_record`](Self::write_from_record), with bytes in any order.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    #[inline]
    pub(crate) fn write_at_once(
        &self,
        method: CopyMethod,
        offset: u64,
        record: RecordBytes,
    ) -> Result<(), Failed> {
        let to = self.at(offset, record.length)?;
        // SAFETY: the destination is inside a range that the consumer registered for writing. A record is mapped as long as its channel
        // exists, and is read under the engine's lock.
        unsafe { guard::write(method, to, record.base, record.length)? };
        Ok(())
    }

    /// Copies `length` bytes of a peer's memory into the range, the last ones last: from position `at` of `lent`.
    ///
    /// # Errors
    /// [`PullFailed`]. A part may have been written.
    #[inline(never)]
    pub(crate) fn write_pulled(
        &self,
        method: CopyMethod,
        offset: u64,
        length: usize,
        (puller, lent, at): (&mut Puller, Lent, usize),
    ) -> Result<(), PullFailed> {
        let to = self.at(offset, length)?;
        let body = length.saturating_sub(TAIL);
        let mut tail = [0_u8; TAIL];
        let rest = length - body;
        let parts = [(to, body), (tail.as_mut_ptr() as usize, rest)];
        // SAFETY: inside a range that the consumer registered for writing, and `tail`. The kernel writes there, as in `guard`.
        unsafe { puller.pull(lent, at, parts) }.map_err(PullFailed::Peer)?;
        fence(Ordering::Release);
        store_tail(method, to + body, &tail[..rest]).map_err(Failed::from)?;
        Ok(())
    }

    /// Copies `length` bytes at `from` into the range, the last ones last.
    ///
    /// # Safety
    /// The bytes at `from` can be read. Another process may change them meanwhile.
    #[inline(always)]
    unsafe fn copy_in(
        &self,
        method: CopyMethod,
        offset: u64,
        from: usize,
        length: usize,
    ) -> Result<(), Failed> {
        let to = self.at(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        let body = length.saturating_sub(TAIL);
        let mut tail = [0; TAIL];
        // SAFETY: the destination is inside a range that the consumer registered for writing; the caller promises the source.
        unsafe { guard::write(method, to, from, body)? };
        // SAFETY: the caller promises the source; the destination is `tail`.
        unsafe { guard::copy_own(tail.as_mut_ptr() as usize, from + body, length - body) };
        fence(Ordering::Release);
        let at = to + body;
        if length >= TAIL && at.is_multiple_of(TAIL) {
            // SAFETY: as above; `at` is a multiple of 8.
            unsafe { guard::store(method, at, &tail)? };
        } else {
            store_tail(method, at, &tail[..length - body])?;
        }
        Ok(())
    }

    /// Replaces the 8 bytes at `offset` atomically by the result of `f`; returns the old value.
    ///
    /// # Errors
    /// See [`Failed`]; nothing was changed.
    pub(crate) fn update(
        &self,
        method: CopyMethod,
        offset: u64,
        f: impl FnMut(u64) -> u64,
    ) -> Result<u64, Failed> {
        let at = self.at(offset, 8)?;
        if !at.is_multiple_of(8) {
            return Err(Failed::Outside);
        }
        // SAFETY: aligned and inside a range that the consumer registered for writing.
        Ok(unsafe { guard::update(method, at, f)? })
    }
}

/// Stores up to 8 bytes so that the last one becomes visible last.
#[inline(never)]
fn store_tail(method: CopyMethod, at: usize, tail: &[u8]) -> Result<(), Fault> {
    let mut at = at;
    let mut rest = tail;
    while !rest.is_empty() {
        // The largest store that alignment and the rest allow.
        let size = [8, 4, 2, 1]
            .into_iter()
            .find(|s| at.is_multiple_of(*s) && rest.len() >= *s)
            .unwrap_or(1);
        let (now, later) = rest.split_at(size);
        fence(Ordering::Release);
        // SAFETY: the caller checked the range; `at` is a multiple of `size`.
        unsafe { guard::store(method, at, now)? };
        at += size;
        rest = later;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// Installs the handler and returns both copy methods.
    fn methods() -> [CopyMethod; 2] {
        guard::install();
        [CopyMethod::Direct, CopyMethod::Kernel]
    }

    /// Registers three pages, then unmaps (0), protects (1) or truncates (2) the second and third.
    fn lost(how: usize) -> Range {
        // SAFETY: new mappings of this test, over each other.
        unsafe {
            let map = |at: usize, bytes: usize, rights: i32, flags: i32, file: i32| {
                let hint = at as *mut libc::c_void;
                let got = libc::mmap(hint, bytes, rights, flags, file, 0);
                assert_ne!(got, libc::MAP_FAILED);
                got as usize
            };
            let (both, own) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
            let base = map(0, 3 * PAGE, both, own | libc::MAP_ANONYMOUS, -1);
            let range = Range::probe(base, 3 * PAGE as u64, true).unwrap();
            let second = (base + PAGE) as *mut libc::c_void;
            match how {
                0 => assert_eq!(libc::munmap(second, 2 * PAGE), 0),
                1 => assert_eq!(libc::mprotect(second, 2 * PAGE, libc::PROT_NONE), 0),
                _ => {
                    // A file that ends after the first page: SIGBUS.
                    let file = libc::memfd_create(c"short".as_ptr(), 0);
                    assert_eq!(libc::ftruncate(file, PAGE as i64), 0);
                    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                    map(base, 3 * PAGE, both, flags, file);
                    libc::close(file);
                }
            }
            range
        }
    }

    #[test]
    fn access_to_lost_memory_fails() {
        for method in methods() {
            for how in 0..3 {
                let range = lost(how);
                let what = (method, how);
                let page = PAGE as u64;
                // Lengths from less than a word to a page, across the edge and behind it.
                for length in [1, 3, 7, 8, 15, 16, 33, 64, 200, 1000, 1024, 4096] {
                    let mut bytes = vec![7; length];
                    for offset in [
                        page,
                        page + 1,
                        page - 1,
                        2 * page - 8,
                        page - length as u64 + 1,
                    ] {
                        if offset + length as u64 <= page {
                            continue;
                        }
                        let fault = Err(Failed::Fault);
                        assert_eq!(
                            range.read(method, offset, &mut bytes),
                            fault,
                            "{what:?} {length}"
                        );
                        assert_eq!(range.write(method, offset, &bytes), fault, "{what:?}");
                    }
                    // The first page is still usable.
                    bytes.fill(length as u8);
                    let at = page - length as u64;
                    range.write(method, at, &bytes).unwrap();
                    let mut back = vec![0; length];
                    range.read(method, at, &mut back).unwrap();
                    assert_eq!(back, bytes);
                }
                assert_eq!(
                    range.update(method, page, |old| old + 1),
                    Err(Failed::Fault)
                );
                range.write(method, 8, &5u64.to_ne_bytes()).unwrap();
                assert_eq!(range.update(method, 8, |old| old + 1), Ok(5));
                assert_eq!(range.checksum(method, 0), Err(Failed::Fault), "{what:?}");
                let first = range.part(0, page).unwrap();
                let mut bytes = vec![0; PAGE];
                first.read(method, 0, &mut bytes).unwrap();
                assert_eq!(first.checksum(method, 0), Ok(crc32fast::hash(&bytes)));
            }
        }
    }

    #[test]
    fn a_copy_of_lost_memory_past_the_caches_fails() {
        let mut memory = vec![0_u8; 2 * PAGE];
        let aligned = memory.as_ptr().align_offset(64);
        let at = NonNull::from(&mut memory[aligned]);
        for method in methods() {
            for how in 0..3 {
                let range = lost(how);
                for (length, record) in [16, 63, 64, 200, 2048, 4096]
                    // SAFETY: memory of this test, of that length, which nothing else uses.
                    .map(|length| (length as u64, unsafe { RecordBytes::new(at, length) }))
                {
                    let read = |from| range.read_to_record(method, from, record, true);
                    let page = PAGE as u64;
                    assert_eq!(read(page - length), Ok(()));
                    for from in [page - length + 1, page - 1, page] {
                        assert_eq!(read(from), Err(Failed::Fault), "{method:?} {how} {length}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_page_that_became_read_only_is_readable() {
        for method in methods() {
            let range = lost(1);
            let second = (range.base() + PAGE) as *mut libc::c_void;
            // SAFETY: pages of this test.
            let code = unsafe { libc::mprotect(second, 2 * PAGE, libc::PROT_READ) };
            assert_eq!(code, 0);
            let at = PAGE as u64;
            let mut word = [1; 8];
            assert_eq!(range.read(method, at, &mut word), Ok(()));
            assert_eq!(word, [0; 8]);
            assert_eq!(range.write(method, at, &[1; 8]), Err(Failed::Fault));
            assert_eq!(range.update(method, at, |old| old), Err(Failed::Fault));
        }
    }

    #[test]
    fn every_length_is_copied_whole() {
        let from: Vec<u8> = (0..5000u32).map(|n| ((n * 7) >> 3) as u8).collect();
        let mut memory = vec![0u8; 5100];
        let range = Range::probe(memory.as_mut_ptr() as usize, 5100, true).unwrap();
        for method in methods() {
            for length in (0..300)
                .chain(1000..1100)
                .chain([4095, 4096, 4097, 4103, 4104, 4105, 5000])
            {
                let offset = length as u64 % 61;
                range.write(method, 0, &[0xaa; 5100]).unwrap();
                range.write(method, offset, &from[..length]).unwrap();
                let mut all = vec![0; 5100];
                range.read(method, 0, &mut all).unwrap();
                let (before, rest) = all.split_at(offset as usize);
                let (copied, behind) = rest.split_at(length);
                assert_eq!(copied, &from[..length], "{method:?} {length}");
                assert!(before.iter().chain(behind).all(|byte| *byte == 0xaa));
            }
        }
    }

    #[test]
    fn only_mapped_memory_can_be_registered() {
        let mut memory = vec![7u8; 10_000];
        let base = memory.as_mut_ptr() as usize;
        assert!(Range::probe(base, 10_000, true).is_ok());
        assert!(matches!(
            Range::probe(base, 0, true),
            Err(RangeError::NoRange { .. })
        ));
        assert!(matches!(
            Range::probe(base, u64::MAX, true),
            Err(RangeError::NoRange { .. })
        ));
        assert!(matches!(
            Range::probe(0, 1, false),
            Err(RangeError::NoRange { .. })
        ));
        assert!(matches!(
            Range::probe(4096, 1, false),
            Err(RangeError::Unmapped { .. })
        ));
        static CONSTANT: [u8; 4096] = [1; 4096];
        let constant = CONSTANT.as_ptr() as usize;
        assert!(Range::probe(constant, 4096, false).is_ok());
        assert!(
            Range::probe(constant, 4096, true).is_err(),
            "read-only memory is not writable"
        );
        assert_eq!(memory, vec![7u8; 10_000], "probing changes nothing");
    }

    #[test]
    fn ends_of_every_length_and_alignment_are_written_whole() {
        let mut memory = vec![0u8; 64];
        let range = Range::probe(memory.as_mut_ptr() as usize, 64, true).unwrap();
        let bytes: Vec<u8> = (1..=32).collect();
        let each = methods()
            .into_iter()
            .flat_map(|method| (0..16u64).map(move |offset| (method, offset)));
        for (method, offset) in each {
            for length in 0..=32usize {
                range.write(method, 0, &[0; 64]).unwrap();
                range.write(method, offset, &bytes[..length]).unwrap();
                let mut got = [0; 64];
                range.read(method, 0, &mut got).unwrap();
                let mut want = [0; 64];
                want[offset as usize..][..length].copy_from_slice(&bytes[..length]);
                assert_eq!(got, want, "offset {offset} length {length}");
            }
        }
        let outside = Err(Failed::Outside);
        for method in methods() {
            assert_eq!(range.write(method, 33, &bytes), outside);
            assert_eq!(range.write(method, u64::MAX, &bytes), outside);
            assert_eq!(range.read(method, 64, &mut [0]), outside);
        }
    }

    #[test]
    fn atomics_are_whole_aligned_words() {
        for method in methods() {
            let mut memory = [5u64, 6];
            let range = Range::probe(memory.as_mut_ptr() as usize, 16, true).unwrap();
            assert_eq!(range.update(method, 8, |old| old + 1), Ok(6));
            assert_eq!(range.update(method, 8, |old| old), Ok(7));
            assert_eq!(range.update(method, 4, |old| old), Err(Failed::Outside));
            assert_eq!(range.update(method, 16, |old| old), Err(Failed::Outside));
        }
    }
}
