//! What posts of requests have in common (dat_ep_post_send, dat_ep_post_rdma_read, dat_ep_post_rdma_write and the 2.0 and IB
//! additions). The hot path: one lock, no allocation, no division.

use std::sync::atomic::Ordering;

use dat_arena::BriefGuard;

use super::fast_ops::FastOp;
use super::queue::SendQueue;
use super::ring::{Note, Outstanding, Ring, id};
use super::{DEAD, Ep, EpState};
use crate::error::{Error, Kind, Result, Subtype};
use crate::evd::Evd;
use crate::event::{Dto, DtoOp, DtoStatus, Event};
use crate::flags::CompletionFlags;
use crate::iov::{Iov, LmrTriplet, RmrTriplet};
use crate::transport::{Op, Request, Transport};

pub(super) const FULL: Error = Error::resource(Subtype::ResourceMemory);
pub(super) const QUIET: u32 = CompletionFlags::SUPPRESS.bits();
const NO_NOTICE: u32 = CompletionFlags::UNSIGNALLED.bits();

/// Which limit holds for the length of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Message,
    /// With the remote buffer's length, which must hold what is written to it, or what is read. 0 stands for "as
    /// long": DAPL never looked at it.
    Rdma(u64),
}

/// A request on the long way.
pub(super) struct Post<'a, T: Transport> {
    pub(super) iov: Iov<'a>,
    pub(super) cookie: u64,
    pub(super) flags: u32,
    /// The number of the flags in the C prototype.
    pub(super) argument: u16,
    pub(super) limit: Limit,
    pub(super) kind: DtoOp,
    pub(super) op: Op<'a, T>,
}

pub(super) fn length_of(iov: &[LmrTriplet]) -> u64 {
    iov.iter().map(|s| u64::from(s.segment_length)).sum()
}

impl Limit {
    /// Whether `queue` takes a request of `length` bytes.
    pub(super) fn allows<T: Transport>(self, queue: &SendQueue<T>, length: u64) -> bool {
        match self {
            Self::Message => length <= queue.max_message,
            Self::Rdma(remote) => {
                let fits = !queue.strict || remote == 0 || length <= remote;
                length <= queue.max_rdma && fits
            }
        }
    }

    /// The same on the short way. The remote length counts on the long one only.
    #[inline(always)]
    pub(super) fn allows_short<T: Transport>(self, queue: &SendQueue<T>, length: u64) -> bool {
        match self {
            Self::Message => length < queue.short_message,
            Self::Rdma(_) => length < queue.short_rdma,
        }
    }
}

/// The limit for a request with a remote buffer of so many bytes.
#[inline(always)]
pub(super) fn limit(remote: Option<u64>) -> Limit {
    remote.map_or(Limit::Message, Limit::Rdma)
}

impl<T: Transport> Ep<T> {
    /// In a forked child: dead, and without room for posts on the short way, which looks for nothing else. A queue that
    /// another thread of the parent held stays locked for ever, which bars that way too.
    pub(crate) fn disown(&self) {
        self.head.disown();
        if let Some(mut queue) = self.send.try_lock() {
            queue.limit = queue.head;
        }
        if let Some(mut queue) = self.recv.try_lock() {
            queue.limit = queue.head;
        }
    }

    /// A frequent request on the long way.
    ///
    /// # Errors
    /// As the function of its kind, e.g. [`Ep::post_send`].
    #[inline(never)]
    pub fn post_slow<K: FastOp>(
        &'static self,
        iov: Iov<'_>,
        cookie: u64,
        flags: CompletionFlags,
        what: K,
    ) -> Result<()> {
        self.post_any(&Post {
            iov,
            cookie,
            flags: flags.bits(),
            argument: K::FLAGS,
            limit: limit(what.remote()),
            kind: K::KIND,
            op: what.op(),
        })
    }

    /// The long way: any number of segments, any flags, and all that may be wrong.
    #[inline(never)]
    pub(super) fn post_any(&'static self, post: &Post<'_, T>) -> Result<()> {
        let mut queue = self.send.lock();
        if queue.head == queue.limit {
            queue = match self.refill(queue) {
                Ok(queue) => queue,
                Err(Some(full)) => return Err(full),
                Err(None) => return self.post_unconnected(post),
            };
        }
        if post.flags & queue.refused != 0 {
            return Err(Error::arg(post.argument));
        }
        let Some(iov) = post.iov.within(queue.max_iov) else {
            return Err(Error::arg(2));
        };
        let length = length_of(iov);
        if !post.limit.allows(&queue, length) {
            return Err(Error::of(Kind::LengthError));
        }
        if post.flags & QUIET != 0 {
            queue.hush();
        }
        let Some(qp) = &queue.qp else {
            return Err(DEAD);
        };
        let slot = queue.slot(queue.head);
        let number = queue.head;
        let note = note_bits(post.flags) | queue.mute;
        slot.fill(post.cookie, Note::new(post.kind, note, length));
        T::post_send(
            qp,
            &Request {
                id: id(queue.id_base, number),
                op: post.op,
                iov,
                length,
                signaled: queue.asks(number, post.flags & QUIET == 0),
                solicited: post.flags & CompletionFlags::SOLICITED_WAIT.bits() != 0,
                fence: post.flags & CompletionFlags::BARRIER_FENCE.bits() != 0,
            },
        )?;
        queue.head = number.wrapping_add(1);
        queue.posted.add(post.kind, length);
        Ok(())
    }

