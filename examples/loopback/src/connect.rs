//! Service points, connection requests, and the begin and end of connections.

use std::net::IpAddr;

use dat_core::error::{Error, Kind, Result};
use dat_core::transport::{Connect, Token};
use dat_core::upcall::{Arrival, ConnOutcome, DatagramOutcome, Fault, Upcalls};

use crate::fabric::{Fabric, Service, fabric};
use crate::faults::{Planted, cut, planted, sender};
use crate::qp::Connection;
use crate::settings::{Fail, Settings};
use crate::transport::{AddressHandle, Loopback};
use crate::worker::{self, Upcall};

/// A service point that listens until it is dropped.
#[derive(Debug)]
pub struct Listener {
    at: (IpAddr, u64),
}

impl Drop for Listener {
    fn drop(&mut self) {
        if planted(Planted::ListenerStays) {
            return;
        }
        let (address, qual) = self.at;
        fabric().services.remove(address, qual);
    }
}

/// A connection request without an answer; its drop rejects it.
#[derive(Debug)]
pub struct ConnRequest {
    /// Number of the requesting queue pair.
    from: u32,
    /// Connection attempt of the requesting queue pair.
    token: Token,
    /// Requested connection qualifier, truncated to a port number.
    port: u16,
    upcalls: Upcalls<Loopback>,
    settings: Settings,
    /// True if the requesting queue pair is for datagrams.
    datagram: bool,
    answered: bool,
}

impl Drop for ConnRequest {
    // It takes no lock of the fabric, because a drop may happen under that lock.
    fn drop(&mut self) {
        if !self.answered && !planted(Planted::DropIsSilent) {
            if self.datagram {
                self.answer_datagram(DatagramOutcome::Failed);
            } else {
                self.answer(ConnOutcome::NonPeerRejected, &[]);
            }
        }
    }
}

impl ConnRequest {
    fn answer(&mut self, outcome: ConnOutcome, private_data: &[u8]) {
        self.answered = true;
        let upcall = Upcall::connection(self.upcalls, self.token, outcome, private_data);
        worker::enqueue(upcall.after(self.settings.delay));
    }

    fn answer_datagram(&mut self, outcome: DatagramOutcome<Loopback>) {
        self.answered = true;
        let upcall = Upcall::datagram(self.upcalls, self.token, outcome);
        worker::enqueue(upcall.after(self.settings.delay));
    }
}

pub(crate) fn listen(
    settings: Settings,
    upcalls: Upcalls<Loopback>,
    conn_qual: Option<u64>,
    token: Token,
) -> Result<(Listener, u64)> {
    let service = Service {
        token,
        upcalls,
        settings,
    };
    let mut fabric = fabric();
    if let (Some(qual), true) = (conn_qual, planted(Planted::QualifierTwice)) {
        fabric.services.remove(settings.address, qual);
    }
    let qual = fabric
        .services
        .listen(settings.address, conn_qual, service)?;
    let at = (settings.address, qual);
    Ok((Listener { at }, qual))
}

/// Sends a connection request to the service point, or reports by an upcall that none is listening.
pub(crate) fn connect(number: u32, wanted: &Connect<'_>) -> Result<()> {
    let mut fabric = fabric();
    let service = fabric.services.get(wanted.remote, wanted.conn_qual);
    let service = service.copied();
    let reachable = fabric.adapters.contains_key(&wanted.remote);
    let qp = fabric
        .queue_pairs
        .get_mut(&number)
        .ok_or(Error::of(Kind::InternalError))?;
    let datagram = qp.caps.datagram;
    if !datagram {
        qp.connection = Connection::Connecting(wanted.token);
    }
    // The requesting side has no meaningful qualifier; consumers only print it.
    qp.port = number as u16;
    let (upcalls, settings) = (qp.upcalls, qp.settings);
    let fail = |outcome, datagram_outcome| {
        let upcall = if datagram {
            Upcall::datagram(upcalls, wanted.token, datagram_outcome)
        } else {
            Upcall::connection(upcalls, wanted.token, outcome, &[])
        };
        worker::enqueue(upcall.after(settings.delay));
    };
    match (settings.fail, service) {
        (Some(Fail::Answer), _) => {}
        (Some(Fail::Route), _) => fail(ConnOutcome::Unreachable, DatagramOutcome::Failed),
        (_, None) if !reachable => fail(ConnOutcome::Unreachable, DatagramOutcome::Failed),
        (_, None) if planted(Planted::NoAnswer) => {}
        (_, None) => fail(ConnOutcome::NonPeerRejected, DatagramOutcome::NoListener),
        (_, Some(service)) => {
            let request = ConnRequest {
                from: number,
                token: wanted.token,
                port: wanted.conn_qual as u16,
                upcalls,
                settings,
                datagram,
                answered: false,
            };
            let arrival = Arrival {
                remote: (sender(settings.address), number as u16).into(),
                local: wanted.remote,
                private_data: if planted(Planted::RequestDataLost) {
                    &[]
                } else {
                    cut(wanted.private_data)
                },
                datagram,
            };
            worker::enqueue(
                Upcall::request(service.upcalls, service.token, request, &arrival)
                    .after(service.settings.delay),
            );
        }
    }
    Ok(())
}

