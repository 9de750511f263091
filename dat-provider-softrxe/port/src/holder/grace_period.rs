//! The first moment of a holder that continues the work of an earlier one: it keeps datagrams for the members that have not joined it yet.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Holder;
use crate::absent::Absent;
use crate::former_share::FormerShare;
use crate::message::Destination;

/// Time in which members of an earlier holder join the next one. Peers repeat their requests later than that.
const GRACE: Duration = Duration::from_millis(200);
/// Datagrams that are kept in that time, of up to 64 KiB each. Most have less than 4.
const MAX_EARLY: usize = 256;

/// A datagram that waits for its member.
#[derive(Debug)]
pub(super) struct Early {
    to: Destination,
    from: SocketAddr,
    ecn: u8,
    datagram: Box<[u8]>,
}

impl Holder {
    /// Continues the work of an earlier holder, whose members have not joined this one yet.
    pub(crate) fn start_grace_period(&mut self, former: &FormerShare) {
        self.kept_ports = former.kept_ports.clone();
        self.data_port = former.data_port;
        self.grace_until = Some(Instant::now() + GRACE);
        self.absent = Some(Absent::new(self.socket.local().ip()));
        self.close_expired_keepers(Instant::now());
    }

    /// Returns true while members of an earlier holder may not have joined yet.
    pub fn in_grace_period(&mut self) -> bool {
        self.grace_until.take_if(|end| *end <= Instant::now());
        self.grace_until.is_some()
    }

    /// Keeps a datagram that could not be [delivered](Self::deliver) for a member of an earlier holder, which joins within a moment. Returns
    /// false if there can be none; then the datagram is for no process. A datagram beyond `MAX_EARLY` is lost. So is a later one for a
    /// member that has not joined because it is stopped, or has no processor. The peer repeats them.
    pub fn keep(&mut self, to: Destination, from: SocketAddr, ecn: u8, datagram: &[u8]) -> bool {
        if !self.in_grace_period() {
            return self.absent_member_has(to);
        }
        if self.early.len() < MAX_EARLY {
            let datagram = datagram.into();
            self.early.push(Early {
                to,
                from,
                ecn,
                datagram,
            });
        }
        true
    }

    fn absent_member_has(&mut self, to: Destination) -> bool {
        let Some(absent) = &mut self.absent else {
            return false;
        };
        let members = &self.members;
        let has = absent.has(to, |what| members.owner(what).is_some());
        if has.is_none() {
            self.absent = None;
        }
        has == Some(true)
    }

    /// Delivers what was kept for members that have joined since.
    pub(super) fn deliver_early(&mut self) {
        if self.early.is_empty() {
            return;
        }
        for early in std::mem::take(&mut self.early) {
            let Early {
                to,
                from,
                ecn,
                datagram,
            } = &early;
            if !self.deliver(*to, *from, *ecn, datagram) && self.in_grace_period() {
                self.early.push(early);
            }
        }
    }
}
