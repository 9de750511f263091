//! Posting sides of an endpoint's queues: the data that a post needs, in one place under one lock.

use std::sync::Arc;

use dat_arena::Cycle;

use super::post::{SUPPRESS, outstanding};
use super::ring::{Outstanding, Ring, Slot, SlotInfo, none};
use crate::attributes::{AdapterAttr, EpAttr};
use crate::counters::Posted;
use crate::evd::Evd;
use crate::event::DtoOp;
use crate::flags::CompletionFlags;
use crate::transport::Transport;

/// Signal at least every 32nd request. A power of two.
const SIGNAL_EVERY: u32 = 32;

/// Returns [`SendQueue::signal_mask`]: a power of two, at most half of the ring, less one.
fn signal_mask(depth: u32) -> u32 {
    let half = (depth / 2).clamp(1, SIGNAL_EVERY);
    (1 << half.ilog2()) - 1
}

/// Returns true if a request with `flags` completes without an event, and its completion is `signaled` all the same.
#[inline(always)]
pub(super) const fn is_silent(flags: u32, signaled: bool) -> bool {
    flags & SUPPRESS != 0 && signaled
}

/// Posting side of the request ring. Locked during each post.
pub(super) struct SendQueue<T: Transport> {
    pub(super) qp: Option<Arc<T::Qp>>,
    pub(super) slots: Cycle<Slot>,
    /// Sequence number of the next request.
    pub(super) head: u32,
    /// Sequence number up to which requests can be posted without a further check. When the head reaches it, the slow
    /// path checks whether the ring has room again and the state allows posts.
    pub(super) limit: u32,
    /// Maximum number of outstanding requests.
    pub(super) depth: u32,
    /// Mask that selects requests to signal in any case: those whose number has none of these bits.
    pub(super) signal_mask: u32,
    pub(super) max_iov: usize,
    pub(super) max_message: u64,
    pub(super) max_rdma: u64,
    /// True if the length of the remote segment is checked, and not only used by the peer's key check.
    pub(super) strict: bool,
    /// Exclusive limit for the length of a message on the fast path; 0 if all messages take the slow path.
    pub(super) fast_message_limit: u64,
    pub(super) fast_rdma_limit: u64,
    /// Flags that a post must not have.
    pub(super) invalid_flags: u32,
    /// Bits that every [`SlotInfo`] has.
    pub(super) info_base: u64,
    pub(super) id_base: u64,
    /// Counts since the endpoint's memory was made.
    pub(super) posted: Posted,
    pub(super) evd: Option<&'static Evd<T>>,
    /// EVD whose completion queue reports the requests, also if the consumer gets no events.
    pub(super) completion_evd: Option<&'static Evd<T>>,
}

impl<T: Transport> Default for SendQueue<T> {
    fn default() -> Self {
        Self {
            qp: None,
            slots: none(),
            head: 0,
            limit: 0,
            depth: 0,
            signal_mask: 0,
            max_iov: 0,
            max_message: 0,
            max_rdma: 0,
            strict: false,
            fast_message_limit: 0,
            fast_rdma_limit: 0,
            invalid_flags: 0,
            info_base: 0,
            id_base: 0,
            posted: Posted::default(),
            evd: None,
            completion_evd: None,
        }
    }
}

/// Returns true if a work request that is outstanding in `ring` gives an event also if it succeeds.
fn owes_events(slots: &Cycle<Slot>, head: u32, ring: &Ring) -> bool {
    let tail = ring.tail();
    // A transport that completes what was not posted may have moved the tail beyond the head.
    let outstanding = head.wrapping_sub(tail).min(slots.span().saturating_add(1));
    (0..outstanding).any(|n| {
        let (_, info) = slots.at(tail.wrapping_add(n)).read();
        !info.has(SlotInfo::SUPPRESSED | SlotInfo::NO_EVD)
    })
}

/// Returns true if `evd` is that of the queue.
fn is_of<T: Transport>(queue: Option<&'static Evd<T>>, evd: &'static Evd<T>) -> bool {
    queue.is_some_and(|of_queue| std::ptr::eq(of_queue, evd))
}

/// Queue that counts a post before the transport accepts it.
pub(super) trait UndoCount {
    /// Takes back the count of the post at the head, which failed.
    fn undo_count(&mut self);
}

