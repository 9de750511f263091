//! Receives of endpoints that are not connected yet; see [`crate::ep`]'s `early`.

use std::sync::atomic::Ordering;

use super::{ATTEMPTS, Evd};
use crate::ep::Ep;
use crate::event::{Dto, DtoStatus, RawHandle};
use crate::head::raw;
use crate::transport::Transport;

/// A kept receive.
struct Kept {
    dto: Dto,
    notify: bool,
}

/// Receives that are kept until the attempt of their endpoint ends.
#[derive(Default)]
pub(super) struct EarlyReceives {
    kept: Vec<Kept>,
    /// Number of attempts of endpoints that feed the EVD with receives.
    pub(super) attempts: u32,
}

impl EarlyReceives {
    /// Keeps `dto`, a receive of an endpoint in an attempt, and returns true. Returns false for a failure that follows no
    /// success: it is the failure of the attempt.
    #[cold]
    #[inline(never)]
    pub(super) fn keep(&mut self, dto: &Dto, notify: bool) -> bool {
        let kept = dto.status == DtoStatus::Success || self.kept.iter().any(|k| k.dto.ep == dto.ep);
        if kept {
            self.kept.push(Kept { dto: *dto, notify });
        }
        kept
    }

    /// Passes `deliver` the receives of `ep` in order, with whether each is a notification.
    fn release(&mut self, ep: RawHandle, mut deliver: impl FnMut(Dto, bool)) {
        for kept in self.kept.extract_if(.., |kept| kept.dto.ep == ep) {
            deliver(kept.dto, kept.notify);
        }
    }
}

impl<T: Transport> Evd<T> {
    /// Closes the [gate](crate::ep::Ep::gate) of `ep`, whose receives go to this EVD.
    pub(crate) fn begin_attempt(&'static self, ep: &'static Ep<T>) {
        let mut inner = self.inner.lock();
        if ep.gate().close() {
            inner.queue.early.attempts += 1;
            self.silent.fetch_or(ATTEMPTS, Ordering::Release);
        }
    }

    /// Opens the gate of `ep`, queues the receives that were kept, and wakes their consumer. The caller holds no lock.
    pub(crate) fn end_attempt(&'static self, ep: &'static Ep<T>) {
        let wakeup = {
            let mut inner = self.inner.lock();
            if !ep.gate().open() {
                return;
            }
            let early = &mut inner.queue.early;
            early.attempts = early.attempts.saturating_sub(1);
            if early.attempts == 0 {
                self.silent.fetch_and(!ATTEMPTS, Ordering::Release);
            }
            let notify = inner.queue.release_early(raw(ep));
            self.choose_wakeup(&mut inner, notify)
        };
        wakeup.deliver();
    }
}

impl<T: Transport> super::Queue<T> {
    /// Moves the kept receives of `ep` to the end of the event queue. Returns true if one of them is a notification.
    fn release_early(&mut self, ep: RawHandle) -> bool {
        let mut notify = false;
        let Self { early, events, .. } = self;
        early.release(ep, |dto, notice| {
            notify |= notice;
            events.push_back(crate::event::Event::Dto(dto));
        });
        notify
    }
}
