//! The helper thread.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_os::schedule::{self, Slice, processors};
use dat_os::sleep::{Slept, on_readable};
use dat_os::spin::Spin;
use softrxe_proto::Time;

use super::super::hub::Hub;
use super::super::state::State;
use super::super::upcall::Upcall;
use super::roles::{MIN_SLEEP, Watcher, make_a_loop};
use crate::adaptive::oversubscription::{
    OVERSUBSCRIBED_POLL_SLEEP, PREEMPTED, REST_AFTER_YIELD, rest,
};
use crate::clock;

/// How long the helper sleeps between two reads of the socket while consumers poll.
pub(super) const POLL_SLEEP: Duration = Duration::from_millis(1);
/// Number of such sleeps without a round between them, if a consumer polled in a loop during each.
const MAX_SKIPPED_ROUNDS: u32 = 8;
/// The first of these sleeps while a completion queue is watched; each one is twice as long as the one before. A consumer may
/// have stopped to poll and sleep on a CNO's descriptor. The same beside a consumer that is likely to read its memory only.
const FIRST_WATCHED_SLEEP: Duration = Duration::from_micros(20);
/// Largest spin budget of the helper after something arrived.
const MAX_HELPER_SPIN: Duration = Duration::from_micros(30);

/// What the helper does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plan {
    /// Sleeps for this time: consumers poll.
    SleepFor(Duration),
    /// Sleeps until it is woken: a leader watches.
    SleepUntilWoken,
    /// Sleeps on the descriptors until this deadline.
    Watch(Option<Time>),
}

/// Result of the part of a round that runs under the lock.
struct Round {
    upcalls: VecDeque<Upcall>,
    plan: Plan,
    /// Something arrived.
    busy: bool,
    /// The helper may do what is planned: the descriptors are prepared for a sleep, or it spins before it prepares them.
    may_sleep: bool,
    oversubscribed: bool,
    /// A peer closed its channel, whose connections the next [`Hub::reap_peers`] breaks.
    hung_up: bool,
    back_off_until: Option<Instant>,
}

impl Round {
    /// Returns how long the helper may sleep before it has to try again what the port's holder did not take.
    fn back_off(&self) -> Option<Duration> {
        let end = self.back_off_until?;
        Some(end.saturating_duration_since(Instant::now()))
    }
}

/// What the consumers' threads do, as a round finds it.
#[derive(Clone, Copy)]
struct Consumers {
    /// A leader watches the descriptors.
    leads: bool,
    /// A thread other than the helper drives.
    driven: bool,
    /// The thread that polled has lost its processor, or does something else.
    are_away: bool,
    /// No thread has polled for a moment.
    are_gone: bool,
}

/// What the helper thread keeps between its rounds.
struct Helper {
    /// Number of consumers' polls at the last round.
    polls: u32,
    spin: Spin,
    /// The last spin that found nothing: how long it was, and when it began.
    missed_spin: Option<(Duration, Instant)>,
    /// The time slice that the thread requested last.
    slice: Slice,
    /// The thread does not preempt the thread that wakes it.
    lets_wakers_run: bool,
}

impl Helper {
    fn new() -> Self {
        Self {
            polls: 0,
            spin: Spin::new(MAX_HELPER_SPIN, processors()),
            missed_spin: None,
            slice: Slice::Default,
            lets_wakers_run: false,
        }
    }

    /// Requests `slice` for the helper thread, unless it has that.
    fn request(&mut self, slice: Slice) {
        if std::mem::replace(&mut self.slice, slice) != slice
            && let Err(error) = slice.request()
        {
            tracing::debug!(%error, "sched_setattr refused a time slice of {slice:?} length");
        }
    }

    /// Makes the helper thread one that does not preempt the thread that wakes it, or an ordinary one again.
    fn let_wakers_run(&mut self, on: bool) {
        if std::mem::replace(&mut self.lets_wakers_run, on) != on
            && let Err(error) = schedule::let_wakers_run(on)
        {
            tracing::debug!(%error, "sched_setattr refused a scheduling policy");
        }
    }
}

impl Hub {
    /// Runs the helper thread until [`end`](Self::end) is called.
    pub(crate) fn run(self: &Arc<Self>) {
        self.helper_thread
            .store(dat_arena::current_thread(), Ordering::Release);
        self.help();
        self.leave_peers();
        self.refuse_requests();
        // exit(3) may have asked when a consumer closed the adapter.
        self.say_end_if_asked();
    }

