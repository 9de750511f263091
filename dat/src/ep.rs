//! Endpoints.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dat_abi::sockaddr;
use dat_abi::types::{DAT_HANDLE_NULL, DAT_TIMEOUT_INFINITE, DatHandle};
use dat_abi::v2_0::types::DatEpAttr;
pub use dat_core::ep::EpState;
use dat_core::error::{Error as Code, Kind};
use dat_core::iov::LmrTriplet;

use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::ia::Ia;
use crate::pz::Pz;
use crate::region::{Remote, Slice};
use crate::request::ConnRequest;
use crate::sys::{Handle, call, free};
use crate::{Close, CompletionFlags};

/// An endpoint: one end of a connection. Clones are the same endpoint; dropping the last one disconnects and frees it.
#[derive(Clone, Debug)]
pub struct Ep {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    handle: Handle,
    _evds: [Option<Evd>; 3],
    _pz: Pz,
}

impl Drop for Inner {
    fn drop(&mut self) {
        free!(self.handle, ep_free());
    }
}

/// Parameters of a new endpoint (dat_ep_create).
#[derive(Clone, Debug)]
#[must_use]
pub struct EpBuilder<'a> {
    ia: &'a Ia,
    pz: &'a Pz,
    evds: [Option<&'a Evd>; 3],
    attr: DatEpAttr,
}

impl<'a> EpBuilder<'a> {
    pub(crate) fn new(ia: &'a Ia, pz: &'a Pz) -> Self {
        let attr = DatEpAttr {
            service_type: 0,
            max_message_size: 0,
            max_rdma_size: 0,
            qos: 0,
            recv_completion_flags: 0,
            request_completion_flags: 0,
            max_recv_dtos: 16,
            max_request_dtos: 16,
            max_recv_iov: 4,
            max_request_iov: 4,
            max_rdma_read_in: 4,
            max_rdma_read_out: 4,
            srq_soft_hw: -1,
            max_rdma_read_iov: 4,
            max_rdma_write_iov: 4,
            ep_transport_specific_count: 0,
            ep_transport_specific: std::ptr::null_mut(),
            ep_provider_specific_count: 0,
            ep_provider_specific: std::ptr::null_mut(),
        };
        Self {
            ia,
            pz,
            evds: [None; 3],
            attr,
        }
    }

    /// Sets the dispatcher for completions of receives.
    pub fn recv_evd(mut self, evd: &'a Evd) -> Self {
        self.evds[0] = Some(evd);
        self
    }

    /// Sets the dispatcher for completions of requests.
    pub fn request_evd(mut self, evd: &'a Evd) -> Self {
        self.evds[1] = Some(evd);
        self
    }

    /// Sets the dispatcher for connection events.
    pub fn connect_evd(mut self, evd: &'a Evd) -> Self {
        self.evds[2] = Some(evd);
        self
    }

    /// Sets the maximum of outstanding receives; the default is 16.
    pub fn max_recv(mut self, count: u32) -> Self {
        self.attr.max_recv_dtos = i32::try_from(count).unwrap_or(i32::MAX);
        self
    }

    /// Sets the maximum of outstanding requests; the default is 16.
    pub fn max_requests(mut self, count: u32) -> Self {
        self.attr.max_request_dtos = i32::try_from(count).unwrap_or(i32::MAX);
        self
    }

    /// Sets the maximum of segments of a post; the default is 4.
    pub fn max_segments(mut self, count: u32) -> Self {
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        self.attr.max_recv_iov = count;
        self.attr.max_request_iov = count;
        self.attr.max_rdma_read_iov = count;
        self.attr.max_rdma_write_iov = count;
        self
    }

    /// Sets the maximum of concurrent RDMA Reads, of the peer's and of ours; the default is 4.
    pub fn max_reads(mut self, count: u32) -> Self {
        self.attr.max_rdma_read_in = i32::try_from(count).unwrap_or(i32::MAX);
        self.attr.max_rdma_read_out = self.attr.max_rdma_read_in;
        self
    }

