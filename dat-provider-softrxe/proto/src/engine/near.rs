//! Channels: records out and in, and which connections use one. A channel has a ready list of its own.

use std::collections::{TryReserveError, VecDeque};
use std::net::SocketAddr;

use dat_handshake::Capabilities;

use super::{Engine, QpError};
use crate::cm::state::Input;
use crate::event::CmId;
use crate::memory::Memory;
use crate::near::{Link, MAX_HEADER, MTU_RANGE, NearId, NearOut, RecordPart};
use crate::outputs::Context;
use crate::psn::Qpn;
use crate::qp::express::Arrival;
use crate::qp::incoming::{Arrived, Incoming};
use crate::qp::{Progress, Qp, QpKind};
use crate::time::Time;
use crate::wire::packet::RecordHeaders;
use crate::work::Status;

/// Records of one queue pair before another one's turn.
const MAX_TURN: u32 = 16;

/// State of a channel.
#[derive(Debug)]
pub(super) struct Channel {
    /// The peer's address and port, from which its datagrams come.
    pub(super) address: SocketAddr,
    guid: u64,
    pub(super) mtu: u16,
    /// Connected queue pairs.
    users: usize,
    /// Slots of queue pairs that may have something to send.
    pub(super) ready: VecDeque<u32>,
    /// Slots of queue pairs that owe only an acknowledgement, which was held back.
    held: Vec<u32>,
    /// Records that the first of `ready` has sent in its turn.
    turn: u32,
    pub(super) progress: Progress,
}

impl Channel {
    /// Reserves room for one more queue pair. A list may still contain the slot of a destroyed one.
    fn reserve(&mut self) -> Result<(), TryReserveError> {
        let slots = 2 * (self.users + 1);
        let ready = slots.saturating_sub(self.ready.len());
        self.ready.try_reserve(ready)?;
        self.held.try_reserve(slots.saturating_sub(self.held.len()))
    }

    pub(super) fn enqueue(&mut self, slot: u32) {
        self.ready.push_back(slot);
    }

    /// Moves a queue pair to the ready list. Returns false if its acknowledgement is not held back here.
    pub(super) fn unhold(&mut self, slot: u32) -> bool {
        let held = self.forget_held(slot);
        if held {
            self.ready.push_back(slot);
        }
        held
    }

    /// Takes a queue pair off the list of those whose acknowledgement is held back. Returns false if it is not there.
    #[inline]
    pub(super) fn forget_held(&mut self, slot: u32) -> bool {
        if self.held.last() == Some(&slot) {
            self.held.pop();
            return true;
        }
        self.forget_held_of_several(slot)
    }

    #[inline(never)]
    fn forget_held_of_several(&mut self, slot: u32) -> bool {
        let at = self.held.iter().position(|held| *held == slot);
        at.map(|at| self.held.swap_remove(at)).is_some()
    }

    /// Ends the turn of the first queue pair.
    fn next_turn(&mut self) -> Option<u32> {
        self.turn = 0;
        self.ready.pop_front()
    }
}

/// What the first queue pair of a ready list has to send.
enum Next {
    /// It is in the caller's [`NearOut`].
    Packet {
        /// Bytes of all records, with this one.
        until: u64,
        /// The queue pair may have more to send.
        more: bool,
    },
    NoRoom,
    /// Nothing, or only an acknowledgement that is held back.
    Nothing {
        held: bool,
    },
}

/// What a queue pair has to send after a record.
#[derive(Clone, Copy)]
enum Owes {
    Urgent,
    /// An acknowledgement that can wait, and the queue pair is on no list.
    Acknowledgement,
    Nothing,
}

impl Owes {
    #[inline]
    fn of<M>(qp: &Qp, cx: &Context<'_, M>) -> Self {
        if qp.has_urgent_output(cx) {
            Self::Urgent
        } else if qp.owes_ack() && !qp.queued {
            Self::Acknowledgement
        } else {
            Self::Nothing
        }
    }
}

/// Error: the room is too small for the next record.
struct NoRoom;

