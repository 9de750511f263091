//! One adapter: the protocol engine, its socket and the mailboxes behind one lock. Who drives it is `progress`'s business.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_core::reserve;
use dat_core::transport::Token;
use dat_core::upcall::Upcalls;
use parking_lot::Mutex;
use softrxe_proto::{CmId, Config, CqId, Engine, Event, Meta, Qpn, ROCE_PORT, SrqId, Time};

use super::UserEngine;
use super::clock;
use super::crowd::{Crowd, Vain};
use super::datagram::Question;
use super::events::{self, Job};
use super::habits::{Answers, Batch, Spin};
use super::memory::regions::Regions;
use super::net::capture::Capture;
use super::net::liveness::{Liveness, LocalPeer, LocalPeers};
use super::net::message::Destination;
use super::net::port_share::{Policy, PortShare, PortShareError, Service};
use super::net::route::RecentRequests;
use super::net::slot::{SLOT_BITS, slot_of_qpn};
use super::net::socket::{Received, Socket, zeros};
use super::net::wake::{PollSet, Wake, processors};
use super::park::Bell;
use super::place::Place;
use super::progress::Roles;
use super::secrets::Secrets;
use super::settings::Settings;

/// Socket reads at a time before what they caused goes out; each is up to 64 KiB, and the sender waits for its acknowledgement.
const READS: usize = 4;
/// Datagrams of the port's holder at a time.
const LETTERS: usize = 4 * READS;
/// A read of fewer bytes emptied the socket, most likely: the next look comes soon enough, and another read would cost the answer
/// a system call.
const SHORT: usize = 1024;
/// What a datagram of 4 KiB takes of a receive buffer, generously, and how many may be in flight in any case, at most.
const DATAGRAM_ROOM: usize = 8192;
const WINDOW: std::ops::RangeInclusive<usize> = 16..=512;
/// How long the last words of a process may take to arrive when it is gone, and reads of the socket until they are there, at most.
const LAST_WORDS: Duration = Duration::from_millis(20);
const MANY: usize = 1000;
/// How long what cannot be dealt with is left alone.
const DEAF: Duration = Duration::from_millis(100);
/// How long a waiter spins at most.
const SPIN: Duration = Duration::from_micros(50);
/// Bytes asked for each way.
const SOCKET_BUFFER: usize = 4 << 20;

/// A connection as core knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) token: Token,
    pub(crate) qpn: Qpn,
    /// Of our end.
    pub(crate) port: u16,
    pub(crate) passive: bool,
    pub(crate) established: bool,
    /// The peer's engine, if it is one of this host's.
    pub(crate) neighbour: Option<LocalPeer>,
}

/// What core waits for on a completion queue.
#[derive(Debug, Default)]
pub(crate) struct CqNotice {
    pub(crate) token: Token,
    pub(crate) watched: bool,
    pub(crate) sleepers: Vec<Arc<Bell>>,
}

/// A third of a second in all. Programs that tell each other over TCP that they are there (dtest, dtestx) connect before their peer
/// listens now and then: no other transport connects in a tenth of a millisecond.
const REFUSED_REPEATS: u8 = 5;

/// Everything under the lock.
pub(crate) struct State {
    pub(crate) engine: Engine<Regions>,
    slot: u16,
    out: Box<[u8]>,
    letter: Box<[u8]>,
    received: Received,
    pub(crate) share: PortShare,
    requests: RecentRequests,
    capture: Option<Capture>,
    life: Liveness,
    /// A failure to take the port over was reported.
    port_is_missed: bool,
    neighbours: LocalPeers,
    pub(crate) services: HashMap<u64, (Token, Service)>,
    pub(crate) connections: HashMap<CmId, Connection>,
    /// Engines of this host whose requests the consumer has not answered.
    pub(crate) callers: HashMap<CmId, LocalPeer>,
    pub(crate) questions: HashMap<CmId, Question>,
    pub(crate) by_qpn: HashMap<Qpn, CmId>,
    pub(crate) cqs: HashMap<CqId, CqNotice>,
    pub(crate) srqs: HashMap<SrqId, Token>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) roles: Roles,
    /// Until then nobody listens to what is readable but cannot be dealt with; who is out of descriptors would not sleep.
    pub(crate) deaf_until: Option<Instant>,
    spin: Spin,
    spin_for_news: Spin,
    pub(crate) answers: Answers,
    /// As `answers`, of RDMA writes, which the consumer notices by itself.
    pub(crate) echoes: Answers,
    pub(crate) batch: Batch,
    pub(crate) vain: Vain,
    /// Noticed by consumers that poll and by the helper.
    pub(crate) crowd: Crowd,
    pub(crate) next: u32,
}

