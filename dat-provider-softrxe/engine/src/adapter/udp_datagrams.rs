//! Peers to which datagrams go over UDP because there is no channel to them. One that comes later must not let other datagrams overtake
//! these. Pure.

use std::collections::HashMap;
use std::time::Duration;

use softrxe_port::liveness::LocalPeer;
use softrxe_proto::Time;

/// How long a datagram may be under way: its receiver, and the process that passes it on, may have no processor for seconds.
const UNDER_WAY: Duration = Duration::from_secs(60);
/// Peers that are known, at most.
const MOST: usize = 1024;

/// When datagrams went over UDP, by peer.
#[derive(Debug, Default)]
pub(super) struct UdpDatagrams {
    /// When the latest one was sent.
    sent: HashMap<LocalPeer, Time>,
    /// When the latest one was sent to a peer for which there was no room.
    to_others: Option<Time>,
}

impl UdpDatagrams {
    /// Records that a datagram for `peer` takes UDP.
    pub(super) fn add(&mut self, now: Time, peer: LocalPeer) {
        if let Some(sent) = self.sent.get_mut(&peer) {
            *sent = now;
            return;
        }
        if self.sent.len() == MOST {
            self.sent.retain(|_, sent| now.is_within(UNDER_WAY, *sent));
        }
        if self.sent.len() == MOST || self.sent.try_reserve(1).is_err() {
            self.to_others = Some(now);
            return;
        }
        self.sent.insert(peer, now);
    }

    /// Returns whether a datagram for `peer` may be under way.
    pub(super) fn may_be_under_way(&self, now: Time, peer: LocalPeer) -> bool {
        let mut times = self.sent.get(&peer).into_iter().chain(&self.to_others);
        times.any(|sent| now.is_within(UNDER_WAY, *sent))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn peer(slot: u16) -> LocalPeer {
        (IpAddr::V4(Ipv4Addr::LOCALHOST), slot)
    }

    #[test]
    fn a_datagram_may_be_under_way_for_a_minute() {
        let (mut datagrams, begin) = (UdpDatagrams::default(), Time::ZERO);
        let middle = begin + UNDER_WAY / 2;
        datagrams.add(begin, peer(1));
        datagrams.add(begin, peer(2));
        datagrams.add(middle, peer(1));
        let known = |now| [1, 2, 3].map(|slot| datagrams.may_be_under_way(now, peer(slot)));
        assert_eq!(known(middle), [true, true, false]);
        assert_eq!(known(begin + UNDER_WAY), [true, false, false]);
        assert_eq!(known(middle + UNDER_WAY), [false; 3]);
    }

    #[test]
    fn what_is_known_is_limited_and_the_unknown_counts_as_under_way() {
        let (mut datagrams, begin) = (UdpDatagrams::default(), Time::ZERO);
        (0..MOST as u16).for_each(|slot| datagrams.add(begin, peer(slot)));
        let (one_more, never) = (peer(MOST as u16), peer(MOST as u16 + 1));
        assert!(!datagrams.may_be_under_way(begin, one_more));
        datagrams.add(begin, one_more);
        assert!(datagrams.may_be_under_way(begin, one_more));
        assert!(datagrams.may_be_under_way(begin, never));
        assert_eq!(datagrams.sent.len(), MOST);
        let later = begin + UNDER_WAY;
        datagrams.add(later, one_more);
        assert_eq!(datagrams.sent.len(), 1);
        assert!(datagrams.may_be_under_way(later, one_more));
        assert!(!datagrams.may_be_under_way(later, never));
    }
}
