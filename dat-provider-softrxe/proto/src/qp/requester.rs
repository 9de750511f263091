//! The requester: decides which packet to send next (IBTA 9.7.3 to 9.7.5).
//!
//! It has three positions in PSN space: `una`, the oldest unanswered PSN; `next`, the PSN to send now; `high`, the PSN
//! after the newest ever sent. Going back means `next = una`. Everything else follows from the PSNs that a request got when
//! it was first sent. A READ takes one PSN per response packet and is requested in fixed chunks. So a repeated request is
//! always the tail of an earlier one, and responders find it by that.

use std::collections::{TryReserveError, VecDeque};

use dat_handshake::Capabilities;

use super::outgoing::{Outgoing, Payload, Role, psns};
use super::ring::Ring;
use super::round_trip::RoundTrip;
use super::window::Window;
use super::wqe::Wqe;
use super::{Path, Progress, Qp};
use crate::memory::Memory;
use crate::near::{Link, MAX_LENT, MIN_LENT};
use crate::opcode::Opcode;
use crate::outputs::Context;
use crate::psn::{Psn, Qpn};
use crate::time::Time;
use crate::wire::{AtomicEth, Bth, Reth, ieth, immdt};
use crate::work::{CompletedOp, Op, PostError, Remote, SendRequest, Sge, Status};

/// Packets between two acknowledgement requests inside a long message.
const ACK_INTERVAL: u32 = 16;

/// Limit of PSNs in flight over a channel: half of what a PSN can be ahead. The room of the channel limits more.
const NEAR_WINDOW: u32 = 1 << 22;

/// State of the requester.
#[derive(Debug)]
pub(super) struct Requester {
    pub(super) ring: Ring<Wqe>,
    /// Request that `next` belongs to.
    pub(super) cursor: u32,
    pub(super) una: Psn,
    pub(super) next: Psn,
    pub(super) high: Psn,
    pub(super) window: Window,
    /// Last PSN of each unanswered READ chunk and atomic.
    pub(super) reads: VecDeque<Psn>,
    pub(super) path: RequesterPath,
    pub(super) retries: u32,
    pub(super) rnr_retries: u8,
    pub(super) rnr_until: Option<Time>,
    pub(super) timer: Option<Time>,
    pub(super) round_trip: RoundTrip,
    /// `una` at the last gap: the requester goes back once per gap.
    pub(super) gone_back_at: Option<Psn>,
    /// A request that cannot be sent, and its status. It fails when it is the oldest.
    pub(super) failed: Option<(u32, Status)>,
    /// PSN and reason of a refusal that arrived before the answers to earlier READs and atomics.
    pub(super) refused: Option<(Psn, Status)>,
    /// Bytes of records in the channel after the last one of this queue pair.
    pub(super) sent_until: u64,
    /// Bytes that the channel's peer had consumed at the last timeout.
    freed: u64,
}

/// The part of the [`Path`] that the requester uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequesterPath {
    pub(super) mtu: u32,
    /// Limit of PSNs in flight when a READ is sent, whose answer this side has to hold.
    max_reads: u32,
    depth: usize,
    /// The link loses nothing.
    pub(super) lossless: bool,
    pub(super) retry_count: u32,
    pub(super) rnr_retry: u8,
}

impl Requester {
    pub(super) fn new(ring: Ring<Wqe>) -> Self {
        let zero = Psn::default();
        Self {
            ring,
            cursor: 0,
            una: zero,
            next: zero,
            high: zero,
            window: Window::new(0),
            reads: VecDeque::new(),
            path: RequesterPath {
                mtu: 1024,
                max_reads: 0,
                depth: 0,
                lossless: false,
                retry_count: 0,
                rnr_retry: 0,
            },
            retries: 0,
            rnr_retries: 0,
            rnr_until: None,
            timer: None,
            round_trip: RoundTrip::default(),
            gone_back_at: None,
            failed: None,
            refused: None,
            sent_until: 0,
            freed: 0,
        }
    }

    /// Allocates room for `depth` outstanding READs and atomics.
    pub(super) fn reserve(&mut self, depth: usize) -> Result<(), TryReserveError> {
        self.reads.try_reserve_exact(depth + 1)
    }

    /// Resets the state and keeps the memory.
    pub(super) fn reset(&mut self) {
        self.ring.clear();
        self.reads.clear();
        let reads = std::mem::take(&mut self.reads);
        let ring = std::mem::replace(&mut self.ring, Ring::empty());
        *self = Self {
            reads,
            ..Self::new(ring)
        };
    }

