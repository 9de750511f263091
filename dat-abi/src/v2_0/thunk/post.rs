//! Posting. 2.0's triplets are core's, so a post is a handle check and a call.

use dat_core::error::{Error, Result, Subtype};
use dat_core::flags::CompletionFlags;
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::transport::Transport;

use super::guard;
use crate::boundary::{array, structure};
use crate::handle;
use crate::thunk::find;
use crate::types::{DatBoolean, DatContext, DatCount, DatHandle};

/// Completion flags at argument `number`.
#[inline(always)]
pub(crate) fn flags(bits: u32, number: u16) -> Result<CompletionFlags> {
    CompletionFlags::from_bits(bits).ok_or(Error::arg(number))
}

/// Completion flags of a hot call: core refuses those that the endpoint cannot have, unknown ones among them.
#[inline(always)]
fn hot_flags(bits: u32) -> CompletionFlags {
    CompletionFlags::from_bits_retain(bits)
}

pub(crate) unsafe extern "C" fn ep_post_send<T: Transport>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut LmrTriplet,
    cookie: DatContext,
    completion: u32,
) -> u32 {
    guard(|| {
        let ep = find::<T>(ep)?;
        // SAFETY: NULL or valid by the slot's contract.
        ep.post_send(
            unsafe { array(segments, iov.cast_const(), 2)? },
            cookie,
            hot_flags(completion),
        )
    })
}

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
        let iov = unsafe { array(segments, iov.cast_const(), 2)? };
        ep.post_send_with_invalidate(
            iov,
            cookie,
            flags(completion, 5)?,
            invalidate != 0,
            rmr_context,
        )
    })
}

pub(crate) unsafe extern "C" fn ep_post_recv<T: Transport>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut LmrTriplet,
    cookie: DatContext,
    completion: u32,
) -> u32 {
    guard(|| {
        let ep = find::<T>(ep)?;
        // SAFETY: NULL or valid by the slot's contract.
        ep.post_recv(
            unsafe { array(segments, iov.cast_const(), 2)? },
            cookie,
            hot_flags(completion),
        )
    })
}

pub(crate) unsafe extern "C" fn ep_post_rdma_read<T: Transport>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut LmrTriplet,
    cookie: DatContext,
    remote: *const RmrTriplet,
    completion: u32,
) -> u32 {
    guard(|| {
        let ep = find::<T>(ep)?;
        // SAFETY: NULL or valid by the slot's contract.
        let (iov, remote) =
            unsafe { (array(segments, iov.cast_const(), 2)?, structure(remote, 5)?) };
        ep.post_rdma_read(iov, cookie, remote, hot_flags(completion))
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
        ep.post_rdma_read_to_rmr(local, cookie, remote, flags(completion, 5)?)
    })
}

pub(crate) unsafe extern "C" fn ep_post_rdma_write<T: Transport>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut LmrTriplet,
    cookie: DatContext,
    remote: *const RmrTriplet,
    completion: u32,
) -> u32 {
    guard(|| {
        let ep = find::<T>(ep)?;
        // SAFETY: NULL or valid by the slot's contract.
        let (iov, remote) =
            unsafe { (array(segments, iov.cast_const(), 2)?, structure(remote, 5)?) };
        ep.post_rdma_write(iov, cookie, remote, hot_flags(completion))
    })
}

pub(crate) unsafe extern "C" fn srq_post_recv<T: Transport>(
    srq: DatHandle,
    segments: DatCount,
    iov: *mut LmrTriplet,
    cookie: DatContext,
) -> u32 {
    guard(|| {
        let srq = handle::srq::<T>(srq, Subtype::InvalidHandleSrq)?;
        // SAFETY: NULL or valid by the slot's contract.
        srq.post_recv(unsafe { array(segments, iov.cast_const(), 2)? }, cookie)
    })
}
