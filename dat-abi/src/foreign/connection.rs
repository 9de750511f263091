//! Endpoints, service points and connection requests.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dat_core::error::{Error, Kind, Result};
use dat_core::flags::{Close, CompletionFlags};
use dat_core::iov::RmrTriplet;

use super::event::microseconds;
use super::memory::iov;
use super::{Evd, Object, Pz, Segment, Srq, call, kinds};
use crate::boundary::limit;
use crate::intern;
use crate::intern::read_address;
use crate::types::{DatCrParam, DatHandle};

kinds! {
    /// An endpoint.
    Ep;
    /// A public service point: listens as long as it exists.
    Psp;
    /// A reserved service point: listens for one request, as long as it exists.
    Rsp;
}

/// What an endpoint is made of.
#[derive(Clone, Copy, Debug)]
pub struct EpParts<'a> {
    /// Protection zone.
    pub pz: &'a Pz,
    /// Where receives complete.
    pub recv: Option<&'a Evd>,
    /// Where requests complete.
    pub request: Option<&'a Evd>,
    /// Where connection events go.
    pub connection: Option<&'a Evd>,
    /// Where receives come from.
    pub srq: Option<&'a Srq>,
}

/// Memory of the peer, as it told us: see [`Lmr::remote`](super::Lmr::remote).
pub type Remote = RmrTriplet;

impl Ep {
    /// dat_ep_connect; ends in a connection event. `None` waits for ever.
    ///
    /// # Errors
    /// The provider's.
    pub fn connect(
        &self,
        remote: IpAddr,
        conn_qual: u64,
        timeout: Option<Duration>,
        private_data: &[u8],
    ) -> Result<()> {
        let (size, data) = private(private_data);
        let address = intern::address(Some(remote), 0);
        let time = microseconds(timeout);
        call!(
            self.0,
            ep_connect(self.raw(), address, conn_qual, time, size, data, 0, 0)
        )
    }

    /// dat_ep_disconnect; ends in a connection event.
    ///
    /// # Errors
    /// The provider's.
    pub fn disconnect(&self, how: Close) -> Result<()> {
        call!(self.0, ep_disconnect(self.raw(), how as u32))
    }

    /// dat_ep_reset: after a connection ended, as new.
    ///
    /// # Errors
    /// The provider's.
    pub fn reset(&self) -> Result<()> {
        call!(self.0, ep_reset(self.raw()))
    }

    /// dat_ep_get_status: `DAT_EP_STATE`, and whether all receives, and all requests are completed.
    ///
    /// # Errors
    /// The provider's.
    pub fn status(&self) -> Result<(u32, bool, bool)> {
        let (mut state, mut recv, mut request) = (0, 0, 0);
        call!(
            self.0,
            ep_get_status(self.raw(), &raw mut state, &raw mut recv, &raw mut request)
        )?;
        Ok((state, recv != 0, request != 0))
    }

