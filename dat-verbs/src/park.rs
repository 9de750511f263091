//! Implements the sleep of [`Transport::park`](dat_core::transport::Transport::park): on a futex, or on an eventfd
//! together with the completion channel.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dat_core::transport::Parked;
use dat_os::sleep::{self, Slept};

use crate::verbs::cq::{Cq, Notifier};
use dat_os::eventfd::EventFd;

/// Poll interval when no descriptor is left to sleep on.
const WITHOUT_FD: Duration = Duration::from_millis(5);

/// States of a [`Parker`].
mod state {
    /// No thread sleeps on the futex, no wake-up is pending.
    pub(super) const EMPTY: u32 = 0;
    /// The next sleep ends at once.
    pub(super) const PERMIT: u32 = 1;
    /// A thread sleeps on the futex.
    pub(super) const ASLEEP: u32 = 2;
}

/// Sleep and wake-up of one waiter. The eventfd is created at the first sleep that includes a completion queue: most
/// EVDs have none, or are only polled.
#[derive(Debug, Default)]
pub struct Parker {
    state: AtomicU32,
    fd: OnceLock<Option<Arc<EventFd>>>,
}

impl Parker {
    fn fd(&self) -> Option<&Arc<EventFd>> {
        let fd = self.fd.get_or_init(|| {
            EventFd::new()
                .inspect_err(|e| {
                    tracing::warn!("eventfd: {e}; waiting by looking every 5 ms (ulimit -n?)");
                })
                .ok()
                .map(Arc::new)
        });
        fd.as_ref()
    }

    /// Ends the current sleep, or makes the next one return at once.
    pub(crate) fn unpark(&self) {
        match self.state.swap(state::PERMIT, Ordering::SeqCst) {
            // The sleeper has not consumed the previous permit yet; it checks every condition when it does.
            state::PERMIT => {}
            state::ASLEEP => sleep::wake(&self.state, 1),
            _ => {
                // Either this load sees the descriptor, or the sleeper that creates it sees the permit.
                fence(Ordering::SeqCst);
                if let Some(Some(fd)) = self.fd.get() {
                    fd.signal();
                }
            }
        }
    }

    fn take_permit(&self) -> bool {
        self.state.swap(state::EMPTY, Ordering::SeqCst) == state::PERMIT
    }

    /// Sleeps on the futex.
    fn sleep_on_futex(&self, deadline: Option<Instant>) -> Parked {
        let (empty, asleep) = (state::EMPTY, state::ASLEEP);
        let state = &self.state;
        if state
            .compare_exchange(empty, asleep, Ordering::SeqCst, Ordering::SeqCst)
            .is_err()
        {
            self.take_permit();
            return Parked::Woken;
        }
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let slept = sleep::on_word(state, asleep, left);
        match slept {
            Slept::Cancelled => {
                // A permit that was given meanwhile counts for the next sleep.
                let _ = state.compare_exchange(asleep, empty, Ordering::SeqCst, Ordering::SeqCst);
                Parked::Cancelled
            }
            _ if self.take_permit() => Parked::Woken,
            slept => slept.into(),
        }
    }

    /// Implements [`Transport::park`](dat_core::transport::Transport::park).
    pub(crate) fn park(
        &self,
        cq: Option<&Cq>,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Parked {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let Some(cq) = cq else {
            if self.take_permit() || ready() {
                return Parked::Woken;
            }
            return self.sleep_on_futex(deadline);
        };
        let fd = self.fd();
        fence(Ordering::SeqCst);
        if self.take_permit() || ready() {
            return Parked::Woken;
        }
        let notifier = &*cq.notifier;
        *notifier.sleeper.lock() = fd.cloned();
        // If arming fails (the device is gone), the timeout and unpark still end the sleep.
        let armed = notifier.arm();
        let parked = if armed.is_err() || ready() {
            Parked::Woken
        } else {
            self.sleep(notifier, fd, deadline)
        };
        *notifier.sleeper.lock() = None;
        parked
    }

    fn sleep(
        &self,
        notifier: &Notifier,
        fd: Option<&Arc<EventFd>>,
        deadline: Option<Instant>,
    ) -> Parked {
        let entry = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // poll(2) skips negative descriptors.
        let mut set = [
            entry(fd.map_or(-1, AsRawFd::as_raw_fd)),
            entry(notifier.live_fd().unwrap_or(-1)),
        ];
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let left = match (fd, left) {
            (None, left) => Some(left.unwrap_or(WITHOUT_FD).min(WITHOUT_FD)),
            (Some(_), left) => left,
        };
        match sleep::on_descriptors(&mut set, left) {
            ended @ (Slept::Interrupted | Slept::Cancelled) => return ended.into(),
            Slept::TimedOut if self.take_permit() => return Parked::Woken,
            Slept::TimedOut if deadline.is_some_and(|d| d <= Instant::now()) => {
                return Parked::TimedOut;
            }
            Slept::TimedOut | Slept::Woken => {}
        }
        if set[1].revents != 0 {
            notifier.drain(set[1].revents & (libc::POLLERR | libc::POLLHUP) != 0);
        }
        if set[0].revents != 0
            && let Some(fd) = fd
        {
            fd.clear();
        }
        // The wake-up consumes the permit; a later unpark leaves a new one.
        self.take_permit();
        Parked::Woken
    }
}

#[cfg(test)]
mod tests;
