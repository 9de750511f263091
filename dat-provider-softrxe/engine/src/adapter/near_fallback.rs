//! Why connections with other engines of this project stay on UDP: a reason, a line in the log and a count.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use softrxe_near::MapError;
use softrxe_near::agreement::hello::{HelloError, Reason as Refused};
use softrxe_near::agreement::{AnswerError, DialError};
use softrxe_port::liveness::LocalPeer;
use softrxe_proto::Time;

/// How long a reason that was logged for a peer is not logged again.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// Peers whose reasons are kept.
const MAX_KNOWN: usize = 1024;

/// Reason why a connection stays on UDP, for which there is a counter. [`text`](Self::text) describes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    Off,
    Peer,
    User,
    Elsewhere,
    Version,
    Resources,
    Silent,
    Protocol,
}

impl Reason {
    /// All reasons, in the order of their counters.
    const ALL: [Self; 8] = [
        Self::Off,
        Self::Peer,
        Self::User,
        Self::Elsewhere,
        Self::Version,
        Self::Resources,
        Self::Silent,
        Self::Protocol,
    ];

    /// Returns the name of the counter.
    const fn counter(self) -> &'static str {
        match self {
            Self::Off => "near_fallback_off",
            Self::Peer => "near_fallback_peer",
            Self::User => "near_fallback_user",
            Self::Elsewhere => "near_fallback_elsewhere",
            Self::Version => "near_fallback_version",
            Self::Resources => "near_fallback_resources",
            Self::Silent => "near_fallback_silent",
            Self::Protocol => "near_fallback_protocol",
        }
    }

    /// Returns the text for the log.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Off => {
                "this engine offers no shared memory: near=off, pcap, or no descriptor was left when it opened"
            }
            Self::Peer => {
                "the peer did not offer or did not choose shared memory; its log and counters have the reason"
            }
            Self::User => {
                "no process of this user answers for the peer: it is another user's, or one with near=off"
            }
            Self::Elsewhere => "the peer is on another host or in another network namespace",
            Self::Version => "the peer has another version of the library, or another byte order",
            Self::Resources => "no memory, descriptor or channel is left here or at the peer",
            Self::Silent => "the peer has not answered; it may be stopped or very busy",
            Self::Protocol => "the peer's answer is not that of an engine",
        }
    }

    /// Returns the reason of a failed call to an engine at `ip`.
    pub(crate) fn of_dial(error: &DialError, ip: IpAddr) -> Self {
        match error {
            DialError::Connection { error, .. } => Self::of_connection(error, ip),
            DialError::Closed => Self::Silent,
            DialError::Refused(Refused::Version)
            | DialError::Hello(HelloError::Version(_) | HelloError::ByteOrder) => Self::Version,
            DialError::Refused(Refused::Full) => Self::Resources,
            DialError::Map(error) => Self::of_memory(error),
            // This process has no room for all of them.
            DialError::Descriptors { found, stated } if found < stated => Self::Resources,
            _ => Self::Protocol,
        }
    }

    fn of_connection(error: &io::Error, ip: IpAddr) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock => Self::Silent,
            io::ErrorKind::PermissionDenied => Self::User,
            io::ErrorKind::ConnectionRefused if is_of_this_host(ip) => Self::User,
            io::ErrorKind::ConnectionRefused => Self::Elsewhere,
            _ => Self::Resources,
        }
    }

    /// Returns the reason of an answer that failed.
    pub(crate) fn of_answer(error: &AnswerError) -> Self {
        match error {
            AnswerError::Map(error) => Self::of_memory(error),
            AnswerError::Watch(_) => Self::Resources,
            AnswerError::Send { .. } => Self::Silent,
        }
    }

    /// Returns the reason of memory that cannot be made or mapped.
    pub(crate) const fn of_memory(error: &MapError) -> Self {
        match error {
            MapError::Call { .. } => Self::Resources,
            _ => Self::Protocol,
        }
    }
}