    fn help(self: &Arc<Self>) {
        let mut helper = Helper::new();
        schedule::sleep_exactly();
        loop {
            let woken = Instant::now();
            self.helper_runs.fetch_add(1, Ordering::Relaxed);
            // The wake-up of an end that comes after this is still there when the thread sleeps.
            self.wakers.helper.clear();
            if self.is_ending() {
                return;
            }
            self.say_end_if_asked();
            self.take_over_port();
            self.reap_peers();
            // A leader that holds the lock runs all upcalls, and wakes the helper for what it leaves.
            let upcall_lock = self.upcall_lock.try_lock();
            let mut round = self.round(upcall_lock.is_some(), &mut helper);
            let upcalls = std::mem::take(&mut round.upcalls);
            let idle = upcalls.is_empty();
            for upcall in upcalls {
                self.run_upcall(upcall);
            }
            drop(upcall_lock);
            if round.oversubscribed {
                helper.request(Slice::Short);
            }
            if !idle || round.hung_up {
                continue;
            }
            // Where a leader gives up the lead, its thread is to return from its wait before this one gets the processor.
            helper.let_wakers_run(round.plan == Plan::SleepUntilWoken);
            match round.plan {
                Plan::SleepFor(limit) => self.sleep_beside_polls(limit),
                Plan::SleepUntilWoken => {
                    let _ = on_readable([self.wakers.helper.as_raw_fd()], round.back_off());
                }
                Plan::Watch(due) => self.watch(&mut helper, &round, woken, due),
            }
        }
    }

    /// Sleeps on the descriptors until `due`. If something arrived in the round, which began at `woken`, the helper spins first, or rests where
    /// processors are few.
    fn watch(&self, helper: &mut Helper, round: &Round, woken: Instant, due: Option<Time>) {
        if round.busy && round.oversubscribed {
            // Sleeps on the eventfd only, so packets do not wake it early: it would then run at the next scheduler tick.
            return self.rest(rest(woken.elapsed()));
        }
        let mut may_sleep = round.may_sleep;
        if round.busy {
            let (begin, spun) = (Instant::now(), helper.spin.budget());
            let found = self.spin(spun);
            if begin.elapsed() >= spun + PREEMPTED {
                let mut state = self.state.lock();
                state.driver.oversubscription.preempted(clock::now());
                drop(state);
                return self.rest(REST_AFTER_YIELD);
            }
            helper.request(Slice::Default);
            if found {
                helper.spin.hit();
                return;
            }
            helper.missed_spin = Some((spun, begin));
            may_sleep = self.state.lock().arm(clock::now());
        }
        let due = due.map(|at| at.since(clock::now()).max(MIN_SLEEP));
        let limit = [due, round.back_off()].into_iter().flatten().min();
        if may_sleep {
            let _ = self.descriptors.sleep_or_wake(&self.wakers.helper, limit);
        }
    }

    /// Sleeps for `limit`, unless another thread wakes it. Packets do not.
    fn rest(&self, limit: Duration) {
        let _ = on_readable([self.wakers.helper.as_raw_fd()], Some(limit));
    }

