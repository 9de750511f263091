//! [`UserEngine`]: the answers to what core asks of a transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dat_core::arenas::Arenas;
use dat_core::attr::{AdapterAttr, SrqAttr};
use dat_core::counters::IaCounter;
use dat_core::error::{Error, Kind, Result};
use dat_core::event::{DtoOp, DtoStatus};
use dat_core::flags::{MemPriv, VaType};
use dat_core::ia_params::IaParams;
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::rmr::Scope;
use dat_core::transport::{
    Bind, Completion, Connect, Keys, Op, Parked, QpCaps, Request, Token, Transport, WrId,
};
use dat_core::upcall::Upcalls;
use softrxe_proto as proto;
use softrxe_proto::{
    CmError, CompletedOp, DatagramPeer, MwBind, PostError, Qpn, Remote, Rights, Sge, Status,
    WindowType, service_id,
};

use super::datagram::{self, AddressHandle};
use super::events::{Input, Job, REJ_VERSION};
use super::hub::{Connection, CqNotice, manager};
use super::memory::foreign::Range;
use super::memory::regions::Regions;
use super::named;
use super::net::door::Mailbox;
use super::objects::{Adapter, ConnRequest, Cq, Listener, Lmr, Pz, Qp, Rmr, Srq};
use super::park::Parker;

/// Segments of a request or receive.
const MAX_IOV: usize = 16;
/// RDMA Reads and atomics of a connection, each way.
const MAX_READS: u32 = 16;
/// Bytes of private data in a request, an acceptance, a refusal.
const REQ_PRIVATE: usize = 56;
const REJ_PRIVATE: usize = 108;
/// Ports that are given out when the consumer names none.
const DYNAMIC: std::ops::RangeInclusive<u16> = 49_152..=65_535;

const FULL: Error = Error::of(Kind::InsufficientResources);
const GONE: Error = Error::of(Kind::InternalError);

/// RoCEv2 in this process.
#[derive(Debug)]
pub struct UserEngine;

/// The port of a connection qualifier; qualifiers beyond 16 bits are folded as DAPL folds them.
const fn port_of(conn_qual: u64) -> u16 {
    if conn_qual <= 0xffff {
        conn_qual as u16
    } else {
        (conn_qual % 32001 + 33534) as u16
    }
}

fn rights(of: MemPriv) -> Rights {
    let mut rights = Rights::LOCAL_READ;
    for (from, to) in [
        (MemPriv::LOCAL_WRITE, Rights::LOCAL_WRITE),
        (MemPriv::REMOTE_READ, Rights::REMOTE_READ),
        (MemPriv::REMOTE_WRITE, Rights::REMOTE_WRITE),
        (MemPriv::REMOTE_ATOMIC, Rights::REMOTE_ATOMIC),
    ] {
        if of.contains(from) {
            rights |= to;
        }
    }
    rights
}

fn sges<'a>(iov: &[LmrTriplet], into: &'a mut [Sge; MAX_IOV]) -> Result<&'a [Sge]> {
    let used = into.get_mut(..iov.len()).ok_or(FULL)?;
    for (sge, segment) in used.iter_mut().zip(iov) {
        *sge = Sge {
            address: segment.virtual_address,
            length: segment.segment_length,
            key: segment.lmr_context,
        };
    }
    Ok(used)
}

const fn remote(at: RmrTriplet) -> Remote {
    Remote {
        address: at.virtual_address,
        key: at.rmr_context,
    }
}

fn posted(error: PostError) -> Error {
    tracing::debug!(%error, "not posted");
    match error {
        PostError::Full(_) | PostError::TooManySges { .. } => FULL,
        PostError::State(_) => Error::of(Kind::InvalidState),
        PostError::Unsupported(_) => Error::of(Kind::NotImplemented),
        _ => Error::of(Kind::InvalidParameter),
    }
}

fn managed(error: CmError) -> Error {
    tracing::warn!(%error, "connection manager");
    match error {
        CmError::PrivateData { .. } => Error::of(Kind::InvalidParameter),
        CmError::ServiceInUse(_) => Error::of(Kind::ConnQualInUse),
        CmError::Family(_) => Error::of(Kind::InvalidAddress),
        _ => GONE,
    }
}

