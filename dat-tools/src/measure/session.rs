//! The client's connections to `dat serve`.

use std::fmt;
use std::io::{self, Write as _};
use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::ops::Range;
use std::time::Duration;

use dat::{
    Access, Close, Completion, ConnectionEvent, DtoStatus, Ep, Evd, Event, Ia, Pz, Region, Remote,
    Streams,
};
use dat_os::netdev::is_link_local;
use thiserror::Error;

use crate::doctor::quoted;
use crate::measure::events::{Completions, Idle, Next, described};
use crate::measure::interrupt::Interrupt;
use crate::measure::pattern::Difference;
use crate::measure::protocol::{Answer, Refusal, Request, Unreadable, VERSION};

/// Time for a connection to be established.
const CONNECT: Duration = Duration::from_secs(30);
/// Time after which the user is told what is waited for.
const NOTICE: Duration = Duration::from_secs(2);
/// Time after which a server that does not answer is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Time for the event that says how a connection ended.
const END: Duration = Duration::from_secs(2);

/// Why a measurement ended early.
#[derive(Debug, Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Call(#[from] dat::Error),
    #[error("{host} is no address that the IA at {ia} can reach: {why}")]
    Host {
        host: String,
        ia: IpAddr,
        why: String,
    },
    #[error(
        "nothing listens at {at}, asked by {from}: start `dat serve` there; if it runs, give its qualifier with --port"
    )]
    NothingListens { at: String, from: Sender },
    #[error(
        "{at} does not answer {from}: check the address, that the host is up and runs `dat serve`, and that no firewall stops it; \
         `dat doctor {}` finds more",
        quoted(&from.ia)
    )]
    NoAnswer { at: String, from: Sender },
    #[error(
        "no packet can be sent to {at} by {from}: {why}; check the address, and this host's routes: `{remedy}`"
    )]
    NoRoute {
        at: String,
        from: Sender,
        why: String,
        remedy: String,
    },
    #[error(
        "what listens at {0} is not `dat serve`: start that with another --port, and give the same here"
    )]
    Foreign(String),
    #[error(
        "`dat serve` at {at} speaks version {theirs} of the measuring protocol, this command version {VERSION}: \
         install the same release on both hosts"
    )]
    Version { at: String, theirs: u16 },
    #[error("`dat serve` at {at} refused: {why}")]
    Refused { at: String, why: &'static str },
    #[error(
        "the connection to {at} ended ({why}): see whether `dat serve` still runs there and what it printed, then try again"
    )]
    Gone { at: String, why: String },
    #[error(
        "{at} has not answered for {} s: see whether `dat serve` still runs there, then try again",
        PATIENCE.as_secs()
    )]
    Silent { at: String },
    #[error(
        "message {message} was damaged: byte {} is {:#04x}, expected {:#04x}; \
         `dat counters` shows the adapter's errors",
        difference.offset, difference.found, difference.expected
    )]
    Damaged {
        message: u64,
        difference: Difference,
    },
    #[error(
        "the server received message {message} damaged; `dat counters` shows the adapter's errors"
    )]
    DamagedThere { message: u64 },
    #[error(
        "atomic operation {message} returned {found}, expected {expected}: operations were lost or done twice"
    )]
    WrongWord {
        message: u64,
        found: u64,
        expected: u64,
    },
    #[error("interrupted")]
    Interrupted,
}

/// The IA that sends, for messages.
#[derive(Debug)]
pub(crate) struct Sender {
    ia: String,
    address: IpAddr,
    /// The peer is on another host, as far as its address tells.
    is_far: bool,
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IA {} at {}", self.ia, self.address)?;
        if self.is_far && self.address.is_loopback() {
            f.write_str(" (a loopback address reaches no other; name another IA before the host)")?;
        }
        Ok(())
    }
}

impl From<dat::PostError> for Fault {
    fn from(error: dat::PostError) -> Self {
        Self::Call(error.into())
    }
}

