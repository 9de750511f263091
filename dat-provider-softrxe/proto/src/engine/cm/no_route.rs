//! Attempts to connect whose messages do not leave this host.

use std::net::IpAddr;

use super::super::Engine;
use super::super::timers::Owner;
use crate::memory::Memory;
use crate::time::Time;

impl<M: Memory> Engine<M> {
    /// Records that a message to `remote` was not sent because the host has no route to it. Attempts to connect to it, and lookups
    /// there, that have no answer end in `TimedOut` if that happens to a repetition, too: a route may come with a netdev that
    /// is just being set up.
    pub fn no_route(&mut self, now: Time, remote: IpAddr) {
        for id in self.cm.unanswered(remote) {
            if let Some(r) = self.cm.resolution(id) {
                r.repeated = u8::MAX;
                r.due = Some(now);
                self.timers.add(now, Owner::Cm(id));
            } else {
                if let Some(c) = self.cm.get_mut(id) {
                    c.repeated = u8::MAX;
                }
                self.set_due(id, now);
            }
        }
    }
}
