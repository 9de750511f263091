//! Posting work (dat_ep_post_send, dat_ep_post_recv, dat_ep_post_rdma_read, dat_ep_post_rdma_write and the
//! 2.0 and IB additions). The hot path: one lock, no allocation, no division.

use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::queue::{RecvQueue, SendQueue, at};
use super::ring::{Note, Ring, id};
use super::{DEAD, Ep, EpState};
use crate::error::{Error, Kind, Result, Subtype};
use crate::evd::Evd;
use crate::event::{Dto, DtoOp, DtoStatus, Event};
use crate::flags::CompletionFlags;
use crate::iov::{LmrTriplet, RmrTriplet};
use crate::transport::{Bind, Op, Request, Transport, WrId};

const FULL: Error = Error::resource(Subtype::ResourceMemory);
const QUIET: u32 = CompletionFlags::SUPPRESS.bits();
const NO_NOTICE: u32 = CompletionFlags::UNSIGNALLED.bits();

/// Which limit holds for the length of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    Message,
    /// With the remote buffer's length, which must hold what is written to it, or what is read. 0 stands for "as
    /// long": DAPL never looked at it.
    Rdma(u32),
}

#[inline(always)]
fn length_of(iov: &[LmrTriplet]) -> u64 {
    match iov {
        [] => 0,
        // By far the most frequent.
        [one] => u64::from(one.segment_length),
        many => sum_of(many),
    }
}

/// Apart: an unrolled loop would be longer than the rest of a post.
#[inline(never)]
fn sum_of(iov: &[LmrTriplet]) -> u64 {
    iov.iter().map(|s| u64::from(s.segment_length)).sum()
}

impl<T: Transport> Ep<T> {
    /// The way of every request. `argument` is the number of the flags in the C prototype.
    #[allow(clippy::too_many_arguments, reason = "inlined into each kind of post")]
    #[inline(always)]
    fn post_request(
        &'static self,
        iov: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
        argument: u16,
        limit: Limit,
        kind: DtoOp,
        op: Op<'_, T>,
    ) -> Result<()> {
        // The same twice, for the compiler to make a shorter one of the first.
        if flags.is_empty() {
            self.post_flagged(iov, cookie, 0, argument, limit, kind, op)
        } else {
            self.post_flagged(iov, cookie, flags.bits(), argument, limit, kind, op)
        }
    }

    #[allow(clippy::too_many_arguments, reason = "inlined into each kind of post")]
    #[inline(always)]
    fn post_flagged(
        &'static self,
        iov: &[LmrTriplet],
        cookie: u64,
        flags: u32,
        argument: u16,
        limit: Limit,
        kind: DtoOp,
        op: Op<'_, T>,
    ) -> Result<()> {
        let mut queue = self.send.lock();
        if queue.head == queue.limit {
            queue = match self.refill(queue) {
                Ok(queue) => queue,
                Err(Some(full)) => return Err(full),
                Err(None) => return self.post_unconnected(iov, cookie, flags, argument, kind),
            };
        }
        if flags & queue.refused != 0 {
            return Err(Error::arg(argument));
        }
        if iov.len() > queue.max_iov {
            return Err(Error::arg(2));
        }
        let length = length_of(iov);
        let (most, remote) = match limit {
            Limit::Message => (queue.max_message, 0),
            Limit::Rdma(remote) => (queue.max_rdma, remote),
        };
        if length > most || (remote != 0 && length > u64::from(remote)) {
            return Err(Error::of(Kind::LengthError));
        }
        let Some(qp) = &queue.qp else {
            return Err(DEAD);
        };
        let number = queue.head;
        let Some(slot) = at(queue.slots, number) else {
            return Err(DEAD);
        };
        slot.fill(
            cookie,
            Note::new(kind, note_bits(flags) | queue.mute, length),
        );
        let silence = queue.silence + 1;
        let signaled = flags & QUIET == 0 || silence >= queue.longest_silence;
        T::post_send(
            qp,
            &Request {
                id: id(queue.id_base, number),
                op,
                iov,
                length,
                signaled,
                solicited: flags & CompletionFlags::SOLICITED_WAIT.bits() != 0,
                fence: flags & CompletionFlags::BARRIER_FENCE.bits() != 0,
            },
        )?;
        queue.head = number.wrapping_add(1);
        queue.silence = if signaled { 0 } else { silence };
        Ok(())
    }

