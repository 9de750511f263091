//! The express path of a channel: what most records are, in one step for each end.
//!
//! The sender's step is for a SEND or RDMA WRITE of one packet from one segment that is sent for the first time. It does what
//! [`next`](Qp::next), [`write_near`](Qp::write_near) and [`sent`](Qp::sent) do together. It returns `None` wherever those three could do
//! anything else, and has changed no state then. So the general path alone decides about errors, fences, repetitions and answers. The
//! tests run both paths from the same state and compare what they leave.
//!
//! The poster's step is [`post_send`](Qp::post_send) and the sender's step in one, where no earlier request has to be sent. The request goes to
//! its ring as one that was sent, and is not read from there. It leaves to `post_send` whatever that could refuse.
//!
//! The receiver's step is for a SEND Only or RDMA WRITE Only with the expected PSN. It does what [`handle`](Qp::handle) does. It places the
//! payload before anything else: if the memory is not granted, nothing has changed, and the general path finds the same error.

#[cfg(test)]
mod tests;

use super::Qp;
use super::requester::Requester;
use super::responder::Current;
use crate::memory::{Access, Memory, Rights};
use crate::near::{
    self, ACK_FLAG, ACK_LEN, MAX_HEADER, MIN_LENT, NearOut, RECORD_ALIGN, RecordPart,
};
use crate::opcode::Opcode;
use crate::outputs::Context;
use crate::psn::{Psn, Qpn};
use crate::wire::{Bth, Reth};
use crate::work::{CompletedOp, Completion, Op, PostError, Remote, SendRequest, Sge};

/// [`ACK_FLAG`] in the last word of the BTH.
const ACK_BIT: u32 = (ACK_FLAG.1 as u32) << (8 * (11 - ACK_FLAG.0));

/// A request of one packet, as its record needs it.
struct Single {
    opcode: Opcode,
    reth: Option<Reth>,
    solicited: bool,
    sge: Sge,
}

/// Writes the headers of a packet, and the acknowledgement that goes with them; returns their length. Only whole words of 8 bytes are
/// written, as the driver reads them: a processor waits where it reads a word whose parts were written just before.
#[inline(always)]
fn emit(
    bth: &Bth,
    reth: Option<&Reth>,
    acknowledged: Option<Psn>,
    header: &mut [u8; MAX_HEADER],
) -> usize {
    let words = header.as_chunks_mut::<8>().0;
    let mut put = |index: usize, first: u32, second: u32| {
        words[index] = (u64::from(first) << 32 | u64::from(second)).to_be_bytes();
    };
    let [first, target, mut last] = bth.words();
    let mut length = Bth::LEN;
    let mut ack = 0;
    if let Some(psn) = acknowledged {
        last |= ACK_BIT;
        ack = psn.value();
        length += ACK_LEN;
    }
    put(0, first, target);
    match reth {
        None => put(1, last, ack),
        Some(reth) => {
            put(1, last, (reth.va >> 32) as u32);
            put(2, reth.va as u32, reth.rkey);
            put(3, reth.length, ack);
            length += Reth::LEN;
        }
    }
    length
}

impl Single {
    /// Returns the request of `op` with `sge`, if its message is one for the express path.
    #[inline(always)]
    fn new(op: &Op, sge: Sge, solicited: bool, mtu: u32) -> Option<Self> {
        // A longer payload may be lent, and one without bytes has no part of memory to check.
        if !(1..MIN_LENT.min(mtu + 1)).contains(&sge.length) {
            return None;
        }
        let (opcode, reth) = match *op {
            Op::Send => (Opcode::SendOnly, None),
            Op::Write(remote) => {
                let reth = Reth {
                    va: remote.address,
                    rkey: remote.key,
                    length: sge.length,
                };
                (Opcode::WriteOnly, Some(reth))
            }
            _ => return None,
        };
        Some(Self {
            opcode,
            reth,
            solicited,
            sge,
        })
    }

