//! Ranges of the consumer's memory. The consumer may change memory while the engine reads it, read it while the engine writes it, and
//! unmap it. So there is no Rust reference to it, not even during a checksum: Rust assumes that the bytes behind a `&[u8]` do not
//! change. All access to registered memory goes through these functions, which use the copies of `guard`.

use std::io;
use std::sync::atomic::{Ordering, fence};

use crc32fast::Hasher;
use softrxe_near::{Lent, PullError, Puller};

use super::guard::{self, CopyMethod, Fault};
use super::probe;
use super::record_bytes::RecordBytes;

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
mod tests;
