//! Event channel and ids of librdmacm.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use dat_handshake::rdma_cm;
use dat_os::close_on_fork;

use crate::cm::addr::{self, CAddr};
use crate::epoll;
use crate::sys::{self, rdma_port_space};

/// `rdma_event_channel`, non-blocking.
pub(crate) struct Channel(NonNull<sys::rdma_event_channel>);

// SAFETY: a channel is a descriptor; librdmacm locks what it keeps beside it.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    /// Opens the event channel; the errno on failure.
    pub(crate) fn open() -> Result<Self, i32> {
        // SAFETY: no arguments.
        let channel = unsafe { sys::rdma_create_event_channel() };
        let channel = NonNull::new(channel).ok_or_else(sys::errno)?;
        let channel = Self(channel);
        dat_os::descriptor::set_nonblocking(channel.fd());
        // A child that is forked before this keeps the channel.
        let tracked = close_on_fork::track(channel.fd());
        tracked.map_err(|error| error.raw_os_error().unwrap_or(0))?;
        Ok(channel)
    }

    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: the channel is open.
        unsafe { self.0.as_ref() }.fd
    }

    pub(crate) fn raw(&self) -> *mut sys::rdma_event_channel {
        self.0.as_ptr()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        close_on_fork::untrack(self.fd());
        // SAFETY: every id of the channel holds an Arc of it, so none is left.
        unsafe { sys::rdma_destroy_event_channel(self.raw()) };
    }
}

/// `rdma_port_space`: the type of queue pair that an id connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PortSpace {
    /// `RDMA_PS_TCP`: reliable connections.
    Connection,
    /// `RDMA_PS_UDP`: datagram queue pairs.
    Datagram,
}

/// `rdma_cm_id`. Its context is a key of the adapter's table, or 0 for a probe.
///
/// Dropping it ends the connection or the attempt, and waits until the event thread has acknowledged the id's events:
/// that thread acknowledges before it takes any lock.
pub(crate) struct CmId {
    id: NonNull<sys::rdma_cm_id>,
    _channel: Arc<Channel>,
}

// SAFETY: librdmacm locks inside; calls for one id are serialised by its owner's lock.
unsafe impl Send for CmId {}
// SAFETY: as above.
unsafe impl Sync for CmId {}

/// Connection parameters that both sides exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params<'a> {
    pub(crate) private_data: &'a [u8],
    /// RDMA Reads and atomics that this side serves.
    pub(crate) responder_resources: u8,
    /// RDMA Reads and atomics that this side issues.
    pub(crate) initiator_depth: u8,
    pub(crate) retry: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) srq: bool,
    pub(crate) qp_num: u32,
}

impl Params<'_> {
    fn raw(&self) -> sys::rdma_conn_param {
        sys::rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: u8::try_from(self.private_data.len()).unwrap_or(u8::MAX),
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: 1,
            retry_count: self.retry,
            rnr_retry_count: self.rnr_retry,
            srq: self.srq.into(),
            qp_num: self.qp_num,
        }
    }
}

/// Converts the result of a librdmacm call: 0, or -1 and `errno`.
fn check(result: i32) -> Result<(), i32> {
    if result == 0 {
        Ok(())
    } else {
        Err(sys::errno())
    }
}

impl CmId {
    pub(crate) fn new(channel: &Arc<Channel>, key: u64, space: PortSpace) -> Result<Self, i32> {
        let space = match space {
            PortSpace::Connection => rdma_port_space::RDMA_PS_TCP,
            PortSpace::Datagram => rdma_port_space::RDMA_PS_UDP,
        };
        let mut id = std::ptr::null_mut();
        let context = std::ptr::without_provenance_mut(key as usize);
        // SAFETY: the channel is open, `id` is valid for the write.
        check(unsafe { sys::rdma_create_id(channel.raw(), &raw mut id, context, space) })?;
        let id = NonNull::new(id).ok_or(libc::ENOMEM)?;
        Ok(Self {
            id,
            _channel: Arc::clone(channel),
        })
    }

    /// Makes an id that only receives the event of the removal of the device at `ip`: the kernel sends it to bound ids. They all
    /// share one port, of datagrams, so that no service point is in their way.
    pub(crate) fn watch_removal(
        channel: &Arc<Channel>,
        ip: IpAddr,
        scope: u32,
    ) -> Result<Self, i32> {
        const PORT: u16 = 65_500;
        let id = Self::new(channel, epoll::CM, PortSpace::Datagram)?;
        id.share_port()?;
        id.bind(addr::socket(ip, PORT, scope))?;
        Ok(id)
    }

    /// Adopts the id of a connection request and sets the key by which its events are found.
    ///
    /// # Safety
    /// `id` came with a CONNECT_REQUEST of `channel` that is not acknowledged yet, and is adopted only once.
    pub(crate) unsafe fn adopt(
        id: NonNull<sys::rdma_cm_id>,
        channel: &Arc<Channel>,
        key: u64,
    ) -> Self {
        // SAFETY: no other thread has the id yet.
        unsafe { (*id.as_ptr()).context = std::ptr::without_provenance_mut(key as usize) };
        Self {
            id,
            _channel: Arc::clone(channel),
        }
    }

    fn raw(&self) -> *mut sys::rdma_cm_id {
        self.id.as_ptr()
    }

    /// Binds to `address`, which also selects the device.
    pub(crate) fn bind(&self, address: SocketAddr) -> Result<(), i32> {
        let mut address = CAddr::new(address);
        // SAFETY: the id is alive, the address outlives the call.
        check(unsafe { sys::rdma_bind_addr(self.raw(), address.as_mut_ptr()) })
    }

