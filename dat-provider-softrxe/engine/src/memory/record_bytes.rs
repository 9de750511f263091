//! Bytes of a record of a channel, in memory that another process may change at any time. So there is no Rust reference to them.

use std::ptr::NonNull;

use super::guard;

/// Bytes of a record. The memory stays mapped while they are in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordBytes {
    pub(super) base: usize,
    pub(super) length: usize,
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
