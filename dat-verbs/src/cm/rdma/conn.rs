//! One connection or connection attempt: performs the actions that [`stage`](super::stage) decides.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use dat_arena::Mutex;
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::transport::{Connect, Token};
use dat_core::upcall::ConnOutcome;
use dat_handshake::rdma_cm;

use crate::adapter::{EventHandler, EventTarget, Shared};
use crate::cm::addr;
use crate::cm::rdma::event::ResolvedQp;
use crate::cm::rdma::id::{CmId, Params, PortSpace};
use crate::cm::rdma::request::ConnRequest;
use crate::cm::rdma::stage::{Act, Input, Stage, implied, not_requested, step};
use crate::convert;
use crate::verbs::device::Transport;
use crate::verbs::qp::{Connection, PathLimits, Qp};

/// Source ports of connecting ids, one port per process (see [`Conn::begin`]). The range is above the kernel's
/// ephemeral ports, and above the ports of usual listeners (dapltest counts up from 62000).
const SOURCE_PORTS: std::ops::Range<u16> = 65_000..65_500;

/// A connection of a queue pair. The queue pair owns it; the event thread finds it by its key.
pub(crate) struct Conn {
    shared: Arc<Shared>,
    qp: Weak<Qp>,
    token: Token,
    key: u64,
    /// The peer; set on the active side.
    to: Option<SocketAddr>,
    private_data: Vec<u8>,
    limits: PathLimits,
    state: Mutex<State>,
}

struct State {
    stage: Stage,
    id: Option<CmId>,
}

/// Returns the number of RDMA Reads that both the endpoint and the device support; the CM has one byte for it.
fn reads(of_endpoint: u32, of_device: u32) -> u8 {
    u8::try_from(of_endpoint.min(of_device)).unwrap_or(u8::MAX)
}

impl Conn {
    /// Starts a connection attempt. Errors from here on are reported by an upcall.
    pub(crate) fn connect(qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
        let shared = &qp.pd.adapter.shared;
        let key = shared.new_key();
        let id = CmId::new(&shared.channel, key, PortSpace::Connection)
            .map_err(|e| convert::failed("rdma_create_id", e, Subtype::ResourceDevice))?;
        let to = addr::socket(
            connect.remote,
            rdma_cm::port_of(connect.conn_qual),
            shared.attr.scope_id,
        );
        if let Some(tos) = shared.settings.tos
            && let Err(e) = id.set_tos(tos)
        {
            tracing::warn!("tos {tos} is not set: {}", convert::text(e));
        }
        let conn = Arc::new(Self {
            shared: Arc::clone(shared),
            qp: Arc::downgrade(qp),
            token: connect.token,
            key,
            to: Some(to),
            private_data: connect.private_data.to_vec(),
            limits: PathLimits {
                reads_in: reads(qp.caps.rdma_read_in, shared.attr.max_rdma_read_per_ep_in),
                reads_out: reads(qp.caps.rdma_read_out, shared.attr.max_rdma_read_per_ep_out),
            },
            state: Mutex::new(State {
                stage: Stage::Address(shared.settings.resolve_retry[0]),
                id: Some(id),
            }),
        });
        shared.put(key, EventTarget::object(&conn));
        *qp.conn.lock() = Some(Arc::<Self>::clone(&conn));
        let started = conn.begin(&conn.state.lock());
        if let Err(e) = started {
            tracing::debug!(%to, "no way to the peer: {}", convert::text(e));
            // The consumer receives this failure as an event, like failures a moment later.
            conn.defer_local_fault();
        }
        Ok(())
    }

