//! A transport that moves no data, for tests of events and of objects: connections are established and posts complete when the test
//! says so. `side` is a connected endpoint. In the transport of `pair` two endpoints exchange messages.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod side;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dat_core::arenas::Arenas;
use dat_core::attributes::AdapterAttr;
use dat_core::ep::Ep;
use dat_core::error::{Error, Kind, Result};
use dat_core::evd::EventSink;
use dat_core::event::{Dto, DtoOp, DtoStatus, Event};
use dat_core::flags::{MemPriv, VaType};
use dat_core::ia::{AsyncEvd, Ia};
use dat_core::ia_params::IaParams;
use dat_core::iov::LmrTriplet;
use dat_core::rmr::Scope;
use dat_core::transport::{
    Bind, Completion, Connect, Keys, Parked, QpCaps, Request, Token, Transport, WrId,
};
use dat_core::upcall::{Arrival, ConnOutcome, Upcalls};
use parking_lot::{Condvar, Mutex};

/// The transport of this module.
#[derive(Debug)]
pub(crate) struct Null;

static ARENAS: Arenas<Null> = Arenas::new();
static REGIONS: AtomicU32 = AtomicU32::new(0);
static NEXT_KEY: AtomicU32 = AtomicU32::new(1);

/// Returns the number of regions that all tests of the binary have registered at present.
pub(crate) fn regions() -> u32 {
    REGIONS.load(Ordering::SeqCst)
}

pub(crate) struct Adapter {
    pub(crate) upcalls: Upcalls<Null>,
}

/// A completion queue with its entries, and a flag that requests a report of the next completion.
pub(crate) struct Cq {
    queue: Mutex<VecDeque<Raw>>,
    watched: AtomicBool,
    /// True while a thread parks on the queue: like a waiter on a completion channel, it consumes the report.
    parked: AtomicBool,
    upcalls: Upcalls<Null>,
    token: Token,
    pub(crate) depth: AtomicU32,
}

/// A completion, with the flag that the peer solicited it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Raw {
    id: WrId,
    status: DtoStatus,
    op: DtoOp,
    solicited: bool,
}

/// A queue pair with its outstanding posts.
pub(crate) struct Qp {
    requests: Mutex<VecDeque<(WrId, bool)>>,
    receives: Mutex<VecDeque<WrId>>,
    pub(crate) request_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    connection: Mutex<Token>,
    /// The next request is refused.
    refuses: AtomicBool,
    /// A reset is refused: core creates a new queue pair, as over rdma_cm.
    pub(crate) single_use: AtomicBool,
    /// Calls of [`Transport::message_received`].
    pub(crate) implied: AtomicU32,
}

static QPS: Mutex<Option<HashMap<u32, Arc<Qp>>>> = Mutex::new(None);

/// Returns the queue pair of an endpoint; panics if it has none.
pub(crate) fn qp(ep: &'static Ep<Null>) -> Arc<Qp> {
    find_qp(ep).expect("a queue pair")
}

/// Returns the present or the last queue pair of an endpoint.
pub(crate) fn find_qp(ep: &'static Ep<Null>) -> Option<Arc<Qp>> {
    let index = ARENAS.ep.index_of(ep);
    QPS.lock().as_ref()?.get(&index).cloned()
}

type Listeners = HashMap<u64, (Upcalls<Null>, Token)>;

static LISTENERS: Mutex<Option<Listeners>> = Mutex::new(None);

/// Sends a connection request to the service point of `conn_qual`; the second `Arc` of the request exists until it is refused.
pub(crate) fn request(conn_qual: u64) -> Arc<()> {
    let (upcalls, sp) = LISTENERS.lock().as_ref().unwrap()[&conn_qual];
    let request = Arc::new(());
    let arrival = Arrival {
        remote: (Ipv4Addr::LOCALHOST, 7).into(),
        local: Ipv4Addr::LOCALHOST.into(),
        private_data: &[],
        datagram: false,
    };
    upcalls.connect_request(sp, request.clone(), &arrival);
    request
}

impl Cq {
    fn push(&self, raw: Raw) {
        self.queue.lock().push_back(raw);
        let watched = self.watched.swap(false, Ordering::SeqCst);
        if watched && !self.parked.load(Ordering::SeqCst) {
            self.upcalls.cq_ready(self.token);
        }
    }
}

impl Qp {
    /// Reports that the peer is connected.
    pub(crate) fn establish(&self) {
        self.report(ConnOutcome::Established);
    }