    /// Returns the operation, made of numbers: the request's own was written just before, in parts, so a copy would wait.
    #[inline]
    const fn op(&self) -> Op {
        match self.reth {
            None => Op::Send,
            Some(reth) => Op::Write(Remote {
                address: reth.va,
                key: reth.rkey,
            }),
        }
    }
}

impl Requester {
    /// Returns true if a packet that is sent for the first time may be sent now.
    #[inline]
    fn goes_on(&self) -> bool {
        let waits = self.rnr_until.is_some() || self.failed.is_some() || self.next != self.high;
        !waits && self.in_flight() < self.window.size()
    }

    /// Returns the next request if it is one for the express path, and may be sent now.
    #[inline]
    fn single(&self) -> Option<Single> {
        if self.cursor == self.ring.tail() || !self.goes_on() {
            return None;
        }
        let wqe = self.ring.get(self.cursor)?;
        if wqe.sge_count != 1 || wqe.fence || wqe.span.is_some() {
            return None;
        }
        let sge = self.ring.sges(self.cursor, 1)[0];
        Single::new(&wqe.op, sge, wqe.solicited, self.path.mtu)
    }

    /// Returns `request`, which is to be posted, if it is one for the express path, and may be sent now.
    #[inline(always)]
    fn next_single(&self, request: &SendRequest<'_>) -> Option<Single> {
        let [sge] = request.sges else { return None };
        let first = self.cursor == self.ring.tail() && self.ring.has_slot();
        if !first || request.fence || !self.goes_on() {
            return None;
        }
        Single::new(&request.op, *sge, request.solicited, self.path.mtu)
    }
}

impl Qp {
    /// Sends the next request on the express path, if its record fits in `room` bytes. Writes the packet to `out`, and returns the length of
    /// its record. `None`: nothing has changed but `out` and bytes of the record, and the general path decides.
    #[inline]
    pub(crate) fn send_express<M: Memory>(
        &mut self,
        cx: &Context<'_, M>,
        room: usize,
        out: &mut NearOut,
    ) -> Option<usize> {
        let single = self.requester.single()?;
        let length = self.write_single(cx, &single, room, out)?;
        if let Some(wqe) = self.requester.ring.get_mut(self.requester.cursor) {
            wqe.span = Some((self.requester.next, 1));
        }
        self.single_sent(cx);
        Some(length)
    }

    /// Posts a request and sends it, if its record fits in `room` bytes. Calls `commit` with the packet as soon as nothing can keep it, and
    /// returns the length of its record. `None`: nothing has changed but bytes of the record, and the request is for
    /// [`post_send`](Self::post_send).
    ///
    /// # Errors
    /// `NoMemory`; nothing was posted then.
    #[inline]
    pub(crate) fn post_express<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        request: &SendRequest<'_>,
        room: usize,
        commit: impl FnOnce(&NearOut),
    ) -> Result<Option<usize>, PostError> {
        let Some(single) = self.requester.next_single(request) else {
            return Ok(None);
        };
        cx.out.reserve_completion(self.init.send_cq)?;
        let mut out = NearOut::EMPTY;
        let Some(length) = self.write_single(cx, &single, room, &mut out) else {
            cx.out.release_completions(self.init.send_cq, 1);
            return Ok(None);
        };
        commit(&out);
        let r = &mut self.requester;
        // Of numbers, too.
        let request = SendRequest {
            op: single.op(),
            sges: &[single.sge],
            ..*request
        };
        r.push(&request, single.sge.length, Some((r.next, 1)));
        r.start_timer(cx.now, cx.config.ack_timeout);
        self.single_sent(cx);
        Ok(Some(length))
    }

    /// Writes the packet of `single`, which has the next PSN, with an acknowledgement that is owed. `None` as in
    /// [`send_express`](Self::send_express).
    #[inline(always)]
    fn write_single<M: Memory>(
        &self,
        cx: &Context<'_, M>,
        single: &Single,
        room: usize,
        out: &mut NearOut,
    ) -> Option<usize> {
        // Answers come first, and so does an acknowledgement that is urgent.
        if !self.state.sends() || self.responder.has_urgent_output(cx.config.ack_every) {
            return None;
        }
        let bth = Bth {
            ack_request: true,
            solicited: single.solicited,
            ..Bth::new(
                single.opcode as u8,
                self.path.as_ref()?.qpn,
                self.requester.next,
            )
        };
        let owed = self.responder.ack.is_some();
        let owed = owed.then(|| self.responder.acknowledged());
        let header_length = emit(&bth, single.reth.as_ref(), owed, &mut out.header);
        let payload_length = single.sge.length as usize;
        let payload_at = near::payload_at(header_length, payload_length);
        let record_length = (payload_at + payload_length).next_multiple_of(RECORD_ALIGN);
        if record_length > room {
            return None;
        }
        out.header_length = header_length;
        out.payload_at = payload_at;
        out.payload_length = payload_length;
        out.lent = false;
        let access = Access {
            key: single.sge.key,
            need: Rights::LOCAL_READ,
            ..self.access()
        };
        let address = single.sge.address;
        let filled = cx.memory.fill(&access, address, payload_length, payload_at);
        filled.ok()?;
        debug_assert_eq!(record_length, out.record_length());
        Some(record_length)
    }

    /// Records that the request at the cursor was sent in one packet, with the acknowledgement that was owed.
    #[inline]
    fn single_sent<M>(&mut self, cx: &Context<'_, M>) {
        self.responder.ack = None;
        let r = &mut self.requester;
        r.cursor = r.cursor.wrapping_add(1);
        r.next = r.next.plus(1);
        r.high = r.next;
        if r.timer.is_none() {
            r.restart_timer(cx.now, cx.config.ack_timeout);
        }
    }
}

