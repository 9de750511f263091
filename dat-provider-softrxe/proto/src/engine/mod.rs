//! The engine: all protocol state of one local address.
//!
//! This file has its fields, events and deadlines; `verbs` has the verbs.
//!
//! * `input` parses datagrams and finds their queue pair, and `output` fills the driver's buffer.
//! * `near` has the records of channels, `near_post` the posts that make theirs at once, and `near_datagram` the records of datagrams.
//! * `cm` executes the connection manager, `timers` holds deadlines, and `keepalive` begins probes.

mod cm;
mod input;
mod keepalive;
mod near;
mod near_datagram;
mod near_post;
mod output;
mod timers;
mod verbs;

use std::collections::{TryReserveError, VecDeque};
use std::net::SocketAddr;

use dat_handshake::guid;

use crate::cm::connection::{Identity, Mad};
use crate::cm::table::Table;
use crate::config::Config;
use crate::event::Event;
use crate::memory::Memory;
use crate::near::Link;
use crate::outputs::{Context, Counters, Outputs};
use crate::psn::{Psn, Qpn};
use crate::qp::{Qp, QpState};
use crate::secrets::Generator;
use crate::time::Time;
use crate::try_box::TryBox;
use crate::wire::icrc_cache::IcrcCache;
pub use cm::PassedRequest;
use near::Channel;
pub use near_post::NearPoster;
use timers::{Owner, Timers};

/// Why a queue pair was not created or connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QpError {
    /// Every slot is taken.
    #[error(
        "all {0} queue pairs of the adapter are in use; free endpoints, or open the IA again for more"
    )]
    Exhausted(usize),
    /// The settings are invalid.
    #[error("invalid queue pair settings; allowed: {0}")]
    Invalid(&'static str),
    /// No such queue pair.
    #[error("{0:?} does not exist; it may have been destroyed")]
    Unknown(Qpn),
    /// The queue pair's state does not allow it.
    #[error("the queue pair is in state {0:?}; reset it first")]
    State(QpState),
    /// An allocation failed.
    #[error("no memory for another queue; destroy some, or raise the process's limit")]
    NoMemory,
}

impl From<TryReserveError> for QpError {
    fn from(_: TryReserveError) -> Self {
        Self::NoMemory
    }
}

/// A RoCEv2 engine for one local address; see `docs/design/proto.md`.
///
/// It is not thread-safe: the driver holds it behind a lock. No call blocks. Only `create_*`, calls of the connection
/// manager and a post that makes more requests outstanding than ever before allocate memory.
#[derive(Debug)]
pub struct Engine<M> {
    config: Config,
    memory: M,
    out: Outputs,
    qps: Vec<Option<TryBox<Qp>>>,
    /// Slots of destroyed queue pairs, oldest first.
    free: VecDeque<u32>,
    /// Slots of queue pairs that may have something to send.
    ready: VecDeque<u32>,
    /// Slots of queue pairs that owe only an acknowledgement, which was held back.
    held: Vec<u32>,
    /// Channels, by the number of their ids.
    channels: Vec<Option<Channel>>,
    /// Queue pairs that send and receive datagrams: UD, and RC connected over the wire.
    wire_users: usize,
    timers: Timers,
    random: Generator,
    guid: u64,
    cm: Table,
    /// Management datagrams to send.
    mads: VecDeque<(SocketAddr, Box<Mad>)>,
    mad_psn: Psn,
    icrc_cache: IcrcCache,
    /// The keepalive timer has an entry.
    keepalive_armed: bool,
    /// Time of the timer entry for requests that wait.
    pending_armed: Option<Time>,
    /// Runs of queue pairs that were sent before the waiting management datagrams.
    overtaken: u32,
    /// Bytes of answers that were sent at a time, and that time.
    answered: (Time, usize),
}

impl<M: Memory> Engine<M> {
    /// Creates an engine without queue pairs.
    #[must_use]
    pub fn new(config: Config, memory: M) -> Self {
        let mut random = Generator::new(&config.secret);
        Self {
            memory,
            out: Outputs::default(),
            qps: Vec::new(),
            free: VecDeque::new(),
            ready: VecDeque::new(),
            held: Vec::new(),
            channels: Vec::new(),
            wire_users: 0,
            timers: Timers::default(),
            guid: guid::own(config.guid),
            cm: Table::default(),
            mads: VecDeque::new(),
            mad_psn: Psn::new(random.u32()),
            icrc_cache: IcrcCache::new(SocketAddr::new(config.local, config.port)),
            keepalive_armed: false,
            pending_armed: None,
            overtaken: 0,
            answered: (Time::ZERO, 0),
            random,
            config,
        }
    }

    /// Returns the memory given at creation.
    pub const fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the settings.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters.
    pub const fn counters(&self) -> Counters {
        self.out.counters
    }

    /// Returns true if a peer has not confirmed our DREQ yet.
    pub fn is_leaving(&self) -> bool {
        self.cm.is_leaving()
    }

    /// Returns the number of connections and resolutions, also of ended ones that are kept.
    pub fn connections(&self) -> usize {
        self.cm.len()
    }

    /// Returns the CA GUID in our messages of the connection manager.
    #[must_use]
    pub const fn guid(&self) -> u64 {
        self.guid
    }

    /// Returns the GUID and the offer for our REQs and REPs.
    const fn identity(&self) -> Identity {
        Identity {
            guid: self.guid,
            offer: self.config.offer,
        }
    }

