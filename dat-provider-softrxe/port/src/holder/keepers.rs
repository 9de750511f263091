//! The keepers of the holder's members: each binds the UDP port of a member, so that no other user takes it when the member dies.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Instant;

use dat_os::timerfd::TimerFd;

use super::Holder;
use crate::port_keeper::PortKeeper;

impl Holder {
    /// Binds a keeper to the UDP port of a member.
    pub(super) fn keep_port(&mut self, member: u64, port: u16) {
        let (Some(uid), mut kept) = (self.members.uid(member), self.kept_ports.lock()) else {
            return;
        };
        if kept.has(member) || kept.len() >= self.max_kept {
            tracing::debug!(
                uid,
                port,
                "a member's UDP port is not kept for when it dies"
            );
            return;
        }
        let local = SocketAddr::new(self.socket.local().ip(), port);
        match PortKeeper::bind(local, uid) {
            Ok(keeper) => kept.insert(member, uid, keeper),
            Err(error) => {
                tracing::debug!(%error, uid, port, "a member's UDP port is not kept for when it dies");
            }
        }
    }

    /// Closes keepers whose retention ended before `now`, and sets the timer for the next one. Without a timer, for lack of a
    /// descriptor, they are closed at the next death.
    pub(super) fn close_expired_keepers(&mut self, now: Instant) {
        let next = {
            let mut kept = self.kept_ports.lock();
            kept.drop_expired(now);
            kept.next_expiry()
        };
        if let Some(timer) = &self.keeper_timer {
            timer.clear();
        }
        let Some(next) = next else {
            return;
        };
        if self.keeper_timer.is_none() {
            self.keeper_timer = TimerFd::new()
                .ok()
                .filter(|timer| self.ready.add(timer.as_raw_fd()).is_ok());
        }
        if let Some(timer) = &self.keeper_timer {
            timer.set(next.saturating_duration_since(now));
        }
    }
}
