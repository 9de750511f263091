//! The responder: its state, and the order of requests (IBTA 9.7.4, 9.7.5, 9.9.3). `execute` does what a request asks for,
//! `refusal` refuses it, `answers` sends the answers.
//!
//! Answers are sent in PSN order: responses of READs and atomics wait in `jobs`, and an acknowledgement or NAK follows
//! them. One acknowledgement covers all requests since the last.

use std::collections::{TryReserveError, VecDeque};

use super::incoming::Incoming;
use super::refusal::Refusal;
use super::ring::Receive;
use super::{Path, Qp};
use crate::memory::Memory;
use crate::opcode::RequestKind;
use crate::outputs::Context;
use crate::psn::Psn;
use crate::time::Time;
use crate::wire::{Nak, Reth, Syndrome};
use crate::work::{Sge, Status};

/// Half of all PSNs: how far back a repetition can be.
const HALF: u32 = 1 << 23;
/// The requests kept for repetition are looked through each time that bits of the PSN from this one on change: four times in all PSNs.
const FORGET_BITS: u32 = 22;

/// The message that is being received.
#[derive(Clone, Copy, Debug)]
pub(super) enum Current {
    None,
    /// A SEND, and the bytes placed.
    Send(u32),
    /// A WRITE.
    Write {
        reth: Reth,
        /// Bytes placed.
        done: u32,
    },
}

/// An executed READ or atomic, kept for duplicates.
#[derive(Clone, Copy, Debug)]
pub(super) enum Resource {
    Read {
        reth: Reth,
        first: Psn,
        packets: u32,
    },
    Atomic {
        psn: Psn,
        original: u64,
    },
}

impl Resource {
    /// Returns the first PSN and the number of PSNs.
    const fn span(&self) -> (Psn, u32) {
        match *self {
            Self::Read { first, packets, .. } => (first, packets),
            Self::Atomic { psn, .. } => (psn, 1),
        }
    }
}

/// Responses to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) psn: Psn,
    /// Messages executed when the request was.
    pub(super) messages: u64,
    /// The responses answer a repetition.
    pub(super) duplicate: bool,
    pub(super) kind: JobKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum JobKind {
    /// The rest of a READ; `begun` once its first packet was sent.
    Read {
        reth: Reth,
        begun: bool,
    },
    Atomic(u64),
}

/// State of the responder.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) expected: Psn,
    /// Messages executed; the MSN is their number modulo 2^24.
    pub(super) messages: u64,
    pub(super) mtu: u32,
    depth: usize,
    pub(super) current: Current,
    pub(super) receive: Option<Receive>,
    sges: Vec<Sge>,
    resources: VecDeque<Resource>,
    pub(super) jobs: VecDeque<Job>,
    /// PSN of a repeated READ whose memory is gone.
    pub(super) unreadable_at: Option<Psn>,
    /// A NAK or RNR NAK to send once, and its PSN.
    pub(super) nak: Option<(Psn, Syndrome)>,
    /// The request that was refused, after which the peer cannot go on, for the DREQ.
    pub(super) refusal: Option<(Psn, Nak)>,
    /// A NAK for the gap or missing receive at `expected` was sent.
    reported: bool,
    /// Packets that wait for an acknowledgement, and its deadline.
    pub(super) ack: Option<(u32, Time)>,
}

impl Responder {
    /// Creates a responder for receives of up to `max_sge` SGEs.
    pub(super) fn new(max_sge: usize) -> Result<Self, TryReserveError> {
        let mut responder = Self::with(Vec::new(), VecDeque::new(), VecDeque::new());
        responder.sges.try_reserve_exact(max_sge)?;
        Ok(responder)
    }

    fn with(sges: Vec<Sge>, resources: VecDeque<Resource>, jobs: VecDeque<Job>) -> Self {
        Self {
            expected: Psn::default(),
            messages: 0,
            mtu: 1024,
            depth: 0,
            current: Current::None,
            receive: None,
            sges,
            resources,
            jobs,
            unreadable_at: None,
            nak: None,
            refusal: None,
            reported: false,
            ack: None,
        }
    }

