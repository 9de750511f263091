//! Posts to a channel that make their record at once. The lists of the channel are for requests that have to wait.

use super::Engine;
use crate::memory::Memory;
use crate::near::{Link, MIN_LENT, NearId, NearOut};
use crate::psn::Qpn;
use crate::time::Time;
use crate::work::{PostError, SendRequest};

impl<M: Memory> Engine<M> {
    /// Returns the channel whose next record may be that of a request of `length` bytes, if the queue pair has a channel, no queue pair
    /// has something to send there, and the request is short. The driver then calls [`post_near`](Self::post_near).
    #[inline]
    #[must_use]
    pub fn near_for_post(&self, qpn: Qpn, length: u64) -> Option<NearId> {
        let slot = self.slot(qpn)?;
        let qp = self.qps[slot as usize].as_ref()?;
        let Link::Near(id) = qp.link() else {
            return None;
        };
        let is_first = self.channel(id)?.ready.is_empty();
        (is_first && length < u64::from(MIN_LENT)).then_some(id)
    }

    /// Posts a request, like [`post_send`](Self::post_send), and writes its packet to `out` if its record fits in `room` bytes of channel
    /// `id` and nothing keeps it. Returns whether it did: the driver then commits the packet, as that of [`poll_near`](Self::poll_near).
    /// If not, the request waits its turn.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was posted then.
    #[inline]
    pub fn post_near(
        &mut self,
        now: Time,
        id: NearId,
        qpn: Qpn,
        request: &SendRequest<'_>,
        room: usize,
        out: &mut NearOut,
    ) -> Result<bool, PostError> {
        let slot = self.slot(qpn).ok_or(PostError::UnknownQueue)?;
        let before = self.channel(id).map_or(0, |channel| channel.progress.sent);
        let mut is_timed = false;
        let posted = self.with_qp(now, slot, |qp, cx| {
            // The timer of an earlier request runs on.
            is_timed = qp.in_flight() && qp.armed.is_some();
            qp.post_send(cx, request)?;
            let Some(length) = qp.send_express(cx, room, out) else {
                return Ok(None);
            };
            cx.out.counters.sent += 1;
            let until = before + length as u64;
            qp.sent_until(until);
            Ok(Some((until, qp.held, qp.has_output())))
        });
        let sent = posted.unwrap_or(Err(PostError::UnknownQueue))?;
        let waits = match sent {
            None => true,
            Some((until, held, more)) => {
                if let Some(channel) = self.channel_mut(id) {
                    channel.progress.sent = until;
                    // The record has the acknowledgement.
                    if held && channel.forget_held(slot) {
                        self.off_lists(slot);
                    }
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

    /// Records that a queue pair is on no list.
    fn off_lists(&mut self, slot: u32) {
        if let Some(Some(qp)) = self.qps.get_mut(slot as usize) {
            (qp.queued, qp.held) = (false, false);
        }
    }
}