/// Answers a datagram request: reports each queue pair to the other side.
fn resolve_both(
    mut request: ConnRequest,
    number: u32,
    token: Token,
    private_data: &[u8],
) -> Result<()> {
    let fabric = fabric();
    let answering = fabric.queue_pairs.get(&number);
    let answering = answering.ok_or(Error::of(Kind::InternalError))?;
    let asking = fabric.queue_pairs.get(&request.from);
    let theirs = match asking {
        Some(asking) if answering.settings.fail != Some(Fail::Accept) => {
            DatagramOutcome::Resolved {
                address: AddressHandle,
                qpn: request.from,
                remote: (asking.settings.address, asking.port).into(),
                private_data: Box::default(),
            }
        }
        _ => DatagramOutcome::Failed,
    };
    let upcall = Upcall::datagram(answering.upcalls, token, theirs);
    worker::enqueue(upcall.after(answering.settings.delay));
    let ours = DatagramOutcome::Resolved {
        address: AddressHandle,
        qpn: number,
        remote: (answering.settings.address, request.port).into(),
        private_data: private_data.into(),
    };
    drop(fabric);
    request.answer_datagram(ours);
    Ok(())
}

/// Connects the requesting queue pair with queue pair `number`, unless the request was withdrawn.
pub(crate) fn accept(
    mut request: ConnRequest,
    number: u32,
    token: Token,
    private_data: &[u8],
) -> Result<()> {
    if request.datagram {
        return resolve_both(request, number, token, private_data);
    }
    let mut fabric = fabric();
    let asking = fabric
        .queue_pairs
        .get(&request.from)
        .is_some_and(|qp| qp.connection == Connection::Connecting(request.token));
    let qp = fabric
        .queue_pairs
        .get_mut(&number)
        .ok_or(Error::of(Kind::InternalError))?;
    let (upcalls, delay) = (qp.upcalls, qp.settings.delay);
    let report =
        |outcome| worker::enqueue(Upcall::connection(upcalls, token, outcome, &[]).after(delay));
    if !asking || qp.settings.fail == Some(Fail::Accept) {
        // The attempt has ended here, so nothing that is posted on the queue pair has a message to wait for.
        qp.connection = Connection::Disconnected;
        qp.flush();
        report(ConnOutcome::AcceptError);
        return Ok(());
    }
    qp.connection = Connection::Connected {
        peer: request.from,
        token,
    };
    qp.port = request.port + u16::from(planted(Planted::WrongQualifier));
    if let Some(client) = fabric.queue_pairs.get_mut(&request.from) {
        client.connection = Connection::Connected {
            peer: number,
            token: request.token,
        };
    }
    if planted(Planted::AcceptDataLost) {
        request.answer(ConnOutcome::Established, &[]);
    } else {
        request.answer(ConnOutcome::Established, private_data);
    }
    if !planted(Planted::PassiveNotTold) {
        report(ConnOutcome::Established);
    }
    Ok(())
}

pub(crate) fn reject(mut request: ConnRequest, private_data: &[u8]) {
    if request.datagram {
        request.answer_datagram(DatagramOutcome::PeerRejected {
            private_data: private_data.into(),
        });
    } else {
        let outcome = if planted(Planted::RejectIsNonPeer) {
            ConnOutcome::NonPeerRejected
        } else {
            ConnOutcome::PeerRejected
        };
        request.answer(outcome, private_data);
    }
}

impl Fabric {
    /// Ends the connection of queue pair `number`, or its connection attempt: flushes both sides and reports the end to them.
    pub(crate) fn disconnect(&mut self, number: u32) {
        self.end(number, ConnOutcome::Disconnected);
    }

    /// Breaks the connection of queue pair `number` on both sides.
    pub(crate) fn break_connection(&mut self, number: u32) {
        self.end(number, ConnOutcome::Broken);
    }

    fn end(&mut self, number: u32, how: ConnOutcome) {
        let Some(peer) = self.end_side(number, how) else {
            return;
        };
        // The peer may have ended this connection already, and even have a new one.
        let current = self.queue_pairs.get(&peer).map(|qp| qp.connection);
        if matches!(current, Some(Connection::Connected { peer, .. }) if peer == number)
            && !planted(Planted::PeerNotTold)
        {
            self.end_side(peer, how);
        }
    }

    /// Ends one side; returns the other queue pair if they were connected.
    fn end_side(&mut self, number: u32, how: ConnOutcome) -> Option<u32> {
        let qp = self.queue_pairs.get_mut(&number)?;
        let was = qp.connection;
        if was == Connection::Idle && !qp.caps.datagram {
            return None;
        }
        qp.connection = Connection::Disconnected;
        qp.flush();
        let Connection::Connected { peer, token } = was else {
            return None;
        };
        if qp.srq.is_some() {
            // The queue pair takes no more receives from the shared queue.
            worker::enqueue(Upcall::fault(qp.upcalls, Fault::LastReceive(qp.token)));
        }
        let upcall = Upcall::connection(qp.upcalls, token, how, &[]);
        worker::enqueue(upcall.after(qp.settings.delay));
        Some(peer)
    }
}
