//! Completions, events and counters of an engine, which all its parts write.

use std::collections::{TryReserveError, VecDeque};

use crate::completion_ring::CompletionRing;
use crate::config::Config;
use crate::event::Event;
use crate::occupancy::Occupancy;
use crate::qp::ring::{Receive, Ring};
use crate::time::Time;
use crate::wire::icrc_cache::IcrcCache;
use crate::work::{Completion, CqId, PostError, Sge, SrqId};
use crate::wrong_keys::WrongKeyLog;

/// Counters since the engine was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Datagrams and records handled.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Dropped: not a packet, or headers that are invalid.
    pub malformed: u64,
    /// Dropped: wrong ICRC.
    pub bad_icrc: u64,
    /// Dropped: no such queue pair, or not in a state that receives.
    pub unknown_qp: u64,
    /// Dropped: not from the queue pair's peer, or wrong Q_Key or partition.
    pub foreign: u64,
    /// Requests that were handled before.
    pub duplicates: u64,
    /// Requests after a gap.
    pub out_of_sequence: u64,
    /// Lent payloads that could not be read from the peer's memory; the packet is repeated, copied.
    pub withdrawn: u64,
    /// NAKs for requests that were invalid or not allowed; each ends its connection.
    pub refused: u64,
    /// Refused requests whose key does not grant the access: unknown, closed, of another protection domain, too short,
    /// without the right. A peer that guesses keys raises this.
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
    /// Requests to connect that were dropped because their source has used up its share of those that wait.
    pub requests_ignored: u64,
    /// Requests to connect that were dropped to make room for one of another address or port.
    pub requests_displaced: u64,
    /// Requests to connect whose peer was silent for too long.
    pub requests_expired: u64,
}

#[derive(Debug)]
struct Cq {
    queue: CompletionRing,
    /// Work requests that may complete here: the queue has room for all of them.
    reserved: usize,
    armed: bool,
    occupancy: Occupancy,
}

#[derive(Debug)]
struct Srq {
    ring: Ring<Receive>,
    max_sge: usize,
    limit: u32,
}

/// Queues between engine and driver.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    cqs: Vec<Option<Cq>>,
    srqs: Vec<Option<Srq>>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
    pub(crate) wrong_key_log: WrongKeyLog,
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
            queue: CompletionRing::default(),
            reserved: 0,
            armed: false,
            occupancy: Occupancy::default(),
        };
        insert(&mut self.cqs, cq).map(CqId)
    }

    pub(crate) fn destroy_cq(&mut self, cq: CqId) {
        if let Some(slot) = self.cqs.get_mut(cq.0 as usize) {
            *slot = None;
        }
    }

    /// Returns what says whether the queue may have completions.
    pub(crate) fn occupancy(&self, cq: CqId) -> Option<&Occupancy> {
        let cq = self.cqs.get(cq.0 as usize)?.as_ref()?;
        Some(&cq.occupancy)
    }

    fn cq(&mut self, cq: CqId) -> Option<&mut Cq> {
        self.cqs.get_mut(cq.0 as usize)?.as_mut()
    }

    /// Reserves room for the completion of a work request that is posted.
    #[inline]
    pub(crate) fn reserve_completion(&mut self, id: CqId) -> Result<(), PostError> {
        let Some(cq) = self.cq(id) else { return Ok(()) };
        let reserved = cq.reserved + 1;
        if !cq.queue.has_room(reserved) {
            let room = cq.queue.reserve(reserved);
            room.map_err(|_| PostError::NoMemory(cq.queue.len() + reserved))?;
        }
        cq.reserved = reserved;
        Ok(())
    }

    /// Releases the reservations of `count` work requests that will not complete.
    pub(crate) fn release_completions(&mut self, id: CqId, count: u32) {
        if let Some(cq) = self.cq(id) {
            cq.reserved = cq.reserved.saturating_sub(count as usize);
        }
    }

    pub(crate) fn arm_cq(&mut self, cq: CqId) {
        if let Some(cq) = self.cq(cq) {
            cq.armed = true;
        }
    }

    pub(crate) fn poll_cq(&mut self, cq: CqId, into: &mut [Completion]) -> usize {
        let Some(cq) = self.cq(cq) else { return 0 };
        let mut count = 0;
        while let Some(to) = into.get_mut(count)
            && let Some(completion) = cq.queue.pop()
        {
            *to = *completion;
            count += 1;
        }
        if cq.queue.is_empty() {
            cq.occupancy.set(false);
        }
        count
    }

    /// Appends a completion with a [reservation](Self::reserve_completion). Allocates nothing.
    pub(crate) fn complete(&mut self, id: CqId, completion: Completion) {
        self.complete_inline(id, completion);
    }

    /// Does what [`complete`](Self::complete) does. The completion is made in its slot then, and not copied there.
    #[inline(always)]
    pub(crate) fn complete_inline(&mut self, id: CqId, completion: Completion) {
        let Some(cq) = self.cq(id) else { return };
        debug_assert!(cq.reserved > 0, "{completion:?} was not expected");
        cq.reserved = cq.reserved.saturating_sub(1);
        cq.queue.push(completion);
        cq.occupancy.set(true);
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

    /// Returns the limit of SGEs of its receives.
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

    /// Arms the limit. Raises the event at once if fewer receives are posted already.
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

    /// Takes the oldest receive, to complete in `cq`. Without room there the receive stays.
    pub(crate) fn take_from_srq(
        &mut self,
        id: SrqId,
        cq: CqId,
        sges: &mut Vec<Sge>,
    ) -> Option<Receive> {
        self.reserve_completion(cq).ok()?;
        let Some(receive) = self.srq(id).and_then(|srq| srq.ring.take(sges)) else {
            self.release_completions(cq, 1);
            return None;
        };
        self.check_srq_limit(id);
        Some(receive)
    }
}

/// Parts of the engine that a queue pair uses during a call.
pub(crate) struct Context<'a, M> {
    pub(crate) now: Time,
    pub(crate) memory: &'a M,
    pub(crate) config: &'a Config,
    pub(crate) out: &'a mut Outputs,
    pub(crate) icrc_cache: &'a mut IcrcCache,
}
