//! What a transport provides: the one trait behind every IA.
//!
//! A provider is an implementation of [`Transport`] and one `dat_abi::export_provider!`. Core decides
//! everything a DAT consumer sees (states, handles, event order, suppression, thresholds, CNOs, reference
//! counts); a transport moves bytes and opens and closes connections. It reports back through
//! [`Upcalls`], from its own threads and with none of its locks held.
//!
//! **Who serialises what.** Core never calls `post_send` (nor `post_recv`, nor `poll_cq`) of one object
//! from two threads at a time, but calls of different kinds, or on different objects, run in parallel.
//! `connect`, `accept` and `disconnect` of one queue pair may run at the same time, since a consumer may end what another thread of
//! it begins: whichever comes to the queue pair last, core then calls `disconnect` again, and what `connect` or `accept` said of an
//! attempt that was ended does not count. `reset_qp` meets none of them; a queue pair that they have is replaced instead.
//! No method may block for long except [`Transport::park`]; connecting and disconnecting end in upcalls.
//!
//! **Who lives how long.** Core keeps `Arc`s: a queue pair is dropped only after its last post and
//! connection call returned; a transport's own `Qp` keeps what it needs (completion queues, PZ) by cloning
//! the `Arc`s it is given. Dropping an object destroys it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dat_os::sleep::Slept;

use crate::arenas::Arenas;
use crate::attr::{AdapterAttr, SrqAttr};
use crate::counters::IaCounter;
use crate::error::{Error, Kind, Result};
use crate::event::{DtoOp, DtoStatus};
use crate::flags::{MemPriv, VaType};
use crate::ia_params::IaParams;
use crate::iov::{LmrTriplet, RmrTriplet};
use crate::rmr::Scope;
use crate::upcall::Upcalls;

/// Identifies an endpoint or service point and its present connection; stale ones are ignored by core.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Token(pub u64);

/// Data that core puts into a work request and finds again in its completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct WrId(pub u64);

/// What a queue pair must be able to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCaps {
    /// Requests outstanding.
    pub max_request: u32,
    /// Receives outstanding (0 with an SRQ).
    pub max_recv: u32,
    /// Segments of a request.
    pub max_request_iov: u32,
    /// Segments of a receive.
    pub max_recv_iov: u32,
    /// RDMA Reads and atomics this side serves at a time.
    pub rdma_read_in: u32,
    /// RDMA Reads and atomics this side issues at a time.
    pub rdma_read_out: u32,
    /// Unreliable datagrams instead of a reliable connection (IB extension): sends and receives from the start, each
    /// receive with 40 bytes for the global route header in front.
    pub datagram: bool,
}

/// Keys of a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// For local segments.
    pub lmr_context: u32,
    /// For the peer; 0 unless a remote right was asked for.
    pub rmr_context: u32,
}

/// One request of a send queue.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a, T: Transport> {
    /// Comes back in the completion.
    pub id: WrId,
    /// What to do.
    pub op: Op<'a, T>,
    /// Local segments; lengths are already checked against the limits, not against the regions.
    pub iov: &'a [LmrTriplet],
    /// Sum of the segments' lengths.
    pub length: u64,
    /// Ask for a completion on success (a failure always completes).
    pub signaled: bool,
    /// The peer's completion is solicited.
    pub solicited: bool,
    /// Wait for earlier RDMA Reads.
    pub fence: bool,
}

/// The operation of a [`Request`].
#[derive(Debug)]
pub enum Op<'a, T: Transport> {
    /// Message to a receive of the peer.
    Send,
    /// The same, and the peer's key is invalidated.
    SendWithInvalidate(u32),
    /// The same, with immediate data.
    SendWithImmediate(u32),
    /// Local segments to remote memory.
    RdmaWrite(RmrTriplet),
    /// The same, and immediate data to a receive of the peer.
    RdmaWriteWithImmediate(RmrTriplet, u32),
    /// Remote memory to local segments.
    RdmaRead(RmrTriplet),
    /// 8 bytes at the remote address: compare, swap; the old value goes to the local segment.
    CompareSwap {
        /// Where.
        remote: RmrTriplet,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// 8 bytes at the remote address: add; the old value goes to the local segment.
    FetchAdd {
        /// Where.
        remote: RmrTriplet,
        /// Summand.
        add: u64,
    },
    /// Datagram to an address handle.
    SendUd {
        /// Whom.
        to: &'a T::AddressHandle,
        /// Queue pair number there.
        qpn: u32,
    },
}

impl<T: Transport> Clone for Op<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Transport> Copy for Op<'_, T> {}

