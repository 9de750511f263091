//! Posting of requests: the slow path and what it shares with the fast path (dat_ep_post_send, dat_ep_post_rdma_read,
//! dat_ep_post_rdma_write and the 2.0 and IB additions). A post takes one lock, allocates nothing and divides
//! nothing.

use dat_arena::BriefGuard;

use super::fast_ops::FastOp;
use super::queue::SendQueue;
use super::ring::{Outstanding, Ring, SlotInfo, id};
use super::{DEAD, Ep, EpState};
use crate::error::{Error, Kind, Result, Subtype};
use crate::evd::Evd;
use crate::event::{Dto, DtoOp, DtoStatus};
use crate::flags::CompletionFlags;
use crate::iov::{Iov, LmrTriplet, RmrTriplet};
use crate::transport::{Op, Request, Transport};

pub(super) const FULL: Error = Error::resource(Subtype::ResourceMemory);
pub(super) const SUPPRESS: u32 = CompletionFlags::SUPPRESS.bits();
const UNSIGNALLED: u32 = CompletionFlags::UNSIGNALLED.bits();

/// Limit for the length of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Message,
    /// RDMA limit, with the length of the remote buffer, which must hold the written or read bytes. 0 stands for any
    /// length: DAPL never checked it.
    Rdma(u64),
}

/// Request on the slow path.
pub(super) struct Post<'a, T: Transport> {
    pub(super) iov: Iov<'a>,
    pub(super) cookie: u64,
    pub(super) flags: u32,
    /// Argument number of the flags in the C prototype.
    pub(super) argument: u16,
    pub(super) limit: Limit,
    pub(super) kind: DtoOp,
    pub(super) op: Op<'a, T>,
}

impl<T: Transport> Post<'_, T> {
    /// Returns the error for more segments than the endpoint takes. In the extension's prototype the operation comes before them.
    #[cold]
    fn too_many_segments(&self) -> Error {
        Error::arg(if self.kind == DtoOp::RdmaWriteImmediate {
            3
        } else {
            2
        })
    }
}

pub(super) fn length_of(iov: &[LmrTriplet]) -> u64 {
    iov.iter().map(|s| u64::from(s.segment_length)).sum()
}

impl Limit {
    /// Returns true if `queue` accepts a request of `length` bytes.
    pub(super) fn allows<T: Transport>(self, queue: &SendQueue<T>, length: u64) -> bool {
        match self {
            Self::Message => length <= queue.max_message,
            Self::Rdma(remote) => {
                let fits = !queue.strict || remote == 0 || length <= remote;
                length <= queue.max_rdma && fits
            }
        }
    }

    /// Returns the same for the fast path. Only the slow path checks the remote length.
    #[inline(always)]
    pub(super) fn allows_fast<T: Transport>(self, queue: &SendQueue<T>, length: u64) -> bool {
        match self {
            Self::Message => length < queue.fast_message_limit,
            Self::Rdma(_) => length < queue.fast_rdma_limit,
        }
    }
}

/// Returns the limit for a request with a remote buffer of `remote` bytes, if any.
#[inline(always)]
pub(super) fn limit(remote: Option<u64>) -> Limit {
    remote.map_or(Limit::Message, Limit::Rdma)
}

impl<T: Transport> Ep<T> {
    /// Makes the endpoint dead in a forked child, and leaves no room for posts on the fast path, which checks nothing
    /// else. A queue that another thread of the parent had locked stays locked for ever, so it needs no change.
    pub(crate) fn disown(&self) {
        self.head.disown();
        if let Some(mut queue) = self.send.try_lock() {
            queue.limit = queue.head;
        }
        if let Some(mut queue) = self.recv.try_lock() {
            queue.limit = queue.head;
        }
    }

    /// Posts a request with a fast path on the slow path.
    ///
    /// # Errors
    /// As the function of the operation, e.g. [`Ep::post_send`].
    #[inline(never)]
    pub fn post_slow<K: FastOp>(
        &'static self,
        iov: Iov<'_>,
        cookie: u64,
        flags: CompletionFlags,
        what: K,
    ) -> Result<()> {
        self.post_request(&Post {
            iov,
            cookie,
            flags: flags.bits(),
            argument: K::FLAGS,
            limit: limit(what.remote()),
            kind: K::KIND,
            op: what.op(),
        })
    }

