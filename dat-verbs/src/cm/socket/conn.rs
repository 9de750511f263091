//! One connection, or attempt at one: does what [`stage`](super::stage) decides.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dat_core::error::{Error, Kind, Result};
use dat_core::transport::{Connect, Token};
use parking_lot::Mutex;

use crate::adapter::{Shared, Slot};
use crate::cm::report::Report;
use crate::cm::socket::gid::Choice;
use crate::cm::socket::hearing::{State, failed_dial};
use crate::cm::socket::request::Incoming;
use crate::cm::socket::stage::{Act, Input, Stage, TRIES, step};
use crate::cm::socket::stream::Stream;
use crate::cm::socket::wire::{
    FAREWELL, MAX_PRIVATE, Message, Operation, QpAddress, RELIABLE, RTU, Reader, VERSION,
};
use crate::cm::socket::{Manager, Watched, service};
use crate::thread::Later;
use crate::verbs::qp::{Path, PathLimits, Qp};

/// When the active side begins to ask whether its peer lives.
const ASKED_AFTER: Duration = Duration::from_secs(5);

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

/// RDMA Reads that both the endpoint and the device can do; the message has a byte for them.
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
    /// Starts an attempt. What fails from here on ends in an upcall.
    pub(crate) fn connect(qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
        let shared = &qp.pd.adapter.shared;
        if connect.private_data.len() > MAX_PRIVATE {
            return Err(Error::of(Kind::InvalidParameter));
        }
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
                Stage::Dialing {
                    tries: TRIES,
                    old: false,
                },
                None,
                None,
            ),
        });
        shared.put(key, Slot::Socket(Watched::Conn(Arc::downgrade(&conn))));
        *qp.conn.lock() = Some(crate::cm::Conn::Socket(Arc::clone(&conn)));
        let mut state = conn.state.lock();
        if let Some(input) = conn.dial(&mut state) {
            conn.advance_later(qp, &mut state, input);
        }
        let dialed = state.stream.clone();
        let connected = !matches!(state.stage, Stage::Dialing { .. });
        drop(state);
        // Without the lock, which the event thread takes for what this announces.
        if let Some(stream) = dialed
            && conn.watch(&stream, connected).is_err()
        {
            conn.advance_later(qp, &mut conn.state.lock(), Input::LocalFault);
        }
        Ok(())
    }

    /// Accepts `request`.
    pub(crate) fn accept(
        request: Incoming,
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
        *qp.conn.lock() = Some(crate::cm::Conn::Socket(Arc::clone(&conn)));
        let mut state = conn.state.lock();
        let slot = Slot::Socket(Watched::Conn(Arc::downgrade(&conn)));
        let withdrawn = shared.replace_pending(key, slot);
        let reply = (!withdrawn)
            .then(|| conn.reply(qp, &mut state, local))
            .flatten();
        let stream = state.stream.clone();
        drop(state);
        // Without the lock, which the event thread takes for the peer's answer.
        let replied = reply
            .zip(stream)
            .and_then(|(reply, stream)| sent(stream.send(&reply)));
        if replied.is_none() {
            // The peer has given up meanwhile, or will see that we close: the consumer learns it as an event.
            conn.advance_later(qp, &mut conn.state.lock(), Input::LocalFault);
        }
        Ok(())
    }

    fn manager(&self) -> Option<&Manager> {
        self.shared.socket.as_ref()
    }

    /// Connects TCP; the input that this is if it is known at once. The caller [watches](Self::watch) the stream.
    fn dial(&self, state: &mut State) -> Option<Input> {
        let attr = &self.shared.attr;
        let to = self.to?;
        state.reader = Reader::default();
        state.stream = None;
        let (stream, connected) = match Stream::dial(attr.address, attr.scope_id, to) {
            Ok(dialed) => dialed,
            Err(e) => return Some(failed_dial(&e)),
        };
        state.stream = Some(Arc::new(stream));
        if connected {
            return Some(Input::Dialed);
        }
        self.set_deadline(state, self.shared.settings.handshake_time());
        None
    }

    /// Has the event thread look at what `stream` brings, and at whether it is connected.
    fn watch(&self, stream: &Stream, connected: bool) -> std::result::Result<(), i32> {
        let epoll = &self.shared.epoll;
        match epoll.add_edge(stream.fd(), self.key, !connected) {
            // A first attempt that failed at once has begun the next one.
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

    /// REQ or REP. The second GID is what may be chosen, or was.
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
    fn request(&self, qp: &Qp, state: &State, old: bool) -> Option<()> {
        let manager = self.manager()?;
        let stream = state.stream.as_ref()?;
        let gids = (
            manager.gids.first.raw,
            manager.gids.second.map(|gid| gid.raw),
        );
        let socket = stream.local();
        let request = self.message(Operation::Request, manager.mtu, gids, qp, socket);
        sent(stream.send(&request.encode(old)))
    }

    /// Queue pair to RTS; the REP to send from `local`.
    fn reply(&self, qp: &Qp, state: &mut State, local: SocketAddr) -> Option<Vec<u8>> {
        let manager = self.manager()?;
        let peer = state.peer.as_ref()?;
        let choice = manager.gids.answer(peer);
        self.to_rts(qp, manager, peer, choice)?;
        let gids = (choice.mine.raw, choice.second.then_some(choice.mine.raw));
        let mtu = manager.mtu_with(peer);
        let reply = self.message(Operation::Reply, mtu, gids, qp, Some(local));
        let reply = reply.encode(peer.wants_old_tail());
        self.set_deadline(state, self.shared.settings.handshake_time());
        Some(reply)
    }

    /// Queue pair to RTS, RTU.
    fn finish(&self, qp: &Qp, state: &State) -> Option<()> {
        let manager = self.manager()?;
        let peer = state.peer.as_ref()?;
        self.to_rts(qp, manager, peer, manager.gids.chosen(peer))?;
        sent(state.stream.as_ref()?.send(&RTU))
    }

    fn to_rts(&self, qp: &Qp, manager: &Manager, peer: &Message, choice: Choice) -> Option<()> {
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
            sgid_index: choice.mine.index,
            dgid: choice.theirs,
        };
        tracing::debug!(?path, ?limits, "path");
        qp.to_rts_along(limits, &path).ok()
    }

    /// The socket has something; whether that is an end too. Called by the event thread, with none of its locks held.
    pub(crate) fn ready(&self, ended: bool) {
        // A queue pair that is gone takes its connection along: nobody is left to tell.
        let Some(qp) = self.qp.upgrade() else { return };
        loop {
            let mut state = self.state.lock();
            let Some(input) = state.look() else { return };
            let report = self.advance(&qp, &mut state, input);
            // What comes after this is announced.
            let all = state.stage == Stage::Down || !(ended || state.more || state.farewell);
            let data = match (report, &mut state.peer) {
                // On the passive side nothing comes with the last word.
                (Some(Report::Established), Some(peer)) if self.to.is_some() => {
                    std::mem::take(&mut peer.private_data)
                }
                (Some(Report::PeerRejected), Some(peer)) => std::mem::take(&mut peer.private_data),
                _ => Vec::new(),
            };
            drop(state);
            if let Some(report) = report {
                self.tell(report, &data);
            }
            if all {
                return;
            }
        }
    }

    /// The deadline has passed.
    pub(crate) fn expired(&self) {
        let Some(qp) = self.qp.upgrade() else { return };
        let mut state = self.state.lock();
        // One that was set anew since has its own.
        if state.deadline.is_none_or(|at| at > Instant::now()) {
            return;
        }
        state.deadline = None;
        if state.stage == Stage::Up {
            if let Some(stream) = &state.stream {
                stream.keep_alive();
            }
            return;
        }
        let report = self.advance(&qp, &mut state, Input::Expired);
        drop(state);
        if let Some(report) = report {
            tracing::warn!(to = ?self.to, "no answer in time: {report:?}");
            self.tell(report, &[]);
        }
    }

    fn tell(&self, report: Report, private_data: &[u8]) {
        self.shared
            .upcalls
            .connection(self.token, report.with(private_data));
    }

    /// Tells from the event thread: upcalls come from there only.
    fn tell_later(&self, report: Report) {
        self.shared.later(Later::Report {
            token: self.token,
            report,
        });
    }

    /// [Steps](Self::advance) from a consumer's call: it learns of failures as an event, as of those a moment later.
    fn advance_later(&self, qp: &Qp, state: &mut State, input: Input) {
        if let Some(report) = self.advance(qp, state, input) {
            self.tell_later(report);
        }
    }

    /// Steps until nothing is left to do; what core has to be told.
    fn advance(&self, qp: &Qp, state: &mut State, input: Input) -> Option<Report> {
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
                Act::Ready => return Some(Report::Established),
                Act::Dial => {
                    let dialed = self.dial(state);
                    let connected = dialed == Some(Input::Dialed);
                    let watched = state.stream.as_ref().map(|s| self.watch(s, connected));
                    input = match watched {
                        Some(Err(_)) => Input::LocalFault,
                        _ => dialed?,
                    };
                    continue;
                }
                Act::Request => {
                    let old = matches!(stage, Stage::Requested { old: true, .. });
                    if self.request(qp, state, old).is_some() {
                        return None;
                    }
                    input = Input::Closed { reset: true };
                    continue;
                }
                Act::Finish => self.finish(qp, state).map(|()| {
                    // Asking costs calls that a connection which ends sooner can spare.
                    self.set_deadline(state, ASKED_AFTER);
                }),
                Act::HangUp(report) => {
                    if let Some(stream) = &state.stream {
                        // The close that follows says the same.
                        stream.send(&FAREWELL).ok();
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
            };
            if done.is_some() {
                return Some(Report::Established);
            }
            input = Input::LocalFault;
        }
    }

    /// Nothing more will happen: outstanding work is flushed, the socket closed.
    fn end(&self, qp: &Qp, state: &mut State) {
        qp.fail();
        self.shared.remove(self.key);
        state.stream = None;
    }

    /// The TCP port of our end, 0 once the connection is over.
    pub(crate) fn local_port(&self) -> u16 {
        let state = self.state.lock();
        let local = state.stream.as_ref().and_then(|stream| stream.local());
        local.map_or(0, |address| address.port())
    }

    /// The consumer wants the end.
    pub(crate) fn leave(&self, qp: &Qp) {
        self.advance_later(qp, &mut self.state.lock(), Input::Leave);
    }
}

/// `None` with a word about why.
fn sent(result: io::Result<()>) -> Option<()> {
    result
        .inspect_err(|e| tracing::debug!("the peer does not take our message: {e}"))
        .ok()
}

impl Drop for Conn {
    fn drop(&mut self) {
        // First the key, so that the event thread no longer looks; then the socket.
        self.shared.remove(self.key);
        let state = self.state.get_mut();
        if let (Some(at), Some(manager)) = (state.deadline.take(), self.shared.socket.as_ref()) {
            manager.timers.unset(at, self.key);
        }
        state.stream = None;
    }
}
