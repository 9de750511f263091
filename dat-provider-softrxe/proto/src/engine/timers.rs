//! Deadlines of queue pairs and connections.
//!
//! A heap entry may be earlier than its owner's true deadline, never later: the owner's deadline usually moves on with
//! each packet, the entry stays and is looked at when it fires. So the hot path does not touch the heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Qpn;
use crate::time::Time;

/// Whose deadline it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Owner {
    Qp(Qpn),
    Cm(u32),
    /// Requests that wait for the consumer.
    Unproven,
    /// All connected queue pairs: are their peers there?
    KeepAlive,
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Time, Owner)>>,
}

impl Timers {
    pub(super) fn add(&mut self, at: Time, owner: Owner) {
        self.heap.push(Reverse((at, owner)));
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes an entry that is due.
    pub(super) fn expired(&mut self, now: Time) -> Option<(Time, Owner)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}
