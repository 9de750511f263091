//! Threads that wait: they spin, and then sleep. One of them leads: it sleeps on the descriptors, and drives the adapter.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_core::transport::Parked;
use dat_os::sleep::{Slept, on_readable};
use softrxe_proto::{CqId, Time};

use super::super::hub::Hub;
use super::super::state::{Arrived, State};
use super::helper::POLL_SLEEP;
use super::roles::{MIN_SLEEP, Watcher};
use super::state::Driver;
use crate::adaptive::oversubscription::PREEMPTED;
use crate::clock;
use crate::wait::Permit;

/// A spinning waiter yields to other threads after this time.
const YIELD_AFTER: Duration = Duration::from_micros(12);

/// How long a leader polls at most before it looks at everything: peers that have ended, the port's holder, signals.
const MAX_RUN: Duration = Duration::from_millis(1);

/// Pauses of the processor between two looks of such a leader, about a microsecond: a stream then arrives in runs, each with one
/// acknowledgement.
const BETWEEN_LOOKS: u32 = 48;

/// Looks of a spinning waiter for which the clock is read once: a look takes as long as a few readings.
const LOOKS_OF_A_READING: u32 = 4;

/// What the leader does after a look.
enum Step {
    /// Something has arrived since.
    LookAgain,
    /// Polls for more, for this time.
    Spin(Duration),
    /// Sleeps, for at most `limit`.
    Sleep {
        limit: Option<Duration>,
        /// Other consumers poll: the sleep is for a fixed time.
        ignores_socket: bool,
    },
}

impl Hub {
    /// Waits for a completion of `cq`, or until `permit` is given, and drives the engine meanwhile. Without `cq` an upcall
    /// gives the permit: that of a CNO, or of an event that is no completion. Calls `before_sleep` after the spin.
    pub(crate) fn wait(
        self: &Arc<Self>,
        cq: Option<CqId>,
        permit: &Arc<Permit>,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
        before_sleep: &dyn Fn(),
    ) -> Parked {
        let begin = Instant::now();
        let left = || timeout.map(|t| t.saturating_sub(begin.elapsed()));
        let spin = *self.state.lock().driver.spin(cq);
        let budget = timeout.map_or(spin.budget(), |t| t.min(spin.budget()));
        for look in 0_u32.. {
            // `ready` polls the completion queue, which receives what has arrived.
            if cq.is_none() {
                self.poll_for_upcalls();
            }
            if ready() {
                if !spin.is_full() && begin.elapsed() < budget {
                    self.state.lock().driver.spin(cq).hit();
                }
                return Parked::Woken;
            }
            if !look.is_multiple_of(LOOKS_OF_A_READING) {
                continue;
            }
            let spent = begin.elapsed();
            if spent >= budget {
                break;
            }
            if spent > YIELD_AFTER {
                std::thread::yield_now();
            }
        }
        before_sleep();
        let spun = begin.elapsed();
        let mut leads = {
            let mut state = self.state.lock();
            if let Some(cq) = cq {
                state.notices.add_sleeper(cq, permit);
                state.engine.arm_cq(cq);
            }
            let due = state.engine.poll_timeout();
            let roles = &mut state.driver.roles;
            let leads = roles.take_lead(due, &self.wakers);
            if !leads {
                roles.followers.push(Arc::clone(permit));
                roles.watch_again(&self.wakers);
            }
            leads
        };
        let ended = match (ready(), leads) {
            (true, _) => Parked::Woken,
            (false, true) => self.lead(permit, &mut leads, left),
            (false, false) => permit.sleep(left()),
        };
        let mut state = self.state.lock();
        state.driver.spin(cq).missed(spun, begin.elapsed());
        if let Some(cq) = cq {
            state.notices.remove_sleeper(cq, permit);
        }
        let roles = &mut state.driver.roles;
        if leads {
            roles.give_up_lead(&self.wakers);
        } else {
            roles.followers.retain(|other| !Arc::ptr_eq(other, permit));
        }
        ended
    }