    pub(super) fn connect(&mut self, path: &Path, max_window: u32, max_reads: u32) {
        self.una = path.send_psn;
        self.next = path.send_psn;
        self.high = path.send_psn;
        let lossless = path.link != Link::Wire;
        self.window = if lossless {
            Window::full(NEAR_WINDOW)
        } else {
            Window::new(max_window)
        };
        self.path = RequesterPath {
            mtu: u32::from(path.mtu),
            max_reads: if lossless { NEAR_WINDOW } else { max_reads },
            depth: usize::from(path.initiator_depth),
            lossless,
            retry_count: u32::from(path.retry_count),
            rnr_retry: path.rnr_retry,
        };
        self.rnr_retries = path.rnr_retry;
    }

    /// Checks a request and makes room for it. Returns the length of its message. `datagram` is the longest datagram, for a UD
    /// queue pair. Requests that are not `sent`, but flushed, need no depth: a connection that was never made has none.
    pub(super) fn admit(
        &mut self,
        request: &SendRequest<'_>,
        datagram: Option<u16>,
        sent: bool,
    ) -> Result<u32, PostError> {
        let length = self.ring.admit(request.sges)?;
        let unsupported = Err(PostError::Unsupported("this operation"));
        match (request.op, datagram) {
            (Op::Datagram { .. }, None) => return unsupported,
            (Op::Datagram { .. }, Some(longest)) if length > u32::from(longest) => {
                return Err(PostError::Length(u64::from(length)));
            }
            (Op::Datagram { .. }, Some(_)) | (_, None) => {}
            (_, Some(_)) => return unsupported,
        }
        let atomic = matches!(request.op, Op::CompareSwap { .. } | Op::FetchAdd { .. });
        if atomic && length != 8 {
            return Err(PostError::Length(u64::from(length)));
        }
        if sent && self.path.depth == 0 && (atomic || matches!(request.op, Op::Read(_))) {
            return Err(PostError::Unsupported(
                "READs and atomics: the connection was made with initiator depth 0",
            ));
        }
        Ok(length)
    }

    /// Queues an admitted request whose message has `length` bytes.
    pub(super) fn post(&mut self, request: &SendRequest<'_>, length: u32) {
        self.push(request, length, None);
    }

    /// Queues an admitted request, which has got the PSNs `span`.
    #[inline]
    pub(super) fn push(
        &mut self,
        request: &SendRequest<'_>,
        length: u32,
        span: Option<(Psn, u32)>,
    ) {
        let wqe = Wqe {
            wr_id: request.wr_id,
            op: request.op,
            signaled: request.signaled,
            solicited: request.solicited,
            fence: request.fence,
            sge_count: request.sges.len(),
            length,
            span,
        };
        self.ring.push(wqe, request.sges);
    }

    pub(super) fn sges(&self, seq: u32) -> &[Sge] {
        let count = self.ring.get(seq).map_or(0, |wqe| wqe.sge_count);
        self.ring.sges(seq, count)
    }

    pub(super) fn pop(&mut self) -> Option<(u64, CompletedOp)> {
        let wqe = self.ring.pop()?;
        self.cursor = self.ring.head();
        Some((wqe.wr_id, wqe.completed_op()))
    }

    /// Removes the oldest request. The ring is not empty.
    #[inline]
    pub(super) fn remove_head(&mut self) {
        if self.cursor == self.ring.head() {
            self.cursor = self.cursor.wrapping_add(1);
        }
        self.ring.skip();
    }

    /// Returns true if the oldest request is one that failed at this end, or a local one that was executed.
    #[inline]
    pub(super) fn is_local_next(&self) -> bool {
        let head = self.ring.head();
        if head == self.ring.tail() {
            return false;
        }
        let failed = self.failed.is_some_and(|(seq, _)| seq == head);
        failed || matches!(self.ring.get(head), Some(wqe) if matches!(wqe.span, Some((_, 0))))
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let timer = self.timer.filter(|_| self.ring.len() > 0);
        self.rnr_until.or(timer)
    }

    /// Starts the timer of the first request that is posted for a channel. It may have to wait for room there.
    pub(super) fn start_timer(&mut self, now: Time, first: std::time::Duration) {
        if self.path.lossless && self.ring.len() == 1 {
            self.restart_timer(now, first);
        }
    }

    /// Returns true if the channel's peer has consumed records since the last timeout, and may still have to consume those of
    /// this queue pair.
    fn is_awaited(&mut self, progress: Progress) -> bool {
        let before = std::mem::replace(&mut self.freed, progress.freed);
        let unsent = self.una == self.high;
        self.path.lossless
            && before != progress.freed
            && (unsent || progress.freed < self.sent_until)
    }

