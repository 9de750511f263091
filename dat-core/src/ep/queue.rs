//! The posters' halves of an endpoint's rings: what a post needs to know, in one place under one lock.

use std::sync::Arc;

use super::ring::{Note, Slot};
use crate::attr::{AdapterAttr, EpAttr};
use crate::evd::Evd;
use crate::flags::CompletionFlags;
use crate::transport::Transport;

/// At most so many requests in a row go without asking for a completion.
const LONGEST_SILENCE: u32 = 32;

/// The poster's half of the request ring. Locked during each post.
pub(super) struct SendQueue<T: Transport> {
    pub(super) qp: Option<Arc<T::Qp>>,
    pub(super) slots: &'static [Slot],
    /// Sequence number of the next request.
    pub(super) head: u32,
    /// Up to here requests surely may be posted. Where the head is there already, look closer: the ring may have
    /// room again, or the state may forbid.
    pub(super) limit: u32,
    /// Requests that may be outstanding.
    pub(super) depth: u32,
    /// Requests since the last that asks for a completion, and when to ask.
    pub(super) silence: u32,
    pub(super) longest_silence: u32,
    pub(super) max_iov: usize,
    pub(super) max_message: u64,
    pub(super) max_rdma: u64,
    /// Flags that a post must not have.
    pub(super) refused: u32,
    /// Bits of every [`Note`].
    pub(super) mute: u64,
    pub(super) id_base: u64,
    pub(super) evd: Option<&'static Evd<T>>,
    /// Where completions come out, heard or not.
    pub(super) drain: Option<&'static Evd<T>>,
}

impl<T: Transport> Default for SendQueue<T> {
    fn default() -> Self {
        Self {
            qp: None,
            slots: &[],
            head: 0,
            limit: 0,
            depth: 0,
            silence: 0,
            longest_silence: 0,
            max_iov: 0,
            max_message: 0,
            max_rdma: 0,
            refused: 0,
            mute: 0,
            id_base: 0,
            evd: None,
            drain: None,
        }
    }
}

/// The poster's half of the receive ring.
pub(super) struct RecvQueue<T: Transport> {
    pub(super) qp: Option<Arc<T::Qp>>,
    pub(super) slots: &'static [Slot],
    pub(super) head: u32,
    pub(super) limit: u32,
    pub(super) depth: u32,
    pub(super) max_iov: usize,
    pub(super) refused: u32,
    pub(super) mute: u64,
    pub(super) id_base: u64,
    pub(super) evd: Option<&'static Evd<T>>,
    pub(super) drain: Option<&'static Evd<T>>,
}

impl<T: Transport> Default for RecvQueue<T> {
    fn default() -> Self {
        Self {
            qp: None,
            slots: &[],
            head: 0,
            limit: 0,
            depth: 0,
            max_iov: 0,
            refused: 0,
            mute: 0,
            id_base: 0,
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
        slots: &'static [Slot],
        id_base: u64,
        qp: Arc<T::Qp>,
        attr: &EpAttr,
        adapter: &AdapterAttr,
        evd: Option<&'static Evd<T>>,
        unheard: Option<&'static Evd<T>>,
    ) {
        let allowed = CompletionFlags::SUPPRESS
            | CompletionFlags::SOLICITED_WAIT
            | CompletionFlags::BARRIER_FENCE
            | CompletionFlags::EVD_THRESHOLD
            | (attr.request_completion_flags & CompletionFlags::UNSIGNALLED);
        *self = Self {
            qp: Some(qp),
            slots,
            head: 0,
            limit: 0,
            depth: attr.max_request_dtos,
            silence: 0,
            longest_silence: (attr.max_request_dtos / 2).clamp(1, LONGEST_SILENCE),
            max_iov: attr.max_request_iov as usize,
            // The adapter's limits and not the endpoint's: real programs set those to anything (Intel MPI to
            // 3, dtestsrq to 0) and send more.
            max_message: if attr.service_type == 0 {
                adapter.max_message_size
            } else {
                adapter.max_datagram.into()
            },
            max_rdma: adapter.max_rdma_size,
            refused: !allowed.bits(),
            mute: if evd.is_some() { 0 } else { Note::MUTE },
            id_base,
            evd,
            drain: evd.or(unheard),
        };
    }

    pub(super) fn close(&mut self) -> Option<Arc<T::Qp>> {
        self.limit = self.head;
        self.evd = None;
        self.drain = None;
        self.qp.take()
    }
}

impl<T: Transport> RecvQueue<T> {
    pub(super) fn open(
        &mut self,
        slots: &'static [Slot],
        id_base: u64,
        qp: Arc<T::Qp>,
        attr: &EpAttr,
        evd: Option<&'static Evd<T>>,
        unheard: Option<&'static Evd<T>>,
    ) {
        let allowed = attr.recv_completion_flags & CompletionFlags::UNSIGNALLED;
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
            evd,
            drain: evd.or(unheard),
        };
    }

    pub(super) fn close(&mut self) -> Option<Arc<T::Qp>> {
        self.limit = self.head;
        self.evd = None;
        self.drain = None;
        self.qp.take()
    }
}

/// The slot of work request `number`; `slots` are a power of two, or none.
#[inline(always)]
pub(super) fn at(slots: &'static [Slot], number: u32) -> Option<&'static Slot> {
    slots.get(number as usize & slots.len().wrapping_sub(1))
}