    /// Sleeps for `limit`, unless it is woken, and some times more while a consumer goes on polling in a loop. A round has nothing to do then, and
    /// its lock would make the consumer wait.
    fn sleep_beside_polls(&self, limit: Duration) {
        let mut before = self.state.receptions();
        for _ in 0..MAX_SKIPPED_ROUNDS {
            let slept = on_readable([self.wakers.helper.as_raw_fd()], Some(limit));
            let now = self.state.receptions();
            let polls = now.wrapping_sub(std::mem::replace(&mut before, now));
            if slept != Slept::TimedOut || limit < POLL_SLEEP || !make_a_loop(polls, true) {
                return;
            }
            self.helper_runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Receives and transmits, unless another thread drives, takes the upcalls that the helper is to run, and plans what it does next.
    fn round(&self, runs_upcalls: bool, helper: &mut Helper) -> Round {
        let mut state = self.state.lock();
        let now = clock::now();
        let oversubscribed = state.driver.oversubscription.is_present(now);
        let consumers = self.consumers(&mut state, now, helper.polls);
        let Consumers { leads, driven, .. } = consumers;
        if !leads {
            state.disarm();
        }
        if driven && !leads {
            state.expect_ends(now);
        }
        let hung_up = !leads && state.near.hear();
        helper.polls = state.driver.roles.polls;
        let mut busy = false;
        if !driven || consumers.are_away {
            let received = state.receive(now, true);
            let has_slept = !state.driver.roles.helper_slept_for.is_zero();
            if received && consumers.are_gone && has_slept && !oversubscribed {
                state.driver.loop_exit.left_alone();
            }
            if !driven {
                busy = received;
                if let (true, Some((spun, since))) = (busy, helper.missed_spin.take()) {
                    helper.spin.missed(spun, since.elapsed());
                }
            }
            state.transmit(now, false);
        }
        let upcalls = if runs_upcalls {
            self.take_upcalls(&mut state, now)
        } else {
            VecDeque::new()
        };
        let plan = if state.pending.has_upcalls() {
            // The thread that holds the upcall lock runs these too, except those that came when it was about to release the lock.
            let roles = &mut state.driver.roles;
            if roles.watcher == Watcher::Helper {
                roles.watcher = Watcher::None;
            }
            Plan::SleepFor(short_sleep(oversubscribed))
        } else {
            plan(&mut state, driven, oversubscribed)
        };
        // Where another thread drives, peers need not wake this one.
        let may_sleep = matches!(plan, Plan::Watch(_)) && (busy || state.arm(now));
        Round {
            upcalls,
            plan,
            busy,
            may_sleep,
            oversubscribed,
            hung_up,
            back_off_until: state.peers.back_off_until(),
        }
    }

    /// Returns what the consumers' threads have done since the last round, when they had polled `polls` times. The roles begin a new round.
    fn consumers(&self, state: &mut State, now: Time, polls: u32) -> Consumers {
        let is_polling = state.driver.empty_polls.is_polling(now);
        let is_away = state.driver.empty_polls.is_away(now);
        let watched = state.notices.any_watched();
        let roles = &mut state.driver.roles;
        roles.helper_woken = false;
        roles.helper_rests = false;
        // A few polls are no loop: the consumer may only read its memory now, and wait for what no other thread receives.
        // The last leader sent no acknowledgements, so polls before the end of its lead do not count either.
        let since = roles.lead_ended.take().unwrap_or(polls);
        let polled = make_a_loop(roles.polls.wrapping_sub(since), watched);
        let (leads, slept_for) = (roles.watcher == Watcher::Leader, roles.helper_slept_for);
        // A consumer that has yielded goes on polling, unless it does not get its processor back: a thread that sleeps on a CNO, or a
        // peer, must not wait for it.
        let gives_way = self.give_way.load(Ordering::Relaxed) != 0 && is_polling;
        // A consumer that is likely to read its memory has left the loop as soon as it makes no call.
        let loop_exit = &mut state.driver.loop_exit;
        let is_gone = loop_exit.is_gone(now);
        let left = is_gone && loop_exit.is_likely();
        if polled && !is_gone && slept_for >= POLL_SLEEP {
            loop_exit.polled_on();
        }
        Consumers {
            leads,
            driven: polled && !left || gives_way || leads,
            // The sleeps beside a consumer that polls are long. Its peers do not wait for one more while it has no processor.
            are_away: is_away && !gives_way && !leads,
            are_gone: is_gone,
        }
    }

    /// Polls for `budget` after something arrived. Returns whether the helper is to begin another round at once.
    fn spin(&self, budget: Duration) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < budget {
            std::thread::yield_now();
            let mut state = self.state.lock();
            let roles = &state.driver.roles;
            if roles.watcher != Watcher::Helper || roles.helper_woken {
                return true;
            }
            let now = clock::now();
            if state.receive(now, false) {
                state.transmit(now, false);
                return true;
            }
        }
        false
    }
}

/// Returns how long the helper sleeps while other threads work, where they may stop at any time.
const fn short_sleep(oversubscribed: bool) -> Duration {
    if oversubscribed {
        OVERSUBSCRIBED_POLL_SLEEP
    } else {
        POLL_SLEEP
    }
}

/// Returns what the helper does next, and makes it the watcher if no other thread drives.
fn plan(state: &mut State, driven: bool, oversubscribed: bool) -> Plan {
    let State {
        engine,
        driver,
        notices,
        ..
    } = state;
    let roles = &mut driver.roles;
    if roles.watcher == Watcher::Leader {
        roles.helper_rests = true;
        return Plan::SleepUntilWoken;
    }
    if driven {
        roles.watcher = Watcher::None;
        let short = short_sleep(oversubscribed);
        let (first, most) = if notices.any_watched() || driver.loop_exit.is_likely() {
            (FIRST_WATCHED_SLEEP, short)
        } else {
            // The helpers of many processes that poll would take their processors with short sleeps only.
            (short, POLL_SLEEP)
        };
        let limit = (roles.helper_slept_for * 2).clamp(first, most);
        roles.helper_slept_for = limit;
        return Plan::SleepFor(limit);
    }
    roles.helper_slept_for = Duration::ZERO;
    roles.watcher = Watcher::Helper;
    roles.watched_since = roles.polls;
    roles.wakes_at = engine.poll_timeout();
    Plan::Watch(roles.wakes_at)
}

#[cfg(test)]
mod tests;
