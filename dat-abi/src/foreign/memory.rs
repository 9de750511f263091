//! Protection zones, registered memory, shared receive queues.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use dat_core::attr::SrqAttr;
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::flags::MemPriv;
use dat_core::iov::{LmrTriplet, RmrTriplet};

use super::{Ia, Object, call, kinds, owned};
use crate::boundary::limit;
use crate::types::{DAT_HANDLE_NULL, DatRegionDescription, DatSrqAttr};

kinds! {
    /// A protection zone.
    Pz;
    /// A shared receive queue.
    Srq;
}

/// A piece of an [`Lmr`] for one post.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Segment<'a>(LmrTriplet, std::marker::PhantomData<&'a Lmr>);

/// The segments as a table's slot takes them.
pub(super) fn iov(segments: &[Segment<'_>]) -> *mut LmrTriplet {
    // The provider only reads: the slot's parameter lacks a `const` that it means.
    segments.as_ptr().cast_mut().cast()
}

/// Registered memory that belongs to this value. Peers and the adapter may write it at any time, so it is read and
/// written by copies, byte by byte atomic.
#[derive(Clone)]
pub struct Lmr(Arc<Region>);

struct Region {
    /// Keeps the memory too, in case that it cannot be deregistered.
    object: Arc<Object>,
    memory: Arc<[AtomicU64]>,
    length: usize,
    lmr_context: u32,
    rmr_context: u32,
}

impl fmt::Debug for Lmr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lmr({:?}, {} bytes)", self.0.object, self.0.length)
    }
}

impl Pz {
    /// dat_lmr_create of `length` new bytes, all zero.
    ///
    /// # Errors
    /// The provider's; `DAT_INVALID_PARAMETER` for no bytes at all.
    pub fn register(&self, ia: &Ia, length: usize, rights: MemPriv) -> Result<Lmr> {
        if length == 0 {
            return Err(Error::arg(4));
        }
        let memory: Arc<[AtomicU64]> = (0..length.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        let region = DatRegionDescription {
            address: memory.as_ptr() as usize,
            shared_memory_id: std::ptr::null(),
        };
        let (mut lmr, mut lmr_context, mut rmr_context) = (DAT_HANDLE_NULL, 0, 0);
        let (mut size, mut address) = (0, 0);
        call!(
            self.0,
            lmr_create(
                ia.raw(),
                0,
                region,
                length as u64,
                self.raw(),
                rights.bits(),
                0,
                &raw mut lmr,
                &raw mut lmr_context,
                &raw mut rmr_context,
                &raw mut size,
                &raw mut address,
            )
        )?;
        let under = vec![self.0.clone(), ia.0.clone()];
        Ok(Lmr(Arc::new(Region {
            object: owned!(lmr, lmr_free, under, Some(Box::new(memory.clone()))),
            memory,
            length,
            lmr_context,
            rmr_context,
        })))
    }

    /// dat_srq_create.
    ///
    /// # Errors
    /// The provider's.
    pub fn srq(&self, ia: &Ia, attr: &SrqAttr) -> Result<Srq> {
        let mut srq = DAT_HANDLE_NULL;
        let mut attr = DatSrqAttr {
            max_recv_dtos: limit(attr.max_recv_dtos),
            max_recv_iov: limit(attr.max_recv_iov),
            low_watermark: attr.low_watermark.map_or(0, limit),
        };
        call!(
            self.0,
            srq_create(ia.raw(), self.raw(), &raw mut attr, &raw mut srq)
        )?;
        let under = vec![self.0.clone(), ia.0.clone()];
        Ok(Srq(owned!(srq, srq_free, under)))
    }
}

impl Srq {
    /// dat_srq_post_recv. The memory must stay registered until the completion: keep the [`Lmr`].
    ///
    /// # Errors
    /// The provider's.
    pub fn post_recv(&self, segments: &[Segment<'_>], cookie: u64) -> Result<()> {
        let count = limit(segments.len() as u32);
        call!(
            self.0,
            srq_post_recv(self.raw(), count, iov(segments), cookie)
        )
    }
}

impl Lmr {
    /// Bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// The bytes of `range`.
    ///
    /// # Errors
    /// `DAT_LENGTH_ERROR` for a range that is not within.
    fn bytes(&self, range: &Range<usize>) -> Result<&[AtomicU8]> {
        // SAFETY: the memory has at least `length` bytes, and bytes of atomics are atomics.
        let all: &[AtomicU8] =
            unsafe { std::slice::from_raw_parts(self.0.memory.as_ptr().cast(), self.0.length) };
        all.get(range.clone()).ok_or(Error::of(Kind::LengthError))
    }

    /// Copies `data` in, from `offset` on.
    ///
    /// # Errors
    /// `DAT_LENGTH_ERROR` if it does not fit.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len());
        let range = offset..end.ok_or(Error::of(Kind::LengthError))?;
        for (to, from) in self.bytes(&range)?.iter().zip(data) {
            to.store(*from, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A copy of the bytes of `range`.
    ///
    /// # Errors
    /// `DAT_LENGTH_ERROR` for a range that is not within.
    pub fn read(&self, range: Range<usize>) -> Result<Vec<u8>> {
        let bytes = self.bytes(&range)?;
        Ok(bytes.iter().map(|b| b.load(Ordering::Relaxed)).collect())
    }

    fn address_of(&self, range: &Range<usize>) -> Result<(u64, u32)> {
        let bytes = self.bytes(range)?;
        let length = u32::try_from(bytes.len()).map_err(|_| Error::of(Kind::LengthError))?;
        Ok((bytes.as_ptr() as u64, length))
    }

    /// A piece for a post on this side.
    ///
    /// # Errors
    /// `DAT_LENGTH_ERROR` for a range that is not within, or 4 GiB and more.
    pub fn segment(&self, range: Range<usize>) -> Result<Segment<'_>> {
        let (virtual_address, segment_length) = self.address_of(&range)?;
        let triplet = LmrTriplet {
            virtual_address,
            segment_length,
            lmr_context: self.0.lmr_context,
        };
        Ok(Segment(triplet, std::marker::PhantomData))
    }

    /// The same for the peer's posts: tell it these numbers.
    ///
    /// # Errors
    /// As [`Lmr::segment`]; `DAT_PRIVILEGES_VIOLATION` if it was registered without remote rights.
    pub fn remote(&self, range: Range<usize>) -> Result<RmrTriplet> {
        let (virtual_address, segment_length) = self.address_of(&range)?;
        if self.0.rmr_context == 0 {
            return Err(Error::new(
                Kind::PrivilegesViolation,
                Subtype::PrivilegesRdmaRead,
            ));
        }
        Ok(RmrTriplet {
            virtual_address,
            segment_length,
            rmr_context: self.0.rmr_context,
        })
    }
}
