//! A transport for tests of connections and posts. It moves completions and connection events, but no bytes, all in the caller's thread.
//! A test can hold requests back or let them fail. `side` has what a test does with it, `connected` two endpoints. In the transport of `null` an endpoint has no
//! peer: the test completes each post.

#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "each test file uses its part"
)]

mod connected;
mod side;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dat_core::arenas::Arenas;
use dat_core::attributes::{AdapterAttr, SrqAttr};
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::event::{DtoOp, DtoStatus};
use dat_core::flags::{MemPriv, VaType};
use dat_core::ia_params::IaParams;
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::transport::{
    Completion, Connect, Keys, Op, Parked, QpCaps, Request, Token, Transport, WrId,
};
use dat_core::upcall::{Arrival, ConnOutcome, Fault, Upcalls};
use parking_lot::{Condvar, Mutex};

#[allow(unused_imports, reason = "each test file uses its part")]
pub use connected::*;
#[allow(unused_imports, reason = "each test file uses its part")]
pub use side::*;

/// Longest completion queue.
pub const MAX_CQ: u32 = 2000;
/// Address at which RDMA fails with a remote access error.
pub const BAD_ADDRESS: u64 = 0xbad;
/// Qualifier that never answers.
pub const BLACK_HOLE: u64 = 66_666;
/// Qualifier at which the connect call itself fails.
pub const NO_ROUTE: u64 = 66_667;

#[derive(Debug)]
pub struct Fake;

pub struct Adapter {
    name: String,
    pub upcalls: Upcalls<Fake>,
    /// True while requests are held back.
    pub hold: AtomicBool,
    /// True while a disconnect flushes nothing: a device does that later.
    pub flushes_late: AtomicBool,
    /// Calls of `poll_cq`.
    pub polls: AtomicU32,
    /// Calls of `resize_cq`.
    pub resizes: AtomicU32,
    pub qps: Mutex<Vec<Weak<Qp>>>,
    gate: Mutex<Option<Gate>>,
}

/// A point at which a call can be stopped.
struct Gate {
    at: Call,
    here: Sender<()>,
    going_on: Receiver<()>,
}

/// A call on the connection of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Connect,
    Accept,
    Disconnect,
    Reset,
    Poll,
}

/// A call that is stopped before the transport acts; a drop of this value continues it.
pub struct Stopped {
    reached: Receiver<()>,
    _go_on: Sender<()>,
}

impl Stopped {
    /// Waits until a thread has made the call.
    pub fn reached(&self) {
        let reached = self.reached.recv_timeout(Duration::from_secs(20));
        reached.expect("the call within 20 s");
    }
}

impl Adapter {
    /// Stops the next such call.
    pub fn stop(&self, call: Call) -> Stopped {
        let (here, reached) = channel();
        let (_go_on, going_on) = channel();
        *self.gate.lock() = Some(Gate {
            at: call,
            here,
            going_on,
        });
        Stopped { reached, _go_on }
    }

    fn pass(&self, call: Call) {
        let gate = self.gate.lock().take_if(|gate| gate.at == call);
        if let Some(gate) = gate {
            let _ = gate.here.send(());
            // The receive ends when the other half is dropped.
            let _ = gate.going_on.recv_timeout(Duration::from_secs(20));
        }
    }
}

static ADAPTERS: Mutex<Vec<Arc<Adapter>>> = Mutex::new(Vec::new());

pub struct Cq {
    queue: Mutex<VecDeque<Completion>>,
    adapter: Arc<Adapter>,
    token: Token,
    watched: AtomicBool,
    depth: AtomicU32,
}

impl Cq {
    fn push(&self, completion: Completion) {
        self.queue.lock().push_back(completion);
        if self.watched.swap(false, Ordering::SeqCst) {
            // The caller may be in a call of core, with a lock of core's.
            let (upcalls, token) = (self.adapter.upcalls, self.token);
            std::thread::spawn(move || upcalls.cq_ready(token));
        }
    }
}

struct Posted {
    id: WrId,
    signaled: bool,
    length: u32,
    /// True if the request takes a receive of the peer.
    message: Option<(DtoOp, u32)>,
    fails: bool,
}

#[derive(Default)]
struct QpState {
    sends: VecDeque<Posted>,
    recvs: VecDeque<WrId>,
    peer: Weak<Qp>,
    token: Token,
    /// True if the queue pair is connected or connecting.
    taken: bool,
    connected: bool,
    error: bool,
}

