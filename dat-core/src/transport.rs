//! Interface of a transport: the one trait behind every IA.
//!
//! A provider is an implementation of [`Transport`] and one `dat_abi::export_provider!`. Core decides everything that
//! a DAT consumer sees (states, handles, event order, suppression, thresholds, CNOs, use counts); a transport moves
//! bytes and opens and closes connections. It reports through [`Upcalls`], without a lock that a method of the trait
//! takes, and never from inside a method except [`Transport::park`], which core calls without locks.
//!
//! **Concurrency.** Core never calls `post_send` (nor `post_recv`, nor `poll_cq`) of one object from two threads at a
//! time, but calls of different kinds, or on different objects, run in parallel. `connect`, `accept` and `disconnect`
//! of one queue pair may run at the same time, since a consumer may end an attempt that another of its threads
//! begins. Core then calls `disconnect` again after the last of them has returned, and ignores the result of
//! `connect` or `accept`. `reset_qp` never runs beside them; core replaces a queue pair that they use. No method may
//! block for long except [`Transport::park`]; connecting and disconnecting end in upcalls. (The user engine's `listen`
//! waits up to 2 s while its address has no port holder.)
//!
//! **Lifetimes.** Core keeps `Arc`s: a queue pair is dropped only after its last post and connection call returned. A
//! transport's own `Qp` keeps what it needs (completion queues, PZ) by cloning the `Arc`s that it gets. Dropping an
//! object destroys it.

mod work;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dat_os::sleep::Slept;

use crate::arenas::Arenas;
use crate::attributes::{AdapterAttr, SrqAttr};
use crate::counters::IaCounter;
use crate::error::{Error, Kind, Result};
use crate::flags::{MemPriv, VaType};
use crate::ia_params::IaParams;
use crate::iov::LmrTriplet;
use crate::rmr::Scope;
use crate::upcall::Upcalls;

pub use work::{Bind, Completion, Op, Request, WrId};

/// Identifies an object of core: an endpoint and its present connection, a service point, the EVD of a completion queue, an
/// SRQ or an address handle. Core ignores stale ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Token(pub u64);

/// Capacity of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCaps {
    /// Maximum number of outstanding requests.
    pub max_request: u32,
    /// Maximum number of outstanding receives (0 with an SRQ).
    pub max_recv: u32,
    /// Maximum number of segments of a request.
    pub max_request_iov: u32,
    /// Maximum number of segments of a receive.
    pub max_recv_iov: u32,
    /// Maximum number of RDMA Reads and atomics that this side serves at a time.
    pub rdma_read_in: u32,
    /// Maximum number of RDMA Reads and atomics that this side issues at a time.
    pub rdma_read_out: u32,
    /// Unreliable datagrams instead of a reliable connection (IB extension): the queue pair sends and receives from
    /// the start, and each receive has 40 bytes for the global route header in front.
    pub datagram: bool,
}

/// Keys of a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Key for local segments.
    pub lmr_context: u32,
    /// Key for the peer; 0 unless a remote right was requested.
    pub rmr_context: u32,
}

/// Arguments of [`Transport::connect`].
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// Token that names this attempt in upcalls.
    pub token: Token,
    /// IA address of the peer.
    pub remote: IpAddr,
    /// Qualifier of the peer's service point.
    pub conn_qual: u64,
    /// Private data for the peer.
    pub private_data: &'a [u8],
    /// Time after which core ends the attempt itself; `None`: never. For the transport's own timers.
    pub timeout: Option<Duration>,
}

/// Result of [`Transport::park`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parked {
    /// A completion or an unpark may have come; the caller checks.
    Woken,
    /// The timeout expired.
    TimedOut,
    /// A signal arrived (DAT_INTERRUPTED_CALL).
    Interrupted,
    /// The thread is cancelled (`pthread_cancel`): the wait ends and takes no event.
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

