//! One connection or connection attempt: performs the actions that [`stage`](super::stage) decides.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dat_arena::Mutex;
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::transport::{Connect, Token};
use dat_core::upcall::ConnOutcome;
use dat_handshake::scm::{
    DISCONNECT, MAX_PRIVATE, Message, Operation, QpAddress, RELIABLE, RTU, Reader, VERSION,
};

use crate::adapter::{EventHandler, EventTarget, Shared};
use crate::cm::socket::gid::Choice;
use crate::cm::socket::input::{State, connect_failure};
use crate::cm::socket::manager::SocketManager;
use crate::cm::socket::request::ConnRequest;
use crate::cm::socket::service;
use crate::cm::socket::stage::{Act, Input, MAX_CONNECTS, Stage, step};
use crate::cm::socket::stream::Stream;
use crate::verbs::qp::{Connection, Path, PathLimits, Qp};

/// Time after which the active side enables TCP keepalive, while it waits for the answer and when it is connected.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(5);

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

/// Returns the number of RDMA Reads that both the endpoint and the device support; the message has one byte for it.
fn reads(of_endpoint: u32, of_device: u32) -> u8 {
    u8::try_from(of_endpoint.min(of_device)).unwrap_or(u8::MAX)
}

fn limits(qp: &Qp) -> PathLimits {
    let attr = &qp.pd.adapter.shared.attr;
    PathLimits {
        reads_in: reads(qp.caps.rdma_read_in, attr.max_rdma_read_per_ep_in),
        reads_out: reads(qp.caps.rdma_read_out, attr.max_rdma_read_per_ep_out),
    }
}