/// The headers of a SEND Only or RDMA WRITE Only in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arrival {
    pub(crate) destination: Qpn,
    psn: Psn,
    solicited: bool,
    ack_request: bool,
    /// The target of a WRITE.
    reth: Option<Reth>,
    /// The newest PSN that an acknowledgement at the end covers.
    acknowledged: Option<Psn>,
}

impl Arrival {
    /// Reads the headers, which are the first `length` bytes of `header`. `None` for other packets, and for headers that are invalid.
    #[inline]
    pub(crate) fn parse(header: &[u8; MAX_HEADER], length: usize) -> Option<Self> {
        // Words of 8 bytes, as the driver wrote them.
        let words = header.as_chunks::<8>().0;
        let word = |index: usize| u64::from_be_bytes(words[index]);
        let (first, second) = (word(0), word(1));
        // Version and padding are 0.
        if first >> 48 & 0x3f != 0 {
            return None;
        }
        let last = (second >> 32) as u32;
        // What follows the headers is the acknowledgement.
        let (reth, end, ack) = match Opcode::from_wire((first >> 56) as u8)? {
            Opcode::SendOnly => (None, Bth::LEN, second as u32),
            Opcode::WriteOnly => {
                let (third, fourth) = (word(2), word(3));
                let reth = Reth {
                    va: second << 32 | third >> 32,
                    rkey: third as u32,
                    length: (fourth >> 32) as u32,
                };
                (Some(reth), Bth::LEN + Reth::LEN, fourth as u32)
            }
            _ => return None,
        };
        let acknowledges = last & ACK_BIT != 0;
        let whole = length == if acknowledges { end + ACK_LEN } else { end };
        whole.then_some(Self {
            destination: Qpn::new(first as u32 & 0xff_ffff),
            psn: Psn::new(last & 0xff_ffff),
            solicited: first >> 55 & 1 != 0,
            ack_request: last >> 31 != 0,
            reth,
            acknowledged: acknowledges.then(|| Psn::new(ack)),
        })
    }
}

