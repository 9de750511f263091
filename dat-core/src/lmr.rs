//! Local memory regions (dat_lmr_create, dat_lmr_query, dat_lmr_free, dat_lmr_sync_rdma_*).

use std::sync::Arc;

use dat_arena::Mutex;

use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::event::RawHandle;
use crate::flags::{MemPriv, VaType};
use crate::head::{Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::pz::Pz;
use crate::rmr::{LmrRange, Rmr};
use crate::transport::Transport;
use crate::use_count::Claim;

/// Length of a `DAT_LMR_COOKIE` in bytes.
pub const COOKIE_SIZE: usize = 40;

/// The memory to register (`DAT_MEM_TYPE` with its `DAT_REGION_DESCRIPTION`).
#[derive(Debug)]
pub enum Source<T: Transport> {
    /// A range of the caller's memory, given by its address.
    Virtual(usize),
    /// The range of another LMR; the length argument is ignored.
    Lmr(&'static Lmr<T>),
    /// Memory that several processes share under one name.
    Shared {
        /// Address at which this process has mapped the memory.
        address: usize,
        /// Name of the memory; all bytes count, it is not a string.
        cookie: [u8; COOKIE_SIZE],
    },
}

/// The attributes that dat_lmr_query returns.
#[derive(Debug)]
pub struct LmrInfo<T: Transport> {
    /// The IA's handle.
    pub ia: RawHandle,
    /// Memory, as given at creation.
    pub source: Source<T>,
    /// Length in bytes, as given at creation.
    pub length: u64,
    /// The PZ's handle.
    pub pz: RawHandle,
    /// Access rights, as given at creation.
    pub rights: MemPriv,
    /// Origin of the addresses in it, as given at creation.
    pub va_type: VaType,
    /// Key for local segments.
    pub lmr_context: u32,
    /// Key for the peer; 0 without remote rights.
    pub rmr_context: u32,
    /// Number of registered bytes.
    pub registered_size: u64,
    /// Address of the first registered byte.
    pub registered_address: u64,
}

/// A local memory region. All methods may be called from any thread.
#[repr(C)]
pub struct Lmr<T: Transport> {
    /// Function table, liveness, generation and use count.
    pub head: Head,
    inner: Mutex<Option<Inner<T>>>,
}

struct Inner<T: Transport> {
    region: Arc<T::Lmr>,
    info: LmrInfo<T>,
    pz: &'static Pz<T>,
    _pz_claim: Claim,
    _base_claim: Option<Claim>,
}

/// The parts of an LMR that a bind uses.
pub(crate) struct Base<T: Transport> {
    pub(crate) region: Arc<T::Lmr>,
    pub(crate) info: LmrInfo<T>,
    pub(crate) pz: &'static Pz<T>,
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

impl<T: Transport> Clone for Source<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Transport> Copy for Source<T> {}

impl<T: Transport> Clone for LmrInfo<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Transport> Copy for LmrInfo<T> {}

impl<T: Transport> LmrInfo<T> {
    /// Returns the address by which programs name the first byte, and the number of bytes.
    pub(crate) fn addresses(&self) -> (u64, u64) {
        let first = match self.va_type {
            VaType::Va => self.registered_address,
            VaType::ZeroBased => 0,
        };
        (first, self.registered_size)
    }
}

/// All defined rights.
const RIGHTS: MemPriv = MemPriv::ALL.union(MemPriv::REMOTE);

const DEAD: Error = Error::handle(Subtype::InvalidHandleLmr);

/// Returns true if `[address, address + length)` is within `[base, base + size)`; the computation does not overflow.
pub(crate) fn within(address: u64, length: u64, base: u64, size: u64) -> bool {
    address
        .checked_sub(base)
        .and_then(|offset| offset.checked_add(length))
        .is_some_and(|end| end <= size)
}

impl<T: Transport> Lmr<T> {
    /// Registers memory (dat_lmr_create). Argument numbers are those of 2.0; 1.2 lacks `va_type`, the last argument.
    ///
    /// # Errors
    /// `DAT_LENGTH_ERROR` for length 0. `DAT_INVALID_PARAMETER` for argument 3 without an address, for argument 4 if the range exceeds
    /// the address space or the shared memory of this name has another length, and for argument 6 with unknown rights.
    /// `DAT_MODEL_NOT_SUPPORTED` for zero-based addresses on an adapter without them. `DAT_INVALID_HANDLE` of the IA, the PZ or
    /// the LMR. The errors of [`Transport::register`].
    pub fn create(
        ia: &'static Ia<T>,
        source: Source<T>,
        length: u64,
        pz: &'static Pz<T>,
        rights: MemPriv,
        va_type: VaType,
    ) -> Result<&'static Self> {
        let pz_claim = pz.head.claim(Subtype::InvalidHandlePz)?;
        if !std::ptr::eq(pz.ia(), ia) {
            return Err(Error::handle(Subtype::InvalidHandlePz));
        }
        if !RIGHTS.contains(rights) {
            return Err(Error::arg(6));
        }
        if va_type == VaType::ZeroBased && !ia.attributes()?.zero_based {
            return Err(Error::of(ErrorKind::ModelNotSupported));
        }
        let mut base_claim = None;
        let (address, length) = match source {
            Source::Virtual(address) | Source::Shared { address, .. } => (address as u64, length),
            Source::Lmr(base) => {
                base_claim = Some(base.head.claim(Subtype::InvalidHandleLmr)?);
                let info = base.info()?;
                if info.ia != raw(ia) {
                    return Err(DEAD);
                }
                (info.registered_address, info.registered_size)
            }
        };
        // The manual page does not define the code for length 0; dapltest -T F -f mem expects this one.
        if length == 0 {
            return Err(Error::of(ErrorKind::LengthError));
        }
        if address == 0 {
            return Err(Error::arg(3));
        }
        if address.checked_add(length).is_none() {
            return Err(Error::arg(4));
        }
        let sharing = match &source {
            Source::Shared { cookie, .. } => Some(Sharing::begin(ia, cookie, length)?),
            _ => None,
        };
        ia.reserve_lmr()?;
        let zone = pz.zone()?;
        let (region, keys) = T::register(&zone, address as usize, length, rights, va_type)?;
        let arena = &T::arenas().lmr;
        let (index, lmr) = arena
            .alloc()
            .ok_or(Error::resource(Subtype::ResourceMemoryRegion))?;
        let remote = rights.intersects(MemPriv::REMOTE);
        *lmr.inner.lock() = Some(Inner {
            region: Arc::new(region),
            info: LmrInfo {
                ia: raw(ia),
                source,
                length,
                pz: raw(pz),
                rights,
                va_type,
                lmr_context: keys.lmr_context,
                rmr_context: if remote { keys.rmr_context } else { 0 },
                registered_size: length,
                registered_address: address,
            },
            pz,
            _pz_claim: pz_claim,
            _base_claim: base_claim,
        });
        ia.add_member(Kind::Lmr, index, &lmr.head, 0)
            .inspect_err(|_| {
                let inner = lmr.inner.lock().take();
                drop(inner);
                arena.recycle(index);
            })?;
        ia.set_lmr_index(keys.lmr_context, Some(index));
        if let Some(sharing) = sharing {
            sharing.keep();
        }
        Ok(lmr)
    }

    /// Returns the attributes (dat_lmr_query).
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn info(&'static self) -> Result<LmrInfo<T>> {
        self.inner.lock().as_ref().map(|i| i.info).ok_or(DEAD)
    }

    /// Returns the parts that a bind uses; the caller has claimed the LMR.
    pub(crate) fn base(&'static self) -> Result<Base<T>> {
        let inner = self.inner.lock();
        let inner = inner.as_ref().ok_or(DEAD)?;
        Ok(Base {
            region: Arc::clone(&inner.region),
            info: inner.info,
            pz: inner.pz,
        })
    }

    /// Checks the segments (dat_lmr_sync_rdma_read). Memory is coherent, so no other action is needed. The contexts of the segments
    /// select the LMRs.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 2) if a segment is outside its LMR or its LMR is unknown; `DAT_INVALID_HANDLE` (IA closed);
    /// an error that the iterator yields. The iterator is not advanced after the first error.
    pub fn sync_read(
        ia: &'static Ia<T>,
        segments: impl IntoIterator<Item = Result<impl Into<LmrRange>>>,
    ) -> Result<()> {
        ia.adapter()?;
        for segment in segments {
            let segment: LmrRange = segment?.into();
            if segment.length == 0 {
                continue;
            }
            let info = ia
                .lmr(segment.lmr_context)
                .and_then(|lmr| lmr.info().ok())
                .filter(|info| info.lmr_context == segment.lmr_context)
                .ok_or(Error::arg(2))?;
            let (base, size) = info.addresses();
            if !within(segment.address, segment.length, base, size) {
                return Err(Error::arg(2));
            }
        }
        Ok(())
    }

    /// Checks the segments (dat_lmr_sync_rdma_write), like [`Lmr::sync_read`].
    ///
    /// # Errors
    /// The errors of [`Lmr::sync_read`].
    pub fn sync_write(
        ia: &'static Ia<T>,
        segments: impl IntoIterator<Item = Result<impl Into<LmrRange>>>,
    ) -> Result<()> {
        Self::sync_read(ia, segments)
    }

    /// Frees the LMR (dat_lmr_free). After the return no remote access reaches the memory.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`; `DAT_INVALID_STATE` (`LMR_IN_USE`) while an RMR is bound to it, also until the bind that replaces this is
    /// complete, or another LMR was created from it.
    pub fn free(&'static self) -> Result<()> {
        let retire = || {
            self.head
                .retire(Subtype::InvalidHandleLmr, Subtype::InvalidStateLmrInUse)
        };
        let in_use = Err(Error::state(Subtype::InvalidStateLmrInUse));
        let mut retired = retire();
        if retired == in_use {
            // The program may not have taken the completion of that bind.
            Rmr::<T>::settle(self);
            retired = retire();
        }
        retired?;
        let ia = Ia::<T>::of(&self.head);
        let inner = self.inner.lock().take();
        if let Some(inner) = inner {
            ia.set_lmr_index(inner.info.lmr_context, None);
            if let Source::Shared { cookie, .. } = &inner.info.source {
                ia.unshare(cookie);
            }
            // The region is dropped before the claim on its PZ.
            drop(inner.region);
        }
        let arena = &T::arenas().lmr;
        let index = arena.index_of(self);
        ia.remove_member(Kind::Lmr, index);
        arena.recycle(index);
        Ok(())
    }
}

/// An entry in the IA's list of shared memory; its drop removes the entry unless [`Sharing::keep`] was called.
struct Sharing<'a, T: Transport> {
    ia: &'static Ia<T>,
    cookie: &'a [u8; COOKIE_SIZE],
    keep: bool,
}

impl<'a, T: Transport> Sharing<'a, T> {
    fn begin(ia: &'static Ia<T>, cookie: &'a [u8; COOKIE_SIZE], length: u64) -> Result<Self> {
        ia.share(cookie, length)?;
        Ok(Self {
            ia,
            cookie,
            keep: false,
        })
    }

    fn keep(mut self) {
        self.keep = true;
    }
}

impl<T: Transport> Drop for Sharing<'_, T> {
    fn drop(&mut self) {
        if !self.keep {
            self.ia.unshare(self.cookie);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn ranges_do_not_wrap() {
        assert!(within(10, 5, 10, 5));
        assert!(within(14, 1, 10, 5));
        assert!(within(15, 0, 10, 5));
        assert!(!within(9, 1, 10, 5));
        assert!(!within(14, 2, 10, 5));
        assert!(!within(12, u64::MAX, 10, 5));
        assert!(!within(u64::MAX, 1, 10, 5));
    }
}