/// A bind of an RMR (dat_rmr_bind), posted on a queue pair like a request. `length` 0 unbinds.
#[derive(Debug)]
pub struct Bind<'a, T: Transport> {
    /// Comes back in the completion.
    pub id: WrId,
    /// The window.
    pub rmr: &'a T::Rmr,
    /// The region it opens; `None` unbinds.
    pub lmr: Option<&'a T::Lmr>,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Rights for the peer.
    pub rights: MemPriv,
    /// How remote addresses count.
    pub va_type: VaType,
    /// Ask for a completion on success.
    pub signaled: bool,
    /// Wait for earlier RDMA Reads.
    pub fence: bool,
}

/// A finished work request as a transport reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// As posted.
    pub id: WrId,
    /// How it ended.
    pub status: DtoStatus,
    /// For a receive: what came in (`Receive` and its variants). For a request core knows better.
    pub op: DtoOp,
    /// Bytes received or read; ignored for other requests.
    pub length: u32,
    /// Immediate data, if `op` says so.
    pub immediate: u32,
    /// Key invalidated by the message, else 0.
    pub invalidated: u32,
    /// For a receive from an SRQ: the token given to `create_qp`; else ignored.
    pub ep: Token,
}

/// Arguments of [`Transport::connect`].
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// Names this attempt in upcalls.
    pub token: Token,
    /// The peer's IA address.
    pub remote: IpAddr,
    /// Qualifier of the peer's service point.
    pub conn_qual: u64,
    /// Bytes for the peer.
    pub private_data: &'a [u8],
    /// Core ends the attempt itself after this time; `None`: never. For the transport's own timers.
    pub timeout: Option<Duration>,
}

/// How [`Transport::park`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parked {
    /// Something may have happened: look again.
    Woken,
    /// The time is over.
    TimedOut,
    /// A signal came in (DAT_INTERRUPTED_CALL).
    Interrupted,
    /// The thread is cancelled (`pthread_cancel`): the wait ends and takes nothing.
    Cancelled,
}

impl From<Slept> for Parked {
    fn from(slept: Slept) -> Self {
        match slept {
            Slept::Woken => Self::Woken,
            Slept::TimedOut => Self::TimedOut,
            Slept::Interrupted => Self::Interrupted,
            Slept::Cancelled => Self::Cancelled,
        }
    }
}

