//! Posting work (dat_ep_post_send, dat_ep_post_recv, dat_ep_post_rdma_read, dat_ep_post_rdma_write and the
//! 2.0 and IB additions). The hot path: one lock, no allocation, no division.

use std::sync::atomic::Ordering;

use dat_arena::BriefGuard;

use super::frequent::{Frequent, RdmaRead, RdmaWrite, Send};
use super::queue::{RecvQueue, SendQueue};
use super::ring::{Note, Ring, id};
use super::{DEAD, Ep, EpState};
use crate::error::{Error, Kind, Result, Subtype};
use crate::evd::Evd;
use crate::event::{Dto, DtoOp, DtoStatus, Event};
use crate::flags::CompletionFlags;
use crate::iov::{LmrTriplet, RmrTriplet};
use crate::transport::{Bind, Op, Request, Transport, WrId};

const FULL: Error = Error::resource(Subtype::ResourceMemory);
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
struct Post<'a, T: Transport> {
    iov: &'a [LmrTriplet],
    cookie: u64,
    flags: u32,
    /// The number of the flags in the C prototype.
    argument: u16,
    limit: Limit,
    kind: DtoOp,
    op: Op<'a, T>,
}

pub(super) fn length_of(iov: &[LmrTriplet]) -> u64 {
    iov.iter().map(|s| u64::from(s.segment_length)).sum()
}

impl Limit {
    /// Whether `queue` takes a request of `length` bytes.
    pub(super) fn allows<T: Transport>(self, queue: &SendQueue<T>, length: u64) -> bool {
        match self {
            Self::Message => length <= queue.max_message,
            Self::Rdma(remote) => length <= queue.max_rdma && (remote == 0 || length <= remote),
        }
    }

