//! The DAT object: endpoints (dat_ep_create, dat_ep_free, dat_ep_reset).

pub mod connect;
pub mod dto;
pub mod post;
pub mod query;
pub mod ring;
pub mod state;

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use crate::attr::EpAttr;
use crate::error::{Error, Kind, Result};
use crate::evd::Evd;
use crate::head::Head;
use crate::ia::Ia;
use crate::private_data::PrivateData;
use crate::pz::Pz;
use crate::srq::Srq;
use crate::transport::Transport;

pub use query::{EpChange, EpInfo};
pub use state::EpState;

/// An endpoint: one side of a connection, or of an attempt to make one.
#[derive(Debug)]
#[repr(C)]
pub struct Ep<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    /// The consumer's own word (dat_set_consumer_context).
    pub context: AtomicU64,
    private_data: PrivateData,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Default for Ep<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            context: AtomicU64::default(),
            private_data: PrivateData::default(),
            transport: PhantomData,
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

impl<T: Transport> Ep<T> {
    /// dat_ep_create, dat_ep_create_with_srq: an endpoint in the state Unconnected. `attr` `None` asks for
    /// the defaults.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER`, `DAT_INSUFFICIENT_RESOURCES`, `DAT_MODEL_NOT_SUPPORTED`, and
    /// `DAT_INVALID_HANDLE` of a part that was freed meanwhile.
    pub fn create(
        _ia: &'static Ia<T>,
        _parts: EpParts<T>,
        _attr: Option<&EpAttr>,
    ) -> Result<&'static Self> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_ep_reset: from Disconnected (or Unconnected) to Unconnected; completions not dequeued may be lost.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` in any other state.
    pub fn reset(&'static self) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_ep_free: in any state but Reserved, Passive and Tentative Connection Pending. A connection, or
    /// the attempt to make one, is ended without an event.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` with the state's subtype.
    pub fn free(&'static self) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// The handle as a number.
    #[inline]
    pub fn handle(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}
