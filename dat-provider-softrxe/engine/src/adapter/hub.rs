//! The lock of an adapter, and what threads do with it: work under it, wake each other, run upcalls without it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use dat_arena::{BiasedGuard, Mutex};
use softrxe_proto::{CmId, RejectReason, Time};

use super::contention::SharedLock;
use super::datagram;
use super::descriptors::Descriptors;
use super::driver::roles::Wakers;
use super::state::State;
use super::upcall::Upcall;
use crate::address::local_address::LocalAddress;
use crate::clock;
use crate::memory::lending::LendingCounters;
use crate::settings::Settings;

/// Runs upcalls into core.
pub(crate) trait RunUpcall: Send + Sync {
    /// Runs `upcall` of `hub`. The caller holds no lock but [`Hub::upcall_lock`].
    fn run(&self, hub: &Arc<Hub>, upcall: Upcall);
}

/// An adapter's lock, and what is used without it.
pub(crate) struct Hub {
    pub(crate) settings: Settings,
    pub(crate) local_address: LocalAddress,
    pub(super) core: Box<dyn RunUpcall>,
    /// Held by the thread that runs upcalls; locked before `state`.
    pub(crate) upcall_lock: Mutex<()>,
    pub(crate) state: SharedLock<State>,
    pub(crate) descriptors: Descriptors,
    pub(crate) wakers: Wakers,
    /// Consumers that [give way](Self::give_way).
    pub(crate) give_way: AtomicU32,
    /// How often the helper thread had a processor.
    pub(crate) helper_runs: AtomicU64,
    /// The helper thread, as [`dat_arena::current_thread`] numbers it.
    pub(super) helper_thread: AtomicUsize,
    /// The process that opened it. A forked child has a copy without the helper thread and the descriptors.
    pub(super) process: u32,
    /// The CA GUID of its engine.
    pub(super) guid: u64,
    /// The process ends, and the helper thread is to [tell the peers](super::own_end).
    pub(super) says_end: AtomicBool,
    pub(super) stop: AtomicBool,
}

impl Hub {
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
            state.receive_all(now);
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
