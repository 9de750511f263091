//! The consumer's memory, which is not ours: it may change while we read it and be read while we write it,
//! so it is no Rust reference, but for the moment of a checksum. All access to registered memory goes through these few functions.

use std::io;
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use crc32fast::Hasher;

use super::probe;

/// Bytes of a message's end that are stored after all others, in one store where alignment allows.
const TAIL: usize = 8;

/// A range of the consumer's memory that was checked when it was registered.
///
/// Nothing here checks again: an application that unmaps memory before it deregisters it gets what it would
/// get from an adapter's point of view, except that we take the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    base: usize,
    length: u64,
}

/// Why memory cannot be registered.
#[derive(Debug, thiserror::Error)]
pub enum RangeError {
    /// The range is empty or wraps around.
    #[error("{length} bytes at {base:#x} is no range of memory")]
    NoRange {
        /// First byte.
        base: usize,
        /// Bytes.
        length: u64,
    },
    /// A page is not mapped, or not with the rights that registration asks for.
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
        /// What the kernel said.
        source: io::Error,
    },
}

impl Range {
    /// Checks that `[base, base + length)` is mapped, writable if `writable`, and makes its pages present.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn probe(base: usize, length: u64, writable: bool) -> Result<Self, RangeError> {
        let end = u64::try_from(base).ok().and_then(|b| b.checked_add(length));
        if length == 0 || base == 0 || end.is_none_or(|end| end > isize::MAX as u64) {
            return Err(RangeError::NoRange { base, length });
        }
        // SAFETY: sysconf only answers.
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

    /// First address.
    #[must_use]
    pub const fn base(&self) -> usize {
        self.base
    }

    /// Bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Address of the byte at `offset` if `count` bytes from there are inside.
    fn at(&self, offset: u64, count: usize) -> Option<usize> {
        let end = offset.checked_add(count as u64)?;
        (end <= self.length).then(|| self.base + offset as usize)
    }

    /// Copies out of the range. `None`: not inside, nothing copied.
    #[must_use]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        let from = self.at(offset, into.len())?;
        // SAFETY: the source is inside a range that was probed; the destination is ours. The consumer may
        // write the source meanwhile: we only copy bytes.
        unsafe { ptr::copy_nonoverlapping(from as *const u8, into.as_mut_ptr(), into.len()) };
        Some(())
    }

    /// `count` bytes from `offset`. `None`: not inside.
    #[must_use]
    pub fn part(&self, offset: u64, count: u64) -> Option<Self> {
        let base = self.at(offset, count as usize)?;
        Some(Self {
            base,
            length: count,
        })
    }

    /// CRC-32 of all of it, continued from `crc`.
    #[must_use]
    pub fn checksum(&self, crc: u32) -> u32 {
        // SAFETY: inside a range that was probed; bytes have no invalid values. The consumer must not write them now, as a request
        // that names them is posted. Where it does nevertheless the number is wrong, whatever it is, and nothing else hangs on it.
        let bytes = unsafe { slice::from_raw_parts(self.base as *const u8, self.length as usize) };
        let mut hasher = Hasher::new_with_initial(crc);
        hasher.update(bytes);
        hasher.finalize()
    }

    /// Copies into the range. With `last` the end of `bytes` ends a message: its last bytes are stored after
    /// all others, so that a consumer that polls the last byte finds all of it. `None`: not inside, nothing
    /// written.
    #[must_use]
    pub fn write(&self, offset: u64, bytes: &[u8], last: bool) -> Option<()> {
        let to = self.at(offset, bytes.len())?;
        if !last || bytes.is_empty() {
            // SAFETY: the destination is inside a range that was probed writable; the source is ours.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
            return Some(());
        }
        let (body, tail) = bytes.split_at(bytes.len().saturating_sub(TAIL));
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(body.as_ptr(), to as *mut u8, body.len()) };
        fence(Ordering::Release);
        store_tail(to + body.len(), tail);
        Some(())
    }

    /// Replaces the 8 bytes at `offset` by what `f` makes of them, atomically; returns the old value.
    /// `None`: not inside, or not aligned to 8.
    #[must_use]
    pub fn update(&self, offset: u64, mut f: impl FnMut(u64) -> u64) -> Option<u64> {
        let at = self.at(offset, 8)?;
        if !at.is_multiple_of(8) {
            return None;
        }
        // SAFETY: inside a probed writable range, aligned; the consumer's own accesses are its business.
        let word = unsafe { AtomicU64::from_ptr(at as *mut u64) };
        let old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(f(old)));
        Some(old.unwrap_or_else(|old| old))
    }
}

/// Stores up to 8 bytes so that the last one becomes visible last.
fn store_tail(at: usize, tail: &[u8]) {
    let mut at = at;
    let mut rest = tail;
    while !rest.is_empty() {
        // The largest store that alignment and the rest allow.
        let size = [8, 4, 2, 1]
            .into_iter()
            .find(|s| at.is_multiple_of(*s) && rest.len() >= *s)
            .unwrap_or(1);
        let (now, later) = rest.split_at(size);
        // SAFETY: the caller checked the range; `at` is aligned to `size`.
        unsafe {
            match *now {
                [a] => AtomicU8::from_ptr(at as *mut u8).store(a, Ordering::Release),
                [a, b] => AtomicU16::from_ptr(at as *mut u16)
                    .store(u16::from_ne_bytes([a, b]), Ordering::Release),
                [a, b, c, d] => {
                    AtomicU32::from_ptr(at as *mut u32)
                        .store(u32::from_ne_bytes([a, b, c, d]), Ordering::Release);
                }
                [a, b, c, d, e, f, g, h] => AtomicU64::from_ptr(at as *mut u64).store(
                    u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
                    Ordering::Release,
                ),
                _ => unreachable!("sizes are 1, 2, 4 and 8"),
            }
        }
        at += size;
        rest = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn every_length_and_alignment_of_an_end_lands_whole() {
        let mut memory = vec![0u8; 64];
        let range = Range::probe(memory.as_mut_ptr() as usize, 64, true).unwrap();
        let bytes: Vec<u8> = (1..=32).collect();
        for offset in 0..16u64 {
            for length in 0..=32usize {
                for last in [false, true] {
                    let zero = [0; 64];
                    range.write(0, &zero, false).unwrap();
                    range.write(offset, &bytes[..length], last).unwrap();
                    let mut got = [0; 64];
                    range.read(0, &mut got).unwrap();
                    let mut want = [0; 64];
                    want[offset as usize..][..length].copy_from_slice(&bytes[..length]);
                    assert_eq!(got, want, "offset {offset} length {length}");
                }
            }
        }
        assert!(range.write(33, &bytes, true).is_none());
        assert!(range.write(u64::MAX, &bytes, true).is_none());
        assert!(range.read(64, &mut [0]).is_none());
    }

    #[test]
    fn atomics_are_whole_aligned_words() {
        let mut memory = [5u64, 6];
        let range = Range::probe(memory.as_mut_ptr() as usize, 16, true).unwrap();
        assert_eq!(range.update(8, |old| old + 1), Some(6));
        assert_eq!(range.update(8, |old| old), Some(7));
        assert_eq!(range.update(4, |old| old), None);
        assert_eq!(range.update(16, |old| old), None);
    }
}