    /// At the limit: moves it on if there is room in the ring. `None`: the state forbids posts.
    #[cold]
    #[inline(never)]
    pub(super) fn refill(
        &'static self,
        queue: BriefGuard<'static, SendQueue<T>>,
    ) -> std::result::Result<BriefGuard<'static, SendQueue<T>>, Option<Error>> {
        if self.is_datagram() {
            // Its limit never leaves the head: only datagrams are for it, see `post_send_ud`.
            return Err(Some(Error::of(Kind::ModelNotSupported)));
        }
        if self.state.load(Ordering::Acquire) != EpState::Connected as u32 {
            return Err(None);
        }
        let mut queue = if outstanding(queue.head, &self.request_ring) < queue.depth {
            queue
        } else {
            self.make_room(queue).map_err(Some)?
        };
        queue.limit = self.request_ring.tail().wrapping_add(queue.depth);
        Ok(queue)
    }

    /// The ring is full. If its oldest request is one that no consumer will ever ask for, its completion may
    /// lie in the completion queue for ever: fetch it.
    fn make_room(
        &'static self,
        queue: BriefGuard<'static, SendQueue<T>>,
    ) -> Result<BriefGuard<'static, SendQueue<T>>> {
        let oldest = queue.slot(self.request_ring.tail());
        if !oldest.read().1.has(Note::QUIET | Note::MUTE) {
            return Err(FULL);
        }
        let drain = queue.drain;
        // Draining may wake a consumer's agent: not with the queue locked.
        drop(queue);
        if let Some(evd) = drain {
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

    /// Room for one more datagram.
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

    /// A request in another state than Connected: flushed if Disconnected, else refused.
    #[cold]
    #[inline(never)]
    fn post_unconnected(&'static self, post: &Post<'_, T>) -> Result<()> {
        let queue = self.send.lock();
        if !self.head.alive() {
            return Err(DEAD);
        }
        let state = self.current_state();
        if state != EpState::Disconnected {
            return Err(state.refuse());
        }
        if post.flags & queue.refused != 0 {
            return Err(Error::arg(post.argument));
        }
        let Some(iov) = post.iov.within(queue.max_iov) else {
            return Err(Error::arg(2));
        };
        let (evd, drain) = (queue.evd, queue.drain);
        drop(queue);
        self.flush_at_once(evd, drain, post.cookie, post.kind, length_of(iov));
        Ok(())
    }

    /// The completion of a post that never reaches the transport; after those that the transport flushes.
    #[cold]
    #[inline(never)]
    pub(super) fn flush_at_once(
        &'static self,
        evd: Option<&'static Evd<T>>,
        drain: Option<&'static Evd<T>>,
        cookie: u64,
        op: DtoOp,
        length: u64,
    ) {
        if let Some(evd) = drain {
            evd.drain();
        }
        if let Some(evd) = evd {
            evd.post(Event::Dto(Dto {
                ep: self.handle(),
                cookie,
                status: DtoStatus::Flushed,
                op,
                length: if op == DtoOp::Receive { 0 } else { length },
                ..Dto::default()
            }));
        }
    }

    /// Requests that are not completed.
    pub(super) fn requests_outstanding(&self) -> u32 {
        let queue = self.send.lock();
        // Without a queue pair the ring is still that of an earlier life.
        if queue.qp.is_none() {
            return 0;
        }
        outstanding(queue.head, &self.request_ring)
    }

    /// If the last requests were posted without asking for a completion, nothing would tell of their end: posts
    /// an empty RDMA Write that does. No new requests come: the state is Disconnect Pending.
    pub(super) fn mark_end_of_requests(&'static self) {
        let mut queue = self.send.lock();
        if outstanding(queue.head, &self.request_ring) == 0 {
            return;
        }
        let last = queue.head.wrapping_sub(1);
        let wanted = !queue.slot(last).read().1.has(Note::QUIET);
        if queue.asks(last, wanted) {
            return;
        }
        queue.hush();
        let Some(qp) = &queue.qp else {
            return;
        };
        let slot = queue.slot(queue.head);
        slot.fill(0, Note::new(DtoOp::RdmaWrite, Note::QUIET | Note::MUTE, 0));
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
                tracing::debug!(%error, "no mark: the disconnect waits for no more than is known");
                drop(queue);
                self.break_later();
            }
        }
    }
}

#[inline(always)]
pub(super) const fn note_bits(flags: u32) -> u64 {
    // SUPPRESS (1) to QUIET (bit 4), UNSIGNALLED (4) to NO_NOTICE (bit 6).
    ((flags & (QUIET | NO_NOTICE)) as u64) << 4
}

pub(super) fn outstanding(head: u32, ring: &Ring) -> u32 {
    head.wrapping_sub(ring.tail())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_bits_of_the_note() {
        assert_eq!(note_bits(0), 0);
        assert_eq!(note_bits(QUIET), Note::QUIET);
        assert_eq!(note_bits(NO_NOTICE), Note::NO_NOTICE);
        assert_eq!(note_bits(!0), Note::QUIET | Note::NO_NOTICE);
    }
}