    /// At the limit: moves it on if there is room in the ring. `None`: the state forbids posts.
    #[cold]
    #[inline(never)]
    fn refill(
        &'static self,
        queue: MutexGuard<'static, SendQueue<T>>,
    ) -> std::result::Result<MutexGuard<'static, SendQueue<T>>, Option<Error>> {
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
        queue: MutexGuard<'static, SendQueue<T>>,
    ) -> Result<MutexGuard<'static, SendQueue<T>>> {
        let oldest = at(queue.slots, self.request_ring.tail());
        if oldest.is_none_or(|slot| !slot.read().1.has(Note::QUIET | Note::MUTE)) {
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
        queue: MutexGuard<'static, SendQueue<T>>,
    ) -> Result<MutexGuard<'static, SendQueue<T>>> {
        if outstanding(queue.head, &self.request_ring) < queue.depth {
            Ok(queue)
        } else {
            self.make_room(queue)
        }
    }

    /// A request in another state than Connected: flushed if Disconnected, else refused.
    #[cold]
    #[inline(never)]
    fn post_unconnected(
        &'static self,
        iov: &[LmrTriplet],
        cookie: u64,
        flags: u32,
        argument: u16,
        kind: DtoOp,
    ) -> Result<()> {
        let queue = self.send.lock();
        if !self.head.alive() {
            return Err(DEAD);
        }
        let state = self.current_state();
        if state != EpState::Disconnected {
            return Err(state.refuse());
        }
        if flags & queue.refused != 0 {
            return Err(Error::arg(argument));
        }
        if iov.len() > queue.max_iov {
            return Err(Error::arg(2));
        }
        let (evd, drain) = (queue.evd, queue.drain);
        drop(queue);
        self.flush_at_once(evd, drain, cookie, kind, length_of(iov));
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
        outstanding(self.send.lock().head, &self.request_ring)
    }

    /// Receives that are not completed.
    pub(super) fn receives_outstanding(&self) -> u32 {
        outstanding(self.recv.lock().head, &self.recv_ring)
    }

    /// If the last requests were posted without asking for a completion, nothing would tell of their end: posts
    /// an empty RDMA Write that does. No new requests come: the state is Disconnect Pending.
    pub(super) fn mark_end_of_requests(&'static self) {
        let mut queue = self.send.lock();
        if queue.silence == 0 {
            return;
        }
        let (Some(qp), Some(slot)) = (&queue.qp, at(queue.slots, queue.head)) else {
            return;
        };
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
                queue.silence = 0;
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
        self.post_request(iov, cookie, flags, 5, Limit::Message, DtoOp::Send, Op::Send)
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
        self.post_request(iov, cookie, flags, 5, Limit::Message, DtoOp::Send, op)
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
        // The same twice, as in `post_request`.
        if flags.is_empty() {
            self.post_receive(iov, cookie, 0)
        } else {
            self.post_receive(iov, cookie, flags.bits())
        }
    }

    #[inline(always)]
    fn post_receive(&'static self, iov: &[LmrTriplet], cookie: u64, flags: u32) -> Result<()> {
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
        let number = queue.head;
        let Some(slot) = at(queue.slots, number) else {
            return Err(DEAD);
        };
        slot.fill(
            cookie,
            Note::new(DtoOp::Receive, note_bits(flags) | queue.mute, 0),
        );
        T::post_recv(qp, id(queue.id_base, number), iov)?;
        queue.head = number.wrapping_add(1);
        Ok(())
    }

    /// At the limit: moves it on if there is room. `None`: Disconnected, and the receive of `cookie` is flushed.
    #[cold]
    #[inline(never)]
    fn refill_receives(
        &'static self,
        mut queue: MutexGuard<'static, RecvQueue<T>>,
        cookie: u64,
    ) -> Result<Option<MutexGuard<'static, RecvQueue<T>>>> {
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
        let limit = Limit::Rdma(remote.segment_length);
        self.post_request(
            iov,
            cookie,
            flags,
            6,
            limit,
            DtoOp::RdmaRead,
            Op::RdmaRead(*remote),
        )
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
        let limit = Limit::Rdma(remote.segment_length);
        self.post_request(
            iov,
            cookie,
            flags,
            6,
            limit,
            DtoOp::RdmaWrite,
            Op::RdmaWrite(*remote),
        )
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
        self.post_request(
            iov,
            cookie,
            flags,
            7,
            Limit::Rdma(remote.segment_length),
            DtoOp::RdmaWriteImmediate,
            Op::RdmaWriteWithImmediate(*remote, immediate),
        )
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
        self.post_request(iov, cookie, flags, argument, Limit::Rdma(0), kind, op)
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
        let (Some(qp), Some(slot)) = (&queue.qp, at(queue.slots, queue.head)) else {
            return Err(DEAD);
        };
        slot.fill(
            cookie,
            Note::new(
                DtoOp::BindMw,
                note_bits(flags) | queue.mute,
                u64::from(rmr_index),
            ),
        );
        let silence = queue.silence + 1;
        let signaled = flags & QUIET == 0 || silence >= queue.longest_silence;
        let fence = flags & CompletionFlags::BARRIER_FENCE.bits() != 0;
        let bind = make(id(queue.id_base, queue.head), signaled, fence);
        let context = T::post_bind(qp, &bind)?;
        queue.head = queue.head.wrapping_add(1);
        queue.silence = if signaled { 0 } else { silence };
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
const fn note_bits(flags: u32) -> u64 {
    // SUPPRESS (1) to QUIET (bit 4), UNSIGNALLED (4) to NO_NOTICE (bit 5).
    ((flags & QUIET) as u64) << 4 | ((flags & NO_NOTICE) as u64) << 3
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
