//! The structures of shared thunks that each version lays out differently.

use dat_core::ep::fast_path::Several;
use dat_core::evd::EventSink;
use dat_core::event::RawHandle;
use dat_core::iov::{Local, Remote};
use dat_core::transport::Transport;

use super::ep_arguments::EpAttrArg;
use crate::boundary::Version;

/// The layout of a version's structures.
pub(crate) trait Layout: Version {
    /// `DAT_LMR_TRIPLET`.
    type Local: Local + 'static;
    /// `DAT_RMR_TRIPLET`.
    type Remote: Remote + 'static;
    /// `DAT_EP_ATTR`.
    type EpAttr: Copy;
    /// `DAT_EVENT`.
    type Event: 'static;
    /// Writer of a `DAT_EVENT`.
    type Sink<'a, T: Transport>: EventSink;

    /// Returns the values of an endpoint's attributes.
    fn ep_attr(attr: &Self::EpAttr) -> EpAttrArg;

    /// Returns the writer of an event of `evd`.
    ///
    /// # Safety
    /// `event` is valid for writes while the sink lives, at any alignment.
    unsafe fn sink<'a, T: Transport>(event: *mut Self::Event, evd: RawHandle) -> Self::Sink<'a, T>;

    /// Returns the pointer of a software event; `None` for another event.
    ///
    /// # Safety
    /// `event` is valid for reads, at any alignment.
    unsafe fn software_pointer(event: *const Self::Event) -> Option<usize>;

    /// Calls `f` with the segments in core's layout, without any other call. Returns `None` if there are too many or one is too long.
    fn with_few<R>(segments: &[Self::Local], f: impl FnOnce(Several<'_>) -> R) -> Option<R>;
}
