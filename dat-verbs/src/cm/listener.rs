//! A service point of either connection manager.

use std::sync::Arc;

use dat_core::error::Result;
use dat_core::transport::Token;

use crate::adapter::Shared;
use crate::cm::{rdma, socket};
use crate::settings::Manager;

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