/// See the module's text.
pub(crate) struct Hub {
    pub(crate) settings: Settings,
    pub(crate) place: Place,
    pub(crate) upcalls: Upcalls<UserEngine>,
    /// Who makes upcalls has it; taken before `state`.
    pub(crate) turn: Mutex<()>,
    pub(crate) state: Mutex<State>,
    /// All that a sleeper listens to beside `socket` and its own call. The socket is not in it: it would pay for each datagram
    /// that arrives, also while nobody sleeps.
    pub(crate) bundle: PollSet,
    /// Of other processes, on which this one depends or which depend on it; in `bundle` as well.
    pub(crate) lives: PollSet,
    /// What we send from, and peers that are engines of ours send to: port 4791 or one of our own.
    pub(crate) socket: Arc<Socket>,
    /// Calls the helper thread.
    pub(crate) wake: Wake,
    /// Wakes the consumer that sleeps on the descriptors.
    pub(crate) leader_wake: Arc<Wake>,
    pub(crate) stop: AtomicBool,
}

impl Hub {
    /// Takes the address: port 4791 if it is free, else a port of its own and what the holder of 4791 passes on.
    pub(crate) fn open(
        settings: Settings,
        place: Place,
        capture: Option<Capture>,
        secrets: Secrets,
        upcalls: Upcalls<UserEngine>,
    ) -> Result<Arc<Self>, PortShareError> {
        let ip = place.address;
        let policy = policy(&settings);
        let mut share = PortShare::take(manager(ip), SOCKET_BUFFER, policy)?;
        let socket = match &share {
            PortShare::Holder(holder) => Arc::clone(holder.socket()),
            PortShare::Member(_) => Arc::new(Socket::bind(ip, 0, SOCKET_BUFFER)?),
        };
        if let PortShare::Member(_) = &share {
            share.report_data_port(&socket);
        }
        let (slot, life) = share.claim_slot(ip, secrets.slot)?;
        let (bundle, lives) = (PollSet::new()?, PollSet::new()?);
        bundle.add(lives.as_raw_fd())?;
        if let Some(descriptor) = life.descriptor() {
            lives.add(descriptor)?;
        }
        match &share {
            PortShare::Holder(holder) => lives.add(holder.as_raw_fd())?,
            PortShare::Member(member) => bundle.add(member.as_raw_fd())?,
        }
        let mut config = Config::new(ip, secrets.engine, secrets.guid);
        config.port = socket.local().port();
        // The peer's buffer is what counts. It is as large as ours, if it is like us; if not, the window shrinks by what gets lost.
        let room = socket.receive_buffer()? / DATAGRAM_ROOM;
        config.max_window = room.clamp(*WINDOW.start(), *WINDOW.end()) as u32;
        config.qpn_prefix = slot.into();
        config.qpn_prefix_bits = SLOT_BITS as u8;
        config.mtu = settings.mtu.min(place.mtu);
        config.rnr_code = settings.rnr_timer;
        config.refused_repeats = REFUSED_REPEATS;
        config.keepalive = settings.keepalive;
        if let Some(timeout) = settings.ack_timeout {
            config.ack_timeout = timeout;
        }
        let state = State {
            engine: Engine::new(config, Regions::new(&secrets.keys)),
            slot,
            out: zeros(65_000)?,
            letter: zeros(1 << 16)?,
            received: Received::try_new()?,
            share,
            requests: RecentRequests::default(),
            capture,
            life,
            port_is_missed: false,
            neighbours: LocalPeers::default(),
            services: HashMap::new(),
            connections: HashMap::new(),
            callers: HashMap::new(),
            questions: HashMap::new(),
            by_qpn: HashMap::new(),
            cqs: HashMap::new(),
            srqs: HashMap::new(),
            events: VecDeque::new(),
            jobs: VecDeque::new(),
            roles: Roles::default(),
            deaf_until: None,
            spin: Spin::new(SPIN, processors()),
            spin_for_news: Spin::new(SPIN, processors()),
            answers: Answers::default(),
            echoes: Answers::default(),
            batch: Batch::default(),
            vain: Vain::default(),
            crowd: Crowd::default(),
            next: 0,
        };
        Ok(Arc::new(Self {
            settings,
            place,
            upcalls,
            turn: Mutex::new(()),
            state: Mutex::new(state),
            bundle,
            lives,
            socket,
            wake: Wake::new()?,
            leader_wake: Arc::new(Wake::new()?),
            stop: AtomicBool::new(false),
        }))
    }

