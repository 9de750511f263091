//! Handles for calls beside this API: `dat-bench api` compares it with the function table on one connection. Not part of the interface.

use dat_core::iov::LmrTriplet;

use crate::memory::region::Slice;
use crate::{Ep, Evd};

/// Returns the endpoint's DAT handle. Posts beside the API are not counted, so no region may be dropped while one is outstanding.
#[must_use]
pub fn ep(ep: &Ep) -> usize {
    ep.handle().0
}

/// Returns the dispatcher's DAT handle.
#[must_use]
pub fn evd(evd: &Evd) -> usize {
    evd.handle().0
}

/// Returns a segment as posts pass it.
#[must_use]
pub fn segment(slice: &Slice<'_>) -> LmrTriplet {
    slice.triplet
}