    /// Reports an outcome of the connection or of the attempt.
    pub(crate) fn report(&self, outcome: ConnOutcome) {
        let token = *self.connection.lock();
        self.request_cq.upcalls.connection(token, outcome, &[]);
    }

    /// Refuses the next request.
    pub(crate) fn refuse_next_post(&self) {
        self.refuses.store(true, Ordering::SeqCst);
    }

    /// Completes the next `count` requests; adds completions for the signaled ones.
    pub(crate) fn finish_requests(&self, count: usize) {
        for _ in 0..count {
            let (id, signaled) = self.requests.lock().pop_front().expect("a request");
            if signaled {
                self.request_cq.push(Raw {
                    id,
                    ..Raw::default()
                });
            }
        }
    }

    /// Completes all requests as flushed.
    pub(crate) fn flush_requests(&self) {
        for (id, _) in self.requests.lock().drain(..) {
            self.request_cq.push(Raw {
                id,
                status: DtoStatus::Flushed,
                ..Raw::default()
            });
        }
    }

    /// Completes the oldest request, if there is one.
    pub(crate) fn finish_some(&self) {
        let oldest = self.requests.lock().pop_front();
        if let Some((id, true)) = oldest {
            self.request_cq.push(Raw {
                id,
                ..Raw::default()
            });
        }
    }

    /// Delivers a message to the next receive.
    pub(crate) fn receive(&self, solicited: bool) {
        let id = self.receives.lock().pop_front().expect("a receive");
        self.recv_cq.push(Raw {
            id,
            op: DtoOp::Receive,
            solicited,
            ..Raw::default()
        });
    }
}

#[derive(Debug)]
pub(crate) struct Region;

impl Drop for Region {
    fn drop(&mut self) {
        REGIONS.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Default)]
pub(crate) struct Parker {
    permit: Mutex<bool>,
    changed: Condvar,
}

fn sleep(
    parker: &Parker,
    polls: bool,
    timeout: Option<Duration>,
    ready: &mut dyn FnMut() -> bool,
) -> Parked {
    let deadline = timeout.map(|t| Instant::now() + t);
    loop {
        if ready() {
            return Parked::Woken;
        }
        let mut permit = parker.permit.lock();
        if !*permit {
            // A completion wakes no thread here: the sleeper polls from time to time, as in a polling driver. Without a
            // completion queue only core wakes it, so that a wake-up that core forgets shows.
            let look = polls.then(|| Instant::now() + Duration::from_micros(500));
            match deadline.into_iter().chain(look).min() {
                Some(until) => drop(parker.changed.wait_until(&mut permit, until)),
                None => parker.changed.wait(&mut permit),
            }
        }
        if std::mem::take(&mut *permit) {
            return Parked::Woken;
        }
        if deadline.is_some_and(|d| Instant::now() >= d) {
            return Parked::TimedOut;
        }
    }
}