/// Sends the next packet of a queue pair on the general path.
#[inline(never)]
fn general<M: Memory>(
    qp: &mut Qp,
    cx: &mut Context<'_, M>,
    room: usize,
    hold: bool,
) -> Result<Option<NearOut>, NoRoom> {
    while let Some(packet) = qp.next(cx, hold) {
        if packet.record_length() > room {
            return Err(NoRoom);
        }
        // An error has failed the request, or refused the READ: there may be more to send.
        if let Ok(out) = qp.write_near(cx, &packet) {
            qp.sent(cx, &packet);
            return Ok(Some(out));
        }
    }
    Ok(None)
}

impl<M: Memory> Engine<M> {
    /// Begins to use channel `id` for connections with the engine of this CA GUID that sends from this address, which may be this engine.
    /// Connections that are accepted or established before stay on the wire. `mtu` is the longest payload of a record; both engines have
    /// the same.
    ///
    /// # Errors
    /// `Invalid` for an MTU that is not a power of two from 256 to 32,768, and for an id that is in use.
    pub fn near_up(
        &mut self,
        id: NearId,
        address: SocketAddr,
        guid: u64,
        mtu: u16,
    ) -> Result<(), QpError> {
        if !mtu.is_power_of_two() || !MTU_RANGE.contains(&mtu) {
            return Err(QpError::Invalid("MTU of a channel: 256, 512 ... 32,768"));
        }
        let index = usize::from(id.0);
        if index >= self.channels.len() {
            self.channels.try_reserve(index + 1 - self.channels.len())?;
            self.channels.resize_with(index + 1, || None);
        }
        let place = &mut self.channels[index];
        if place.is_some() {
            return Err(QpError::Invalid("the id of a channel that is not in use"));
        }
        *place = Some(Channel {
            address,
            guid,
            mtu,
            users: 0,
            ready: VecDeque::new(),
            held: Vec::new(),
            turn: 0,
            progress: Progress::default(),
        });
        Ok(())
    }

    /// Ends channel `id`: its queue pairs fail with [`Event::QpError`](crate::Event::QpError). The id may be used again.
    pub fn near_down(&mut self, now: Time, id: NearId) {
        if self.channel_mut(id).is_none() {
            return;
        }
        for slot in 0..self.qps.len() as u32 {
            self.with_qp(now, slot, |qp, cx| {
                if qp.link() == Link::Near(id) {
                    qp.fail(cx, Some(Status::RetryExceeded));
                    qp.link_down();
                }
            });
        }
        let channel = self.channels[usize::from(id.0)].take();
        for slot in channel.iter().flat_map(|c| c.ready.iter().chain(&c.held)) {
            // It may be connected again, over another link.
            if let Some(Some(qp)) = self.qps.get_mut(*slot as usize) {
                (qp.queued, qp.held) = (false, false);
                self.enqueue(*slot);
            }
        }
    }

    /// Returns the channel that new connections with the engine of this CA GUID use. `source` is where its datagrams come from: a
    /// process that has connected to the engine knows its GUID, but no other user of the host can send from its port.
    #[must_use]
    pub fn near_to(&self, source: SocketAddr, guid: u64) -> Option<NearId> {
        let is_its = |c: &Channel| c.guid == guid && c.address == source;
        let index = self
            .channels
            .iter()
            .position(|c| c.as_ref().is_some_and(is_its))?;
        u16::try_from(index).ok().map(NearId)
    }

    /// Returns the channel of a connection, once it is accepted or established.
    #[must_use]
    pub fn near_of(&self, id: CmId) -> Option<NearId> {
        match self.cm.get(id.0)?.link {
            Link::Near(near) => Some(near),
            Link::Wire | Link::Down => None,
        }
    }

    /// Returns true if a queue pair of the channel may have something to send. After [`poll_near`](Self::poll_near) has
    /// returned `None` it means that the room was too small.
    #[must_use]
    pub fn has_near(&self, id: NearId) -> bool {
        let channel = self.channel(id);
        channel.is_some_and(|channel| !channel.ready.is_empty())
    }