    /// Creates the endpoint.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn create(mut self) -> Result<Ep> {
        let attributes = self.ia.attributes()?;
        let size = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        self.attr.max_message_size = size(attributes.max_message_size);
        self.attr.max_rdma_size = size(attributes.max_rdma_size);
        let raw = |evd: Option<&Evd>| evd.map_or(DAT_HANDLE_NULL, |e| e.handle().0);
        let [recv, request, connect] = self.evds.map(raw);
        let mut handle: DatHandle = DAT_HANDLE_NULL;
        call!(
            self.ia.handle(),
            ep_create(
                self.pz.handle().0,
                recv,
                request,
                connect,
                &raw const self.attr,
                &raw mut handle
            )
        )?;
        let evds = self.evds.map(Option::<&Evd>::cloned);
        Ok(Ep {
            inner: Arc::new(Inner {
                handle: Handle(handle),
                _evds: evds,
                _pz: self.pz.clone(),
            }),
        })
    }
}

/// Parameters of a connection attempt (dat_ep_connect, dat_ep_common_connect).
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Connect<'a> {
    ep: &'a Ep,
    remote: SocketAddr,
    /// Connection qualifier; `None` to use the port of `remote` (dat_ep_common_connect).
    conn_qual: Option<u64>,
    private_data: &'a [u8],
    timeout: Option<Duration>,
}

impl<'a> Connect<'a> {
    /// Sets the private data that the peer's request event carries.
    pub fn private_data(mut self, bytes: &'a [u8]) -> Self {
        self.private_data = bytes;
        self
    }

    /// Sets the time after which the attempt fails; by default it does not time out.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Starts the attempt. Its result is an event of the connection dispatcher.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn start(self) -> Result<()> {
        let mut address = sockaddr::c_address(Some(self.remote.ip()), 0, self.remote.port());
        let to = address.as_mut_ptr().cast();
        let timeout = self.timeout.map_or(DAT_TIMEOUT_INFINITE, |t| {
            u32::try_from(t.as_micros()).unwrap_or(DAT_TIMEOUT_INFINITE)
        });
        let size = i32::try_from(self.private_data.len()).unwrap_or(i32::MAX);
        let data = self.private_data.as_ptr().cast();
        match self.conn_qual {
            Some(qual) => call!(
                self.ep.handle(),
                ep_connect(to, qual, timeout, size, data, 0, 0)
            ),
            None => call!(self.ep.handle(), ep_common_connect(to, timeout, size, data)),
        }
    }
}

/// Segments of a post in the form of the function table.
struct Segments<const N: usize = 16> {
    triplets: [LmrTriplet; N],
    count: usize,
}

impl Segments {
    fn new(slices: &[Slice<'_>], call: &'static str) -> Result<Self> {
        let mut triplets = [LmrTriplet::default(); 16];
        if slices.len() > triplets.len() {
            return Err(Error::Call {
                call,
                code: Code::of(Kind::InvalidParameter),
            });
        }
        for (to, from) in triplets.iter_mut().zip(slices) {
            *to = from.triplet;
        }
        Ok(Self {
            triplets,
            count: slices.len(),
        })
    }
}

impl Ep {
    pub(crate) fn handle(&self) -> Handle {
        self.inner.handle
    }

    /// Returns the number that identifies the endpoint in events.
    #[must_use]
    pub fn id(&self) -> usize {
        self.inner.handle.0
    }

    /// Returns the state (dat_ep_get_status).
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn state(&self) -> Result<EpState> {
        let mut state = 0;
        call!(
            self.handle(),
            ep_get_status(&raw mut state, std::ptr::null_mut(), std::ptr::null_mut())
        )?;
        EpState::from_number(state).ok_or(Error::Call {
            call: "dat_ep_get_status",
            code: Code::of(Kind::InternalError),
        })
    }

    /// Returns the parameters of a connection to `conn_qual` at `remote`; [`Connect::start`] starts it.
    pub fn connect(&self, remote: IpAddr, conn_qual: u64) -> Connect<'_> {
        Connect {
            ep: self,
            remote: SocketAddr::new(remote, 0),
            conn_qual: Some(conn_qual),
            private_data: &[],
            timeout: None,
        }
    }

