//! Watches of graceful disconnects. While one exists, core processes the completions of the EVD when they arrive,
//! also if the consumer polls no EVD.

use std::sync::atomic::Ordering;

use super::Evd;
use crate::transport::Transport;

/// Watch on the completion queue of an EVD. Dropping it ends the watch.
#[derive(Debug)]
pub(crate) struct RequestWatch<T: Transport> {
    evd: &'static Evd<T>,
    generation: u32,
}

impl<T: Transport> Drop for RequestWatch<T> {
    fn drop(&mut self) {
        let mut inner = self.evd.inner.lock();
        if self.evd.is_generation(self.generation) {
            inner.request_watches -= 1;
            if !inner.needs_reports() {
                self.evd.unwatch(&mut inner);
            }
        }
    }
}

impl<T: Transport> Evd<T> {
    /// Adds a watch; [`Evd::arm_and_drain`] makes it effective. Returns `None` if the EVD is freed.
    pub(crate) fn watch_requests(&'static self) -> Option<RequestWatch<T>> {
        let mut inner = self.inner.lock();
        if !self.head.alive() {
            return None;
        }
        inner.request_watches += 1;
        Some(RequestWatch {
            evd: self,
            generation: self.head.generation.load(Ordering::Relaxed),
        })
    }

    /// Requests a report of the next completion if the EVD needs one, and takes the completions that are there. The caller
    /// holds no lock.
    pub(crate) fn arm_and_drain(&'static self) {
        let (armed, drained) = {
            let mut inner = self.inner.lock();
            (self.arm_cq(&mut inner), self.take_completions(&mut inner))
        };
        armed.deliver();
        drained.deliver();
    }
}
