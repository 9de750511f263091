//! Memory windows.

use std::ops::Range;

use dat_abi::types::DAT_HANDLE_NULL;

use crate::error::Result;
use crate::sys::{Handle, call, free};
use crate::{Access, Ep, Pz, Region, Remote};

/// A memory window (RMR): opens part of a region to peers until it is bound again or dropped.
#[derive(Debug)]
pub struct Rmr {
    handle: Handle,
    /// Region to which the window is bound, which must not be freed before.
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

    /// Opens `range` of `region` to peers with `access`, instead of the range that was open before (dat_rmr_bind). The completion is
    /// reported to the request dispatcher of `ep` with `cookie`; send the returned segment to the peer after it. A window for an
    /// endpoint ([`Pz::create_rmr_for_ep`]) is open to the peer of `ep` only.
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

    /// Returns the region to which the window is bound.
    #[must_use]
    pub fn region(&self) -> Option<&Region> {
        self.bound.as_ref()
    }
}

impl Pz {
    /// Creates a memory window, which is not bound yet (dat_rmr_create).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call); `DAT_NOT_IMPLEMENTED` where the device has none.
    pub fn create_rmr(&self) -> Result<Rmr> {
        Rmr::create(self, false)
    }

    /// Creates a memory window for one endpoint, which is not bound yet (dat_rmr_create_for_ep). The endpoint's peer may invalidate it
    /// by [`Ep::post_send_with_invalidate`](crate::Ep::post_send_with_invalidate).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call); `DAT_NOT_IMPLEMENTED` where the device has none.
    pub fn create_rmr_for_ep(&self) -> Result<Rmr> {
        Rmr::create(self, true)
    }
}
