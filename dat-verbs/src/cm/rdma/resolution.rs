//! How a datagram queue pair finds a peer: service id resolution of rdma_cm (`RDMA_PS_UDP`).
//!
//! The asking side goes through the stages of a connection until it is answered, and then needs its id no more. The
//! answering side is done with its answer.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::rdma_cm;
use dat_core::transport::{Connect, Token};
use dat_core::upcall::DatagramInput;
use parking_lot::Mutex;

use crate::adapter::{Shared, Slot};
use crate::cm::addr;
use crate::cm::rdma::caller::Caller;
use crate::cm::rdma::event::Found;
use crate::cm::rdma::id::{CmId, Params, PortSpace};
use crate::cm::rdma::request::ConnRequest;
use crate::cm::rdma::stage::{Act, Input, Stage, step};
use crate::cm::report::Report;
use crate::map;
use crate::sys;
use crate::thread::Later;
use crate::transport::Verbs;
use crate::verbs::ah::AddressHandle;
use crate::verbs::qp::Qp;

/// A question on its way. The queue pair holds it; the event thread finds it by its key.
pub(crate) struct Resolution {
    shared: Arc<Shared>,
    qp: Weak<Qp>,
    token: Token,
    key: u64,
    to: SocketAddr,
    /// With our header.
    private_data: Vec<u8>,
    state: Mutex<(Stage, Option<CmId>)>,
}

/// An answer on its way to core.
pub(crate) enum Answer {
    /// Whom datagrams reach.
    Peer {
        address: AddressHandle,
        qpn: u32,
        remote: SocketAddr,
        private_data: Vec<u8>,
    },
    /// The peer's consumer refused.
    Rejected(Vec<u8>),
    NobodyListens,
    /// No answer, or no way back.
    Failed,
}

impl Answer {
    /// Tells core. Called by the event thread.
    pub(crate) fn tell(self, shared: &Shared, token: Token) {
        let data;
        let input: DatagramInput<'_, Verbs> = match self {
            Self::Peer {
                address,
                qpn,
                remote,
                private_data,
            } => {
                data = private_data;
                DatagramInput::Resolved {
                    address,
                    qpn,
                    remote,
                    private_data: &data,
                }
            }
            Self::Rejected(private_data) => {
                data = private_data;
                DatagramInput::PeerRejected {
                    private_data: &data,
                }
            }
            Self::NobodyListens => DatagramInput::NobodyListens,
            Self::Failed => DatagramInput::Failed,
        };
        shared.upcalls.datagram(token, input);
    }
}

impl Resolution {
    /// Starts to ask. What fails from here on ends in an upcall.
    pub(crate) fn start(qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
        let shared = &qp.pd.adapter.shared;
        if connect.private_data.len() > rdma_cm::REQ_PRIVATE {
            return Err(Error::of(Kind::InvalidParameter));
        }
        if connect.remote.is_ipv4() != shared.attr.address.is_ipv4() {
            return Err(Error::new(
                Kind::InvalidAddress,
                Subtype::InvalidAddressUnsupported,
            ));
        }
        let key = shared.new_key();
        let id = CmId::new(&shared.channel, key, PortSpace::Datagram)
            .map_err(|e| map::failed("rdma_create_id", e, Subtype::ResourceDevice))?;
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
        shared.put(key, Slot::Resolution(Arc::downgrade(&resolution)));
        qp.resolutions.lock().push(Arc::clone(&resolution));
        let own = addr::socket(shared.attr.address, 0, shared.attr.scope_id);
        let started = resolution.resolve_address(&resolution.state.lock().1, Some(own));
        if let Err(e) = started {
            tracing::debug!(to = %resolution.to, "no way to the peer: {}", map::text(e));
            shared.later(Later::Resolution(resolution, Input::LocalFault));
        }
        Ok(())
    }

    /// Answers `request` with `qp`, and tells core of the peer.
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
            .map_err(|e| map::failed("ibv_create_ah", e, Subtype::ResourceDevice))?;
        let (id, key, _) = request
            .take()
            .ok_or_else(|| Error::of(Kind::InternalError))?;
        shared.remove(key);
        let answered = id.accept(&Params {
            private_data,
            responder_resources: 0,
            initiator_depth: 0,
            retry: 0,
            rnr_retry: 0,
            srq: qp.has_srq(),
            qp_num: qp.number(),
        });
        let answer = match answered {
            Ok(()) => Answer::Peer {
                address,
                qpn: caller.qpn,
                remote,
                private_data: Vec::new(),
            },
            Err(e) => {
                tracing::warn!(%remote, "rdma_accept of a datagram peer: {}", map::text(e));
                Answer::Failed
            }
        };
        shared.later(Later::Answer(token, answer));
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

    /// Something happened; `found` and `private_data` came with it. Called by the event thread, with none of its
    /// locks held.
    pub(crate) fn feed(&self, input: Input, found: Option<&Found>, private_data: &[u8]) {
        let Some(qp) = self.qp.upgrade() else { return };
        let Some(report) = self.advance(&qp, input) else {
            return;
        };
        qp.resolutions.lock().retain(|other| other.key != self.key);
        let answer = match (report, found) {
            (Report::Established, Some(found)) => {
                AddressHandle::new(&qp.pd, &found.ah_attr, found.qkey).map_or_else(
                    |e| {
                        tracing::warn!(to = %self.to, "ibv_create_ah: {}", map::text(e));
                        Answer::Failed
                    },
                    |address| Answer::Peer {
                        address,
                        qpn: found.qpn,
                        remote: self.to,
                        private_data: private_data.to_vec(),
                    },
                )
            }
            (Report::PeerRejected, _) => {
                let data = private_data.get(rdma_cm::REJ_VERSION.len()..);
                Answer::Rejected(data.unwrap_or_default().to_vec())
            }
            (Report::NonPeerRejected, _) => Answer::NobodyListens,
            _ => Answer::Failed,
        };
        answer.tell(&self.shared, self.token);
    }

    /// Steps until nothing is left to do; what core has to be told. With a report the id is gone.
    fn advance(&self, qp: &Qp, input: Input) -> Option<Report> {
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
                    id.connect(&Params {
                        private_data: &self.private_data,
                        responder_resources: 0,
                        initiator_depth: 0,
                        retry: 0,
                        rnr_retry: 0,
                        srq: qp.has_srq(),
                        qp_num: qp.number(),
                    })
                }),
                Act::Ready => break Report::Established,
                Act::Fail(report) | Act::Farewell(report) => break report,
                // No queue pair is moved, and nobody hangs up.
                Act::Nothing | Act::Finish | Act::HangUp | Act::Abandon => return None,
            };
            match done {
                Ok(()) => return None,
                Err(e) => {
                    tracing::warn!(to = %self.to, ?act, "connection manager: {}", map::text(e));
                    input = Input::LocalFault;
                }
            }
        };
        // Nothing more comes: an answer that is repeated is of no interest.
        state.0 = Stage::Down;
        self.shared.remove(self.key);
        let id = state.1.take();
        drop(state);
        // Outside the lock: it may wait for the event thread.
        drop(id);
        Some(report)
    }
}

impl Drop for Resolution {
    fn drop(&mut self) {
        // First the key, so that the event thread no longer looks; then the id.
        self.shared.remove(self.key);
    }
}
