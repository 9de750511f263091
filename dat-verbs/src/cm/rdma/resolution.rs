//! Resolution of a datagram queue pair's peer: service id resolution of rdma_cm (`RDMA_PS_UDP`).
//!
//! The active side goes through the stages of a connection until the reply arrives, and then releases its id. The
//! passive side is finished when it has sent its reply.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use dat_arena::Mutex;
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::transport::{Connect, Token};
use dat_core::upcall::{ConnOutcome, DatagramOutcome};
use dat_handshake::{Caller, rdma_cm};

use crate::adapter::{EventHandler, EventTarget, Shared};
use crate::cm::addr;
use crate::cm::rdma::event::ResolvedQp;
use crate::cm::rdma::id::{CmId, Params, PortSpace};
use crate::cm::rdma::request::ConnRequest;
use crate::cm::rdma::stage::{Act, Input, Stage, step};
use crate::convert;
use crate::sys;
use crate::verbs::ah::AddressHandle;
use crate::verbs::qp::Qp;

/// A resolution in progress. The queue pair owns it; the event thread finds it by its key.
pub(crate) struct Resolution {
    shared: Arc<Shared>,
    qp: Weak<Qp>,
    token: Token,
    key: u64,
    to: SocketAddr,
    /// Private data of the request, with our header.
    private_data: Vec<u8>,
    state: Mutex<(Stage, Option<CmId>)>,
}

/// Returns the parameters of a request for a datagram queue pair, and of its answer: nothing that is for connections.
fn parameters<'a>(qp: &Qp, private_data: &'a [u8]) -> Params<'a> {
    Params {
        private_data,
        responder_resources: 0,
        initiator_depth: 0,
        retry: 0,
        rnr_retry: 0,
        srq: qp.has_srq(),
        qp_num: qp.number(),
    }
}

impl Resolution {
    /// Starts a resolution. Errors from here on are reported by an upcall.
    pub(crate) fn start(qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
        let shared = &qp.pd.adapter.shared;
        let key = shared.new_key();
        let id = CmId::new(&shared.channel, key, PortSpace::Datagram)
            .map_err(|e| convert::failed("rdma_create_id", e, Subtype::ResourceDevice))?;
        let port = rdma_cm::port_of(connect.conn_qual);
        let caller = Caller {
            lid: shared.lid,
            qpn: qp.number(),
            qkey: sys::DATAGRAM_QKEY,
        };
        let resolution = Arc::new(Self {
            shared: Arc::clone(shared),
            qp: Arc::downgrade(qp),
            token: connect.token,
            key,
            to: addr::socket(connect.remote, port, shared.attr.scope_id),
            private_data: caller.write(connect.private_data),
            state: Mutex::new((Stage::Address(shared.settings.resolve_retry[0]), Some(id))),
        });
        shared.put(key, EventTarget::object(&resolution));
        qp.resolutions
            .lock()
            .push((key, Arc::<Self>::clone(&resolution)));
        let own = addr::socket(shared.attr.address, 0, shared.attr.scope_id);
        let started = resolution.resolve_address(&resolution.state.lock().1, Some(own));
        if let Err(e) = started {
            tracing::debug!(to = %resolution.to, "no way to the peer: {}", convert::text(e));
            shared.defer(Box::new(move |_| {
                resolution.cm_event(Input::LocalFault, None, &[]);
            }));
        }
        Ok(())
    }

    /// Accepts `request` with `qp`, and reports the peer to core.
    pub(crate) fn accept(
        request: ConnRequest,
        qp: &Arc<Qp>,
        token: Token,
        private_data: &[u8],
    ) -> Result<()> {
        let shared = &qp.pd.adapter.shared;
        let (Some(caller), Some(remote)) = (request.caller, request.remote()) else {
            return Err(Error::of(Kind::InternalError));
        };
        let address = AddressHandle::to(&qp.pd, remote.ip(), caller.lid, caller.qkey)
            .map_err(|e| convert::failed("ibv_create_ah", e, Subtype::ResourceDevice))?;
        let (id, key, _) = request
            .take()
            .ok_or_else(|| Error::of(Kind::InternalError))?;
        shared.remove(key);
        let answered = id.accept(&parameters(qp, private_data));
        let outcome = match answered {
            Ok(()) => DatagramOutcome::Resolved {
                address,
                qpn: caller.qpn,
                remote,
                private_data: Box::default(),
            },
            Err(e) => {
                tracing::warn!(%remote, "rdma_accept of a datagram peer: {}", convert::text(e));
                DatagramOutcome::Failed
            }
        };
        shared.defer(Box::new(move |shared| {
            shared.upcalls.datagram(token, outcome);
        }));
        Ok(())
    }

