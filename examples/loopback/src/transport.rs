//! [`Loopback`]: the implementation of [`Transport`], whose documentation says what each function must do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dat_core::arenas::Arenas;
use dat_core::attributes::{AdapterAttr, SrqAttr};
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::event::{DtoOp, DtoStatus};
use dat_core::flags::{MemPriv, VaType};
use dat_core::ia_params::IaParams;
use dat_core::iov::LmrTriplet;
use dat_core::rmr::Scope;
use dat_core::transport::{
    Bind, Completion, Connect, Keys, Parked, QpCaps, Request, Token, Transport, WrId,
};
use dat_core::upcall::Upcalls;
use dat_provider_parts::NO_MEMORY;
use dat_provider_parts::cq::{Entry, Parker};
use dat_provider_parts::keys::Window;

use crate::connect::{self, ConnRequest, Listener};
use crate::fabric::fabric;
use crate::faults::{Planted, leave_of_queue_pair, plant, planted};
use crate::qp::{Action, Connection, QueuePair, Receive, SharedQueue, Work};
use crate::settings::{Fail, SCOPE, Settings, is_link_local};
use crate::worker::WORKER;

/// A completion queue of the loopback.
pub(crate) type Cq = dat_provider_parts::cq::Cq<Loopback>;

/// Maximum length of a datagram in bytes.
const MAX_DATAGRAM: u32 = 4096;

/// An address handle. It is empty, because the number of a queue pair identifies it in the whole process.
#[derive(Clone, Copy, Debug)]
pub struct AddressHandle;

/// The transport between endpoints of one process.
#[derive(Debug)]
pub struct Loopback;

/// An open adapter.
#[derive(Debug)]
pub struct Adapter {
    settings: Settings,
    upcalls: Upcalls<Loopback>,
}

impl Adapter {
    /// Returns an error if the settings request a failure of this operation.
    fn check_fail(&self, fail: Fail) -> Result<()> {
        if self.settings.fail == Some(fail) {
            return Err(Error::resource(Subtype::ResourceDevice));
        }
        Ok(())
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        let mut fabric = fabric();
        if let Some(open) = fabric.adapters.get_mut(&self.settings.address) {
            *open -= 1;
            if *open == 0 {
                fabric.adapters.remove(&self.settings.address);
            }
        }
    }
}

/// A protection zone. It keeps its adapter open.
#[derive(Debug)]
pub struct Pz {
    number: u32,
    adapter: Arc<Adapter>,
}

/// A registered region.
#[derive(Debug)]
pub struct Lmr {
    lmr_context: u32,
}

impl Drop for Lmr {
    fn drop(&mut self) {
        if planted(Planted::KeyStays) {
            return;
        }
        if planted(Planted::RegionStays) {
            std::mem::forget(vec![1_u8; 1 << 16]);
        }
        // Copies run under the same lock, so no copy accesses the memory after this.
        fabric().keys.deregister(self.lmr_context);
    }
}

/// A memory window.
#[derive(Debug)]
pub struct Rmr {
    number: u32,
    pz: u32,
}

