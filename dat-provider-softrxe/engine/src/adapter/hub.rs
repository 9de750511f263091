//! The lock of an adapter, and how data passes between the owners of its state.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use dat_arena::BiasedGuard;
use dat_arena::Mutex;
use dat_handshake::{Capabilities, guid};
use dat_os::quick_clock::QuickClock;
use softrxe_near::agreement::End;
use softrxe_port::liveness::LocalPeer;
use softrxe_port::port_share::{Policy, PortShareError};
use softrxe_port::slot::SLOT_BITS;
use softrxe_proto::{
    CmId, Config, Engine, Event, NearPoster, PostError, Qpn, RejectReason, SecretKey, SendRequest,
    Time,
};

use super::connections::Connections;
use super::contention::SharedLock;
use super::datagram;
use super::descriptors::Descriptors;
use super::driver::state::{Driver, Wakers};
use super::events::Context;
use super::near::Near;
use super::near_dial::{self, NearDial};
use super::notices::Notices;
use super::peers::Peers;
use super::pending::Pending;
use super::ports::{Channels, Ports};
use super::upcall::Upcall;
use crate::address::local_address::LocalAddress;
use crate::clock;
use crate::link::capture::Capture;
use crate::memory::lending::LendingCounters;
use crate::memory::regions::Regions;
use crate::secrets::Secrets;
use crate::settings::Settings;

/// Bytes of a receive buffer that a datagram of 4 KiB occupies at most, and bounds of the datagrams in flight.
const DATAGRAM_ROOM: usize = 8192;
const WINDOW: std::ops::RangeInclusive<usize> = 16..=512;
/// Repetitions of a refused REQ, a third of a second in all. Programs that synchronise over TCP (dtest, dtestx) sometimes connect
/// before their peer listens: no other transport connects in a tenth of a millisecond.
const REFUSED_REPEATS: u8 = 5;

/// How long the end of a peer's channel may stay unnoticed while consumers poll.
const UNHEARD: Duration = Duration::from_millis(100);

/// Runs upcalls into core.
pub(crate) trait RunUpcall: Send + Sync {
    /// Runs `upcall` of `hub`. The caller holds no lock but [`Hub::upcall_lock`].
    fn run(&self, hub: &Arc<Hub>, upcall: Upcall);
}

/// Everything under the lock.
pub(crate) struct State {
    pub(crate) engine: Engine<Regions>,
    pub(crate) ports: Ports,
    pub(crate) near: Near,
    pub(crate) near_dial: NearDial,
    pub(crate) peers: Peers,
    pub(crate) connections: Connections,
    pub(crate) notices: Notices,
    pub(crate) pending: Pending,
    pub(crate) driver: Driver,
    clock: QuickClock,
}

/// What [`State::receive_records`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrived {
    /// No record.
    Nothing,
    /// Records, and nothing but acknowledgements is left to be done for them.
    Handled,
    /// Records. There is more to be sent, or there are upcalls to be run.
    Unfinished,
}

/// An adapter's lock, and what is used without it.
pub(crate) struct Hub {
    pub(crate) settings: Settings,
    pub(crate) local_address: LocalAddress,
    core: Box<dyn RunUpcall>,
    /// Held by the thread that runs upcalls; locked before `state`.
    pub(crate) upcall_lock: Mutex<()>,
    pub(crate) state: SharedLock<State>,
    pub(crate) descriptors: Descriptors,
    pub(crate) wakers: Wakers,
    /// Consumers that [give way](Self::give_way).
    pub(crate) give_way: AtomicU32,
    /// How often the helper thread had a processor.
    pub(crate) helper_runs: AtomicU64,
    stop: AtomicBool,
}

/// How often is looked at most for what has arrived before a region is removed.
const MAX_LOOKS: u32 = 64;

