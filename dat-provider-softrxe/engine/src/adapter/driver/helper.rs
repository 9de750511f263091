//! The helper thread.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_os::schedule::{self, Slice, processors};
use dat_os::sleep::on_readable;
use softrxe_proto::Time;

use super::super::hub::{Hub, State};
use super::super::upcall::Upcall;
use super::state::{MIN_SLEEP, POLLS_OF_A_LOOP, Watcher};
use crate::adaptive::Spin;
use crate::adaptive::oversubscription::{self, PREEMPTED, REST_AFTER_YIELD, rest};
use crate::clock;

/// How long the helper sleeps between two reads of the socket while consumers poll.
pub(super) const POLL_SLEEP: Duration = Duration::from_millis(1);
/// Largest spin budget of the helper after something arrived.
const MAX_SPIN: Duration = Duration::from_micros(30);
/// How long a closing adapter waits for confirmations: a DREQ is sent three times in it.
const CLOSING_TIME: Duration = Duration::from_millis(900);

/// What the helper does next.
enum Plan {
    /// Sleeps for [`POLL_SLEEP`]: consumers poll.
    SleepFor,
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
    /// The descriptors are prepared for a sleep.
    armed: bool,
    oversubscribed: bool,
    back_off_until: Option<Instant>,
}

impl Hub {
    /// Runs the helper thread until [`end`](Self::end) is called.
    pub(crate) fn run(self: &Arc<Self>) {
        self.help();
        self.close();
        // No thread runs upcalls any more. Requests among them are refused without the lock.
        let left = std::mem::take(&mut self.state.lock().pending.upcalls);
        for upcall in left {
            if let Upcall::Request(_, request) = upcall {
                self.refuse(request.id, request.datagram.is_some(), &[]);
            }
        }
    }

    /// Waits until the peers have confirmed the end of their connections, for at most [`CLOSING_TIME`]: once this process is gone,
    /// no process repeats a lost DREQ.
    fn close(&self) {
        let end = Instant::now() + CLOSING_TIME;
        loop {
            self.wakers.helper.clear();
            self.take_over_port();
            let due = {
                let mut state = self.state.lock();
                let now = clock::now();
                state.near.disarm();
                self.reap_peers_at_close(&mut state, now);
                state.receive(now, true);
                state.transmit(now, false);
                if !state.engine.is_leaving() {
                    return;
                }
                if !state.arm(now) {
                    continue;
                }
                state.engine.poll_timeout()
            };
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let due = due.map_or(left, |at| at.since(clock::now()).max(MIN_SLEEP));
            let _ = self
                .descriptors
                .sleep_or_wake(&self.wakers.helper, Some(due.min(left)));
        }
    }

    fn help(self: &Arc<Self>) {
        let mut polls = 0;
        let mut spin = Spin::new(MAX_SPIN, processors());
        let mut slept: Option<(Duration, Instant)> = None;
        let mut requested = Slice::Default;
        schedule::sleep_exactly();
        while !self.is_ending() {
            let woken = Instant::now();
            self.wakers.helper.clear();
            self.take_over_port();
            self.reap_peers();
            // A leader that holds the lock runs all upcalls, and wakes the helper for what it leaves.
            let upcall_lock = self.upcall_lock.try_lock();
            let Round {
                upcalls,
                plan,
                busy,
                mut armed,
                oversubscribed,
                back_off_until,
            } = self.round(upcall_lock.is_some(), &mut polls, &mut spin, &mut slept);
            let idle = upcalls.is_empty();
            for upcall in upcalls {
                self.run_upcall(upcall);
            }
            drop(upcall_lock);
            if oversubscribed && std::mem::replace(&mut requested, Slice::Short) != Slice::Short {
                request(Slice::Short);
            }
            if !idle {
                continue;
            }
            let back_off =
                || back_off_until.map(|end| end.saturating_duration_since(Instant::now()));
            match plan {
                Plan::SleepFor => {
                    let nap = if oversubscribed {
                        oversubscription::POLL_SLEEP
                    } else {
                        POLL_SLEEP
                    };
                    let _ = on_readable([self.wakers.helper.as_raw_fd()], Some(nap));
                }
                Plan::SleepUntilWoken => {
                    let _ = on_readable([self.wakers.helper.as_raw_fd()], back_off());
                }
                Plan::Watch(due) => {
                    if busy && oversubscribed {
                        // Sleeps on the eventfd only, so packets do not wake it early: it would then run at the next scheduler tick.
                        let rest = rest(woken.elapsed());
                        let _ = on_readable([self.wakers.helper.as_raw_fd()], Some(rest));
                        continue;
                    }
                    if busy {
                        let (begin, spun) = (Instant::now(), spin.budget());
                        let found = self.spin(spun);
                        if begin.elapsed() >= spun + PREEMPTED {
                            let mut state = self.state.lock();
                            state.driver.oversubscription.preempted(clock::now());
                            drop(state);
                            let helper = self.wakers.helper.as_raw_fd();
                            let _ = on_readable([helper], Some(REST_AFTER_YIELD));
                            continue;
                        }
                        if std::mem::replace(&mut requested, Slice::Default) != Slice::Default {
                            request(Slice::Default);
                        }
                        if found {
                            spin.hit();
                            continue;
                        }
                        slept = Some((spun, begin));
                        armed = self.state.lock().arm(clock::now());
                    }
                    let due = due.map(|at| at.since(clock::now()).max(MIN_SLEEP));
                    let limit = [due, back_off()].into_iter().flatten().min();
                    if armed {
                        let _ = self.descriptors.sleep_or_wake(&self.wakers.helper, limit);
                    }
                }
            }
        }
    }

