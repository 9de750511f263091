//! The implementation of core's `Transport`.

mod connect;
mod convert;
mod datagram;
mod named_attributes;
pub(crate) mod objects;
pub(crate) mod open;
mod queue;
mod run_upcall;
mod window;

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dat_core::arenas::Arenas;
use dat_core::attributes::{AdapterAttr, SrqAttr};
use dat_core::counters::IaCounter;
use dat_core::error::{Error, Kind, Result};
use dat_core::flags::{MemPriv, VaType};
use dat_core::ia_params::IaParams;
use dat_core::iov::LmrTriplet;
use dat_core::rmr::Scope;
use dat_core::transport::{
    Bind, Completion, Connect, Keys, Op, Parked, QpCaps, Request, Token, Transport, WrId,
};
use dat_core::upcall::Upcalls;
use dat_handshake::rdma_cm::REQ_PRIVATE;
use softrxe_proto as proto;
use softrxe_proto::{CompletedOp, Rights, Status, WindowType};

use self::convert::{MAX_IOV, Sges, completion, create_error, op, post_error, remote, rights, sge};
use self::objects::{Adapter, ConnRequest, Listener, Lmr, Pz, Qp, Srq};
use self::queue::Cq;
use self::window::{Rmr, Wanted};
use crate::adapter::datagram::{AddressHandle, QKEY};
use crate::adapter::hub::Hub;
use crate::adapter::poll_turns::AfterPoll;
use crate::memory::guard;
use crate::memory::range::Range;
use crate::user_engine::UserEngine;
use crate::wait::Parker;

/// Largest number of RDMA Reads and atomics of a connection, in each direction.
const MAX_READS: u32 = 16;

/// What a thread is to do after an empty poll, once it has released its locks.
#[derive(Default)]
enum Postponed {
    #[default]
    Nothing,
    Yield,
    /// Give way or pause on this adapter. It does not keep the adapter from closing.
    GiveWay(Weak<Hub>),
    Pause(Weak<Hub>),
}

thread_local! {
    static AFTER_EMPTY_POLL: Cell<Postponed> = const { Cell::new(Postponed::Nothing) };
}

/// Leaves `what` to `after_empty_poll`. Handlers of exit(3) and destructors of keys run when the thread has no such place any more: their
/// polls do not pause.
fn postpone(what: Postponed) {
    let _ = AFTER_EMPTY_POLL.try_with(|place| place.set(what));
}

/// Takes what was left.
fn postponed() -> Postponed {
    AFTER_EMPTY_POLL.try_with(Cell::take).unwrap_or_default()
}

/// Returns the sums of the counters of all lanes, which are the same ones in the same order.
fn sum<N>(adapter: &Adapter, counters: impl Fn(&Hub) -> Vec<(N, u64)>) -> Vec<(N, u64)> {
    let mut lanes = adapter.lanes.all().iter().map(|hub| counters(hub));
    let mut all = lanes.next().unwrap_or_default();
    for counters in lanes {
        for ((_, sum), (_, value)) in all.iter_mut().zip(counters) {
            *sum += value;
        }
    }
    all
}

#[inline(always)]
fn post_recv(qp: &Qp, id: WrId, sges: &[proto::Sge]) -> Result<()> {
    let mut state = qp.hub.lock();
    state
        .engine
        .post_recv(qp.qpn, id.0, sges)
        .map_err(post_error)?;
    // A queue pair in Error flushes the receive at once. Else there is nothing that a thread would have to wake for.
    if state.engine.has_events() {
        state.collect_events();
        qp.hub.wake(&mut state);
    }
    Ok(())
}

#[inline(never)]
fn post_recv_several(qp: &Qp, id: WrId, sges: &[proto::Sge]) -> Result<()> {
    post_recv(qp, id, sges)
}

impl Transport for UserEngine {
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
    type RawCompletion = proto::Completion;

    const NAME: &'static str = "softrxe-user";