    /// dat_ep_post_send. Keep the segments' [`Lmr`](super::Lmr)s until the completion, as with every post.
    ///
    /// # Errors
    /// The provider's.
    pub fn post_send(
        &self,
        segments: &[Segment<'_>],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let count = limit(segments.len() as u32);
        call!(
            self.0,
            ep_post_send(self.raw(), count, iov(segments), cookie, flags.bits())
        )
    }

    /// dat_ep_post_recv.
    ///
    /// # Errors
    /// The provider's.
    pub fn post_recv(&self, segments: &[Segment<'_>], cookie: u64) -> Result<()> {
        let count = limit(segments.len() as u32);
        call!(
            self.0,
            ep_post_recv(self.raw(), count, iov(segments), cookie, 0)
        )
    }

    /// dat_ep_post_rdma_write.
    ///
    /// # Errors
    /// The provider's.
    pub fn post_rdma_write(
        &self,
        segments: &[Segment<'_>],
        cookie: u64,
        to: &Remote,
        flags: CompletionFlags,
    ) -> Result<()> {
        let count = limit(segments.len() as u32);
        call!(
            self.0,
            ep_post_rdma_write(self.raw(), count, iov(segments), cookie, to, flags.bits())
        )
    }

    /// dat_ep_post_rdma_read.
    ///
    /// # Errors
    /// The provider's.
    pub fn post_rdma_read(
        &self,
        segments: &[Segment<'_>],
        cookie: u64,
        from: &Remote,
        flags: CompletionFlags,
    ) -> Result<()> {
        let count = limit(segments.len() as u32);
        call!(
            self.0,
            ep_post_rdma_read(self.raw(), count, iov(segments), cookie, from, flags.bits())
        )
    }
}

/// Private data as C takes it.
fn private(data: &[u8]) -> (i32, *const c_void) {
    (limit(data.len() as u32), data.as_ptr().cast())
}

/// A connection request as dat_cr_query tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cr {
    /// Who asks.
    pub remote: Option<IpAddr>,
    /// `remote_port_qual`.
    pub remote_port: u64,
    /// What came with the request (padding included where the wire has it).
    pub private_data: Vec<u8>,
}

/// A connection request that waits for an answer. Dropping it rejects it.
#[derive(Debug)]
pub struct Request {
    handle: DatHandle,
    conn_qual: u64,
    /// The EVD that told of it keeps the IA open.
    evd: Arc<Object>,
    answered: bool,
}

impl Request {
    pub(super) fn new(handle: DatHandle, conn_qual: u64, evd: &Arc<Object>) -> Self {
        Self {
            handle,
            conn_qual,
            evd: evd.clone(),
            answered: false,
        }
    }

    /// The qualifier that it came to.
    #[must_use]
    pub fn conn_qual(&self) -> u64 {
        self.conn_qual
    }

    /// dat_cr_query.
    ///
    /// # Errors
    /// The provider's.
    pub fn query(&self) -> Result<Cr> {
        let mut param = MaybeUninit::<DatCrParam>::zeroed();
        call!(self.evd, cr_query(self.handle, 0x1f, param.as_mut_ptr()))?;
        // SAFETY: all zeros are valid, and the provider wrote over them.
        let param = unsafe { param.assume_init() };
        let size = usize::try_from(param.private_data_size).unwrap_or(0);
        let private_data = if size == 0 || param.private_data.is_null() {
            Vec::new()
        } else {
            // SAFETY: the provider's bytes, as many as it says, which stay until the request is answered.
            unsafe { std::slice::from_raw_parts(param.private_data.cast::<u8>(), size) }.to_vec()
        };
        Ok(Cr {
            // SAFETY: NULL or a socket address of the provider's.
            remote: unsafe { read_address(param.remote_ia_address_ptr) },
            remote_port: param.remote_port_qual,
            private_data,
        })
    }

    /// dat_cr_accept with `ep`; ends in a connection event. `None` is the endpoint of a reserved service point.
    ///
    /// # Errors
    /// The provider's; the request is rejected then.
    pub fn accept(mut self, ep: Option<&Ep>, private_data: &[u8]) -> Result<()> {
        let (size, data) = private(private_data);
        let ep = ep.map_or(0, Ep::raw);
        let accepted = call!(self.evd, cr_accept(self.handle, ep, size, data));
        self.answered = accepted.is_ok();
        accepted
    }

    /// dat_cr_reject.
    ///
    /// # Errors
    /// The provider's.
    pub fn reject(mut self, private_data: &[u8]) -> Result<()> {
        self.answered = true;
        self.refuse(private_data)
    }

    fn refuse(&self, private_data: &[u8]) -> Result<()> {
        let (size, data) = private(private_data);
        call!(self.evd, cr_reject(self.handle, size, data))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.answered
            && let Err(error) = self.refuse(&[])
            && error.kind() != Error::of(Kind::InvalidHandle).kind()
        {
            tracing::warn!(%error, "a connection request could not be rejected");
        }
    }
}