thread_local! {
    /// Number of adapters that this thread closed.
    pub(crate) static LEAVES: Cell<u32> = const { Cell::new(0) };
    static BEFORE_POLL: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
    /// Makes [`Transport::create_qp`] of this thread fail.
    pub(crate) static NO_QPS: Cell<bool> = const { Cell::new(false) };
    static AT_PARK: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Sets a function that runs where this thread polls the transport next: what another thread may do at that moment.
pub(crate) fn before_next_poll(act: impl FnOnce() + 'static) {
    BEFORE_POLL.set(Some(Box::new(act)));
}

/// Sets a function that runs when this thread waits for a completion or an event: after the wait has begun, and before it can end.
pub(crate) fn at_park(act: impl FnOnce() + 'static) {
    AT_PARK.set(Some(Box::new(act)));
}

impl Transport for Null {
    type Adapter = Adapter;
    type Pz = ();
    type Lmr = Region;
    type Rmr = ();
    type Srq = ();
    type Cq = Cq;
    type Qp = Arc<Qp>;
    type Listener = ();
    type ConnRequest = Arc<()>;
    type Parker = Parker;
    type AddressHandle = ();
    type RawCompletion = Raw;

    const NAME: &'static str = "null";

    fn arenas() -> &'static Arenas<Self> {
        &ARENAS
    }

    fn open(ia_name: &str, _params: &IaParams, upcalls: Upcalls<Self>) -> Result<Adapter> {
        if ia_name == "broken" {
            return Err(Error::of(Kind::InsufficientResources));
        }
        Ok(Adapter { upcalls })
    }

    fn close(_adapter: &Adapter) {
        LEAVES.set(LEAVES.get() + 1);
    }

    fn attributes(_adapter: &Adapter) -> AdapterAttr {
        let mut attr = AdapterAttr::default();
        attr.adapter_name = "null".into();
        attr.hardware_version = (0, 0);
        attr.firmware_version = (0, 0);
        attr.address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        attr.max_eps = 16;
        attr.max_dto_per_ep = 512;
        attr.max_rdma_read_per_ep_in = 1;
        attr.max_rdma_read_per_ep_out = 1;
        attr.max_rdma_read_in = 1;
        attr.max_rdma_read_out = 1;
        attr.max_evds = 1 << 16;
        attr.max_evd_qlen = 1 << 10;
        attr.max_iov = 4;
        attr.max_iov_rdma_read = 4;
        attr.max_iov_rdma_write = 4;
        attr.max_lmrs = 1 << 16;
        attr.max_lmr_block_size = u64::MAX;
        attr.max_pzs = 1 << 16;
        attr.max_message_size = 1 << 20;
        attr.max_rdma_size = 1 << 20;
        attr.max_rmrs = 1 << 16;
        attr.max_private_data_size = 56;
        attr.windows = true;
        attr
    }

    fn create_pz(_adapter: &Arc<Adapter>) -> Result<()> {
        Ok(())
    }

    fn register(
        _pz: &Arc<()>,
        _address: usize,
        _length: u64,
        _rights: MemPriv,
        _va_type: VaType,
    ) -> Result<(Region, Keys)> {
        REGIONS.fetch_add(1, Ordering::SeqCst);
        let key = NEXT_KEY.fetch_add(1, Ordering::SeqCst);
        Ok((
            Region,
            Keys {
                lmr_context: key,
                rmr_context: key | 1 << 31,
            },
        ))
    }

    fn create_rmr(_pz: &Arc<()>, _scope: Scope) -> Result<()> {
        Ok(())
    }

    fn create_cq(adapter: &Arc<Adapter>, depth: u32, token: Token) -> Result<Self::Cq> {
        Ok(Cq {
            queue: Mutex::default(),
            watched: AtomicBool::new(false),
            parked: AtomicBool::new(false),
            upcalls: adapter.upcalls,
            token,
            depth: AtomicU32::new(depth),
        })
    }

    fn resize_cq(cq: &Self::Cq, depth: u32) -> Result<()> {
        cq.depth.store(depth, Ordering::SeqCst);
        Ok(())
    }

    fn poll_cq(cq: &Self::Cq, into: &mut [Raw]) -> usize {
        if let Some(act) = BEFORE_POLL.take() {
            act();
        }
        let mut cq = cq.queue.lock();
        let n = cq.len().min(into.len());
        for (to, from) in into.iter_mut().zip(cq.drain(..n)) {
            *to = from;
        }
        n
    }

    fn outcome(raw: &Raw) -> (WrId, bool) {
        (raw.id, raw.status == DtoStatus::Success)
    }

    fn data_only_receive(raw: &Raw) -> Option<u32> {
        (raw.op == DtoOp::Receive).then_some(5)
    }

    fn decode(_cq: &Self::Cq, raw: &Raw) -> Completion {
        let mut completion = Completion::new(raw.id, raw.status);
        completion.op = raw.op;
        completion.length = 5;
        completion
    }

    fn watch_cq(cq: &Self::Cq, on: bool) -> Result<()> {
        cq.watched.store(on, Ordering::SeqCst);
        Ok(())
    }

    fn solicited(_cq: &Self::Cq, raw: &Raw) -> Option<bool> {
        Some(raw.solicited)
    }

    fn park(
        _adapter: &Adapter,
        cq: Option<&Self::Cq>,
        parker: &Parker,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Parked {
        let parked = |on| {
            if let Some(cq) = cq {
                cq.parked.store(on, Ordering::SeqCst);
            }
        };
        parked(true);
        if let Some(act) = AT_PARK.take() {
            act();
        }
        let outcome = sleep(parker, cq.is_some(), timeout, ready);
        parked(false);
        outcome
    }

    fn unpark(parker: &Parker) {
        *parker.permit.lock() = true;
        parker.changed.notify_all();
    }

    fn create_qp(
        _pz: &Arc<()>,
        _caps: &QpCaps,
        recv_cq: &Arc<Self::Cq>,
        request_cq: &Arc<Self::Cq>,
        _srq: Option<&Arc<()>>,
        token: Token,
    ) -> Result<Self::Qp> {
        if NO_QPS.get() {
            return Err(Error::of(Kind::InsufficientResources));
        }
        let qp = Arc::new(Qp {
            requests: Mutex::default(),
            receives: Mutex::default(),
            request_cq: request_cq.clone(),
            recv_cq: recv_cq.clone(),
            connection: Mutex::default(),
            single_use: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            implied: AtomicU32::new(0),
        });
        QPS.lock()
            .get_or_insert_default()
            .insert(token.0 as u32, qp.clone());
        Ok(qp)
    }

    fn reset_qp(qp: &Self::Qp) -> Result<()> {
        if qp.single_use.load(Ordering::SeqCst) {
            return Err(Error::of(Kind::InternalError));
        }
        Ok(())
    }

    fn post_send(qp: &Self::Qp, request: &Request<'_, Self>) -> Result<()> {
        if qp.refuses.swap(false, Ordering::SeqCst) {
            return Err(Error::of(Kind::InsufficientResources));
        }
        let entry = (request.id, request.signaled);
        qp.requests.lock().push_back(entry);
        Ok(())
    }

    fn post_bind(qp: &Self::Qp, bind: &Bind<'_, Self>) -> Result<u32> {
        if qp.refuses.swap(false, Ordering::SeqCst) {
            return Err(Error::of(Kind::InsufficientResources));
        }
        qp.requests.lock().push_back((bind.id, bind.signaled));
        Ok(NEXT_KEY.fetch_add(1, Ordering::SeqCst))
    }

    fn post_recv(qp: &Self::Qp, id: WrId, _iov: &[LmrTriplet]) -> Result<()> {
        qp.receives.lock().push_back(id);
        Ok(())
    }

    fn listen(adapter: &Arc<Adapter>, conn_qual: Option<u64>, token: Token) -> Result<((), u64)> {
        let qual = conn_qual.unwrap_or(1);
        LISTENERS
            .lock()
            .get_or_insert_default()
            .insert(qual, (adapter.upcalls, token));
        Ok(((), qual))
    }

    fn connect(_adapter: &Arc<Adapter>, qp: &Arc<Self::Qp>, connect: &Connect<'_>) -> Result<()> {
        *qp.connection.lock() = connect.token;
        Ok(())
    }

    fn accept(
        _request: Arc<()>,
        qp: &Arc<Self::Qp>,
        token: Token,
        _private_data: &[u8],
    ) -> Result<()> {
        *qp.connection.lock() = token;
        Ok(())
    }

    fn reject(_request: Arc<()>, _private_data: &[u8]) -> Result<()> {
        Ok(())
    }

    fn disconnect(_qp: &Self::Qp) {}

    fn message_received(qp: &Self::Qp) {
        qp.implied.fetch_add(1, Ordering::SeqCst);
    }
}

/// Opens the null adapter with an asynchronous EVD of length 8.
pub(crate) fn open() -> &'static Ia<Null> {
    Ia::open("null0", &IaParams::default(), 8, AsyncEvd::New, 0x7ab1e).unwrap()
}