    /// Posts a request on the slow path: any number of segments, any flags, all checks.
    #[inline(never)]
    pub(super) fn post_request(&'static self, post: &Post<'_, T>) -> Result<()> {
        let mut queue = self.send.lock();
        if queue.head == queue.limit {
            queue = match self.refill(queue) {
                Ok(queue) => queue,
                Err(Some(full)) => return Err(full),
                Err(None) => return self.post_unconnected(post),
            };
        }
        if post.flags & queue.invalid_flags != 0 {
            return Err(Error::arg(post.argument));
        }
        let Some(iov) = post.iov.within(queue.max_iov) else {
            return Err(post.too_many_segments());
        };
        let length = length_of(iov);
        if !post.limit.allows(&queue, length) {
            return Err(Error::of(Kind::LengthError));
        }
        let Some(qp) = &queue.qp else {
            return Err(DEAD);
        };
        let slot = queue.slot(queue.head);
        let number = queue.head;
        let signaled = queue.is_signaled(number, post.flags & SUPPRESS == 0);
        let announced = queue.announce(post.flags, signaled);
        let info = info_bits(post.flags) | queue.info_base | announced;
        slot.fill(post.cookie, SlotInfo::new(post.kind, info, length));
        T::post_send(
            qp,
            &Request {
                id: id(queue.id_base, number),
                op: post.op,
                iov,
                length,
                signaled,
                solicited: post.flags & CompletionFlags::SOLICITED_WAIT.bits() != 0,
                fence: post.flags & CompletionFlags::BARRIER_FENCE.bits() != 0,
            },
        )
        .inspect_err(|_| queue.undo_announcement(announced))?;
        queue.head = number.wrapping_add(1);
        queue.posted.add(post.kind, length);
        Ok(())
    }

