//! Connecting and accepting with the connection manager of the IA.

use std::sync::Arc;

use dat_core::error::Result;
use dat_core::transport::{Connect, Token};

use crate::cm::rdma::resolution::Resolution;
use crate::cm::request::{ConnRequest, Request};
use crate::cm::{rdma, socket};
use crate::settings::Manager;
use crate::verbs::qp::Qp;

/// Starts a connection attempt; an upcall reports its result.
pub(crate) fn connect(qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
    match qp.pd.adapter.shared.settings.cm {
        Manager::Rdmacm if qp.caps.datagram => Resolution::start(qp, connect),
        Manager::Rdmacm => rdma::conn::Conn::connect(qp, connect),
        Manager::Socket => socket::conn::Conn::connect(qp, connect),
    }
}

/// Accepts `request`; an upcall reports the result.
pub(crate) fn accept(
    request: ConnRequest,
    qp: &Arc<Qp>,
    token: Token,
    private_data: &[u8],
) -> Result<()> {
    match request.0 {
        Request::Rdma(request) if qp.caps.datagram => {
            Resolution::accept(request, qp, token, private_data)
        }
        Request::Rdma(request) => rdma::conn::Conn::accept(request, qp, token, private_data),
        Request::Socket(request) => socket::conn::Conn::accept(request, qp, token, private_data),
    }
}