impl Conn {
    /// Starts a connection attempt. Errors from here on are reported by an upcall.
    pub(crate) fn connect(qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
        let shared = &qp.pd.adapter.shared;
        let to = service(connect.remote, connect.conn_qual, shared.attr.scope_id)?;
        let key = shared.new_key();
        let conn = Arc::new(Self {
            shared: Arc::clone(shared),
            qp: Arc::downgrade(qp),
            token: connect.token,
            key,
            to: Some(to),
            private_data: connect.private_data.to_vec(),
            limits: limits(qp),
            state: State::new(
                Stage::Connecting {
                    tries: MAX_CONNECTS,
                    pre_v8: false,
                },
                None,
                None,
            ),
        });
        shared.put(key, EventTarget::object(&conn));
        *qp.conn.lock() = Some(Arc::<Self>::clone(&conn));
        let mut state = conn.state.lock();
        match conn.connect_tcp(&mut state) {
            None => {}
            Some(Input::LocalFault) => {
                // There is no attempt: the consumer frees descriptors and calls again.
                drop(state);
                *qp.conn.lock() = None;
                return Err(Error::resource(Subtype::ResourceDevice));
            }
            Some(input) => conn.advance_deferred(qp, &mut state, input),
        }
        let dialed = state.stream.clone();
        let connected = !matches!(state.stage, Stage::Connecting { .. });
        drop(state);
        // Called without the lock, which the event thread takes for the events that follow.
        if let Some(stream) = dialed
            && conn.watch(&stream, connected).is_err()
        {
            conn.advance_deferred(qp, &mut conn.state.lock(), Input::LocalFault);
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
        if private_data.len() > MAX_PRIVATE {
            return Err(Error::of(Kind::InvalidParameter));
        }
        let (stream, key, local, message) = request
            .take()
            .ok_or_else(|| Error::of(Kind::InternalError))?;
        let shared = &qp.pd.adapter.shared;
        let conn = Arc::new(Self {
            shared: Arc::clone(shared),
            qp: Arc::downgrade(qp),
            token,
            key,
            to: None,
            private_data: private_data.to_vec(),
            limits: limits(qp),
            state: State::new(Stage::Accepted, Some(stream), Some(message)),
        });
        *qp.conn.lock() = Some(Arc::<Self>::clone(&conn));
        let mut state = conn.state.lock();
        let slot = EventTarget::object(&conn);
        let withdrawn = shared.replace_pending(key, slot);
        let reply = (!withdrawn)
            .then(|| conn.reply(qp, &mut state, local))
            .flatten();
        let stream = state.stream.clone();
        drop(state);
        // Called without the lock, which the event thread takes for the peer's answer.
        let replied = reply
            .zip(stream)
            .and_then(|(reply, stream)| log_failure(stream.send(&reply)));
        if replied.is_none() {
            // The peer has given up, or will see the close. The consumer receives the failure as an event.
            conn.advance_deferred(qp, &mut conn.state.lock(), Input::LocalFault);
        }
        Ok(())
    }

    fn manager(&self) -> Option<&SocketManager> {
        self.shared.socket.as_ref()
    }

    /// Starts the TCP connection; returns the input if the result is known at once. The caller [watches](Self::watch)
    /// the stream.
    fn connect_tcp(&self, state: &mut State) -> Option<Input> {
        let attr = &self.shared.attr;
        let to = self.to?;
        state.reader = Reader::default();
        state.stream = None;
        let (stream, connected) = match Stream::connect(attr.address, attr.scope_id, to) {
            Ok(dialed) => dialed,
            Err(e) => return Some(connect_failure(Some(to), &e)),
        };
        state.stream = Some(Arc::new(stream));
        if connected {
            return Some(Input::TcpConnected);
        }
        self.set_deadline(state, self.shared.settings.handshake_time());
        None
    }

    /// Adds `stream` to the event thread's epoll set: for input, and until it is connected for output.
    fn watch(&self, stream: &Stream, connected: bool) -> std::result::Result<(), i32> {
        let epoll = &self.shared.epoll;
        match epoll.add_edge(stream.fd(), self.key, !connected) {
            // A first attempt that failed at once has already started the next one.
            Err(libc::EEXIST) => Ok(()),
            watched => watched,
        }
    }

    fn set_deadline(&self, state: &mut State, time: Duration) {
        let Some(manager) = self.manager() else {
            return;
        };
        self.clear_deadline(state);
        state.deadline = Some(manager.timers.set(time, self.key));
    }

    fn clear_deadline(&self, state: &mut State) {
        if let (Some(at), Some(manager)) = (state.deadline.take(), self.manager()) {
            manager.timers.unset(at, self.key);
        }
    }

    /// Builds a REQ or REP. The second GID is an offer in a REQ, the choice in a REP.
    fn message(
        &self,
        operation: Operation,
        mtu: u8,
        (gid, second_gid): ([u8; 16], Option<[u8; 16]>),
        qp: &Qp,
        socket: Option<SocketAddr>,
    ) -> Message {
        Message {
            version: VERSION,
            operation,
            reads_in: Some(self.limits.reads_in),
            mtu: Some(mtu),
            qp: QpAddress {
                lid: self.manager().map_or(0, |m| m.lid),
                qpn: qp.number(),
                gid,
                kind: RELIABLE,
            },
            socket,
            second_gid,
            private_data: self.private_data.clone(),
        }
    }

    /// Sends REQ.
    fn request(&self, qp: &Qp, state: &State, pre_v8: bool) -> Option<()> {
        let manager = self.manager()?;
        let stream = state.stream.as_ref()?;
        let gids = (
            manager.gids.first.raw,
            manager.gids.second.map(|gid| gid.raw),
        );
        let socket = stream.local();
        let request = self.message(Operation::Request, manager.mtu, gids, qp, socket);
        log_failure(stream.send(&request.encode(pre_v8)))
    }

    /// Moves the queue pair to RTS; returns the REP to send from `local`.
    fn reply(&self, qp: &Qp, state: &mut State, local: SocketAddr) -> Option<Vec<u8>> {
        let manager = self.manager()?;
        let peer = state.peer.as_ref()?;
        let choice = manager.gids.choose(peer);
        self.to_rts(qp, manager, peer, choice)?;
        let gids = (choice.local.raw, choice.second.then_some(choice.local.raw));
        let mtu = manager.mtu_with(peer);
        let reply = self.message(Operation::Reply, mtu, gids, qp, Some(local));
        let reply = reply.encode(peer.expects_old_tail());
        self.set_deadline(state, self.shared.settings.handshake_time());
        Some(reply)
    }

    /// Moves the queue pair to RTS and sends RTU.
    fn finish(&self, qp: &Qp, state: &State) -> Option<()> {
        let manager = self.manager()?;
        let peer = state.peer.as_ref()?;
        self.to_rts(qp, manager, peer, manager.gids.choice_of(peer))?;
        log_failure(state.stream.as_ref()?.send(&RTU))
    }

    fn to_rts(
        &self,
        qp: &Qp,
        manager: &SocketManager,
        peer: &Message,
        choice: Choice,
    ) -> Option<()> {
        let limits = PathLimits {
            reads_in: self.limits.reads_in,
            reads_out: peer
                .reads_in
                .map_or(self.limits.reads_out, |n| n.min(self.limits.reads_out)),
        };
        let path = Path {
            mtu: manager.mtu_with(peer),
            dest_qpn: peer.qp.qpn,
            dest_lid: peer.qp.lid,
            sgid_index: choice.local.index,
            dgid: choice.remote,
        };
        tracing::debug!(?path, ?limits, "path");
        qp.to_rts_along(limits, &path).ok()
    }

    fn report(&self, report: ConnOutcome, private_data: &[u8]) {
        self.shared
            .upcalls
            .connection(self.token, report, private_data);
    }

    /// Defers a report to the event thread, which makes all upcalls.
    fn defer_report(&self, report: ConnOutcome) {
        let token = self.token;
        self.shared.defer(Box::new(move |shared| {
            shared.upcalls.connection(token, report, &[]);
        }));
    }

    /// [Steps](Self::advance) from a consumer's call. The consumer receives failures as events, like failures a moment
    /// later.
    fn advance_deferred(&self, qp: &Qp, state: &mut State, input: Input) {
        if let Some(report) = self.advance(qp, state, input) {
            self.defer_report(report);
        }
    }

    /// Steps the state machine until no action is left; returns the report for core.
    fn advance(&self, qp: &Qp, state: &mut State, input: Input) -> Option<ConnOutcome> {
        let mut input = input;
        loop {
            let (stage, act) = step(state.stage, input);
            tracing::trace!(key = self.key, from = ?state.stage, ?input, to = ?stage, ?act);
            if stage != state.stage {
                self.clear_deadline(state);
                state.stage = stage;
            }
            let done = match act {
                Act::Nothing => return None,
                Act::Ready => return Some(ConnOutcome::Established),
                Act::ConnectTcp => {
                    let dialed = self.connect_tcp(state);
                    let connected = dialed == Some(Input::TcpConnected);
                    let watched = state.stream.as_ref().map(|s| self.watch(s, connected));
                    input = match watched {
                        Some(Err(_)) => Input::LocalFault,
                        _ => dialed?,
                    };
                    continue;
                }
                Act::Request => {
                    let pre_v8 = matches!(stage, Stage::Requested { pre_v8: true, .. });
                    if self.request(qp, state, pre_v8).is_some() {
                        // The consumer may wait for ever, and TCP alone does not notice that the peer's host is gone.
                        self.set_deadline(state, KEEP_ALIVE_AFTER);
                        return None;
                    }
                    input = Input::Closed { reset: true };
                    continue;
                }
                Act::Finish => self.finish(qp, state).map(|()| {
                    // Keepalive costs system calls, which short connections save.
                    self.set_deadline(state, KEEP_ALIVE_AFTER);
                }),
                Act::Disconnect(report) => {
                    if let Some(stream) = &state.stream {
                        // If the send fails, the close that follows has the same meaning.
                        stream.send(&DISCONNECT).ok();
                    }
                    self.end(qp, state);
                    return Some(report);
                }
                Act::Abandon => {
                    self.end(qp, state);
                    return None;
                }
                Act::Fail(report) => {
                    self.end(qp, state);
                    return Some(report);
                }
                Act::FlushAgain => {
                    qp.flush_again();
                    return None;
                }
            };
            if done.is_some() {
                return Some(ConnOutcome::Established);
            }
            input = Input::LocalFault;
        }
    }

    /// Ends the connection: outstanding work is flushed, the socket is closed.
    fn end(&self, qp: &Qp, state: &mut State) {
        qp.to_error();
        self.shared.remove(self.key);
        state.stream = None;
    }
}

/// Logs the error of a send; `None` on failure.
fn log_failure(result: io::Result<()>) -> Option<()> {
    result
        .inspect_err(|e| tracing::debug!("the peer does not take our message: {e}"))
        .ok()
}

impl Connection for Conn {
    fn disconnect(&self, qp: &Qp) {
        self.advance_deferred(qp, &mut self.state.lock(), Input::LocalDisconnect);
    }

