//! The engine: all protocol state of one local address.
//!
//! This file has its fields and the verbs on it. `input` parses datagrams and finds their queue pair, `output` fills the
//! driver's buffer, `cm`, `cm_message` and `cm_step` execute the connection manager, `timers` holds deadlines.

mod cm;
mod cm_message;
mod cm_step;
mod input;
mod output;
mod timers;

use std::collections::{TryReserveError, VecDeque};
use std::net::SocketAddr;

use dat_handshake::{Capabilities, guid};

use crate::cm::connection::{Identity, Mad};
use crate::cm::table::Table;
use crate::config::Config;
use crate::event::Event;
use crate::memory::Memory;
use crate::outputs::{Context, Counters, Outputs};
use crate::psn::{Psn, Qpn};
use crate::qp::{Path, Qp, QpInit, QpKind, QpState};
use crate::secrets::Generator;
use crate::time::Time;
use crate::try_box::TryBox;
use crate::wire::icrc_cache::IcrcCache;
use crate::work::{Completion, CqId, PostError, SendRequest, Sge, SrqId};
use timers::{Owner, Timers};

/// Window towards peers without `WIDE_WINDOW`; rxe limits itself to it, too.
const FOREIGN_WINDOW: u32 = 128;
/// Free slots below which a new slot is preferred to a used one.
const MIN_FREE_SLOTS: usize = 1024;

