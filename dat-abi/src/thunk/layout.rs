//! The structures of the hot calls, of which each version has its own.

use dat_core::ep::short::Several;
use dat_core::error::Result;
use dat_core::evd::EventSink;
use dat_core::event::RawHandle;
use dat_core::iov::{Local, Remote};
use dat_core::transport::Transport;

use crate::boundary::Version;

/// How a version lays out what a post is given and a dequeue fills in.
pub(crate) trait Layout: Version {
    /// `DAT_LMR_TRIPLET`.
    type Local: Local + 'static;
    /// `DAT_RMR_TRIPLET`.
    type Remote: Remote + 'static;
    /// `DAT_EVENT`.
    type Event: 'static;
    /// What writes a `DAT_EVENT`.
    type Sink<'a, T: Transport>: EventSink;

    /// Writes into `event`, as one of `evd`.
    fn sink<T: Transport>(event: &mut Self::Event, evd: RawHandle) -> Self::Sink<'_, T>;

    /// The pointer of a software event; `None` for another event.
    fn software(event: &Self::Event) -> Option<usize>;

    /// Calls `f` with the segments in core's layout, past every other call. `None`: they are too many for that, or one is
    /// too long; then [`Layout::segments`] says what is to be done.
    fn few<R>(segments: &[Self::Local], f: impl FnOnce(Several<'_>) -> R) -> Option<R>;

    /// Calls `f` with the segments in core's layout, of which there may be as many as `most` says.
    ///
    /// # Errors
    /// Those of `f` and of `most`; `DAT_LENGTH_ERROR` for a segment that core's layout cannot express;
    /// `DAT_INVALID_PARAMETER` (argument 2) for more than `most`.
    fn segments<R>(
        segments: &[Self::Local],
        most: impl FnOnce() -> Result<u32>,
        f: impl FnOnce(Several<'_>) -> Result<R>,
    ) -> Result<R>;
}
