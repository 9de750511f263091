//! Completion queues. A queue is in the lanes of its queue pairs; nearly always that is one lane.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dat_arena::Mutex;
use dat_core::error::Result;
use dat_core::transport::{Parked, Token};
use softrxe_proto::{Completion, CqId};

use super::convert::create_error;
use crate::adapter::hub::Hub;
use crate::adapter::lanes::Lanes;
use crate::adapter::poll_turns::{AfterPoll, PollTurns};
use crate::wait::Permit;

/// A completion queue.
pub struct Cq {
    lanes: Arc<Lanes>,
    token: Token,
    /// Its part in the lane of its first queue pair, or in the only lane.
    home: OnceLock<Part>,
    /// True once other lanes have parts, too.
    spread: AtomicBool,
    /// Locked before a lane.
    rest: Mutex<Rest>,
}

/// What a queue of an adapter with several lanes has.
#[derive(Default)]
struct Rest {
    /// Its parts in other lanes than the home lane.
    parts: Vec<Part>,
    /// The part that the next poll begins with.
    next: usize,
    /// Core is to be notified of a completion. May still say so after the notification, which leads to one too many.
    watched: bool,
    /// Threads that wait for a completion.
    waiting: Vec<Arc<Permit>>,
}

/// The part of a completion queue in one lane.
pub(super) struct Part {
    lane: usize,
    pub(super) hub: Arc<Hub>,
    pub(super) id: CqId,
    turns: PollTurns,
}

impl Cq {
    /// Creates a queue, which `token` names in core.
    pub(super) fn create(lanes: &Arc<Lanes>, token: Token) -> Result<Self> {
        let cq = Self {
            lanes: Arc::clone(lanes),
            token,
            home: OnceLock::new(),
            spread: AtomicBool::new(false),
            rest: Mutex::default(),
        };
        if lanes.only().is_some() {
            cq.in_lane(0)?;
        }
        Ok(cq)
    }

    /// Returns the lane that queue pairs of this queue should be in, once there is one.
    pub(super) fn home_lane(&self) -> Option<usize> {
        self.home.get().map(|part| part.lane)
    }

    /// Returns the queue of `lane` that belongs to this one. Creates it if there is none.
    pub(super) fn in_lane(&self, lane: usize) -> Result<CqId> {
        let mut rest = self.rest.lock();
        let mut known = self.home.get().into_iter().chain(&rest.parts);
        if let Some(part) = known.find(|part| part.lane == lane) {
            return Ok(part.id);
        }
        let part = Part::create(Arc::clone(&self.lanes.all()[lane]), lane, self.token)?;
        let id = part.id;
        if rest.watched {
            part.watch(true);
        }
        for permit in &rest.waiting {
            part.hub.wake_for(part.id, permit);
        }
        if let Err(part) = self.home.set(part) {
            rest.parts.push(part);
            self.spread.store(true, Ordering::Release);
        }
        Ok(id)
    }

    /// Takes completions; without any, receives what has arrived in its lanes. As [`Hub::poll`]; a pause is one on the returned lane.
    #[inline]
    pub(super) fn poll(&self, into: &mut [Completion]) -> (usize, AfterPoll, &Arc<Hub>) {
        match self.home.get() {
            Some(home) if !self.spread.load(Ordering::Relaxed) => {
                let (count, after) = home.hub.poll(home.id, &home.turns, into);
                (count, after, &home.hub)
            }
            Some(_) => self.poll_all(into),
            // There is nothing to receive for it.
            None => (0, AfterPoll::Yield, self.lanes.first()),
        }
    }

    /// Takes completions that are there. As [`Hub::take`].
    #[inline]
    pub(super) fn take(&self, into: &mut [Completion]) -> usize {
        let Some(home) = self.home.get() else {
            return 0;
        };
        if self.spread.load(Ordering::Relaxed) {
            return self.each_part(into, |part, into| part.hub.take(part.id, into));
        }
        home.hub.take(home.id, into)
    }

    #[cold]
    fn poll_all(&self, into: &mut [Completion]) -> (usize, AfterPoll, &Arc<Hub>) {
        let mut all = AfterPoll::Return;
        let count = self.each_part(into, |part, into| {
            let (count, after) = part.hub.poll(part.id, &part.turns, into);
            if after != AfterPoll::Return {
                // A pause in one lane would delay the completions of the others.
                all = AfterPoll::Yield;
            }
            count
        });
        let after = if count == 0 { all } else { AfterPoll::Return };
        (count, after, self.lanes.first())
    }

    /// Fills `into` from all parts, from another one first each time.
    fn each_part(
        &self,
        into: &mut [Completion],
        mut take: impl FnMut(&Part, &mut [Completion]) -> usize,
    ) -> usize {
        let mut rest = self.rest.lock();
        let begin = rest.next;
        rest.next = begin.wrapping_add(1);
        let Some(home) = self.home.get() else {
            return 0;
        };
        let (mut count, parts) = (0, rest.parts.len() + 1);
        for n in 0..parts {
            let part = match begin.wrapping_add(n) % parts {
                0 => home,
                other => &rest.parts[other - 1],
            };
            count += take(part, &mut into[count..]);
            if count == into.len() {
                break;
            }
        }
        count
    }

    /// Starts or stops to notify core of the next completion.
    pub(super) fn watch(&self, on: bool) {
        if self.lanes.only().is_none() {
            let mut rest = self.rest.lock();
            rest.watched = on;
            for part in &rest.parts {
                part.watch(on);
            }
        }
        if let Some(home) = self.home.get() {
            home.watch(on);
        }
    }

    /// Waits for a completion. As [`Hub::wait`].
    pub(super) fn wait(
        &self,
        permit: &Arc<Permit>,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Parked {
        if self.lanes.only().is_some()
            && let Some(home) = self.home.get()
        {
            return home.hub.wait(Some(home.id), permit, timeout, ready, &|| {});
        }
        // Queue pairs may join the queue during the wait.
        let home = {
            let mut rest = self.rest.lock();
            rest.waiting.push(Arc::clone(permit));
            self.home.get()
        };
        let before_sleep = || {
            for part in &self.rest.lock().parts {
                part.hub.wake_for(part.id, permit);
            }
        };
        let (hub, id) = match home {
            Some(home) => (&home.hub, Some(home.id)),
            None => (self.lanes.first(), None),
        };
        let parked = hub.wait(id, permit, timeout, ready, &before_sleep);
        let mut rest = self.rest.lock();
        rest.waiting.retain(|other| !Arc::ptr_eq(other, permit));
        for part in self.home.get().into_iter().chain(&rest.parts) {
            part.remove_sleeper(permit);
        }
        parked
    }
}

impl Part {
    fn create(hub: Arc<Hub>, lane: usize, token: Token) -> Result<Self> {
        let (id, turns) = {
            let mut state = hub.state.lock();
            let id = state.engine.create_cq().map_err(create_error)?;
            state.notices.add_cq(id, token);
            let occupancy = state.engine.occupancy(id).unwrap_or_default();
            (id, PollTurns::new(occupancy))
        };
        Ok(Self {
            lane,
            hub,
            id,
            turns,
        })
    }

    fn watch(&self, on: bool) {
        self.hub.with(|state, _| {
            state.notices.watch(self.id, on);
            if on {
                state.engine.arm_cq(self.id);
            }
        });
    }

    fn remove_sleeper(&self, permit: &Arc<Permit>) {
        let mut state = self.hub.state.lock();
        state.notices.remove_sleeper(self.id, permit);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        state.notices.remove_cq(self.id);
        state.engine.destroy_cq(self.id);
    }
}
