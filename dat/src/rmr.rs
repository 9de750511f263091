//! Memory windows.

use std::ops::Range;
use std::sync::Arc;

use dat_abi::types::DAT_HANDLE_NULL;
use dat_abi::v2_0::types::DatRmrParam;

use crate::error::Result;
use crate::ids::Side;
use crate::memory::region::WindowLife;
use crate::post_error::{PostCall, PostError};
use crate::sys::{Handle, call, free, query};
use crate::{Access, CompletionFlags, Ep, Pz, Region, Remote};

/// A memory window (RMR): opens part of a region to peers until it is bound again or dropped.
///
/// ```
/// use std::time::Duration;
/// use udapl::{Access, CompletionFlags};
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
///
/// # fn main() -> Result<(), udapl::Error> {
/// # let (pz, (client, sent), (server, received)) = pair()?;
/// // `client` and `server` are connected. The server opens 16 bytes of its region to the client, for a while.
/// # let patience = Duration::from_secs(60);
/// let region = pz.allocate(4096, Access::ALL)?;
/// let mut window = pz.create_rmr()?;
/// let open = window.bind(&region, 64..80, Access::REMOTE_WRITE, &server, 1)?;
/// received.wait_completion(patience)?; // the completion of the bind: now the key can be sent
///
/// let local = pz.allocate(16, Access::LOCAL_READ)?;
/// client.post_rdma_write(&[local.slice(0..16)], open, 2, CompletionFlags::empty())?;
/// sent.wait_completion(patience)?;
///
/// window.unbind(&server, 3)?;
/// received.wait_completion(patience)?; // the key is invalid from now on
/// # client.post_rdma_write(&[local.slice(0..16)], open, 2, CompletionFlags::empty())?;
/// # assert!(sent.wait_completion(patience).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Rmr {
    handle: Handle,
    /// Region to which the window is bound, which must not be freed before.
    bound: Option<Region>,
    /// Dropped after dat_rmr_free.
    life: Arc<WindowLife>,
    pz: Pz,
}

impl Drop for Rmr {
    fn drop(&mut self) {
        free!(self.handle, rmr_free());
        // The region may have been waiting for this.
        self.bound = None;
        self.pz.ia().limbo().collect();
    }
}

/// What a provider knows of a window (dat_rmr_query).
///
/// ```
/// # use std::time::Duration;
/// use udapl::Access;
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
///
/// # fn main() -> Result<(), udapl::Error> {
/// # let (pz, (client, sent), (server, received)) = pair()?;
/// # let region = pz.allocate(4096, Access::ALL)?;
/// # let mut window = pz.create_rmr()?;
/// let open = window.bind(&region, 64..80, Access::REMOTE_READ, &server, 1)?;
/// # received.wait_completion(Duration::from_secs(60))?;
/// let info = window.info()?;
/// assert_eq!((info.remote, info.access), (open, Access::REMOTE_READ));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RmrInfo {
    /// Rights of peers.
    pub access: Access,
    /// The segment that is open, as peers name it.
    pub remote: Remote,
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
            life: Arc::default(),
            pz: pz.clone(),
        })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Opens `range` of `region` to peers with `access`, instead of the range that was open before (dat_rmr_bind). The completion is
    /// reported to the request dispatcher of `ep` with `cookie`; send the returned segment to the peer after it. A window for an
    /// endpoint ([`Pz::create_rmr_for_ep`]) is open to the peer of `ep` only. Before it is bound on another endpoint it is to be
    /// unbound on that of the former bind; else the bind may fail, and end the connection of `ep`.
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
        self.bind_with(region, range, access, ep, cookie, CompletionFlags::empty())
    }

    /// Binds the window with completion flags.
    ///
    /// # Errors
    /// As [`Rmr::bind`].
    ///
    /// # Panics
    /// If the range leaves the region.
    pub fn bind_with(
        &mut self,
        region: &Region,
        range: Range<usize>,
        access: Access,
        ep: &Ep,
        cookie: u64,
        flags: CompletionFlags,
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
                flags.bits(),
                &raw mut key
            )
        )?;
        region.inner.add_window(&self.life);
        self.bound = Some(region.clone());
        Ok(Remote {
            address: triplet.virtual_address,
            length: triplet.segment_length,
            key,
        })
    }

    /// Closes the window (dat_rmr_bind of no bytes). The completion is reported to the request dispatcher of `ep` with `cookie`. If the
    /// connection of `ep` has ended it is [`Flushed`](crate::DtoStatus::Flushed), and the window may stay open to the peers of other
    /// endpoints until it is dropped or bound again.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn unbind(&mut self, ep: &Ep, cookie: u64) -> Result<()> {
        let Some(region) = self.bound.clone() else {
            return Ok(());
        };
        self.bind(&region, 0..0, Access::empty(), ep, cookie)
            .map(drop)
    }

    /// Queries the window (dat_rmr_query).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn info(&self) -> Result<RmrInfo> {
        let param: DatRmrParam = query!(self.handle, rmr_query(0x3f));
        Ok(RmrInfo {
            access: Access::from_bits_retain(param.mem_priv),
            remote: Remote {
                address: param.lmr_triplet.virtual_address,
                length: param.lmr_triplet.segment_length,
                key: param.rmr_context,
            },
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

impl Ep {
    /// Reads the peer's memory into a bound window (dat_ep_post_rdma_read_to_rmr), of which `local` is the segment that
    /// [`Rmr::bind`] returned.
    ///
    /// # Errors
    /// As [`Ep::post_send`]; [`Error::Unsupported`](crate::Error::Unsupported) where the device cannot do it.
    pub fn post_rdma_read_to_rmr(
        &self,
        window: &Rmr,
        local: Remote,
        remote: Remote,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), PostError> {
        if let Some(region) = window.region() {
            region.inner.mark_posted();
        }
        let (local, from) = (local.triplet(), remote.triplet());
        self.counted(Side::Requests, flags, || {
            call!(post PostCall::RdmaReadToRmr, self.handle(), ep_post_rdma_read_to_rmr(&raw const local, cookie, &raw const from, flags.bits()))
        })
    }
}
