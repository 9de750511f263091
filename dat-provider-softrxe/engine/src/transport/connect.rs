//! Service points and connections of core.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_arena::BiasedGuard;
use dat_core::error::{Error, Kind, Result};
use dat_core::transport::{Connect, Token};
use dat_core::upcall::ConnOutcome;
use dat_handshake::rdma_cm::{REJ_PRIVATE, REJ_VERSION, port_of};
use softrxe_port::port_share::is_holder_gone;
use softrxe_proto as proto;
use softrxe_proto::{CmError, CmId, service_id};

use super::convert::{FULL, INTERNAL, cm_error, lack_of_descriptors};
use super::datagram;
use super::objects::{ConnRequest, Listener, Qp};
use crate::adapter::connections::Connection;
use crate::adapter::hub::Hub;
use crate::adapter::ports::cm_address;
use crate::adapter::state::State;
use crate::adapter::upcall::Upcall;

/// Ports that are chosen when the consumer names none.
const DYNAMIC: std::ops::RangeInclusive<u16> = 49_152..=65_535;
/// How long the port may be without a holder before a service cannot be registered, and the interval of the attempts.
const HANDOVER_TIME: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Returns a random dynamic port. It distinguishes peers and protects nothing.
fn dynamic_port() -> Result<u16> {
    let random = getrandom::u32().map_err(|error| {
        tracing::error!(%error, "no random port; permit getrandom(2), for example in the seccomp filter");
        INTERNAL
    })?;
    Ok(DYNAMIC.start() + random as u16 % (DYNAMIC.end() - DYNAMIC.start() + 1))
}

/// Claims a service id of the adapter's address. Returns `false` if it is in use. Waits up to [`HANDOVER_TIME`] while the port has no
/// holder.
fn claim(hub: &Hub, state: &mut BiasedGuard<'_, State>, service_id: u64) -> Result<bool> {
    if state.connections.lingering.remove(&service_id) {
        return Ok(true);
    }
    let begin = Instant::now();
    loop {
        match state.ports.claim_service(service_id) {
            Ok(claimed) => return Ok(claimed),
            Err(error) if is_holder_gone(&error) && begin.elapsed() < HANDOVER_TIME => {
                // The helper thread finds the next holder of the port.
                hub.wakers.helper.signal();
                state.unlocked(|| std::thread::sleep(RETRY_INTERVAL));
            }
            Err(error) => {
                let remedy = remedy(&error);
                tracing::error!(%error, service_id, "cannot register a service at UDP port 4791; {remedy}");
                return Err(FULL);
            }
        }
    }
}

/// Returns what to do where a service cannot be registered.
fn remedy(error: &io::Error) -> &'static str {
    lack_of_descriptors(error).unwrap_or("check the process that has the port (`ss -lunp`)")
}

/// Returns why datagram queue pairs cannot connect to a listener, by the claim of their service.
const fn without_datagrams(claimed: &Result<bool>) -> &'static str {
    match claimed {
        Ok(false) => {
            "the port of this number in the UDP port space is in use; choose another qualifier for datagrams"
        }
        // The error before this one says why.
        Ok(true) | Err(_) => "the service for datagrams was not registered",
    }
}

/// Claims `conn_qual`, or a free dynamic one, and returns it.
///
/// The search begins anywhere. The first free one would often be one that another process has just released, and a REQ for that process
/// that is sent once more would ask this one for a connection.
fn claim_qual(
    hub: &Hub,
    state: &mut BiasedGuard<'_, State>,
    conn_qual: Option<u64>,
) -> Result<u64> {
    let mut claims = |qual| claim(hub, state, service_id::tcp(port_of(qual)));
    if let Some(qual) = conn_qual {
        return match claims(qual)? {
            true => Ok(qual),
            false => Err(Error::of(Kind::ConnQualInUse)),
        };
    }
    let begin = dynamic_port()?;
    for port in (begin..=*DYNAMIC.end()).chain(*DYNAMIC.start()..begin) {
        if claims(port.into())? {
            return Ok(port.into());
        }
    }
    Err(Error::of(Kind::ConnQualUnavailable))
}

/// Listens on a connection qualifier, or on a dynamic one if there is none.
pub(super) fn listen(
    hub: &Arc<Hub>,
    conn_qual: Option<u64>,
    token: Token,
) -> Result<(Listener, u64)> {
    let mut state = hub.state.lock();
    let qual = claim_qual(hub, &mut state, conn_qual)?;
    let service = service_id::tcp(port_of(qual));
    if let Err(error) = state.engine.listen(service) {
        hub.release_service(&mut state, service);
        return Err(cm_error(error));
    }
    state.connections.add_service(service, token);
    let mut service_ids = vec![service];
    // Datagram queue pairs connect to another service id. Without that, only connections arrive here.
    let datagrams = service_id::udp(port_of(qual));
    let claimed = claim(hub, &mut state, datagrams);
    if let Ok(true) = claimed {
        if state.engine.listen(datagrams).is_ok() {
            state.connections.add_service(datagrams, token);
            service_ids.push(datagrams);
        } else {
            hub.release_service(&mut state, datagrams);
        }
    }
    if service_ids.len() == 1 {
        let reason = without_datagrams(&claimed);
        tracing::warn!(qual, "listening for connections only: {reason}");
    }
    let listener = Listener {
        hub: Arc::clone(hub),
        service_ids,
    };
    Ok((listener, qual))
}