    /// Returns the state of a queue pair.
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        self.qp(qpn).map(Qp::state)
    }

    /// Returns true if the queue pair has sent requests that are not answered yet.
    pub fn in_flight(&self, qpn: Qpn) -> bool {
        self.qp(qpn).is_some_and(Qp::in_flight)
    }

    /// Returns the next event. Call until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.out.events.pop_front()
    }

    /// Returns whether [`poll_event`](Self::poll_event) has an event.
    #[inline]
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.out.events.is_empty()
    }

    /// Returns the time to call [`handle_timeout`](Self::handle_timeout); it may be earlier than needed, never later.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Handles all deadlines up to `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((at, owner)) = self.timers.expired(now) {
            match owner {
                Owner::Cm(id) => self.cm_timeout(now, at, id),
                Owner::PendingRequests => self.expire_requests(now, at),
                Owner::KeepAlive => self.keepalive_tick(now),
                Owner::Answers(qpn) => {
                    if let Some(slot) = self.slot(qpn) {
                        self.enqueue(slot);
                    }
                }
                Owner::Qp(qpn) => {
                    let Some(slot) = self.slot(qpn) else { continue };
                    let Some(qp) = &mut self.qps[slot as usize] else {
                        continue;
                    };
                    if qp.armed != Some(at) {
                        continue;
                    }
                    qp.armed = None;
                    if qp.is_due(now) {
                        let progress = Self::progress(&self.channels, qp.link());
                        self.with_qp(now, slot, |qp, cx| qp.handle_timeout(cx, progress));
                        self.enqueue(slot);
                    }
                    self.arm(now, slot);
                }
            }
        }
    }

    /// Returns the slot of a queue pair that exists.
    fn slot(&self, qpn: Qpn) -> Option<u32> {
        self.qp(qpn).map(|_| self.slot_of(qpn))
    }

    /// Returns the slot that a queue pair of this number has, if it exists.
    const fn slot_of(&self, qpn: Qpn) -> u32 {
        qpn.value() & ((1 << self.config.qp_bits) - 1)
    }

    /// Returns a queue pair that exists.
    fn qp(&self, qpn: Qpn) -> Option<&Qp> {
        let qp = self.qps.get(self.slot_of(qpn) as usize)?.as_deref();
        qp.filter(|qp| qp.qpn == qpn)
    }

    /// Returns a queue pair that exists, and its slot.
    fn qp_mut(&mut self, qpn: Qpn) -> Option<(u32, &mut Qp)> {
        let slot = self.slot_of(qpn);
        let qp = self.qps.get_mut(slot as usize)?.as_deref_mut();
        qp.filter(|qp| qp.qpn == qpn).map(|qp| (slot, qp))
    }

    /// Returns a queue pair, and what it uses of the engine. If it ceases to send, its loans are to be recalled.
    #[inline(always)]
    fn borrow_qp(&mut self, now: Time, slot: u32) -> Option<(&mut Qp, Context<'_, M>)> {
        let qp = self.qps.get_mut(slot as usize)?.as_mut()?;
        let cx = Context {
            now,
            memory: &self.memory,
            config: &self.config,
            out: &mut self.out,
            icrc_cache: &mut self.icrc_cache,
        };
        Some((qp, cx))
    }

    /// Calls `call` with a queue pair.
    #[inline(always)]
    fn with_qp<R>(
        &mut self,
        now: Time,
        slot: u32,
        call: impl FnOnce(&mut Qp, &mut Context<'_, M>) -> R,
    ) -> Option<R> {
        let (qp, mut cx) = self.borrow_qp(now, slot)?;
        let sends = qp.state().sends();
        let result = call(qp, &mut cx);
        if sends && !qp.state().sends() {
            let qpn = qp.qpn;
            self.memory.recall(qpn);
        }
        Some(result)
    }

    /// Puts a queue pair on the ready list of its link.
    fn enqueue(&mut self, slot: u32) {
        let Some(Some(qp)) = self.qps.get_mut(slot as usize) else {
            return;
        };
        if qp.held
            && let Link::Near(id) = qp.link()
            && let Some(Some(channel)) = self.channels.get_mut(usize::from(id.0))
        {
            qp.held = !channel.unhold(slot);
        }
        if qp.queued {
            return;
        }
        match qp.link() {
            Link::Wire => self.ready.push_back(slot),
            Link::Near(id) => match self.channels.get_mut(usize::from(id.0)) {
                Some(Some(channel)) => channel.enqueue(slot),
                _ => return,
            },
            Link::Down => return,
        }
        qp.queued = true;
    }

    /// Adds a timer entry at or before the queue pair's deadline, unless there is one.
    fn arm(&mut self, now: Time, slot: u32) {
        let Some(Some(qp)) = self.qps.get_mut(slot as usize) else {
            return;
        };
        let Some(deadline) = qp.deadline(now) else {
            return;
        };
        if qp.armed.is_none_or(|armed| deadline < armed) {
            qp.armed = Some(deadline);
            self.timers.add(deadline, Owner::Qp(qp.qpn));
        }
    }

    /// Moves a queue pair to Error without an event. Answers that it owes are still sent; otherwise the peer would report
    /// executed requests as lost.
    fn break_qp(&mut self, now: Time, qpn: Qpn) {
        if let Some(slot) = self.slot(qpn) {
            self.with_qp(now, slot, |qp, cx| qp.fail(cx, None));
            self.enqueue(slot);
        }
    }
}
