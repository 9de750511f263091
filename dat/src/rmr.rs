//! Memory windows.

use std::ops::Range;

use dat_abi::types::DAT_HANDLE_NULL;

use crate::error::Result;
use crate::sys::{Handle, call, free};
use crate::{Access, Ep, Pz, Region, Remote};

/// A window (RMR): opens part of a region to peers, for a time.
#[derive(Debug)]
pub struct Rmr {
    handle: Handle,
    /// What it is bound to must stay.
    bound: Option<Region>,
    _pz: Pz,
}

impl Drop for Rmr {
    fn drop(&mut self) {
        free!(self.handle, rmr_free());
    }
}

impl Rmr {
    pub(crate) fn create(pz: &Pz, for_ep: bool) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        if for_ep {
            call!(pz.handle(), rmr_create_for_ep(&raw mut handle))?;
        } else {
            call!(pz.handle(), rmr_create(&raw mut handle))?;
        }
        Ok(Self {
            handle: Handle(handle),
            bound: None,
            _pz: pz.clone(),
        })
    }

    /// Opens `range` of `region` to peers with `access`, in place of what was open before (dat_rmr_bind). The completion comes to
    /// the request dispatcher of `ep` with `cookie`; the piece may be told to the peer after it. A window for an endpoint
    /// ([`Pz::create_rmr_for_ep`]) is open to the peer of `ep` only.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    ///
    /// # Panics
    /// If the range leaves the region.
    pub fn bind(
        &mut self,
        region: &Region,
        range: Range<usize>,
        access: Access,
        ep: &Ep,
        cookie: u64,
    ) -> Result<Remote> {
        let triplet = region.slice(range).triplet;
        let mut key = 0;
        let lmr = region.handle().0;
        let rights = access.bits();
        call!(
            self.handle,
            rmr_bind(
                lmr,
                &raw const triplet,
                rights,
                0,
                ep.handle().0,
                cookie,
                0,
                &raw mut key
            )
        )?;
        self.bound = Some(region.clone());
        Ok(Remote {
            address: triplet.virtual_address,
            length: triplet.segment_length,
            key,
        })
    }

    /// The region it is bound to.
    #[must_use]
    pub fn region(&self) -> Option<&Region> {
        self.bound.as_ref()
    }
}

impl Pz {
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