/// A list of received events.
#[derive(Debug, Default)]
pub(crate) struct Events(pub(crate) Vec<Event>);

impl EventSink for Events {
    fn dto(&mut self, dto: &Dto) {
        self.0.push(Event::Dto(*dto));
    }
    fn event(&mut self, event: &Event) {
        self.0.push(*event);
    }
}

impl Events {
    /// Returns the pointers of the software events, in order.
    pub(crate) fn pointers(&self) -> Vec<usize> {
        self.0
            .iter()
            .map(|event| match event {
                Event::Software(pointer) => *pointer,
                other => panic!("not a software event: {other:?}"),
            })
            .collect()
    }
}

/// Waits until `done` is true; fails the test after ten seconds.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(10), "never: {what}");
        std::thread::yield_now();
    }
}

/// A wait that ends only if it is woken: longer than [`eventually`] waits.
pub(crate) const LONG: Option<Duration> = Some(Duration::from_secs(30));

/// Returns the result of a thread that waits for [`LONG`] and was woken. A wait that expires takes the events too that came
/// meanwhile, so its result alone does not show that a wake-up was lost.
pub(crate) fn woken<T>(waiter: std::thread::ScopedJoinHandle<'_, T>) -> T {
    eventually("the waiter is woken", || waiter.is_finished());
    waiter.join().unwrap()
}
