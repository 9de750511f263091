//! The posters' halves of an endpoint's rings: what a post needs to know, in one place under one lock.

use std::sync::Arc;

use dat_arena::Cycle;

use super::post::QUIET;
use super::ring::{Note, Outstanding, Slot, none};
use crate::attr::{AdapterAttr, EpAttr};
use crate::counters::Posted;
use crate::evd::Evd;
use crate::event::DtoOp;
use crate::flags::CompletionFlags;
use crate::transport::Transport;

/// Of at most so many requests in a row one asks for a completion. A power of two.
const LONGEST_SILENCE: u32 = 32;

/// [`SendQueue::silent`]: a power of two, at most half of the ring, less one.
fn silent(depth: u32) -> u32 {
    let half = (depth / 2).clamp(1, LONGEST_SILENCE);
    (1 << half.ilog2()) - 1
}

/// The poster's half of the request ring. Locked during each post.
pub(super) struct SendQueue<T: Transport> {
    pub(super) qp: Option<Arc<T::Qp>>,
    pub(super) slots: Cycle<Slot>,
    /// Sequence number of the next request.
    pub(super) head: u32,
    /// Up to here requests surely may be posted. Where the head is there already, look closer: the ring may have
    /// room again, or the state may forbid.
    pub(super) limit: u32,
    /// Requests that may be outstanding.
    pub(super) depth: u32,
    /// A request that nobody wants to hear of asks for a completion all the same if its number has none of these bits.
    pub(super) silent: u32,
    pub(super) max_iov: usize,
    pub(super) max_message: u64,
    pub(super) max_rdma: u64,
    /// The length of the remote segment counts, and not only the peer's key.
    pub(super) strict: bool,
    /// On the short way requests are shorter than this; 0 if they must have no segments, or are not to go it.
    pub(super) short_message: u64,
    pub(super) short_rdma: u64,
    /// Flags that a post must not have.
    pub(super) refused: u32,
    /// Those that it must not have on the short way. The first post with [`QUIET`] goes the long one, which tells the
    /// EVD what to expect.
    pub(super) rare: u32,
    /// Bits of every [`Note`].
    pub(super) mute: u64,
    pub(super) id_base: u64,
    /// Since the endpoint's memory was made.
    pub(super) posted: Posted,
    pub(super) evd: Option<&'static Evd<T>>,
    /// Where completions come out, heard or not.
    pub(super) drain: Option<&'static Evd<T>>,
}

impl<T: Transport> Default for SendQueue<T> {
    fn default() -> Self {
        Self {
            qp: None,
            slots: none(),
            head: 0,
            limit: 0,
            depth: 0,
            silent: 0,
            max_iov: 0,
            max_message: 0,
            max_rdma: 0,
            strict: false,
            short_message: 0,
            short_rdma: 0,
            refused: 0,
            rare: 0,
            mute: 0,
            id_base: 0,
            posted: Posted::default(),
            evd: None,
            drain: None,
        }
    }
}

/// A queue that counts what is posted before it is posted.
pub(super) trait Uncount {
    /// What is at the head could not be posted.
    fn uncount(&mut self);
}

impl<T: Transport> Uncount for SendQueue<T> {
    fn uncount(&mut self) {
        let (_, note) = self.slot(self.head).read();
        self.posted.take_back(note.op(), note.extra());
    }
}

impl<T: Transport> Uncount for RecvQueue<T> {
    fn uncount(&mut self) {
        self.posted
            .take_back_bytes(DtoOp::Receive, self.last.into());
    }
}

impl<T: Transport> SendQueue<T> {
    /// The slot of request `number`.
    #[inline(always)]
    pub(super) fn slot(&self, number: u32) -> &'static Slot {
        self.slots.at(number)
    }

    /// To be called before a request is posted of whose success nobody hears.
    #[inline]
    pub(super) fn hush(&mut self) {
        self.rare = self.refused;
        if let Some(evd) = self.drain {
            evd.expect_unheard();
        }
    }

    /// Whether request `number` asks for a completion, if a consumer wants to hear of it or not.
    #[inline(always)]
    pub(super) fn asks(&self, number: u32, wanted: bool) -> bool {
        wanted || number & self.silent == 0
    }
}