/// Where `dat serve` runs.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) ia: Ia,
    pub(crate) address: IpAddr,
    pub(crate) port: u64,
    /// Host and qualifier for messages.
    pub(crate) at: String,
    /// Address of the IA.
    own: IpAddr,
}

impl Target {
    /// Finds the address of `host`, of the IA's family where it has one.
    pub(crate) fn find(ia: Ia, host: &str, port: u64) -> Result<Self, Fault> {
        let own = ia.attributes()?.address;
        let failed = |why: String| Fault::Host {
            host: host.to_owned(),
            ia: own,
            why,
        };
        let all: Vec<IpAddr> = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => (host, 0)
                .to_socket_addrs()
                .map_err(|error| failed(error.to_string()))?
                .map(|at| at.ip())
                .collect(),
        };
        let address = chosen(own, &all).map_err(|why| failed(why.into()))?;
        let at = if host == address.to_string() {
            format!("{host}, connection qualifier {port}")
        } else {
            format!("{host} ({address}), connection qualifier {port}")
        };
        Ok(Self {
            ia,
            address,
            port,
            at,
            own,
        })
    }

    fn sender(&self) -> Sender {
        Sender {
            ia: self.ia.name().to_owned(),
            address: self.own,
            is_far: !self.address.is_loopback(),
        }
    }

    /// Says on standard error what is waited for. Without standard error there is nothing to tell it to.
    fn say_waiting(&self) {
        let _ = writeln!(
            io::stderr(),
            "dat: waiting for {} to answer {}, {} s at most",
            self.at,
            self.sender(),
            CONNECT.as_secs()
        );
    }

    fn nothing_listens(&self) -> Fault {
        Fault::NothingListens {
            at: self.at.clone(),
            from: self.sender(),
        }
    }

    fn no_answer(&self) -> Fault {
        // The event is the same for both.
        if let Err(error) = route(self.own, self.address) {
            return Fault::NoRoute {
                at: self.at.clone(),
                from: self.sender(),
                why: error.to_string(),
                remedy: format!("ip route get {} from {}", self.address, self.own),
            };
        }
        Fault::NoAnswer {
            at: self.at.clone(),
            from: self.sender(),
        }
    }
}

/// Returns the address of a host that an IA at `own` may connect to, or why there is none.
fn chosen(own: IpAddr, all: &[IpAddr]) -> Result<IpAddr, &'static str> {
    let mut of_family = all.iter().filter(|at| at.is_ipv4() == own.is_ipv4());
    let first = of_family.clone().next();
    first.ok_or("it is of another address family")?;
    let named = of_family.find(|at| !is_link_local(**at)).copied();
    named.ok_or(
        "it is link-local, and dat_ep_connect has no argument for the netdev; give another address of that host",
    )
}

/// Returns an error where the kernel knows no way from the address of an IA to `peer`. Nothing is sent.
fn route(own: IpAddr, peer: IpAddr) -> io::Result<()> {
    UdpSocket::bind((own, 0))?.connect((peer, 4791))
}

/// What a session needs beyond the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) connections: u32,
    /// Outstanding requests and receives of a connection.
    pub(crate) requests: u32,
    pub(crate) receives: u32,
    /// Bytes of a connection's memory.
    pub(crate) memory: usize,
    /// Part of that memory that the server writes to.
    pub(crate) lent: (usize, usize),
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) ep: Ep,
    pub(crate) local: Region,
    pub(crate) remote: Remote,
}

/// Connections that are used together, with one dispatcher for all completions.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    target: &'a Target,
    pub(crate) links: Vec<Link>,
    done: Completions,
    connections: Evd,
    wait: bool,
    pz: Pz,
}