    /// Returns the parameters of a connection to a common service point (dat_ep_common_connect), which the peer made by
    /// [`Ia::listen_common`].
    pub fn connect_common(&self, remote: SocketAddr) -> Connect<'_> {
        Connect {
            ep: self,
            remote,
            conn_qual: None,
            private_data: &[],
            timeout: None,
        }
    }

    /// Ends the connection (dat_ep_disconnect).
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn disconnect(&self, how: Close) -> Result<()> {
        call!(
            self.handle(),
            ep_disconnect(u32::from(how == Close::Graceful))
        )
    }

    /// Resets the endpoint to unconnected (dat_ep_reset), for another connection.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn reset(&self) -> Result<()> {
        call!(self.handle(), ep_reset())
    }

    /// Posts a message (dat_ep_post_send); at most 16 slices.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn post_send(&self, slices: &[Slice<'_>], cookie: u64) -> Result<()> {
        let mut s = Segments::new(slices, "dat_ep_post_send")?;
        call!(
            self.handle(),
            ep_post_send(s.count as i32, s.triplets.as_mut_ptr(), cookie, 0)
        )
    }

    /// Posts a message that invalidates a window of the peer, given by its key (dat_ep_post_send_with_invalidate); at most 16 slices.
    /// The peer must have created the window by [`Pz::create_rmr_for_ep`] and bound it on the connected endpoint.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn post_send_with_invalidate(
        &self,
        slices: &[Slice<'_>],
        window: Remote,
        cookie: u64,
    ) -> Result<()> {
        let mut s = Segments::new(slices, "dat_ep_post_send_with_invalidate")?;
        let iov = s.triplets.as_mut_ptr();
        call!(
            self.handle(),
            ep_post_send_with_invalidate(s.count as i32, iov, cookie, 0, 1, window.key)
        )
    }

    /// Posts a receive (dat_ep_post_recv); at most 16 slices.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn post_recv(&self, slices: &[Slice<'_>], cookie: u64) -> Result<()> {
        let mut s = Segments::new(slices, "dat_ep_post_recv")?;
        call!(
            self.handle(),
            ep_post_recv(s.count as i32, s.triplets.as_mut_ptr(), cookie, 0)
        )
    }

    /// Writes to the peer's memory (dat_ep_post_rdma_write); at most 16 slices.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn post_rdma_write(
        &self,
        slices: &[Slice<'_>],
        remote: Remote,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let mut s = Segments::new(slices, "dat_ep_post_rdma_write")?;
        let to = remote.triplet();
        let iov = s.triplets.as_mut_ptr();
        call!(
            self.handle(),
            ep_post_rdma_write(s.count as i32, iov, cookie, &raw const to, flags.bits())
        )
    }

    /// Reads the peer's memory (dat_ep_post_rdma_read); at most 16 slices.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn post_rdma_read(
        &self,
        slices: &[Slice<'_>],
        remote: Remote,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let mut s = Segments::new(slices, "dat_ep_post_rdma_read")?;
        let from = remote.triplet();
        let iov = s.triplets.as_mut_ptr();
        call!(
            self.handle(),
            ep_post_rdma_read(s.count as i32, iov, cookie, &raw const from, flags.bits())
        )
    }
}

impl Ia {
    /// Returns the parameters of a new endpoint; [`EpBuilder::create`] creates it.
    pub fn endpoint<'a>(&'a self, pz: &'a Pz) -> EpBuilder<'a> {
        EpBuilder::new(self, pz)
    }
}

impl ConnRequest {
    /// Accepts the request on `ep` (dat_cr_accept). The result is an event of its connection dispatcher.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call); the request is rejected then.
    pub fn accept(mut self, ep: &Ep, private_data: &[u8]) -> Result<()> {
        let size = i32::try_from(private_data.len()).unwrap_or(i32::MAX);
        call!(
            self.handle,
            cr_accept(ep.handle().0, size, private_data.as_ptr().cast())
        )?;
        self.answered = true;
        Ok(())
    }
}
