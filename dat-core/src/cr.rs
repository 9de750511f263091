//! The DAT object: connection requests (dat_cr_query, dat_cr_accept, dat_cr_reject, dat_cr_handoff).

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;

use crate::ep::Ep;
use crate::error::{Error, Kind, Result};
use crate::head::Head;
use crate::private_data::PrivateData;
use crate::transport::Transport;

/// A connection request that waits for an answer.
#[derive(Debug)]
#[repr(C)]
pub struct Cr<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    /// The consumer's own word (dat_set_consumer_context).
    pub context: AtomicU64,
    private_data: PrivateData,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Default for Cr<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            context: AtomicU64::default(),
            private_data: PrivateData::default(),
            transport: PhantomData,
        }
    }
}

/// What dat_cr_query reports (`DAT_CR_PARAM`). The private data is at [`Cr::private_data`].
#[derive(Clone, Debug)]
pub struct CrInfo<T: Transport> {
    /// The peer's address and port qualifier.
    pub remote: SocketAddr,
    /// The endpoint that goes with the request: the RSP's, or the provider's.
    pub local_ep: Option<&'static Ep<T>>,
}

impl<T: Transport> Cr<T> {
    /// dat_cr_query.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was answered meanwhile.
    pub fn info(&'static self) -> Result<CrInfo<T>> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// The peer's private data, writable by the consumer; stays until the slot is reused, long after the answer.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// dat_cr_accept. `ep` `None`: the request's own endpoint.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` without an endpoint, `DAT_INVALID_PARAMETER` with one too many or private data too
    /// long (argument 3), `DAT_INVALID_STATE` of the endpoint.
    pub fn accept(&'static self, _ep: Option<&'static Ep<T>>, _private_data: &[u8]) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_cr_reject, with 2.0's private data.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was answered meanwhile, `DAT_INVALID_PARAMETER`.
    pub fn reject(&'static self, _private_data: &[u8]) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_cr_handoff: to another service point's qualifier. No transport can.
    ///
    /// # Errors
    /// `DAT_MODEL_NOT_SUPPORTED`.
    pub fn handoff(&'static self, _conn_qual: u64) -> Result<()> {
        Err(Error::of(Kind::ModelNotSupported))
    }

    /// The handle as a number.
    #[inline]
    pub fn handle(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}
