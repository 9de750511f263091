//! Connections, as core asks for them: by the engine's connection manager, and by the names that this host's processes share.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_core::error::{Error, Kind, Result};
use dat_core::transport::{Connect, Token};
use dat_core::upcall::ConnOutcome;
use dat_handshake::rdma_cm::{REJ_PRIVATE, REJ_VERSION, port_of};
use parking_lot::MutexGuard;
use softrxe_proto as proto;
use softrxe_proto::{CmError, CmId, service_id};

use super::convert::FULL;
use super::datagram;
use super::events::Job;
use super::hub::{Connection, Hub, State, manager};
use super::net::message::Destination;
use super::net::port_share::{Service, is_holder_gone};
use super::objects::{ConnRequest, Listener, Qp};

/// Ports that are given out when the consumer names none.
const DYNAMIC: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// One of them, for the side that asks. It tells peers apart and protects nothing.
fn source_port() -> Result<u16> {
    let random = getrandom::u32().map_err(|error| {
        tracing::error!(%error, "the kernel gives no random numbers");
        GONE
    })?;
    Ok(DYNAMIC.start() + random as u16 % (DYNAMIC.end() - DYNAMIC.start() + 1))
}
/// How long the port may be without a holder before a service cannot be registered, and the pause between two looks.
const SUCCESSION: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(1);

const GONE: Error = Error::of(Kind::InternalError);

fn managed(error: CmError) -> Error {
    tracing::warn!(%error, "connection manager");
    match error {
        CmError::PrivateData { .. } => Error::of(Kind::InvalidParameter),
        CmError::ServiceInUse(_) => Error::of(Kind::ConnQualInUse),
        CmError::Family(_) => Error::of(Kind::InvalidAddress),
        CmError::NoMemory => Error::of(Kind::InsufficientResources),
        _ => GONE,
    }
}

/// Takes a service id of the adapter's address. `None`: it is in use.
fn take(hub: &Hub, state: &mut MutexGuard<'_, State>, service_id: u64) -> Result<Option<Service>> {
    if state.services.contains_key(&service_id) {
        return Ok(None);
    }
    let begin = Instant::now();
    loop {
        match state.share.claim_service(hub.place.address, service_id) {
            Ok(service) => return Ok(Some(service)),
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Ok(None),
            Err(error) if is_holder_gone(&error) && begin.elapsed() < SUCCESSION => {
                // The helper thread finds the next holder of the port.
                hub.wake.ring();
                MutexGuard::unlocked(state, || std::thread::sleep(LOOK));
            }
            Err(error) => {
                tracing::error!(%error, service_id, "cannot register a service at UDP port 4791");
                return Err(FULL);
            }
        }
    }
}

/// The first connection qualifier of the dynamic ones that is free.
fn any(hub: &Hub, state: &mut MutexGuard<'_, State>) -> Result<(u64, Service)> {
    for qual in DYNAMIC.map(u64::from) {
        if let Some(service) = take(hub, state, service_id::tcp(port_of(qual)))? {
            return Ok((qual, service));
        }
    }
    Err(Error::of(Kind::ConnQualUnavailable))
}

/// Listens on a connection qualifier, or on one of its own choice.
pub(super) fn listen(
    hub: &Arc<Hub>,
    conn_qual: Option<u64>,
    token: Token,
) -> Result<(Listener, u64)> {
    let mut state = hub.state.lock();
    let (qual, service) = match conn_qual {
        Some(qual) => {
            let taken = take(hub, &mut state, service_id::tcp(port_of(qual)))?;
            (qual, taken.ok_or(Error::of(Kind::ConnQualInUse))?)
        }
        None => any(hub, &mut state)?,
    };
    let service_id = service_id::tcp(port_of(qual));
    let listens = state.engine.listen(service_id);
    if listens.is_err() {
        state.share.release(Destination::Service(service_id));
    }
    listens.map_err(managed)?;
    state.services.insert(service_id, (token, service));
    let mut service_ids = vec![service_id];
    // Datagram queue pairs ask for another one. Somebody else may have it; then only connections come in here.
    let datagrams = service_id::udp(port_of(qual));
    match take(hub, &mut state, datagrams) {
        Ok(Some(service)) if state.engine.listen(datagrams).is_ok() => {
            state.services.insert(datagrams, (token, service));
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

/// From now on events of `id` are told to `token`.
fn enter(state: &mut State, id: CmId, qp: &Qp, token: Token, port: u16, passive: bool) {
    let connection = Connection {
        token,
        qpn: qp.qpn,
        port,
        passive,
        established: false,
        neighbour: state.callers.remove(&id),
    };
    state.connections.insert(id, connection);
    state.by_qpn.insert(qp.qpn, id);
}

/// Starts an attempt; what becomes of it, an upcall says.
pub(super) fn connect(qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
    let port = port_of(connect.conn_qual);
    if qp.datagram {
        return datagram::ask(qp, connect, port, source_port()?).map_err(managed);
    }
    let service = service_id::tcp(port);
    let mut asked = proto::Connect::new(manager(connect.remote), service, connect.private_data);
    asked.source_port = source_port()?;
    asked.initiator_depth = qp.reads_out;
    asked.responder_resources = qp.reads_in;
    asked.retry_count = qp.hub.settings.retry;
    asked.rnr_retry = qp.hub.settings.rnr_retry;
    qp.hub.with(|state, now| {
        let id = state.engine.connect(now, qp.qpn, &asked).map_err(managed)?;
        enter(state, id, qp, connect.token, asked.source_port, false);
        Ok(())
    })
}

/// Accepts; a peer that is no longer there is an upcall, too.
pub(super) fn accept(
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
                enter(state, id, qp, token, request.port, true);
                Ok(())
            }
            // The peer gave up before it was answered, or began anew.
            Err(CmError::UnknownId(_) | CmError::State { .. }) => {
                state.callers.remove(&id);
                state.jobs.push_back(Job::Connection(
                    token,
                    ConnOutcome::AcceptError,
                    Box::default(),
                ));
                Ok(())
            }
            Err(error) => Err(managed(error)),
        }
    });
    request.answered = accepted.is_ok();
    accepted
}

/// Rejects, as the consumer says.
pub(super) fn reject(mut request: ConnRequest, private_data: &[u8]) -> Result<()> {
    if private_data.len() > REJ_PRIVATE {
        return Err(Error::of(Kind::InvalidParameter));
    }
    let mut data = REJ_VERSION.to_vec();
    data.extend_from_slice(private_data);
    request.refuse(&data);
    Ok(())
}

/// The port that the peer sees; 0 without a connection.
pub(super) fn local_port(qp: &Qp) -> u16 {
    let state = qp.hub.state.lock();
    let id = state.by_qpn.get(&qp.qpn);
    id.and_then(|id| state.connections.get(id))
        .map_or(0, |connection| connection.port)
}

/// Ends the connection, if there is one, and what is posted.
pub(super) fn disconnect(qp: &Qp) {
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