pub struct Qp {
    me: Weak<Self>,
    adapter: Arc<Adapter>,
    state: Mutex<QpState>,
    recv_cq: Arc<Cq>,
    request_cq: Arc<Cq>,
    srq: Option<Arc<Srq>>,
    token: Token,
    caps: QpCaps,
}

pub struct Srq {
    recvs: Mutex<VecDeque<WrId>>,
    limit: AtomicU32,
    token: Token,
    upcalls: Upcalls<Fake>,
}

pub struct FakePz(Arc<Adapter>);

pub struct ConnRequest {
    client: Option<Arc<Qp>>,
    token: Token,
}

impl Drop for ConnRequest {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            client
                .adapter
                .upcalls
                .connection(self.token, ConnOutcome::NonPeerRejected, &[]);
        }
    }
}

pub struct Listener(u64);

type Listeners = HashMap<u64, (Upcalls<Fake>, Token)>;
static LISTENERS: Mutex<Option<Listeners>> = Mutex::new(None);

impl Drop for Listener {
    fn drop(&mut self) {
        LISTENERS.lock().get_or_insert_default().remove(&self.0);
    }
}

#[derive(Default)]
pub struct Parker {
    permit: Mutex<bool>,
    bell: Condvar,
}

#[derive(Clone, Copy)]
pub struct Raw(Completion);

impl Default for Raw {
    fn default() -> Self {
        Self(done(WrId(0), DtoStatus::Success, DtoOp::Send, 0))
    }
}

fn done(id: WrId, status: DtoStatus, op: DtoOp, length: u32) -> Completion {
    let mut completion = Completion::new(id, status);
    completion.op = op;
    completion.length = length;
    completion
}

impl Qp {
    /// Marks the queue pair as used by a connection; like a real device it refuses a second connection and one in the error state.
    fn take(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.error || std::mem::replace(&mut state.taken, true) {
            return Err(Error::of(Kind::InternalError));
        }
        Ok(())
    }

    fn complete_request(&self, posted: &Posted, status: DtoStatus) {
        if posted.signaled || status != DtoStatus::Success {
            // The operation is wrong on purpose: core must use its own record.
            self.request_cq
                .push(done(posted.id, status, DtoOp::Receive, 0));
        }
    }

    /// Delivers a message; returns false if no receive is posted.
    fn deliver(&self, length: u32, op: DtoOp, immediate: u32) -> bool {
        let (id, low) = match &self.srq {
            None => (self.state.lock().recvs.pop_front(), false),
            Some(srq) => {
                let mut recvs = srq.recvs.lock();
                // Out of order, as with several queue pairs on one queue.
                let id = recvs.pop_back();
                let low = (recvs.len() as u32) < srq.limit.load(Ordering::Relaxed);
                (id, low && srq.limit.swap(0, Ordering::Relaxed) != 0)
            }
        };
        let Some(id) = id else {
            return false;
        };
        let mut completion = done(id, DtoStatus::Success, op, length);
        completion.immediate = immediate;
        completion.ep = self.token;
        self.recv_cq.push(completion);
        if let (true, Some(srq)) = (low, &self.srq) {
            srq.upcalls.fault(Fault::SrqLow(srq.token));
        }
        true
    }

    /// Returns the depth of the completion queue of the receives.
    pub fn recv_depth(&self) -> u32 {
        self.recv_cq.depth.load(Ordering::Relaxed)
    }

    /// Executes up to `count` requests.
    pub fn run(&self, count: usize) {
        for _ in 0..count {
            let (posted, peer) = {
                let mut state = self.state.lock();
                if state.error {
                    return;
                }
                let Some(posted) = state.sends.pop_front() else {
                    return;
                };
                (posted, state.peer.upgrade())
            };
            let status = match (&peer, posted.message) {
                _ if posted.fails => DtoStatus::RemoteAccess,
                (None, _) => DtoStatus::Transport,
                (Some(peer), Some((op, immediate))) => {
                    if peer.deliver(posted.length, op, immediate) {
                        DtoStatus::Success
                    } else {
                        DtoStatus::ReceiverNotReady
                    }
                }
                (Some(_), None) => DtoStatus::Success,
            };
            self.complete_request(&posted, status);
            if status != DtoStatus::Success {
                self.flush();
            }
        }
    }