impl<T: Transport> UndoCount for SendQueue<T> {
    fn undo_count(&mut self) {
        let (_, info) = self.slot(self.head).read();
        self.posted.take_back(info.op(), info.extra());
    }
}

impl<T: Transport> UndoCount for RecvQueue<T> {
    fn undo_count(&mut self) {
        self.posted
            .take_back_bytes(DtoOp::Receive, self.last.into());
    }
}

impl<T: Transport> SendQueue<T> {
    /// Returns the slot of request `number`.
    #[inline(always)]
    pub(super) fn slot(&self, number: u32) -> &'static Slot {
        self.slots.at(number)
    }

    /// Returns true if `evd` is to have the completion of an outstanding request, also if that succeeds.
    pub(super) fn owes(&self, evd: &'static Evd<T>, ring: &Ring) -> bool {
        self.qp.is_some() && is_of(self.evd, evd) && owes_events(&self.slots, self.head, ring)
    }

    /// Announces to the EVD a request with `flags` whose completion is `signaled`. Returns the bits that its
    /// [`SlotInfo`] has in addition. If the transport refuses the request, the caller calls
    /// [`SendQueue::undo_announcement`].
    #[inline]
    pub(super) fn announce(&self, flags: u32, signaled: bool) -> u64 {
        match self.completion_evd {
            Some(evd) if is_silent(flags, signaled) => {
                evd.expect_silent();
                SlotInfo::SILENT
            }
            _ => 0,
        }
    }

    /// Undoes [`SendQueue::announce`], which returned `bits`.
    #[cold]
    pub(super) fn undo_announcement(&self, bits: u64) {
        if let Some(evd) = self.completion_evd.filter(|_| bits != 0) {
            evd.undo_expect_silent();
        }
    }

    /// Returns true if request `number` must be signaled, because the consumer `requested` it or by its number.
    #[inline(always)]
    pub(super) fn is_signaled(&self, number: u32, requested: bool) -> bool {
        requested || number & self.signal_mask == 0
    }
}

/// Posting side of the receive ring.
pub(super) struct RecvQueue<T: Transport> {
    pub(super) qp: Option<Arc<T::Qp>>,
    pub(super) slots: Cycle<Slot>,
    pub(super) head: u32,
    pub(super) limit: u32,
    pub(super) depth: u32,
    pub(super) max_iov: usize,
    pub(super) invalid_flags: u32,
    pub(super) info_base: u64,
    pub(super) id_base: u64,
    pub(super) posted: Posted,
    /// Bytes of the receive that was counted last.
    pub(super) last: u32,
    /// Number of receives that are included in [`Posted`]; their bytes always are.
    pub(super) counted: u32,
    pub(super) evd: Option<&'static Evd<T>>,
    /// EVD whose completion queue reports the receives, also those of an SRQ.
    pub(super) completion_evd: Option<&'static Evd<T>>,
}

impl<T: Transport> Default for RecvQueue<T> {
    fn default() -> Self {
        Self {
            qp: None,
            slots: none(),
            head: 0,
            limit: 0,
            depth: 0,
            max_iov: 0,
            invalid_flags: 0,
            info_base: 0,
            id_base: 0,
            posted: Posted::default(),
            last: 0,
            counted: 0,
            evd: None,
            completion_evd: None,
        }
    }
}