    /// Returns true if a queue pair of any channel may have something to send: unless `hold`, also an acknowledgement that can
    /// wait.
    #[inline]
    #[must_use]
    pub fn has_records(&self, hold: bool) -> bool {
        let waits =
            |channel: &Channel| !channel.ready.is_empty() || !hold && !channel.held.is_empty();
        self.channels.iter().flatten().any(waits)
    }

    /// Returns true if a queue pair owes an acknowledgement that can wait.
    #[must_use]
    pub fn holds_near(&self, id: NearId) -> bool {
        let channel = self.channel(id);
        channel.is_some_and(|channel| !channel.held.is_empty())
    }

    /// Returns true if a queue pair of any channel owes an acknowledgement that can wait.
    pub(super) fn holds_any(&self) -> bool {
        let mut channels = self.channels.iter().flatten();
        channels.any(|channel| !channel.held.is_empty())
    }

    /// Records that the peer has consumed `freed` bytes of records since the channel began. Call it before
    /// [`handle_timeout`](Self::handle_timeout): a timeout counts against a queue pair only if the peer did not go on.
    pub fn near_freed(&mut self, id: NearId, freed: u64) {
        if let Some(channel) = self.channel_mut(id) {
            channel.progress.freed = freed;
        }
    }

    /// Returns the next packet whose record fits in `room` bytes. Its payload was written by [`Memory::fill`]. The driver
    /// commits every packet that it gets, in order. Call until `None`. With `hold`, acknowledgements that are not urgent are
    /// held back, for a driver whose consumer is about to answer.
    pub fn poll_near(&mut self, now: Time, id: NearId, room: usize, hold: bool) -> Option<NearOut> {
        if !hold {
            self.release_held(id);
        }
        let mut out = NearOut::EMPTY;
        loop {
            let channel = self.channel_mut(id)?;
            let slot = *channel.ready.front()?;
            match self.next_near(now, id, slot, room, hold, &mut out) {
                Next::NoRoom => return None,
                Next::Packet { until, more } => {
                    let channel = self.channel_mut(id)?;
                    channel.progress.sent = until;
                    channel.turn += 1;
                    if !more || channel.turn >= MAX_TURN {
                        channel.next_turn();
                        if more {
                            channel.ready.push_back(slot);
                        }
                    }
                    return Some(out);
                }
                Next::Nothing { held } => {
                    let channel = self.channel_mut(id)?;
                    channel.next_turn();
                    if held {
                        self.hold(id, slot);
                    } else if let Some(Some(qp)) = self.qps.get_mut(slot as usize) {
                        qp.queued = false;
                        // The slot may have a queue pair of another link by now.
                        if qp.link() != Link::Near(id) {
                            self.enqueue(slot);
                        }
                    }
                    self.arm(now, slot);
                }
            }
        }
    }

    /// Puts a queue pair, which is on no list, on the list of those that owe only an acknowledgement.
    #[inline]
    fn hold(&mut self, id: NearId, slot: u32) {
        if let Some(Some(qp)) = self.qps.get_mut(slot as usize)
            && let Some(Some(channel)) = self.channels.get_mut(usize::from(id.0))
        {
            (qp.queued, qp.held) = (true, true);
            channel.held.push(slot);
        }
    }

    /// Moves the queue pairs that owe an acknowledgement to the ready list.
    fn release_held(&mut self, id: NearId) {
        let Some(Some(channel)) = self.channels.get_mut(usize::from(id.0)) else {
            return;
        };
        while let Some(slot) = channel.held.pop() {
            if let Some(Some(qp)) = self.qps.get_mut(slot as usize) {
                qp.held = false;
            }
            channel.ready.push_back(slot);
        }
    }