    /// Makes completions of `cq` wake `permit`, on which a thread is about to sleep in another lane.
    pub(crate) fn wake_for(&self, cq: CqId, permit: &Arc<Permit>) {
        let mut state = self.state.lock();
        state.notices.remove_sleeper(cq, permit);
        state.notices.add_sleeper(cq, permit);
        state.engine.arm_cq(cq);
        state.driver.roles.watch_for_sleeper(&self.wakers);
    }

    /// Receives what has arrived, and runs the upcalls that follow from it.
    fn poll_for_upcalls(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let now = state.now();
        state.driver.batch.called(now);
        let mailbox = state.driver.roles.count_poll() && !state.near.cadence().is_busy();
        state.receive(now, mailbox);
        let watched = state.notices.any_watched();
        let roles = &mut state.driver.roles;
        roles.stop_watching_socket(watched, &self.wakers);
        state.collect_events();
        let any = state.pending.has_upcalls();
        // The consumer may reply to what the upcalls report.
        let Driver { replies, roles, .. } = &state.driver;
        let hold = any && replies.reply_expected() && roles.is_left_to_polls();
        state.transmit(now, hold);
        if any {
            drop(state);
            self.run_upcalls();
        } else {
            self.wake(&mut state);
        }
    }

    /// Sleeps on the descriptors and drives the engine, until `permit` is given or the time is over. `leads` becomes false if another
    /// thread has taken the lead meanwhile.
    #[cold]
    fn lead(
        self: &Arc<Self>,
        permit: &Permit,
        leads: &mut bool,
        left: impl Fn() -> Option<Duration>,
    ) -> Parked {
        let mut woken = false;
        let mut spun: Option<(Duration, Instant)> = None;
        loop {
            let Some(step) = self.look(permit, leads, woken, &mut spun) else {
                return Parked::Woken;
            };
            let left = left();
            // Also where a peer keeps this thread from sleeping.
            if left == Some(Duration::ZERO) {
                return Parked::TimedOut;
            }
            match step {
                Step::LookAgain => {}
                Step::Spin(budget) => {
                    let begin = Instant::now();
                    let budget_left = left.map_or(budget, |left| left.min(budget));
                    let found = self.spin_for_more(permit, budget_left);
                    spun = (!found).then_some((budget, begin));
                    woken = false;
                    // A stream that does not end keeps this thread from sleeping, where it would notice that it was cancelled.
                    if begin.elapsed() >= MAX_RUN
                        && on_readable([self.wakers.leader.as_raw_fd()], Some(Duration::ZERO))
                            == Slept::Cancelled
                    {
                        return Parked::Cancelled;
                    }
                }
                Step::Sleep {
                    limit,
                    ignores_socket,
                } => {
                    let limit = [limit, left].into_iter().flatten().min();
                    if let Some(slept) = self.sleep_as_leader(permit, limit, ignores_socket) {
                        woken = true;
                        if let Slept::Interrupted | Slept::Cancelled = slept {
                            return slept.into();
                        }
                    }
                }
            }
        }
    }

    /// Receives, transmits and runs upcalls as the leader, and decides what it does next; `None` if its wait has ended, or another thread
    /// leads. `woken`: a sleep has just ended. `spun` is the last spin that found nothing.
    fn look(
        self: &Arc<Self>,
        permit: &Permit,
        leads: &mut bool,
        woken: bool,
        spun: &mut Option<(Duration, Instant)>,
    ) -> Option<Step> {
        let mut state = self.state.lock();
        let now = clock::now();
        state.disarm();
        // What most sleeps end with comes first. The helper does what this leaves.
        let arrived = if woken {
            state.receive_records(now)
        } else {
            Arrived::Nothing
        };
        if arrived == Arrived::Handled && permit.take() {
            return None;
        }
        // A signal that comes later is still there when the thread sleeps.
        self.wakers.leader.clear();
        if state.driver.roles.leader_ignores_socket {
            state.expect_ends(now);
        }
        if state.near.hear() {
            state.driver.roles.wake_helper(&self.wakers);
        }
        let received = state.receive(now, true);
        if !received
            && state.peers.back_off_until().is_none()
            && self.descriptors.liveness_changed()
        {
            state.driver.roles.wake_helper(&self.wakers);
        }
        let hold = state.driver.replies.reply_expected();
        state.transmit(now, hold);
        if state.pending.has_upcalls() {
            // An upcall may call a wait, which must be able to take the lead.
            state.driver.roles.watcher = Watcher::None;
            drop(state);
            self.run_upcalls();
            state = self.state.lock();
            let due = state.engine.poll_timeout();
            *leads = state.driver.roles.take_lead(due, &self.wakers);
            if !*leads {
                return None;
            }
        }
        if permit.take() {
            self.wake(&mut state);
            return None;
        }
        // The consumer is not about to reply after all.
        state.transmit(now, false);
        let found = received || arrived != Arrived::Nothing;
        Some(self.decide(&mut state, now, found, spun))
    }

