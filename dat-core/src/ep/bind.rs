//! Binds of windows (dat_rmr_bind), which are requests of an endpoint: the endpoint's part.

use super::post::info_bits;
use super::ring::{Id, Outstanding, SlotInfo, id};
use super::{DEAD, Ep, EpState};
use crate::error::{Error, Result};
use crate::event::{Dto, DtoOp};
use crate::flags::CompletionFlags;
use crate::transport::{Bind, Transport, WrId};

/// What became of a bind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PostedBind {
    /// It is posted, and this is the new context.
    Posted(u32),
    /// The queue is full, or takes no binds: [`Ep::room_for_bind`] is to be called.
    NoRoom,
}

/// What [`Ep::room_for_bind`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BindRoom {
    /// The queue has room, unless another thread has taken it since.
    Made,
    /// The endpoint is disconnected, and the bind has completed as flushed.
    Flushed,
}

impl<T: Transport> Ep<T> {
    /// Posts a bind for `Rmr::bind`. Takes a request slot for the RMR at `rmr_index` of its arena; `make` builds the
    /// argument of `T::post_bind`, which is signaled, from the id and `fence`. The caller may hold the RMR's lock.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (`argument`, the number of the flags); `DAT_INVALID_HANDLE`; those of `T::post_bind`.
    pub(crate) fn post_bind<'a>(
        &'static self,
        rmr_index: u32,
        cookie: u64,
        (flags, argument): (CompletionFlags, u16),
        make: impl FnOnce(WrId, bool) -> Bind<'a, T>,
    ) -> Result<PostedBind> {
        let mut queue = self.send.lock();
        let flags = flags.bits();
        if flags & queue.invalid_flags != 0 {
            return Err(Error::arg(argument));
        }
        if queue.head == queue.limit {
            return Ok(PostedBind::NoRoom);
        }
        let Some(qp) = &queue.qp else {
            return Err(DEAD);
        };
        let slot = queue.slot(queue.head);
        let announced = queue.announce(flags, true);
        let info = info_bits(flags) | queue.info_base | announced;
        slot.fill(
            cookie,
            SlotInfo::new(DtoOp::BindMw, info, u64::from(rmr_index)),
        );
        let fence = flags & CompletionFlags::BARRIER_FENCE.bits() != 0;
        let bind = make(id(queue.id_base, queue.head), fence);
        let context =
            T::post_bind(qp, &bind).inspect_err(|_| queue.undo_announcement(announced))?;
        queue.head = queue.head.wrapping_add(1);
        Ok(PostedBind::Posted(context))
    }

    /// Makes room for a bind that found none, or completes it as flushed. The caller holds no lock, because this may run a consumer's
    /// agent.
    ///
    /// # Errors
    /// As [`Ep::post_send`].
    #[cold]
    pub(crate) fn room_for_bind(&'static self, rmr_index: u32, cookie: u64) -> Result<BindRoom> {
        let queue = self.send.lock();
        if queue.head != queue.limit {
            return Ok(BindRoom::Made);
        }
        let evds = (queue.evd, queue.completion_evd);
        let depth = queue.depth;
        // Without one no EVD takes a flushed completion: dat_ep_reset is in progress, or has failed.
        let has_qp = queue.qp.is_some();
        match self.refill(queue) {
            Ok(_) => Ok(BindRoom::Made),
            Err(Some(full)) => Err(full),
            Err(None) if !self.head.alive() => Err(DEAD),
            Err(None) if self.current_state() == EpState::Disconnected && has_qp => {
                let dto = Dto {
                    rmr: T::arenas().rmr.get(rmr_index).map_or(0, crate::head::raw),
                    cookie,
                    op: DtoOp::BindMw,
                    ..Dto::default()
                };
                self.flush_at_once(evds, depth, dto)
                    .map(|()| BindRoom::Flushed)
            }
            Err(None) => Err(self.current_state().refuse()),
        }
    }

    /// Returns true if the request `id` may still complete: the endpoint that posted it exists, and was not reset since.
    pub(crate) fn may_complete(id: WrId) -> bool {
        let id = Id::of(id);
        T::arenas()
            .ep
            .get(id.index())
            .is_some_and(|ep| id.is_of(ep.request_ring.generation()))
    }

    /// Takes the completions of the endpoint that posted the request `id`, if it still has that queue. The caller holds no lock, because
    /// this may run a consumer's agent.
    #[cold]
    pub(crate) fn drain_requests_of(id: WrId) {
        let id = Id::of(id);
        let Some(ep) = T::arenas().ep.get(id.index()) else {
            return;
        };
        if !id.is_of(ep.request_ring.generation()) {
            return;
        }
        let evd = ep.send.lock().completion_evd;
        if let Some(evd) = evd {
            evd.drain();
        }
    }
}