    /// Sends the next packet of a queue pair. It is written to `out`, so that no path copies it on its way to the driver.
    #[inline]
    fn next_near(
        &mut self,
        now: Time,
        id: NearId,
        slot: u32,
        room: usize,
        hold: bool,
        out: &mut NearOut,
    ) -> Next {
        let sent = self.channel(id).map_or(0, |channel| channel.progress.sent);
        let next = self.with_qp(now, slot, |qp, cx| {
            if qp.link() != Link::Near(id) {
                return Next::Nothing { held: false };
            }
            let length = match qp.send_express(cx, room, out) {
                Some(length) => length,
                None => match general(qp, cx, room, hold) {
                    Ok(Some(packet)) => {
                        *out = packet;
                        out.record_length()
                    }
                    Ok(None) => {
                        let held = hold && qp.owes_ack();
                        return Next::Nothing { held };
                    }
                    Err(NoRoom) => return Next::NoRoom,
                },
            };
            cx.out.counters.sent += 1;
            let until = sent + length as u64;
            qp.sent_until(until);
            let more = qp.has_output();
            qp.queued = more;
            Next::Packet { until, more }
        });
        next.unwrap_or(Next::Nothing { held: false })
    }

    /// Handles a packet that arrived over channel `id`. Its payload is placed by [`Memory::place`]. The driver has checked that
    /// `header` and `payload` lie in the record. Call [`poll_near`](Self::poll_near) for the answers. Headers longer than [`MAX_HEADER`] are
    /// malformed.
    pub fn handle_near(&mut self, now: Time, id: NearId, header: &[u8], payload: RecordPart) {
        let mut whole = [0; MAX_HEADER];
        let Some(part) = whole.get_mut(..header.len()) else {
            self.out.counters.received += 1;
            self.out.counters.malformed += 1;
            return;
        };
        part.copy_from_slice(header);
        self.handle_record(now, id, &whole, header.len(), &payload);
    }

    /// Does what [`handle_near`](Self::handle_near) does, with headers in the first `length` bytes of `header`.
    ///
    /// # Panics
    /// If `length` is more than there are.
    // A driver has one loop that calls it.
    #[inline(always)]
    pub fn handle_record(
        &mut self,
        now: Time,
        id: NearId,
        header: &[u8; MAX_HEADER],
        length: usize,
        payload: &RecordPart,
    ) {
        self.out.counters.received += 1;
        if !self.handle_express(now, id, header, length, payload) {
            self.handle_general(now, id, &header[..length], *payload);
        }
    }

    /// Handles a packet on the express path. Returns false where the general path decides.
    #[inline(always)]
    fn handle_express(
        &mut self,
        now: Time,
        id: NearId,
        header: &[u8; MAX_HEADER],
        length: usize,
        payload: &RecordPart,
    ) -> bool {
        let Some(arrival) = Arrival::parse(header, length) else {
            return false;
        };
        let slot = self.slot_of(arrival.destination);
        // What `with_qp` does, without its closure, which compilers make a function of.
        let Some((qp, mut cx)) = self.borrow_qp(now, slot) else {
            return false;
        };
        let own = qp.qpn == arrival.destination && qp.link() == Link::Near(id);
        let sends = qp.state().sends();
        if !own || qp.awaits_data() || !qp.receive_express(&mut cx, &arrival, payload) {
            return false;
        }
        let owes = Owes::of(qp, &cx);
        if sends && !qp.state().sends() {
            self.memory.recall(arrival.destination);
        }
        self.record_handled(id, slot, owes);
        // The express path begins no deadline but that of an acknowledgement.
        if !self.config.ack_delay.is_zero() {
            self.arm(now, slot);
        }
        true
    }