    /// Does something with the engine, then sends what it has to send.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut State, Time) -> R) -> R {
        let mut state = self.state.lock();
        let now = clock::now();
        let result = act(&mut state, now);
        self.flush(&mut state, now, false);
        self.call(&mut state);
        result
    }

    /// Takes in what has arrived, in the mailboxes too if `all`, and what is due. Whether anything had arrived.
    pub(crate) fn take_in(&self, state: &mut State, now: Time, all: bool) -> bool {
        let before = state.engine.counters().received;
        state.engine.memory().prepare(now);
        state.receive(&self.socket, now, all);
        if state.engine.poll_timeout().is_some_and(|at| at <= now) {
            state.engine.handle_timeout(now);
        }
        state.engine.counters().received != before
    }

    /// Sends what is to be sent, but for acknowledgements that can wait if `hold`, and collects events.
    pub(crate) fn flush(&self, state: &mut State, now: Time, hold: bool) {
        state.engine.memory().prepare(now);
        loop {
            let run = if hold {
                state.engine.poll_transmit_data(now, &mut state.out)
            } else {
                state.engine.poll_transmit(now, &mut state.out)
            };
            let Some(run) = run else { break };
            if let Some(capture) = &mut state.capture {
                let bytes = &mut state.out[..run.length];
                state.engine.memory().show(bytes);
                capture.sent(self.socket.local(), run.destination, run.segment, bytes);
            }
            let segment = (run.length > run.segment).then_some(run.segment as u16);
            let regions = state.engine.memory();
            let sent = regions.gather(&state.out[..run.length], |pieces| {
                // SAFETY: the pieces lie in `out` and in registered memory, which nobody takes from us under the lock.
                unsafe { self.socket.send(&run.destination, pieces, segment) }
            });
            if let Err(error) = sent {
                // As lost on the wire: the protocol repeats it.
                tracing::debug!(%error, to = %run.destination, "datagrams not sent");
            }
        }
        state.batch.sent();
        state.save_capture();
        self.collect(state);
    }

    /// Wakes sleepers whose completions came, and keeps the events that call up.
    pub(crate) fn collect(&self, state: &mut State) {
        while let Some(event) = state.engine.poll_event() {
            if let Event::CqReady(cq) = &event
                && let Some(notice) = state.cqs.get_mut(cq)
            {
                for bell in notice.sleepers.drain(..) {
                    bell.ring();
                }
                if !notice.watched {
                    continue;
                }
            }
            state.events.push_back(event);
        }
    }

    /// When the holder of port 4791 is gone: takes it over, or finds the one who did.
    pub(crate) fn inherit(&self) {
        let takeover = {
            let mut state = self.state.lock();
            if !self.hears_again(&mut state) || !state.share.holder_is_gone() {
                return;
            }
            state.share.takeover(policy(&self.settings))
        };
        let local = manager(self.place.address);
        // Without the lock: other users can make the search for the next holder long.
        let share = takeover.attempt(local, SOCKET_BUFFER);
        let mut state = self.state.lock();
        // What the holder passed on before it ended is still to be read.
        state.drain(clock::now());
        match share.and_then(|share| self.replace_share(&mut state, share)) {
            Ok(()) => {
                tracing::info!(%local, "the process that held the port is gone");
                state.port_is_missed = false;
            }
            // The old share stays readable.
            Err(error) => {
                if !std::mem::replace(&mut state.port_is_missed, true) {
                    tracing::error!(%error, "the process that held the port is gone");
                }
                self.go_deaf(&mut state);
            }
        }
    }

    /// Puts a new share in the place of one whose holder is gone, and registers there what this engine has.
    fn replace_share(&self, state: &mut State, share: PortShare) -> Result<(), PortShareError> {
        match &share {
            PortShare::Holder(holder) => {
                self.bundle.add(holder.socket().as_raw_fd())?;
                self.lives.add(holder.as_raw_fd())?;
            }
            PortShare::Member(member) => self.bundle.add(member.as_raw_fd())?,
        }
        self.bundle.remove(state.share.as_raw_fd());
        state.share = share;
        let slot = Destination::Slot(state.slot);
        let services = state.services.keys().map(|id| Destination::Service(*id));
        for what in std::iter::once(slot).chain(services) {
            state.share.claim(what)?;
        }
        Ok(())
    }

    /// Leaves others' coming and going alone for a while.
    fn go_deaf(&self, state: &mut State) {
        if state.deaf_until.is_none() {
            self.bundle.remove(self.lives.as_raw_fd());
            if let PortShare::Member(_) = &state.share {
                self.bundle.remove(state.share.as_raw_fd());
            }
        }
        state.deaf_until = Some(Instant::now() + DEAF);
    }

    /// Ends that when its time is over. Whether it is.
    fn hears_again(&self, state: &mut State) -> bool {
        let Some(end) = state.deaf_until else {
            return true;
        };
        if Instant::now() < end {
            return false;
        }
        state.deaf_until = None;
        let mut added = self.bundle.add(self.lives.as_raw_fd());
        if let PortShare::Member(_) = &state.share {
            added = added.and(self.bundle.add(state.share.as_raw_fd()));
        }
        if added.is_err() {
            self.go_deaf(state);
        }
        added.is_ok()
    }

    /// Looks after the lives of others: connections to those that are gone break.
    pub(crate) fn mourn(self: &Arc<Self>) {
        if !self.lives.is_readable() {
            return;
        }
        let gone = {
            let mut state = self.state.lock();
            if state.deaf_until.is_some() {
                return;
            }
            let (all, gone) = state.look_after(&self.lives);
            if !all {
                self.go_deaf(&mut state);
            }
            if gone.is_empty() {
                return;
            }
            events::withdrawn(&mut state, clock::now(), &gone);
            if !self.last_words(&mut state, &gone) {
                forget_gone(&mut state, clock::now(), &gone);
                return;
            }
            gone
        };
        // One that ended in order said so before it went; on a busy machine that may arrive a little later.
        std::thread::sleep(LAST_WORDS);
        let mut state = self.state.lock();
        if self.last_words(&mut state, &gone) {
            let now = clock::now();
            let jobs = events::bereaved(&mut state, now, &gone);
            state.jobs.extend(jobs);
            self.flush(&mut state, now, false);
        }
        forget_gone(&mut state, clock::now(), &gone);
    }

    /// While leaving: who came is taken in, who went need not be waited for, and nothing of that stays readable.
    pub(crate) fn take_leave_of(&self, state: &mut State, now: Time) {
        if self.lives.is_readable() {
            let (_, gone) = state.look_after(&self.lives);
            forget_gone(state, now, &gone);
        }
    }

    /// Takes in what `gone` said last. Whether there are still connections to them.
    fn last_words(self: &Arc<Self>, state: &mut State, gone: &[LocalPeer]) -> bool {
        let now = clock::now();
        for _ in 0..MANY {
            if !self.take_in(state, now, true) {
                break;
            }
            self.flush(state, now, false);
        }
        self.collect(state);
        while let Some(event) = state.events.pop_front() {
            let job = events::job(self, state, now, event);
            state.jobs.extend(job);
        }
        let of_gone = |c: &Connection| c.neighbour.is_some_and(|who| gone.contains(&who));
        state.connections.values().any(of_gone)
    }

    /// Watches over the peer of a connection, if it is an engine of this host.
    pub(crate) fn befriend(&self, state: &mut State, id: CmId) {
        if let Some(who) = self.watched(state, id)
            && let Some(connection) = state.connections.get_mut(&id)
        {
            connection.neighbour = Some(who);
        }
    }

    /// As [`befriend`](Self::befriend) for the peer of a request. It is watched from here on: once it is gone, its name is gone, too.
    pub(crate) fn befriend_caller(&self, state: &mut State, id: CmId) {
        if let Some(who) = self.watched(state, id) {
            state.callers.insert(id, who);
        }
    }

    /// The engine of this host that is the peer of `id`, and is watched.
    fn watched(&self, state: &mut State, id: CmId) -> Option<LocalPeer> {
        let (ip, qpn, true) = state.engine.peer(id)? else {
            return None;
        };
        let who = (ip, slot_of_qpn(qpn.value()));
        // An engine is its own neighbour, which it survives.
        let other = who != (self.place.address, state.slot);
        (other && state.neighbours.watch(who, &self.lives)).then_some(who)
    }

    /// Ends the helper thread.
    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.ring();
    }
}

