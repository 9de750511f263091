//! A transport that moves nothing: enough for the objects that need no connection, and quick to sleep and
//! wake. Its completion queues hold what a test puts there.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dat_core::arenas::Arenas;
use dat_core::attr::AdapterAttr;
use dat_core::error::{Error, Kind, Result};
use dat_core::evd::EventSink;
use dat_core::event::{Dto, DtoOp, DtoStatus, Event};
use dat_core::flags::{MemPriv, VaType};
use dat_core::ia::{AsyncEvd, Ia};
use dat_core::ia_params::IaParams;
use dat_core::iov::LmrTriplet;
use dat_core::transport::{
    Completion, Connect, Keys, Parked, QpCaps, Request, Token, Transport, WrId,
};
use dat_core::upcall::Upcalls;
use parking_lot::{Condvar, Mutex};

/// See the module.
#[derive(Debug)]
pub(crate) struct Null;

static ARENAS: Arenas<Null> = Arenas::new();
static REGIONS: AtomicU32 = AtomicU32::new(0);
static NEXT_KEY: AtomicU32 = AtomicU32::new(1);

/// Regions registered at present, by all tests of the binary.
pub(crate) fn regions() -> u32 {
    REGIONS.load(Ordering::SeqCst)
}

pub(crate) struct Adapter {
    pub(crate) upcalls: Upcalls<Null>,
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

impl Transport for Null {
    type Adapter = Adapter;
    type Pz = ();
    type Lmr = Region;
    type Rmr = ();
    type Srq = ();
    type Cq = Mutex<VecDeque<WrId>>;
    type Qp = ();
    type Listener = ();
    type ConnRequest = ();
    type Parker = Parker;
    type AddressHandle = ();
    type RawCompletion = WrId;

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

    fn attributes(_adapter: &Adapter) -> AdapterAttr {
        AdapterAttr {
            adapter_name: "null".into(),
            vendor_name: String::new(),
            hardware_version: (0, 0),
            firmware_version: (0, 0),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            scope_id: 0,
            max_eps: 16,
            max_dto_per_ep: 16,
            max_rdma_read_per_ep_in: 1,
            max_rdma_read_per_ep_out: 1,
            max_rdma_read_in: 1,
            max_rdma_read_out: 1,
            max_evds: 1 << 16,
            max_evd_qlen: 1 << 10,
            max_iov: 4,
            max_iov_rdma_read: 4,
            max_iov_rdma_write: 4,
            max_lmrs: 1 << 16,
            max_lmr_block_size: u64::MAX,
            max_lmr_virtual_address: u64::MAX,
            max_pzs: 1 << 16,
            max_message_size: 1 << 20,
            max_rdma_size: 1 << 20,
            max_rmrs: 1 << 16,
            max_srqs: 0,
            max_ep_per_srq: 0,
            max_recv_per_srq: 0,
            max_private_data_size: 56,
            zero_based: false,
            named: Vec::new(),
            atomics: false,
            immediate_data: false,
            datagrams: false,
            windows: true,
        }
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

    fn create_rmr(_pz: &Arc<()>) -> Result<()> {
        Ok(())
    }

    fn create_cq(_adapter: &Arc<Adapter>, _depth: u32, _token: Token) -> Result<Self::Cq> {
        Ok(Mutex::default())
    }

    fn resize_cq(_cq: &Self::Cq, _depth: u32) -> Result<()> {
        Ok(())
    }

    fn poll_cq(cq: &Self::Cq, into: &mut [WrId]) -> usize {
        let mut cq = cq.lock();
        let n = cq.len().min(into.len());
        for (to, from) in into.iter_mut().zip(cq.drain(..n)) {
            *to = from;
        }
        n
    }

    fn decode(_cq: &Self::Cq, raw: &WrId) -> Completion {
        Completion {
            id: *raw,
            status: DtoStatus::Success,
            op: DtoOp::Send,
            length: 0,
            immediate: 0,
            invalidated: 0,
            ep: Token(0),
        }
    }

    fn watch_cq(_cq: &Self::Cq, _on: bool) -> Result<()> {
        Ok(())
    }

    fn park(
        _adapter: &Adapter,
        _cq: Option<&Self::Cq>,
        parker: &Parker,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Parked {
        if ready() {
            return Parked::Woken;
        }
        let deadline = timeout.map(|t| Instant::now() + t);
        let mut permit = parker.permit.lock();
        while !*permit {
            match deadline {
                None => parker.changed.wait(&mut permit),
                Some(deadline) => {
                    if parker.changed.wait_until(&mut permit, deadline).timed_out() {
                        return Parked::TimedOut;
                    }
                }
            }
        }
        *permit = false;
        Parked::Woken
    }

    fn unpark(parker: &Parker) {
        *parker.permit.lock() = true;
        parker.changed.notify_all();
    }

    fn create_qp(
        _pz: &Arc<()>,
        _caps: &QpCaps,
        _recv_cq: &Arc<Self::Cq>,
        _request_cq: &Arc<Self::Cq>,
        _srq: Option<&Arc<()>>,
        _token: Token,
    ) -> Result<()> {
        Ok(())
    }

    fn reset_qp(_qp: &()) -> Result<()> {
        Ok(())
    }

    fn post_send(_qp: &(), _request: &Request<'_, Self>) -> Result<()> {
        Err(Error::of(Kind::InsufficientResources))
    }

    fn post_recv(_qp: &(), _id: WrId, _iov: &[LmrTriplet]) -> Result<()> {
        Ok(())
    }

    fn listen(_adapter: &Arc<Adapter>, conn_qual: Option<u64>, _token: Token) -> Result<((), u64)> {
        Ok(((), conn_qual.unwrap_or(1)))
    }

    fn connect(_adapter: &Arc<Adapter>, _qp: &Arc<()>, _connect: &Connect<'_>) -> Result<()> {
        Err(Error::of(Kind::InvalidAddress))
    }

    fn accept(_request: (), _qp: &Arc<()>, _token: Token, _private_data: &[u8]) -> Result<()> {
        Err(Error::of(Kind::InternalError))
    }

    fn reject(_request: (), _private_data: &[u8]) -> Result<()> {
        Ok(())
    }

    fn disconnect(_qp: &()) {}
}

/// An open of the null adapter with an asynchronous EVD of 8.
pub(crate) fn open() -> &'static Ia<Null> {
    Ia::open("null0", &IaParams::default(), 8, AsyncEvd::New, 0x7ab1e).unwrap()
}

/// Takes events into a list.
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
    /// The pointers of software events, in order.
    pub(crate) fn pointers(&self) -> Vec<usize> {
        self.0
            .iter()
            .map(|event| match event {
                Event::Software(pointer) => *pointer,
                other => panic!("no software event: {other:?}"),
            })
            .collect()
    }
}

/// Fails the test when `done` does not come true in ten seconds.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(10), "never: {what}");
        std::thread::yield_now();
    }
}