    /// Stops the timers, and forgets a request that was to fail.
    pub(super) const fn stop(&mut self) {
        self.failed = None;
        self.refused = None;
        self.timer = None;
        self.rnr_until = None;
    }

    /// Returns true if there may be a request to send.
    pub(super) fn has_output(&self) -> bool {
        self.cursor != self.ring.tail() && self.rnr_until.is_none()
    }

    /// Returns true if the next request to be sent is the last one.
    pub(super) fn is_at_last(&self) -> bool {
        self.cursor.wrapping_add(1) == self.ring.tail()
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.next.distance(self.una).max(0) as u32
    }

    /// Goes back to the oldest unanswered PSN.
    pub(super) fn go_back(&mut self) {
        self.next = self.una;
        self.cursor = self.ring.head();
        self.reads.clear();
    }

    pub(super) fn restart_timer(&mut self, now: Time, first: std::time::Duration) {
        let runs = self.una != self.high || self.path.lossless;
        self.timer = runs.then(|| now + self.round_trip.timeout(first, self.retries));
    }

    /// Returns a packet of request `wqe` with the next PSN, without extended headers.
    #[inline]
    fn packet(
        &self,
        path: &Path,
        wqe: &Wqe,
        opcode: Opcode,
        role: Role,
        ack_request: bool,
    ) -> Outgoing {
        let bth = Bth {
            ack_request,
            solicited: wqe.solicited && opcode.position().ends(),
            ..Bth::new(opcode as u8, path.qpn, self.next)
        };
        Outgoing::new(path.remote, role, &bth)
    }

    /// Returns the READ request for the packets of the answer from `index` to `end`.
    fn read_packet(
        &self,
        path: &Path,
        wqe: &Wqe,
        remote: Remote,
        index: u32,
        end: u32,
    ) -> Option<Outgoing> {
        let (mtu, in_flight, packets) = (self.path.mtu, self.in_flight(), end - index);
        let room = self.window.size().min(self.path.max_reads);
        let fits = in_flight == 0 || in_flight + packets <= room;
        if !fits || self.reads.len() >= self.path.depth {
            return None;
        }
        let offset = index * mtu;
        let reth = Reth {
            va: remote.address.wrapping_add(u64::from(offset)),
            rkey: remote.key,
            length: (wqe.length - offset).min(packets * mtu),
        };
        let role = Role::ResponseWanted(packets);
        let mut packet = self.packet(path, wqe, Opcode::ReadRequest, role, true);
        packet.push(Reth::LEN, |out| reth.emit(out));
        Some(packet)
    }

    fn atomic_packet(&self, path: &Path, wqe: &Wqe) -> Option<Outgoing> {
        if self.in_flight() >= self.window.size() || self.reads.len() >= self.path.depth {
            return None;
        }
        let (eth, opcode) = atomic(wqe.op)?;
        let mut packet = self.packet(path, wqe, opcode, Role::ResponseWanted(1), true);
        packet.push(AtomicEth::LEN, |out| eth.emit(out));
        Some(packet)
    }

    /// Returns the packet of a SEND or WRITE with this index; `lends` says whether the link lends a payload now.
    #[inline]
    fn payload_packet(
        &self,
        path: &Path,
        wqe: &Wqe,
        (seq, index, packets): (u32, u32, u32),
        lends: impl FnOnce() -> bool,
    ) -> Option<Outgoing> {
        let (mtu, size, in_flight) = (self.path.mtu, self.window.size(), self.in_flight());
        if in_flight >= size {
            return None;
        }
        let offset = index * mtu;
        let left = wqe.length - offset;
        // A repetition is copied. Over a channel the peer may not be able to read the memory; over the wire it arrives intact
        // even if the consumer goes on writing.
        let may_lend = self.next == self.high;
        let lent = may_lend && left >= MIN_LENT && wqe.sge_count == 1 && lends();
        let length = left.min(if lent { MAX_LENT } else { mtu });
        let end = index + psns(length, mtu);
        let last = end == packets;
        let interval_ends = index / ACK_INTERVAL != end / ACK_INTERVAL;
        let ack = last || interval_ends || in_flight + (end - index) >= size;
        let (opcode, target) = opcode_and_target(path, wqe, (offset, length), last);
        let mut packet = self.packet(path, wqe, opcode, Role::Request, ack);
        if let Some(reth) = target {
            packet.push(Reth::LEN, |out| reth.emit(out));
        }
        match wqe.op {
            Op::SendImm(data) | Op::WriteImm(_, data) if last => {
                packet.push(immdt::LEN, |out| immdt::emit(data, out));
            }
            Op::SendInvalidate(key) if last => packet.push(ieth::LEN, |out| ieth::emit(key, out)),
            _ => {}
        }
        packet.lent = lent;
        let payload = Payload::Request {
            seq,
            offset,
            may_lend,
        };
        Some(packet.with_payload(payload, length as usize))
    }
}

