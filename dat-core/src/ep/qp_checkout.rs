//! Queue pairs in use by a transport call on their connection (connect, accept, disconnect, reset).
//!
//! Such a call runs without the endpoint's lock, because the transport may wait for an upcall that waits for the
//! lock. Two rules protect the queue pair from other threads meanwhile:
//!
//! * dat_ep_reset does not reset a queue pair that a call still uses; the endpoint gets another one ([`Ep::reset`]).
//!   So a late call never touches the queue pair of a later connection.
//! * If an attempt is ended while the call that begins it is in progress, the attempt counts as begun and then ended,
//!   whichever order the transport saw: [`Ep::finish_call`].

use std::sync::Arc;

use super::connect::{Connection, Locked};
use super::early::receive_evd;
use super::state::Input;
use super::{Ep, EpState};
use crate::error::Result;
use crate::transport::Transport;

/// Queue pair in use by a transport call, with the generation of its owner.
pub(crate) struct QpCheckout<T: Transport> {
    /// Queue pair of the call.
    pub(crate) qp: Arc<T::Qp>,
    /// Value of [`Connection::generation`] when the call began.
    generation: u32,
}

impl<T: Transport> Ep<T> {
    /// Checks out the queue pair, if there is one, for a call that runs without the lock.
    pub(super) fn check_out(side: &mut Connection<T>) -> Option<QpCheckout<T>> {
        let qp = side.qp.clone()?;
        side.checkouts += 1;
        let generation = side.generation;
        Some(QpCheckout { qp, generation })
    }

    /// Checks the queue pair in after the call and locks the connection side. Returns `None` if the endpoint was
    /// freed meanwhile; the slot may hold another endpoint by then.
    pub(super) fn check_in(&'static self, checkout: &QpCheckout<T>) -> Option<Locked<T>> {
        let mut side = self.connection.lock();
        if !self.head.alive() || side.generation != checkout.generation {
            return None;
        }
        if side.has(checkout) {
            side.checkouts -= 1;
        }
        Some(side)
    }

    /// Finishes dat_cr_accept with the transport's result; see [`Ep::finish_call`].
    pub(crate) fn finish_accept(
        &'static self,
        checkout: &QpCheckout<T>,
        answer: Result<()>,
    ) -> Result<()> {
        self.finish_call(checkout, answer).map(drop)
    }

    /// Finishes a call that began an attempt or a datagram lookup, with the transport's result.
    ///
    /// If the endpoint was disconnected or freed during the call, the attempt is over and its event posted. The call then succeeds
    /// whatever the result. [`Transport::disconnect`] is called again, since the earlier one may have reached the transport before the
    /// attempt.
    ///
    /// Returns the locked connection side, unless the endpoint is freed.
    ///
    /// # Errors
    /// The transport's error, if the attempt was not ended meanwhile; the state is then as before the call.
    pub(super) fn finish_call(
        &'static self,
        checkout: &QpCheckout<T>,
        answer: Result<()>,
    ) -> Result<Option<Locked<T>>> {
        let mut side = self.connection.lock();
        if !side.has(checkout) || self.current_state() == EpState::Disconnected {
            drop(side);
            match answer {
                Ok(()) => T::disconnect(&checkout.qp),
                Err(error) => {
                    tracing::debug!(ep = self.index(), %error, "ignored the error of an attempt that was ended during the call");
                }
            }
            return Ok(self.check_in(checkout));
        }
        side.checkouts -= 1;
        match answer {
            Ok(()) => Ok(Some(side)),
            Err(error) => {
                // The call had no effect, so there is no event.
                let next = self.apply(&mut side, Input::Refused)?.next;
                if next == EpState::Unconnected {
                    // No request went to this peer.
                    (side.remote, side.listened) = (None, 0);
                }
                let receives = receive_evd(&side);
                drop(side);
                self.open_gate(receives);
                Err(error)
            }
        }
    }
}

impl<T: Transport> Connection<T> {
    /// Returns true if the queue pair of `checkout` is still the endpoint's, which is then alive and has the same
    /// generation.
    pub(super) fn has(&self, checkout: &QpCheckout<T>) -> bool {
        self.qp
            .as_ref()
            .is_some_and(|qp| Arc::ptr_eq(qp, &checkout.qp))
    }

    /// Returns true if a call uses the queue pair.
    pub(super) const fn is_checked_out(&self) -> bool {
        self.checkouts != 0
    }

    /// Replaces the queue pair that calls still use.
    pub(super) fn replace(&mut self, qp: Arc<T::Qp>) {
        self.qp = Some(qp);
        self.checkouts = 0;
    }
}
