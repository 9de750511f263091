//! The DAT object: endpoints (dat_ep_create, dat_ep_free, dat_ep_reset).
//!
//! An endpoint has three sides, each with a lock of its own, taken in this order: the connection
//! ([`connect`]: state, parts, events), the send queue ([`post`], `requests`, `bind`, `datagram`) and the receive queue
//! (`recv`). Completions ([`dto`]) take none of them.

mod bind;
pub mod connect;
mod datagram;
pub mod dto;
pub mod fast_ops;
pub mod fast_path;
mod loan;
pub mod post;
pub mod query;
mod queue;
mod recv;
mod requests;
mod ring;
mod setup;
pub mod state;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use dat_arena::BriefMutex;
use parking_lot::Mutex;

use crate::ah::Ah;
use crate::error::{Error, Result, Subtype};
use crate::evd::Evd;
use crate::head::{Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::private_data::PrivateData;
use crate::pz::Pz;
use crate::srq::Srq;
use crate::transport::{Token, Transport};

use connect::{Connection, Locked};
use queue::{RecvQueue, SendQueue};
use ring::Ring;
use state::{Effect, Input};

pub(crate) use loan::Loan;
pub use query::{EpChange, EpInfo};
pub(crate) use ring::{Id, Lane, id, id_base};
pub use state::EpState;

/// An endpoint: one side of a connection, or of an attempt to make one. All methods may be called from any
/// thread.
#[repr(C)]
pub struct Ep<T: Transport> {
    /// Table, liveness, generation (of life and connection), uses.
    pub head: Head,
    /// [`EpState`] as a number; written by [`Ep::apply`] only.
    state: AtomicU32,
    send: BriefMutex<SendQueue<T>>,
    recv: BriefMutex<RecvQueue<T>>,
    request_ring: Ring,
    recv_ring: Ring,
    /// The token that the queue pair was made with.
    qp_token: AtomicU64,
    /// Whether `DAT_ASYNC_ERROR_EP_BROKEN` was posted for the present connection on an SRQ.
    drained_srq: AtomicBool,
    /// Of the service type UD.
    datagram: AtomicBool,
    connection: Mutex<Connection<T>>,
    private_data: PrivateData,
    /// Segments that a request and a receive may have: what [`Ep::max_segments`] tells.
    max_segments: [AtomicU32; 2],
}

debug_by_head!(Ep);

impl<T: Transport> Default for Ep<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            state: AtomicU32::new(EpState::Unconnected as u32),
            send: BriefMutex::default(),
            recv: BriefMutex::default(),
            request_ring: Ring::default(),
            recv_ring: Ring::default(),
            qp_token: AtomicU64::new(0),
            drained_srq: AtomicBool::new(false),
            datagram: AtomicBool::new(false),
            connection: Mutex::default(),
            private_data: PrivateData::default(),
            max_segments: [const { AtomicU32::new(0) }; 2],
        }
    }
}

/// What dat_ep_create joins to an endpoint. `None` is `DAT_HANDLE_NULL`.
#[derive(Debug)]
pub struct EpParts<T: Transport> {
    /// Protection zone.
    pub pz: Option<&'static Pz<T>>,
    /// Where completions of receives go; `None`: the consumer wants none.
    pub recv_evd: Option<&'static Evd<T>>,
    /// Where completions of requests go; `None`: the consumer wants none.
    pub request_evd: Option<&'static Evd<T>>,
    /// Where connection events go; `None`: the consumer wants none for now.
    pub connect_evd: Option<&'static Evd<T>>,
    /// Where receives come from (dat_ep_create_with_srq).
    pub srq: Option<&'static Srq<T>>,
}

impl<T: Transport> Clone for EpParts<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Transport> Copy for EpParts<T> {}

impl<T: Transport> Default for EpParts<T> {
    fn default() -> Self {
        Self {
            pz: None,
            recv_evd: None,
            request_evd: None,
            connect_evd: None,
            srq: None,
        }
    }
}

/// An endpoint that was freed, or never was.
pub(crate) const DEAD: Error = Error::handle(Subtype::InvalidHandleEp);

impl<T: Transport> Ep<T> {
    /// The state, as of now.
    #[inline(always)]
    pub(crate) fn current_state(&self) -> EpState {
        EpState::from_number(self.state.load(Ordering::Acquire)).unwrap_or_default()
    }