impl Qp {
    /// Returns the next request packet that window, depth, fence and RNR wait allow.
    pub(super) fn next_request<M: Memory>(&mut self, cx: &mut Context<'_, M>) -> Option<Outgoing> {
        loop {
            let r = &mut self.requester;
            if !self.state.sends() || r.rnr_until.is_some() || r.cursor == r.ring.tail() {
                return None;
            }
            if r.failed.is_some_and(|(seq, _)| seq == r.cursor) {
                return None;
            }
            let (seq, next, no_reads) = (r.cursor, r.next, r.reads.is_empty());
            let mtu = r.path.mtu;
            let wqe = r.ring.get_mut(seq)?;
            if wqe.fence && wqe.span.is_none() && !no_reads {
                return None;
            }
            if wqe.is_local() {
                let first = wqe.span.replace((next, 0)).is_none();
                let wqe = *wqe;
                r.cursor = seq.wrapping_add(1);
                if first && !self.execute_local(cx, seq, &wqe) {
                    return None;
                }
                self.complete_local(cx);
                continue;
            }
            let packets = wqe.packets(mtu);
            let (start, packets) = *wqe.span.get_or_insert((next, packets));
            let index = next.distance(start) as u32;
            if index >= packets {
                // All packets of this request are behind `next`: go on to the next request.
                r.cursor = seq.wrapping_add(1);
                continue;
            }
            return self.request_packet(cx, seq, index, packets);
        }
    }

    /// Returns the packet of request `seq` with this index, which is to be sent next, if window and depth allow it.
    fn request_packet<M: Memory>(
        &self,
        cx: &Context<'_, M>,
        seq: u32,
        index: u32,
        packets: u32,
    ) -> Option<Outgoing> {
        let r = &self.requester;
        let wqe = r.ring.get(seq)?;
        let path = self.path.as_ref()?;
        match wqe.op {
            Op::Read(remote) => {
                let end = self.chunk_end(cx, index, packets);
                r.read_packet(path, wqe, remote, index, end)
            }
            Op::CompareSwap { .. } | Op::FetchAdd { .. } => r.atomic_packet(path, wqe),
            _ => r.payload_packet(path, wqe, (seq, index, packets), || cx.memory.lends()),
        }
    }

    /// Returns the index after the last packet of the READ chunk that contains `index`.
    fn chunk_end<M>(&self, cx: &Context<'_, M>, index: u32, packets: u32) -> u32 {
        let chunk = cx.config.read_chunk.max(1);
        ((index / chunk + 1) * chunk).min(packets)
    }

    /// Records that a request packet with `count` PSNs was sent, and moves `next` on.
    pub(super) fn request_sent<M>(&mut self, cx: &Context<'_, M>, count: u32) {
        let r = &mut self.requester;
        r.next = r.next.plus(count);
        if r.high.is_before(r.next) {
            r.high = r.next;
            r.round_trip.sent(r.next, cx.now);
        }
        // The cursor leaves a request with its last packet, so that it tells whether there is more to send.
        let span = r.ring.get(r.cursor).and_then(|wqe| wqe.span);
        if span.is_some_and(|(start, packets)| r.next == start.plus(packets)) {
            r.cursor = r.cursor.wrapping_add(1);
        }
        if r.timer.is_none() {
            r.restart_timer(cx.now, cx.config.ack_timeout);
        }
    }

    /// Records that the packet sent last was a READ request or an atomic.
    pub(super) fn response_wanted(&mut self) {
        let last = self.requester.next.minus(1);
        self.requester.reads.push_back(last);
    }

    /// Executes a bind or invalidation. Returns false if it failed, and the queue pair with it.
    fn execute_local<M: Memory>(&mut self, cx: &mut Context<'_, M>, seq: u32, wqe: &Wqe) -> bool {
        let done = match &wqe.op {
            Op::LocalInvalidate(key) => cx.memory.invalidate(*key, self.init.pd, self.qpn, false),
            Op::Bind(bind) => cx.memory.bind(bind, self.init.pd, self.qpn),
            _ => Ok(()),
        };
        let Err(error) = done else { return true };
        tracing::debug!(qpn = ?self.qpn, %error, "local request failed");
        self.fail_request(cx, seq, Status::MemoryWindowBind);
        false
    }

