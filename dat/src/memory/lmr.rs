//! A registration of memory with its adapter, and the memory below it.

use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use dat_abi::types::{DAT_HANDLE_NULL, DAT_LMR_COOKIE_SIZE, DatRegionDescription};
use dat_core::flags::{MemType, VaType};

use super::limbo::Dropped;
use super::source::Memory;
use crate::Access;
use crate::error::Result;
use crate::pz::Pz;
use crate::sys::{Handle, call};

/// What a registration covers.
pub(crate) enum Kind<'a> {
    /// The memory itself.
    Virtual,
    /// The memory of another registration.
    Of(Handle),
    /// The memory, which processes share under this name.
    Shared(&'a [u8; DAT_LMR_COOKIE_SIZE]),
}

/// A registration, which owns its memory.
#[derive(Debug)]
pub(crate) struct Lmr {
    pub(crate) handle: Handle,
    pub(crate) at: NonNull<u8>,
    pub(crate) length: usize,
    pub(crate) access: Access,
    pub(crate) lmr_context: u32,
    pub(crate) rmr_context: u32,
    /// First address in segments and for peers: 0 for a zero-based region.
    pub(crate) base: u64,
    // Dropped after dat_lmr_free.
    pub(crate) memory: ManuallyDrop<Memory>,
    /// dat_lmr_free was called.
    is_freed: bool,
    pub(crate) pz: Pz,
}

// SAFETY: the bytes are accessed only by the copies and atomics of `copy.rs`, or exclusively (`Region::get_mut`).
unsafe impl Send for Lmr {}
// SAFETY: as above.
unsafe impl Sync for Lmr {}

impl Lmr {
    pub(crate) fn create(
        pz: &Pz,
        memory: Memory,
        kind: &Kind<'_>,
        access: Access,
        va_type: VaType,
    ) -> Result<Self> {
        let (at, length) = memory.range();
        let (mem_type, address, shared_memory_id) = match kind {
            Kind::Virtual => (MemType::Virtual, at.as_ptr() as usize, ptr::null()),
            Kind::Of(other) => (MemType::Lmr, other.0, ptr::null()),
            Kind::Shared(name) => (
                MemType::SharedVirtual,
                at.as_ptr() as usize,
                ptr::from_ref(*name),
            ),
        };
        let description = DatRegionDescription {
            address,
            shared_memory_id,
        };
        let (mut handle, mut lmr_context, mut rmr_context) = (DAT_HANDLE_NULL, 0, 0);
        call!(
            pz.ia().handle(),
            lmr_create(
                mem_type as u32,
                description,
                length as u64,
                pz.handle().0,
                access.bits(),
                va_type as u32,
                &raw mut handle,
                &raw mut lmr_context,
                &raw mut rmr_context,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        )?;
        Ok(Self {
            handle: Handle(handle),
            at,
            length,
            access,
            lmr_context,
            rmr_context,
            base: match va_type {
                VaType::Va => at.as_ptr() as u64,
                VaType::ZeroBased => 0,
            },
            memory: ManuallyDrop::new(memory),
            is_freed: false,
            pz: pz.clone(),
        })
    }

    /// Returns the handle of the protection zone.
    #[inline]
    pub(crate) fn zone(&self) -> usize {
        self.pz.handle().0
    }
}

impl Dropped for Lmr {
    fn zone(&self) -> usize {
        Self::zone(self)
    }

    fn free(mut self: Box<Self>) -> std::result::Result<(), Box<dyn Dropped>> {
        match call!(self.handle, lmr_free()) {
            Ok(()) => {
                self.is_freed = true;
                Ok(())
            }
            Err(error) => {
                tracing::debug!(%error, address = ?self.at, "a region is still in use: it is freed later");
                Err(self)
            }
        }
    }
}

impl Drop for Lmr {
    fn drop(&mut self) {
        if !self.is_freed
            && let Err(error) = call!(self.handle, lmr_free())
        {
            tracing::warn!(%error, address = ?self.at, bytes = self.length, "a region is still in use: its memory is not released");
            return;
        }
        // SAFETY: dropped here only; after dat_lmr_free the adapter does not access the memory.
        unsafe { ManuallyDrop::drop(&mut self.memory) };
    }
}
