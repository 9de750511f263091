//! Posting of receives (dat_ep_post_recv).

use dat_arena::BriefGuard;

use super::post::{FULL, info_bits, length_of, outstanding};
use super::queue::RecvQueue;
use super::ring::{Outstanding, SlotInfo, id};
use super::{DEAD, Ep, EpState};
use crate::error::{Error, Result, Subtype};
use crate::event::{Dto, DtoOp};
use crate::flags::CompletionFlags;
use crate::iov::Iov;
use crate::transport::Transport;

impl<T: Transport> Ep<T> {
    /// Posts a receive (dat_ep_post_recv) in any state; in Disconnected it is flushed.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (too many segments: argument 2; flags: 5; an endpoint on an SRQ: 1),
    /// `DAT_INSUFFICIENT_RESOURCES` when all receive DTOs of the endpoint are outstanding.
    #[inline]
    pub fn post_recv<'a>(
        &'static self,
        iov: impl Into<Iov<'a>>,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_recv_slow(iov.into(), cookie, flags.bits())
    }

    #[inline(never)]
    pub(super) fn post_recv_slow(
        &'static self,
        iov: Iov<'_>,
        cookie: u64,
        flags: u32,
    ) -> Result<()> {
        if !self.head.alive() {
            return Err(DEAD);
        }
        let mut queue = self.recv.lock();
        if flags & queue.invalid_flags != 0 {
            return Err(Error::arg(5));
        }
        let Some(iov) = iov.within(queue.max_iov) else {
            return Err(self.too_many_segments(&queue));
        };
        let mut ended = false;
        if queue.head == queue.limit {
            queue = match self.refill_receives(queue, cookie)? {
                Some(queue) => queue,
                None => return Ok(()),
            };
            ended = self.state.is(EpState::Disconnected);
        }
        let Some(qp) = &queue.qp else {
            return Err(DEAD);
        };
        let slot = queue.slot(queue.head);
        let number = queue.head;
        slot.fill(
            cookie,
            SlotInfo::new(DtoOp::Receive, info_bits(flags) | queue.info_base, 0),
        );
        T::post_recv(qp, id(queue.id_base, number), iov)?;
        queue.head = number.wrapping_add(1);
        queue.posted.add_bytes(DtoOp::Receive, length_of(iov));
        if ended {
            drop(queue);
            self.flush_ended();
        }
        Ok(())
    }

    /// Has the transport flush a receive that was posted behind others after the end of the connection: the device may have flushed these just
    /// before.
    #[cold]
    #[inline(never)]
    fn flush_ended(&'static self) {
        let Ok(mut side) = self.lock_alive() else {
            return;
        };
        // After a reset by another thread the queue pair is another one, or for another connection.
        if !self.state.is(EpState::Disconnected) {
            return;
        }
        let Some(checkout) = Self::check_out(&mut side) else {
            return;
        };
        // Unlocked, because the transport may take its time.
        drop(side);
        T::flush(&checkout.qp);
        drop(self.check_in(&checkout));
    }

    /// Raises the limit, if the head has reached it and the endpoint's state and its ring permit more receives. Returns whether it did.
    #[inline]
    pub(super) fn raise_receive_limit(&'static self) -> bool {
        // An endpoint in a child of fork(2) is dead, whatever its queue says.
        if !self.head.alive() {
            return false;
        }
        let Some(mut queue) = self.recv.try_lock() else {
            return false;
        };
        let raises = queue.head == queue.limit
            && queue.qp.is_some()
            && !self.state.is(EpState::Disconnected)
            && outstanding(queue.head, &self.recv_ring) < queue.depth;
        if raises {
            self.set_receive_limit(&mut queue);
        }
        raises
    }

    /// Sets the limit to what the ring has room for.
    #[inline]
    fn set_receive_limit(&'static self, queue: &mut RecvQueue<T>) {
        queue.limit = self.recv_ring.tail().wrapping_add(queue.depth);
        queue.count();
    }

    /// Raises the limit that the head has reached, if the ring has room. Returns `None` if the state is Disconnected and no
    /// earlier receive is outstanding: then the receive of `cookie` is flushed.
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
        if self.state.is(EpState::Disconnected) {
            let evds = (queue.evd, queue.completion_evd);
            let depth = queue.depth;
            if let Some(queue) = self.behind_earlier_receives(queue)? {
                return Ok(Some(queue));
            }
            let op = if self.is_datagram() {
                DtoOp::ReceiveUd
            } else {
                DtoOp::Receive
            };
            let dto = Dto {
                cookie,
                op,
                ..Dto::default()
            };
            self.flush_at_once(evds, depth, dto)?;
            return Ok(None);
        }
        if outstanding(queue.head, &self.recv_ring) >= queue.depth {
            queue = self.make_receive_room(queue)?;
        }
        self.set_receive_limit(&mut queue);
        Ok(Some(queue))
    }

    /// Frees slots of a full ring of receives. If their completions give the consumer no event, the consumer has no EVD to poll
    /// for them: polls the completion queue instead.
    fn make_receive_room(
        &'static self,
        queue: BriefGuard<'static, RecvQueue<T>>,
    ) -> Result<BriefGuard<'static, RecvQueue<T>>> {
        let (None, Some(completion_evd)) = (queue.evd, queue.completion_evd) else {
            return Err(FULL);
        };
        let id_base = queue.id_base;
        // Unlocked, because the poll may take its time.
        drop(queue);
        completion_evd.drain();
        let queue = self.recv.lock();
        // The segments were checked for the queue before.
        let same = queue.qp.is_some() && queue.id_base == id_base;
        if same && outstanding(queue.head, &self.recv_ring) < queue.depth {
            Ok(queue)
        } else {
            Err(FULL)
        }
    }

    /// Makes room for one receive in Disconnected while earlier ones are not complete, which the transport flushes before it.
    /// Returns `None` if there are none.
    #[cold]
    fn behind_earlier_receives(
        &'static self,
        queue: BriefGuard<'static, RecvQueue<T>>,
    ) -> Result<Option<BriefGuard<'static, RecvQueue<T>>>> {
        if outstanding(queue.head, &self.recv_ring) == 0 {
            return Ok(None);
        }
        let (completion_evd, id_base) = (queue.completion_evd, queue.id_base);
        // Unlocked, because draining may run a consumer's agent.
        drop(queue);
        if let Some(evd) = completion_evd {
            evd.drain();
        }
        let mut queue = self.recv.lock();
        // The segments were checked for the queue before.
        let same = queue.qp.is_some() && queue.id_base == id_base;
        if !same || !self.state.is(EpState::Disconnected) {
            return Ok(None);
        }
        match outstanding(queue.head, &self.recv_ring) {
            0 => Ok(None),
            full if full >= queue.depth => Err(FULL),
            _ => {
                // For this receive only: the next one checks again.
                queue.limit = queue.head.wrapping_add(1);
                queue.count();
                Ok(Some(queue))
            }
        }
    }

    #[cold]
    fn too_many_segments(&'static self, queue: &RecvQueue<T>) -> Error {
        if queue.qp.is_none() {
            self.no_receives()
        } else {
            Error::arg(2)
        }
    }

    /// Returns the error for an endpoint without a receive queue.
    #[cold]
    fn no_receives(&'static self) -> Error {
        if !self.head.alive() {
            return DEAD;
        }
        if self.has_queue_pair() {
            // The endpoint uses an SRQ.
            return Error::arg(1);
        }
        Error::state(Subtype::InvalidStateEpPz)
    }

    /// Returns true if the endpoint has a queue pair. Does not wait for the send queue's lock, which precedes the
    /// receive queue's in the lock order.
    fn has_queue_pair(&'static self) -> bool {
        self.send.try_lock().is_none_or(|queue| queue.qp.is_some())
    }

    /// Returns the number of receives that are not complete.
    pub(super) fn receives_outstanding(&self) -> u32 {
        let queue = self.recv.lock();
        if queue.qp.is_none() {
            return 0;
        }
        outstanding(queue.head, &self.recv_ring)
    }
}
