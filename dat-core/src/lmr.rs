//! Local memory regions (dat_lmr_create, dat_lmr_query, dat_lmr_free, dat_lmr_sync_rdma_*).

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Kind as ErrorKind, Result};
use crate::event::RawHandle;
use crate::flags::{MemPriv, VaType};
use crate::head::{Head, debug_by_head};
use crate::ia::Ia;
use crate::iov::LmrTriplet;
use crate::pz::Pz;
use crate::transport::Transport;

/// Bytes of a `DAT_LMR_COOKIE`.
pub const COOKIE_SIZE: usize = 40;

/// What memory to register (`DAT_MEM_TYPE` with its `DAT_REGION_DESCRIPTION`).
#[derive(Clone, Copy, Debug)]
pub enum Source<T: Transport> {
    /// A range of the caller's memory, by address.
    Virtual(usize),
    /// The range of another LMR; the length argument is ignored.
    Lmr(&'static Lmr<T>),
    /// Memory that several processes share under one name.
    Shared {
        /// Where it is mapped here.
        address: usize,
        /// Its name: compared whole, no string.
        cookie: [u8; COOKIE_SIZE],
    },
}

/// What dat_lmr_query tells.
#[derive(Clone, Copy, Debug)]
pub struct LmrInfo<T: Transport> {
    /// The IA's handle.
    pub ia: RawHandle,
    /// As given at creation.
    pub source: Source<T>,
    /// As given at creation, in bytes.
    pub length: u64,
    /// The PZ's handle.
    pub pz: RawHandle,
    /// As given at creation.
    pub rights: MemPriv,
    /// As given at creation.
    pub va_type: VaType,
    /// Key of local segments.
    pub lmr_context: u32,
    /// Key for the peer; 0 without remote rights.
    pub rmr_context: u32,
    /// Bytes registered.
    pub registered_size: u64,
    /// First byte registered.
    pub registered_address: u64,
}

/// A local memory region. All methods may be called from any thread.
#[repr(C)]
pub struct Lmr<T: Transport> {
    /// Table, liveness, generation, ledger.
    pub head: Head,
    inner: Mutex<Option<Arc<T::Lmr>>>,
}

debug_by_head!(Lmr);

impl<T: Transport> Default for Lmr<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            inner: Mutex::new(None),
        }
    }
}

impl<T: Transport> Lmr<T> {
    /// dat_lmr_create.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`, `DAT_INVALID_PARAMETER`, `DAT_INSUFFICIENT_RESOURCES` ...
    pub fn create(
        ia: &'static Ia<T>,
        source: Source<T>,
        length: u64,
        pz: &'static Pz<T>,
        rights: MemPriv,
        va_type: VaType,
    ) -> Result<&'static Self> {
        let _ = (ia, source, length, pz, rights, va_type);
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_lmr_query.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn info(&'static self) -> Result<LmrInfo<T>> {
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_lmr_sync_rdma_read: memory is coherent, so this only checks the segments. The LMRs are found
    /// by the segments' contexts.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` if a segment is outside of its LMR or the LMR unknown.
    pub fn sync_read(ia: &'static Ia<T>, segments: &[LmrTriplet]) -> Result<()> {
        let _ = (ia, segments);
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_lmr_sync_rdma_write, as [`Lmr::sync_read`].
    ///
    /// # Errors
    /// As [`Lmr::sync_read`].
    pub fn sync_write(ia: &'static Ia<T>, segments: &[LmrTriplet]) -> Result<()> {
        Self::sync_read(ia, segments)
    }

    /// dat_lmr_free.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`; `DAT_INVALID_STATE` (`LMR_IN_USE`) while an RMR is bound to it or an LMR of
    /// type LMR stands on it.
    pub fn free(&'static self) -> Result<()> {
        let _ = self.inner.lock();
        Err(Error::of(ErrorKind::NotImplemented))
    }
}
