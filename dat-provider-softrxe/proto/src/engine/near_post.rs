//! Posts to a channel that make their record at once. The lists of the channel are for requests that have to wait.

use super::Engine;
use crate::memory::Memory;
use crate::near::{Link, MIN_LENT, NearId, NearOut};
use crate::psn::Qpn;
use crate::time::Time;
use crate::work::{PostError, SendRequest};

/// A queue pair whose next request may make its record at once. Valid until the next call that changes the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NearPoster {
    /// The channel of its connection.
    pub channel: NearId,
    /// It has requests in flight.
    pub busy: bool,
    slot: u32,
}

impl<M: Memory> Engine<M> {
    /// Returns the queue pair if it has a channel whose next record may be that of a request of `length` bytes: no queue pair has something
    /// to send there, and the request is short. The driver then calls [`post_near`](Self::post_near).
    #[inline]
    #[must_use]
    pub fn near_for_post(&self, qpn: Qpn, length: u64) -> Option<NearPoster> {
        let slot = self.slot(qpn)?;
        let qp = self.qps[slot as usize].as_ref()?;
        let Link::Near(channel) = qp.link() else {
            return None;
        };
        let is_first = self.channel(channel)?.ready.is_empty();
        let poster = NearPoster {
            channel,
            busy: qp.in_flight(),
            slot,
        };
        (is_first && length < u64::from(MIN_LENT)).then_some(poster)
    }

    /// Posts a request, like [`post_send`](Self::post_send). If its record fits in `room` bytes of the channel and nothing keeps it, calls
    /// `commit` with its packet, which the driver commits as that of [`poll_near`](Self::poll_near), and returns true. The engine's own
    /// records follow after that, so the peer need not wait for them. If not, the request waits its turn.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was posted then, and `commit` was not called.
    #[inline]
    pub fn post_near(
        &mut self,
        now: Time,
        poster: NearPoster,
        request: &SendRequest<'_>,
        room: usize,
        commit: impl FnOnce(&NearOut),
    ) -> Result<bool, PostError> {
        let (slot, id) = (poster.slot, poster.channel);
        let before = self.channel(id).map_or(0, |channel| channel.progress.sent);
        let mut is_timed = false;
        let posted = self.with_qp(now, slot, |qp, cx| {
            let Some(length) = qp.post_express(cx, request, room, commit)? else {
                return Ok(None);
            };
            cx.out.counters.sent += 1;
            let until = before + length as u64;
            qp.sent_until(until);
            is_timed = qp.is_timed();
            Ok(Some((until, qp.held, qp.has_output())))
        });
        let sent = posted.unwrap_or(Err(PostError::UnknownQueue))?;
        if sent.is_none() {
            self.post_behind(now, slot, request)?;
        }
        let waits = match sent {
            None => true,
            Some((until, held, more)) => {
                if let Some(channel) = self.channel_mut(id) {
                    channel.progress.sent = until;
                }
                if held {
                    self.record_acknowledges(id, slot);
                }
                more
            }
        };
        if waits {
            self.enqueue(slot);
        }
        if !is_timed {
            self.arm(now, slot);
        }
        Ok(sent.is_some())
    }

    /// Posts a request whose record cannot be made now.
    #[cold]
    #[inline(never)]
    fn post_behind(
        &mut self,
        now: Time,
        slot: u32,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        let posted = self.with_qp(now, slot, |qp, cx| qp.post_send(cx, request));
        posted.unwrap_or(Err(PostError::UnknownQueue))
    }

    /// Records that the record of a post has the acknowledgement that was held back.
    #[inline]
    fn record_acknowledges(&mut self, id: NearId, slot: u32) {
        let channel = self.channel_mut(id);
        let off = channel.is_some_and(|channel| channel.forget_held(slot));
        if off && let Some(Some(qp)) = self.qps.get_mut(slot as usize) {
            (qp.queued, qp.held) = (false, false);
        }
    }
}