impl State {
    /// Forgets a connection that is over; its queue pair may have another one by now.
    pub(crate) fn part(&mut self, id: CmId) -> Option<Connection> {
        let connection = self.connections.remove(&id)?;
        if self.by_qpn.get(&connection.qpn) == Some(&id) {
            self.by_qpn.remove(&connection.qpn);
        }
        Some(connection)
    }

    /// Takes in those that came, and names those that went: some of them where very many did. `false`: one waits, and there is no
    /// descriptor for it.
    fn look_after(&mut self, lives: &PollSet) -> (bool, Vec<LocalPeer>) {
        let (mut all, mut gone) = (true, Vec::new());
        for fd in lives.ready() {
            all &= self.life.handle_ready(fd, lives);
            if let PortShare::Holder(holder) = &mut self.share
                && fd == holder.as_raw_fd()
            {
                all &= holder.poll_members();
            }
            gone.extend(self.neighbours.take_closed(fd, lives));
        }
        (all, gone)
    }

    /// Is there anything to tell core?
    pub(crate) fn has_news(&self) -> bool {
        !self.events.is_empty() || !self.jobs.is_empty()
    }

    /// How long one spins who waits for a completion queue, or for what is told by upcalls.
    pub(crate) const fn spin(&mut self, cq: Option<CqId>) -> &mut Spin {
        match cq {
            Some(_) => &mut self.spin,
            None => &mut self.spin_for_news,
        }
    }

