//! Looking at an endpoint and changing it (dat_ep_query, dat_ep_modify, dat_ep_get_status,
//! dat_ep_recv_query, dat_ep_set_watermark).

use std::net::IpAddr;

use super::{Ep, EpState};
use crate::attr::EpAttr;
use crate::error::{Error, Kind, Result};
use crate::evd::Evd;
use crate::flags::CompletionFlags;
use crate::ia::Ia;
use crate::pz::Pz;
use crate::srq::Srq;
use crate::transport::Transport;

/// What dat_ep_query reports (`DAT_EP_PARAM`).
#[derive(Clone, Debug)]
pub struct EpInfo<T: Transport> {
    /// The adapter.
    pub ia: &'static Ia<T>,
    /// The state.
    pub state: EpState,
    /// Our address.
    pub local_address: IpAddr,
    /// Our port, 0 before there is one.
    pub local_port: u64,
    /// The peer's address, once there is a peer.
    pub remote_address: Option<IpAddr>,
    /// The peer's port or qualifier, 0 before there is one.
    pub remote_port: u64,
    /// The protection zone.
    pub pz: Option<&'static Pz<T>>,
    /// Receives complete there.
    pub recv_evd: Option<&'static Evd<T>>,
    /// Requests complete there.
    pub request_evd: Option<&'static Evd<T>>,
    /// Connection events go there.
    pub connect_evd: Option<&'static Evd<T>>,
    /// Receives come from there.
    pub srq: Option<&'static Srq<T>>,
    /// The attributes in force.
    pub attr: EpAttr,
}

/// What dat_ep_modify is to change: one field per bit of the mask that can be changed. For handles, the
/// outer `Option` says whether, the inner whether to a handle or to `DAT_HANDLE_NULL`.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields of EpParts and EpAttr")]
pub struct EpChange<T: Transport> {
    pub pz: Option<Option<&'static Pz<T>>>,
    pub recv_evd: Option<Option<&'static Evd<T>>>,
    pub request_evd: Option<Option<&'static Evd<T>>>,
    pub connect_evd: Option<Option<&'static Evd<T>>>,
    pub srq: Option<Option<&'static Srq<T>>>,
    pub service_type: Option<u32>,
    pub max_message_size: Option<u64>,
    pub max_rdma_size: Option<u64>,
    pub qos: Option<u32>,
    pub recv_completion_flags: Option<CompletionFlags>,
    pub request_completion_flags: Option<CompletionFlags>,
    pub max_recv_dtos: Option<u32>,
    pub max_request_dtos: Option<u32>,
    pub max_recv_iov: Option<u32>,
    pub max_request_iov: Option<u32>,
    pub max_rdma_read_in: Option<u32>,
    pub max_rdma_read_out: Option<u32>,
    pub srq_soft_hw: Option<i32>,
    pub max_rdma_read_iov: Option<u32>,
    pub max_rdma_write_iov: Option<u32>,
}

impl<T: Transport> Default for EpChange<T> {
    fn default() -> Self {
        Self {
            pz: None,
            recv_evd: None,
            request_evd: None,
            connect_evd: None,
            srq: None,
            service_type: None,
            max_message_size: None,
            max_rdma_size: None,
            qos: None,
            recv_completion_flags: None,
            request_completion_flags: None,
            max_recv_dtos: None,
            max_request_dtos: None,
            max_recv_iov: None,
            max_request_iov: None,
            max_rdma_read_in: None,
            max_rdma_read_out: None,
            srq_soft_hw: None,
            max_rdma_read_iov: None,
            max_rdma_write_iov: None,
        }
    }
}

impl<T: Transport> Ep<T> {
    /// dat_ep_query.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if the endpoint was freed meanwhile.
    pub fn info(&'static self) -> Result<EpInfo<T>> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_ep_modify: all of `change` or nothing.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` where the state does not allow one of the changes, `DAT_INVALID_PARAMETER` (third
    /// argument) for a value that is not possible, `DAT_INSUFFICIENT_RESOURCES`.
    pub fn modify(&'static self, _change: &EpChange<T>) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_ep_get_status: the state, whether all receives, and whether all requests are completed.
    pub fn status(&'static self) -> (EpState, bool, bool) {
        (EpState::Unconnected, true, true)
    }

    /// dat_ep_recv_query: receives posted (on an SRQ: in use by this endpoint), and buffers spanned by
    /// messages that are on their way in.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if the endpoint was freed meanwhile.
    pub fn recv_query(&'static self) -> Result<(u32, u32)> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_ep_set_watermark: when more than `soft` receives of the SRQ are in use by this endpoint an event
    /// tells it, when more than `hard` are, the connection is broken. `None` is none.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` for an endpoint without SRQ, `DAT_INVALID_PARAMETER`.
    pub fn set_watermark(&'static self, _soft: Option<u32>, _hard: Option<u32>) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }
}