    /// Arena index.
    pub(crate) fn index(&'static self) -> u32 {
        T::arenas().ep.index_of(self)
    }

    /// The IA it belongs to.
    pub fn ia(&self) -> &'static Ia<T> {
        Ia::of(&self.head)
    }

    /// How many segments a request may have, as of now, without a lock: for those who must not read more. 0 before there is a queue.
    #[inline(always)]
    pub fn max_segments(&self) -> u32 {
        self.max_segments[0].load(Ordering::Relaxed)
    }

    /// The same of a receive.
    #[inline(always)]
    pub fn max_recv_segments(&self) -> u32 {
        self.max_segments[1].load(Ordering::Relaxed)
    }

    /// The handle as a number.
    #[inline]
    pub fn handle(&'static self) -> usize {
        raw(self)
    }

    /// Whether `token` names the queue pair of this endpoint.
    #[inline]
    fn is_queue_pair(&self, token: Token) -> bool {
        self.head.alive() && self.qp_token.load(Ordering::Acquire) == token.0
    }

    /// dat_ep_reset: from Disconnected (or Unconnected) to Unconnected. Completions that are not in the EVD's
    /// queue yet are lost, as the page allows; preposted receives of an Unconnected endpoint stay.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` in any other state.
    pub fn reset(&'static self) -> Result<()> {
        let mut side = self.lock_alive()?;
        let step = state::step(self.current_state(), Input::Reset)?;
        if step.effect != Effect::ResetQueuePair {
            return Ok(());
        }
        // What the transport still says about the old connection is stale from here on.
        self.head.generation.fetch_add(1, Ordering::AcqRel);
        let old = if side.is_lent() {
            // A call of another thread has the queue pair, and may change it when it has been made as new.
            self.renew(&mut side, false)?
        } else if let Some(loan) = Self::lend(&mut side) {
            // Not under the lock: the transport may wait for an upcall that waits for the lock.
            drop(side);
            let clean = T::reset_qp(&loan.qp);
            side = self.returned(&loan).ok_or(DEAD)?;
            if !side.has(&loan) {
                // Another thread reset it too, and was faster.
                return Ok(());
            }
            if let Err(error) = &clean {
                tracing::debug!(%error, "the queue pair cannot be reset: a new one takes its place");
            }
            self.renew(&mut side, clean.is_ok())?
        } else {
            None
        };
        self.apply(&mut side, Input::Reset)?;
        drop(side);
        drop(old);
        Ok(())
    }

    /// dat_ep_free: in any state but Reserved, Passive and Tentative Connection Pending. A connection, or
    /// the attempt to make one, is ended without an event.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` with the state's subtype; `DAT_INVALID_HANDLE` if another thread was faster.
    pub fn free(&'static self) -> Result<()> {
        let side = self.lock_alive()?;
        let step = state::step(self.current_state(), Input::Free)?;
        self.take_down(side, step.effect == Effect::Teardown)
    }

    /// The abrupt close's free: whatever the state.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was freed meanwhile.
    pub(crate) fn destroy(&'static self) -> Result<()> {
        let side = self.lock_alive()?;
        self.take_down(side, true)
    }

    fn take_down(&'static self, mut side: Locked<T>, teardown: bool) -> Result<()> {
        // Nothing ever claims an endpoint.
        let subtype = Subtype::InvalidHandleEp;
        self.head.retire(subtype, Subtype::InvalidStateEpNotready)?;
        self.head.generation.fetch_add(1, Ordering::AcqRel);
        self.state
            .store(EpState::Unconnected as u32, Ordering::Release);
        let parts = std::mem::take(&mut *side);
        // From here on without the lock: the transport may wait for an upcall that waits for the lock.
        drop(side);
        self.close_queues();
        if let Some(qp) = parts.qp.as_ref().filter(|_| teardown) {
            T::disconnect(qp);
        }
        for peer in &parts.peers {
            if let Some(ah) = Ah::<T>::by_token(*peer) {
                // Fails only if an abrupt close was faster.
                let _ = ah.destroy();
            }
        }
        // The queue pair first, then the claims and feeds that it stands on: the order of the fields.
        drop(parts);
        let index = self.index();
        self.ia().leave(Kind::Ep, index);
        T::arenas().ep.recycle(index);
        Ok(())
    }
}