impl Hub {
    /// Opens the ports of `local_address`, and a protocol engine for them.
    pub(crate) fn open(
        settings: Settings,
        local_address: LocalAddress,
        capture: Option<Capture>,
        secrets: Secrets,
        core: Box<dyn RunUpcall>,
    ) -> Result<Arc<Self>, PortShareError> {
        let ip = local_address.address;
        let policy = Policy {
            holder: settings.holder,
        };
        let (mut ports, liveness) = Ports::open(
            ip,
            local_address.mtu,
            policy,
            secrets.slot,
            capture,
            settings.ring,
        )?;
        let descriptors = Descriptors::new(Arc::clone(ports.socket()))?;
        if let Some(descriptor) = liveness.descriptor() {
            descriptors.liveness().add(descriptor)?;
        }
        if let Some(listener) = liveness.listener() {
            descriptors.add_listener(listener);
        }
        ports.watch(&descriptors)?;
        let own = End {
            ip,
            slot: ports.slot(),
            guid: guid::own(secrets.guid),
        };
        let near_dial = NearDial::open(own, settings.near, settings.lanes == 1)?;
        descriptors.liveness().add(near_dial.answers())?;
        if let Some(door) = near_dial.door() {
            descriptors.liveness().add(door.as_raw_fd())?;
            descriptors.add_listener(door.listener());
        }
        let port = ports.socket().local().port();
        let near = Near::new(settings.near_pull, port)?;
        descriptors.add(near.descriptor())?;
        let mut config = config(ip, &mut ports, &settings, secrets.engine, secrets.guid)?;
        if near_dial.door().is_some() {
            config.offer = config.offer.with(Capabilities::NEAR);
        }
        let state = State {
            engine: Engine::new(config, Regions::new(&secrets.keys)),
            peers: Peers::new(ip, ports.slot(), liveness),
            ports,
            near,
            near_dial,
            connections: Connections::default(),
            notices: Notices::default(),
            pending: Pending::default(),
            driver: Driver::new(),
            clock: QuickClock::new(),
        };
        Ok(Arc::new(Self {
            settings,
            local_address,
            core,
            upcall_lock: Mutex::new(()),
            state: SharedLock::new(state),
            descriptors,
            wakers: Wakers::new()?,
            give_way: AtomicU32::new(0),
            helper_runs: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }))
    }

    /// Returns the address that peers connect to.
    pub(crate) const fn address(&self) -> IpAddr {
        self.local_address.address
    }

    /// Takes the lock for a call that programs make in loops.
    #[inline]
    pub(crate) fn lock(&self) -> BiasedGuard<'_, State> {
        self.state.lock_patiently()
    }

    /// Calls `act` under the lock, then transmits what the engine has to send.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut State, Time) -> R) -> R {
        let mut state = self.state.lock();
        let now = state.now();
        let result = act(&mut state, now);
        state.transmit(now, false);
        self.wake(&mut state);
        result
    }

    /// Removes a region. What has arrived is received first, as an adapter in hardware has done at that moment: else a message of the
    /// peer would fail because the helper sleeps.
    pub(crate) fn deregister(&self, key: u32) {
        self.with(|state, now| {
            // Bounded, as a peer may send without an end.
            for _ in 0..MAX_LOOKS {
                if !state.receive(now, true) {
                    break;
                }
            }
            state.engine.memory().deregister(key);
        });
    }

    /// Wakes the helper if there are upcalls to run, or the watcher if it would wake too late for the engine's next deadline, for
    /// records that are left, or for those of a new channel.
    #[inline]
    pub(crate) fn wake(&self, state: &mut State) {
        let roles = &mut state.driver.roles;
        if state.pending.has_upcalls() {
            roles.wake_helper(&self.wakers);
        } else {
            roles.wake_by(state.engine.poll_timeout(), &self.wakers);
        }
        if state.near.take_unfinished() | state.near.take_came_late() {
            state.driver.roles.wake_watcher(&self.wakers);
        }
    }

    /// Runs the pending upcalls, unless another thread is running upcalls: then the helper runs what that thread leaves.
    pub(crate) fn run_upcalls(self: &Arc<Self>) {
        let lock = self.upcall_lock.try_lock();
        loop {
            let upcalls = {
                let mut state = self.state.lock();
                if lock.is_none() || !state.pending.has_upcalls() {
                    self.wake(&mut state);
                    return;
                }
                self.take_upcalls(&mut state, clock::now())
            };
            for upcall in upcalls {
                self.run_upcall(upcall);
            }
        }
    }

    /// Takes the upcalls that are to be run now, and does what events lead to instead: sends the refusal of a query, gives back a service. The
    /// caller may sleep next.
    pub(crate) fn take_upcalls(&self, state: &mut State, now: Time) -> VecDeque<Upcall> {
        state.convert_events(&self.descriptors, now);
        let upcalls = std::mem::take(&mut state.pending.upcalls);
        self.release_lingering(state);
        state.transmit(now, true);
        upcalls
    }

    /// Runs `upcall`. The caller holds [`upcall_lock`](Self::upcall_lock).
    pub(crate) fn run_upcall(self: &Arc<Self>, upcall: Upcall) {
        self.core.run(self, upcall);
    }

    /// Refuses the request `id` of a peer, for a datagram queue pair or for a connection. `data` begins with the version word of a refusal
    /// if the consumer refuses it.
    pub(crate) fn refuse(&self, id: CmId, datagram: bool, data: &[u8]) {
        self.with(|state, now| {
            state.connections.remove_caller(id);
            if datagram {
                datagram::refuse(&mut state.engine, now, id, data);
            } else {
                // Fails if the peer has given up, which then needs no answer.
                let reason = RejectReason::CONSUMER;
                let _ = state.engine.reject(now, id, reason, data);
            }
            self.release_lingering(state);
        });
    }

    /// Logs how many long messages took which way through shared memory, if there were any.
    pub(crate) fn log_counters(&self) {
        let counters = self
            .state
            .lock()
            .engine
            .memory()
            .loans()
            .borrow()
            .counters();
        let LendingCounters {
            lent,
            pulled,
            failed,
            refused,
        } = counters;
        if counters != LendingCounters::default() {
            tracing::info!(
                lent,
                pulled,
                failed,
                refused,
                "parts of long messages that were copied once"
            );
        }
    }

    /// Ends the helper thread.
    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::Release);
        self.wakers.helper.signal();
    }

    /// Returns whether the helper thread is to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