    /// Allocates room for `depth` READs and atomics of the peer.
    pub(super) fn reserve(&mut self, depth: usize) -> Result<(), TryReserveError> {
        self.resources.try_reserve_exact(depth + 1)?;
        self.jobs.try_reserve_exact(job_limit(depth))
    }

    /// Resets the state and keeps the memory.
    pub(super) fn reset(&mut self) {
        self.sges.clear();
        self.resources.clear();
        self.jobs.clear();
        *self = Self::with(
            std::mem::take(&mut self.sges),
            std::mem::take(&mut self.resources),
            std::mem::take(&mut self.jobs),
        );
    }

    pub(super) fn connect(&mut self, path: &Path) {
        self.expected = path.receive_psn;
        self.mtu = u32::from(path.mtu);
        self.depth = usize::from(path.responder_resources);
    }

    /// Sends a NAK after which the peer cannot go on.
    pub(super) const fn refuse(&mut self, psn: Psn, nak: Nak) {
        self.nak = Some((psn, Syndrome::Nak(nak)));
        self.refusal = Some((psn, nak));
    }

    pub(super) const fn job_limit(&self) -> usize {
        job_limit(self.depth)
    }

    pub(super) fn sges(&self) -> &[Sge] {
        &self.sges
    }

    pub(super) const fn sges_mut(&mut self) -> &mut Vec<Sge> {
        &mut self.sges
    }

    /// Takes the receive in use, which will not complete.
    pub(super) fn abandon(&mut self) -> Option<Receive> {
        self.current = Current::None;
        self.receive.take()
    }

    pub(super) const fn holds_receive(&self) -> bool {
        self.receive.is_some()
    }

    /// Returns true if there may be an answer to send.
    pub(super) fn has_output(&self) -> bool {
        self.ack.is_some() || self.nak.is_some() || !self.jobs.is_empty()
    }

    /// Returns true if there may be an answer to send that cannot wait: anything but an acknowledgement of fewer than `ack_every`
    /// packets.
    pub(super) fn has_urgent_output(&self, ack_every: u32) -> bool {
        self.nak.is_some()
            || !self.jobs.is_empty()
            || self.ack.is_some_and(|(count, _)| count >= ack_every)
    }

    pub(super) fn ack_deadline(&self) -> Option<Time> {
        self.ack.map(|(_, due)| due)
    }

    pub(super) fn schedule_ack(&mut self, now: Time, delay: std::time::Duration) {
        let (count, due) = self.ack.unwrap_or((0, now + delay));
        self.ack = Some((count + 1, due.min(now + delay)));
    }

    /// Returns the newest PSN that an acknowledgement may name. Only its response may acknowledge a READ or an atomic:
    /// rdma_rxe takes an acknowledgement with its PSN for the response, and completes it without the data.
    #[inline]
    pub(super) fn acknowledged(&self) -> Psn {
        if self.resources.is_empty() {
            return self.expected.minus(1);
        }
        self.acknowledged_before_responses()
    }

    #[inline(never)]
    fn acknowledged_before_responses(&self) -> Psn {
        let mut end = self.expected;
        for resource in self.resources.iter().rev() {
            let (first, packets) = resource.span();
            if first.plus(packets) != end {
                break;
            }
            end = first;
        }
        end.minus(1)
    }

    /// Returns true if a READ begins at `psn`.
    pub(super) fn begins_read(&self, psn: Psn) -> bool {
        let begins = |r: &Resource| matches!(r, Resource::Read { first, .. } if *first == psn);
        self.resources.iter().any(begins)
    }

    /// Moves `expected` on by the PSNs of a request.
    pub(super) fn expect_after(&mut self, packets: u32) {
        let next = self.expected.plus(packets);
        if (next.value() ^ self.expected.value()) >> FORGET_BITS != 0 {
            self.forget_distant(packets);
        }
        self.expected = next;
    }

    /// Forgets the READs and atomics that no repetition can name after `packets` more PSNs. Their PSNs come again, for other requests.
    #[cold]
    fn forget_distant(&mut self, packets: u32) {
        let expected = self.expected;
        self.resources.retain(|resource| {
            let (first, count) = resource.span();
            // Each resource is looked at before it is 2^24 PSNs behind, so this has not wrapped.
            let behind = expected.minus(first.plus(count).value()).value();
            behind + packets <= HALF
        });
    }

