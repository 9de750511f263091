//! Endpoints (dat_ep_create, dat_ep_free, dat_ep_reset).
//!
//! An endpoint has three sides, each with its own lock, locked in this order: the connection ([`connect`]: state,
//! parts, events; `setup`, [`query`], `disconnect`, `early`, `qp_checkout`), the send queue ([`fast_path`], [`post`], `requests`, `bind`,
//! `datagram`) and the receive queue (`recv`). `queue` is what both queues have, with a `ring` of outstanding requests.
//! Completions ([`completion`]) take none of these locks.

pub(crate) mod bind;
pub mod completion;
pub mod connect;
mod datagram;
mod disconnect;
mod early;
pub mod fast_ops;
pub mod fast_path;
pub mod post;
mod qp_checkout;
pub mod query;
mod queue;
mod recv;
mod requests;
mod ring;
mod setup;
pub mod state;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use dat_arena::BriefMutex;
use dat_arena::Mutex;

use crate::error::{Error, Result, Subtype};
use crate::evd::Evd;
use crate::head::{Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::private_data::PrivateData;
use crate::pz::Pz;
use crate::srq::Srq;
use crate::transport::{Token, Transport};

use connect::{Connection, Locked};
use datagram::destroy_peers;
use early::Gate;
use queue::{RecvQueue, SendQueue};
use ring::Ring;
use state::{Effect, Input, StateCell};

pub(crate) use qp_checkout::QpCheckout;
pub use query::{EpChange, EpInfo};
pub(crate) use ring::{Id, QueueKind, id, id_base};
pub use state::EpState;

/// Endpoint: one side of a connection, or of an attempt to make one. All methods may be called from any thread.
#[repr(C)]
pub struct Ep<T: Transport> {
    /// Table, liveness, generation (of object and connection), use count.
    pub head: Head,
    state: StateCell,
    send: BriefMutex<SendQueue<T>>,
    recv: BriefMutex<RecvQueue<T>>,
    request_ring: Ring,
    recv_ring: Ring,
    /// Token that the queue pair was created with.
    qp_token: AtomicU64,
    /// True once `DAT_ASYNC_ERROR_EP_BROKEN` was posted for the present connection on an SRQ.
    srq_drain_announced: AtomicBool,
    /// Token of the connection whose work was flushed last, while it was not known to have ended.
    flushed: AtomicU64,
    /// Service type, of a freed endpoint too; see [`Ep::was_datagram`].
    datagrams_since: AtomicU64,
    connection: Mutex<Connection<T>>,
    private_data: PrivateData,
    gate: Gate,
    /// Maximum number of segments of a request and of a receive.
    max_segments: [AtomicU32; 2],
}

debug_by_head!(Ep);

impl<T: Transport> Default for Ep<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            state: StateCell::default(),
            send: BriefMutex::default(),
            recv: BriefMutex::default(),
            request_ring: Ring::default(),
            recv_ring: Ring::default(),
            qp_token: AtomicU64::new(0),
            srq_drain_announced: AtomicBool::new(false),
            flushed: AtomicU64::new(0),
            datagrams_since: AtomicU64::new(0),
            connection: Mutex::default(),
            private_data: PrivateData::default(),
            gate: Gate::default(),
            max_segments: [const { AtomicU32::new(0) }; 2],
        }
    }
}

/// Objects that dat_ep_create attaches to an endpoint. `None` is `DAT_HANDLE_NULL`.
#[derive(Debug)]
pub struct EpParts<T: Transport> {
    /// Protection zone.
    pub pz: Option<&'static Pz<T>>,
    /// EVD for completions of receives; `None` if the consumer needs no such events.
    pub recv_evd: Option<&'static Evd<T>>,
    /// EVD for completions of requests; `None` if the consumer needs no such events.
    pub request_evd: Option<&'static Evd<T>>,
    /// EVD for connection events; `None` if the consumer needs none for now.
    pub connect_evd: Option<&'static Evd<T>>,
    /// Shared receive queue (dat_ep_create_with_srq).
    pub srq: Option<&'static Srq<T>>,
}

impl<T: Transport> EpParts<T> {
    /// Returns false for a PZ and a shared receive queue of one IA that differ in their PZ. That parts are of one IA is examined elsewhere.
    fn has_pz_of_srq(&self) -> bool {
        match (self.pz, self.srq) {
            (Some(pz), Some(srq)) if std::ptr::eq(pz.ia(), srq.ia()) => srq.has_pz(pz),
            _ => true,
        }
    }
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

/// Error for an endpoint that was freed or never created.
pub(crate) const DEAD: Error = Error::handle(Subtype::InvalidHandleEp);

impl<T: Transport> Ep<T> {
    /// Returns the present state.
    #[inline(always)]
    pub(crate) fn current_state(&self) -> EpState {
        self.state.get()
    }