impl<'a> Session<'a> {
    /// Connects. `post` posts the receives of a connection before it is established.
    pub(crate) fn open(
        target: &'a Target,
        interrupt: &Interrupt,
        request: Request,
        shape: Shape,
        post: impl Fn(usize, &Link) -> Result<(), dat::PostError>,
    ) -> Result<Self, Fault> {
        let ia = &target.ia;
        let events = shape.connections * (shape.requests + shape.receives);
        let mut session = Self {
            target,
            links: Vec::new(),
            done: Completions {
                evd: ia.create_evd(events, Streams::DTO)?,
                interrupt: interrupt.clone(),
            },
            connections: ia.create_evd(shape.connections + 16, Streams::CONNECTION)?,
            wait: request.wait,
            pz: ia.create_pz()?,
        };
        let reads = ia.attributes()?.max_reads;
        let reads = reads.0.min(reads.1).clamp(1, 16);
        for at in 0..shape.connections as usize {
            let ep = ia
                .endpoint(&session.pz)
                .recv_evd(&session.done.evd)
                .request_evd(&session.done.evd)
                .connect_evd(&session.connections)
                .max_recv(shape.receives.max(1))
                .max_requests(shape.requests)
                .max_reads(reads)
                .create()?;
            let local = session.pz.allocate(shape.memory, Access::ALL)?;
            let memory = local.remote(shape.lent.0..shape.lent.1);
            let mut link = Link {
                ep,
                local,
                remote: Remote::default(),
            };
            post(at, &link)?;
            link.remote = session.connect(&link.ep, Request { memory, ..request })?;
            session.links.push(link);
        }
        Ok(session)
    }

    /// Connects an endpoint, and returns the server's memory.
    fn connect(&self, ep: &Ep, request: Request) -> Result<Remote, Fault> {
        let at = || self.target.at.clone();
        ep.connect(self.target.address, self.target.port)
            .private_data(&request.to_bytes())
            .timeout(CONNECT)
            .start()
            .map_err(|error| match error {
                dat::Error::Unreachable { .. } => self.target.no_answer(),
                other => other.into(),
            })?;
        let bytes = match self.answer()? {
            Event::Established { private_data, .. } => private_data,
            Event::PeerRejected { private_data, .. } => private_data,
            Event::Ended { how, .. } => {
                return Err(match how {
                    ConnectionEvent::NonPeerRejected => self.target.nothing_listens(),
                    ConnectionEvent::TimedOut | ConnectionEvent::Unreachable => {
                        self.target.no_answer()
                    }
                    how => self.gone(dat::Error::Disconnected { how }.to_string()),
                });
            }
            other => return Err(self.gone(format!("unexpected event: {}", described(&other)))),
        };
        match Answer::from_bytes(&bytes) {
            Ok(Answer::Accepted(remote)) => Ok(remote),
            Ok(Answer::Refused(why)) => Err(Fault::Refused {
                at: at(),
                why: match why {
                    Refusal::Version => {
                        "it has another version; install the same release on both hosts"
                    }
                    Refusal::Limits => "the size or depth is beyond its limits; give smaller ones",
                    Refusal::Resources => {
                        "it lacks memory or objects; what it printed says which. Use fewer connections or smaller messages"
                    }
                    Refusal::Ending => "it was just interrupted; start it again",
                },
            }),
            Err(Unreadable::Version(theirs)) => Err(Fault::Version { at: at(), theirs }),
            Err(Unreadable::Foreign | Unreadable::Malformed) => Err(Fault::Foreign(at())),
        }
    }

