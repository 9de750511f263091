//! Who drives the engine.
//!
//! * A consumer that polls reads the socket itself, and so does one that waits: first it spins, then it sleeps on the descriptors as
//!   the *leader*. No other thread stands between a datagram and the consumer.
//! * The *helper* thread drives when no consumer does: for peers that read and write our memory while the program computes, for
//!   connections, for timers. While consumers poll it naps, because a thread that sleeps on the socket would be woken by each datagram.
//!   While a leader sleeps on the descriptors it rests.
//! * Where more threads run than there are processors (see [`crowd`]) the helper asks for short slices, sleeps longer than it works and naps
//!   shortly, and a consumer that polls in vain pauses.
//! * Upcalls are made with the lock released, by the helper or by a leader, one of them at a time: what happened to a connection is told
//!   in order.
//!
//! What a consumer leaves undone (acknowledgements held back for its answer, posts that wait for company) goes out with its next
//! call, at the latest when the helper looks after its nap, or when a datagram wakes the watch.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_core::transport::Parked;
use dat_os::sleep::Slept;
use softrxe_proto::{CompletedOp, Completion, CqId, PostError, Qpn, SendRequest, Time};

use super::clock;
use super::crowd::{self, FORFEIT, LOST, PAUSE, rest};
use super::events::{self, Job};
use super::habits::Spin;
use super::hub::{Hub, State};
use super::net::wake::{Wake, processors, sleep};
use super::park::Bell;
use super::slice::{self, Slice};

/// How long the helper naps while consumers poll.
const NAP: Duration = Duration::from_millis(1);
/// Polls between two that look at the mailboxes and not only at the socket.
const MAILBOXES: u32 = 64;
/// How long the helper spins at most after something arrived.
const LINGER: Duration = Duration::from_micros(30);
/// How long an adapter that is closed waits for confirmations: a DREQ goes out three times in it.
const FAREWELL: Duration = Duration::from_millis(900);
/// Empty polls that make a loop: the helper is sent to nap then.
const LOOP: u32 = 8;
/// A spinning waiter lets others run after this time.
const ALONE: Duration = Duration::from_micros(12);

/// Who sleeps on the descriptors, and so notices what arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Watch {
    /// Nobody: consumers poll, the helper naps.
    #[default]
    Nobody,
    /// The helper.
    Helper,
    /// A consumer, the leader.
    Leader,
}

/// Roles, under the hub's lock.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    pub(crate) watch: Watch,
    /// When the watch wakes by itself.
    pub(crate) until: Option<Time>,
    /// The helper sleeps until it is called.
    resting: bool,
    /// The helper was called and has not come yet.
    called: bool,
    /// Grows with each look of a consumer.
    polls: u32,
    /// Its value when the helper or the leader last took the watch.
    watched_since: u32,
    /// The leader keeps off the socket, because others poll.
    leader_naps: bool,
    /// Waiters that sleep because another one leads.
    followers: Vec<Arc<Bell>>,
}

impl Roles {
    /// Does nobody sleep on the socket, and does somebody look after it soon?
    fn is_left_to_polls(&self) -> bool {
        self.watch == Watch::Nobody || self.watch == Watch::Leader && self.leader_naps
    }
}

/// How the helper spends its time.
enum Plan {
    Nap,
    Rest,
    Watch(Option<Time>),
}