    /// Accepts `request`.
    pub(crate) fn accept(
        request: ConnRequest,
        qp: &Arc<Qp>,
        token: Token,
        private_data: &[u8],
    ) -> Result<()> {
        if private_data.len() > rdma_cm::REP_PRIVATE {
            return Err(Error::of(Kind::InvalidParameter));
        }
        let (id, key, offer) = request
            .take()
            .ok_or_else(|| Error::of(Kind::InternalError))?;
        let shared = &qp.pd.adapter.shared;
        let limits = PathLimits {
            reads_in: reads(qp.caps.rdma_read_in, shared.attr.max_rdma_read_per_ep_in)
                .min(offer.reads_in),
            reads_out: reads(qp.caps.rdma_read_out, shared.attr.max_rdma_read_per_ep_out)
                .min(offer.reads_out),
        };
        let conn = Arc::new(Self {
            shared: Arc::clone(shared),
            qp: Arc::downgrade(qp),
            token,
            key,
            to: None,
            private_data: private_data.to_vec(),
            limits,
            state: Mutex::new(State {
                stage: Stage::Accepted,
                id: Some(id),
            }),
        });
        *qp.conn.lock() = Some(Arc::<Self>::clone(&conn));
        let accepted = {
            // The lock is held so that the peer's response cannot be processed before the slot is set up.
            let state = conn.state.lock();
            let withdrawn = shared.replace_pending(key, EventTarget::object(&conn));
            let id = state.id.as_ref().filter(|_| !withdrawn);
            id.map_or(Err(libc::ECONNABORTED), |id| {
                conn.to_rts(qp, id)?;
                id.accept(&conn.params(qp)).inspect_err(|e| {
                    tracing::warn!(
                        "rdma_accept failed, the connection is not made: {}",
                        convert::text(*e)
                    );
                })
            })
        };
        if accepted.is_err() {
            // The peer has given up, or will see the refusal. The consumer receives the failure as an event.
            conn.defer_local_fault();
        }
        Ok(())
    }