    /// Receives and transmits, unless another thread drives, takes the upcalls that the helper is to run, and plans what it does
    /// next. `polls` is the number of polls at the last round.
    fn round(
        &self,
        runs_upcalls: bool,
        polls: &mut u32,
        spin: &mut Spin,
        slept: &mut Option<(Duration, Instant)>,
    ) -> Round {
        let mut state = self.state.lock();
        let now = clock::now();
        let oversubscribed = state.driver.oversubscription.is_present(now);
        let roles = &mut state.driver.roles;
        roles.helper_woken = false;
        roles.helper_rests = false;
        // A few polls are no loop: the consumer may only read its memory now, and wait for what no other thread receives.
        let polled = roles.polls.wrapping_sub(*polls) >= POLLS_OF_A_LOOP;
        let driven = polled || roles.watcher == Watcher::Leader;
        if roles.watcher != Watcher::Leader {
            state.near.disarm();
        }
        let roles = &mut state.driver.roles;
        *polls = roles.polls;
        let mut busy = false;
        if !driven {
            busy = state.receive(now, true);
            if let (true, Some((spun, since))) = (busy, slept.take()) {
                spin.missed(spun, since.elapsed());
            }
            state.transmit(now, false);
        }
        let upcalls = if runs_upcalls {
            state.take_upcalls(&self.descriptors, now)
        } else {
            VecDeque::new()
        };
        let plan = if state.pending.has_upcalls() {
            // The thread that holds the upcall lock runs these too, except those that came when it was about to release the lock.
            let roles = &mut state.driver.roles;
            if roles.watcher == Watcher::Helper {
                roles.watcher = Watcher::None;
            }
            Plan::SleepFor
        } else {
            plan(&mut state, driven)
        };
        // Where another thread drives, peers need not wake this one.
        let armed = matches!(plan, Plan::Watch(_)) && (busy || state.arm(now));
        Round {
            upcalls,
            plan,
            busy,
            armed,
            oversubscribed,
            back_off_until: state.peers.back_off_until(),
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

/// Returns what the helper does next, and makes it the watcher if no other thread drives.
fn plan(state: &mut State, driven: bool) -> Plan {
    let State { engine, driver, .. } = state;
    let roles = &mut driver.roles;
    if roles.watcher == Watcher::Leader {
        roles.helper_rests = true;
        return Plan::SleepUntilWoken;
    }
    if driven {
        roles.watcher = Watcher::None;
        return Plan::SleepFor;
    }
    roles.watcher = Watcher::Helper;
    roles.watched_since = roles.polls;
    roles.wakes_at = engine.poll_timeout();
    Plan::Watch(roles.wakes_at)
}

/// Requests `slice` for the helper thread.
fn request(slice: Slice) {
    if let Err(error) = slice.request() {
        tracing::debug!(%error, "sched_setattr refused a time slice of {slice:?} length");
    }
}
