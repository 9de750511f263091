//! Deadlines of queue pairs and connections.
//!
//! A heap entry may be earlier than its owner's true deadline, never later. Most packets move the deadline; the entry stays
//! and is compared with it when it fires. So the fast path does not touch the heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Qpn;
use crate::time::Time;

/// Owner of a deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Owner {
    Qp(Qpn),
    Cm(u32),
    /// A queue pair that goes on with its READ responses.
    Answers(Qpn),
    /// Requests that wait for the consumer.
    PendingRequests,
    /// The keepalive interval of all connected queue pairs.
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
