//! What the engine hands out: completions, events, counters; and what all its parts share.

use std::collections::{TryReserveError, VecDeque};

use crate::config::Config;
use crate::event::Event;
use crate::guesses::Guesses;
use crate::qp::ring::{Receive, Ring};
use crate::time::Time;
use crate::wire::seal::Sealer;
use crate::work::{Completion, CqId, PostError, Sge, SrqId};

/// What happened to datagrams; each counts since the engine began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Datagrams handled.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Dropped: no packet, or headers that make no sense.
    pub malformed: u64,
    /// Dropped: wrong ICRC.
    pub bad_icrc: u64,
    /// Dropped: no such queue pair, or not in a state that receives.
    pub unknown_qp: u64,
    /// Dropped: not from the queue pair's peer, or wrong Q_Key or partition.
    pub foreign: u64,
    /// Requests that had been handled before.
    pub duplicates: u64,
    /// Requests after a gap.
    pub out_of_sequence: u64,
    /// NAKs for requests that were invalid or not allowed; each ends its connection.
    pub refused: u64,
    /// Of them, those whose key does not grant what was asked for: unknown, closed, of another protection domain, too short, without the
    /// right. A peer that guesses keys shows here.
    pub wrong_keys: u64,
    /// RNR NAKs sent.
    pub rnr_sent: u64,
    /// RNR NAKs received.
    pub rnr_received: u64,
    /// Returns to an earlier PSN.
    pub go_backs: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Congestion notification packets, received and ignored.
    pub congestion: u64,
    /// Datagrams without a receive posted, dropped.
    pub ud_dropped: u64,
    /// Requests to connect that were not taken in: their address has its share of those that wait.
    pub requests_ignored: u64,
    /// Requests to connect that made room for one of another address or port.
    pub requests_displaced: u64,
    /// Requests to connect whose peer was silent for too long.
    pub requests_expired: u64,
}

#[derive(Debug)]
struct Cq {
    queue: VecDeque<Completion>,
    /// Work requests that may complete here: the queue has room for all of them.
    owed: usize,
    armed: bool,
}

#[derive(Debug)]
struct Srq {
    ring: Ring<Receive>,
    max_sge: usize,
    limit: u32,
}

/// Queues towards the driver.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    cqs: Vec<Option<Cq>>,
    srqs: Vec<Option<Srq>>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
    pub(crate) guesses: Guesses,
}

/// Puts `value` in the first free slot.
fn insert<T>(slots: &mut Vec<Option<T>>, value: T) -> Result<u32, TryReserveError> {
    let slot = slots.iter().position(Option::is_none);
    let slot = match slot {
        Some(slot) => slot,
        None => {
            slots.try_reserve(1)?;
            slots.push(None);
            slots.len() - 1
        }
    };
    slots[slot] = Some(value);
    Ok(slot as u32)
}

impl Outputs {
    pub(crate) fn create_cq(&mut self) -> Result<CqId, TryReserveError> {
        let cq = Cq {
            queue: VecDeque::new(),
            owed: 0,
            armed: false,
        };
        insert(&mut self.cqs, cq).map(CqId)
    }

    pub(crate) fn destroy_cq(&mut self, cq: CqId) {
        if let Some(slot) = self.cqs.get_mut(cq.0 as usize) {
            *slot = None;
        }
    }

    fn cq(&mut self, cq: CqId) -> Option<&mut Cq> {
        self.cqs.get_mut(cq.0 as usize)?.as_mut()
    }

    /// A work request is posted whose completion goes here: sees to it that there is room when it comes.
    pub(crate) fn expect(&mut self, id: CqId) -> Result<(), PostError> {
        let Some(cq) = self.cq(id) else { return Ok(()) };
        let owed = cq.owed + 1;
        if cq.queue.capacity() - cq.queue.len() < owed {
            let room = cq.queue.try_reserve(owed);
            room.map_err(|_| PostError::NoMemory(cq.queue.len() + owed))?;
        }
        cq.owed = owed;
        Ok(())
    }

