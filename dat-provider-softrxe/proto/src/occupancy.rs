//! What a completion queue tells without the engine: whether there may be something to take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a completion queue may have completions. The engine's owner changes it, other threads read it.
///
/// False means that the queue held no completion when the engine's owner last released the engine.
#[derive(Clone, Debug, Default)]
pub struct Occupancy(Arc<Flag>);

/// In a cache line of its own, as threads read it in loops.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Flag(AtomicBool);

impl Occupancy {
    /// Returns whether there may be completions.
    #[inline]
    #[must_use]
    pub fn is_occupied(&self) -> bool {
        self.0.0.load(Ordering::Acquire)
    }

    /// Only the engine's owner writes, so a store is needed only where the value changes.
    #[inline]
    pub(crate) fn set(&self, occupied: bool) {
        if self.0.0.load(Ordering::Relaxed) != occupied {
            self.0.0.store(occupied, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::outputs::Outputs;
    use crate::work::{CompletedOp, Completion, Status};

    #[test]
    fn it_says_whether_the_queue_holds_completions() {
        let mut out = Outputs::default();
        let (cq, other) = (out.create_cq().unwrap(), out.create_cq().unwrap());
        let told = [cq, other].map(|cq| out.occupancy(cq).unwrap().clone());
        for _ in 0..3 {
            out.reserve_completion(cq).unwrap();
        }
        assert!(!told[0].is_occupied(), "requests that have not completed");
        let done = Completion {
            op: CompletedOp::Write,
            status: Status::Success,
            ..Completion::default()
        };
        for _ in 0..3 {
            out.complete(cq, done);
            assert!(told[0].is_occupied());
        }
        let mut into = [Completion::default(); 2];
        assert_eq!(out.poll_cq(cq, &mut into), 2);
        assert!(told[0].is_occupied(), "one is left");
        assert_eq!(out.poll_cq(cq, &mut into), 1);
        assert!(!told[0].is_occupied());
        assert!(!told[1].is_occupied(), "of another queue");
    }
}