    /// Decides what the leader does after a look, and prepares its sleep. `found`: something arrived that ended no wait.
    fn decide(
        &self,
        state: &mut State,
        now: Time,
        found: bool,
        spun: &mut Option<(Duration, Instant)>,
    ) -> Step {
        let due = state.engine.poll_timeout();
        state.driver.roles.wakes_at = due;
        self.leave_to_helper(state);
        let watched = state.notices.any_watched();
        let roles = &mut state.driver.roles;
        let ignores_socket = roles.polled_in_a_loop(watched);
        roles.leader_ignores_socket = ignores_socket;
        roles.watched_since = roles.polls;
        if !ignores_socket {
            let budget = if found {
                state.driver.budget_for_more(spun.take(), now)
            } else {
                Duration::ZERO
            };
            if !budget.is_zero() {
                return Step::Spin(budget);
            }
            if !state.arm(now) {
                return Step::LookAgain;
            }
        }
        Step::Sleep {
            limit: due.map(|at| at.since(now).max(MIN_SLEEP)),
            ignores_socket,
        }
    }

    /// Sleeps on the descriptors, or for a fixed time if the leader `ignores_socket`. `None`: the permit is given.
    fn sleep_as_leader(
        &self,
        permit: &Permit,
        limit: Option<Duration>,
        ignores_socket: bool,
    ) -> Option<Slept> {
        if !permit.listen(&self.wakers.leader) {
            return None;
        }
        let slept = if ignores_socket {
            let limit = limit.map_or(POLL_SLEEP, |limit| limit.min(POLL_SLEEP));
            on_readable([self.wakers.leader.as_raw_fd()], Some(limit))
        } else {
            self.descriptors.sleep_or_wake(&self.wakers.leader, limit)
        };
        permit.unlisten();
        Some(slept)
    }

    /// Polls for `budget` after something arrived that ended no wait, as each of a peer's RDMA writes, and again after each that
    /// follows. Returns whether any did. Without this each write would find a sleeping target, and wake it.
    fn spin_for_more(&self, permit: &Permit, budget: Duration) -> bool {
        let first = clock::now();
        let (mut begin, mut last, mut found) = (first, first, false);
        while last.since(begin) < budget && last.since(first) < MAX_RUN {
            if last.since(begin) > YIELD_AFTER {
                std::thread::yield_now();
            } else {
                (0..BETWEEN_LOOKS).for_each(|_| std::hint::spin_loop());
            }
            if permit.is_given() {
                return true;
            }
            let mut state = self.state.lock();
            let now = clock::now();
            let before = std::mem::replace(&mut last, now);
            if now.since(before) >= PREEMPTED {
                state.driver.oversubscription.preempted(now);
                return found;
            }
            if state.receive(now, false) {
                state.transmit(now, false);
                if !std::mem::replace(&mut found, true) {
                    state.driver.spin_for_more.hit();
                }
                if state.pending.has_upcalls() || state.near.is_unfinished() {
                    return true;
                }
                begin = now;
            }
        }
        found
    }

    /// Wakes the helper for what the leader does not do, before the leader sleeps.
    fn leave_to_helper(&self, state: &mut State) {
        if state.peers.back_off_until().is_none() && state.ports.holder_is_gone() {
            state.driver.roles.wake_helper(&self.wakers);
        }
        self.wake(state);
    }
}
