//! Ends of connections: dat_ep_disconnect, breaks that the transport or a failed completion reports, and the last receive from an
//! SRQ.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::connect::Connection;
use super::state::{Effect, Input};
use super::{Ep, EpState};
use crate::counters::IaCounter;
use crate::error::Result;
use crate::evd::Evd;
use crate::event::AsyncEvent;
use crate::flags::Close;
use crate::timer;
use crate::transport::{Token, Transport};
use crate::upcall::ConnOutcome;

/// Time in which the end of a connection is reported after its work was flushed. A peer that learns of the end by a failed completion
/// disconnects as soon as its program takes that.
const END_FOLLOWS_FLUSH: Duration = Duration::from_secs(3);

/// Value of `DAT_EP_TRANSFER_TO_ERROR`, the reason of `DAT_ASYNC_ERROR_EP_BROKEN`.
const EP_TRANSFER_TO_ERROR: u32 = 0;

impl<T: Transport> Ep<T> {
    /// Ends the connection or the attempt (dat_ep_disconnect).
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` in Unconnected, Reserved, Passive and Tentative Connection Pending.
    pub fn disconnect(&'static self, how: Close) -> Result<()> {
        let input = match how {
            Close::Abrupt => Input::DisconnectAbrupt,
            Close::Graceful => Input::DisconnectGraceful,
        };
        let mut side = self.lock_alive()?;
        let was = self.current_state();
        let step = self.apply(&mut side, input)?;
        let token = self.head.token(self.index());
        side.disconnects += 1;
        if matches!(was, EpState::Connected | EpState::DisconnectPending) && step.next != was {
            self.ia().count(IaCounter::CmDreqTx);
        }
        self.finish(side, was, step);
        if step.effect == Effect::AwaitLastRequest {
            self.mark_last_request();
            self.await_last_request(token);
        }
        Ok(())
    }

    /// Watches the completion queue of the requests until the [marked](Ep::mark_last_request) request of the
    /// connection `token` is complete, even if the consumer polls no EVD. Ends the connection at once if no request
    /// is outstanding.
    fn await_last_request(&'static self, token: Token) {
        let evd = {
            let Ok(mut side) = self.lock_alive() else {
                return;
            };
            if self.head.token(self.index()) != token || !self.state.is(EpState::DisconnectPending)
            {
                return;
            }
            let evd = side.parts.request_evd.or(side.internal_evd.0);
            side.request_watch = evd.and_then(Evd::watch_requests);
            evd
        };
        if let Some(evd) = evd {
            // Waits for the EVD's lock: a completion that was being processed when the request was marked is then
            // counted.
            evd.arm_and_drain();
        }
        if self.requests_outstanding() == 0 {
            Self::handle_input(token, Input::Drained, None);
        }
    }

    /// Ends the graceful disconnect, from the timer thread: the caller holds the lock of an EVD.
    pub(super) fn last_request_done(&'static self) {
        let token = self.head.token(self.index());
        timer::run_soon(move || Self::handle_input(token, Input::Drained, None));
    }

    /// Breaks the present connection from the timer thread, for callers that hold locks.
    pub(super) fn break_later(&'static self) {
        let token = self.head.token(self.index());
        timer::run_soon(move || {
            Self::handle_input(token, Input::Transport(ConnOutcome::Broken), None);
        });
    }

    /// Breaks the present connection, whose work was flushed, unless its end is reported soon. A queue pair that refuses the peer's request
    /// flushes its work, and only the peer gets a failed completion. No end is reported if the peer's queue pair has refused a request, too, or
    /// if the peer's program does not take the completion; rdma_rxe raises no asynchronous event either.
    #[cold]
    #[inline(never)]
    pub(super) fn break_unless_ended(&'static self) {
        let token = self.head.token(self.index());
        // Once a connection.
        if self.flushed.swap(token.0, Ordering::Relaxed) != token.0 {
            Self::break_after_flush(token);
        }
    }

    fn break_after_flush(token: Token) {
        timer::after(END_FOLLOWS_FLUSH, move || {
            let Some(ep) = Self::of_connection(token) else {
                return;
            };
            let state = ep.state.get();
            if state == EpState::Connected {
                Self::handle_input(token, Input::Transport(ConnOutcome::Broken), None);
            } else if state.is_attempt() {
                // The attempt fails, or its connection is looked at again.
                Self::break_after_flush(token);
            }
        });
    }

    /// Breaks the present connection.
    pub(crate) fn break_now(&'static self) {
        Self::handle_input(
            self.head.token(self.index()),
            Input::Transport(ConnOutcome::Broken),
            None,
        );
    }

    /// Breaks the connection of the token `token`, which may also be that of the queue pair.
    pub(crate) fn broken(token: Token) {
        let Some(ep) = T::arenas().ep.get(token.index()) else {
            return;
        };
        let token = if ep.is_queue_pair(token) {
            ep.head.token(token.index())
        } else {
            token
        };
        Self::handle_input(token, Input::Transport(ConnOutcome::Broken), None);
    }

    /// Handles a report that the endpoint takes no more receives from its SRQ. A device names the queue pair and not the connection, so a
    /// report that comes before the present connection has ended may be that of an earlier one. It is ignored: the end
    /// is announced in any case.
    pub(crate) fn last_receive(token: Token) {
        let Some(ep) = T::arenas().ep.get(token.index()) else {
            return;
        };
        if ep.is_queue_pair(token) || Self::of_connection(token).is_some() {
            let side = ep.connection.lock();
            let first = ep.state.is(EpState::Disconnected) && ep.is_first_drain(&side);
            drop(side);
            if first {
                ep.post_srq_drained();
            }
        }
    }

    /// Posts the event that no receive of the SRQ is held by the endpoint any more. dtestsrq and other programs wait
    /// for it after each disconnect of an endpoint on an SRQ. Not every transport reports it (rxe does not), so core
    /// posts it once a connection and ignores the transport's later report.
    pub(super) fn announce_srq_drained(&'static self) {
        let side = self.connection.lock();
        let first = self.is_first_drain(&side);
        drop(side);
        if first {
            self.post_srq_drained();
        }
    }

    /// Returns true once a connection, if the endpoint is on an SRQ.
    fn is_first_drain(&self, side: &Connection<T>) -> bool {
        side.parts.srq.is_some()
            && self.head.alive()
            && !self.srq_drain_announced.swap(true, Ordering::AcqRel)
    }

    fn post_srq_drained(&'static self) {
        self.ia()
            .post_async(AsyncEvent::EpBroken, self.handle(), EP_TRANSFER_TO_ERROR);
    }
}