    /// The same on the short way: the odd remote length goes the long one.
    #[inline(always)]
    pub(super) fn allows_short<T: Transport>(self, queue: &SendQueue<T>, length: u64) -> bool {
        match self {
            Self::Message => length < queue.short_message,
            Self::Rdma(remote) => length < queue.short_rdma && length <= remote,
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
    pub fn post_long<K: Frequent>(
        &'static self,
        iov: &[LmrTriplet],
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
    fn post_any(&'static self, post: &Post<'_, T>) -> Result<()> {
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
        if post.iov.len() > queue.max_iov {
            return Err(Error::arg(2));
        }
        let length = length_of(post.iov);
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
                iov: post.iov,
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
    fn refill(
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
        if post.iov.len() > queue.max_iov {
            return Err(Error::arg(2));
        }
        let (evd, drain) = (queue.evd, queue.drain);
        drop(queue);
        self.flush_at_once(evd, drain, post.cookie, post.kind, length_of(post.iov));
        Ok(())
    }

    /// The completion of a post that never reaches the transport; after those that the transport flushes.
    #[cold]
    #[inline(never)]
    fn flush_at_once(
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

    /// Receives that are not completed.
    pub(super) fn receives_outstanding(&self) -> u32 {
        let queue = self.recv.lock();
        if queue.qp.is_none() {
            return 0;
        }
        outstanding(queue.head, &self.recv_ring)
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

    /// dat_ep_post_send. No segments is an empty message.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` unless Connected or Disconnected (there it is flushed), `DAT_INVALID_PARAMETER`
    /// for too many segments (argument 2) or flags that the endpoint cannot have (the last argument),
    /// `DAT_LENGTH_ERROR` beyond the adapter's message size, `DAT_INSUFFICIENT_RESOURCES` when the
    /// endpoint's request DTOs are all outstanding.
    #[inline]
    pub fn post_send(
        &'static self,
        iov: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_long(iov, cookie, flags, Send)
    }

    /// 2.0 dat_ep_post_send_with_invalidate: the same, and the peer's `rmr_context` is invalidated if `invalidate`.
    ///
    /// # Errors
    /// As [`Ep::post_send`].
    pub fn post_send_with_invalidate(
        &'static self,
        iov: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
        invalidate: bool,
        rmr_context: u32,
    ) -> Result<()> {
        let op = if invalidate {
            Op::SendWithInvalidate(rmr_context)
        } else {
            Op::Send
        };
        self.post_any(&Post {
            iov,
            cookie,
            flags: flags.bits(),
            argument: 5,
            limit: Limit::Message,
            kind: DtoOp::Send,
            op,
        })
    }

    /// dat_ep_post_recv, in any state; in Disconnected it is flushed.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (too many segments: argument 2; flags: 5; an endpoint on an SRQ: 1),
    /// `DAT_INSUFFICIENT_RESOURCES` when the endpoint's receive DTOs are all outstanding.
    #[inline]
    pub fn post_recv(
        &'static self,
        iov: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_any_recv(iov, cookie, flags.bits())
    }

    #[inline(never)]
    pub(super) fn post_any_recv(
        &'static self,
        iov: &[LmrTriplet],
        cookie: u64,
        flags: u32,
    ) -> Result<()> {
        if !self.head.alive() {
            return Err(DEAD);
        }
        let mut queue = self.recv.lock();
        if flags & queue.refused != 0 {
            return Err(Error::arg(5));
        }
        if iov.len() > queue.max_iov {
            return Err(self.too_many_segments(&queue));
        }
        if queue.head == queue.limit {
            queue = match self.refill_receives(queue, cookie)? {
                Some(queue) => queue,
                None => return Ok(()),
            };
        }
        let Some(qp) = &queue.qp else {
            return Err(DEAD);
        };
        let slot = queue.slot(queue.head);
        let number = queue.head;
        slot.fill(
            cookie,
            Note::new(DtoOp::Receive, note_bits(flags) | queue.mute, 0),
        );
        T::post_recv(qp, id(queue.id_base, number), iov)?;
        queue.head = number.wrapping_add(1);
        queue.posted.add_bytes(DtoOp::Receive, length_of(iov));
        Ok(())
    }

    /// At the limit: moves it on if there is room. `None`: Disconnected, and the receive of `cookie` is flushed.
    #[cold]
    #[inline(never)]
    fn refill_receives(
        &'static self,
        mut queue: BriefGuard<'static, RecvQueue<T>>,
        cookie: u64,
    ) -> Result<Option<BriefGuard<'static, RecvQueue<T>>>> {
        if queue.qp.is_none() {
            return Err(self.no_receives());
        }
        if self.state.load(Ordering::Acquire) == EpState::Disconnected as u32 {
            let (evd, drain) = (queue.evd, queue.drain);
            drop(queue);
            let op = if self.is_datagram() {
                DtoOp::ReceiveUd
            } else {
                DtoOp::Receive
            };
            self.flush_at_once(evd, drain, cookie, op, 0);
            return Ok(None);
        }
        if outstanding(queue.head, &self.recv_ring) >= queue.depth {
            return Err(FULL);
        }
        queue.limit = self.recv_ring.tail().wrapping_add(queue.depth);
        queue.count();
        Ok(Some(queue))
    }

    #[cold]
    fn too_many_segments(&'static self, queue: &RecvQueue<T>) -> Error {
        if queue.qp.is_none() {
            self.no_receives()
        } else {
            Error::arg(2)
        }
    }

    /// Why there is no receive queue.
    #[cold]
    fn no_receives(&'static self) -> Error {
        if !self.head.alive() {
            return DEAD;
        }
        if self.has_queue_pair() {
            // On an SRQ.
            return Error::arg(1);
        }
        Error::state(Subtype::InvalidStateEpPz)
    }

    /// The send queue stands before the receive queue in the order of locks: no waiting for it.
    fn has_queue_pair(&'static self) -> bool {
        self.send.try_lock().is_none_or(|queue| queue.qp.is_some())
    }

    /// dat_ep_post_rdma_read.
    ///
    /// # Errors
    /// As [`Ep::post_send`]; `DAT_LENGTH_ERROR` if `remote` is shorter than the segments, or they are longer than
    /// the adapter's RDMA size.
    #[inline]
    pub fn post_rdma_read(
        &'static self,
        iov: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_long(iov, cookie, flags, RdmaRead(remote))
    }

    /// 2.0 dat_ep_post_rdma_read_to_rmr: no verbs transport can.
    ///
    /// # Errors
    /// `DAT_MODEL_NOT_SUPPORTED`.
    pub fn post_rdma_read_to_rmr(
        &'static self,
        _local: &RmrTriplet,
        _cookie: u64,
        _remote: &RmrTriplet,
        _flags: CompletionFlags,
    ) -> Result<()> {
        Err(Error::of(Kind::ModelNotSupported))
    }

    /// dat_ep_post_rdma_write.
    ///
    /// # Errors
    /// As [`Ep::post_rdma_read`].
    #[inline]
    pub fn post_rdma_write(
        &'static self,
        iov: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_long(iov, cookie, flags, RdmaWrite(remote))
    }

    /// IB extension: RDMA Write with immediate data.
    ///
    /// # Errors
    /// As [`Ep::post_rdma_write`].
    pub fn post_rdma_write_immediate(
        &'static self,
        iov: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        immediate: u32,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_any(&Post {
            iov,
            cookie,
            flags: flags.bits(),
            argument: 7,
            limit: Limit::Rdma(remote.segment_length.into()),
            kind: DtoOp::RdmaWriteImmediate,
            op: Op::RdmaWriteWithImmediate(*remote, immediate),
        })
    }

    /// IB extension: compare and swap 8 bytes; the old value goes to `local`.
    ///
    /// # Errors
    /// As [`Ep::post_rdma_read`]; `DAT_LENGTH_ERROR` unless `local` is of 8 bytes.
    pub fn compare_swap(
        &'static self,
        compare: u64,
        swap: u64,
        local: &LmrTriplet,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        let op = Op::CompareSwap {
            remote: *remote,
            compare,
            swap,
        };
        self.post_atomic(local, cookie, flags, 7, DtoOp::CompareSwap, op)
    }

    /// IB extension: add to 8 bytes; the old value goes to `local`.
    ///
    /// # Errors
    /// As [`Ep::compare_swap`].
    pub fn fetch_add(
        &'static self,
        add: u64,
        local: &LmrTriplet,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        let op = Op::FetchAdd {
            remote: *remote,
            add,
        };
        self.post_atomic(local, cookie, flags, 6, DtoOp::FetchAdd, op)
    }

    fn post_atomic(
        &'static self,
        local: &LmrTriplet,
        cookie: u64,
        flags: CompletionFlags,
        argument: u16,
        kind: DtoOp,
        op: Op<'_, T>,
    ) -> Result<()> {
        if local.segment_length != 8 {
            return Err(Error::of(Kind::LengthError));
        }
        let iov = std::slice::from_ref(local);
        self.post_any(&Post {
            iov,
            cookie,
            flags: flags.bits(),
            argument,
            limit: Limit::Rdma(0),
            kind,
            op,
        })
    }

    /// For `Rmr::bind`: takes a request slot for the RMR at `rmr_index` of its arena, and lets `make` build the bind for
    /// `T::post_bind` with the id and the transport's `signaled` and `fence`. Returns the new context.
    ///
    /// # Errors
    /// As [`Ep::post_send`] with the flags as argument 7; what `T::post_bind` says.
    pub(crate) fn post_bind<'a>(
        &'static self,
        rmr_index: u32,
        cookie: u64,
        flags: CompletionFlags,
        make: impl FnOnce(WrId, bool, bool) -> Bind<'a, T>,
    ) -> Result<u32> {
        let mut queue = self.send.lock();
        let flags = flags.bits();
        if flags & queue.refused != 0 {
            return Err(Error::arg(7));
        }
        if queue.head == queue.limit {
            let (evd, drain) = (queue.evd, queue.drain);
            queue = match self.refill(queue) {
                Ok(queue) => queue,
                Err(Some(full)) => return Err(full),
                Err(None) if !self.head.alive() => return Err(DEAD),
                Err(None) if self.current_state() == EpState::Disconnected => {
                    self.flush_bind(evd, drain, cookie, rmr_index);
                    return Ok(0);
                }
                Err(None) => return Err(self.current_state().refuse()),
            };
        }
        if flags & QUIET != 0 {
            queue.hush();
        }
        let Some(qp) = &queue.qp else {
            return Err(DEAD);
        };
        let slot = queue.slot(queue.head);
        slot.fill(
            cookie,
            Note::new(
                DtoOp::BindMw,
                note_bits(flags) | queue.mute,
                u64::from(rmr_index),
            ),
        );
        let signaled = queue.asks(queue.head, flags & QUIET == 0);
        let fence = flags & CompletionFlags::BARRIER_FENCE.bits() != 0;
        let bind = make(id(queue.id_base, queue.head), signaled, fence);
        let context = T::post_bind(qp, &bind)?;
        queue.head = queue.head.wrapping_add(1);
        Ok(context)
    }

    fn flush_bind(
        &'static self,
        evd: Option<&'static Evd<T>>,
        drain: Option<&'static Evd<T>>,
        cookie: u64,
        rmr_index: u32,
    ) {
        if let Some(evd) = drain {
            evd.drain();
        }
        if let Some(evd) = evd {
            evd.post(Event::Dto(Dto {
                ep: self.handle(),
                rmr: T::arenas().rmr.get(rmr_index).map_or(0, crate::head::raw),
                cookie,
                status: DtoStatus::Flushed,
                op: DtoOp::BindMw,
                ..Dto::default()
            }));
        }
    }
}

#[inline(always)]
pub(super) const fn note_bits(flags: u32) -> u64 {
    // SUPPRESS (1) to QUIET (bit 4), UNSIGNALLED (4) to NO_NOTICE (bit 6).
    ((flags & (QUIET | NO_NOTICE)) as u64) << 4
}

fn outstanding(head: u32, ring: &Ring) -> u32 {
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
