//! Agreement of two processes of one user on a channel.
//!
//! Each engine listens under a name of its address and slot, or of its GUID as well where another program has that one ([`Door`]). A
//! process that wants a channel dials ([`Dial`]) and sends its HELLO at once. The other process checks it, creates the memory and two event
//! descriptors and sends them with its own HELLO ([`Call::answer`]). The event descriptors then carry wake-ups, and the connection shows
//! the end of the peer ([`Bell`]).
//!
//! The process that answers creates all of them because a socket refuses descriptors until its process has checked the
//! user at the other end. The dialler has done so before its HELLO leaves.
//!
//! No call waits. [`State`] decides, [`hello`] is the packet.

mod bell;
mod dial;
mod door;
pub mod hello;
mod state;

pub use bell::Bell;
pub use dial::{Dial, DialError};
pub use door::{AnswerError, Call, Door};
pub use state::{Action, Event, Precedence, State};

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use softrxe_port::credentials;

use crate::channel::{Channel, LARGE_RING, SMALL_RING, WIDE_RING};

/// Channels of a process with wide rings, where it prefers those. They take 32 MiB.
const WIDE_RINGS: usize = 8;
/// Channels of a process with wide or large rings.
const LARGE_RINGS: usize = 64;
/// Maximum number of channels of a process.
pub const MAX_CHANNELS: usize = 256;

/// An engine, as the processes of a host name it to each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct End {
    /// Address.
    pub ip: IpAddr,
    /// Top bits of its queue pair numbers.
    pub slot: u16,
    /// GUID of its channel adapter; [`ANY_GUID`] where a call is for any engine with this address and slot.
    pub guid: u64,
}

/// A GUID that no engine has. The caller of such an [`End`] learns the GUID from the answer.
pub const ANY_GUID: u64 = 0;

/// What a process offers for a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Largest size of the rings.
    pub ring: usize,
    /// Wake-ups by event descriptors. A hostile peer can make this process wait for one, so there are none with a process that this one does
    /// not see.
    pub events: bool,
    /// The UDP port that the engine sends from. Connections over the channel are those with this port.
    pub port: u16,
}

impl Offer {
    /// Offers rings of at most `ring` bytes, and event descriptors, to the peers of an engine that sends from `port`.
    #[must_use]
    pub const fn new(ring: usize, port: u16) -> Self {
        let events = true;
        Self { ring, events, port }
    }

    /// Returns the offer for the peer of `connection`. One in another PID namespace that this process does not see, as a container that
    /// shares the network with this one, may be unable to stop this process in any other way.
    fn to(self, connection: BorrowedFd<'_>) -> Self {
        let is_seen = matches!(credentials::peer_pid(connection), Ok(Some(_)));
        let events = self.events && is_seen;
        Self { events, ..self }
    }
}

/// A channel on which both processes agreed.
#[derive(Debug)]
pub struct Agreed {
    /// The channel.
    pub channel: Channel,
    /// Wakes the peer, and shows its end.
    pub bell: Bell,
    /// The UDP port that the peer sends from.
    pub port: u16,
}

/// Returns the size of the rings of another channel of a process with `channels` of them; `None` if it has too many. The first ones
/// are `wide` where that is faster ([`prefers_wide_rings`](crate::prefers_wide_rings)).
#[must_use]
pub const fn ring_size(channels: usize, wide: bool) -> Option<usize> {
    match channels {
        ..WIDE_RINGS if wide => Some(WIDE_RING),
        ..LARGE_RINGS => Some(LARGE_RING),
        LARGE_RINGS..MAX_CHANNELS => Some(SMALL_RING),
        _ => None,
    }
}

/// Returns the role under which the engine in `slot` listens. Any program can take that name in advance.
fn role(slot: u16) -> String {
    format!("near/{slot}")
}

/// Returns the role under which `end` listens where another program has that name. No program can take this one in advance: the GUID is random,
/// and leaves the process for the first time when it listens.
fn own_role(end: End) -> String {
    format!("near/{}/{:016x}", end.slot, end.guid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_channels_have_large_rings_and_their_number_has_a_limit() {
        let counts = [0, 7, 8, 63, 64, 255, 256, usize::MAX];
        let (large, small) = (Some(LARGE_RING), Some(SMALL_RING));
        let mut expected = [large, large, large, large, small, small, None, None];
        assert_eq!(counts.map(|count| ring_size(count, false)), expected);
        expected[..2].fill(Some(WIDE_RING));
        assert_eq!(counts.map(|count| ring_size(count, true)), expected);
    }
}
