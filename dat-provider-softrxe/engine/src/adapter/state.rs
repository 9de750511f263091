//! The state of an adapter behind its lock, and how data passes between the owners of its parts.

use std::time::Duration;

use dat_os::quick_clock::QuickClock;
use softrxe_port::liveness::LocalPeer;
use softrxe_proto::{Engine, Event, NearPoster, PostError, Qpn, SendRequest, Time};

use super::connections::Connections;
use super::descriptors::Descriptors;
use super::driver::state::Driver;
use super::events::Context;
use super::near::Near;
use super::near_dial::{self, NearDial};
use super::notices::Notices;
use super::peers::Peers;
use super::pending::Pending;
use super::ports::{Channels, Ports};
use crate::memory::regions::Regions;

/// Limit of the looks of [`State::receive_all`].
const MAX_LOOKS: u32 = 64;

/// How long the end of a peer's channel may stay unnoticed while consumers poll.
const UNHEARD: Duration = Duration::from_millis(100);

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
    pub(super) clock: QuickClock,
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

    /// Receives all records that are there. [`receive`](Self::receive) leaves them out in a [rest](crate::adaptive::stream_pace) between two
    /// looks at a ring.
    pub(crate) fn drain_rings(&mut self, now: Time) {
        self.engine.memory().prepare(now);
        self.near.drain(&mut self.engine, now);
    }

    /// Receives all that has arrived, up to a bound, as a peer may send without an end.
    pub(crate) fn receive_all(&mut self, now: Time) {
        self.drain_rings(now);
        for _ in 0..MAX_LOOKS {
            if !self.receive(now, true) {
                break;
            }
        }
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
