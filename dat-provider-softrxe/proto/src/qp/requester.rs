//! The requester: decides which packet to send next (IBTA 9.7.3 to 9.7.5).
//!
//! It has three positions in PSN space: `una`, the oldest unanswered PSN; `next`, the PSN to send now; `high`, the PSN
//! after the newest ever sent. Going back means `next = una`. Everything else follows from the PSNs that a request got when
//! it was first sent. A READ takes one PSN per response packet and is requested in fixed chunks. So a repeated request is
//! always the tail of an earlier one, and responders find it by that.

use std::collections::{TryReserveError, VecDeque};

use super::outgoing::Outgoing;
use super::ring::Ring;
use super::round_trip::RoundTrip;
use super::send_window::SendWindow;
use super::wqe::Wqe;
use super::{Path, Qp};
use crate::memory::Memory;
use crate::near::Link;
use crate::outputs::Context;
use crate::psn::Psn;
use crate::time::{Spared, Time};
use crate::work::{CompletedOp, Op, PostError, SendRequest, Sge, Status};

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
    pub(super) window: SendWindow,
    /// Last PSN of each unanswered READ chunk and atomic.
    pub(super) reads: VecDeque<Psn>,
    pub(super) path: RequesterPath,
    pub(super) retries: u32,
    pub(super) spared: Spared,
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
    pub(super) freed: u64,
}

/// The part of the [`Path`] that the requester uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequesterPath {
    pub(super) mtu: u32,
    /// Limit of PSNs in flight when a READ is sent, whose answer this side has to hold.
    pub(super) max_reads: u32,
    pub(super) depth: usize,
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
            window: SendWindow::new(0),
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
            spared: Spared::default(),
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
            SendWindow::full(NEAR_WINDOW)
        } else {
            SendWindow::new(max_window)
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
}
