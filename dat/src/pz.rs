//! Protection zones.

use std::sync::Arc;

use dat_abi::types::{DAT_HANDLE_NULL, DatPzParam};

use crate::error::Result;
use crate::ia::Ia;
use crate::sys::{Handle, call, query};

/// A protection zone: endpoints access only the memory of their zone. Clones are the same zone.
///
/// ```
/// use udapl::{Access, Ia, PostError, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// let ia = Ia::open("softrxe-lo")?;
/// let (clients, own) = (ia.create_pz()?, ia.create_pz()?);
/// let done = ia.create_evd(16, Streams::DTO)?;
/// let ep = ia.endpoint(&clients).recv_evd(&done).create()?;
///
/// // An endpoint uses memory of its own zone only.
/// let rights = Access::LOCAL_READ | Access::LOCAL_WRITE;
/// let (room, secret) = (clients.allocate(64, rights)?, own.allocate(64, rights)?);
/// ep.post_recv(&[room.slice(0..64)], 1)?;
/// let refused = ep.post_recv(&[secret.slice(0..64)], 2);
/// assert!(matches!(refused, Err(PostError::OtherZone { .. })));
/// # Ok(())
/// # }
/// ```
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
        let limbo = self.ia.limbo();
        limbo.free(self.handle, |handle| call!(handle, pz_free()));
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

    #[inline]
    pub(crate) fn handle(&self) -> Handle {
        self.inner.handle
    }

    /// Returns the adapter.
    #[must_use]
    pub fn ia(&self) -> &Ia {
        &self.inner.ia
    }

    /// Queries the zone (dat_pz_query): returns whether the provider knows it as one of this adapter.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn is_of_ia(&self) -> Result<bool> {
        let param: DatPzParam = query!(self.handle(), pz_query(0x1));
        Ok(param.ia_handle == self.ia().handle().0)
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