    #[inline(never)]
    fn handle_general(&mut self, now: Time, id: NearId, header: &[u8], payload: RecordPart) {
        let Some(parsed) = RecordHeaders::parse(header) else {
            self.out.counters.malformed += 1;
            return;
        };
        let Some(slot) = self.slot(parsed.bth.destination) else {
            self.out.counters.unknown_qp += 1;
            return;
        };
        let Some(qp) = &self.qps[slot as usize] else {
            return;
        };
        let packet = Incoming {
            bth: &parsed.bth,
            opcode: parsed.opcode,
            headers: &parsed.headers,
            payload: Arrived::Record(payload),
            acknowledged: parsed.acknowledged,
        };
        if qp.init.kind == QpKind::Ud {
            self.handle_near_datagram(now, id, slot, &packet);
            return;
        }
        if qp.link() != Link::Near(id) {
            self.out.counters.foreign += 1;
            return;
        }
        if qp.awaits_data()
            && let Some(id) = qp.cm
            && qp.has_psn_of_rep(&packet)
        {
            self.cm_step(now, id.0, Input::Data);
        }
        let after = self.with_qp(now, slot, |qp, cx| {
            qp.handle(cx, &packet);
            Owes::of(qp, cx)
        });
        if let Some(owes) = after {
            self.record_handled(id, slot, owes);
            self.arm(now, slot);
        }
    }

    /// Puts a queue pair that has handled a record on the list where its answer belongs.
    #[inline(always)]
    fn record_handled(&mut self, id: NearId, slot: u32, owes: Owes) {
        match owes {
            Owes::Urgent => self.enqueue(slot),
            Owes::Acknowledgement => self.hold(id, slot),
            Owes::Nothing => {}
        }
    }

    pub(super) fn channel(&self, id: NearId) -> Option<&Channel> {
        self.channels.get(usize::from(id.0))?.as_ref()
    }

    pub(super) fn channel_mut(&mut self, id: NearId) -> Option<&mut Channel> {
        self.channels.get_mut(usize::from(id.0))?.as_mut()
    }

    /// Adds a queue pair that is about to be connected over channel `id`.
    pub(super) fn join_channel(&mut self, id: NearId, mtu: u16) -> Result<(), QpError> {
        let channel = self.channel_mut(id);
        let channel = channel.filter(|channel| channel.mtu == mtu);
        let channel = channel.ok_or(QpError::Invalid("a channel that is up, and its MTU"))?;
        channel.reserve()?;
        channel.users += 1;
        Ok(())
    }

    /// Returns true if a queue pair sends and receives datagrams: a UD one, or an RC one that is connected over the wire.
    #[must_use]
    pub const fn uses_wire(&self) -> bool {
        self.wire_users > 0
    }

    /// Removes a queue pair that is about to be reset or destroyed from the users of its link.
    pub(super) fn leave_link(&mut self, qpn: Qpn) {
        match self
            .qp(qpn)
            .and_then(|qp| qp.path.as_ref())
            .map(|path| path.link)
        {
            Some(Link::Wire) => self.wire_users -= 1,
            Some(Link::Near(id)) => {
                if let Some(channel) = self.channel_mut(id) {
                    channel.users -= 1;
                }
            }
            Some(Link::Down) | None => {}
        }
    }

    /// Chooses the link of a connection whose peer's address, GUID and offer are known. The passive side states the choice in its REP.
    /// A channel is chosen with room for the queue pair, as nothing can be refused when that is connected.
    pub(super) fn choose_link(&mut self, id: u32) {
        let Some(c) = self.cm.get(id) else { return };
        let near = self.near_to(c.remote, c.remote_guid);
        let near = near.filter(|_| c.agreement.has(Capabilities::NEAR));
        let mtu = near.and_then(|near| {
            let channel = self.channel_mut(near)?;
            channel.reserve().is_ok().then_some(channel.mtu)
        });
        let Some(c) = self.cm.get_mut(id) else { return };
        match near.zip(mtu) {
            Some((near, mtu)) => {
                c.link = Link::Near(near);
                c.terms.mtu = mtu;
            }
            None => c.agreement = c.agreement.without(Capabilities::NEAR),
        }
    }

    pub(super) fn progress(channels: &[Option<Channel>], link: Link) -> Progress {
        match link {
            Link::Near(id) => match channels.get(usize::from(id.0)) {
                Some(Some(channel)) => channel.progress,
                _ => Progress::default(),
            },
            Link::Wire | Link::Down => Progress::default(),
        }
    }
}
