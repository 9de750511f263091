//! Connections. The IA's `cm` setting selects the connection manager; peers must use the same one.
//!
//! * `rdma`: librdmacm, compatible with DAPL's cma provider;
//! * `socket`: queue pair data exchanged over TCP, compatible with DAPL's scm provider.

pub(crate) mod addr;
pub(crate) mod rdma;
pub(crate) mod socket;

use std::sync::Arc;

use dat_core::error::Result;
use dat_core::transport::{Connect, Token};

use crate::adapter::Shared;
use crate::settings::Manager;
use crate::verbs::qp::Qp;

/// The connection of a queue pair.
#[derive(Clone)]
pub(crate) enum Conn {
    Rdma(Arc<rdma::conn::Conn>),
    Socket(Arc<socket::conn::Conn>),
}

impl Conn {
    /// Starts a connection attempt; an upcall reports its result.
    pub(crate) fn connect(qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
        match qp.pd.adapter.shared.settings.cm {
            Manager::Rdmacm if qp.caps.datagram => rdma::resolution::Resolution::start(qp, connect),
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
                rdma::resolution::Resolution::accept(request, qp, token, private_data)
            }
            Request::Rdma(request) => rdma::conn::Conn::accept(request, qp, token, private_data),
            Request::Socket(request) => {
                socket::conn::Conn::accept(request, qp, token, private_data)
            }
        }
    }

    /// Returns the port of our end; 0 after the connection has ended.
    pub(crate) fn local_port(&self) -> u16 {
        match self {
            Self::Rdma(conn) => conn.local_port(),
            Self::Socket(conn) => conn.local_port(),
        }
    }

    /// Starts the disconnect that the consumer requested.
    pub(crate) fn disconnect(&self, qp: &Qp) {
        match self {
            Self::Rdma(conn) => conn.disconnect(qp),
            Self::Socket(conn) => conn.disconnect(qp),
        }
    }
}

enum Request {
    Rdma(rdma::request::ConnRequest),
    Socket(socket::request::ConnRequest),
}

/// Implements [`Transport::ConnRequest`](dat_core::transport::Transport::ConnRequest). Dropping it refuses the
/// request.
pub struct ConnRequest(Request);

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

enum Inner {
    Rdma {
        _listener: rdma::listener::Listener,
    },
    Socket {
        _listener: socket::listener::Listener,
    },
}

/// Implements [`Transport::Listener`](dat_core::transport::Transport::Listener).
pub struct Listener {
    _inner: Inner,
}

impl Listener {
    /// Listens on `conn_qual`, or on a port that the kernel chooses; returns the qualifier too.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        conn_qual: Option<u64>,
        token: Token,
    ) -> Result<(Self, u64)> {
        let (inner, qual) = match shared.settings.cm {
            Manager::Rdmacm => {
                let (_listener, qual) = rdma::listener::Listener::new(shared, conn_qual, token)?;
                (Inner::Rdma { _listener }, qual)
            }
            Manager::Socket => {
                let (_listener, qual) = socket::listener::Listener::new(shared, conn_qual, token)?;
                (Inner::Socket { _listener }, qual)
            }
        };
        Ok((Self { _inner: inner }, qual))
    }
}