    /// Raises the limit that the head has reached, if the ring has room. The error `None` means that the state
    /// forbids posts.
    #[cold]
    #[inline(never)]
    pub(super) fn refill(
        &'static self,
        queue: BriefGuard<'static, SendQueue<T>>,
    ) -> std::result::Result<BriefGuard<'static, SendQueue<T>>, Option<Error>> {
        if self.is_datagram() {
            // The limit of a datagram endpoint always equals the head: it takes datagrams only, see `post_send_ud`.
            return Err(Some(Error::of(Kind::ModelNotSupported)));
        }
        if !self.state.is(EpState::Connected) {
            return self.behind_earlier(queue);
        }
        let mut queue = if outstanding(queue.head, &self.request_ring) < queue.depth {
            queue
        } else {
            self.make_room(queue).map_err(Some)?
        };
        queue.limit = self.request_ring.tail().wrapping_add(queue.depth);
        Ok(queue)
    }

    /// Makes room for one request in Disconnected while earlier ones are not complete, as when another thread is in
    /// dat_ep_disconnect and the transport has not flushed them yet. The request passes to the transport, which completes it behind
    /// them. The error `None` means that no earlier one is outstanding, or that the state is another one.
    #[cold]
    fn behind_earlier(
        &'static self,
        queue: BriefGuard<'static, SendQueue<T>>,
    ) -> std::result::Result<BriefGuard<'static, SendQueue<T>>, Option<Error>> {
        if !self.state.is(EpState::Disconnected) || outstanding(queue.head, &self.request_ring) == 0
        {
            return Err(None);
        }
        let completion_evd = queue.completion_evd;
        // Unlocked, because draining may run a consumer's agent.
        drop(queue);
        if let Some(evd) = completion_evd {
            evd.drain();
        }
        let mut queue = self.send.lock();
        if queue.qp.is_none() || !self.state.is(EpState::Disconnected) {
            return Err(None);
        }
        match outstanding(queue.head, &self.request_ring) {
            0 => Err(None),
            full if full >= queue.depth => Err(Some(FULL)),
            _ => {
                // For this request only: the next one checks again.
                queue.limit = queue.head.wrapping_add(1);
                Ok(queue)
            }
        }
    }

    /// Frees slots of a full ring. If the completion of the oldest request gives the consumer no event, the consumer
    /// may never poll for it: polls the completion queue instead.
    fn make_room(
        &'static self,
        queue: BriefGuard<'static, SendQueue<T>>,
    ) -> Result<BriefGuard<'static, SendQueue<T>>> {
        let oldest = queue.slot(self.request_ring.tail());
        if !oldest.read().1.has(SlotInfo::SUPPRESSED | SlotInfo::NO_EVD) {
            return Err(FULL);
        }
        let completion_evd = queue.completion_evd;
        // Unlocked, because draining may run a consumer's agent.
        drop(queue);
        if let Some(evd) = completion_evd {
            evd.drain();
        }
        let queue = self.send.lock();
        if outstanding(queue.head, &self.request_ring) < queue.depth
            && (self.current_state() == EpState::Connected || self.is_datagram())
        {
            Ok(queue)
        } else {
            Err(FULL)
        }
    }

    /// Returns the queue once it has room for one more datagram.
    pub(super) fn datagram_room(
        &'static self,
        queue: BriefGuard<'static, SendQueue<T>>,
    ) -> Result<BriefGuard<'static, SendQueue<T>>> {
        if outstanding(queue.head, &self.request_ring) < queue.depth {
            Ok(queue)
        } else {
            self.make_room(queue)
        }
    }

    /// Posts a request outside of Connected: flushes it in Disconnected, else refuses it.
    #[cold]
    #[inline(never)]
    fn post_unconnected(&'static self, post: &Post<'_, T>) -> Result<()> {
        let queue = self.send.lock();
        if !self.head.alive() {
            return Err(DEAD);
        }
        let state = self.current_state();
        // Without a queue pair no EVD takes the flushed completion: dat_ep_reset is in progress, or has failed.
        if state != EpState::Disconnected || queue.qp.is_none() {
            return Err(state.refuse());
        }
        if post.flags & queue.invalid_flags != 0 {
            return Err(Error::arg(post.argument));
        }
        let Some(iov) = post.iov.within(queue.max_iov) else {
            return Err(post.too_many_segments());
        };
        let evds = (queue.evd, queue.completion_evd);
        let depth = queue.depth;
        drop(queue);
        let dto = Dto {
            cookie: post.cookie,
            op: post.kind,
            length: length_of(iov),
            ..Dto::default()
        };
        self.flush_at_once(evds, depth, dto)
    }

    /// Posts the flushed completion `dto` of a request, bind or receive that never reaches the transport, behind those that the
    /// transport flushed. `evds` are that of its event and that of its completion, `depth` is the queue's.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES` while the program leaves more events in the EVD than it and the queue have room for.
    #[cold]
    #[inline(never)]
    pub(super) fn flush_at_once(
        &'static self,
        (evd, completion_evd): (Option<&'static Evd<T>>, Option<&'static Evd<T>>),
        depth: u32,
        dto: Dto,
    ) -> Result<()> {
        if let Some(evd) = completion_evd {
            evd.drain();
        }
        let dto = Dto {
            ep: self.handle(),
            status: DtoStatus::Flushed,
            ..dto
        };
        match evd {
            Some(evd) if !evd.post_flushed(dto, depth) => Err(FULL),
            _ => Ok(()),
        }
    }

    /// Returns the number of requests that are not complete.
    pub(super) fn requests_outstanding(&self) -> u32 {
        let queue = self.send.lock();
        // Without a queue pair the ring still belongs to an earlier generation.
        if queue.qp.is_none() {
            return 0;
        }
        outstanding(queue.head, &self.request_ring)
    }

    /// Marks the last outstanding request, so that its completion ends a graceful disconnect. If that request is posted
    /// unsignaled, posts an empty signaled RDMA Write behind it and marks that. The state is Disconnect Pending: no further
    /// request comes.
    pub(super) fn mark_last_request(&'static self) {
        let mut queue = self.send.lock();
        if outstanding(queue.head, &self.request_ring) == 0 {
            return;
        }
        let last = queue.head.wrapping_sub(1);
        let slot = queue.slot(last);
        // Every datagram is signaled, and a datagram queue pair takes no RDMA Write.
        let requested = self.is_datagram() || !slot.read().1.has(SlotInfo::SUPPRESSED);
        if queue.is_signaled(last, requested) {
            slot.mark_last();
            return;
        }
        let Some(qp) = &queue.qp else {
            return;
        };
        let slot = queue.slot(queue.head);
        let announced = queue.announce(SUPPRESS, true);
        let bits = SlotInfo::SUPPRESSED | SlotInfo::NO_EVD | SlotInfo::LAST | announced;
        slot.fill(0, SlotInfo::new(DtoOp::RdmaWrite, bits, 0));
        let mark = Request {
            id: id(queue.id_base, queue.head),
            op: Op::RdmaWrite(RmrTriplet::default()),
            iov: &[],
            length: 0,
            signaled: true,
            solicited: false,
            fence: false,
        };
        match T::post_send(qp, &mark) {
            Ok(()) => {
                queue.head = queue.head.wrapping_add(1);
                queue.limit = queue.head;
            }
            Err(error) => {
                queue.undo_announcement(announced);
                tracing::debug!(%error, "the request that ends a graceful disconnect cannot be posted");
                drop(queue);
                self.break_later();
            }
        }
    }
}

#[inline(always)]
pub(super) const fn info_bits(flags: u32) -> u64 {
    // DAT's SUPPRESS (1) becomes bit 4, UNSIGNALLED (4) becomes bit 6.
    ((flags & (SUPPRESS | UNSIGNALLED)) as u64) << 4
}

pub(super) fn outstanding(head: u32, ring: &Ring) -> u32 {
    head.wrapping_sub(ring.tail())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_bits_of_the_note() {
        assert_eq!(info_bits(0), 0);
        assert_eq!(info_bits(SUPPRESS), SlotInfo::SUPPRESSED);
        assert_eq!(info_bits(UNSIGNALLED), SlotInfo::UNSIGNALLED);
        assert_eq!(info_bits(!0), SlotInfo::SUPPRESSED | SlotInfo::UNSIGNALLED);
    }
}