/// Why a queue pair was not created or connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QpError {
    /// Every slot is taken.
    #[error("all {0} queue pairs are in use; raise Config::qp_bits or destroy some")]
    Exhausted(usize),
    /// The settings are invalid.
    #[error("queue pair settings: {0}")]
    Invalid(&'static str),
    /// No such queue pair.
    #[error("{0:?} does not exist")]
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
            timers: Timers::default(),
            guid: guid::own(config.guid),
            cm: Table::default(),
            mads: VecDeque::new(),
            mad_psn: Psn::new(random.u32()),
            icrc_cache: IcrcCache::new(SocketAddr::new(config.local, config.port)),
            keepalive_armed: false,
            pending_armed: None,
            overtaken: 0,
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

    /// Creates a completion queue. It never overflows: each post reserves room for its completion.
    ///
    /// # Errors
    /// `NoMemory`.
    pub fn create_cq(&mut self) -> Result<CqId, QpError> {
        Ok(self.out.create_cq()?)
    }

    /// Destroys a completion queue with its completions.
    pub fn destroy_cq(&mut self, cq: CqId) {
        self.out.destroy_cq(cq);
    }

    /// Arms the queue: the next completion raises [`Event::CqReady`] once. Completions that are queued already raise
    /// nothing, so poll after arming.
    pub fn arm_cq(&mut self, cq: CqId) {
        self.out.arm_cq(cq, true);
    }

    /// Disarms the queue.
    pub fn disarm_cq(&mut self, cq: CqId) {
        self.out.arm_cq(cq, false);
    }

    /// Takes completions in order. Returns their number.
    pub fn poll_cq(&mut self, cq: CqId, into: &mut [Completion]) -> usize {
        self.out.poll_cq(cq, into)
    }

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// `NoMemory`.
    pub fn create_srq(&mut self, depth: usize, max_sge: usize) -> Result<SrqId, QpError> {
        Ok(self.out.create_srq(depth, max_sge)?)
    }

    /// Destroys a shared receive queue; its receives do not complete.
    pub fn destroy_srq(&mut self, srq: SrqId) {
        self.out.destroy_srq(srq);
    }

    /// Raises the depth of a shared receive queue. A smaller number changes nothing.
    pub fn grow_srq(&mut self, srq: SrqId, depth: usize) {
        if let Some(ring) = self.out.srq_ring(srq) {
            ring.deepen(depth);
        }
    }

    /// Arms the limit: [`Event::SrqLimit`] is raised once when fewer than `limit` receives are left. 0 disarms it.
    pub fn set_srq_limit(&mut self, srq: SrqId, limit: u32) {
        self.out.set_srq_limit(srq, limit);
    }

    /// Posts a receive to a shared queue.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_srq_recv(&mut self, srq: SrqId, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let ring = self.out.srq_ring(srq).ok_or(PostError::UnknownQueue)?;
        let length = ring.admit(sges)?;
        ring.post(wr_id, length, sges);
        Ok(())
    }

    /// Creates a queue pair. An RC queue pair is unconnected, a UD queue pair is ready.
    ///
    /// # Errors
    /// `Exhausted`, `Invalid` or `NoMemory`.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<Qpn, QpError> {
        if init.send_depth > 1 << 20 || init.recv_depth > 1 << 20 || init.max_sge > 256 {
            return Err(QpError::Invalid("depths up to 2^20, SGEs up to 256"));
        }
        self.reserve_slot()?;
        // Slots 0 and 1 stay unused: with salt 0 they would have the reserved QPNs.
        if self.qps.len() < 2 {
            self.qps.resize_with(2, || None);
        }
        let limit = 1usize << self.config.qp_bits;
        // The salt may have no bits. A slot is therefore reused as late as possible, so that no late packet of its old
        // connection reaches the new one.
        let rested = self.free.len() >= MIN_FREE_SLOTS || self.qps.len() >= limit;
        let rested = rested.then(|| self.free.pop_front()).flatten();
        let slot = rested.unwrap_or(self.qps.len() as u32);
        if slot as usize >= limit {
            return Err(QpError::Exhausted(limit - 2));
        }
        if slot as usize == self.qps.len() {
            self.qps.push(None);
        }
        let qpn = self.number(slot);
        let of_srq = init.srq.and_then(|srq| self.out.srq_sges(srq));
        let made = Qp::new(qpn, *init, of_srq.unwrap_or(init.max_sge)).and_then(TryBox::new);
        match made {
            Ok(qp) => self.qps[slot as usize] = Some(qp),
            Err(_) => {
                self.free.push_back(slot);
                return Err(QpError::NoMemory);
            }
        }
        Ok(qpn)
    }

    /// Reserves room for one more slot in all lists of slots, so that later calls need no memory for them.
    fn reserve_slot(&mut self) -> Result<(), TryReserveError> {
        let slots = self.qps.len() + 3;
        self.qps.try_reserve(3)?;
        self.free
            .try_reserve(slots.saturating_sub(self.free.len()))?;
        // A list may still contain the slot's previous queue pair.
        let twice = 2 * slots;
        self.ready
            .try_reserve(twice.saturating_sub(self.ready.len()))?;
        self.held.try_reserve(twice.saturating_sub(self.held.len()))
    }

    /// Returns the QPN of a slot: prefix, salt, slot. The salt prevents early reuse of a number.
    fn number(&mut self, slot: u32) -> Qpn {
        let (slot_bits, prefix_bits) = (
            u32::from(self.config.qp_bits),
            u32::from(self.config.qpn_prefix_bits),
        );
        let salt_bits = 24u32.saturating_sub(slot_bits + prefix_bits);
        let prefix = self
            .config
            .qpn_prefix
            .checked_shl(24 - prefix_bits)
            .unwrap_or(0);
        let salt = self.random.u32() & ((1 << salt_bits) - 1);
        let qpn = prefix | salt << slot_bits | slot;
        // 0xffffff is the multicast QPN.
        Qpn::new(if qpn == 0xff_ffff {
            qpn & !(1 << slot_bits)
        } else {
            qpn
        })
    }

    /// Destroys a queue pair. Outstanding requests do not complete, and its connection ends in the background.
    ///
    /// Poll transmits first: the acknowledgements that it owes are lost with it.
    pub fn destroy_qp(&mut self, now: Time, qpn: Qpn) {
        self.abandon_connection(now, qpn);
        if let Some(slot) = self.slot(qpn) {
            if let Some(qp) = self.qps[slot as usize].take() {
                qp.forget(&mut self.out);
            }
            self.free.push_back(slot);
        }
    }

    /// Moves a queue pair to Error: all outstanding requests complete as flushed, and its connection ends.
    pub fn fail_qp(&mut self, now: Time, qpn: Qpn) {
        self.abandon_connection(now, qpn);
        self.break_qp(now, qpn);
    }

    /// Moves a queue pair back to unconnected. Outstanding requests do not complete, and its connection ends in the
    /// background.
    pub fn reset_qp(&mut self, now: Time, qpn: Qpn) {
        self.abandon_connection(now, qpn);
        if let Some(slot) = self.slot(qpn)
            && let Some(qp) = &mut self.qps[slot as usize]
        {
            qp.reset(&mut self.out);
        }
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
        let slot = self.slot(qpn)?;
        self.qps[slot as usize].as_ref().map(|qp| qp.state())
    }

    /// Connects a queue pair without the connection manager.
    ///
    /// # Errors
    /// `Unknown`, `State`, `NoMemory`, or `Invalid` for a path MTU that does not exist.
    pub fn connect_qp(&mut self, qpn: Qpn, path: &Path) -> Result<(), QpError> {
        if !path.mtu.is_power_of_two() || !(256..=4096).contains(&path.mtu) {
            return Err(QpError::Invalid("path MTU 256, 512, 1024, 2048 or 4096"));
        }
        let window = self.config.max_window;
        let max_window = if path.agreement.has(Capabilities::WIDE_WINDOW) {
            window
        } else {
            window.min(FOREIGN_WINDOW)
        };
        let slot = self.slot(qpn).ok_or(QpError::Unknown(qpn))?;
        let Some(qp) = &mut self.qps[slot as usize] else {
            return Err(QpError::Unknown(qpn));
        };
        qp.reserve(path.initiator_depth, path.responder_resources)?;
        if qp.connect(*path, max_window) {
            Ok(())
        } else {
            Err(QpError::State(qp.state()))
        }
    }

    /// Posts a request.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was posted then.
    pub fn post_send(
        &mut self,
        now: Time,
        qpn: Qpn,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        let slot = self.slot(qpn).ok_or(PostError::UnknownQueue)?;
        let result = self.with_qp(now, slot, |qp, cx| qp.post_send(cx, request));
        self.enqueue(slot);
        result.unwrap_or(Err(PostError::UnknownQueue))
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was posted then.
    pub fn post_recv(&mut self, qpn: Qpn, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let slot = self.slot(qpn).ok_or(PostError::UnknownQueue)?;
        self.with_qp(Time::ZERO, slot, |qp, cx| qp.post_recv(cx, wr_id, sges))
            .unwrap_or(Err(PostError::UnknownQueue))
    }

    /// Returns true if the queue pair has sent requests that are not answered yet.
    pub fn in_flight(&self, qpn: Qpn) -> bool {
        let qp = self
            .slot(qpn)
            .and_then(|slot| self.qps[slot as usize].as_ref());
        qp.is_some_and(|qp| qp.in_flight())
    }

    /// Returns the next event. Call until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.out.events.pop_front()
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
                        self.with_qp(now, slot, Qp::handle_timeout);
                        self.enqueue(slot);
                    }
                    self.arm(now, slot);
                }
            }
        }
    }

    /// Arms the keepalive timer if it is not armed.
    fn arm_keepalive(&mut self, now: Time) {
        if let Some(every) = self.config.keepalive
            && !std::mem::replace(&mut self.keepalive_armed, true)
        {
            self.timers.add(now + every, Owner::KeepAlive);
        }
    }

    /// Ends a keepalive interval: probes the peers that were silent in it.
    fn keepalive_tick(&mut self, now: Time) {
        self.keepalive_armed = false;
        for slot in 0..self.qps.len() as u32 {
            let connected = self.qps[slot as usize]
                .as_ref()
                .is_some_and(|qp| qp.init.kind == QpKind::Rc && qp.state() == QpState::ReadyToSend);
            if !connected {
                continue;
            }
            self.arm_keepalive(now);
            // The connection manager probes a peer that has not shown yet that it is connected.
            let asks = self.with_qp(now, slot, |qp, cx| {
                !qp.awaits_data() && qp.keepalive_tick(cx)
            });
            if asks == Some(true) {
                self.enqueue(slot);
                self.arm(now, slot);
            }
        }
    }

    /// Returns the slot of a queue pair that exists.
    fn slot(&self, qpn: Qpn) -> Option<u32> {
        let slot = qpn.value() & ((1 << self.config.qp_bits) - 1);
        let qp = self.qps.get(slot as usize)?.as_ref()?;
        (qp.qpn == qpn).then_some(slot)
    }

    fn with_qp<R>(
        &mut self,
        now: Time,
        slot: u32,
        call: impl FnOnce(&mut Qp, &mut Context<'_, M>) -> R,
    ) -> Option<R> {
        let qp = self.qps.get_mut(slot as usize)?.as_mut()?;
        let mut cx = Context {
            now,
            memory: &self.memory,
            config: &self.config,
            out: &mut self.out,
            icrc_cache: &mut self.icrc_cache,
        };
        Some(call(qp, &mut cx))
    }

    /// Puts a queue pair on the ready list.
    fn enqueue(&mut self, slot: u32) {
        if let Some(Some(qp)) = self.qps.get_mut(slot as usize)
            && !std::mem::replace(&mut qp.queued, true)
        {
            self.ready.push_back(slot);
        }
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
