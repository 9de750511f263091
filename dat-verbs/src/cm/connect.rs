//! Connecting and accepting with the connection manager of the IA.

use std::sync::Arc;

use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::transport::{Connect, Token};
use dat_handshake::{rdma_cm, scm};

use crate::cm::rdma::resolution::Resolution;
use crate::cm::request::{ConnRequest, Request};
use crate::cm::{rdma, socket};
use crate::settings::Manager;
use crate::verbs::qp::Qp;

/// Starts a connection attempt; an upcall reports its result.
pub(crate) fn connect(qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
    let shared = &qp.pd.adapter.shared;
    let max_private = match shared.settings.cm {
        Manager::Rdmacm => rdma_cm::REQ_PRIVATE,
        Manager::Socket => scm::MAX_PRIVATE,
    };
    if connect.private_data.len() > max_private {
        return Err(Error::of(Kind::InvalidParameter));
    }
    if connect.remote.is_ipv4() != shared.attr.address.is_ipv4() {
        return Err(Error::new(
            Kind::InvalidAddress,
            Subtype::InvalidAddressUnsupported,
        ));
    }
    match shared.settings.cm {
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