    fn resolve_address(
        &self,
        id: &Option<CmId>,
        from: Option<SocketAddr>,
    ) -> std::result::Result<(), i32> {
        let id = id.as_ref().ok_or(libc::ENOTCONN)?;
        id.resolve_addr(from, self.to, self.shared.settings.resolve_timeout[0])
    }

    /// Steps the state machine until no action is left; returns the report for core. With a report the id is released.
    fn advance(&self, qp: &Qp, input: Input) -> Option<ConnOutcome> {
        let mut state = self.state.lock();
        let mut input = input;
        let report = loop {
            let (stage, act) = step(state.0, input);
            state.0 = stage;
            let done = match act {
                Act::ResolveAddress => self.resolve_address(&state.1, None),
                Act::ResolveRoute => {
                    if input == Input::AddressResolved {
                        state.0 = Stage::Route(self.shared.settings.resolve_retry[1]);
                    }
                    let timeout = self.shared.settings.resolve_timeout[1];
                    state
                        .1
                        .as_ref()
                        .map_or(Err(libc::ENOTCONN), |id| id.resolve_route(timeout))
                }
                Act::Request => state.1.as_ref().map_or(Err(libc::ENOTCONN), |id| {
                    id.connect(&parameters(qp, &self.private_data))
                }),
                Act::Ready => break ConnOutcome::Established,
                Act::Fail(report) | Act::ReplyDisconnect(report) => break report,
                // A resolution changes no queue pair state and has no disconnect.
                Act::Nothing | Act::Finish | Act::Disconnect | Act::Abandon | Act::FlushAgain => {
                    return None;
                }
            };
            match done {
                Ok(()) => return None,
                Err(e) => {
                    tracing::warn!(peer = %self.to, step = ?act, "a resolution of an address failed: {}", convert::text(e));
                    input = Input::LocalFault;
                }
            }
        };
        // A repeated reply is ignored.
        state.0 = Stage::Down;
        self.shared.remove(self.key);
        let id = state.1.take();
        drop(state);
        // Dropped outside the lock: the drop may wait for the event thread.
        drop(id);
        Some(report)
    }
}

impl EventHandler for Resolution {
    fn cm_event(&self, input: Input, found: Option<&ResolvedQp>, private_data: &[u8]) {
        let Some(qp) = self.qp.upgrade() else { return };
        let Some(report) = self.advance(&qp, input) else {
            return;
        };
        qp.resolutions.lock().retain(|(key, _)| *key != self.key);
        let outcome = match (report, found) {
            (ConnOutcome::Established, Some(found)) => {
                AddressHandle::new(&qp.pd, &found.ah_attr, found.qkey).map_or_else(
                    |e| {
                        tracing::warn!(to = %self.to, "ibv_create_ah: {}", convert::text(e));
                        DatagramOutcome::Failed
                    },
                    |address| DatagramOutcome::Resolved {
                        address,
                        qpn: found.qpn,
                        remote: self.to,
                        private_data: private_data.into(),
                    },
                )
            }
            (ConnOutcome::PeerRejected, _) => {
                let data = private_data.get(rdma_cm::REJ_VERSION.len()..);
                DatagramOutcome::PeerRejected {
                    private_data: data.unwrap_or_default().into(),
                }
            }
            (ConnOutcome::NonPeerRejected, _) => DatagramOutcome::NoListener,
            _ => DatagramOutcome::Failed,
        };
        self.shared.upcalls.datagram(self.token, outcome);
    }
}

impl Drop for Resolution {
    fn drop(&mut self) {
        // The key goes first, so that the event thread finds no resolution; then the id.
        self.shared.remove(self.key);
    }
}