    fn params(&self, qp: &Qp) -> Params<'_> {
        Params {
            private_data: &self.private_data,
            responder_resources: self.limits.reads_in,
            initiator_depth: self.limits.reads_out,
            retry: self.shared.settings.retry,
            rnr_retry: self.shared.settings.rnr_retry,
            srq: qp.has_srq(),
            qp_num: qp.number(),
        }
    }

    fn to_rts(&self, qp: &Qp, id: &CmId) -> std::result::Result<(), i32> {
        qp.to_rts(self.limits, |attr| {
            id.qp_attr(attr)
                .map_err(|e| convert::failed("rdma_init_qp_attr", e, Subtype::ResourceTep))
        })
        .map_err(|_| libc::EIO)
    }

    /// Starts the first attempt and binds the id. All connecting ids of a process share one port above the kernel's
    /// ephemeral ports, unless another process has bound it. One port per id, as DAPL does it, occasionally collides
    /// with listeners.
    ///
    /// Over iWARP a connection is one of TCP, which its two addresses and ports identify: there each id has a port of
    /// its own, which the kernel chooses.
    fn begin(&self, state: &State) -> std::result::Result<(), i32> {
        let at = |port| addr::socket(self.shared.attr.address, port, self.shared.attr.scope_id);
        if self.shared.transport == Transport::Iwarp {
            return self.resolve_address(state, Some(at(0)));
        }
        let spread = std::process::id() % SOURCE_PORTS.len() as u32;
        let shared_port = SOURCE_PORTS.start + spread as u16;
        self.with_id(state, CmId::share_port)
            .and_then(|()| self.resolve_address(state, Some(at(shared_port))))
            .or_else(|_| self.resolve_address(state, Some(at(0))))
    }

    fn resolve_address(
        &self,
        state: &State,
        from: Option<SocketAddr>,
    ) -> std::result::Result<(), i32> {
        match (&state.id, self.to) {
            (Some(id), Some(to)) => {
                id.resolve_addr(from, to, self.shared.settings.resolve_timeout[0])
            }
            _ => Err(libc::EINVAL),
        }
    }

    /// Processes an input, after the one that it implies. Called by the event thread without locks.
    fn feed(&self, input: Input, private_data: &[u8]) {
        // The connection ends with its queue pair: then there is no endpoint to report to.
        let Some(qp) = self.qp.upgrade() else { return };
        let first = implied(self.state.lock().stage, input);
        for input in first.into_iter().chain([input]) {
            self.feed_one(&qp, input, private_data);
        }
    }

    fn feed_one(&self, qp: &Qp, input: Input, private_data: &[u8]) {
        if let Some(report) = self.advance(qp, input) {
            let data = match report {
                // The passive side's RTU carries no private data.
                ConnOutcome::Established if self.to.is_none() => &[],
                // The version word belongs to DAPL's protocol, not to the consumer's data.
                ConnOutcome::PeerRejected => private_data
                    .get(rdma_cm::REJ_VERSION.len()..)
                    .unwrap_or_default(),
                _ => private_data,
            };
            self.shared.upcalls.connection(self.token, report, data);
        }
    }

    /// Steps the state machine until no action is left; returns the report for core.
    fn advance(&self, qp: &Qp, input: Input) -> Option<ConnOutcome> {
        let mut state = self.state.lock();
        let mut input = input;
        let mut unanswered = false;
        let (report, gone) = loop {
            let (stage, act) = step(state.stage, input);
            unanswered |= (state.stage, act) == (Stage::Requested, Act::Abandon);
            tracing::trace!(key = self.key, from = ?state.stage, ?input, to = ?stage, ?act);
            state.stage = stage;
            let done = match act {
                Act::Nothing => break (None, None),
                Act::Ready => break (Some(ConnOutcome::Established), None),
                Act::ResolveAddress => self.resolve_address(&state, None).map(|()| None),
                Act::ResolveRoute => {
                    if input == Input::AddressResolved {
                        state.stage = Stage::Route(self.shared.settings.resolve_retry[1]);
                    }
                    let timeout = self.shared.settings.resolve_timeout[1];
                    self.with_id(&state, |id| id.resolve_route(timeout))
                        .map(|()| None)
                }
                Act::Request => self
                    .with_id(&state, |id| id.connect(&self.params(qp)))
                    .map(|()| None),
                Act::Finish => self
                    .with_id(&state, |id| {
                        self.to_rts(qp, id)?;
                        id.establish()
                    })
                    .map(|()| Some(ConnOutcome::Established)),
                Act::Disconnect => {
                    qp.to_error();
                    self.with_id(&state, |id| {
                        id.disconnect();
                        Ok(())
                    })
                    .map(|()| None)
                }
                Act::Abandon => break (None, self.end(qp, &mut state)),
                Act::FlushAgain => {
                    qp.flush_again();
                    break (None, None);
                }
                Act::Fail(report) => break (Some(report), self.end(qp, &mut state)),
                Act::ReplyDisconnect(report) => {
                    if let Some(id) = &state.id {
                        id.disconnect();
                    }
                    break (Some(report), self.end(qp, &mut state));
                }
            };
            match done {
                Ok(report) => break (report, None),
                Err(e) => {
                    input = if act == Act::Request {
                        not_requested(e)
                    } else {
                        Input::LocalFault
                    };
                    if input == Input::LocalFault {
                        tracing::warn!(peer = ?self.to, step = ?act, "a connection failed: {}", convert::text(e));
                    }
                }
            }
        };
        drop(state);
        // Dropped outside the lock: the drop may wait for the event thread.
        match gone {
            Some(id) if unanswered && self.shared.transport == Transport::Iwarp => {
                self.shared.retired.add(id);
            }
            gone => drop(gone),
        }
        report
    }

    /// Defers the failure of a consumer's call to the event thread, which reports it as an event.
    fn defer_local_fault(self: &Arc<Self>) {
        let conn = Arc::clone(self);
        self.shared
            .defer(Box::new(move |_| conn.feed(Input::LocalFault, &[])));
    }

    fn with_id(
        &self,
        state: &State,
        f: impl FnOnce(&CmId) -> std::result::Result<(), i32>,
    ) -> std::result::Result<(), i32> {
        state.id.as_ref().map_or(Err(libc::ENOTCONN), f)
    }

    /// Ends the connection: outstanding work is flushed, the id is released.
    fn end(&self, qp: &Qp, state: &mut State) -> Option<CmId> {
        qp.to_error();
        self.shared.remove(self.key);
        state.id.take()
    }
}

impl Connection for Conn {
    fn disconnect(&self, qp: &Qp) {
        let report = self.advance(qp, Input::LocalDisconnect);
        debug_assert_eq!(report, None);
    }

    fn message_received(&self, qp: &Qp) {
        // Core knows already what this reports.
        let _ = self.advance(qp, Input::Established);
        let state = self.state.lock();
        if let Some(id) = &state.id {
            id.message_received();
        }
    }

    fn local_port(&self) -> u16 {
        let state = self.state.lock();
        state.id.as_ref().map_or(0, CmId::source_port)
    }
}

impl EventHandler for Conn {
    fn cm_event(&self, input: Input, _found: Option<&ResolvedQp>, private_data: &[u8]) {
        self.feed(input, private_data);
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        // The key goes first, so that the event thread finds no connection; then the id.
        self.shared.remove(self.key);
    }
}