    /// Returns name and port of the device that the id is bound to.
    pub(crate) fn device(&self) -> Option<(String, u8)> {
        // SAFETY: the id is alive; `verbs` is NULL or an open context.
        unsafe {
            let id = self.id.as_ref();
            (!id.verbs.is_null())
                .then(|| (crate::verbs::device::name_of_context(id.verbs), id.port_num))
        }
    }

    /// Returns the port that the id is bound to.
    pub(crate) fn source_port(&self) -> u16 {
        // SAFETY: the id is alive.
        u16::from_be(unsafe { sys::rdma_get_src_port(self.raw()) })
    }

    /// Returns the local and the remote address of a connection or a request.
    pub(crate) fn ends(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        // SAFETY: the id is alive; both addresses are members of it, as large as any family.
        unsafe {
            let id = self.id.as_ref();
            (
                addr::from_c(sys::rdma_get_local_addr(id)),
                addr::from_c(sys::rdma_get_peer_addr(id)),
            )
        }
    }

    fn option<V>(&self, name: i32, mut value: V) -> Result<(), i32> {
        // SAFETY: the id is alive; the value is as long as said.
        check(unsafe {
            sys::rdma_set_option(
                self.raw(),
                sys::option::LEVEL_ID,
                name,
                (&raw mut value).cast(),
                size_of::<V>(),
            )
        })
    }

    /// Lets several connecting ids use the same port.
    pub(crate) fn share_port(&self) -> Result<(), i32> {
        self.option(sys::option::ID_REUSEADDR, 1_i32)
    }

    /// Sets the IP type of service.
    pub(crate) fn set_tos(&self, tos: u8) -> Result<(), i32> {
        self.option(sys::option::ID_TOS, tos)
    }

    pub(crate) fn listen(&self) -> Result<(), i32> {
        // SAFETY: the id is alive. Backlog 0 is the kernel's greatest.
        check(unsafe { sys::rdma_listen(self.raw(), 0) })
    }

    /// Resolves `to`. Binds to `from` first if the id is not bound yet.
    pub(crate) fn resolve_addr(
        &self,
        from: Option<SocketAddr>,
        to: SocketAddr,
        timeout_ms: i32,
    ) -> Result<(), i32> {
        let mut from = from.map(CAddr::new);
        let from = from
            .as_mut()
            .map_or(std::ptr::null_mut(), CAddr::as_mut_ptr);
        let mut to = CAddr::new(to);
        // SAFETY: the id is alive, the addresses outlive the call; NULL: bound already.
        check(unsafe { sys::rdma_resolve_addr(self.raw(), from, to.as_mut_ptr(), timeout_ms) })
    }

    pub(crate) fn resolve_route(&self, timeout_ms: i32) -> Result<(), i32> {
        // SAFETY: the id is alive.
        check(unsafe { sys::rdma_resolve_route(self.raw(), timeout_ms) })
    }

    /// Fills `attr` for its state; returns the mask of the fields set.
    pub(crate) fn qp_attr(&self, attr: &mut sys::ibv_qp_attr) -> Result<i32, i32> {
        let mut mask = 0;
        // SAFETY: the id is alive, both are valid for the write.
        check(unsafe { sys::rdma_init_qp_attr(self.raw(), attr, &raw mut mask) })?;
        Ok(mask)
    }

    pub(crate) fn connect(&self, params: &Params<'_>) -> Result<(), i32> {
        let mut raw = params.raw();
        // SAFETY: the id is alive, the parameters and the private data outlive the call.
        check(unsafe { sys::rdma_connect(self.raw(), &raw mut raw) })
    }

    pub(crate) fn accept(&self, params: &Params<'_>) -> Result<(), i32> {
        let mut raw = params.raw();
        // SAFETY: as above.
        check(unsafe { sys::rdma_accept(self.raw(), &raw mut raw) })
    }

    /// Sends RTU, the active side's last message.
    pub(crate) fn establish(&self) -> Result<(), i32> {
        // SAFETY: the id is alive.
        check(unsafe { sys::rdma_establish(self.raw()) })
    }

    /// Tells the kernel that the peer is connected although its RTU has not come, so that a disconnect sends DREQ.
    pub(crate) fn message_received(&self) {
        // SAFETY: the id is alive. It fails when RTU has come, or when there is no connection any more.
        unsafe { sys::rdma_notify(self.raw(), sys::event::COMM_EST as u32) };
    }

    /// Refuses as the consumer: `data` preceded by the version word.
    pub(crate) fn reject(&self, data: &[u8]) -> Result<(), i32> {
        let mut all = Vec::with_capacity(rdma_cm::REJ_VERSION.len() + data.len());
        all.extend_from_slice(&rdma_cm::REJ_VERSION);
        all.extend_from_slice(data);
        let length = u8::try_from(all.len()).map_err(|_| libc::EINVAL)?;
        // SAFETY: the id is alive, the data outlives the call.
        check(unsafe { sys::rdma_reject(self.raw(), all.as_ptr().cast(), length) })
    }

    /// Refuses on the provider's behalf. The reject reason is not "consumer defined" where the kernel allows a choice.
    pub(crate) fn refuse(&self) {
        // SAFETY: the id is alive; no data.
        unsafe { sys::rdma_reject_ece(self.raw(), std::ptr::null(), 0) };
    }

    /// Starts a disconnect, or confirms the peer's.
    pub(crate) fn disconnect(&self) {
        // SAFETY: the id is alive. It fails when there is no connection any more: that is what was wanted.
        unsafe { sys::rdma_disconnect(self.raw()) };
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: made or taken over by us and destroyed once.
        unsafe { sys::rdma_destroy_id(self.raw()) };
    }
}
