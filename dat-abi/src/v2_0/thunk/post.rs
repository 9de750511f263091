//! Posting. 2.0's triplets are core's, so a post is a handle check and a call.

use dat_core::ep::frequent::{Frequent, RdmaRead, RdmaWrite, Send};
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

/// Whether this is the usual post: to an endpoint, dead or alive, of one segment, without flags; `iov` and `beside` are
/// then not NULL, and aligned.
#[inline(always)]
fn is_usual<T: Transport, O>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const LmrTriplet,
    beside: *const O,
    completion: u32,
) -> bool {
    const { assert!(align_of::<LmrTriplet>() <= 8 && align_of::<O>() <= 8) };
    // One test for all. NULL less 8 has the highest bit, a misaligned address one of the lowest three: the rotation
    // brings these four together. (No program has an address with the highest bit.)
    let pointers = iov.addr().wrapping_sub(8) | beside.addr().wrapping_sub(8);
    let wrong = pointers.rotate_left(1) as u32 & 0xf;
    segments.wrapping_sub(1).cast_unsigned() | completion | wrong == 0 && T::arenas().ep.holds(ep)
}

/// Any other post, good or bad. A dead endpoint has no room for requests: that is how core knows it on the short way.
///
/// # Safety
/// If there are segments, `iov` is NULL or valid for reads.
#[inline(never)]
unsafe fn unusual<T: Transport>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const LmrTriplet,
    cookie: DatContext,
    completion: u32,
) -> Result<()> {
    let ep = find::<T>(ep)?;
    // SAFETY: by the caller's promise.
    let iov = unsafe { array(segments, iov, 2)? };
    ep.post_send(iov, cookie, hot_flags(completion))
}

/// The same for receives.
///
/// # Safety
/// Likewise.
#[inline(never)]
unsafe fn unusual_recv<T: Transport>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const LmrTriplet,
    cookie: DatContext,
    completion: u32,
) -> Result<()> {
    let ep = find::<T>(ep)?;
    // SAFETY: by the caller's promise.
    let iov = unsafe { array(segments, iov, 2)? };
    ep.post_recv(iov, cookie, hot_flags(completion))
}

/// The same for RDMA.
///
/// # Safety
/// Likewise; `remote` is NULL or valid for reads.
#[inline(never)]
unsafe fn unusual_rdma<'a, T: Transport, K: Frequent>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const LmrTriplet,
    cookie: DatContext,
    remote: *const RmrTriplet,
    completion: u32,
    what: impl FnOnce(&'a RmrTriplet) -> K,
) -> Result<()> {
    let ep = find::<T>(ep)?;
    // SAFETY: by the caller's promise.
    let (iov, remote) = unsafe { (array(segments, iov, 2)?, structure(remote, 5)?) };
    ep.post_more(iov, cookie, hot_flags(completion), what(remote))
}

pub(crate) unsafe extern "C" fn ep_post_send<T: Transport>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut LmrTriplet,
    cookie: DatContext,
    completion: u32,
) -> u32 {
    guard(|| {
        if is_usual::<T, _>(ep, segments, iov, iov, completion) {
            // SAFETY: an endpoint's address; not NULL, aligned, and valid by the slot's contract.
            let (ep, one) = unsafe { (T::arenas().ep.at(ep), &*iov) };
            return ep.post_one(one, cookie, Send);
        }
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { unusual::<T>(ep, segments, iov, cookie, completion) }
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
        if is_usual::<T, _>(ep, segments, iov, iov, completion) {
            // SAFETY: an endpoint's address; not NULL, aligned, and valid by the slot's contract.
            let (ep, one) = unsafe { (T::arenas().ep.at(ep), &*iov) };
            return ep.post_one_recv(one, cookie);
        }
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { unusual_recv::<T>(ep, segments, iov, cookie, completion) }
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
        if is_usual::<T, _>(ep, segments, iov, remote, completion) {
            // SAFETY: an endpoint's address; not NULL, aligned, and valid by the slot's contract.
            let (ep, one, remote) = unsafe { (T::arenas().ep.at(ep), &*iov, &*remote) };
            return ep.post_one(one, cookie, RdmaRead(remote));
        }
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { unusual_rdma::<T, _>(ep, segments, iov, cookie, remote, completion, RdmaRead) }
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
        if is_usual::<T, _>(ep, segments, iov, remote, completion) {
            // SAFETY: an endpoint's address; not NULL, aligned, and valid by the slot's contract.
            let (ep, one, remote) = unsafe { (T::arenas().ep.at(ep), &*iov, &*remote) };
            return ep.post_one(one, cookie, RdmaWrite(remote));
        }
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { unusual_rdma::<T, _>(ep, segments, iov, cookie, remote, completion, RdmaWrite) }
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