    pub fn flush(&self) {
        let (sends, recvs) = {
            let mut state = self.state.lock();
            state.error = true;
            (
                std::mem::take(&mut state.sends),
                std::mem::take(&mut state.recvs),
            )
        };
        for posted in &sends {
            self.complete_request(posted, DtoStatus::Flushed);
        }
        for id in recvs {
            self.recv_cq
                .push(done(id, DtoStatus::Flushed, DtoOp::Send, 99));
        }
    }
}

impl Transport for Fake {
    type Adapter = Adapter;
    type Pz = FakePz;
    type Lmr = ();
    type Rmr = ();
    type Srq = Srq;
    type Cq = Cq;
    type Qp = Arc<Qp>;
    type Listener = Listener;
    type ConnRequest = ConnRequest;
    type Parker = Parker;
    type AddressHandle = ();
    type RawCompletion = Raw;

    const NAME: &'static str = "fake";

    fn arenas() -> &'static Arenas<Self> {
        static ARENAS: Arenas<Fake> = Arenas::new();
        &ARENAS
    }

    fn open(ia_name: &str, _params: &IaParams, upcalls: Upcalls<Self>) -> Result<Adapter> {
        Ok(Adapter {
            name: ia_name.to_owned(),
            upcalls,
            hold: AtomicBool::new(false),
            flushes_late: AtomicBool::new(false),
            polls: AtomicU32::new(0),
            resizes: AtomicU32::new(0),
            qps: Mutex::new(Vec::new()),
            gate: Mutex::new(None),
        })
    }

    fn attributes(_adapter: &Adapter) -> AdapterAttr {
        let mut attr = AdapterAttr::default();
        attr.adapter_name = "fake".into();
        attr.hardware_version = (0, 0);
        attr.firmware_version = (0, 0);
        attr.address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        attr.max_eps = 1000;
        attr.max_dto_per_ep = 1000;
        attr.max_rdma_read_in = 16;
        attr.max_rdma_read_out = 16;
        attr.max_evds = 1000;
        attr.max_evd_qlen = MAX_CQ;
        attr.max_iov = 8;
        attr.max_iov_rdma_read = 8;
        attr.max_iov_rdma_write = 8;
        attr.max_lmrs = 1000;
        attr.max_lmr_block_size = 1 << 30;
        attr.max_pzs = 1000;
        attr.max_message_size = 1 << 20;
        attr.max_rdma_size = 1 << 20;
        attr.max_rmrs = 1000;
        attr.max_srqs = 1000;
        attr.max_ep_per_srq = 1000;
        attr.max_recv_per_srq = 1000;
        attr.max_private_data_size = 56;
        attr.atomics = true;
        attr.immediate_data = true;
        attr
    }

    fn create_pz(adapter: &Arc<Adapter>) -> Result<FakePz> {
        ADAPTERS.lock().push(adapter.clone());
        Ok(FakePz(adapter.clone()))
    }

    fn register(
        _pz: &Arc<FakePz>,
        _address: usize,
        _length: u64,
        _rights: MemPriv,
        _va_type: VaType,
    ) -> Result<((), Keys)> {
        Err(Error::of(Kind::NotImplemented))
    }

    fn create_cq(adapter: &Arc<Adapter>, depth: u32, token: Token) -> Result<Cq> {
        Ok(Cq {
            queue: Mutex::default(),
            adapter: adapter.clone(),
            token,
            watched: AtomicBool::new(false),
            depth: AtomicU32::new(depth),
        })
    }

    fn resize_cq(cq: &Cq, depth: u32) -> Result<()> {
        cq.adapter.resizes.fetch_add(1, Ordering::Relaxed);
        if depth > MAX_CQ {
            return Err(Error::resource(Subtype::ResourceTevd));
        }
        cq.depth.store(depth, Ordering::Relaxed);
        Ok(())
    }

    fn poll_cq(cq: &Cq, into: &mut [Raw]) -> usize {
        cq.adapter.polls.fetch_add(1, Ordering::Relaxed);
        cq.adapter.pass(Call::Poll);
        let mut queue = cq.queue.lock();
        let count = into.len().min(queue.len());
        for (to, from) in into.iter_mut().zip(queue.drain(..count)) {
            *to = Raw(from);
        }
        count
    }

    fn outcome(raw: &Raw) -> (WrId, bool) {
        (raw.0.id, raw.0.status == DtoStatus::Success)
    }

    fn data_only_receive(raw: &Raw) -> Option<u32> {
        (raw.0.op == DtoOp::Receive).then_some(raw.0.length)
    }

    fn decode(_cq: &Cq, raw: &Raw) -> Completion {
        raw.0
    }

    fn watch_cq(cq: &Cq, on: bool) -> Result<()> {
        cq.watched.store(on, Ordering::SeqCst);
        Ok(())
    }

    fn park(
        _adapter: &Adapter,
        cq: Option<&Cq>,
        parker: &Parker,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Parked {
        let end = timeout.map(|t| Instant::now() + t);
        loop {
            if ready() {
                return Parked::Woken;
            }
            let mut permit = parker.permit.lock();
            if std::mem::take(&mut *permit) {
                return Parked::Woken;
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return Parked::TimedOut;
            }
            // A completion does not wake the sleeper here. Without a completion queue only core wakes it.
            let look = cq.map(|_| Instant::now() + Duration::from_millis(1));
            match end.into_iter().chain(look).min() {
                Some(until) => drop(parker.bell.wait_until(&mut permit, until)),
                None => parker.bell.wait(&mut permit),
            }
        }
    }

    fn unpark(parker: &Parker) {
        *parker.permit.lock() = true;
        parker.bell.notify_all();
    }

    fn create_srq(pz: &Arc<FakePz>, _attr: &SrqAttr, token: Token) -> Result<Srq> {
        Ok(Srq {
            recvs: Mutex::default(),
            limit: AtomicU32::new(0),
            token,
            upcalls: pz.0.upcalls,
        })
    }

    fn resize_srq(_srq: &Srq, _max_recv: u32) -> Result<()> {
        Ok(())
    }

    fn arm_srq_limit(srq: &Srq, low: u32) -> Result<()> {
        srq.limit.store(low, Ordering::Relaxed);
        Ok(())
    }

    fn post_srq_recv(srq: &Srq, id: WrId, _iov: &[LmrTriplet]) -> Result<()> {
        srq.recvs.lock().push_back(id);
        Ok(())
    }

    fn create_qp(
        pz: &Arc<FakePz>,
        caps: &QpCaps,
        recv_cq: &Arc<Cq>,
        request_cq: &Arc<Cq>,
        srq: Option<&Arc<Srq>>,
        token: Token,
    ) -> Result<Arc<Qp>> {
        let qp = Arc::new_cyclic(|me| Qp {
            me: me.clone(),
            adapter: pz.0.clone(),
            state: Mutex::default(),
            recv_cq: recv_cq.clone(),
            request_cq: request_cq.clone(),
            srq: srq.cloned(),
            token,
            caps: *caps,
        });
        pz.0.qps.lock().push(Arc::downgrade(&qp));
        Ok(qp)
    }

    fn reset_qp(qp: &Arc<Qp>) -> Result<()> {
        qp.adapter.pass(Call::Reset);
        *qp.state.lock() = QpState::default();
        Ok(())
    }

    fn post_send(qp: &Arc<Qp>, request: &Request<'_, Self>) -> Result<()> {
        assert!(
            request.length <= 1 << 20,
            "core checks lengths before it posts"
        );
        let length = request.length as u32;
        let posted = Posted {
            id: request.id,
            signaled: request.signaled,
            length,
            message: match request.op {
                Op::Send | Op::SendWithInvalidate(_) => Some((DtoOp::Receive, 0)),
                Op::SendWithImmediate(i) => Some((DtoOp::ReceiveMessageImmediate, i)),
                Op::RdmaWriteWithImmediate(_, i) => Some((DtoOp::ReceiveRdmaImmediate, i)),
                _ => None,
            },
            fails: matches!(
                request.op,
                Op::RdmaWrite(RmrTriplet {
                    virtual_address: BAD_ADDRESS,
                    ..
                }) | Op::RdmaRead(RmrTriplet {
                    virtual_address: BAD_ADDRESS,
                    ..
                })
            ),
        };
        let full = {
            let mut state = qp.state.lock();
            let full = state.sends.len() >= qp.caps.max_request as usize;
            if !full {
                state.sends.push_back(posted);
            }
            full
        };
        if full {
            return Err(Error::of(Kind::InsufficientResources));
        }
        if qp.state.lock().error {
            qp.flush();
        } else if !qp.adapter.hold.load(Ordering::Relaxed) {
            qp.run(1);
        }
        Ok(())
    }

    fn post_recv(qp: &Arc<Qp>, id: WrId, _iov: &[LmrTriplet]) -> Result<()> {
        let error = {
            let mut state = qp.state.lock();
            state.recvs.push_back(id);
            state.error
        };
        if error {
            qp.flush();
        }
        Ok(())
    }

    fn listen(
        adapter: &Arc<Adapter>,
        conn_qual: Option<u64>,
        token: Token,
    ) -> Result<(Listener, u64)> {
        let mut listeners = LISTENERS.lock();
        let listeners = listeners.get_or_insert_default();
        let conn_qual = conn_qual.unwrap_or_else(|| {
            (0xc000..0xffff)
                .find(|q| !listeners.contains_key(q))
                .unwrap()
        });
        if listeners.contains_key(&conn_qual) {
            return Err(Error::of(Kind::ConnQualInUse));
        }
        listeners.insert(conn_qual, (adapter.upcalls, token));
        Ok((Listener(conn_qual), conn_qual))
    }

    fn connect(adapter: &Arc<Adapter>, qp: &Arc<Arc<Qp>>, connect: &Connect<'_>) -> Result<()> {
        adapter.pass(Call::Connect);
        if connect.conn_qual == NO_ROUTE {
            return Err(Error::of(Kind::InvalidAddress));
        }
        qp.take()?;
        if connect.conn_qual == BLACK_HOLE {
            return Ok(());
        }
        let listener = LISTENERS
            .lock()
            .get_or_insert_default()
            .get(&connect.conn_qual)
            .copied();
        let Some((upcalls, sp)) = listener else {
            adapter
                .upcalls
                .connection(connect.token, ConnOutcome::NonPeerRejected, &[]);
            return Ok(());
        };
        let request = ConnRequest {
            client: qp.me.upgrade(),
            token: connect.token,
        };
        upcalls.connect_request(
            sp,
            request,
            &Arrival {
                remote: SocketAddr::new(connect.remote, 4321),
                local: connect.remote,
                private_data: connect.private_data,
                datagram: false,
            },
        );
        Ok(())
    }

    fn accept(
        mut request: ConnRequest,
        qp: &Arc<Arc<Qp>>,
        token: Token,
        private_data: &[u8],
    ) -> Result<()> {
        qp.adapter.pass(Call::Accept);
        qp.take()?;
        let client = request.client.take().unwrap();
        if client.state.lock().error {
            qp.adapter
                .upcalls
                .connection(token, ConnOutcome::AcceptError, &[]);
            return Ok(());
        }
        for (one, other, token) in [(&client, &***qp, request.token), (qp, &*client, token)] {
            let mut state = one.state.lock();
            state.peer = other.me.clone();
            state.token = token;
            state.connected = true;
        }
        client
            .adapter
            .upcalls
            .connection(request.token, ConnOutcome::Established, private_data);
        qp.adapter
            .upcalls
            .connection(token, ConnOutcome::Established, &[]);
        Ok(())
    }

    fn reject(mut request: ConnRequest, private_data: &[u8]) -> Result<()> {
        let client = request.client.take().unwrap();
        client
            .adapter
            .upcalls
            .connection(request.token, ConnOutcome::PeerRejected, private_data);
        Ok(())
    }

    fn disconnect(qp: &Arc<Qp>) {
        qp.adapter.pass(Call::Disconnect);
        let (was, peer, token) = {
            let mut state = qp.state.lock();
            (
                std::mem::take(&mut state.connected),
                state.peer.upgrade(),
                state.token,
            )
        };
        if !qp.adapter.flushes_late.load(Ordering::Relaxed) {
            qp.flush();
        }
        if !was {
            return;
        }
        qp.adapter
            .upcalls
            .connection(token, ConnOutcome::Disconnected, &[]);
        if let Some(peer) = peer {
            let (connected, token) = {
                let state = peer.state.lock();
                (state.connected, state.token)
            };
            if connected {
                peer.adapter
                    .upcalls
                    .connection(token, ConnOutcome::Disconnected, &[]);
            }
        }
    }
}
