//! Service points, connection requests, and how connections begin and end.

use std::net::IpAddr;

use dat_core::error::{Error, Kind, Result};
use dat_core::transport::{Connect, Token};
use dat_core::upcall::{ConnOutcome, DatagramOutcome, Fault, Upcalls};

use crate::fabric::{Fabric, Service, fabric};
use crate::qp::Link;
use crate::settings::{Fail, Settings};
use crate::transport::{Loopback, Place};
use crate::worker::{self, Job};

/// Qualifiers that are given out when the consumer names none.
const DYNAMIC: std::ops::RangeInclusive<u64> = 49_152..=65_535;

/// A service point that listens until it is dropped.
#[derive(Debug)]
pub struct Listener {
    at: (IpAddr, u64),
}

impl Drop for Listener {
    fn drop(&mut self) {
        fabric().services.remove(&self.at);
    }
}

/// A connection request that is not answered yet; dropping it refuses it.
#[derive(Debug)]
pub struct ConnRequest {
    /// The queue pair that asks.
    from: u32,
    /// Its attempt.
    token: Token,
    /// The qualifier that it asks for.
    port: u16,
    upcalls: Upcalls<Loopback>,
    settings: Settings,
    /// The asking queue pair is one for datagrams.
    datagram: bool,
    answered: bool,
}

impl Drop for ConnRequest {
    // Takes no lock: it may be dropped anywhere.
    fn drop(&mut self) {
        if !self.answered {
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
        let job = Job::connection(self.upcalls, self.token, outcome, private_data);
        worker::tell(job.after(self.settings.delay));
    }

    fn answer_datagram(&mut self, outcome: DatagramOutcome<Loopback>) {
        self.answered = true;
        let job = Job::datagram(self.upcalls, self.token, outcome);
        worker::tell(job.after(self.settings.delay));
    }
}

pub(crate) fn listen(
    settings: Settings,
    upcalls: Upcalls<Loopback>,
    conn_qual: Option<u64>,
    token: Token,
) -> Result<(Listener, u64)> {
    let mut fabric = fabric();
    let taken = |qual: u64| fabric.services.contains_key(&(settings.address, qual));
    let qual = match conn_qual {
        Some(qual) if taken(qual) => return Err(Error::of(Kind::ConnQualInUse)),
        Some(qual) => qual,
        None => DYNAMIC
            .clone()
            .find(|qual| !taken(*qual))
            .ok_or(Error::of(Kind::ConnQualUnavailable))?,
    };
    let at = (settings.address, qual);
    let service = Service {
        token,
        upcalls,
        settings,
    };
    fabric.services.insert(at, service);
    Ok((Listener { at }, qual))
}

/// Sends a connection request, or finds out that there is nobody to send it to; either way by an upcall.
pub(crate) fn connect(number: u32, asked: &Connect<'_>) -> Result<()> {
    let mut fabric = fabric();
    let at = (asked.remote, asked.conn_qual);
    let service = fabric.services.get(&at).copied();
    let reachable = fabric.adapters.contains_key(&asked.remote);
    let qp = fabric
        .queue_pairs
        .get_mut(&number)
        .ok_or(Error::of(Kind::InternalError))?;
    let datagram = qp.caps.datagram;
    if !datagram {
        qp.link = Link::Trying(asked.token);
    }
    // The qualifier of the asking side means nothing here; consumers print it.
    qp.port = number as u16;
    let (upcalls, settings) = (qp.upcalls, qp.settings);
    let fail = |outcome, datagram_outcome| {
        let job = if datagram {
            Job::datagram(upcalls, asked.token, datagram_outcome)
        } else {
            Job::connection(upcalls, asked.token, outcome, &[])
        };
        worker::tell(job.after(settings.delay));
    };
    match (settings.fail, service) {
        (Some(Fail::Answer), _) => {}
        (Some(Fail::Route), _) => fail(ConnOutcome::Unreachable, DatagramOutcome::Failed),
        (_, None) if !reachable => fail(ConnOutcome::Unreachable, DatagramOutcome::Failed),
        (_, None) => fail(ConnOutcome::NonPeerRejected, DatagramOutcome::NoListener),
        (_, Some(service)) => {
            let request = ConnRequest {
                from: number,
                token: asked.token,
                port: asked.conn_qual as u16,
                upcalls,
                settings,
                datagram,
                answered: false,
            };
            let from = (settings.address, number as u16);
            worker::tell(
                Job::request(
                    service.upcalls,
                    service.token,
                    request,
                    from,
                    asked.remote,
                    asked.private_data,
                    datagram,
                )
                .after(service.settings.delay),
            );
        }
    }
    Ok(())
}

/// Tells both sides of a datagram request of each other.
fn introduce(
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
                address: Place,
                qpn: request.from,
                remote: (asking.settings.address, asking.port).into(),
                private_data: Box::default(),
            }
        }
        _ => DatagramOutcome::Failed,
    };
    let job = Job::datagram(answering.upcalls, token, theirs);
    worker::tell(job.after(answering.settings.delay));
    let ours = DatagramOutcome::Resolved {
        address: Place,
        qpn: number,
        remote: (answering.settings.address, request.port).into(),
        private_data: private_data.into(),
    };
    drop(fabric);
    request.answer_datagram(ours);
    Ok(())
}

