//! A connection request of either connection manager.

use dat_core::error::Result;

use crate::cm::{rdma, socket};

pub(super) enum Request {
    Rdma(rdma::request::ConnRequest),
    Socket(socket::request::ConnRequest),
}

/// Implements [`Transport::ConnRequest`](dat_core::transport::Transport::ConnRequest). Dropping it refuses the
/// request.
pub struct ConnRequest(pub(super) Request);

impl ConnRequest {
    pub(crate) fn of_rdma(request: rdma::request::ConnRequest) -> Self {
        Self(Request::Rdma(request))
    }

    pub(crate) fn of_socket(request: socket::request::ConnRequest) -> Self {
        Self(Request::Socket(request))
    }

    /// Refuses the request with the consumer's private data.
    pub(crate) fn reject(self, private_data: &[u8]) -> Result<()> {
        match self.0 {
            Request::Rdma(request) => request.reject(private_data),
            Request::Socket(request) => request.reject(private_data),
        }
    }
}
