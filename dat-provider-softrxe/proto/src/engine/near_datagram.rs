//! Datagrams over channels. A queue pair of datagrams has no link: each datagram takes the channel of its destination when it is posted, if
//! there is one with room. Otherwise it goes over the wire, so no datagram waits for a peer that does not consume. The driver
//! then uses the channel for no later datagram, which would overtake it.

use super::Engine;
use crate::memory::Memory;
use crate::near::{NearId, NearOut};
use crate::psn::Qpn;
use crate::qp::QpKind;
use crate::qp::incoming::Incoming;
use crate::time::Time;
use crate::work::{PostError, SendRequest};

impl<M: Memory> Engine<M> {
    /// Posts a datagram, like [`post_send`](Self::post_send). Writes its packet to `out` if its record fits in `room` bytes of the
    /// channel, and no earlier datagram of the queue pair waits for the wire. Returns whether it did: the driver then commits the packet,
    /// as that of [`poll_near`](Self::poll_near). If not, the datagram goes over the wire. `id` is the channel to the engine of the
    /// destination.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was posted then.
    pub fn post_near_datagram(
        &mut self,
        now: Time,
        id: NearId,
        qpn: Qpn,
        request: &SendRequest<'_>,
        room: usize,
        out: &mut NearOut,
    ) -> Result<bool, PostError> {
        let slot = self.slot(qpn).ok_or(PostError::UnknownQueue)?;
        let mtu = self.channel(id).map_or(0, |channel| channel.mtu);
        let posted = self.with_qp(now, slot, |qp, cx| {
            let is_first = qp.init.kind == QpKind::Ud && !qp.has_requests();
            qp.post_send(cx, request)?;
            let sent = is_first.then(|| qp.send_datagram(cx, room, mtu.into(), out));
            let sent = sent.flatten();
            cx.out.counters.sent += u64::from(sent.is_some());
            Ok(sent)
        });
        let sent = posted.unwrap_or(Err(PostError::UnknownQueue))?;
        let Some(length) = sent else {
            self.enqueue(slot);
            return Ok(false);
        };
        if let Some(channel) = self.channel_mut(id) {
            channel.progress.sent += length as u64;
        }
        Ok(true)
    }

    /// Handles a packet for a queue pair of datagrams. The peer lends no payload of a datagram.
    pub(super) fn handle_near_datagram(
        &mut self,
        now: Time,
        id: NearId,
        slot: u32,
        packet: &Incoming<'_>,
    ) {
        if !packet.opcode.has_deth() || packet.payload.is_lent() {
            self.out.counters.malformed += 1;
            return;
        }
        let Some(channel) = self.channel(id) else {
            return;
        };
        let source = channel.address.ip();
        self.with_qp(now, slot, |qp, cx| qp.handle_datagram(cx, source, packet));
    }
}
