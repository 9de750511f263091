//! Receives that complete before the connection is established, as the consumer sees it.
//!
//! The last message of the handshake and the peer's first message may overtake each other: on the network, and between the
//! threads that report them. From dat_cr_accept or dat_ep_connect on, the [`Gate`] of the endpoint is closed: its receives are
//! kept in the EVD ([`Evd::end_attempt`]). It opens when `DAT_CONNECTION_EVENT_ESTABLISHED` is queued, or the event that the attempt has
//! failed. So that event comes first on every EVD, and a post in answer to a received message finds the endpoint connected.
//!
//! On the passive side the first message also implies the connection, because only a connected peer sends.

use std::sync::atomic::{AtomicU8, Ordering};

use super::connect::Connection;
use super::state::Input;
use super::{Ep, EpState};
use crate::evd::Evd;
use crate::timer;
use crate::transport::{Token, Transport};

const OPEN: u8 = 0;
const CLOSED: u8 = 1;
/// Closed, and a receive has completed.
const USED: u8 = 2;

/// Says whether the receives of an endpoint are kept. Changed under the lock of the EVD that they go to.
#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicU8);

impl Gate {
    /// Returns true if receives are kept.
    #[inline(always)]
    pub(super) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed) != OPEN
    }

    /// Closes the gate; returns true if it was open.
    pub(crate) fn close(&self) -> bool {
        self.0
            .compare_exchange(OPEN, CLOSED, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Opens the gate; returns true if it was closed.
    pub(crate) fn open(&self) -> bool {
        self.0.swap(OPEN, Ordering::Relaxed) != OPEN
    }

    /// Returns true at the first receive behind the closed gate.
    fn first_use(&self) -> bool {
        self.0
            .compare_exchange(CLOSED, USED, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

impl<T: Transport> Ep<T> {
    /// Returns the gate of the endpoint's receives.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Closes the gate for the attempt that begins.
    pub(super) fn close_gate(&'static self, side: &Connection<T>) {
        if let Some(evd) = receive_evd(side) {
            evd.begin_attempt(self);
        }
    }

    /// Opens the gate, unless it is open. The caller holds no lock.
    pub(super) fn open_gate(&'static self, evd: Option<&'static Evd<T>>) {
        if self.gate.is_closed()
            && let Some(evd) = evd
        {
            evd.end_attempt(self);
        }
    }

    /// Applies the first message to an attempt of the passive side, from the timer thread: the caller holds the lock of an
    /// EVD.
    #[cold]
    #[inline(never)]
    pub(super) fn received_early(&'static self) {
        if self.gate.first_use() && self.state.is(EpState::CompletionPending) {
            let token = self.head.token(self.index());
            timer::run_soon(move || Self::message_implies_connection(token));
        }
    }

    fn message_implies_connection(token: Token) {
        let Some(ep) = Self::of_connection(token) else {
            return;
        };
        let checkout = match ep.lock_alive() {
            Ok(mut side) if ep.head.token(token.index()) == token => Self::check_out(&mut side),
            _ => return,
        };
        // The transport first, because the consumer may disconnect as soon as it sees the event.
        if let Some(checkout) = checkout {
            T::message_received(&checkout.qp);
            drop(ep.check_in(&checkout));
        }
        Self::handle_input(token, Input::MessageReceived, Some(&[]));
    }
}

/// Returns the EVD that takes the endpoint's receives, if it still exists.
pub(super) fn receive_evd<T: Transport>(side: &Connection<T>) -> Option<&'static Evd<T>> {
    let feed = side.recv_feed.as_ref().filter(|feed| feed.valid());
    feed.map(crate::evd::Feed::evd)
}
