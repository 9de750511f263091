//! Keepalive: probes a silent peer when nothing else would detect its end, as no request is outstanding.
//!
//! The probe is an empty RDMA WRITE with the PSN before the oldest unanswered one, so the peer takes it for a repetition.
//! The peer only answers with its progress (IBTA 9.7.5.1.3), whatever the state of its memory, receives and current
//! message; rdma_rxe and adapters do the same. The probe uses up no PSN.

use std::time::Duration;

use super::Qp;
use super::outgoing::{Outgoing, Role};
use super::timeout_lengths::retransmission;
use crate::opcode::Opcode;
use crate::outputs::Context;
use crate::time::{Spared, Time};
use crate::wire::{Bth, Reth};
use crate::work::Status;

/// Repetitions of a probe that [`Qp::probe_suspect`] starts.
const SUSPECT_RETRIES: u32 = 7;

/// Keepalive state of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeepAlive {
    received: bool,
    probe: Option<Probe>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    /// Unanswered probes before this one, and their limit.
    unanswered: u32,
    retries: u32,
    spared: Spared,
    /// The probe was not sent yet.
    unsent: bool,
    /// Time of the next probe or of failure. `None`: the connection manager keeps the deadline.
    due: Option<Time>,
}

/// Result of a deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Wait,
    Probe,
    Dead,
}

impl KeepAlive {
    /// Records that the peer sent something.
    pub(crate) const fn packet_received(&mut self) {
        self.received = true;
        self.probe = None;
    }

    /// Ends an interval. Returns true if a probe starts: nothing was received in the interval, and no probe is outstanding.
    fn tick(&mut self, now: Time, first: Duration, retries: u32, busy: bool) -> bool {
        if busy {
            // Outstanding requests are repeated until they are answered.
            self.probe = None;
            return false;
        }
        !std::mem::take(&mut self.received) && self.start_probe(now, first, retries)
    }

    /// Starts a probe with `retries` repetitions. Returns false if one is outstanding.
    fn start_probe(&mut self, now: Time, first: Duration, retries: u32) -> bool {
        if self.probe.is_some() {
            return false;
        }
        self.probe = Some(Probe {
            unanswered: 0,
            retries,
            spared: Spared::default(),
            unsent: true,
            due: Some(now + retransmission(first, 0)),
        });
        true
    }

    pub(super) const fn deadline(&self) -> Option<Time> {
        match &self.probe {
            Some(probe) => probe.due,
            None => None,
        }
    }

    fn timeout(&mut self, now: Time, first: Duration, busy: bool) -> Outcome {
        if busy {
            self.probe = None;
        }
        let due = self.deadline().filter(|due| *due <= now);
        let (Some(probe), Some(due)) = (&mut self.probe, due) else {
            return Outcome::Wait;
        };
        if probe.spared.counts(now, due) {
            if probe.unanswered >= probe.retries {
                return Outcome::Dead;
            }
            probe.unanswered += 1;
        }
        probe.unsent = true;
        probe.due = Some(now + retransmission(first, probe.unanswered));
        Outcome::Probe
    }
}

impl Qp {
    /// Returns true if requests wait or are in flight.
    const fn is_busy(&self) -> bool {
        self.requester.ring.len() > 0
    }

    /// Ends an interval of [`Config::keepalive`](crate::Config). Returns true if there is a probe to send.
    pub(crate) fn keepalive_tick<M>(&mut self, cx: &Context<'_, M>) -> bool {
        let (busy, retries) = (self.is_busy(), self.requester.path.retry_count);
        let first = cx.config.ack_timeout;
        self.keepalive.tick(cx.now, first, retries, busy)
    }

    /// Starts a probe because the peer may be gone. Returns true if there is a probe to send; outstanding requests make it
    /// unnecessary.
    pub(crate) fn probe_suspect<M>(&mut self, cx: &Context<'_, M>) -> bool {
        // The cause may be forged, so the loss of a few packets must not end the connection. A queue pair that does not send would never handle
        // the probe's deadline.
        self.state.sends()
            && !self.is_busy()
            && self
                .keepalive
                .start_probe(cx.now, cx.config.ack_timeout, SUSPECT_RETRIES)
    }

    /// Sends one probe for the connection manager, which keeps its own deadline.
    pub(crate) fn probe_once(&mut self) {
        if !self.state.sends() {
            return;
        }
        self.keepalive.probe = Some(Probe {
            unanswered: 0,
            retries: 0,
            spared: Spared::default(),
            unsent: true,
            due: None,
        });
    }

    /// Cancels the probe of the connection manager.
    pub(super) fn stop_probing(&mut self) {
        if self.keepalive.deadline().is_none() {
            self.keepalive.probe = None;
        }
    }

    /// Handles the probe's deadline: repeats it, or fails the queue pair.
    pub(super) fn keepalive_timeout<M>(&mut self, cx: &mut Context<'_, M>) {
        let (busy, first) = (self.is_busy(), cx.config.ack_timeout);
        if self.keepalive.timeout(cx.now, first, busy) == Outcome::Dead {
            self.fail(cx, Some(Status::RetryExceeded));
        }
    }

    /// Returns the probe if it is to be sent.
    pub(super) fn next_probe(&self) -> Option<Outgoing> {
        let probe = self.keepalive.probe.as_ref()?;
        if !probe.unsent || self.is_busy() || !self.state.sends() {
            return None;
        }
        let path = self.path.as_ref()?;
        let before = self.requester.una.minus(1);
        let bth = Bth {
            ack_request: true,
            ..Bth::new(Opcode::WriteOnly as u8, path.qpn, before)
        };
        let nothing = Reth {
            va: 0,
            rkey: 0,
            length: 0,
        };
        let mut packet = Outgoing::new(path.remote, Role::Probe, &bth);
        packet.push(Reth::LEN, |out| nothing.emit(out));
        Some(packet)
    }

    /// Returns true if a probe was not sent yet.
    pub(super) fn wants_to_probe(&self) -> bool {
        self.keepalive.probe.is_some_and(|probe| probe.unsent)
    }

    pub(super) const fn probe_sent(&mut self) {
        if let Some(probe) = &mut self.keepalive.probe {
            probe.unsent = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(50);

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_peer_that_sends_is_not_probed() {
        let mut alive = KeepAlive::default();
        for n in 0..5 {
            alive.packet_received();
            assert!(!alive.tick(at(n), FIRST, 2, false));
        }
        assert!(alive.tick(at(9), FIRST, 2, false));
        assert!(
            !alive.tick(at(10), FIRST, 2, false),
            "one question at a time"
        );
        alive.packet_received();
        assert_eq!(alive.deadline(), None);
    }

    #[test]
    fn probes_are_repeated_with_growing_pauses_until_the_peer_is_dead() {
        let mut alive = KeepAlive::default();
        assert!(alive.tick(at(0), FIRST, 2, false));
        for (now, next) in [(50, 150), (150, 350)] {
            assert_eq!(alive.timeout(at(now - 1), FIRST, false), Outcome::Wait);
            assert_eq!(alive.timeout(at(now), FIRST, false), Outcome::Probe);
            assert_eq!(alive.deadline(), Some(at(next)));
        }
        assert_eq!(alive.timeout(at(350), FIRST, false), Outcome::Dead);
    }

    #[test]
    fn outstanding_requests_replace_the_probe() {
        let mut alive = KeepAlive::default();
        assert!(!alive.tick(at(0), FIRST, 0, true));
        assert!(alive.tick(at(1), FIRST, 0, false));
        assert_eq!(alive.timeout(at(99), FIRST, true), Outcome::Wait);
        assert_eq!(alive.deadline(), None);
    }
}
