//! The DAT object: service points, public (PSP) and reserved (RSP): dat_psp_create, dat_psp_create_any,
//! dat_rsp_create and their queries and frees.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use crate::ep::Ep;
use crate::error::{Error, Kind, Result};
use crate::evd::Evd;
use crate::head::Head;
use crate::ia::Ia;
use crate::transport::Transport;

/// A service point: where connection requests come in.
#[derive(Debug)]
#[repr(C)]
pub struct Sp<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    /// The consumer's own word (dat_set_consumer_context).
    pub context: AtomicU64,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Default for Sp<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            context: AtomicU64::default(),
            transport: PhantomData,
        }
    }
}

/// Which kind of service point.
#[derive(Debug)]
pub enum SpKind<T: Transport> {
    /// Takes any number of requests.
    Public {
        /// Whether the provider makes an endpoint for each request (`DAT_PSP_PROVIDER_FLAG`).
        provider_ep: bool,
    },
    /// Takes one request, for this endpoint.
    Reserved(&'static Ep<T>),
}

impl<T: Transport> Clone for SpKind<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Transport> Copy for SpKind<T> {}

/// What dat_psp_query and dat_rsp_query report.
#[derive(Clone, Debug)]
pub struct SpInfo<T: Transport> {
    /// The adapter.
    pub ia: &'static Ia<T>,
    /// The qualifier that it listens on.
    pub conn_qual: u64,
    /// Where requests are announced.
    pub evd: &'static Evd<T>,
    /// PSP or RSP.
    pub kind: SpKind<T>,
}

impl<T: Transport> Sp<T> {
    /// dat_psp_create, and dat_psp_create_any with `conn_qual` `None`.
    ///
    /// # Errors
    /// `DAT_CONN_QUAL_IN_USE`, `DAT_CONN_QUAL_UNAVAILABLE`, `DAT_INVALID_PARAMETER`,
    /// `DAT_INSUFFICIENT_RESOURCES`, `DAT_INVALID_HANDLE` for an EVD that takes no requests.
    pub fn psp_create(
        _ia: &'static Ia<T>,
        _conn_qual: Option<u64>,
        _evd: &'static Evd<T>,
        _provider_ep: bool,
    ) -> Result<&'static Self> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_rsp_create: `ep` goes from Unconnected to Reserved.
    ///
    /// # Errors
    /// As [`Sp::psp_create`]; `DAT_INVALID_STATE` of the endpoint.
    pub fn rsp_create(
        _ia: &'static Ia<T>,
        _conn_qual: u64,
        _ep: &'static Ep<T>,
        _evd: &'static Evd<T>,
    ) -> Result<&'static Self> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_psp_query, dat_rsp_query. The thunks refuse an RSP as PSP and the other way round with [`Sp::is_public`].
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was freed meanwhile.
    pub fn info(&'static self) -> Result<SpInfo<T>> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// Whether this is a PSP (and not an RSP).
    pub fn is_public(&self) -> bool {
        true
    }

    /// dat_psp_free, dat_rsp_free: no more requests come in; those announced stay, as do connections.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was freed meanwhile.
    pub fn free(&'static self) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// The handle as a number.
    #[inline]
    pub fn handle(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}
