//! Is a silent peer still there? Asked where nothing else would show that it is not: nothing on its way, nothing to repeat.
//!
//! The question is an empty RDMA WRITE with the PSN before the oldest that could be asked for, so the peer takes it for a repetition. It
//! does nothing but say how far it is (IBTA 9.7.5.1.3), whatever its memory, receives and state of the message; rdma_rxe and adapters
//! do the same. No PSN is used up.

use std::time::Duration;

use super::Qp;
use super::outgoing::{Outgoing, Payload};
use super::timer::retransmission;
use crate::opcode::Opcode;
use crate::outputs::Context;
use crate::time::Time;
use crate::wire::{Bth, Headers, Reth};
use crate::work::Status;

/// Repetitions of a question that a doubt raised.
const PATIENT: u32 = 7;

/// What is known of the peer's life.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeepAlive {
    heard: bool,
    asking: Option<Asking>,
}

#[derive(Clone, Copy, Debug)]
struct Asking {
    /// Questions without an answer before this one, and at most.
    before: u32,
    retries: u32,
    /// The question has not gone out yet.
    unsent: bool,
    /// When it is asked again, or the peer is taken for dead; `None`: not because of this question.
    due: Option<Time>,
}

/// What a passed deadline means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Wait,
    Ask,
    Dead,
}

impl KeepAlive {
    /// The peer said something.
    pub(crate) const fn heard(&mut self) {
        self.heard = true;
        self.asking = None;
    }

    /// An interval is over. Whether to ask: nothing was heard in it, and nobody is asking.
    fn tick(&mut self, now: Time, first: Duration, retries: u32, busy: bool) -> bool {
        if busy {
            // Requests are repeated until they are answered.
            self.asking = None;
            return false;
        }
        !std::mem::take(&mut self.heard) && self.ask(now, first, retries)
    }

    /// Asks, and `retries` times more while there is no answer. `false`: it is being asked already.
    fn ask(&mut self, now: Time, first: Duration, retries: u32) -> bool {
        if self.asking.is_some() {
            return false;
        }
        self.asking = Some(Asking {
            before: 0,
            retries,
            unsent: true,
            due: Some(now + retransmission(first, 0)),
        });
        true
    }

    pub(super) const fn deadline(&self) -> Option<Time> {
        match &self.asking {
            Some(asking) => asking.due,
            None => None,
        }
    }

    fn timeout(&mut self, now: Time, first: Duration, busy: bool) -> Outcome {
        if busy {
            self.asking = None;
        }
        match &mut self.asking {
            Some(asking) if asking.due.is_some_and(|due| due <= now) => {
                if asking.before >= asking.retries {
                    return Outcome::Dead;
                }
                asking.before += 1;
                asking.unsent = true;
                asking.due = Some(now + retransmission(first, asking.before));
                Outcome::Ask
            }
            _ => Outcome::Wait,
        }
    }
}

impl Qp {
    /// Requests are waiting or on their way.
    const fn is_busy(&self) -> bool {
        self.requester.ring.len() > 0
    }

    /// An interval of [`Config::keepalive`](crate::Config) is over. Whether there is a question to send.
    pub(crate) fn tick<M>(&mut self, cx: &Context<'_, M>) -> bool {
        let (busy, retries) = (self.is_busy(), self.requester.path.retry_count);
        let first = cx.config.ack_timeout;
        self.keepalive.tick(cx.now, first, retries, busy)
    }

    /// Something makes the peer's life doubtful. Whether there is a question to send; requests on their way ask by themselves.
    pub(crate) fn doubt<M>(&mut self, cx: &Context<'_, M>) -> bool {
        // What causes the doubt may be forged: a few packets that get lost must not be enough.
        !self.is_busy() && self.keepalive.ask(cx.now, cx.config.ack_timeout, PATIENT)
    }

    /// Asks once, for the connection manager, which has its own idea of how long to wait.
    pub(crate) fn ask_once(&mut self) {
        self.keepalive.asking = Some(Asking {
            before: 0,
            retries: 0,
            unsent: true,
            due: None,
        });
    }

    /// The connection manager asks no longer.
    pub(super) fn asked_enough(&mut self) {
        if self.keepalive.deadline().is_none() {
            self.keepalive.asking = None;
        }
    }

    /// The peer may be dead by now.
    pub(super) fn keepalive_timeout<M>(&mut self, cx: &mut Context<'_, M>) {
        let (busy, first) = (self.is_busy(), cx.config.ack_timeout);
        if self.keepalive.timeout(cx.now, first, busy) == Outcome::Dead {
            self.fail(cx, Some(Status::RetryExceeded));
        }
    }

    /// The question, if it is to be sent.
    pub(super) fn next_question(&self) -> Option<Outgoing> {
        let asking = self.keepalive.asking.as_ref()?;
        if !asking.unsent || self.is_busy() || !self.state.sends() {
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
        Some(Outgoing {
            destination: path.remote,
            bth,
            headers: Headers {
                reth: Some(nothing),
                ..Headers::default()
            },
            payload: Payload::Empty,
            length: 0,
        })
    }

    /// Is `packet` the question, and not a request that has its turn?
    pub(super) fn is_question(&self, packet: &Outgoing) -> bool {
        packet.bth.psn.is_before(self.requester.una)
    }

    pub(super) const fn question_sent(&mut self) {
        if let Some(asking) = &mut self.keepalive.asking {
            asking.unsent = false;
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
    fn a_peer_that_speaks_is_not_asked() {
        let mut alive = KeepAlive::default();
        for n in 0..5 {
            alive.heard();
            assert!(!alive.tick(at(n), FIRST, 2, false));
        }
        assert!(alive.tick(at(9), FIRST, 2, false));
        assert!(
            !alive.tick(at(10), FIRST, 2, false),
            "one question at a time"
        );
        alive.heard();
        assert_eq!(alive.deadline(), None);
    }

    #[test]
    fn questions_are_repeated_later_and_later_until_it_is_dead() {
        let mut alive = KeepAlive::default();
        assert!(alive.tick(at(0), FIRST, 2, false));
        for (now, next) in [(50, 150), (150, 350)] {
            assert_eq!(alive.timeout(at(now - 1), FIRST, false), Outcome::Wait);
            assert_eq!(alive.timeout(at(now), FIRST, false), Outcome::Ask);
            assert_eq!(alive.deadline(), Some(at(next)));
        }
        assert_eq!(alive.timeout(at(350), FIRST, false), Outcome::Dead);
    }

    #[test]
    fn requests_ask_for_themselves() {
        let mut alive = KeepAlive::default();
        assert!(!alive.tick(at(0), FIRST, 0, true));
        assert!(alive.tick(at(1), FIRST, 0, false));
        assert_eq!(alive.timeout(at(99), FIRST, true), Outcome::Wait);
        assert_eq!(alive.deadline(), None);
    }
}