/// Connects the asking queue pair with queue pair `number`, if it still asks.
pub(crate) fn accept(
    mut request: ConnRequest,
    number: u32,
    token: Token,
    private_data: &[u8],
) -> Result<()> {
    if request.datagram {
        return introduce(request, number, token, private_data);
    }
    let mut fabric = fabric();
    let asking = fabric
        .queue_pairs
        .get(&request.from)
        .is_some_and(|qp| qp.link == Link::Trying(request.token));
    let qp = fabric
        .queue_pairs
        .get_mut(&number)
        .ok_or(Error::of(Kind::InternalError))?;
    let (upcalls, delay) = (qp.upcalls, qp.settings.delay);
    let tell = |outcome| worker::tell(Job::connection(upcalls, token, outcome, &[]).after(delay));
    if !asking || qp.settings.fail == Some(Fail::Accept) {
        tell(ConnOutcome::AcceptError);
        return Ok(());
    }
    qp.link = Link::Up {
        peer: request.from,
        token,
    };
    qp.port = request.port;
    if let Some(client) = fabric.queue_pairs.get_mut(&request.from) {
        client.link = Link::Up {
            peer: number,
            token: request.token,
        };
    }
    request.answer(ConnOutcome::Established, private_data);
    tell(ConnOutcome::Established);
    Ok(())
}

pub(crate) fn reject(mut request: ConnRequest, private_data: &[u8]) {
    if request.datagram {
        request.answer_datagram(DatagramOutcome::PeerRejected {
            private_data: private_data.into(),
        });
    } else {
        request.answer(ConnOutcome::PeerRejected, private_data);
    }
}

impl Fabric {
    /// Ends the connection of queue pair `number` in order, or its attempt to make one: both sides are flushed and
    /// hear of it.
    pub(crate) fn disconnect(&mut self, number: u32) {
        self.end(number, ConnOutcome::Disconnected);
    }

    /// Breaks the connection of queue pair `number`, on both sides.
    pub(crate) fn break_connection(&mut self, number: u32) {
        self.end(number, ConnOutcome::Broken);
    }

    fn end(&mut self, number: u32, how: ConnOutcome) {
        let Some(peer) = self.end_one(number, how) else {
            return;
        };
        // Unless it has ended this connection itself already.
        let still = self.queue_pairs.get(&peer).map(|qp| qp.link);
        if matches!(still, Some(Link::Up { peer, .. }) if peer == number) {
            self.end_one(peer, how);
        }
    }

    /// One side; returns the other if there was a connection.
    fn end_one(&mut self, number: u32, how: ConnOutcome) -> Option<u32> {
        let qp = self.queue_pairs.get_mut(&number)?;
        let was = qp.link;
        if was == Link::Idle && !qp.caps.datagram {
            return None;
        }
        qp.link = Link::Down;
        qp.flush();
        let Link::Up { peer, token } = was else {
            return None;
        };
        if qp.srq.is_some() {
            // It takes no more receives from the shared queue.
            worker::tell(Job::fault(qp.upcalls, Fault::LastReceive(qp.token)));
        }
        let job = Job::connection(qp.upcalls, token, how, &[]);
        worker::tell(job.after(qp.settings.delay));
        Some(peer)
    }
}
