//! One connection, or attempt at one: does what [`stage`](super::stage) decides.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::rdma_cm;
use dat_core::transport::{Connect, Token};
use parking_lot::Mutex;

use crate::adapter::{Shared, Slot};
use crate::cm::addr;
use crate::cm::rdma::id::{CmId, Params, PortSpace};
use crate::cm::rdma::request::ConnRequest;
use crate::cm::rdma::stage::{Act, Input, Stage, step};
use crate::cm::report::Report;
use crate::map;
use crate::thread::Later;
use crate::verbs::qp::{PathLimits, Qp};

/// Ports that connecting ids share, one a process, see [`Conn::begin`]: above what the kernel gives out, and above where
/// programs listen (dapltest counts up from 62000).
const SOURCE_PORTS: std::ops::Range<u16> = 65_000..65_500;

/// A connection of a queue pair. The queue pair holds it; the event thread finds it by its key.
pub(crate) struct Conn {
    shared: Arc<Shared>,
    qp: Weak<Qp>,
    token: Token,
    key: u64,
    /// Active side: the peer.
    to: Option<SocketAddr>,
    private_data: Vec<u8>,
    limits: PathLimits,
    state: Mutex<State>,
}

struct State {
    stage: Stage,
    id: Option<CmId>,
}

/// RDMA Reads that both the endpoint and the device can do; the CM has a byte for them.
fn reads(of_endpoint: u32, of_device: u32) -> u8 {
    u8::try_from(of_endpoint.min(of_device)).unwrap_or(u8::MAX)
}

impl Conn {
    /// Starts an attempt. What fails from here on ends in an upcall.
    pub(crate) fn connect(qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
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
        let id = CmId::new(&shared.channel, key, PortSpace::Connection)
            .map_err(|e| map::failed("rdma_create_id", e, Subtype::ResourceDevice))?;
        let to = addr::socket(
            connect.remote,
            rdma_cm::port_of(connect.conn_qual),
            shared.attr.scope_id,
        );
        if let Some(tos) = shared.settings.tos
            && let Err(e) = id.set_tos(tos)
        {
            tracing::warn!("tos {tos} is not set: {}", map::text(e));
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
        shared.put(key, Slot::Conn(Arc::downgrade(&conn)));
        *qp.conn.lock() = Some(crate::cm::Conn::Rdma(Arc::clone(&conn)));
        let started = conn.begin(&conn.state.lock());
        if let Err(e) = started {
            tracing::debug!(%to, "no way to the peer: {}", map::text(e));
            // The consumer learns it as an event, as of failures a moment later.
            conn.fault_later();
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
        *qp.conn.lock() = Some(crate::cm::Conn::Rdma(Arc::clone(&conn)));
        let accepted = {
            // Held, so that an answer that is quicker than we are waits.
            let state = conn.state.lock();
            let withdrawn = shared.replace_pending(key, Slot::Conn(Arc::downgrade(&conn)));
            let id = state.id.as_ref().filter(|_| !withdrawn);
            id.map_or(Err(libc::ECONNABORTED), |id| {
                conn.to_rts(qp, id)?;
                id.accept(&conn.params(qp)).inspect_err(|e| {
                    tracing::warn!("rdma_accept: {}", map::text(*e));
                })
            })
        };
        if accepted.is_err() {
            // The peer has given up meanwhile, or will be told so: the consumer learns it as an event.
            conn.fault_later();
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
                .map_err(|e| map::failed("rdma_init_qp_attr", e, Subtype::ResourceTep))
        })
        .map_err(|_| libc::EIO)
    }

    /// The first try. It binds the id as well: all connecting ids of a process share one port, above those that
    /// the kernel gives out, unless somebody else has it. A port each, as DAPL does it, collides with listeners
    /// now and then.
    fn begin(&self, state: &State) -> std::result::Result<(), i32> {
        let at = |port| addr::socket(self.shared.attr.address, port, self.shared.attr.scope_id);
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

    /// Something happened. Called by the event thread, with none of its locks held.
    pub(crate) fn feed(&self, input: Input, private_data: &[u8]) {
        // A queue pair that is gone takes its connection along: nobody is left to tell.
        let Some(qp) = self.qp.upgrade() else { return };
        if let Some(report) = self.advance(&qp, input) {
            let data = match report {
                // On the passive side nothing comes with the last word.
                Report::Established if self.to.is_none() => &[],
                // The version word is DAPL's, not the consumer's.
                Report::PeerRejected => private_data
                    .get(rdma_cm::REJ_VERSION.len()..)
                    .unwrap_or_default(),
                _ => private_data,
            };
            self.shared
                .upcalls
                .connection(self.token, report.with(data));
        }
    }

    /// Steps until nothing is left to do; what core has to be told.
    fn advance(&self, qp: &Qp, input: Input) -> Option<Report> {
        let mut state = self.state.lock();
        let mut input = input;
        let (report, gone) = loop {
            let (stage, act) = step(state.stage, input);
            tracing::trace!(key = self.key, from = ?state.stage, ?input, to = ?stage, ?act);
            state.stage = stage;
            let done = match act {
                Act::Nothing => break (None, None),
                Act::Ready => break (Some(Report::Established), None),
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
                    .map(|()| Some(Report::Established)),
                Act::HangUp => {
                    qp.fail();
                    self.with_id(&state, |id| {
                        id.disconnect();
                        Ok(())
                    })
                    .map(|()| None)
                }
                Act::Abandon => break (None, self.end(qp, &mut state)),
                Act::Fail(report) => break (Some(report), self.end(qp, &mut state)),
                Act::Farewell(report) => {
                    if let Some(id) = &state.id {
                        id.disconnect();
                    }
                    break (Some(report), self.end(qp, &mut state));
                }
            };
            match done {
                Ok(report) => break (report, None),
                Err(e) => {
                    tracing::warn!(to = ?self.to, ?act, "connection manager: {}", map::text(e));
                    input = Input::LocalFault;
                }
            }
        };
        drop(state);
        // Outside the lock: it may wait for the event thread.
        drop(gone);
        report
    }

    /// A call failed whose caller is to learn it as an event.
    fn fault_later(self: &Arc<Self>) {
        self.shared.later(Later::Rdma {
            conn: Arc::clone(self),
            input: Input::LocalFault,
        });
    }

    fn with_id(
        &self,
        state: &State,
        f: impl FnOnce(&CmId) -> std::result::Result<(), i32>,
    ) -> std::result::Result<(), i32> {
        state.id.as_ref().map_or(Err(libc::ENOTCONN), f)
    }

    /// Nothing more will happen: outstanding work is flushed, the id may go.
    fn end(&self, qp: &Qp, state: &mut State) -> Option<CmId> {
        qp.fail();
        self.shared.remove(self.key);
        state.id.take()
    }

    /// The port of our end, 0 once the connection is over.
    pub(crate) fn local_port(&self) -> u16 {
        let state = self.state.lock();
        state.id.as_ref().map_or(0, CmId::source_port)
    }

    /// The consumer wants the end.
    pub(crate) fn leave(&self, qp: &Qp) {
        let report = self.advance(qp, Input::Leave);
        debug_assert_eq!(report, None);
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        // First the key, so that the event thread no longer looks; then the id.
        self.shared.remove(self.key);
    }
}