    fn message_received(&self, _qp: &Qp) {
        // RTU is on its way, and TCP does not lose it. A disconnect closes the socket, with or without RTU.
    }

    fn local_port(&self) -> u16 {
        let state = self.state.lock();
        let local = state.stream.as_ref().and_then(|stream| stream.local());
        local.map_or(0, |address| address.port())
    }
}

impl EventHandler for Conn {
    fn ready(&self, _shared: &Arc<Shared>, _key: u64, ended: bool) {
        // The connection ends with its queue pair: then there is no endpoint to report to.
        let Some(qp) = self.qp.upgrade() else { return };
        loop {
            let mut state = self.state.lock();
            let Some(input) = state.next_input(self.to) else {
                return;
            };
            let report = self.advance(&qp, &mut state, input);
            // Later data causes another (edge-triggered) event.
            let all =
                state.stage == Stage::Down || !(ended || state.more || state.disconnect_received);
            let data = match (report, &mut state.peer) {
                // The passive side's RTU carries no private data.
                (Some(ConnOutcome::Established), Some(peer)) if self.to.is_some() => {
                    std::mem::take(&mut peer.private_data)
                }
                (Some(ConnOutcome::PeerRejected), Some(peer)) => {
                    std::mem::take(&mut peer.private_data)
                }
                _ => Vec::new(),
            };
            drop(state);
            if let Some(report) = report {
                self.report(report, &data);
            }
            if all {
                return;
            }
        }
    }

    fn expired(&self, _shared: &Arc<Shared>, _key: u64) {
        let Some(qp) = self.qp.upgrade() else { return };
        let mut state = self.state.lock();
        // A deadline that was set again since has its own timer event.
        if state.deadline.is_none_or(|at| at > Instant::now()) {
            return;
        }
        state.deadline = None;
        if matches!(state.stage, Stage::Requested { .. } | Stage::Up) {
            if let Some(stream) = &state.stream {
                stream.keep_alive();
            }
            return;
        }
        let report = self.advance(&qp, &mut state, Input::TimedOut);
        drop(state);
        if let Some(report) = report {
            tracing::warn!(to = ?self.to, "no answer in time: {report:?}");
            self.report(report, &[]);
        }
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        // The key goes first, so that the event thread finds no connection; then the socket.
        self.shared.remove(self.key);
        let state = self.state.get_mut();
        if let (Some(at), Some(manager)) = (state.deadline.take(), self.shared.socket.as_ref()) {
            manager.timers.unset(at, self.key);
        }
        state.stream = None;
    }
}