const fn status(of: Status) -> DtoStatus {
    match of {
        Status::Success => DtoStatus::Success,
        Status::LocalLength => DtoStatus::LocalLength,
        Status::LocalProtection => DtoStatus::LocalProtection,
        Status::LocalOperation => DtoStatus::LocalEp,
        Status::Flushed => DtoStatus::Flushed,
        Status::MemoryWindowBind => DtoStatus::RmrOperationFailed,
        Status::RemoteAccess => DtoStatus::RemoteAccess,
        Status::RemoteInvalidRequest | Status::RemoteOperation => DtoStatus::RemoteResponder,
        Status::RetryExceeded => DtoStatus::Transport,
        Status::RnrRetryExceeded => DtoStatus::ReceiverNotReady,
    }
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
        super::open::open(ia_name, params, upcalls)
    }

    fn device_counters(adapter: &Adapter) -> Vec<(IaCounter, u64)> {
        let counted = adapter.hub.state.lock().engine.counters();
        vec![
            (IaCounter::LnkErrRcv, counted.malformed + counted.bad_icrc),
            (
                IaCounter::LnkErrRcvConstraint,
                counted.foreign + counted.unknown_qp,
            ),
            (IaCounter::DiagErrRqRae, counted.refused),
            (IaCounter::DiagErrRqOos, counted.out_of_sequence),
            (IaCounter::DiagErrRqUdsdprd, counted.ud_dropped),
            (IaCounter::DiagErrSqOos, counted.go_backs),
        ]
    }

    fn attributes(adapter: &Adapter) -> AdapterAttr {
        let place = &adapter.hub.place;
        let mtu = place.mtu.min(adapter.hub.settings.mtu);
        let device = format!("user-{}", place.netdev);
        let guid = adapter.hub.state.lock().engine.guid();
        let named = named::attributes(place, &device, mtu, guid);
        AdapterAttr {
            adapter_name: device,
            vendor_name: "softrxe in user space".into(),
            hardware_version: (1, 0),
            firmware_version: (1, 0),
            address: place.address,
            scope_id: 0,
            max_eps: 16_000,
            max_dto_per_ep: adapter.hub.settings.wr_max,
            max_rdma_read_per_ep_in: MAX_READS,
            max_rdma_read_per_ep_out: MAX_READS,
            max_rdma_read_in: 16_000 * MAX_READS,
            max_rdma_read_out: 16_000 * MAX_READS,
            max_evds: 65_536,
            max_evd_qlen: 1 << 20,
            max_iov: MAX_IOV as u32,
            max_iov_rdma_read: MAX_IOV as u32,
            max_iov_rdma_write: MAX_IOV as u32,
            max_lmrs: 1 << 23,
            max_lmr_block_size: 1 << 40,
            max_lmr_virtual_address: u64::MAX,
            max_pzs: 65_536,
            max_message_size: 1 << 31,
            max_rdma_size: 1 << 31,
            max_rmrs: 1 << 23,
            max_srqs: 65_536,
            max_ep_per_srq: 16_000,
            max_recv_per_srq: 16_384,
            max_private_data_size: REQ_PRIVATE as u32,
            zero_based: true,
            named,
            atomics: true,
            immediate_data: true,
            max_datagram: mtu.into(),
            windows: true,
        }
    }

    fn create_pz(adapter: &Arc<Adapter>) -> Result<Pz> {
        let mut state = adapter.hub.state.lock();
        state.next += 1;
        Ok(Pz {
            hub: Arc::clone(&adapter.hub),
            pd: proto::Pd(state.next),
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
            tracing::error!(%error, "dat_lmr_create");
            Error::of(Kind::PrivilegesViolation)
        })?;
        let start = match va_type {
            VaType::Va => address as u64,
            VaType::ZeroBased => 0,
        };
        let state = pz.hub.state.lock();
        let key = state
            .engine
            .memory()
            .register(
                range,
                start,
                rights(privileges) | Rights::WINDOW_BIND,
                pz.pd,
            )
            .ok_or(FULL)?;
        let is_remote = privileges.intersects(MemPriv::REMOTE);
        let lmr = Lmr {
            hub: Arc::clone(&pz.hub),
            key,
        };
        let keys = Keys {
            lmr_context: key,
            rmr_context: if is_remote { key } else { 0 },
        };
        Ok((lmr, keys))
    }

    fn create_rmr(pz: &Arc<Pz>, scope: Scope) -> Result<Rmr> {
        let kind = match scope {
            Scope::Endpoint => WindowType::Type2,
            Scope::Zone => WindowType::Type1,
        };
        let state = pz.hub.state.lock();
        let made = state.engine.memory().create_window(kind, pz.pd);
        Ok(Rmr {
            hub: Arc::clone(&pz.hub),
            kind,
            key: AtomicU32::new(made.ok_or(FULL)?),
        })
    }

    fn post_bind(qp: &Qp, bind: &Bind<'_, Self>) -> Result<u32> {
        if bind.va_type == VaType::ZeroBased {
            return Err(Error::of(Kind::ModelNotSupported));
        }
        // Binds of one window are serialised by core; what is posted becomes the key in the order of posting.
        let old_key = bind.rmr.key.load(Ordering::Acquire);
        let new_key = Regions::next_key(old_key);
        let window = MwBind {
            old_key,
            new_key,
            lkey: bind.lmr.map_or(0, |lmr| lmr.key),
            address: bind.address,
            length: if bind.lmr.is_some() { bind.length } else { 0 },
            rights: rights(bind.rights),
            kind: bind.rmr.kind,
        };
        let mut request = proto::SendRequest::new(bind.id.0, proto::Op::Bind(window), &[]);
        request.signaled = bind.signaled;
        request.fence = bind.fence;
        qp.hub
            .with(|state, now| state.engine.post_send(now, qp.qpn, &request))
            .map_err(posted)?;
        bind.rmr.key.store(new_key, Ordering::Release);
        Ok(new_key)
    }

    fn create_cq(adapter: &Arc<Adapter>, depth: u32, token: Token) -> Result<Cq> {
        let mut state = adapter.hub.state.lock();
        let id = state.engine.create_cq(depth as usize);
        let notice = CqNotice {
            token,
            ..CqNotice::default()
        };
        state.cqs.insert(id, notice);
        Ok(Cq {
            hub: Arc::clone(&adapter.hub),
            id,
        })
    }

    fn resize_cq(cq: &Cq, depth: u32) -> Result<()> {
        cq.hub.state.lock().engine.resize_cq(cq.id, depth as usize);
        Ok(())
    }

    fn poll_cq(cq: &Cq, into: &mut [proto::Completion]) -> usize {
        cq.hub.poll(cq.id, into)
    }

    #[inline(always)]
    fn outcome(raw: &proto::Completion) -> (WrId, bool) {
        (WrId(raw.wr_id), raw.status == Status::Success)
    }

    #[inline(always)]
    fn plain_receive(raw: &proto::Completion) -> Option<u32> {
        let plain =
            raw.op == CompletedOp::Receive && raw.immediate.is_none() && raw.invalidated.is_none();
        plain.then_some(raw.length)
    }

    fn decode(_cq: &Cq, raw: &proto::Completion) -> Completion {
        let op = match (raw.op, raw.immediate, raw.invalidated) {
            (CompletedOp::Receive, Some(_), _) => DtoOp::ReceiveMessageImmediate,
            (CompletedOp::Receive, _, Some(_)) => DtoOp::ReceiveWithInvalidate,
            (CompletedOp::Receive, ..) => DtoOp::Receive,
            (CompletedOp::ReceiveWriteImm, ..) => DtoOp::ReceiveRdmaImmediate,
            (CompletedOp::Send, ..) => DtoOp::Send,
            (CompletedOp::Write, ..) => DtoOp::RdmaWrite,
            (CompletedOp::Read, ..) => DtoOp::RdmaRead,
            (CompletedOp::CompareSwap, ..) => DtoOp::CompareSwap,
            (CompletedOp::FetchAdd, ..) => DtoOp::FetchAdd,
            (CompletedOp::LocalInvalidate, ..) => DtoOp::LmrInvalidate,
            (CompletedOp::Bind, ..) => DtoOp::BindMw,
        };
        Completion {
            id: WrId(raw.wr_id),
            status: status(raw.status),
            op,
            length: raw.length,
            immediate: raw.immediate.map_or(0, u32::from_ne_bytes),
            invalidated: raw.invalidated.unwrap_or(0),
            ep: Token(raw.token),
        }
    }

    fn watch_cq(cq: &Cq, on: bool) -> Result<()> {
        cq.hub.with(|state, _| {
            if let Some(notice) = state.cqs.get_mut(&cq.id) {
                notice.watched = on;
            }
            if on {
                state.engine.arm_cq(cq.id);
            }
        });
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
        let id = cq.map(|cq| cq.id);
        adapter.hub.wait(id, &parker.0, timeout, ready)
    }

    fn unpark(parker: &Parker) {
        parker.0.ring();
    }

    fn create_srq(pz: &Arc<Pz>, attr: &SrqAttr, token: Token) -> Result<Srq> {
        let mut state = pz.hub.state.lock();
        let id = state
            .engine
            .create_srq(attr.max_recv_dtos as usize, attr.max_recv_iov as usize);
        state.srqs.insert(id, token);
        Ok(Srq {
            hub: Arc::clone(&pz.hub),
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
        let mut room = [Sge::default(); MAX_IOV];
        let sges = sges(iov, &mut room)?;
        let mut state = srq.hub.state.lock();
        state
            .engine
            .post_srq_recv(srq.id, id.0, sges)
            .map_err(posted)
    }

    fn create_qp(
        pz: &Arc<Pz>,
        caps: &QpCaps,
        recv_cq: &Arc<Cq>,
        request_cq: &Arc<Cq>,
        srq: Option<&Arc<Srq>>,
        token: Token,
    ) -> Result<Qp> {
        let init = proto::QpInit {
            kind: if caps.datagram {
                proto::QpKind::Ud
            } else {
                proto::QpKind::Rc
            },
            pd: pz.pd,
            token: token.0,
            send_cq: request_cq.id,
            recv_cq: recv_cq.id,
            srq: srq.map(|srq| srq.id),
            send_depth: caps.max_request.max(1) as usize,
            recv_depth: caps.max_recv as usize,
            max_sge: caps.max_request_iov.max(caps.max_recv_iov).max(1) as usize,
            access: Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC,
            qkey: datagram::QKEY,
        };
        let qpn = pz
            .hub
            .state
            .lock()
            .engine
            .create_qp(&init)
            .map_err(|error| {
                tracing::warn!(%error, "queue pair");
                FULL
            })?;
        Ok(Qp {
            hub: Arc::clone(&pz.hub),
            qpn,
            reads_in: caps.rdma_read_in.min(MAX_READS) as u8,
            reads_out: caps.rdma_read_out.min(MAX_READS) as u8,
            datagram: caps.datagram,
            _uses: (
                Arc::clone(pz),
                Arc::clone(recv_cq),
                Arc::clone(request_cq),
                srq.cloned(),
            ),
        })
    }

    fn reset_qp(qp: &Qp) -> Result<()> {
        qp.hub.with(|state, now| {
            if let Some(id) = state.by_qpn.remove(&qp.qpn) {
                state.connections.remove(&id);
            }
            state.engine.reset_qp(now, qp.qpn);
            state.engine.memory().forget_queue_pair(qp.qpn);
        });
        Ok(())
    }

    fn post_send(qp: &Qp, request: &Request<'_, Self>) -> Result<()> {
        let op = match request.op {
            Op::Send => proto::Op::Send,
            Op::SendWithInvalidate(key) => proto::Op::SendInvalidate(key),
            Op::SendWithImmediate(data) => proto::Op::SendImm(data.to_ne_bytes()),
            Op::RdmaWrite(at) => proto::Op::Write(remote(at)),
            Op::RdmaWriteWithImmediate(at, data) => {
                proto::Op::WriteImm(remote(at), data.to_ne_bytes())
            }
            Op::RdmaRead(at) => proto::Op::Read(remote(at)),
            Op::CompareSwap {
                remote: at,
                compare,
                swap,
            } => proto::Op::CompareSwap {
                remote: remote(at),
                compare,
                swap,
            },
            Op::FetchAdd { remote: at, add } => proto::Op::FetchAdd {
                remote: remote(at),
                add,
            },
            Op::SendUd { to, qpn } => proto::Op::Datagram {
                to: DatagramPeer {
                    address: to.address,
                    qpn: Qpn::new(qpn),
                    qkey: to.qkey,
                },
                immediate: None,
            },
        };
        let mut room = [Sge::default(); MAX_IOV];
        let request = proto::SendRequest {
            wr_id: request.id.0,
            op,
            sges: sges(request.iov, &mut room)?,
            signaled: request.signaled,
            solicited: request.solicited,
            fence: request.fence,
        };
        qp.hub.post(qp.qpn, &request).map_err(posted)
    }

    fn post_recv(qp: &Qp, id: WrId, iov: &[LmrTriplet]) -> Result<()> {
        let mut room = [Sge::default(); MAX_IOV];
        let sges = sges(iov, &mut room)?;
        let mut state = qp.hub.state.lock();
        state.engine.post_recv(qp.qpn, id.0, sges).map_err(posted)?;
        // A queue pair in Error flushes it at once.
        qp.hub.collect(&mut state);
        qp.hub.call(&mut state);
        Ok(())
    }

    fn listen(
        adapter: &Arc<Adapter>,
        conn_qual: Option<u64>,
        token: Token,
    ) -> Result<(Listener, u64)> {
        let hub = &adapter.hub;
        let ip = hub.place.address;
        let claim = |qual: u64| Mailbox::service(ip, service_id::tcp(port_of(qual)));
        let (qual, mailbox) = match conn_qual {
            Some(qual) => (
                qual,
                claim(qual).map_err(|_| Error::of(Kind::ConnQualInUse))?,
            ),
            None => DYNAMIC
                .map(u64::from)
                .find_map(|qual| claim(qual).ok().map(|mailbox| (qual, mailbox)))
                .ok_or(Error::of(Kind::ConnQualUnavailable))?,
        };
        let service_id = service_id::tcp(port_of(qual));
        hub.watch(&mailbox).map_err(|_| FULL)?;
        let mut state = hub.state.lock();
        state.engine.listen(service_id).map_err(managed)?;
        state.services.insert(service_id, (token, mailbox));
        let mut service_ids = vec![service_id];
        // Datagram queue pairs ask for another one. Somebody else may have it; then only connections come in here.
        let datagrams = service_id::udp(port_of(qual));
        match Mailbox::service(ip, datagrams) {
            Ok(mailbox)
                if hub.watch(&mailbox).is_ok() && state.engine.listen(datagrams).is_ok() =>
            {
                state.services.insert(datagrams, (token, mailbox));
                service_ids.push(datagrams);
            }
            _ => tracing::warn!(qual, "no datagram peers at this qualifier: it is in use"),
        }
        let listener = Listener {
            hub: Arc::clone(hub),
            service_ids,
        };
        Ok((listener, qual))
    }

    fn connect(_adapter: &Arc<Adapter>, qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
        let port = port_of(connect.conn_qual);
        if qp.datagram {
            let source_port = fastrand::u16(DYNAMIC);
            return datagram::ask(qp, connect, port, source_port).map_err(managed);
        }
        let service = service_id::tcp(port);
        let mut asked = proto::Connect::new(manager(connect.remote), service, connect.private_data);
        asked.source_port = fastrand::u16(DYNAMIC);
        asked.initiator_depth = qp.reads_out;
        asked.responder_resources = qp.reads_in;
        asked.retry_count = qp.hub.settings.retry;
        asked.rnr_retry = qp.hub.settings.rnr_retry;
        qp.hub.with(|state, now| {
            let id = state.engine.connect(now, qp.qpn, &asked).map_err(managed)?;
            let connection = Connection {
                token: connect.token,
                port: asked.source_port,
                passive: false,
                established: false,
                neighbour: None,
            };
            state.connections.insert(id, connection);
            state.by_qpn.insert(qp.qpn, id);
            Ok(())
        })
    }

    fn accept(
        mut request: ConnRequest,
        qp: &Arc<Qp>,
        token: Token,
        private_data: &[u8],
    ) -> Result<()> {
        if let Some(caller) = request.caller {
            let answered = datagram::answer(&mut request, caller, qp, token, private_data);
            return answered.map_err(managed);
        }
        let id = request.id;
        let mut answer = proto::Accept::new(private_data);
        answer.initiator_depth = qp.reads_out;
        answer.responder_resources = qp.reads_in;
        answer.rnr_retry = qp.hub.settings.rnr_retry;
        let accepted = qp.hub.with(|state, now| {
            match state.engine.accept(now, id, qp.qpn, &answer) {
                Ok(()) => {
                    let connection = Connection {
                        token,
                        port: request.port,
                        passive: true,
                        established: false,
                        neighbour: None,
                    };
                    state.connections.insert(id, connection);
                    state.by_qpn.insert(qp.qpn, id);
                    Ok(())
                }
                // The peer gave up before it was answered, or began anew.
                Err(CmError::UnknownId(_) | CmError::State { .. }) => {
                    state
                        .jobs
                        .push_back(Job::Connection(token, Input::AcceptError));
                    Ok(())
                }
                Err(error) => Err(managed(error)),
            }
        });
        request.answered = accepted.is_ok();
        accepted
    }

    fn reject(mut request: ConnRequest, private_data: &[u8]) -> Result<()> {
        if private_data.len() > REJ_PRIVATE {
            return Err(Error::of(Kind::InvalidParameter));
        }
        let mut data = REJ_VERSION.to_vec();
        data.extend_from_slice(private_data);
        request.refuse(&data);
        Ok(())
    }

    fn local_port(qp: &Qp) -> u16 {
        let state = qp.hub.state.lock();
        let id = state.by_qpn.get(&qp.qpn);
        id.and_then(|id| state.connections.get(id))
            .map_or(0, |connection| connection.port)
    }

    fn disconnect(qp: &Qp) {
        qp.hub.with(|state, now| {
            datagram::forget(state, qp.qpn);
            if let Some(id) = state.by_qpn.get(&qp.qpn).copied() {
                // It may have ended meanwhile.
                let _ = state.engine.disconnect(now, id);
            }
            // Also where it never got to a connection, or the peer refused: what is posted flushes all the same.
            state.engine.fail_qp(now, qp.qpn);
        });
    }
}