    /// Fails request `seq`, which cannot be sent. It completes with `status` once the requests before it are answered, as
    /// those may have been delivered.
    pub(super) fn fail_request<M>(&mut self, cx: &mut Context<'_, M>, seq: u32, status: Status) {
        if self.requester.ring.head() == seq {
            self.fail_head(cx, status);
        } else {
            self.requester.failed = Some((seq, status));
        }
    }

    /// Completes the oldest request with `status` and fails the queue pair.
    pub(super) fn fail_head<M>(&mut self, cx: &mut Context<'_, M>, status: Status) {
        if let Some((wr_id, op)) = self.requester.pop() {
            self.complete_send(cx, wr_id, op, status, 0);
        }
        self.fail(cx, Some(status));
    }

    /// Handles the end of an RNR wait, or of a retransmission timeout: goes back to the oldest unanswered PSN, or fails the connection if that
    /// was the last try. Over a channel nothing is lost, so a timeout only counts; one during which the peer read records does not.
    pub(super) fn requester_timeout<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        progress: Progress,
    ) {
        let (r, first) = (&mut self.requester, cx.config.ack_timeout);
        if r.rnr_until.is_some_and(|until| until <= cx.now) {
            r.rnr_until = None;
            r.timer = None;
            if r.path.lossless {
                r.restart_timer(cx.now, first);
            }
            return;
        }
        if r.deadline().is_none_or(|timer| timer > cx.now) {
            return;
        }
        if r.is_awaited(progress) {
            r.retries = 0;
            r.restart_timer(cx.now, first);
            return;
        }
        cx.out.counters.timeouts += 1;
        if let Some((_, status)) = r.refused {
            self.fail_head(cx, status);
            return;
        }
        if r.retries >= r.path.retry_count {
            self.fail_head(cx, Status::RetryExceeded);
            return;
        }
        let earlier = r.retries;
        r.retries += 1;
        if r.path.lossless {
            r.restart_timer(cx.now, first);
            return;
        }
        r.gone_back_at = None;
        let waited = r.round_trip.timeout(first, earlier);
        r.round_trip.timed_out(r.window, cx.now, waited, earlier);
        r.window.lost();
        r.go_back();
        r.restart_timer(cx.now, first);
        cx.out.counters.go_backs += 1;
    }
}

/// Returns opcode and target of the packet of a SEND or WRITE with this offset and length.
#[inline]
fn opcode_and_target(
    path: &Path,
    wqe: &Wqe,
    (offset, length): (u32, u32),
    last: bool,
) -> (Opcode, Option<Reth>) {
    let (remote, va, length, opcode) = match wqe.op {
        // Each packet is a WRITE of its own, so all have one size, and a run continues from one request to the
        // next. A First is longer and would end the run. The responder's message count is not used here.
        Op::Write(remote) if path.agreement.has(Capabilities::WRITE_ONLY_RUNS) => {
            let va = remote.address.wrapping_add(u64::from(offset));
            (remote, va, length, Opcode::WriteOnly)
        }
        Op::Write(remote) | Op::WriteImm(remote, _) if offset == 0 => {
            let opcode = wqe.opcode(true, last);
            (remote, remote.address, wqe.length, opcode)
        }
        _ => return (wqe.opcode(offset == 0, last), None),
    };
    let rkey = remote.key;
    (opcode, Some(Reth { va, rkey, length }))
}

fn atomic(op: Op) -> Option<(AtomicEth, Opcode)> {
    match op {
        Op::CompareSwap {
            remote,
            compare,
            swap,
        } => Some((
            AtomicEth {
                va: remote.address,
                rkey: remote.key,
                swap_or_add: swap,
                compare,
            },
            Opcode::CompareSwap,
        )),
        Op::FetchAdd { remote, add } => Some((
            AtomicEth {
                va: remote.address,
                rkey: remote.key,
                swap_or_add: add,
                compare: 0,
            },
            Opcode::FetchAdd,
        )),
        _ => None,
    }
}

/// Returns the BTH of a datagram. PSNs of datagrams only count up; receivers do not check them.
pub(super) fn datagram_header(opcode: Opcode, to: Qpn, psn: Psn, solicited: bool) -> Bth {
    Bth {
        solicited,
        ..Bth::new(opcode as u8, to, psn)
    }
}