/// The seam between core and a transport. See the module's text for the rules.
pub trait Transport: Sized + Send + Sync + std::fmt::Debug + 'static {
    /// An open adapter.
    type Adapter: Send + Sync;
    /// Protection zone.
    type Pz: Send + Sync;
    /// Registered memory.
    type Lmr: Send + Sync + std::fmt::Debug;
    /// Memory window.
    type Rmr: Send + Sync + std::fmt::Debug;
    /// Shared receive queue.
    type Srq: Send + Sync;
    /// Completion queue.
    type Cq: Send + Sync;
    /// Queue pair.
    type Qp: Send + Sync;
    /// A service point that listens; dropping it stops listening.
    type Listener: Send + Sync;
    /// A connection request not yet answered; dropping it refuses it.
    type ConnRequest: Send + Sync;
    /// Where [`Transport::park`] sleeps; one an EVD or CNO.
    type Parker: Send + Sync + Default;
    /// Address of an unreliable datagram peer (IB extension); `()` where there is none.
    type AddressHandle: Send + Sync + std::fmt::Debug;
    /// A completion as the transport's queue holds it, decoded by [`Transport::decode`].
    type RawCompletion: Copy + Default + Send + Sync;

    /// Short name for `DAT_IB_PROVIDER_NAME`-like attributes and messages.
    const NAME: &'static str;

    /// Where this transport's objects live: `static ARENAS: Arenas<Self> = Arenas::new(); &ARENAS`.
    fn arenas() -> &'static Arenas<Self>;

    /// Opens the adapter that `params` name. The error text is logged; the code goes to the consumer.
    ///
    /// # Errors
    /// `DAT_PROVIDER_NOT_FOUND`, `DAT_INVALID_ADDRESS`, `DAT_INSUFFICIENT_RESOURCES` ... with a message
    /// that says what to do, sent to `tracing::error!` before returning.
    fn open(ia_name: &str, params: &IaParams, upcalls: Upcalls<Self>) -> Result<Self::Adapter>;

    /// The IA closes and its objects are gone: what must still be said to peers is said now, and threads of the adapter's own end.
    /// Core calls it once, and waits in dat_ia_close. Dropping the adapter is no place for it: a thread that a wait is just
    /// returning to may hold it a little longer, and would have to do the waiting.
    fn close(_adapter: &Self::Adapter) {}

    /// Limits and identity of the adapter, true of the device.
    fn attributes(adapter: &Self::Adapter) -> AdapterAttr;

    /// dat_pz_create.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    fn create_pz(adapter: &Arc<Self::Adapter>) -> Result<Self::Pz>;

    /// Registers `[address, address + length)`; nothing is remote unless `rights` say so. Dropping the
    /// `Lmr` deregisters: after that no remote access touches the memory.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`, `DAT_INVALID_STATE`, `DAT_PRIVILEGES_VIOLATION`.
    fn register(
        pz: &Arc<Self::Pz>,
        address: usize,
        length: u64,
        rights: MemPriv,
        va_type: VaType,
    ) -> Result<(Self::Lmr, Keys)>;

    /// dat_rmr_create and dat_rmr_create_for_ep: an unbound window. Dropping it unbinds. A transport without windows
    /// that belong to an endpoint gives one that belongs to the PZ.
    ///
    /// # Errors
    /// `DAT_NOT_IMPLEMENTED` where the transport has no windows.
    fn create_rmr(_pz: &Arc<Self::Pz>, _scope: Scope) -> Result<Self::Rmr> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// Posts a bind; returns the new rmr_context, usable by the peer once the bind completed.
    ///
    /// # Errors
    /// `DAT_NOT_IMPLEMENTED`, `DAT_INSUFFICIENT_RESOURCES`.
    fn post_bind(_qp: &Self::Qp, _bind: &Bind<'_, Self>) -> Result<u32> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// A completion queue for at least `depth` completions (round up, do not fail for small numbers).
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    fn create_cq(adapter: &Arc<Self::Adapter>, depth: u32, token: Token) -> Result<Self::Cq>;

    /// Room for at least `depth`; keeps what is queued.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    fn resize_cq(cq: &Self::Cq, depth: u32) -> Result<()>;

    /// Takes up to `into.len()` completions in order; returns how many. Never blocks or allocates; a
    /// transport without a thread of its own makes progress here. As in `post_send` and `post_recv`, no call of libc in it is
    /// a cancellation point ([`dat_os::cancel`]): the caller holds locks, and has not disabled cancellation, which costs more than the rest.
    fn poll_cq(cq: &Self::Cq, into: &mut [Self::RawCompletion]) -> usize;

    /// The calling thread's dat_evd_dequeue found nothing and holds no lock any more. A transport that needs the processor for other threads or
    /// processes may give it to them here, for a moment.
    #[inline(always)]
    fn after_empty_poll() {}

    /// The id of a completion, and whether it succeeded: all that is asked of most.
    fn outcome(raw: &Self::RawCompletion) -> (WrId, bool);

    /// Of a receive that succeeded: its length, if it brought nothing but data.
    fn data_only_receive(raw: &Self::RawCompletion) -> Option<u32>;

    /// Meaning of a completion of `cq`.
    fn decode(cq: &Self::Cq, raw: &Self::RawCompletion) -> Completion;

    /// From now on (or no longer) each completion of `cq` that arrives is announced once by
    /// [`Upcalls::cq_ready`](crate::upcall::Upcalls::cq_ready), until `watch` is called again: one call,
    /// one announcement. For EVDs behind a CNO. A completion that came before the call may or may not be announced.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    fn watch_cq(cq: &Self::Cq, on: bool) -> Result<()>;

    /// From now on (or no longer) only solicited receives, requests and failures need to end a `park` on `cq`
    /// or be announced: an endpoint on it has `DAT_COMPLETION_SOLICITED_WAIT_FLAG`. A hint: announcing more is
    /// allowed.
    fn solicited_only(_cq: &Self::Cq, _on: bool) {}

    /// Whether the sender of this receive asked for a notification; `None` where the transport cannot tell,
    /// and then everything that it announces counts as solicited.
    fn solicited(_cq: &Self::Cq, _raw: &Self::RawCompletion) -> Option<bool> {
        None
    }

    /// Sleeps until a completion may be in `cq`, [`Transport::unpark`] was called on `parker` (also
    /// before: it leaves a permit), or `timeout` is over. May return early. Arms `cq` itself and looks
    /// again after arming: `ready` tells whether a completion is there already (core polls). Sleeps in a call of
    /// [`dat_os::sleep`] or a [`dat_os::permit::Permit`], so that `pthread_cancel` ends it; in others a request waits for their end.
    fn park(
        adapter: &Self::Adapter,
        cq: Option<&Self::Cq>,
        parker: &Self::Parker,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Parked;

    /// Ends the present or the next [`Transport::park`] on `parker`.
    fn unpark(parker: &Self::Parker);

    /// dat_srq_create.
    ///
    /// # Errors
    /// `DAT_NOT_IMPLEMENTED`, `DAT_INSUFFICIENT_RESOURCES`.
    fn create_srq(_pz: &Arc<Self::Pz>, _attr: &SrqAttr, _token: Token) -> Result<Self::Srq> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_srq_resize.
    ///
    /// # Errors
    /// `DAT_NOT_IMPLEMENTED`, `DAT_INSUFFICIENT_RESOURCES`.
    fn resize_srq(_srq: &Self::Srq, _max_recv: u32) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_srq_set_lw: announce once when fewer than `low` receives are left; 0 disarms.
    ///
    /// # Errors
    /// `DAT_NOT_IMPLEMENTED`.
    fn arm_srq_limit(_srq: &Self::Srq, _low: u32) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// Posts a receive to a shared queue.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    fn post_srq_recv(_srq: &Self::Srq, _id: WrId, _iov: &[LmrTriplet]) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// A queue pair, ready for `post_recv`. `token` names the endpoint in SRQ completions.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`, `DAT_MODEL_NOT_SUPPORTED`.
    fn create_qp(
        pz: &Arc<Self::Pz>,
        caps: &QpCaps,
        recv_cq: &Arc<Self::Cq>,
        request_cq: &Arc<Self::Cq>,
        srq: Option<&Arc<Self::Srq>>,
        token: Token,
    ) -> Result<Self::Qp>;

    /// Back to unconnected, as new; everything outstanding was flushed before, or never completes.
    ///
    /// # Errors
    /// `DAT_INTERNAL_ERROR`: core then replaces the queue pair.
    fn reset_qp(qp: &Self::Qp) -> Result<()>;

    /// Posts a request. `DAT_INSUFFICIENT_RESOURCES` when the queue is full.
    ///
    /// # Errors
    /// As the transport finds; nothing was posted then.
    fn post_send(qp: &Self::Qp, request: &Request<'_, Self>) -> Result<()>;

    /// Posts a receive.
    ///
    /// # Errors
    /// As the transport finds; nothing was posted then.
    fn post_recv(qp: &Self::Qp, id: WrId, iov: &[LmrTriplet]) -> Result<()>;

    /// Listens on `conn_qual`, or on one it chooses if `None`; returns the qualifier. `backlog` is a hint.
    ///
    /// # Errors
    /// `DAT_CONN_QUAL_IN_USE`, `DAT_CONN_QUAL_UNAVAILABLE`, `DAT_INVALID_PARAMETER`.
    fn listen(
        adapter: &Arc<Self::Adapter>,
        conn_qual: Option<u64>,
        token: Token,
    ) -> Result<(Self::Listener, u64)>;

    /// Starts to connect; ends in an upcall with `connect.token`. On a datagram queue pair it starts to look for a
    /// peer, any number of them at a time, and ends in [`Upcalls::datagram`](crate::upcall::Upcalls::datagram).
    ///
    /// # Errors
    /// Only what is known at once; then there is no upcall.
    fn connect(
        adapter: &Arc<Self::Adapter>,
        qp: &Arc<Self::Qp>,
        connect: &Connect<'_>,
    ) -> Result<()>;

    /// Accepts a request on `qp`; ends in an upcall with `token`. A datagram request on a datagram queue pair: the
    /// peer learns the queue pair, and we the peer, again by [`Upcalls::datagram`](crate::upcall::Upcalls::datagram).
    ///
    /// # Errors
    /// Only what is known at once; the request is refused then.
    fn accept(
        request: Self::ConnRequest,
        qp: &Arc<Self::Qp>,
        token: Token,
        private_data: &[u8],
    ) -> Result<()>;

    /// dat_cr_reject: the peer is told that the consumer refused, with `private_data`.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` if the data is too long.
    fn reject(request: Self::ConnRequest, private_data: &[u8]) -> Result<()>;

    /// Ends the connection of `qp` or the attempt to make one: outstanding work completes as flushed, the
    /// peer is told. Returns at once; ends in an upcall `Disconnected` if a connection was established
    /// (core does not wait for it). No effect if there is none. A datagram queue pair is flushed in any case.
    fn disconnect(qp: &Self::Qp);

    /// The port that the connection of `qp` has on this side (dat_ep_query's `local_port_qual`); 0 where there is
    /// no connection, or the transport has no ports.
    fn local_port(_qp: &Self::Qp) -> u16 {
        0
    }

    /// What the device itself counts (the `Lnk…` and `Diag…` ones), as far as it does: dat_ib_query_counters.
    fn device_counters(_adapter: &Self::Adapter) -> Vec<(IaCounter, u64)> {
        Vec::new()
    }
}
