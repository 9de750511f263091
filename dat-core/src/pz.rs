//! Protection zones (dat_pz_create, dat_pz_query, dat_pz_free). Only LMRs, RMRs, EPs and SRQs of one zone work together.

use std::sync::Arc;

use dat_arena::Mutex;

use crate::error::{Error, Result, Subtype};
use crate::head::{Head, debug_by_head};
use crate::ia::{Ia, Kind};
use crate::transport::Transport;

/// A protection zone. All methods may be called from any thread.
#[repr(C)]
pub struct Pz<T: Transport> {
    /// Function table, liveness, generation and use count.
    pub head: Head,
    zone: Mutex<Option<Arc<T::Pz>>>,
}

debug_by_head!(Pz);

impl<T: Transport> Default for Pz<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            zone: Mutex::new(None),
        }
    }
}

impl<T: Transport> Pz<T> {
    /// Creates a protection zone (dat_pz_create).
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` (IA closed), `DAT_INSUFFICIENT_RESOURCES`.
    pub fn create(ia: &'static Ia<T>) -> Result<&'static Self> {
        let zone = T::create_pz(&ia.adapter()?)?;
        let arena = &T::arenas().pz;
        let (index, pz) = arena
            .alloc()
            .ok_or(Error::resource(Subtype::ResourceMemory))?;
        *pz.zone.lock() = Some(Arc::new(zone));
        ia.add_member(Kind::Pz, index, &pz.head, 0)
            .inspect_err(|_| {
                pz.zone.lock().take();
                arena.recycle(index);
            })?;
        Ok(pz)
    }

    /// Returns the IA that the zone belongs to (dat_pz_query).
    pub fn ia(&self) -> &'static Ia<T> {
        Ia::of(&self.head)
    }

    /// Frees the zone (dat_pz_free).
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`; `DAT_INVALID_STATE` (`PZ_IN_USE`) while an LMR, RMR, EP or SRQ uses it.
    pub fn free(&'static self) -> Result<()> {
        self.head
            .retire(Subtype::InvalidHandlePz, Subtype::InvalidStatePzInUse)?;
        let zone = self.zone.lock().take();
        drop(zone);
        let index = T::arenas().pz.index_of(self);
        self.ia().remove_member(Kind::Pz, index);
        T::arenas().pz.recycle(index);
        Ok(())
    }

    /// Returns the transport's zone.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if freed.
    pub(crate) fn zone(&self) -> Result<Arc<T::Pz>> {
        self.zone
            .lock()
            .clone()
            .ok_or(Error::handle(Subtype::InvalidHandlePz))
    }
}
