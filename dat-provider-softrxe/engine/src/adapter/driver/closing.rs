//! The end of an adapter: the helper thread's last work, after a consumer has closed its IA.

use std::time::{Duration, Instant};

use super::super::hub::Hub;
use super::super::upcall::Upcall;
use super::roles::MIN_SLEEP;
use crate::clock;

/// How long a closing adapter waits for confirmations: a DREQ is sent three times in it.
const CLOSING_TIME: Duration = Duration::from_millis(900);

impl Hub {
    /// Waits until the peers have confirmed the end of their connections, for at most [`CLOSING_TIME`]: once this process is gone,
    /// no process repeats a lost DREQ.
    pub(super) fn leave_peers(&self) {
        let end = Instant::now() + CLOSING_TIME;
        loop {
            self.wakers.helper.clear();
            self.take_over_port();
            let due = {
                let mut state = self.state.lock();
                let now = clock::now();
                state.disarm();
                state.near.hear();
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

    /// Refuses the requests of peers among the upcalls that no thread runs any more.
    pub(super) fn refuse_requests(&self) {
        // Each refusal takes the lock.
        let left = std::mem::take(&mut self.state.lock().pending.upcalls);
        for upcall in left {
            if let Upcall::Request(_, request) = upcall {
                self.refuse(request.id, request.datagram.is_some(), &[]);
            }
        }
    }
}