impl Hub {
    /// Takes completions; without any looks what has arrived. Returns how many, and whether the caller is to [pause](Self::pause).
    pub(crate) fn poll(&self, cq: CqId, into: &mut [Completion]) -> (usize, bool) {
        let mut state = self.state.lock();
        let mut count = state.engine.poll_cq(cq, into);
        let now = clock::now();
        state.batch.called(now);
        if count == 0 && (state.answers.just_handed(now) || state.echoes.just_shown(now)) {
            return (0, false);
        }
        if count == 0 {
            state.answers.passed();
            state.echoes.passed();
            state.roles.polls = state.roles.polls.wrapping_add(1);
            let all = state.roles.polls.is_multiple_of(MAILBOXES);
            self.take_in(&mut state, now, all);
            count = state.engine.poll_cq(cq, into);
            self.relieve(&mut state);
            let written = count == 0 && state.engine.owes_ack();
            let expected = match (count, written) {
                (0, false) => false,
                (0, true) => state.echoes.expected(),
                _ => state.answers.expected(),
            };
            // Held back only where somebody looks after it, whatever the consumer does next.
            let hold = expected && state.roles.is_left_to_polls();
            self.flush(&mut state, now, hold);
            self.call(&mut state);
            if written {
                state.echoes.handed(now);
            }
        }
        let message = |done: &Completion| {
            matches!(done.op, CompletedOp::Receive | CompletedOp::ReceiveWriteImm)
        };
        if into[..count].iter().any(message) {
            state.answers.handed(now);
        }
        let pause = if count == 0 {
            let State { vain, crowd, .. } = &mut *state;
            vain.polled(crowd, now, slice::preempted)
        } else {
            state.vain.found();
            false
        };
        (count, pause)
    }

    /// Sleeps until something arrives, for [`PAUSE`] at most. A consumer that polls in a loop where processors are few keeps its peers on this host from
    /// sending what it polls for.
    pub(crate) fn pause(&self) {
        let fds = [self.socket.as_raw_fd(), self.bundle.as_raw_fd()];
        let _ = sleep(fds, Some(PAUSE));
    }

    /// Posts a request and sends it, or leaves it for the next call if more are likely to follow.
    pub(crate) fn post(&self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        let mut state = self.state.lock();
        let now = clock::now();
        let busy = state.engine.in_flight(qpn);
        state.engine.post_send(now, qpn, request)?;
        state.answers.posted(now);
        state.echoes.posted(now);
        let bytes = request.sges.iter().map(|sge| u64::from(sge.length)).sum();
        if state.batch.posted(now, bytes, busy) {
            self.flush(&mut state, now, false);
            // Sending took a while, of which a full run is the longest.
            state.batch.returned(clock::now());
        } else {
            self.collect(&mut state);
        }
        self.call(&mut state);
        Ok(())
    }