/// Records the connection `id` of `qp`. Its events go to `token` from then on.
fn add(state: &mut State, id: CmId, qp: &Qp, token: Token, port: u16, passive: bool) {
    let connection = Connection {
        token,
        qpn: qp.qpn,
        port,
        passive,
        established: false,
        local_peer: state.connections.remove_caller(id),
    };
    state.connections.add(id, connection);
}

/// Starts to connect. An upcall reports the outcome.
pub(super) fn connect(qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
    let port = port_of(connect.conn_qual);
    if qp.datagram {
        return datagram::query(qp, connect, port, dynamic_port()?);
    }
    let service = service_id::tcp(port);
    let remote = cm_address(connect.remote);
    let mut request = proto::Connect::new(remote, service, connect.private_data);
    request.source_port = dynamic_port()?;
    request.initiator_depth = qp.reads_out;
    request.responder_resources = qp.reads_in;
    request.retry_count = qp.hub.settings.retry;
    request.rnr_retry = qp.hub.settings.rnr_retry;
    qp.hub.with(|state, now| {
        let id = state.engine.connect(now, qp.qpn, &request);
        let id = id.map_err(cm_error)?;
        add(state, id, qp, connect.token, request.source_port, false);
        Ok(())
    })
}

/// Accepts `request` with `qp`. If the peer has given up, an upcall reports that.
pub(super) fn accept(
    mut request: ConnRequest,
    qp: &Arc<Qp>,
    token: Token,
    private_data: &[u8],
) -> Result<()> {
    if let Some(caller) = request.caller {
        return datagram::answer(&mut request, caller, qp, token, private_data);
    }
    let moved = request.move_to(&qp.hub);
    let id = request.id;
    if moved.is_ok() {
        qp.hub.await_channel_of(id);
    }
    let mut answer = proto::Accept::new(private_data);
    answer.initiator_depth = qp.reads_out;
    answer.responder_resources = qp.reads_in;
    answer.rnr_retry = qp.hub.settings.rnr_retry;
    let accepted = qp.hub.with(|state, now| {
        match moved.and_then(|()| state.engine.accept(now, id, qp.qpn, &answer)) {
            Ok(()) => {
                add(state, id, qp, token, request.port, true);
                Ok(())
            }
            // The peer gave up before it was answered, or connects anew.
            Err(CmError::UnknownId(_) | CmError::State { .. } | CmError::Stale(_)) => {
                state.connections.remove_caller(id);
                let upcall = Upcall::outcome(token, ConnOutcome::AcceptError);
                state.pending.upcalls.push_back(upcall);
                Ok(())
            }
            Err(error) => Err(cm_error(error)),
        }
    });
    request.answered |= accepted.is_ok();
    accepted
}

/// Rejects `request` on behalf of the consumer.
pub(super) fn reject(mut request: ConnRequest, private_data: &[u8]) -> Result<()> {
    if private_data.len() > REJ_PRIVATE {
        return Err(Error::of(Kind::InvalidParameter));
    }
    let mut data = REJ_VERSION.to_vec();
    data.extend_from_slice(private_data);
    request.refuse(&data);
    Ok(())
}

/// Returns the port of this side that the peer sees; 0 without a connection.
pub(super) fn local_port(qp: &Qp) -> u16 {
    let state = qp.hub.state.lock();
    state.connections.port_of(qp.qpn).unwrap_or(0)
}

/// Ends the connection of `qp`, if there is one, and flushes its requests.
pub(super) fn disconnect(qp: &Qp) {
    qp.hub.with(|state, now| {
        state.connections.end_queries(&mut state.engine, qp.qpn);
        if let Some(id) = state.connections.id_of(qp.qpn) {
            // Fails if the connection has ended meanwhile.
            let _ = state.engine.disconnect(now, id);
        }
        // Requests are flushed even if there never was a connection, or the peer refused it.
        state.engine.fail_qp(now, qp.qpn);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_is_not_a_port_in_use() {
        let remedy_of = |code| remedy(&io::Error::from_raw_os_error(code));
        assert!(remedy_of(libc::EMFILE).contains("`ulimit -n`"));
        assert!(remedy_of(libc::ENFILE).contains("fs.file-max"));
        assert!(remedy_of(libc::ECONNREFUSED).contains("`ss -lunp`"));

        assert!(without_datagrams(&Ok(false)).contains("in use"));
        assert!(!without_datagrams(&Err(FULL)).contains("in use"));
    }
}
