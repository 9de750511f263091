//! Protection zones.

use std::sync::Arc;

use dat_abi::types::DAT_HANDLE_NULL;

use crate::error::Result;
use crate::sys::{Handle, call, free};
use crate::{Access, Ia, Region, Rmr};

/// A protection zone: endpoints reach only the memory of their own.
#[derive(Clone, Debug)]
pub struct Pz {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    handle: Handle,
    ia: Ia,
}

impl Drop for Inner {
    fn drop(&mut self) {
        free!(self.handle, pz_free());
    }
}

impl Pz {
    pub(crate) fn create(ia: &Ia) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        call!(ia.handle(), pz_create(&raw mut handle))?;
        Ok(Self {
            inner: Arc::new(Inner {
                handle: Handle(handle),
                ia: ia.clone(),
            }),
        })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.inner.handle
    }

    /// The adapter.
    #[must_use]
    pub fn ia(&self) -> &Ia {
        &self.inner.ia
    }

    /// Allocates and registers `bytes` of zeroed memory (dat_lmr_create). Nothing is open to peers unless `access` says so.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call), e.g. `DAT_INSUFFICIENT_RESOURCES` beyond the locked-memory limit.
    pub fn allocate(&self, bytes: usize, access: Access) -> Result<Region> {
        Region::create(self, bytes, access)
    }

    /// A memory window (dat_rmr_create), not bound.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call); `DAT_NOT_IMPLEMENTED` where the device has none.
    pub fn create_rmr(&self) -> Result<Rmr> {
        Rmr::create(self, false)
    }

    /// A memory window for an endpoint (dat_rmr_create_for_ep), not bound: open to one peer, who may close it by
    /// [`Ep::post_send_with_invalidate`](crate::Ep::post_send_with_invalidate).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call); `DAT_NOT_IMPLEMENTED` where the device has none.
    pub fn create_rmr_for_ep(&self) -> Result<Rmr> {
        Rmr::create(self, true)
    }
}