    /// Waits for a completion of `cq` or a ring of `bell`, driving the engine meanwhile. Without `cq` what is waited for is told by
    /// an upcall: a CNO's, or an event that is no completion.
    pub(crate) fn wait(
        self: &Arc<Self>,
        cq: Option<CqId>,
        bell: &Arc<Bell>,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Parked {
        let begin = Instant::now();
        let left = || timeout.map(|t| t.saturating_sub(begin.elapsed()));
        let budget = self.state.lock().spin(cq).budget();
        let budget = timeout.map_or(budget, |t| t.min(budget));
        loop {
            // Who waits for a queue looks what has arrived by asking it.
            if cq.is_none() {
                self.look();
            }
            if ready() {
                if begin.elapsed() < budget {
                    self.state.lock().spin(cq).hit();
                }
                return Parked::Woken;
            }
            let spent = begin.elapsed();
            if spent >= budget {
                break;
            }
            if spent > ALONE {
                std::thread::yield_now();
            }
        }
        let spun = begin.elapsed();
        let mut leads = {
            let mut state = self.state.lock();
            if let Some(cq) = cq {
                if let Some(notice) = state.cqs.get_mut(&cq) {
                    notice.sleepers.push(Arc::clone(bell));
                }
                state.engine.arm_cq(cq);
            }
            let leads = self.take_lead(&mut state);
            if !leads {
                state.roles.followers.push(Arc::clone(bell));
            }
            leads
        };
        let ended = match (ready(), leads) {
            (true, _) => Parked::Woken,
            (false, true) => self.lead(bell, &mut leads, left),
            (false, false) => bell.sleep(left()),
        };
        let mut state = self.state.lock();
        state.spin(cq).missed(spun, begin.elapsed());
        if let Some(notice) = cq.and_then(|cq| state.cqs.get_mut(&cq)) {
            notice.sleepers.retain(|other| !Arc::ptr_eq(other, bell));
        }
        if leads {
            state.roles.watch = Watch::Nobody;
            state.roles.polls = state.roles.polls.wrapping_add(1);
            // Somebody has to watch: the next waiter, or the helper if that one does not wait again.
            if let Some(next) = state.roles.followers.pop() {
                next.ring();
            }
            if state.roles.resting {
                self.summon(&mut state);
            }
        } else {
            let followers = &mut state.roles.followers;
            followers.retain(|other| !Arc::ptr_eq(other, bell));
        }
        ended
    }

    /// Makes the caller the leader if there is none.
    fn take_lead(&self, state: &mut State) -> bool {
        match state.roles.watch {
            Watch::Leader => return false,
            Watch::Helper => self.summon(state),
            Watch::Nobody => {}
        }
        state.roles.watch = Watch::Leader;
        state.roles.leader_naps = false;
        state.roles.watched_since = state.roles.polls;
        state.roles.until = None;
        true
    }

    /// Looks what has arrived, and tells core of it.
    fn look(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let now = clock::now();
        state.batch.called(now);
        state.roles.polls = state.roles.polls.wrapping_add(1);
        let all = state.roles.polls.is_multiple_of(MAILBOXES);
        self.take_in(&mut state, now, all);
        self.relieve(&mut state);
        self.collect(&mut state);
        let news = state.has_news();
        // What the consumer is about to be told of it may answer.
        let hold = news && state.answers.expected() && state.roles.is_left_to_polls();
        self.flush(&mut state, now, hold);
        if news {
            drop(state);
            self.tell();
        } else {
            self.call(&mut state);
        }
    }

    /// Makes the upcalls that are due, unless another thread is at it: then the helper makes what that one leaves.
    fn tell(self: &Arc<Self>) {
        let turn = self.turn.try_lock();
        loop {
            let jobs = {
                let mut state = self.state.lock();
                if turn.is_none() || !state.has_news() {
                    self.call(&mut state);
                    return;
                }
                let now = clock::now();
                self.take_jobs(&mut state, now)
            };
            for job in jobs {
                job.run(self.upcalls);
            }
        }
    }

    /// The upcalls that what happened calls for. The caller has the turn.
    fn take_jobs(self: &Arc<Self>, state: &mut State, now: Time) -> VecDeque<Job> {
        let mut jobs = std::mem::take(&mut state.jobs);
        while let Some(event) = state.events.pop_front() {
            jobs.extend(events::job(self, state, now, event));
        }
        jobs
    }

    /// Sleeps on the descriptors and drives the engine, until `bell` rings or the time is over. `leads` becomes false where another
    /// thread has taken the lead meanwhile.
    fn lead(
        self: &Arc<Self>,
        bell: &Bell,
        leads: &mut bool,
        left: impl Fn() -> Option<Duration>,
    ) -> Parked {
        loop {
            let (due, naps) = {
                let mut state = self.state.lock();
                let now = clock::now();
                if !self.take_in(&mut state, now, true)
                    && state.deaf_until.is_none()
                    && self.lives.is_readable()
                {
                    self.summon(&mut state);
                }
                let hold = state.answers.expected();
                self.flush(&mut state, now, hold);
                if state.has_news() {
                    // What is told may wait itself: it finds the lead free.
                    state.roles.watch = Watch::Nobody;
                    drop(state);
                    self.tell();
                    state = self.state.lock();
                    *leads = self.take_lead(&mut state);
                    if !*leads {
                        return Parked::Woken;
                    }
                }
                if bell.take() {
                    self.call(&mut state);
                    return Parked::Woken;
                }
                // Not about to answer after all.
                self.flush(&mut state, now, false);
                if state.deaf_until.is_none() && state.share.holder_is_gone() {
                    self.summon(&mut state);
                }
                self.call(&mut state);
                state.roles.until = state.engine.poll_timeout();
                let due = state.roles.until.map(|at| at.since(now).max(LATE));
                let roles = &mut state.roles;
                roles.leader_naps = roles.polls.wrapping_sub(roles.watched_since) >= LOOP;
                roles.watched_since = roles.polls;
                (due, roles.leader_naps)
            };
            let left = left();
            if left == Some(Duration::ZERO) {
                return Parked::TimedOut;
            }
            let limit = match (due, left) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            if bell.listen(&self.leader_wake) {
                let slept = if naps {
                    let limit = limit.map_or(NAP, |limit| limit.min(NAP));
                    sleep([self.leader_wake.as_raw_fd()], Some(limit))
                } else {
                    self.listen(&self.leader_wake, limit)
                };
                bell.unlisten();
                self.leader_wake.clear();
                if let Slept::Interrupted | Slept::Cancelled = slept {
                    return slept.into();
                }
            }
        }
    }

    /// Sleeps until something arrives, or `call` is rung.
    fn listen(&self, call: &Wake, limit: Option<Duration>) -> Slept {
        let fds = [
            self.socket.as_raw_fd(),
            self.bundle.as_raw_fd(),
            call.as_raw_fd(),
        ];
        sleep(fds, limit)
    }

    /// Has the helper come if there is something for it, or the watch if it would wake too late.
    pub(crate) fn call(&self, state: &mut State) {
        if state.has_news() {
            self.summon(state);
            return;
        }
        let due = state.engine.poll_timeout();
        let late = match (due, state.roles.until) {
            (Some(due), Some(until)) => due < until,
            (due, None) => due.is_some(),
            _ => false,
        };
        if late {
            state.roles.until = due;
            match state.roles.watch {
                Watch::Helper => self.summon(state),
                Watch::Leader => self.leader_wake.ring(),
                Watch::Nobody => {}
            }
        }
    }

    /// Sends the helper or the leader from the socket to its nap once a consumer polls in a loop. It would sleep on there: what
    /// wakes it is gone when it looks, and each wake-up costs the sender.
    fn relieve(&self, state: &mut State) {
        let roles = &mut state.roles;
        if roles.polls.wrapping_sub(roles.watched_since) < LOOP {
            return;
        }
        match roles.watch {
            Watch::Helper => {
                roles.watch = Watch::Nobody;
                self.summon(state);
            }
            Watch::Leader if !std::mem::replace(&mut roles.leader_naps, true) => {
                self.leader_wake.ring();
            }
            _ => {}
        }
    }

    fn summon(&self, state: &mut State) {
        if !std::mem::replace(&mut state.roles.called, true) {
            self.wake.ring();
        }
    }

    /// The helper thread's life.
    pub(crate) fn run(self: &Arc<Self>) {
        self.help();
        self.take_leave();
        // Nobody is left to tell. Requests among them keep the hub, which has them: dropped without the lock, they are refused.
        let untold = std::mem::take(&mut self.state.lock().jobs);
        drop(untold);
    }

    /// Stays until the peers know that their connections are over, for a moment at most: when this process is gone nobody repeats a DREQ
    /// that was lost.
    fn take_leave(self: &Arc<Self>) {
        let end = Instant::now() + FAREWELL;
        loop {
            self.wake.clear();
            self.inherit();
            let due = {
                let mut state = self.state.lock();
                let now = clock::now();
                self.take_leave_of(&mut state, now);
                self.take_in(&mut state, now, true);
                self.flush(&mut state, now, false);
                if !state.engine.is_leaving() {
                    return;
                }
                state.engine.poll_timeout()
            };
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let due = due.map_or(left, |at| at.since(clock::now()).max(LATE));
            let _ = self.listen(&self.wake, Some(due.min(left)));
        }
    }

    fn help(self: &Arc<Self>) {
        let mut polls = 0;
        let mut spin = Spin::new(LINGER, processors());
        let mut slept: Option<(Duration, Instant)> = None;
        let mut asked = Slice::Usual;
        slice::sleep_exactly();
        while !self.stop.load(Ordering::Acquire) {
            let woken = Instant::now();
            self.wake.clear();
            self.inherit();
            self.mourn();
            // A leader that has it makes all upcalls, and calls again for what is left.
            let turn = self.turn.try_lock();
            let (jobs, plan, busy, crowded, deaf_until) = {
                let mut state = self.state.lock();
                let now = clock::now();
                let crowded = state.crowd.is_here(now);
                state.roles.called = false;
                state.roles.resting = false;
                // A few polls are no loop: the consumer may poll its memory now, for what nobody else would take in.
                let polled = state.roles.polls.wrapping_sub(polls) >= LOOP;
                let driven = polled || state.roles.watch == Watch::Leader;
                polls = state.roles.polls;
                let mut busy = false;
                if !driven {
                    busy = self.take_in(&mut state, now, true);
                    if let (true, Some((spun, since))) = (busy, slept.take()) {
                        spin.missed(spun, since.elapsed());
                    }
                    self.flush(&mut state, now, false);
                }
                let jobs = match &turn {
                    Some(_) => self.take_jobs(&mut state, now),
                    None => VecDeque::new(),
                };
                // Who makes upcalls makes these too, but for what came as it was about to leave.
                if state.has_news() {
                    if state.roles.watch == Watch::Helper {
                        state.roles.watch = Watch::Nobody;
                    }
                    (jobs, Plan::Nap, busy, crowded, state.deaf_until)
                } else {
                    let plan = self.plan(&mut state, driven);
                    (jobs, plan, busy, crowded, state.deaf_until)
                }
            };
            let idle = jobs.is_empty();
            for job in jobs {
                job.run(self.upcalls);
            }
            drop(turn);
            if crowded && std::mem::replace(&mut asked, Slice::Short) != Slice::Short {
                Slice::Short.ask();
            }
            if !idle {
                continue;
            }
            let again = || deaf_until.map(|end| end.saturating_duration_since(Instant::now()));
            match plan {
                Plan::Nap => {
                    let nap = if crowded { crowd::NAP } else { NAP };
                    let _ = sleep([self.wake.as_raw_fd()], Some(nap));
                }
                Plan::Rest => drop(sleep([self.wake.as_raw_fd()], again())),
                Plan::Watch(due) => {
                    if busy && crowded {
                        // Not woken by what arrives: a wake-up that comes too early waits for a tick.
                        let rest = rest(woken.elapsed());
                        let _ = sleep([self.wake.as_raw_fd()], Some(rest));
                        continue;
                    }
                    if busy {
                        let (begin, spun) = (Instant::now(), spin.budget());
                        let found = self.linger(spun);
                        if begin.elapsed() >= spun + LOST {
                            self.state.lock().crowd.lost(clock::now());
                            let _ = sleep([self.wake.as_raw_fd()], Some(FORFEIT));
                            continue;
                        }
                        if std::mem::replace(&mut asked, Slice::Usual) != Slice::Usual {
                            Slice::Usual.ask();
                        }
                        if found {
                            spin.hit();
                            continue;
                        }
                        slept = Some((spun, begin));
                    }
                    let limit = due.map(|at| at.since(clock::now()).max(LATE));
                    let limit = [limit, again()].into_iter().flatten().min();
                    let _ = self.listen(&self.wake, limit);
                }
            }
        }
    }

    /// What the helper does next; takes the watch if nobody else drives.
    fn plan(&self, state: &mut State, driven: bool) -> Plan {
        if state.roles.watch == Watch::Leader {
            state.roles.resting = true;
            return Plan::Rest;
        }
        if driven {
            state.roles.watch = Watch::Nobody;
            return Plan::Nap;
        }
        state.roles.watch = Watch::Helper;
        state.roles.watched_since = state.roles.polls;
        state.roles.until = state.engine.poll_timeout();
        Plan::Watch(state.roles.until)
    }

    /// After something arrived, looks for this long whether more does. `true`: look again.
    fn linger(&self, budget: Duration) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < budget {
            std::thread::yield_now();
            let mut state = self.state.lock();
            if state.roles.watch != Watch::Helper || state.roles.called {
                return true;
            }
            let now = clock::now();
            if self.take_in(&mut state, now, false) {
                self.flush(&mut state, now, false);
                return true;
            }
        }
        false
    }
}

/// Never a busy loop on a deadline that is just being reached.
const LATE: Duration = Duration::from_micros(50);