impl Drop for Rmr {
    fn drop(&mut self) {
        let mut fabric = fabric();
        if let Some(Some(key)) = fabric.windows.remove(&self.number)
            && !planted(Planted::WindowStays)
        {
            fabric.keys.close(key);
        }
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq {
    number: u32,
}

impl Drop for Srq {
    fn drop(&mut self) {
        fabric().shared_queues.remove(&self.number);
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    number: u32,
    fail: Option<Fail>,
    /// Keeps the protection zone open.
    _pz: Arc<Pz>,
    _srq: Option<Arc<Srq>>,
}

impl Drop for Qp {
    fn drop(&mut self) {
        leave_of_queue_pair();
        let mut fabric = fabric();
        fabric.disconnect(self.number);
        fabric.queue_pairs.remove(&self.number);
    }
}

/// Error of an object that is not in the fabric, which would be a bug.
const GONE: Error = Error::of(Kind::InternalError);
/// Error of a full queue.
const FULL: Error = Error::of(Kind::InsufficientResources);

impl Transport for Loopback {
    type Adapter = Adapter;
    type Pz = Pz;
    type Lmr = Lmr;
    type Rmr = Rmr;
    type Srq = Srq;
    type Cq = Cq;
    type Qp = Qp;
    type Listener = Listener;
    type ConnRequest = ConnRequest;
    type Parker = Parker;
    type AddressHandle = AddressHandle;
    type RawCompletion = Entry;

    const NAME: &'static str = "loopback";

    fn arenas() -> &'static Arenas<Self> {
        static ARENAS: Arenas<Loopback> = Arenas::new();
        &ARENAS
    }

    fn open(ia_name: &str, params: &IaParams, upcalls: Upcalls<Self>) -> Result<Adapter> {
        let settings = Settings::parse(params).map_err(|error| {
            tracing::error!(ia = ia_name, %error, "loopback: correct the ia_params of this dat.conf entry");
            Error::of(Kind::InvalidParameter)
        })?;
        if settings.fail == Some(Fail::Open) {
            tracing::error!(
                ia = ia_name,
                "loopback: the open fails because of fail=open"
            );
            return Err(Error::resource(Subtype::ResourceDevice));
        }
        WORKER.start().map_err(|error| {
            tracing::error!(ia = ia_name, %error, "loopback: cannot start the thread for upcalls; raise the limit of memory or threads");
            Error::resource(Subtype::ResourceMemory)
        })?;
        if let Some(fault) = settings.fault {
            plant(fault);
        }
        let mut fabric = fabric();
        let open = fabric.adapters.entry(settings.address).or_default();
        if planted(Planted::OpensOnce) && *open > 0 {
            return Err(Error::resource(Subtype::ResourceDevice));
        }
        *open += 1;
        drop(fabric);
        Ok(Adapter { settings, upcalls })
    }

    fn attributes(adapter: &Adapter) -> AdapterAttr {
        let mut attr = AdapterAttr::default();
        attr.adapter_name = "loopback".into();
        attr.vendor_name = "dat-loopback".into();
        attr.address = adapter.settings.address;
        if is_link_local(&attr.address) {
            attr.scope_id = SCOPE;
        }
        attr.max_rmrs = 65_536;
        attr.max_srqs = 65_536;
        attr.max_ep_per_srq = 65_536;
        attr.max_recv_per_srq = 16_384;
        attr.zero_based = true;
        attr.named = vec![("DAT_IB_UD".into(), "TRUE".into())];
        attr.atomics = true;
        attr.immediate_data = true;
        attr.max_datagram = MAX_DATAGRAM;
        attr.windows = true;
        if planted(Planted::NoLimits) {
            attr.max_eps = 0;
        }
        attr
    }

    fn create_pz(adapter: &Arc<Adapter>) -> Result<Pz> {
        adapter.check_fail(Fail::Pz)?;
        Ok(Pz {
            number: fabric().next_number(),
            adapter: Arc::clone(adapter),
        })
    }

    fn register(
        pz: &Arc<Pz>,
        address: usize,
        length: u64,
        rights: MemPriv,
        va_type: VaType,
    ) -> Result<(Lmr, Keys)> {
        pz.adapter.check_fail(Fail::Register)?;
        let va_type = match va_type {
            VaType::ZeroBased if planted(Planted::NotFromZero) => VaType::Va,
            given => given,
        };
        let keys = &mut fabric().keys;
        let keys = keys.register(pz.number, address as u64, length, rights, va_type)?;
        let lmr_context = keys.lmr_context;
        if planted(Planted::KeysRunOut) && lmr_context > 100 {
            return Err(NO_MEMORY);
        }
        Ok((Lmr { lmr_context }, keys))
    }

    /// Creates a window; a peer may invalidate a window of either scope.
    fn create_rmr(pz: &Arc<Pz>, _scope: Scope) -> Result<Rmr> {
        pz.adapter.check_fail(Fail::Rmr)?;
        let mut fabric = fabric();
        let number = fabric.next_number();
        fabric.windows.try_reserve(1).map_err(|_| NO_MEMORY)?;
        fabric.windows.insert(number, None);
        Ok(Rmr {
            number,
            pz: pz.number,
        })
    }

    fn post_bind(qp: &Qp, bind: &Bind<'_, Self>) -> Result<u32> {
        let new = match bind.lmr {
            None => None,
            Some(lmr) => {
                let window = Window {
                    pz: bind.rmr.pz,
                    region: lmr.lmr_context,
                    address: bind.address,
                    length: bind.length,
                    rights: bind.rights,
                    va_type: if planted(Planted::WindowNotFromZero) {
                        VaType::Va
                    } else {
                        bind.va_type
                    },
                    bound: true,
                };
                Some((fabric().keys.reserve()?, window))
            }
        };
        let work = Work {
            id: bind.id,
            action: Action::Bind {
                window: bind.rmr.number,
                new,
            },
            iov: Vec::new(),
            length: 0,
            signaled: bind.signaled,
            solicited: false,
            waited: false,
        };
        post(qp, work)?;
        Ok(new.map_or(0, |(key, _)| key))
    }

    fn create_cq(adapter: &Arc<Adapter>, depth: u32, token: Token) -> Result<Cq> {
        adapter.check_fail(Fail::Cq)?;
        if planted(Planted::CompletionQueueStays) {
            std::mem::forget(vec![1_u8; 1 << 14]);
        }
        Ok(Cq::new(depth, token, adapter.upcalls, &WORKER))
    }

    fn resize_cq(cq: &Cq, depth: u32) -> Result<()> {
        cq.resize(depth);
        Ok(())
    }

    fn poll_cq(cq: &Cq, into: &mut [Entry]) -> usize {
        cq.poll(into)
    }

    fn outcome(raw: &Entry) -> (WrId, bool) {
        (
            raw.completion.id,
            raw.completion.status == DtoStatus::Success,
        )
    }

    fn data_only_receive(raw: &Entry) -> Option<u32> {
        (raw.completion.op == DtoOp::Receive).then_some(raw.completion.length)
    }

    fn decode(_cq: &Cq, raw: &Entry) -> Completion {
        raw.completion
    }

    fn watch_cq(cq: &Cq, on: bool) -> Result<()> {
        cq.watch(on);
        Ok(())
    }

    fn solicited_only(cq: &Cq, on: bool) {
        cq.solicited_only(on);
    }

    fn solicited(_cq: &Cq, raw: &Entry) -> Option<bool> {
        raw.solicited
    }

    fn park(
        _adapter: &Adapter,
        cq: Option<&Cq>,
        parker: &Parker,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Parked {
        let cq = cq.filter(|_| !planted(Planted::NotWoken));
        let timeout = timeout.filter(|_| !planted(Planted::NoTimeout));
        parker.park(cq, timeout, ready)
    }

    fn unpark(parker: &Parker) {
        parker.unpark();
    }

    fn create_srq(pz: &Arc<Pz>, attr: &SrqAttr, token: Token) -> Result<Srq> {
        pz.adapter.check_fail(Fail::Srq)?;
        let mut fabric = fabric();
        let number = fabric.next_number();
        let queue = SharedQueue {
            upcalls: pz.adapter.upcalls,
            token,
            pz: pz.number,
            capacity: attr.max_recv_dtos as usize,
            limit: 0,
            receives: VecDeque::new(),
        };
        fabric.shared_queues.try_reserve(1).map_err(|_| NO_MEMORY)?;
        fabric.shared_queues.insert(number, queue);
        Ok(Srq { number })
    }

    fn resize_srq(srq: &Srq, max_recv: u32) -> Result<()> {
        let mut fabric = fabric();
        let queue = fabric.shared_queues.get_mut(&srq.number).ok_or(GONE)?;
        if queue.receives.len() > max_recv as usize {
            return Err(FULL);
        }
        queue.capacity = max_recv as usize;
        Ok(())
    }

    fn arm_srq_limit(srq: &Srq, low: u32) -> Result<()> {
        let mut fabric = fabric();
        let queue = fabric.shared_queues.get_mut(&srq.number).ok_or(GONE)?;
        queue.limit = low as usize;
        Ok(())
    }

    fn post_srq_recv(srq: &Srq, id: WrId, iov: &[LmrTriplet]) -> Result<()> {
        let mut fabric = fabric();
        let queue = fabric.shared_queues.get_mut(&srq.number).ok_or(GONE)?;
        if queue.receives.len() >= queue.capacity {
            return Err(FULL);
        }
        queue.receives.try_reserve(1).map_err(|_| NO_MEMORY)?;
        let iov = iov.to_vec();
        queue.receives.push_back(Receive { id, iov });
        if !planted(Planted::SharedNotServed) {
            fabric.shared_receive_posted(srq.number);
        }
        Ok(())
    }

    fn create_qp(
        pz: &Arc<Pz>,
        caps: &QpCaps,
        recv_cq: &Arc<Cq>,
        request_cq: &Arc<Cq>,
        srq: Option<&Arc<Srq>>,
        token: Token,
    ) -> Result<Qp> {
        pz.adapter.check_fail(Fail::Qp)?;
        let mut fabric = fabric();
        let number = fabric.next_number();
        let queue_pair = QueuePair {
            upcalls: pz.adapter.upcalls,
            settings: pz.adapter.settings,
            token,
            pz: pz.number,
            caps: *caps,
            recv_cq: Arc::clone(recv_cq),
            request_cq: Arc::clone(request_cq),
            srq: srq.map(|srq| srq.number),
            connection: Connection::Idle,
            port: 0,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
        };
        if planted(Planted::FewEndpoints) && fabric.queue_pairs.len() >= 300 {
            return Err(FULL);
        }
        fabric.queue_pairs.try_reserve(1).map_err(|_| NO_MEMORY)?;
        fabric.queue_pairs.insert(number, queue_pair);
        Ok(Qp {
            number,
            fail: pz.adapter.settings.fail,
            _pz: Arc::clone(pz),
            _srq: srq.cloned(),
        })
    }

    fn reset_qp(qp: &Qp) -> Result<()> {
        let mut fabric = fabric();
        fabric.disconnect(qp.number);
        let queue_pair = fabric.queue_pairs.get_mut(&qp.number).ok_or(GONE)?;
        queue_pair.connection = Connection::Idle;
        queue_pair.port = 0;
        queue_pair.sends.clear();
        queue_pair.receives.clear();
        Ok(())
    }

    fn post_send(qp: &Qp, request: &Request<'_, Self>) -> Result<()> {
        if qp.fail == Some(Fail::Post) {
            return Err(FULL);
        }
        post(qp, Work::of(request)?)
    }

    fn post_recv(qp: &Qp, id: WrId, iov: &[LmrTriplet]) -> Result<()> {
        let mut fabric = fabric();
        let queue_pair = fabric.queue_pairs.get_mut(&qp.number).ok_or(GONE)?;
        if queue_pair.receives.len() >= queue_pair.caps.max_recv as usize {
            return Err(FULL);
        }
        queue_pair.receives.try_reserve(1).map_err(|_| NO_MEMORY)?;
        let iov = iov.to_vec();
        queue_pair.receives.push_back(Receive { id, iov });
        if queue_pair.connection == Connection::Disconnected {
            queue_pair.flush();
        }
        fabric.receive_posted(qp.number);
        Ok(())
    }

    fn listen(
        adapter: &Arc<Adapter>,
        conn_qual: Option<u64>,
        token: Token,
    ) -> Result<(Listener, u64)> {
        adapter.check_fail(Fail::Listen)?;
        connect::listen(adapter.settings, adapter.upcalls, conn_qual, token)
    }

    fn connect(adapter: &Arc<Adapter>, qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
        adapter.check_fail(Fail::Connect)?;
        connect::connect(qp.number, connect)
    }

    fn accept(request: ConnRequest, qp: &Arc<Qp>, token: Token, private_data: &[u8]) -> Result<()> {
        connect::accept(request, qp.number, token, private_data)
    }

    fn reject(request: ConnRequest, private_data: &[u8]) -> Result<()> {
        connect::reject(request, private_data);
        Ok(())
    }

    fn disconnect(qp: &Qp) {
        fabric().disconnect(qp.number);
    }

    fn local_port(qp: &Qp) -> u16 {
        assert!(!planted(Planted::PortPanics), "planted");
        fabric().queue_pairs.get(&qp.number).map_or(0, |qp| qp.port)
    }
}

/// Queues a request and executes the requests that need not wait.
fn post(qp: &Qp, work: Work) -> Result<()> {
    let mut fabric = fabric();
    let queue_pair = fabric.queue_pairs.get_mut(&qp.number).ok_or(GONE)?;
    // Like a device: a datagram queue pair sends nothing else.
    if queue_pair.caps.datagram && !matches!(work.action, Action::Datagram { .. }) {
        return Err(Error::of(Kind::InvalidParameter));
    }
    if queue_pair.sends.len() >= queue_pair.caps.max_request as usize {
        return Err(FULL);
    }
    queue_pair.sends.try_reserve(1).map_err(|_| NO_MEMORY)?;
    if planted(Planted::FailureOvertakes) && fabric.fails_locally(qp.number, &work) {
        return Ok(());
    }
    let queue_pair = fabric.queue_pairs.get_mut(&qp.number).ok_or(GONE)?;
    if planted(Planted::BindOvertakes) && matches!(work.action, Action::Bind { .. }) {
        queue_pair.sends.push_front(work);
    } else {
        queue_pair.sends.push_back(work);
    }
    if queue_pair.connection == Connection::Disconnected {
        queue_pair.flush();
    }
    fabric.advance(qp.number);
    Ok(())
}