    /// Returns the arena index.
    pub(crate) fn index(&'static self) -> u32 {
        T::arenas().ep.index_of(self)
    }

    /// Returns the IA that the endpoint belongs to.
    pub fn ia(&self) -> &'static Ia<T> {
        Ia::of(&self.head)
    }

    /// Returns the maximum number of segments of a request, without a lock, so that a caller reads no more of them. 0
    /// before there is a queue.
    #[inline(always)]
    pub fn max_segments(&self) -> u32 {
        self.max_segments[0].load(Ordering::Relaxed)
    }

    /// Returns the maximum number of segments of a receive; see [`Ep::max_segments`].
    #[inline(always)]
    pub fn max_recv_segments(&self) -> u32 {
        self.max_segments[1].load(Ordering::Relaxed)
    }

    /// Returns the handle as a number.
    #[inline]
    pub fn handle(&'static self) -> usize {
        raw(self)
    }

    /// Returns true if `token` names the queue pair of this endpoint.
    #[inline]
    fn is_queue_pair(&self, token: Token) -> bool {
        self.head.alive() && self.qp_token.load(Ordering::Acquire) == token.0
    }

    /// Resets the endpoint from Disconnected (or Unconnected) to Unconnected (dat_ep_reset). Completions that are not
    /// yet in the EVD's queue are lost, as the page allows; preposted receives of an Unconnected endpoint stay.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` in any other state.
    pub fn reset(&'static self) -> Result<()> {
        let side = self.lock_alive()?;
        self.state.preview(Input::Reset)?;
        let mut side = self.post_held(side)?;
        let step = self.state.preview(Input::Reset)?;
        if step.effect != Effect::ResetQueuePair {
            return Ok(());
        }
        // From here on, reports of the transport for the old connection are stale.
        self.head.generation.fetch_add(1, Ordering::AcqRel);
        let old = if side.is_checked_out() {
            // A call of another thread uses the queue pair and could change it after the reset.
            self.renew(&mut side, false)?
        } else if let Some(checkout) = Self::check_out(&mut side) {
            // A receive that another thread posts to the reset queue pair would take a message of the next connection.
            self.close_queues();
            // The transport may wait for an upcall that waits for this lock.
            drop(side);
            let clean = T::reset_qp(&checkout.qp);
            side = self.check_in(&checkout).ok_or(DEAD)?;
            if !side.has(&checkout) {
                // Another thread reset the endpoint first.
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
        side.listened = 0;
        let fed = side.fed();
        drop(side);
        drop(old);
        fed.into_iter().flatten().for_each(Evd::gather);
        Ok(())
    }

    /// Frees the endpoint (dat_ep_free) in any state but Reserved, Passive and Tentative Connection Pending. Ends a
    /// connection, or an attempt to make one, without an event.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` with the state's subtype; `DAT_INVALID_HANDLE` if another thread freed it first.
    pub fn free(&'static self) -> Result<()> {
        let side = self.lock_alive()?;
        self.take_down(side, Input::Free)
    }

    /// Frees the endpoint in any state, for an abrupt close of the IA.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was freed meanwhile.
    pub(crate) fn destroy(&'static self) -> Result<()> {
        let side = self.lock_alive()?;
        self.take_down(side, Input::Destroy)
    }

    fn take_down(&'static self, mut side: Locked<T>, input: Input) -> Result<()> {
        self.state.preview(input)?;
        // No object claims an endpoint, so the second subtype never occurs.
        let subtype = Subtype::InvalidHandleEp;
        self.head.retire(subtype, Subtype::InvalidStateEpNotready)?;
        self.head.generation.fetch_add(1, Ordering::AcqRel);
        let step = self.apply(&mut side, input)?;
        let receives = early::receive_evd(&side);
        let parts = std::mem::take(&mut *side);
        // Unlocked, because the transport may wait for an upcall that waits for this lock.
        drop(side);
        self.open_gate(receives);
        self.close_queues();
        if let Some(qp) = parts
            .qp
            .as_ref()
            .filter(|_| step.effect == Effect::Teardown)
        {
            T::disconnect(qp);
        }
        destroy_peers::<T>(
            parts
                .peers
                .iter()
                .chain(&parts.lookups)
                .chain(&parts.failed),
        );
        let fed = parts.fed();
        // Fields drop in order: the queue pair before the claims and feeds that it needs.
        drop(parts);
        let index = self.index();
        self.ia().remove_member(Kind::Ep, index);
        T::arenas().ep.recycle(index);
        // Last, because it may run an agent, which may close the IA.
        fed.into_iter().flatten().for_each(Evd::gather);
        Ok(())
    }
}
