//! From a transport's completion to the event of the consumer.

use crate::event::Dto;
use crate::transport::{Completion, Transport};

/// A completion that a consumer hears of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// The event.
    pub dto: Dto,
    /// Whether it is a notification (wakes waiters, counts for CNOs): not for a post with
    /// `DAT_COMPLETION_UNSIGNALLED_FLAG` that succeeded.
    pub notify: bool,
}

/// What `completion` means. `None`: the consumer hears nothing (suppressed, or of an endpoint that is gone).
/// Called under the lock of the EVD whose completion queue it came out of; takes no lock itself.
#[inline]
pub fn complete<T: Transport>(_completion: &Completion) -> Option<Completed> {
    None
}