    /// Records that the expected packet, which is a message, was executed.
    #[inline]
    pub(super) fn executed_one(&mut self) {
        self.reported = false;
        self.expect_after(1);
        self.count_message();
    }

    /// Counts a message that was executed.
    #[inline]
    pub(super) const fn count_message(&mut self) {
        self.messages += 1;
    }

    pub(super) fn keep_for_duplicates(&mut self, resource: Resource) {
        if self.resources.len() >= self.depth.max(1) {
            self.resources.pop_front();
        }
        self.resources.push_back(resource);
    }
}

impl Qp {
    pub(super) fn handle_request<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Incoming<'_>,
    ) {
        if !self.state.receives() {
            return;
        }
        let r = &mut self.responder;
        let distance = packet.bth.psn.distance(r.expected);
        if distance > 0 {
            cx.out.counters.out_of_sequence += 1;
            if !std::mem::replace(&mut r.reported, true) {
                r.nak = Some((r.expected, Syndrome::Nak(Nak::SequenceError)));
            }
            return;
        }
        if distance < 0 {
            cx.out.counters.duplicates += 1;
            self.handle_duplicate(cx, packet);
            return;
        }
        r.reported = false;
        if matches!(r.nak, Some((_, Syndrome::Nak(Nak::SequenceError)))) {
            r.nak = None;
        }
        match self.execute(cx, packet) {
            Ok(()) => {
                // The response of a READ or atomic acknowledges it.
                let answered = matches!(
                    packet.opcode.request(),
                    Some(RequestKind::Read | RequestKind::Atomic)
                );
                if packet.bth.ack_request && !answered {
                    self.responder.schedule_ack(cx.now, cx.config.ack_delay);
                }
            }
            Err(Refusal::NotReady) => {
                cx.out.counters.rnr_sent += 1;
                self.responder.nak = Some((packet.bth.psn, Syndrome::Rnr(cx.config.rnr_code)));
                self.responder.reported = true;
            }
            Err(Refusal::Withdrawn) => {
                cx.out.counters.withdrawn += 1;
                let r = &mut self.responder;
                r.nak = Some((r.expected, Syndrome::Nak(Nak::SequenceError)));
                r.reported = true;
            }
            Err(Refusal::Nak(nak, receive)) => self.refuse(cx, packet, nak, receive),
            Err(Refusal::Access(error)) => {
                self.wrong_key(cx, &error);
                self.refuse(cx, packet, Nak::RemoteAccess, None);
            }
            Err(Refusal::Invalidate(error)) => {
                self.wrong_key(cx, &error);
                let status = Some(Status::RemoteInvalidRequest);
                self.refuse(cx, packet, Nak::InvalidRequest, status);
            }
        }
    }

    /// Handles a request that was executed before.
    fn handle_duplicate<M>(&mut self, cx: &Context<'_, M>, packet: &Incoming<'_>) {
        let (psn, r) = (packet.bth.psn, &mut self.responder);
        let mtu = r.mtu;
        let job = match (packet.opcode.request(), packet.headers.reth) {
            (Some(RequestKind::Read), Some(tail)) => {
                let fits = |found: &&Resource| tail_of(found, psn, &tail, mtu);
                r.resources.iter().find(fits).map(|_| JobKind::Read {
                    reth: tail,
                    begun: false,
                })
            }
            (Some(RequestKind::Atomic), _) => r.resources.iter().find_map(|found| match found {
                Resource::Atomic { psn: at, original } if *at == psn => {
                    Some(JobKind::Atomic(*original))
                }
                _ => None,
            }),
            _ => {
                // The data was placed already, so only the progress is acknowledged.
                r.schedule_ack(cx.now, std::time::Duration::ZERO);
                return;
            }
        };
        // Over a channel the peer repeats all from here on, and takes answers in this order only. What waits would come too early, and no
        // timeout repeats a request whose answer the peer has missed.
        if job.is_some() && self.requester.path.lossless {
            r.jobs.retain(|waiting| waiting.psn.is_before(psn));
        }
        // An answer that still waits serves this request, too.
        let waiting = r.jobs.iter().any(|waiting| waiting.psn == psn);
        // A repeated request is queued only while about half of the jobs are free (`job_limit` is 2 * depth + 2); the peer
        // repeats what it still misses.
        let crowded = r.jobs.len() > r.depth + 1;
        if let (Some(kind), false) = (job, waiting || crowded) {
            let messages = r.messages;
            r.jobs.push_back(Job {
                psn,
                messages,
                duplicate: true,
                kind,
            });
        }
    }
}

