//! The permit that an EVD or CNO waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dat_arena::Mutex;
use dat_core::transport::Parked;
use dat_os::eventfd::EventFd;
use dat_os::sleep::{self, Slept};

/// A permit that ends a sleep. The sleeper waits on a futex, which a signal interrupts, or on descriptors.
#[derive(Debug, Default)]
pub(crate) struct Permit {
    state: Mutex<State>,
    /// Number of times that it was given to a sleeper; the futex word.
    times: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    given: bool,
    /// Wakes the sleeper that waits on descriptors.
    wake: Option<Arc<EventFd>>,
    /// Number of threads in [`Permit::sleep`].
    sleepers: u32,
}

impl Permit {
    /// Ends the present or the next sleep.
    pub(crate) fn give(&self) {
        let mut state = self.state.lock();
        state.given = true;
        match &state.wake {
            Some(wake) => wake.signal(),
            None if state.sleepers > 0 => {
                self.times.fetch_add(1, Ordering::Release);
                sleep::wake(&self.times, i32::MAX);
            }
            None => {}
        }
    }

    /// Takes the permit; returns whether it was given.
    pub(crate) fn take(&self) -> bool {
        std::mem::take(&mut self.state.lock().given)
    }

    /// Returns whether the permit is given.
    pub(crate) fn is_given(&self) -> bool {
        self.state.lock().given
    }

    /// Makes the next permit wake `wake`. Returns `false` if the permit is given already.
    pub(crate) fn listen(&self, wake: &Arc<EventFd>) -> bool {
        let mut state = self.state.lock();
        if !state.given {
            state.wake = Some(Arc::clone(wake));
        }
        !state.given
    }

    /// Undoes [`listen`](Self::listen).
    pub(crate) fn unlisten(&self) {
        self.state.lock().wake = None;
    }

    /// Sleeps until the permit is given, and takes it.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) -> Parked {
        let end = timeout.and_then(|t| Instant::now().checked_add(t));
        self.state.lock().sleepers += 1;
        let slept = self.sleep_until(end);
        self.state.lock().sleepers -= 1;
        slept
    }

    fn sleep_until(&self, end: Option<Instant>) -> Parked {
        loop {
            let times = self.times.load(Ordering::Acquire);
            if self.take() {
                return Parked::Woken;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Parked::TimedOut;
            }
            match sleep::on_word(&self.times, times, left) {
                // A permit that was given meanwhile is for the next sleep.
                Slept::Cancelled => return Parked::Cancelled,
                Slept::Interrupted => {
                    return if self.take() {
                        Parked::Woken
                    } else {
                        Parked::Interrupted
                    };
                }
                Slept::Woken | Slept::TimedOut => {}
            }
        }
    }
}

/// The sleeping place of an EVD or CNO ([`Transport::Parker`](dat_core::transport::Transport::Parker)).
#[derive(Debug, Default)]
pub struct Parker(pub(crate) Arc<Permit>);

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use dat_os::sleep::on_readable;

    use super::*;

    #[test]
    fn a_permit_before_the_sleep_ends_one_sleep() {
        let permit = Permit::default();
        permit.give();
        assert_eq!(permit.sleep(None), Parked::Woken);
        assert_eq!(
            permit.sleep(Some(Duration::from_millis(1))),
            Parked::TimedOut
        );
    }

    #[test]
    fn a_permit_wakes_a_sleeper_on_descriptors() {
        let (permit, wake) = (Permit::default(), Arc::new(EventFd::new().unwrap()));
        assert!(permit.listen(&wake));
        std::thread::scope(|scope| {
            scope.spawn(|| permit.give());
            assert_eq!(on_readable([wake.as_raw_fd()], None), Slept::Woken);
        });
        permit.unlisten();
        assert!(permit.take());
        assert!(!permit.take());
        permit.give();
        assert!(!permit.listen(&wake), "the permit is given already");
    }
}