    /// Waits for the event that answers a connection request.
    fn answer(&self) -> Result<Event, Fault> {
        let slice = Duration::from_millis(100);
        let mut slept = Duration::ZERO;
        // The attempt itself ends earlier.
        while slept < CONNECT * 2 {
            match self.connections.wait(slice) {
                Ok(event) => return Ok(event),
                Err(dat::Error::TimedOut { .. }) => {
                    slept += slice;
                    if slept == NOTICE {
                        self.target.say_waiting();
                    }
                }
                Err(dat::Error::Interrupted { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            if self.done.interrupt.is_set() {
                return Err(Fault::Interrupted);
            }
        }
        Err(self.target.no_answer())
    }

    /// Returns the fault of a server that does not answer.
    pub(crate) fn silent(&self) -> Fault {
        Fault::Silent {
            at: self.target.at.clone(),
        }
    }

    fn gone(&self, why: String) -> Fault {
        Fault::Gone {
            at: self.target.at.clone(),
            why,
        }
    }

    /// Returns the next completion of a successful operation.
    #[inline]
    pub(crate) fn next(&self) -> Result<Completion, Fault> {
        match self.done.next(self.wait, PATIENCE)? {
            Next::Completion(done) => self.succeeded(done),
            Next::Nothing => Err(self.silent()),
            Next::Interrupted => Err(Fault::Interrupted),
        }
    }

    /// Takes a completion if there is one.
    #[inline]
    pub(crate) fn poll(&self) -> Result<Option<Completion>, Fault> {
        match self.done.poll()? {
            Some(done) => self.succeeded(done).map(Some),
            None => Ok(None),
        }
    }

    /// Says that memory was polled in vain.
    #[inline]
    pub(crate) fn after_empty_poll(&self, idle: &mut Idle) -> Result<(), Fault> {
        match idle.after_empty_poll(&self.done.interrupt, PATIENCE) {
            // Without an outstanding operation no completion tells that the connection has ended.
            None if idle.has_looked() => match self.connections.poll()? {
                Some(Event::Ended { how, .. }) => {
                    Err(self.gone(dat::Error::Disconnected { how }.to_string()))
                }
                _ => Ok(()),
            },
            None => Ok(()),
            Some(Next::Interrupted) => Err(Fault::Interrupted),
            Some(_) => Err(self.silent()),
        }
    }

    #[inline]
    fn succeeded(&self, done: Completion) -> Result<Completion, Fault> {
        if done.status == DtoStatus::Success {
            return Ok(done);
        }
        Err(self.failed(done))
    }

    /// Returns the reason of a failed operation: how the connection ended, where that is known.
    #[cold]
    fn failed(&self, done: Completion) -> Fault {
        let failed = dat::Error::Failed {
            op: done.op,
            status: done.status,
        };
        // A flushed operation says only that the connection is gone.
        match self.connections.wait(END) {
            Ok(Event::Ended { how, .. }) if done.status == DtoStatus::Flushed => {
                self.gone(dat::Error::Disconnected { how }.to_string())
            }
            _ => self.gone(failed.to_string()),
        }
    }

    /// Turns the error of a post on a connection that has just ended into the reason for that.
    #[cold]
    pub(crate) fn refused(&self, error: dat::PostError) -> Fault {
        if !matches!(error, dat::PostError::NotConnected { .. }) {
            return error.into();
        }
        match self.connections.wait(END) {
            Ok(Event::Ended { how, .. }) => self.gone(dat::Error::Disconnected { how }.to_string()),
            _ => self.gone(error.to_string()),
        }
    }

    /// Disconnects all connections. The server is told so, and does not report a client that went away.
    pub(crate) fn close(self) {
        for link in &self.links {
            // A connection that has ended already is as good.
            let _ = link.ep.disconnect(Close::Graceful);
        }
        for _ in &self.links {
            if self.connections.wait(END).is_err() {
                break;
            }
        }
    }
}

/// Returns the range of buffer `index` behind `base`.
pub(crate) fn buffer(base: usize, size: usize, index: usize) -> Range<usize> {
    let begin = base + index * size;
    begin..begin + size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_is_refused_and_others_of_the_family_are_taken() {
        let ips = |texts: &[&str]| -> Vec<IpAddr> {
            texts
                .iter()
                .map(|ip| ip.parse().expect("an address"))
                .collect()
        };
        let own = ips(&["2001:db8::1"])[0];
        let of = |texts: &[&str]| chosen(own, &ips(texts)).map(|ip| ip.to_string());
        let both = of(&["192.0.2.1", "fe80::1", "2001:db8::2"]);
        assert_eq!(both.as_deref(), Ok("2001:db8::2"));
        assert!(of(&["fe80::1"]).is_err_and(|why| why.contains("link-local")));
        assert!(of(&["192.0.2.1"]).is_err_and(|why| why.contains("family")));
    }
}
