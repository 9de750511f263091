//! Binds of windows (dat_rmr_bind), which are requests of an endpoint: the endpoint's part.

use super::post::{SUPPRESS, info_bits};
use super::ring::{Outstanding, SlotInfo, id};
use super::{DEAD, Ep, EpState};
use crate::error::{Error, Result};
use crate::event::{Dto, DtoOp};
use crate::flags::CompletionFlags;
use crate::transport::{Bind, Transport, WrId};

impl<T: Transport> Ep<T> {
    /// Posts a bind for `Rmr::bind`. Takes a request slot for the RMR at `rmr_index` of its arena; `make` builds the
    /// argument of `T::post_bind` from the id, `signaled` and `fence`. Returns the new context.
    ///
    /// # Errors
    /// As [`Ep::post_send`] with the flags as argument 7; those of `T::post_bind`.
    pub(crate) fn post_bind<'a>(
        &'static self,
        rmr_index: u32,
        cookie: u64,
        flags: CompletionFlags,
        make: impl FnOnce(WrId, bool, bool) -> Bind<'a, T>,
    ) -> Result<u32> {
        let mut queue = self.send.lock();
        let flags = flags.bits();
        if flags & queue.invalid_flags != 0 {
            return Err(Error::arg(7));
        }
        if queue.head == queue.limit {
            let evds = (queue.evd, queue.completion_evd);
            let depth = queue.depth;
            queue = match self.refill(queue) {
                Ok(queue) => queue,
                Err(Some(full)) => return Err(full),
                Err(None) if !self.head.alive() => return Err(DEAD),
                Err(None) if self.current_state() == EpState::Disconnected => {
                    let dto = Dto {
                        rmr: T::arenas().rmr.get(rmr_index).map_or(0, crate::head::raw),
                        cookie,
                        op: DtoOp::BindMw,
                        ..Dto::default()
                    };
                    return self.flush_at_once(evds, depth, dto).map(|()| 0);
                }
                Err(None) => return Err(self.current_state().refuse()),
            };
        }
        let Some(qp) = &queue.qp else {
            return Err(DEAD);
        };
        let slot = queue.slot(queue.head);
        let signaled = queue.is_signaled(queue.head, flags & SUPPRESS == 0);
        let announced = queue.announce(flags, signaled);
        let info = info_bits(flags) | queue.info_base | announced;
        slot.fill(
            cookie,
            SlotInfo::new(DtoOp::BindMw, info, u64::from(rmr_index)),
        );
        let fence = flags & CompletionFlags::BARRIER_FENCE.bits() != 0;
        let bind = make(id(queue.id_base, queue.head), signaled, fence);
        let context =
            T::post_bind(qp, &bind).inspect_err(|_| queue.undo_announcement(announced))?;
        queue.head = queue.head.wrapping_add(1);
        Ok(context)
    }
}
