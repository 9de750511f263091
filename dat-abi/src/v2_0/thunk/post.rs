//! The posts that only 2.0 has.

use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::transport::Transport;

use super::guard;
use crate::boundary::structure;
use crate::segments::SegmentArray;
use crate::thunk::{find, flags};
use crate::types::{DatBoolean, DatContext, DatCount, DatHandle};

pub(crate) unsafe extern "C" fn ep_post_send_with_invalidate<T: Transport>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut LmrTriplet,
    cookie: DatContext,
    completion: u32,
    invalidate: DatBoolean,
    rmr_context: u32,
) -> u32 {
    guard(|| {
        let ep = find::<T>(ep)?;
        // SAFETY: NULL or valid by the slot's contract.
        let given = unsafe { SegmentArray::new(segments, iov.cast_const(), 2)? };
        let flags = flags(completion, 5)?;
        given.with(ep.max_segments(), |iov| {
            ep.post_send_with_invalidate(iov, cookie, flags, invalidate != 0, rmr_context)
        })
    })
}

pub(crate) unsafe extern "C" fn ep_post_rdma_read_to_rmr<T: Transport>(
    ep: DatHandle,
    local: *const RmrTriplet,
    cookie: DatContext,
    remote: *const RmrTriplet,
    completion: u32,
) -> u32 {
    guard(|| {
        let ep = find::<T>(ep)?;
        // SAFETY: NULL or valid by the slot's contract.
        let (local, remote) = unsafe { (structure(local, 2)?, structure(remote, 4)?) };
        ep.post_rdma_read_to_rmr(&local, cookie, &remote, flags(completion, 5)?)
    })
}