    /// `count` work requests that were expected will not complete.
    pub(crate) fn settle(&mut self, id: CqId, count: u32) {
        if let Some(cq) = self.cq(id) {
            cq.owed = cq.owed.saturating_sub(count as usize);
        }
    }

    pub(crate) fn arm_cq(&mut self, cq: CqId, on: bool) {
        if let Some(cq) = self.cq(cq) {
            cq.armed = on;
        }
    }

    pub(crate) fn poll_cq(&mut self, cq: CqId, into: &mut [Completion]) -> usize {
        let Some(cq) = self.cq(cq) else { return 0 };
        let count = cq.queue.len().min(into.len());
        for (to, completion) in into.iter_mut().zip(cq.queue.drain(..count)) {
            *to = completion;
        }
        count
    }

    /// Appends a completion that was [expected](Self::expect): it allocates nothing.
    pub(crate) fn complete(&mut self, id: CqId, completion: Completion) {
        let Some(cq) = self.cq(id) else { return };
        debug_assert!(cq.owed > 0, "{completion:?} was not expected");
        cq.owed = cq.owed.saturating_sub(1);
        cq.queue.push_back(completion);
        if std::mem::take(&mut cq.armed) {
            self.events.push_back(Event::CqReady(id));
        }
    }

    pub(crate) fn create_srq(
        &mut self,
        depth: usize,
        max_sge: usize,
    ) -> Result<SrqId, TryReserveError> {
        let srq = Srq {
            ring: Ring::new(depth, max_sge)?,
            max_sge,
            limit: 0,
        };
        insert(&mut self.srqs, srq).map(SrqId)
    }

    /// SGEs that its receives have at most.
    pub(crate) fn srq_sges(&self, srq: SrqId) -> Option<usize> {
        Some(self.srqs.get(srq.0 as usize)?.as_ref()?.max_sge)
    }

    pub(crate) fn destroy_srq(&mut self, srq: SrqId) {
        if let Some(slot) = self.srqs.get_mut(srq.0 as usize) {
            *slot = None;
        }
    }

    fn srq(&mut self, srq: SrqId) -> Option<&mut Srq> {
        self.srqs.get_mut(srq.0 as usize)?.as_mut()
    }

    pub(crate) fn srq_ring(&mut self, srq: SrqId) -> Option<&mut Ring<Receive>> {
        self.srq(srq).map(|srq| &mut srq.ring)
    }

    /// Arms the limit; announces it at once if fewer receives are there already.
    pub(crate) fn set_srq_limit(&mut self, id: SrqId, limit: u32) {
        if let Some(srq) = self.srq(id) {
            srq.limit = limit;
            self.check_srq_limit(id);
        }
    }

    fn check_srq_limit(&mut self, id: SrqId) {
        let Some(srq) = self.srq(id) else { return };
        if srq.ring.len() < srq.limit {
            srq.limit = 0;
            self.events.push_back(Event::SrqLimit(id));
        }
    }

    /// Takes the oldest receive, to complete in `cq`. Without room there it stays.
    pub(crate) fn take_from_srq(
        &mut self,
        id: SrqId,
        cq: CqId,
        sges: &mut Vec<Sge>,
    ) -> Option<Receive> {
        self.expect(cq).ok()?;
        let Some(receive) = self.srq(id).and_then(|srq| srq.ring.take(sges)) else {
            self.settle(cq, 1);
            return None;
        };
        self.check_srq_limit(id);
        Some(receive)
    }
}

/// What a queue pair needs from its engine for the length of a call.
pub(crate) struct Context<'a, M> {
    pub(crate) now: Time,
    pub(crate) memory: &'a M,
    pub(crate) config: &'a Config,
    pub(crate) out: &'a mut Outputs,
    pub(crate) sealer: &'a mut Sealer,
}