impl State {
    /// Returns the time, by a clock that is cheap to read.
    #[inline]
    pub(crate) fn now(&mut self) -> Time {
        Time::from_nanos(self.clock.nanos())
    }

    /// Receives what has arrived, also through the mailbox if `mailbox`, and handles expired timers. Returns whether anything
    /// arrived.
    pub(crate) fn receive(&mut self, now: Time, mailbox: bool) -> bool {
        let Self {
            engine,
            ports,
            near,
            near_dial,
            ..
        } = self;
        let before = engine.counters().received;
        engine.memory().prepare(now);
        near.receive(engine, now);
        if near.cadence().is_socket_due(now, engine.uses_wire()) || mailbox {
            let mailbox = mailbox || near.cadence().is_mailbox_due();
            let channels = Channels { near, near_dial };
            ports.receive(engine, channels, now, mailbox);
        }
        if engine.poll_timeout().is_some_and(|at| at <= now) {
            near.report_progress(engine, now);
            engine.handle_timeout(now);
        }
        engine.counters().received != before
    }

    /// Receives the records that woke a thread, sends what is urgent, and collects the events, without a system call unless a peer has to
    /// be woken. Acknowledgements that may wait are left to the helper, if it is woken where the thread stops driving.
    pub(crate) fn receive_records(&mut self, now: Time) -> Arrived {
        self.engine.memory().prepare(now);
        if !self.near.receive(&mut self.engine, now) {
            return Arrived::Nothing;
        }
        let hold = self.driver.roles.is_left_to_helper();
        self.transmit(now, hold);
        if self.near.is_unfinished() || self.pending.has_upcalls() {
            Arrived::Unfinished
        } else {
            Arrived::Handled
        }
    }

    /// Transmits what the engine has to send, except acknowledgements that may wait if `hold`, and collects its events. Returns whether there
    /// were datagrams, which take system calls.
    #[inline]
    pub(crate) fn transmit(&mut self, now: Time, hold: bool) -> bool {
        if self.engine.has_records(hold) || self.near.has_unpublished() {
            self.transmit_records(now, hold);
        }
        let datagrams = self.engine.has_datagrams() || self.ports.captures();
        if datagrams {
            self.transmit_datagrams(now, hold);
        }
        self.driver.batch.transmitted();
        self.collect_events();
        datagrams
    }

    #[inline(never)]
    fn transmit_records(&mut self, now: Time, hold: bool) {
        self.engine.memory().prepare(now);
        self.near.transmit(&mut self.engine, now, hold);
    }

    #[inline(never)]
    fn transmit_datagrams(&mut self, now: Time, hold: bool) {
        self.engine.memory().prepare(now);
        self.ports.transmit(&mut self.engine, now, hold);
    }

    /// Posts a request that may make its record at once; without `publish`, [`transmit`](Self::transmit) publishes it. `None`: nothing was
    /// posted.
    #[inline]
    pub(crate) fn post_near(
        &mut self,
        now: Time,
        poster: NearPoster,
        request: &SendRequest<'_>,
        publish: bool,
    ) -> Option<Result<(), PostError>> {
        self.engine.memory().prepare(now);
        self.near
            .post(&mut self.engine, now, poster, request, publish)
    }

