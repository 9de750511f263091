//! Protection zones.

use std::sync::Arc;

use dat_abi::types::DAT_HANDLE_NULL;

use crate::error::Result;
use crate::ia::Ia;
use crate::sys::{Handle, call, free};

/// A protection zone: endpoints access only the memory of their zone. Clones are the same zone.
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

    /// Returns the adapter.
    #[must_use]
    pub fn ia(&self) -> &Ia {
        &self.inner.ia
    }
}

impl Ia {
    /// Creates a protection zone (dat_pz_create).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn create_pz(&self) -> Result<Pz> {
        Pz::create(self)
    }
}
