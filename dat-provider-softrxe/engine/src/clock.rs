//! The protocol engine's clock. Each post and poll reads it.

use dat_os::clock::monotonic_nanos;
use softrxe_proto::Time;

/// Returns the monotonic time of the host, which is the same for all threads.
pub(crate) fn now() -> Time {
    Time::from_nanos(monotonic_nanos())
}