    fn receive(&mut self, socket: &Socket, now: Time, all: bool) {
        match &self.share {
            PortShare::Member(_) => self.read(socket, now, false),
            PortShare::Holder(holder) if holder.socket().as_raw_fd() == socket.as_raw_fd() => {
                self.read(socket, now, true);
            }
            // Taken over: the peers that know our own port go on using it.
            PortShare::Holder(holder) => {
                let shared = Arc::clone(holder.socket());
                self.read(socket, now, false);
                self.read(&shared, now, true);
            }
        }
        if all {
            self.read_letters(now, LETTERS);
        }
    }

    /// Takes in all that the port's holder has passed on, up to a bound.
    fn drain(&mut self, now: Time) {
        self.read_letters(now, MANY);
    }

    /// Takes in what the port's holder has passed on, `most` datagrams at most.
    fn read_letters(&mut self, now: Time, most: usize) {
        let PortShare::Member(member) = &mut self.share else {
            return;
        };
        for _ in 0..most {
            let (source, datagram) = match member.receive(&mut self.letter) {
                Ok(Some((source, _, datagram))) => (source, datagram),
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot read what the port's holder passes on");
                    return;
                }
            };
            if let Some(capture) = &mut self.capture {
                let shared = manager(self.engine.config().local);
                capture.received(source, shared, 0, datagram);
            }
            let meta = Meta { source, ip_id: 0 };
            if may_handle(datagram) {
                self.engine.handle_datagram(now, &meta, datagram);
            }
        }
    }

    /// Reads one socket; `shared`: port 4791, where datagrams for others arrive as well.
    fn read(&mut self, socket: &Socket, now: Time, shared: bool) {
        for _ in 0..READS {
            match socket.receive(&mut self.received) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the RoCE socket");
                    break;
                }
            }
            let source = self.received.from;
            for (ip_id, datagram) in self.received.datagrams() {
                if shared && let PortShare::Holder(holder) = &mut self.share {
                    let passed = match self.requests.destination(source.ip(), datagram) {
                        Some(Destination::Slot(slot)) if slot == self.slot => false,
                        Some(Destination::Service(id)) if self.services.contains_key(&id) => false,
                        Some(to) => {
                            holder.deliver(to, source, 0, datagram) || holder.in_grace_period()
                        }
                        None => false,
                    };
                    if passed {
                        continue;
                    }
                }
                if let Some(capture) = &mut self.capture {
                    capture.received(source, socket.local(), ip_id, datagram);
                }
                if may_handle(datagram) {
                    let meta = Meta { source, ip_id };
                    self.engine.handle_datagram(now, &meta, datagram);
                }
            }
            if self.received.length() < SHORT {
                break;
            }
        }
    }

    /// What is captured stands in the file when the process is killed the next moment.
    fn save_capture(&mut self) {
        if let Some(Err(error)) = self.capture.as_mut().map(Capture::flush) {
            tracing::error!(%error, "the capture ends here");
            self.capture = None;
        }
    }
}

/// What the connection manager is told makes something new. Without memory for it, it is as lost on the wire: the peer repeats it.
fn may_handle(datagram: &[u8]) -> bool {
    let for_manager = datagram.get(5..8) == Some(&[0, 0, 1]);
    !for_manager || reserve::pool_is_half_free()
}

/// Nobody confirms the end of a connection to one of these.
fn forget_gone(state: &mut State, now: Time, gone: &[LocalPeer]) {
    let of_gone = |ip, qpn: Qpn| gone.contains(&(ip, slot_of_qpn(qpn.value())));
    state.engine.forget_gone(now, of_gone);
}

/// The holders of the port that an adapter accepts.
fn policy(settings: &Settings) -> Policy {
    Policy {
        holder: settings.holder,
    }
}

/// Where the connection manager of `ip` is reached.
pub(crate) const fn manager(ip: std::net::IpAddr) -> SocketAddr {
    SocketAddr::new(ip, ROCE_PORT)
}