    /// Posts a datagram for an engine of this host to which there is a channel. `None`: there is none, and nothing was posted.
    pub(crate) fn post_datagram(
        &mut self,
        now: Time,
        qpn: Qpn,
        peer: LocalPeer,
        request: &SendRequest<'_>,
    ) -> Option<Result<bool, PostError>> {
        self.engine.memory().prepare(now);
        self.near
            .post_datagram(&mut self.engine, now, qpn, peer, request)
    }

    /// Prepares all descriptors for a sleeping thread. Returns `false` if packets wait already.
    pub(crate) fn arm(&mut self, now: Time) -> bool {
        self.near.arm(&mut self.engine, now) && self.ports.arm()
    }

    /// Ends the preparation for a sleep. Called by the thread that [`arm`](Self::arm)ed, or the next one that watches.
    pub(crate) fn disarm(&mut self) {
        self.near.disarm();
        self.ports.disarm();
    }

    /// Makes the next [`hear`](Near::hear) look for peers that have closed their channels, if that is long ago. Where consumers poll no
    /// thread prepares a sleep, after which it would look.
    pub(crate) fn expect_ends(&mut self, now: Time) {
        let is_recent = |at| now.is_within(UNHEARD, at);
        if self.near.count() == 0 || self.driver.ends_expected.is_some_and(is_recent) {
            return;
        }
        self.driver.ends_expected = Some(now);
        if !self.near.arm(&mut self.engine, now) {
            // Those of a channel that has ended.
            self.collect_events();
        }
        self.near.disarm();
    }

    /// Returns what the agreement on channels works on.
    pub(crate) const fn near_parts(
        &mut self,
        now: Time,
    ) -> (&mut NearDial, near_dial::Context<'_>) {
        let context = near_dial::Context {
            engine: &mut self.engine,
            near: &mut self.near,
            now,
        };
        (&mut self.near_dial, context)
    }

    /// Collects the engine's events: wakes threads that wait for completions, and keeps the events that lead to upcalls.
    #[inline]
    pub(crate) fn collect_events(&mut self) {
        if self.engine.has_events() {
            self.collect();
        }
    }

    #[inline(never)]
    fn collect(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            if let Event::CqReady(cq) = &event
                && !self.notices.completed(*cq)
            {
                continue;
            }
            self.pending.events.push_back(event);
        }
    }

    /// Returns what is pending, and what the conversion of events works on.
    pub(crate) const fn parts<'a>(
        &'a mut self,
        descriptors: &'a Descriptors,
    ) -> (&'a mut Pending, Context<'a>) {
        let context = Context {
            engine: &mut self.engine,
            near: &mut self.near,
            near_dial: &mut self.near_dial,
            connections: &mut self.connections,
            notices: &mut self.notices,
            peers: &mut self.peers,
            descriptors,
        };
        (&mut self.pending, context)
    }

    /// Converts the pending events to pending upcalls.
    pub(crate) fn convert_events(&mut self, descriptors: &Descriptors, now: Time) {
        let (pending, mut context) = self.parts(descriptors);
        while let Some(event) = pending.events.pop_front() {
            let upcall = context.upcall(now, event);
            pending.upcalls.extend(upcall);
        }
    }
}

/// Returns the configuration of the protocol engine.
fn config(
    ip: IpAddr,
    ports: &mut Ports,
    settings: &Settings,
    secret: SecretKey,
    guid: u64,
) -> Result<Config, PortShareError> {
    let link = ports.properties();
    let mut config = Config::new(ip, secret, guid);
    config.offer = config.offer.with(Capabilities::REQUEST_ACKNOWLEDGES);
    config.port = ports.socket().local().port();
    // The size of the peer's buffer matters. A peer with this engine has one of the same size; for others the window shrinks as packets get
    // lost.
    let room = ports.socket().receive_buffer()? / DATAGRAM_ROOM;
    config.max_window = room.clamp(*WINDOW.start(), *WINDOW.end()) as u32;
    config.qpn_prefix = ports.slot().into();
    config.qpn_prefix_bits = SLOT_BITS as u8;
    config.mtu = settings.mtu.min(link.mtu);
    config.verify_icrc = link.checksummed;
    config.rnr_code = settings.rnr_timer;
    config.refused_repeats = REFUSED_REPEATS;
    config.keepalive = settings.keepalive;
    if let Some(timeout) = settings.ack_timeout {
        config.ack_timeout = timeout;
    }
    Ok(config)
}