impl Qp {
    /// Handles a request on the express path. Returns false where the general path decides; no state has changed then.
    #[inline(always)]
    pub(crate) fn receive_express<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        arrival: &Arrival,
        payload: &RecordPart,
    ) -> bool {
        let r = &self.responder;
        let awaited = arrival.psn == r.expected && r.nak.is_none() && !r.holds_receive();
        let whole = matches!(r.current, Current::None)
            && !payload.lent
            && (1..=r.mtu as usize).contains(&payload.length);
        if !awaited || !whole || !self.state.receives() {
            return false;
        }
        let receive = match arrival.reth {
            Some(reth) if self.place_write(cx, reth, payload) => None,
            None => match self.place_send(cx, payload) {
                Some(wr_id) => Some(wr_id),
                None => return false,
            },
            Some(_) => return false,
        };
        self.keepalive.packet_received();
        // The request completes before the message that acknowledges it, as on adapters: programs with one queue for both rely on it.
        if let Some(psn) = arrival.acknowledged {
            if !self.acknowledge_only(cx, psn) {
                self.handle_ack(cx, psn);
            }
            // A local request that failed was next, and has ended the queue pair: its receive was flushed, so the peer gets no acknowledgement.
            if !self.state.receives() {
                return true;
            }
        }
        let r = &mut self.responder;
        r.executed_one();
        if arrival.ack_request {
            r.schedule_ack(cx.now, cx.config.ack_delay);
        }
        if let Some(wr_id) = receive {
            self.receives.skip();
            let completion = Completion {
                op: CompletedOp::Receive,
                length: payload.length as u32,
                solicited: arrival.solicited,
                ..self.completion(wr_id)
            };
            cx.out.complete_inline(self.init.recv_cq, completion);
        }
        true
    }

    /// Does what [`handle_ack`](Self::handle_ack) does if `psn` is the only one in flight, of the only request, on a channel: such is an exchange
    /// of request and reply. Returns false where that function decides; no state has changed then.
    #[inline(always)]
    fn acknowledge_only<M>(&mut self, cx: &mut Context<'_, M>, psn: Psn) -> bool {
        let r = &mut self.requester;
        let next = psn.plus(1);
        if r.ring.len() != 1 || r.una != psn || r.next != next || r.high != next {
            return false;
        }
        let Some(wqe) = r.ring.get(r.ring.head()) else {
            return false;
        };
        let answered = wqe.span == Some((psn, 1)) && !wqe.has_response();
        if !answered || !r.path.lossless || r.failed.is_some() || !self.state.sends() {
            return false;
        }
        self.complete_head(cx);
        let r = &mut self.requester;
        r.window.acknowledged(1);
        r.una = next;
        r.progressed(cx.now, cx.config.ack_timeout);
        true
    }

    /// Places the payload of a WRITE. Returns false if it is not allowed, or the memory is not granted.
    #[inline(always)]
    fn place_write<M: Memory>(
        &self,
        cx: &Context<'_, M>,
        reth: Reth,
        payload: &RecordPart,
    ) -> bool {
        let allowed = self.init.access.contains(Rights::REMOTE_WRITE);
        let access = self.remote(reth.rkey, Rights::REMOTE_WRITE);
        allowed
            && reth.length as usize == payload.length
            && cx
                .memory
                .place(&access, reth.va, payload.at, payload.length)
                .is_ok()
    }

    /// Places the payload of a SEND in the oldest receive, and leaves that in its ring. Returns the receive's name; `None` without a receive
    /// that is long enough and whose memory is granted.
    #[inline(always)]
    fn place_send<M: Memory>(&self, cx: &Context<'_, M>, payload: &RecordPart) -> Option<u64> {
        if self.init.srq.is_some() || self.receives.len() == 0 {
            return None;
        }
        let oldest = self.receives.head();
        let receive = self.receives.get(oldest)?;
        if payload.length > receive.length as usize {
            return None;
        }
        let placed = match self.receives.sges(oldest, receive.sge_count) {
            [sge] => {
                let access = self.receive_access(sge.key);
                cx.memory
                    .place(&access, sge.address, payload.at, payload.length)
            }
            sges => self.for_each_received(sges, 0, payload.length, |access, va, part| {
                let at = payload.at + part.start;
                cx.memory.place(access, va, at, part.len())
            }),
        };
        placed.ok().map(|()| receive.wr_id)
    }
}