/// Interface between core and a transport. The module's text has the rules.
pub trait Transport: Sized + Send + Sync + std::fmt::Debug + 'static {
    /// Open adapter.
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
    /// Listening service point; dropping it stops listening.
    type Listener: Send + Sync;
    /// Connection request that is not answered yet; dropping it refuses it.
    type ConnRequest: Send + Sync;
    /// Object that [`Transport::park`] sleeps on; one per EVD or CNO.
    type Parker: Send + Sync + Default;
    /// Address of an unreliable datagram peer (IB extension); `()` if the transport has none.
    type AddressHandle: Send + Sync + std::fmt::Debug;
    /// Completion in the transport's own form, decoded by [`Transport::decode`].
    type RawCompletion: Copy + Default + Send + Sync;

    /// Short name for messages and for attributes like `DAT_IB_PROVIDER_NAME`.
    const NAME: &'static str;

    /// True if a bind that completes with a failure may have taken effect, as where a device executes binds before earlier requests are
    /// complete, and flushes all. Core keeps the LMR of such a bind in use until it has replaced the window: when the LMR is freed, or
    /// before the next bind.
    const FAILED_BINDS_ARE_IN_DOUBT: bool = false;

    /// Returns the arenas of this transport's objects: `static ARENAS: Arenas<Self> = Arenas::new(); &ARENAS`.
    fn arenas() -> &'static Arenas<Self>;

    /// Opens the adapter that `params` name.
    ///
    /// # Errors
    /// `DAT_PROVIDER_NOT_FOUND`, `DAT_INVALID_ADDRESS`, `DAT_INSUFFICIENT_RESOURCES` and so on. Before it returns,
    /// the transport logs by `tracing::error!` what the user can do; the code goes to the consumer.
    fn open(ia_name: &str, params: &IaParams, upcalls: Upcalls<Self>) -> Result<Self::Adapter>;

    /// Closes the adapter of an IA whose objects are gone: sends the last messages to peers and ends the adapter's
    /// threads, within a second. Core calls it once and waits in dat_ia_close. Dropping the adapter must not do this: a thread that
    /// returns from a wait may drop it later, and would have to do the waiting.
    fn close(_adapter: &Self::Adapter) {}

    /// Returns limits and identity of the adapter, as the device has them.
    fn attributes(adapter: &Self::Adapter) -> AdapterAttr;

    /// Creates a protection zone (dat_pz_create).
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    fn create_pz(adapter: &Arc<Self::Adapter>) -> Result<Self::Pz>;

    /// Registers `[address, address + length)`, with remote access only as `rights` allow. Dropping the `Lmr`
    /// deregisters it: after that no remote access touches the memory.
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

    /// Creates an unbound window (dat_rmr_create, dat_rmr_create_for_ep). Dropping it unbinds. A transport without
    /// windows that belong to an endpoint returns one that belongs to the PZ.
    ///
    /// # Errors
    /// `DAT_NOT_IMPLEMENTED` if the transport has no windows.
    fn create_rmr(_pz: &Arc<Self::Pz>, _scope: Scope) -> Result<Self::Rmr> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// Posts a bind; returns the new rmr_context, which the peer can use once the bind is complete.
    ///
    /// # Errors
    /// `DAT_NOT_IMPLEMENTED`, `DAT_INSUFFICIENT_RESOURCES`.
    fn post_bind(_qp: &Self::Qp, _bind: &Bind<'_, Self>) -> Result<u32> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// Creates a completion queue for at least `depth` completions (rounds up, and does not fail for small numbers).
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    fn create_cq(adapter: &Arc<Self::Adapter>, depth: u32, token: Token) -> Result<Self::Cq>;

    /// Makes room for at least `depth` completions and keeps those that are queued.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    fn resize_cq(cq: &Self::Cq, depth: u32) -> Result<()>;

    /// Takes up to `into.len()` completions in order; returns how many. With fewer than that, the queue was empty afterwards. Does not
    /// block or allocate for a completion. A transport without its own thread makes progress here: the user engine also handles connection
    /// messages, which allocate, and as port holder waits up to 1 ms for each datagram to a member whose connection is full. As in
    /// `post_send` and `post_recv`, no call of libc in it may be a cancellation point ([`dat_os::cancel`]): the caller holds locks, and has
    /// not disabled cancellation, because that costs more than the rest.
    fn poll_cq(cq: &Self::Cq, into: &mut [Self::RawCompletion]) -> usize;

    /// Takes completions like [`Transport::poll_cq`], but makes no progress: only what is in `cq` already. For a transport
    /// whose `poll_cq` looks at more than its completion queue when that is empty.
    #[inline(always)]
    fn poll_cq_ready(cq: &Self::Cq, into: &mut [Self::RawCompletion]) -> usize {
        Self::poll_cq(cq, into)
    }

    /// Runs after a dat_evd_dequeue that found nothing, with no lock held. A transport that needs the processor for
    /// other threads or processes may yield it to them here, for a moment.
    #[inline(always)]
    fn after_empty_poll() {}

    /// Returns the id of a completion, and whether it succeeded, which is enough for most completions.
    fn outcome(raw: &Self::RawCompletion) -> (WrId, bool);

    /// Returns the length of a successful receive that brought data only.
    fn data_only_receive(raw: &Self::RawCompletion) -> Option<u32>;

    /// Decodes a completion of `cq`.
    fn decode(cq: &Self::Cq, raw: &Self::RawCompletion) -> Completion;

    /// Starts or ends the watch of `cq`. Each call with `on` requests one report by
    /// [`Upcalls::cq_ready`](crate::upcall::Upcalls::cq_ready) when a completion arrives. For EVDs behind a CNO, and
    /// for graceful disconnects. A completion that came before the call may or may not be reported.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    fn watch_cq(cq: &Self::Cq, on: bool) -> Result<()>;

    /// Hint that from now on (or no longer) only solicited receives, requests and failures need to end a `park` on `cq` or to
    /// be reported, because an endpoint on it has `DAT_COMPLETION_SOLICITED_WAIT_FLAG`. A transport may report more.
    fn solicited_only(_cq: &Self::Cq, _on: bool) {}

    /// Returns true if the sender of this receive requested a notification. Returns `None` if the transport does not
    /// have that information; then everything that it reports counts as solicited.
    fn solicited(_cq: &Self::Cq, _raw: &Self::RawCompletion) -> Option<bool> {
        None
    }

    /// Sleeps until a completion may be in `cq`, [`Transport::unpark`] was called on `parker` (also before: it leaves
    /// a permit), or `timeout` expired. May return early. Arms `cq` itself and calls `ready` after arming, which
    /// polls and returns true if the caller must not sleep. Sleeps in a call of [`dat_os::sleep`] or a
    /// [`dat_os::permit::Permit`], so that `pthread_cancel` ends it; in any other sleep a cancellation request stays
    /// pending until the sleep ends.
    fn park(
        adapter: &Self::Adapter,
        cq: Option<&Self::Cq>,
        parker: &Self::Parker,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Parked;

    /// Ends the present or the next [`Transport::park`] on `parker`.
    fn unpark(parker: &Self::Parker);

    /// Creates a shared receive queue (dat_srq_create).
    ///
    /// # Errors
    /// `DAT_NOT_IMPLEMENTED`, `DAT_INSUFFICIENT_RESOURCES`.
    fn create_srq(_pz: &Arc<Self::Pz>, _attr: &SrqAttr, _token: Token) -> Result<Self::Srq> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// Resizes a shared receive queue (dat_srq_resize).
    ///
    /// # Errors
    /// `DAT_NOT_IMPLEMENTED`, `DAT_INSUFFICIENT_RESOURCES`.
    fn resize_srq(_srq: &Self::Srq, _max_recv: u32) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// Requests one report when fewer than `low` receives are left (dat_srq_set_lw); 0 disarms.
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

    /// Creates a queue pair that is ready for `post_recv`. `token` names the endpoint in SRQ completions.
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

    /// Resets the queue pair to the state of a new one. Outstanding work was flushed before, or never completes.
    ///
    /// # Errors
    /// `DAT_INTERNAL_ERROR`: core then replaces the queue pair.
    fn reset_qp(qp: &Self::Qp) -> Result<()>;

    /// Posts a request. Returns `DAT_INSUFFICIENT_RESOURCES` when the queue is full.
    ///
    /// # Errors
    /// Those of the transport; then nothing was posted.
    fn post_send(qp: &Self::Qp, request: &Request<'_, Self>) -> Result<()>;

    /// Posts a receive.
    ///
    /// # Errors
    /// Those of the transport; then nothing was posted.
    fn post_recv(qp: &Self::Qp, id: WrId, iov: &[LmrTriplet]) -> Result<()>;

    /// Listens on `conn_qual`, or on a qualifier of its choice if `None`; returns the qualifier.
    ///
    /// # Errors
    /// `DAT_CONN_QUAL_IN_USE`, `DAT_CONN_QUAL_UNAVAILABLE`, `DAT_INVALID_PARAMETER`.
    fn listen(
        adapter: &Arc<Self::Adapter>,
        conn_qual: Option<u64>,
        token: Token,
    ) -> Result<(Self::Listener, u64)>;

    /// Starts to connect; ends in an upcall with `connect.token`. On a datagram queue pair it starts the lookup of a
    /// peer, any number of them at a time, and ends in [`Upcalls::datagram`](crate::upcall::Upcalls::datagram).
    ///
    /// # Errors
    /// Only those that are found at once; then there is no upcall.
    fn connect(
        adapter: &Arc<Self::Adapter>,
        qp: &Arc<Self::Qp>,
        connect: &Connect<'_>,
    ) -> Result<()>;

    /// Accepts a request on `qp`; ends in an upcall with `token`. For a datagram request on a datagram queue pair it
    /// sends the peer the queue pair's number, and ends in [`Upcalls::datagram`](crate::upcall::Upcalls::datagram)
    /// with the peer's.
    ///
    /// # Errors
    /// Only those that are found at once; the request is refused then.
    fn accept(
        request: Self::ConnRequest,
        qp: &Arc<Self::Qp>,
        token: Token,
        private_data: &[u8],
    ) -> Result<()>;

    /// Rejects a request for the consumer, with `private_data` (dat_cr_reject).
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` if the data is too long.
    fn reject(request: Self::ConnRequest, private_data: &[u8]) -> Result<()>;

    /// Ends the connection of `qp` or the attempt to make one: flushes outstanding work and notifies the peer.
    /// Returns at once; ends in an upcall `Disconnected` if a connection was established (core does not wait for it).
    /// Has no effect if there is none. A datagram queue pair is flushed in any case.
    fn disconnect(qp: &Self::Qp);

    /// Has a device complete as flushed the receives that were posted on `qp` after the end of its connection. For devices that do not
    /// notice such a receive by themselves.
    fn flush(_qp: &Self::Qp) {}

    /// Called once a message was received on `qp` before the transport reported the accepted connection as established. Core treats the
    /// connection as established from then on, so the transport must, too: a later `disconnect` ends a connection, not an
    /// attempt.
    fn message_received(_qp: &Self::Qp) {}

    /// Returns the local port of the connection of `qp` (dat_ep_query's `local_port_qual`). Returns 0 if there is no
    /// connection, or the transport has no ports; core then takes the qualifier that the peer connected to.
    fn local_port(_qp: &Self::Qp) -> u16 {
        0
    }

    /// Returns the device's own counters (the `Lnk…` and `Diag…` ones), as far as it has them: dat_ib_query_counters.
    fn device_counters(_adapter: &Self::Adapter) -> Vec<(IaCounter, u64)> {
        Vec::new()
    }

    /// Returns names and values of the counters that `dat_ib_counters.h` does not name; names without spaces, in an order that stays
    /// the same. dat_ib_query_counters reads them one by one, with the numbers after `DCNT_IA_ALL_COUNTERS`, and the named
    /// attribute `DAT_PROVIDER_COUNTERS` lists the names. They count from the open, and are not reset.
    fn own_counters(_adapter: &Self::Adapter) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