    fn arenas() -> &'static Arenas<Self> {
        static ARENAS: Arenas<UserEngine> = Arenas::new();
        &ARENAS
    }

    fn open(ia_name: &str, params: &IaParams, upcalls: Upcalls<Self>) -> Result<Adapter> {
        open::open(ia_name, params, upcalls)
    }

    fn device_counters(adapter: &Adapter) -> Vec<(IaCounter, u64)> {
        sum(adapter, |hub| {
            let counters = hub.state.lock().engine.counters();
            vec![
                (IaCounter::LnkErrRcv, counters.malformed + counters.bad_icrc),
                (
                    IaCounter::LnkErrRcvConstraint,
                    counters.foreign + counters.unknown_qp,
                ),
                (IaCounter::DiagErrRqRae, counters.wrong_keys),
                (
                    IaCounter::DiagErrRqRire,
                    counters.refused - counters.wrong_keys,
                ),
                (IaCounter::DiagErrRqOos, counters.out_of_sequence),
                (IaCounter::DiagErrRqUdsdprd, counters.ud_dropped),
                (IaCounter::DiagErrSqOos, counters.go_backs),
            ]
        })
    }

    fn own_counters(adapter: &Adapter) -> Vec<(&'static str, u64)> {
        sum(adapter, |hub| {
            let state = hub.state.lock();
            let mut counters = state.near_dial.counters();
            counters.push(("near_wakes", state.near.wakes()));
            counters.push(("near_datagrams", state.near.datagrams()));
            let ring = state.ports.socket().ring_counters().unwrap_or_default();
            counters.push(("ring_reads", ring.from_ring));
            counters.push(("ring_passed", ring.from_socket));
            counters
        })
    }

    fn close(adapter: &Adapter) {
        adapter.end();
    }

    fn attributes(adapter: &Adapter) -> AdapterAttr {
        let hub = adapter.lanes.first();
        let local = &hub.local_address;
        let mtu = local.mtu.min(hub.settings.mtu);
        let device = format!("user-{}", local.netdev);
        let (guid, near, ring) = {
            let state = hub.state.lock();
            let ring = state.ports.socket().ring_counters().is_some();
            (
                state.engine.guid(),
                state.near_dial.door().is_some(),
                if ring { "auto" } else { "off" },
            )
        };
        let near = match (near, hub.settings.near_pull) {
            (true, true) => "auto",
            (true, false) => "copy",
            (false, _) => "off",
        };
        let lanes = adapter.lanes.all().len();
        let named = named_attributes::attributes(local, &device, mtu, guid, near, ring, lanes);
        let mut attr = AdapterAttr::default();
        attr.adapter_name = device;
        attr.vendor_name = "softrxe in user space".into();
        attr.address = local.address;
        attr.max_eps = 16_000;
        attr.max_dto_per_ep = hub.settings.wr_max;
        attr.max_rdma_read_per_ep_in = MAX_READS;
        attr.max_rdma_read_per_ep_out = MAX_READS;
        attr.max_rdma_read_in = 16_000 * MAX_READS;
        attr.max_rdma_read_out = 16_000 * MAX_READS;
        attr.max_evd_qlen = 1 << 20;
        attr.max_iov = MAX_IOV as u32;
        attr.max_iov_rdma_read = MAX_IOV as u32;
        attr.max_iov_rdma_write = MAX_IOV as u32;
        attr.max_lmrs = 1 << 23;
        attr.max_rmrs = 1 << 23;
        attr.max_srqs = 65_536;
        attr.max_ep_per_srq = 16_000;
        attr.max_recv_per_srq = 16_384;
        attr.max_private_data_size = REQ_PRIVATE as u32;
        attr.zero_based = true;
        attr.named = named;
        attr.atomics = true;
        attr.immediate_data = true;
        attr.max_datagram = mtu.into();
        attr.windows = true;
        attr
    }

    fn create_pz(adapter: &Arc<Adapter>) -> Result<Pz> {
        let last = adapter.last_pd.fetch_add(1, Ordering::Relaxed);
        Ok(Pz {
            lanes: Arc::clone(&adapter.lanes),
            pd: proto::Pd(last + 1),
        })
    }

    fn register(
        pz: &Arc<Pz>,
        address: usize,
        length: u64,
        privileges: MemPriv,
        va_type: VaType,
    ) -> Result<(Lmr, Keys)> {
        let writable = privileges
            .intersects(MemPriv::LOCAL_WRITE | MemPriv::REMOTE_WRITE | MemPriv::REMOTE_ATOMIC);
        let range = Range::probe(address, length, writable).map_err(|error| {
            tracing::error!(%error, "cannot register memory");
            Error::of(Kind::PrivilegesViolation)
        })?;
        guard::install();
        let start = match va_type {
            VaType::Va => address as u64,
            VaType::ZeroBased => 0,
        };
        let rights = rights(privileges) | Rights::WINDOW_BIND;
        let lmr = Lmr::register(pz, range, start, rights)?;
        let is_remote = privileges.intersects(MemPriv::REMOTE);
        let keys = Keys {
            lmr_context: lmr.key,
            rmr_context: if is_remote { lmr.key } else { 0 },
        };
        Ok((lmr, keys))
    }

    fn create_rmr(pz: &Arc<Pz>, scope: Scope) -> Result<Rmr> {
        let kind = match scope {
            Scope::Endpoint => WindowType::Type2,
            Scope::Zone => WindowType::Type1,
        };
        Rmr::create(pz, kind)
    }

    fn post_bind(qp: &Qp, bind: &Bind<'_, Self>) -> Result<u32> {
        if bind.va_type == VaType::ZeroBased {
            return Err(Error::of(Kind::ModelNotSupported));
        }
        let wanted = Wanted {
            id: bind.id,
            signaled: bind.signaled,
            fence: bind.fence,
            lkey: bind.lmr.map_or(0, |lmr| lmr.key),
            address: bind.address,
            length: if bind.lmr.is_some() { bind.length } else { 0 },
            rights: rights(bind.rights),
        };
        bind.rmr.post_bind(qp, &wanted)
    }

    fn create_cq(adapter: &Arc<Adapter>, _depth: u32, token: Token) -> Result<Cq> {
        Cq::create(&adapter.lanes, token)
    }

    /// Does nothing: each post reserves room for its completion.
    fn resize_cq(_cq: &Cq, _depth: u32) -> Result<()> {
        Ok(())
    }

    fn poll_cq(cq: &Cq, into: &mut [proto::Completion]) -> usize {
        let (count, after, hub) = cq.poll(into);
        match after {
            AfterPoll::Return => {}
            AfterPoll::Yield => postpone(Postponed::Yield),
            AfterPoll::GiveWay => postpone(Postponed::GiveWay(Arc::downgrade(hub))),
            AfterPoll::Pause => postpone(Postponed::Pause(Arc::downgrade(hub))),
        }
        count
    }

    fn poll_cq_ready(cq: &Cq, into: &mut [proto::Completion]) -> usize {
        cq.take(into)
    }

    fn after_empty_poll() {
        match postponed() {
            Postponed::Nothing => {}
            Postponed::Yield => std::thread::yield_now(),
            Postponed::GiveWay(hub) => {
                if let Some(hub) = hub.upgrade() {
                    hub.give_way();
                }
            }
            Postponed::Pause(hub) => {
                if let Some(hub) = hub.upgrade() {
                    hub.pause();
                }
            }
        }
    }

    #[inline(always)]
    fn outcome(raw: &proto::Completion) -> (WrId, bool) {
        (WrId(raw.wr_id), raw.status == Status::Success)
    }

    #[inline(always)]
    fn data_only_receive(raw: &proto::Completion) -> Option<u32> {
        let data_only =
            raw.op == CompletedOp::Receive && raw.immediate.is_none() && raw.invalidated.is_none();
        data_only.then_some(raw.length)
    }

    fn decode(_cq: &Cq, raw: &proto::Completion) -> Completion {
        completion(raw)
    }

    fn watch_cq(cq: &Cq, on: bool) -> Result<()> {
        cq.watch(on);
        Ok(())
    }

    fn solicited(_cq: &Cq, raw: &proto::Completion) -> Option<bool> {
        Some(raw.solicited)
    }

    fn park(
        adapter: &Adapter,
        cq: Option<&Cq>,
        parker: &Parker,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Parked {
        let parked = match cq {
            Some(cq) => cq.wait(&parker.0, timeout, ready),
            None => adapter
                .lanes
                .first()
                .wait(None, &parker.0, timeout, ready, &|| {}),
        };
        // A wait sleeps by itself. What its polls have postponed is not for the next dequeue to do.
        drop(postponed());
        parked
    }

    fn unpark(parker: &Parker) {
        parker.0.give();
    }

    fn create_srq(pz: &Arc<Pz>, attr: &SrqAttr, token: Token) -> Result<Srq> {
        let lane = pz.lanes.place();
        let hub = &pz.lanes.all()[lane];
        let mut state = hub.state.lock();
        let id = state
            .engine
            .create_srq(attr.max_recv_dtos as usize, attr.max_recv_iov as usize)
            .map_err(create_error)?;
        state.notices.add_srq(id, token);
        Ok(Srq {
            lane,
            hub: Arc::clone(hub),
            id,
        })
    }

    fn resize_srq(srq: &Srq, max_recv: u32) -> Result<()> {
        let mut state = srq.hub.state.lock();
        state.engine.grow_srq(srq.id, max_recv as usize);
        Ok(())
    }

    fn arm_srq_limit(srq: &Srq, low: u32) -> Result<()> {
        srq.hub
            .with(|state, _| state.engine.set_srq_limit(srq.id, low));
        Ok(())
    }

    fn post_srq_recv(srq: &Srq, id: WrId, iov: &[LmrTriplet]) -> Result<()> {
        let mut room = Sges::default();
        let sges = room.convert(iov)?;
        let mut state = srq.hub.lock();
        state
            .engine
            .post_srq_recv(srq.id, id.0, sges)
            .map_err(post_error)
    }

    fn create_qp(
        pz: &Arc<Pz>,
        caps: &QpCaps,
        recv_cq: &Arc<Cq>,
        request_cq: &Arc<Cq>,
        srq: Option<&Arc<Srq>>,
        token: Token,
    ) -> Result<Qp> {
        let lane = srq
            .map(|srq| srq.lane)
            .or_else(|| recv_cq.home_lane())
            .or_else(|| request_cq.home_lane())
            .unwrap_or_else(|| pz.lanes.place());
        let hub = &pz.lanes.all()[lane];
        let init = proto::QpInit {
            kind: if caps.datagram {
                proto::QpKind::Ud
            } else {
                proto::QpKind::Rc
            },
            pd: pz.pd,
            token: token.0,
            send_cq: request_cq.in_lane(lane)?,
            recv_cq: recv_cq.in_lane(lane)?,
            srq: srq.map(|srq| srq.id),
            send_depth: caps.max_request.max(1) as usize,
            recv_depth: caps.max_recv as usize,
            max_sge: caps.max_request_iov.max(caps.max_recv_iov).max(1) as usize,
            access: Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC,
            qkey: QKEY,
        };
        let qpn = hub
            .state
            .lock()
            .engine
            .create_qp(&init)
            .map_err(create_error)?;
        Ok(Qp {
            lane,
            hub: Arc::clone(hub),
            qpn,
            reads_in: caps.rdma_read_in.min(MAX_READS) as u8,
            reads_out: caps.rdma_read_out.min(MAX_READS) as u8,
            datagram: caps.datagram,
            uses: (
                Arc::clone(pz),
                Arc::clone(recv_cq),
                Arc::clone(request_cq),
                srq.cloned(),
            ),
        })
    }

    fn reset_qp(qp: &Qp) -> Result<()> {
        qp.hub.with(|state, now| {
            state.connections.remove_of(qp.qpn);
            state.engine.reset_qp(now, qp.qpn);
            state.engine.memory().unbind_windows_of(qp.qpn);
        });
        Ok(())
    }

    fn post_send(qp: &Qp, from: &Request<'_, Self>) -> Result<()> {
        let mut room = Sges::default();
        let mut request = proto::SendRequest {
            wr_id: from.id.0,
            op: proto::Op::Send,
            sges: room.convert(from.iov)?,
            signaled: from.signaled,
            solicited: from.solicited,
            fence: from.fence,
        };
        // Others than these two are copied, which takes longer.
        match from.op {
            Op::Send => {}
            Op::RdmaWrite(at) => request.op = proto::Op::Write(remote(at)),
            from => request.op = op(from)?,
        }
        if let proto::Op::Datagram { to, .. } = &request.op
            && let Some(posted) = qp.hub.post_datagram(qp.qpn, to, &request)
        {
            return posted.map_err(post_error);
        }
        qp.hub
            .post(qp.qpn, &request, from.length)
            .map_err(post_error)
    }

    fn post_recv(qp: &Qp, id: WrId, iov: &[LmrTriplet]) -> Result<()> {
        match iov {
            // No memory is needed for it.
            [segment] => post_recv(qp, id, &[sge(segment)]),
            _ => {
                let mut room = Sges::default();
                post_recv_several(qp, id, room.convert(iov)?)
            }
        }
    }

    fn listen(
        adapter: &Arc<Adapter>,
        conn_qual: Option<u64>,
        token: Token,
    ) -> Result<(Listener, u64)> {
        connect::listen(adapter.lanes.first(), conn_qual, token)
    }

    fn connect(_adapter: &Arc<Adapter>, qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
        connect::connect(qp, connect)
    }

    fn accept(request: ConnRequest, qp: &Arc<Qp>, token: Token, private_data: &[u8]) -> Result<()> {
        connect::accept(request, qp, token, private_data)
    }

    fn reject(request: ConnRequest, private_data: &[u8]) -> Result<()> {
        connect::reject(request, private_data)
    }

    fn local_port(qp: &Qp) -> u16 {
        connect::local_port(qp)
    }

    fn disconnect(qp: &Qp) {
        connect::disconnect(qp);
    }
}