/// The poster's half of the receive ring.
pub(super) struct RecvQueue<T: Transport> {
    pub(super) qp: Option<Arc<T::Qp>>,
    pub(super) slots: Cycle<Slot>,
    pub(super) head: u32,
    pub(super) limit: u32,
    pub(super) depth: u32,
    pub(super) max_iov: usize,
    pub(super) refused: u32,
    pub(super) mute: u64,
    pub(super) id_base: u64,
    pub(super) posted: Posted,
    /// Bytes of the receive that was counted last.
    pub(super) last: u32,
    /// Up to here receives are in [`Posted`] by number; their bytes always are.
    pub(super) counted: u32,
    pub(super) evd: Option<&'static Evd<T>>,
    pub(super) drain: Option<&'static Evd<T>>,
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
            refused: 0,
            mute: 0,
            id_base: 0,
            posted: Posted::default(),
            last: 0,
            counted: 0,
            evd: None,
            drain: None,
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
        unheard: Option<&'static Evd<T>>,
    ) {
        let allowed = CompletionFlags::SUPPRESS
            | CompletionFlags::SOLICITED_WAIT
            | CompletionFlags::BARRIER_FENCE
            | CompletionFlags::EVD_THRESHOLD
            | (attr.request_completion_flags & CompletionFlags::UNSIGNALLED);
        if let (None, Some(unheard)) = (evd, unheard) {
            unheard.expect_unheard();
        }
        if let Some(evd) = self.drain {
            evd.forget();
        }
        // What core's segments can say.
        let short = |most: u64| match attr.max_request_iov {
            0 => 0,
            _ => most.min(u32::MAX.into()) + 1,
        };
        *self = Self {
            qp: Some(qp),
            slots,
            head: 0,
            limit: 0,
            depth: attr.max_request_dtos,
            silent: silent(attr.max_request_dtos),
            max_iov: attr.max_request_iov as usize,
            // The adapter's limits and not the endpoint's: real programs set those to anything (Intel MPI to
            // 3, dtestsrq to 0) and send more.
            max_message: if attr.service_type == 0 {
                adapter.max_message_size
            } else {
                adapter.max_datagram.into()
            },
            max_rdma: adapter.max_rdma_size,
            strict,
            short_message: short(adapter.max_message_size),
            short_rdma: if strict {
                0
            } else {
                short(adapter.max_rdma_size)
            },
            refused: !allowed.bits(),
            rare: !allowed.bits() | QUIET,
            mute: if evd.is_some() { 0 } else { Note::MUTE },
            id_base,
            posted: self.posted,
            evd,
            drain: evd.or(unheard),
        };
    }

    pub(super) fn close(&mut self) -> Option<Arc<T::Qp>> {
        // Completions on their way are nobody's.
        if let Some(evd) = self.drain {
            evd.expect_unheard();
            evd.forget();
        }
        self.limit = self.head;
        self.evd = None;
        self.drain = None;
        self.qp.take()
    }
}

impl<T: Transport> RecvQueue<T> {
    /// The slot of receive `number`.
    #[inline(always)]
    pub(super) fn slot(&self, number: u32) -> &'static Slot {
        self.slots.at(number)
    }

    /// Counts the receives posted since the last call: their number is in the head, which costs the short way nothing.
    /// To be called before the head can have gone round.
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
        unheard: Option<&'static Evd<T>>,
    ) {
        let allowed = attr.recv_completion_flags & CompletionFlags::UNSIGNALLED;
        self.count();
        if let (None, Some(unheard)) = (evd, unheard) {
            unheard.expect_unheard();
        }
        if let Some(evd) = self.drain {
            evd.forget();
        }
        *self = Self {
            qp: Some(qp),
            slots,
            head: 0,
            limit: 0,
            depth: attr.max_recv_dtos,
            max_iov: attr.max_recv_iov as usize,
            refused: !allowed.bits(),
            mute: {
                let mute = if evd.is_some() { 0 } else { Note::MUTE };
                let datagram = if attr.service_type == 0 {
                    0
                } else {
                    Note::SPECIAL
                };
                mute | datagram
            },
            id_base,
            posted: self.posted,
            last: 0,
            counted: 0,
            evd,
            drain: evd.or(unheard),
        };
    }

    pub(super) fn close(&mut self) -> Option<Arc<T::Qp>> {
        // Completions on their way are nobody's.
        if let Some(evd) = self.drain {
            evd.expect_unheard();
            evd.forget();
        }
        self.limit = self.head;
        self.evd = None;
        self.drain = None;
        self.qp.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_every_half_ring_one_request_asks() {
        for (depth, every) in [
            (0, 1),
            (1, 1),
            (2, 1),
            (5, 2),
            (63, 16),
            (64, 32),
            (9999, 32),
        ] {
            let mask = silent(depth);
            let asking = (0..64).filter(|number| number & mask == 0).count();
            assert_eq!(asking, 64 / every, "depth {depth}");
        }
    }
}
