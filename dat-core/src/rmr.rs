//! Remote memory regions (dat_rmr_create, dat_rmr_bind, dat_rmr_query, dat_rmr_free): windows on an LMR.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::ep::Ep;
use crate::error::{Error, Kind as ErrorKind, Result};
use crate::event::RawHandle;
use crate::flags::{CompletionFlags, MemPriv, VaType};
use crate::head::{Head, debug_by_head};
use crate::iov::LmrTriplet;
use crate::lmr::Lmr;
use crate::pz::Pz;
use crate::transport::Transport;

/// The part of an LMR to bind to: wide enough for both versions' `DAT_LMR_TRIPLET`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LmrRange {
    /// Names the LMR.
    pub lmr_context: u32,
    /// First byte.
    pub address: u64,
    /// Bytes; 0 unbinds.
    pub length: u64,
}

impl From<LmrTriplet> for LmrRange {
    fn from(triplet: LmrTriplet) -> Self {
        Self {
            lmr_context: triplet.lmr_context,
            address: triplet.virtual_address,
            length: u64::from(triplet.segment_length),
        }
    }
}

/// What dat_rmr_query tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RmrInfo {
    /// The IA's handle.
    pub ia: RawHandle,
    /// The PZ's handle.
    pub pz: RawHandle,
    /// The LMR bound to, or 0.
    pub lmr: RawHandle,
    /// The range bound to.
    pub range: LmrRange,
    /// Rights for the peer.
    pub rights: MemPriv,
    /// How remote addresses count.
    pub va_type: VaType,
    /// Key for the peer, 0 while unbound.
    pub rmr_context: u32,
}

/// A remote memory region. All methods may be called from any thread.
#[repr(C)]
pub struct Rmr<T: Transport> {
    /// Table, liveness, generation, ledger.
    pub head: Head,
    inner: Mutex<Option<Arc<T::Rmr>>>,
}

debug_by_head!(Rmr);

impl<T: Transport> Default for Rmr<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            inner: Mutex::new(None),
        }
    }
}

impl<T: Transport> Rmr<T> {
    /// dat_rmr_create.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`, `DAT_INSUFFICIENT_RESOURCES`, `DAT_NOT_IMPLEMENTED`.
    pub fn create(pz: &'static Pz<T>) -> Result<&'static Self> {
        let _ = pz;
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_rmr_bind. Without `lmr` (1.2) the LMR is the one of `range.lmr_context`. Returns the new
    /// rmr_context.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER`, `DAT_INVALID_STATE`, `DAT_PRIVILEGES_VIOLATION` ...
    #[allow(clippy::too_many_arguments, reason = "dat_rmr_bind has as many")]
    pub fn bind(
        &'static self,
        lmr: Option<&'static Lmr<T>>,
        range: LmrRange,
        rights: MemPriv,
        va_type: VaType,
        ep: &'static Ep<T>,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<u32> {
        let _ = (lmr, range, rights, va_type, ep, cookie, flags);
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_rmr_query.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn info(&'static self) -> Result<RmrInfo> {
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_rmr_free: bound or not.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn free(&'static self) -> Result<()> {
        let _ = self.inner.lock();
        Err(Error::of(ErrorKind::NotImplemented))
    }
}