/// Returns true if `ip` is an address of this network namespace.
pub(crate) fn is_of_this_host(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

/// Connections that stayed on UDP, by reason.
#[derive(Debug, Default)]
pub(crate) struct Fallbacks {
    counts: [u64; Reason::ALL.len()],
    /// The last reason of a peer, and until when it is not logged again.
    known: HashMap<LocalPeer, (Reason, Time)>,
}

impl Fallbacks {
    /// Returns names and values of the counters, in an order that stays the same.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        let names = Reason::ALL.map(Reason::counter);
        names.into_iter().zip(self.counts).collect()
    }

    /// Remembers why the connections with `peer` that follow stay on UDP. `logged`: a line in the log has said so.
    pub(crate) fn remember(&mut self, now: Time, peer: LocalPeer, reason: Reason, logged: bool) {
        let quiet = match self.known.get(&peer) {
            _ if logged => now + LOG_INTERVAL,
            Some((known, quiet)) if *known == reason => *quiet,
            _ => now,
        };
        if self.known.len() >= MAX_KNOWN {
            self.known.retain(|_, (_, quiet)| now < *quiet);
        }
        if self.known.len() < MAX_KNOWN {
            self.known.insert(peer, (reason, quiet));
        }
    }

    /// Forgets why connections with `peer` stayed on UDP.
    pub(crate) fn forget(&mut self, peer: LocalPeer) {
        self.known.remove(&peer);
    }

    /// Counts a connection with `peer` that stays on UDP, and logs it unless that was done a moment ago. `otherwise` is the reason if
    /// none is remembered.
    pub(crate) fn count(&mut self, now: Time, peer: LocalPeer, otherwise: Reason) {
        let known = self.known.get(&peer).copied();
        let (reason, quiet) = known.unwrap_or((otherwise, now));
        self.counts[reason as usize] += 1;
        if now < quiet {
            return;
        }
        let connections = self.counts[reason as usize];
        tracing::info!(
            ?peer,
            connections,
            "a connection stays on UDP: {}",
            reason.text()
        );
        self.remember(now, peer, reason, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softrxe_near::agreement::End;

    fn peer(slot: u16) -> LocalPeer {
        ("127.0.0.1".parse().unwrap(), slot)
    }

    fn counted(fallbacks: &Fallbacks) -> Vec<(&'static str, u64)> {
        let mut counters = fallbacks.counters();
        counters.retain(|(_, value)| *value > 0);
        counters
    }

    #[test]
    fn a_connection_is_counted_with_the_reason_that_its_peer_had_last() {
        let (mut fallbacks, now) = (Fallbacks::default(), Time::from_nanos(1));
        fallbacks.count(now, peer(1), Reason::Peer);
        fallbacks.remember(now, peer(1), Reason::Resources, true);
        fallbacks.count(now, peer(1), Reason::Peer);
        fallbacks.count(now, peer(2), Reason::Off);
        let wanted = [
            ("near_fallback_off", 1),
            ("near_fallback_peer", 1),
            ("near_fallback_resources", 1),
        ];
        assert_eq!(counted(&fallbacks), wanted);
        fallbacks.forget(peer(1));
        fallbacks.count(now, peer(1), Reason::Peer);
        assert_eq!(counted(&fallbacks)[1], ("near_fallback_peer", 2));
        assert_eq!(fallbacks.counters().len(), Reason::ALL.len());
    }

    #[test]
    fn the_reasons_of_a_bounded_number_of_peers_are_kept() {
        let (mut fallbacks, now) = (Fallbacks::default(), Time::from_nanos(1));
        for slot in 0..2 * MAX_KNOWN as u16 {
            fallbacks.count(now, peer(slot), Reason::Elsewhere);
        }
        assert_eq!(fallbacks.known.len(), MAX_KNOWN);
        let count = 2 * MAX_KNOWN as u64;
        assert_eq!(counted(&fallbacks), [("near_fallback_elsewhere", count)]);
    }

    #[test]
    fn a_failed_call_has_a_reason() {
        let (here, there) = ("127.0.0.1", "192.0.2.1");
        let connection = |ip: &str, kind: io::ErrorKind| {
            let ip = ip.parse().unwrap();
            let (slot, guid) = (1, 2);
            let peer = End { ip, slot, guid };
            let error = kind.into();
            Reason::of_dial(&DialError::Connection { peer, error }, ip)
        };
        use io::ErrorKind as K;
        assert_eq!(connection(here, K::ConnectionRefused), Reason::User);
        assert_eq!(connection(here, K::PermissionDenied), Reason::User);
        assert_eq!(connection(there, K::ConnectionRefused), Reason::Elsewhere);
        assert_eq!(connection(here, K::WouldBlock), Reason::Silent);
        let no_descriptor = io::Error::from_raw_os_error(libc::EMFILE).kind();
        assert_eq!(connection(here, no_descriptor), Reason::Resources);
        let descriptors = |found, stated| DialError::Descriptors { found, stated };
        for (error, reason) in [
            (DialError::Closed, Reason::Silent),
            (DialError::Refused(Refused::Version), Reason::Version),
            (DialError::Hello(HelloError::Version(9)), Reason::Version),
            (DialError::Hello(HelloError::ByteOrder), Reason::Version),
            (DialError::Refused(Refused::Full), Reason::Resources),
            (descriptors(0, 1), Reason::Resources),
            (descriptors(1, 3), Reason::Resources),
            (descriptors(2, 3), Reason::Resources),
            (descriptors(2, 1), Reason::Protocol),
            (DialError::NotOffered, Reason::Protocol),
            (DialError::Hello(HelloError::Foreign(9)), Reason::Protocol),
        ] {
            let ip = here.parse().unwrap();
            assert_eq!(Reason::of_dial(&error, ip), reason, "{error}");
        }
    }
}