/// Returns the limit of jobs: a peer may repeat all its requests while the first answers still wait.
const fn job_limit(depth: usize) -> usize {
    2 * depth + 2
}

/// Returns true if a READ request for `tail` at `psn` is a part of `found`, up to its end or less.
fn tail_of(found: &Resource, psn: Psn, tail: &Reth, mtu: u32) -> bool {
    let Resource::Read {
        reth,
        first,
        packets,
    } = found
    else {
        return false;
    };
    let Ok(index) = u32::try_from(psn.distance(*first)) else {
        return false;
    };
    if index >= *packets {
        return false;
    }
    let offset = index * mtu;
    tail.rkey == reth.rkey
        && tail.va == reth.va.wrapping_add(u64::from(offset))
        && tail.length <= reth.length.saturating_sub(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn responder(expected: u32) -> Responder {
        let mut responder = Responder::with(Vec::new(), VecDeque::new(), VecDeque::new());
        (responder.expected, responder.depth) = (Psn::new(expected), 4);
        responder
    }

    /// Executes a READ of this number of packets.
    fn read(responder: &mut Responder, packets: u32) {
        let reth = Reth {
            va: 0,
            rkey: 0,
            length: packets,
        };
        let first = responder.expected;
        responder.expect_after(packets);
        responder.keep_for_duplicates(Resource::Read {
            reth,
            first,
            packets,
        });
    }

    #[test]
    fn a_send_with_the_psn_of_an_old_read_is_acknowledged() {
        for start in [0x3f_ffff, 0xff_fffe] {
            let mut responder = responder(start);
            read(&mut responder, 2);
            responder.keep_for_duplicates(Resource::Atomic {
                psn: Psn::new(start + 2),
                original: 1,
            });
            responder.expect_after(1);
            // READs and atomics are acknowledged by their responses only.
            assert_eq!(responder.acknowledged(), Psn::new(start).minus(1));
            for count in 1..=(1 << 24) + 3 {
                responder.executed_one();
                let newest = Psn::new(start + 2 + count);
                assert_eq!(responder.acknowledged(), newest, "after {count} SENDs");
            }
            assert_eq!(responder.resources.len(), 0);
        }
    }

    /// A repetition of a READ of the connection before would be answered with what its memory has now.
    #[test]
    fn a_reset_forgets_what_the_peer_before_asked_for() {
        let mut responder = responder(7);
        read(&mut responder, 2);
        responder.jobs.push_back(Job {
            psn: Psn::new(7),
            messages: 0,
            duplicate: false,
            kind: JobKind::Atomic(1),
        });
        responder.sges.push(Sge {
            address: 0,
            length: 1,
            key: 1,
        });
        assert!(responder.begins_read(Psn::new(7)));
        responder.reset();
        assert!(!responder.begins_read(Psn::new(7)));
        assert!(responder.resources.is_empty() && responder.jobs.is_empty());
        assert!(responder.sges.is_empty());
    }

    #[test]
    fn requests_that_a_repetition_can_name_are_kept() {
        let mut responder = responder(0xff_0000);
        read(&mut responder, HALF);
        read(&mut responder, 1);
        for _ in 0..HALF - 1 {
            responder.executed_one();
        }
        assert_eq!(responder.resources.len(), 2);
        // The longest READs, one after the other.
        for _ in 0..9 {
            read(&mut responder, HALF);
            let kept = responder.resources.iter().map(|r| r.span().1);
            assert!(kept.sum::<u32>() <= 2 * HALF);
            let first = responder.resources.back().map(|r| r.span().0);
            assert_eq!(first, Some(responder.expected.minus(HALF)));
        }
    }
}