impl<T: Transport> SendQueue<T> {
    #[allow(
        clippy::too_many_arguments,
        reason = "each is one fact of the endpoint"
    )]
    pub(super) fn open(
        &mut self,
        slots: Cycle<Slot>,
        id_base: u64,
        qp: Arc<T::Qp>,
        attr: &EpAttr,
        adapter: &AdapterAttr,
        strict: bool,
        evd: Option<&'static Evd<T>>,
        internal_evd: Option<&'static Evd<T>>,
    ) {
        let allowed = CompletionFlags::SUPPRESS
            | CompletionFlags::SOLICITED_WAIT
            | CompletionFlags::BARRIER_FENCE
            | CompletionFlags::EVD_THRESHOLD
            | (attr.request_completion_flags & CompletionFlags::UNSIGNALLED);
        if let Some(evd) = self.completion_evd {
            evd.forget_sources();
        }
        // Limited by the length of a segment in core's layout.
        let below = |most: u64| match attr.max_request_iov {
            0 => 0,
            _ => most.min(u32::MAX.into()) + 1,
        };
        *self = Self {
            qp: Some(qp),
            slots,
            head: 0,
            limit: 0,
            depth: attr.max_request_dtos,
            signal_mask: signal_mask(attr.max_request_dtos),
            max_iov: attr.max_request_iov as usize,
            // Limits of the adapter, not of the endpoint: real programs set those to anything (Intel MPI to 3,
            // dtestsrq to 0) and send more.
            max_message: if attr.service_type == 0 {
                adapter.max_message_size
            } else {
                adapter.max_datagram.into()
            },
            max_rdma: adapter.max_rdma_size,
            strict,
            fast_message_limit: below(adapter.max_message_size),
            fast_rdma_limit: if strict {
                0
            } else {
                below(adapter.max_rdma_size)
            },
            invalid_flags: !allowed.bits(),
            info_base: if evd.is_some() { 0 } else { SlotInfo::NO_EVD },
            id_base,
            posted: self.posted,
            evd,
            completion_evd: evd.or(internal_evd),
        };
    }

    pub(super) fn close(&mut self, ring: &Ring) -> Option<Arc<T::Qp>> {
        if let Some(evd) = self.completion_evd {
            if outstanding(self.head, ring) != 0 {
                evd.expect_orphans();
            }
            evd.forget_sources();
        }
        self.limit = self.head;
        self.evd = None;
        self.completion_evd = None;
        self.qp.take()
    }
}

impl<T: Transport> RecvQueue<T> {
    /// Returns true if `evd` is to have the completion of an outstanding receive. Those of an SRQ do not count.
    pub(super) fn owes(&self, evd: &'static Evd<T>, ring: &Ring) -> bool {
        self.qp.is_some() && is_of(self.evd, evd) && owes_events(&self.slots, self.head, ring)
    }

    /// Returns the slot of receive `number`.
    #[inline(always)]
    pub(super) fn slot(&self, number: u32) -> &'static Slot {
        self.slots.at(number)
    }

    /// Counts the receives posted since the last call by the head's number, so that the fast path counts nothing.
    /// Must be called before the head can wrap.
    pub(super) fn count(&mut self) {
        self.posted
            .add_many(DtoOp::Receive, self.head.wrapping_sub(self.counted));
        self.counted = self.head;
    }

    pub(super) fn open(
        &mut self,
        slots: Cycle<Slot>,
        id_base: u64,
        qp: Arc<T::Qp>,
        attr: &EpAttr,
        evd: Option<&'static Evd<T>>,
        internal_evd: Option<&'static Evd<T>>,
    ) {
        let allowed = attr.recv_completion_flags & CompletionFlags::UNSIGNALLED;
        self.count();
        if let Some(evd) = self.completion_evd {
            evd.forget_sources();
        }
        *self = Self {
            qp: Some(qp),
            slots,
            head: 0,
            limit: 0,
            depth: attr.max_recv_dtos,
            max_iov: attr.max_recv_iov as usize,
            invalid_flags: !allowed.bits(),
            info_base: {
                let info_base = if evd.is_some() { 0 } else { SlotInfo::NO_EVD };
                let datagram = if attr.service_type == 0 {
                    0
                } else {
                    SlotInfo::BIND_OR_DATAGRAM
                };
                info_base | datagram
            },
            id_base,
            posted: self.posted,
            last: 0,
            counted: 0,
            evd,
            completion_evd: evd.or(internal_evd),
        };
    }

    pub(super) fn close(&mut self, ring: &Ring) -> Option<Arc<T::Qp>> {
        if let Some(evd) = self.completion_evd {
            // Receives of an SRQ are not in the ring.
            if self.qp.is_none() || outstanding(self.head, ring) != 0 {
                evd.expect_orphans();
            }
            evd.forget_sources();
        }
        self.limit = self.head;
        self.evd = None;
        self.completion_evd = None;
        self.qp.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_of_each_half_ring_is_signaled() {
        for (depth, every) in [
            (0, 1),
            (1, 1),
            (2, 1),
            (5, 2),
            (63, 16),
            (64, 32),
            (9999, 32),
        ] {
            let mask = signal_mask(depth);
            let asking = (0..64).filter(|number| number & mask == 0).count();
            assert_eq!(asking, 64 / every, "depth {depth}");
        }
    }
}
