//! The queue pair while a transport call on its connection (connect, accept, disconnect, reset) is under way.
//!
//! Such a call runs without the endpoint's lock, because the transport may wait for an upcall that waits for the lock. What
//! other threads do with the endpoint meanwhile must not meet in the queue pair:
//!
//! * dat_ep_reset does not make a queue pair as new that a call still has; the endpoint gets another one ([`Ep::reset`]).
//!   So a call that comes late never touches what the endpoint does since.
//! * An attempt that is ended while the call that begins it is under way has begun and ended, in this order, whichever way
//!   the transport saw it: [`Ep::settle`].

use std::sync::Arc;

use super::connect::{Connection, Locked};
use super::state::Input;
use super::{Ep, EpState};
use crate::error::Result;
use crate::transport::Transport;

/// A queue pair that a transport call has, and whose it is.
pub(crate) struct Loan<T: Transport> {
    /// What the call is made on.
    pub(crate) qp: Arc<T::Qp>,
    /// [`Connection::life`] as the call began.
    life: u32,
}

impl<T: Transport> Ep<T> {
    /// Lends the queue pair, if there is one, to a call that is made without the lock.
    pub(super) fn lend(side: &mut Connection<T>) -> Option<Loan<T>> {
        let qp = side.qp.clone()?;
        side.loans += 1;
        let life = side.life;
        Some(Loan { qp, life })
    }

    /// The call has returned. `None`: the endpoint was freed meanwhile; it may even be another one's by now.
    pub(super) fn returned(&'static self, loan: &Loan<T>) -> Option<Locked<T>> {
        let mut side = self.connection.lock();
        if !self.head.alive() || side.life != loan.life {
            return None;
        }
        if side.has(loan) {
            side.loans -= 1;
        }
        Some(side)
    }

    /// What the transport says to dat_cr_accept, see [`Ep::settle`].
    pub(crate) fn accepted(&'static self, loan: &Loan<T>, answer: Result<()>) -> Result<()> {
        self.settle(loan, answer).map(drop)
    }

    /// The transport's answer to the call that begins an attempt, or looks for a datagram peer. Where the endpoint was
    /// disconnected or freed while the call was under way, the attempt is over and its event told: the call succeeds whatever
    /// the transport found, and the transport hears of the end now, since it may have heard of it before the beginning.
    ///
    /// Returns the connection side, unless the endpoint is freed.
    ///
    /// # Errors
    /// The transport's, for an attempt that is not over: it never began.
    pub(super) fn settle(
        &'static self,
        loan: &Loan<T>,
        answer: Result<()>,
    ) -> Result<Option<Locked<T>>> {
        let mut side = self.connection.lock();
        if !side.has(loan) || self.current_state() == EpState::Disconnected {
            drop(side);
            match answer {
                Ok(()) => T::disconnect(&loan.qp),
                Err(error) => {
                    tracing::debug!(ep = self.index(), %error, "ended before it began");
                }
            }
            return Ok(self.returned(loan));
        }
        side.loans -= 1;
        match answer {
            Ok(()) => Ok(Some(side)),
            Err(error) => {
                // Nothing has happened: no event.
                self.apply(&mut side, Input::Refused)?;
                Err(error)
            }
        }
    }
}

impl<T: Transport> Connection<T> {
    /// Whether the queue pair of `loan` is still the endpoint's: then it is alive, and in the same life.
    pub(super) fn has(&self, loan: &Loan<T>) -> bool {
        self.qp.as_ref().is_some_and(|qp| Arc::ptr_eq(qp, &loan.qp))
    }

    /// Whether a call has the queue pair.
    pub(super) const fn is_lent(&self) -> bool {
        self.loans != 0
    }

    /// Another queue pair takes the place of the one that calls have.
    pub(super) fn replace(&mut self, qp: Arc<T::Qp>) {
        self.qp = Some(qp);
        self.loans = 0;
    }
}
