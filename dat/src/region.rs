//! Registered memory.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use dat_abi::types::{DAT_HANDLE_NULL, DatRegionDescription};
use dat_core::iov::{LmrTriplet, RmrTriplet};

use crate::Access;
use crate::error::Result;
use crate::pz::Pz;
use crate::sys::{Handle, call};

/// Registered memory. The adapter, and peers that have its key, may read and write it while the program runs, so a program copies
/// bytes in and out and gets no reference. Clones are the same memory.
#[derive(Clone, Debug)]
pub struct Region {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    handle: Handle,
    at: NonNull<u8>,
    layout: Layout,
    lmr_context: u32,
    rmr_context: u32,
    _pz: Pz,
}

// SAFETY: the bytes are only accessed by copies and atomics (see `Region`), from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above. Concurrent copies yield unspecified bytes, as the adapter's accesses do anyway.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        match call!(self.handle, lmr_free()) {
            // SAFETY: allocated with this layout; after dat_lmr_free the adapter does not access the memory.
            Ok(()) => unsafe { dealloc(self.at.as_ptr(), self.layout) },
            Err(error) => tracing::warn!(
                %error,
                address = ?self.at,
                bytes = self.layout.size(),
                "a region is still in use: its memory is not released"
            ),
        }
    }
}

/// Alignment of a region: a page, so that no other heap memory shares a page that a peer may access.
const ALIGN: usize = 4096;

impl Region {
    pub(crate) fn create(pz: &Pz, bytes: usize, access: Access) -> Result<Self> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN)
            .expect("no allocation is larger than isize::MAX");
        // SAFETY: the layout has a size.
        let Some(at) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        let description = DatRegionDescription {
            address: at.as_ptr() as usize,
            shared_memory_id: ptr::null(),
        };
        let (mut handle, mut lmr_context, mut rmr_context) = (DAT_HANDLE_NULL, 0, 0);
        let made = call!(
            pz.ia().handle(),
            lmr_create(
                0,
                description,
                layout.size() as u64,
                pz.handle().0,
                access.bits(),
                0,
                &raw mut handle,
                &raw mut lmr_context,
                &raw mut rmr_context,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        );
        if let Err(error) = made {
            // SAFETY: just allocated, and not registered.
            unsafe { dealloc(at.as_ptr(), layout) };
            return Err(error);
        }
        let handle = Handle(handle);
        Ok(Self {
            inner: Arc::new(Inner {
                handle,
                at,
                layout,
                lmr_context,
                rmr_context,
                _pz: pz.clone(),
            }),
        })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.inner.handle
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.layout.size()
    }

    /// Returns false: a region has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    fn at(&self, offset: usize, count: usize) -> *mut u8 {
        let end = offset.checked_add(count);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "{count} bytes at {offset} are not inside a region of {}",
            self.len()
        );
        // SAFETY: inside the allocation.
        unsafe { self.inner.at.as_ptr().add(offset) }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// If the range leaves the region.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: `at` checked the destination; the source is ours and does not overlap.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset, bytes.len()), bytes.len());
        };
    }

    /// Copies bytes from `offset`.
    ///
    /// # Panics
    /// If the range leaves the region.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        // SAFETY: `at` checked the source; the destination is ours and does not overlap.
        unsafe {
            ptr::copy_nonoverlapping(self.at(offset, into.len()), into.as_mut_ptr(), into.len());
        };
    }

    /// Returns a copy of a range.
    ///
    /// # Panics
    /// If the range leaves the region.
    #[must_use]
    pub fn to_vec(&self, range: Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; range.len()];
        self.read(range.start, &mut bytes);
        bytes
    }

    /// Loads one byte with acquire ordering, to wait for the last byte of an RDMA Write.
    ///
    /// # Panics
    /// If the byte is outside the region.
    #[must_use]
    pub fn load(&self, offset: usize) -> u8 {
        // SAFETY: inside the allocation, which lives as long as `self`; accessed by atomics and copies only.
        unsafe { AtomicU8::from_ptr(self.at(offset, 1)) }.load(Ordering::Acquire)
    }

    /// Returns a segment of the region for a post.
    ///
    /// # Panics
    /// If the range leaves the region or is longer than 4 GiB.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Slice<'_> {
        let at = self.at(range.start, range.len());
        Slice {
            triplet: LmrTriplet {
                virtual_address: at as u64,
                segment_length: u32::try_from(range.len()).expect("a segment is less than 4 GiB"),
                lmr_context: self.inner.lmr_context,
            },
            _region: std::marker::PhantomData,
        }
    }

    /// Returns a segment with the key that a peer needs, if the region is open to peers.
    ///
    /// # Panics
    /// If the range leaves the region or is longer than 4 GiB.
    #[must_use]
    pub fn remote(&self, range: Range<usize>) -> Remote {
        let triplet = self.slice(range).triplet;
        Remote {
            address: triplet.virtual_address,
            length: triplet.segment_length,
            key: self.inner.rmr_context,
        }
    }
}

impl Pz {
    /// Allocates and registers `bytes` of zeroed memory (dat_lmr_create). Peers have no access unless `access` grants it.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call), e.g. `DAT_INSUFFICIENT_RESOURCES` beyond the locked-memory limit.
    pub fn allocate(&self, bytes: usize, access: Access) -> Result<Region> {
        Region::create(self, bytes, access)
    }
}

/// A segment of a region.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Slice<'a> {
    pub(crate) triplet: LmrTriplet,
    _region: std::marker::PhantomData<&'a Region>,
}

/// A segment of a peer's memory, whose address and key the peer has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Remote {
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub length: u32,
    /// Key of the peer's region or window.
    pub key: u32,
}

impl Remote {
    /// Length of the encoding of [`Remote::to_bytes`].
    pub const SIZE: usize = 16;

    /// Encodes the segment for a message to the peer: address, length and key, big endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_be_bytes());
        bytes[12..].copy_from_slice(&self.key.to_be_bytes());
        bytes
    }

    /// Decodes the bytes of [`Remote::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            address: u64::from(word(0)) << 32 | u64::from(word(4)),
            length: word(8),
            key: word(12),
        }
    }

    pub(crate) fn triplet(self) -> RmrTriplet {
        RmrTriplet {
            virtual_address: self.address,
            segment_length: self.length,
            rmr_context: self.key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_segment_is_encoded_and_decoded() {
        let remote = Remote {
            address: 0x1234_5678_9abc_def0,
            length: 77,
            key: 0xdead_beef,
        };
        assert_eq!(Remote::from_bytes(remote.to_bytes()), remote);
    }
}
