//! The DAT object: shared receive queues (dat_srq_create, dat_srq_post_recv, dat_srq_query, dat_srq_resize,
//! dat_srq_set_lw, dat_srq_free).

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use crate::attr::SrqAttr;
use crate::error::{Error, Kind, Result};
use crate::head::Head;
use crate::ia::Ia;
use crate::iov::LmrTriplet;
use crate::pz::Pz;
use crate::transport::Transport;

/// A shared receive queue.
#[derive(Debug)]
#[repr(C)]
pub struct Srq<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    /// The consumer's own word (dat_set_consumer_context).
    pub context: AtomicU64,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Default for Srq<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            context: AtomicU64::default(),
            transport: PhantomData,
        }
    }
}

/// What dat_srq_query reports (`DAT_SRQ_PARAM`).
#[derive(Clone, Debug)]
pub struct SrqInfo<T: Transport> {
    /// The adapter.
    pub ia: &'static Ia<T>,
    /// The protection zone.
    pub pz: &'static Pz<T>,
    /// Limits, and the low watermark if it is armed.
    pub attr: SrqAttr,
    /// Receives that are posted and wait for a message.
    pub available: u32,
    /// Receives that are posted and not completed.
    pub outstanding: u32,
}

impl<T: Transport> Srq<T> {
    /// dat_srq_create.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER`, `DAT_INSUFFICIENT_RESOURCES`, `DAT_MODEL_NOT_SUPPORTED`.
    pub fn create(
        _ia: &'static Ia<T>,
        _pz: &'static Pz<T>,
        _attr: &SrqAttr,
    ) -> Result<&'static Self> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_srq_post_recv.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` for too many segments (argument 2), `DAT_INSUFFICIENT_RESOURCES` when all are
    /// outstanding.
    #[inline]
    pub fn post_recv(&'static self, _iov: &[LmrTriplet], _cookie: u64) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_srq_query.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was freed meanwhile.
    pub fn info(&'static self) -> Result<SrqInfo<T>> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_srq_resize.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` below what is outstanding, `DAT_INVALID_PARAMETER`, `DAT_INSUFFICIENT_RESOURCES`.
    pub fn resize(&'static self, _max_recv_dtos: u32) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_srq_set_lw: one event when fewer than `low_watermark` receives are left; 0 disarms.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER`, `DAT_MODEL_NOT_SUPPORTED`.
    pub fn set_low_watermark(&'static self, _low_watermark: u32) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_srq_free.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` (`DAT_INVALID_STATE_SRQ_IN_USE`) while an endpoint uses it.
    pub fn free(&'static self) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// The handle as a number.
    #[inline]
    pub fn handle(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}
