//! Slots that post. A common kind of post calls core's fast path directly; every other post takes the slow path.

use dat_core::ep::fast_ops::{FastOp, RdmaRead, RdmaWrite, Send};
use dat_core::ep::fast_path::One;
use dat_core::error::{Error, Result, Subtype};
use dat_core::flags::CompletionFlags;
use dat_core::iov::Remote as RemoteSegment;
use dat_core::transport::Transport;

use super::find;
use super::layout::Layout;
use crate::boundary::{guard_fast, structure};
use crate::handle;
use crate::segments::SegmentArray;
use crate::types::{DatContext, DatCount, DatHandle};

/// Converts completion flags at argument `number`; unknown ones are an error.
#[inline(always)]
pub(crate) fn flags(bits: u32, number: u16) -> Result<CompletionFlags> {
    CompletionFlags::from_bits(bits).ok_or(Error::arg(number))
}

/// Converts completion flags for core's own check. Core refuses flags that the endpoint cannot have, and unknown ones.
#[inline(always)]
fn flags_unchecked(bits: u32) -> CompletionFlags {
    CompletionFlags::from_bits_retain(bits)
}

/// The operation of a request as the C program passes it: with the pointer to its remote segment, if it has one, unchecked.
trait Operation: Copy {
    /// Structure that the pointer names.
    type Remote: Copy;
    /// The request for core.
    type Request<'a>: FastOp;
    /// Returns the address of the structure; for none an aligned address that is not NULL.
    fn address(self) -> usize;
    /// Returns the request for core.
    fn request(remote: &Self::Remote) -> Self::Request<'_>;
    /// Returns a reference to the structure.
    ///
    /// # Safety
    /// The pointer is not NULL, aligned, and valid for reads while the result lives.
    unsafe fn remote<'a>(self) -> &'a Self::Remote;
    /// Returns a copy of the structure, at any alignment.
    ///
    /// # Safety
    /// The pointer is NULL or valid for reads.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER`.
    unsafe fn copied(self) -> Result<Self::Remote>;
}

impl Operation for Send {
    type Remote = ();
    type Request<'a> = Self;
    #[inline(always)]
    fn address(self) -> usize {
        8
    }
    #[inline(always)]
    fn request((): &()) -> Self {
        Self
    }
    #[inline(always)]
    unsafe fn remote<'a>(self) -> &'a () {
        &()
    }
    #[inline(always)]
    unsafe fn copied(self) -> Result<()> {
        Ok(())
    }
}

/// An RDMA Write to this remote segment.
#[derive(Clone, Copy)]
struct WriteTo<R>(*const R);

/// An RDMA Read from this remote segment.
#[derive(Clone, Copy)]
struct ReadFrom<R>(*const R);

macro_rules! operations {
    ($($from:ident: $what:ident;)*) => {$(
        impl<R: RemoteSegment + 'static> Operation for $from<R> {
            type Remote = R;
            type Request<'a> = $what<'a, R>;
            #[inline(always)]
            fn address(self) -> usize {
                self.0.addr()
            }
            #[inline(always)]
            fn request(remote: &R) -> $what<'_, R> {
                $what(remote)
            }
            #[inline(always)]
            unsafe fn remote<'a>(self) -> &'a R {
                const { assert!(align_of::<R>() <= 8) };
                // SAFETY: by the caller's promise.
                unsafe { &*self.0 }
            }
            #[inline(always)]
            unsafe fn copied(self) -> Result<R> {
                // SAFETY: by the caller's promise.
                unsafe { structure(self.0, 5) }
            }
        }
    )*};
}

operations! {
    WriteTo: RdmaWrite;
    ReadFrom: RdmaRead;
}

/// Returns 0 if both addresses are not NULL and aligned.
#[inline(always)]
fn bad_pointers(one: usize, other: usize) -> u32 {
    // NULL minus 8 has the highest bit set, a misaligned address one of the lowest three: the rotation brings these four bits
    // together. (No program's address has the highest bit set.)
    let pointers = one.wrapping_sub(8) | other.wrapping_sub(8);
    pointers.rotate_left(1) as u32 & 0xf
}

/// Returns true if a post takes the fast path: to an endpoint, dead or alive, of one segment, without flags. `iov` and `remote` are
/// then not NULL, and aligned.
#[inline(always)]
fn is_fast<T: Transport, L>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const L,
    remote: usize,
    completion: u32,
) -> bool {
    const { assert!(align_of::<L>() <= 8) };
    // One test for all conditions but the endpoint.
    segments.wrapping_sub(1).cast_unsigned() | completion | bad_pointers(iov.addr(), remote) == 0
        && T::arenas().ep.holds(ep)
}

/// Posts a request. Core's fast path recognises a dead endpoint by its send queue, which has no room.
///
/// # Safety
/// The pointers are NULL or valid, by the slot's contract.
#[inline(always)]
unsafe fn post_request<T: Transport, V: Layout, W: Operation>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const V::Local,
    cookie: DatContext,
    completion: u32,
    operation: W,
) -> u32 {
    guard_fast::<V>(|| {
        if is_fast::<T, _>(ep, segments, iov, operation.address(), completion) {
            // SAFETY: an endpoint's address; not NULL, aligned, and valid by the slot's contract.
            let (ep, one, request) =
                unsafe { (T::arenas().ep.at(ep), &*iov, W::request(operation.remote())) };
            return ep.post_fast(One(one), cookie, CompletionFlags::empty(), request);
        }
        // SAFETY: the same promise.
        unsafe {
            if completion == 0 {
                post_several::<T, V, W>(ep, segments, iov, cookie, operation)
            } else {
                post_flagged::<T, V, W>(ep, segments, iov, cookie, completion, operation)
            }
        }
    })
}

/// Posts a request of one segment, with flags.
///
/// # Safety
/// The same as [`post_request`].
#[inline(never)]
unsafe fn post_flagged<T: Transport, V: Layout, W: Operation>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const V::Local,
    cookie: DatContext,
    completion: u32,
    operation: W,
) -> Result<()> {
    if is_fast::<T, _>(ep, segments, iov, operation.address(), 0) {
        // SAFETY: as in `post_request`.
        let (ep, one, request) =
            unsafe { (T::arenas().ep.at(ep), &*iov, W::request(operation.remote())) };
        return ep.post_fast(One(one), cookie, flags_unchecked(completion), request);
    }
    // SAFETY: the same promise.
    unsafe { post_slow::<T, V, W>(ep, segments, iov, cookie, completion, operation) }
}

/// Posts a request of several segments, without flags.
///
/// # Safety
/// The same as [`post_request`].
#[inline(never)]
unsafe fn post_several<T: Transport, V: Layout, W: Operation>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const V::Local,
    cookie: DatContext,
    operation: W,
) -> Result<()> {
    if bad_pointers(iov.addr(), operation.address()) == 0 && T::arenas().ep.holds(ep) {
        // SAFETY: as in `post_request`.
        let (ep, request) = unsafe { (T::arenas().ep.at(ep), W::request(operation.remote())) };
        let count = segments.cast_unsigned();
        // Not 0 and not too many. No segment is read before this check.
        if count.wrapping_sub(1) < ep.max_segments() {
            // SAFETY: not NULL, aligned, and valid by the slot's contract.
            let all = unsafe { std::slice::from_raw_parts(iov, count as usize) };
            let no = CompletionFlags::empty();
            if let Some(posted) = V::with_few(all, |all| ep.post_fast(all, cookie, no, request)) {
                return posted;
            }
        }
    }
    // SAFETY: the same promise.
    unsafe { post_slow::<T, V, W>(ep, segments, iov, cookie, 0, operation) }
}

/// Posts any other request on the slow path, or refuses it.
///
/// # Safety
/// The same as [`post_request`].
#[cold]
#[inline(never)]
unsafe fn post_slow<T: Transport, V: Layout, W: Operation>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const V::Local,
    cookie: DatContext,
    completion: u32,
    operation: W,
) -> Result<()> {
    let ep = find::<T>(ep)?;
    // SAFETY: by the caller's promise.
    let (given, remote) = unsafe { (SegmentArray::new(segments, iov, 2)?, operation.copied()?) };
    given.with(ep.max_segments(), |iov| {
        ep.post_slow(
            iov,
            cookie,
            flags_unchecked(completion),
            W::request(&remote),
        )
    })
}

/// Posts any receive on the slow path, or refuses it.
///
/// # Safety
/// The same as [`post_request`].
#[inline(never)]
unsafe fn post_recv_slow<T: Transport, V: Layout>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const V::Local,
    cookie: DatContext,
    completion: u32,
) -> Result<()> {
    let ep = find::<T>(ep)?;
    // SAFETY: by the caller's promise.
    let given = unsafe { SegmentArray::new(segments, iov, 2)? };
    given.with(ep.max_recv_segments(), |iov| {
        ep.post_recv(iov, cookie, flags_unchecked(completion))
    })
}

pub(crate) unsafe extern "C" fn ep_post_send<T: Transport, V: Layout>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut V::Local,
    cookie: DatContext,
    completion: u32,
) -> u32 {
    // SAFETY: the slot's contract.
    unsafe { post_request::<T, V, _>(ep, segments, iov, cookie, completion, Send) }
}

pub(crate) unsafe extern "C" fn ep_post_rdma_read<T: Transport, V: Layout>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut V::Local,
    cookie: DatContext,
    remote: *const V::Remote,
    completion: u32,
) -> u32 {
    // SAFETY: the slot's contract.
    unsafe { post_request::<T, V, _>(ep, segments, iov, cookie, completion, ReadFrom(remote)) }
}

pub(crate) unsafe extern "C" fn ep_post_rdma_write<T: Transport, V: Layout>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut V::Local,
    cookie: DatContext,
    remote: *const V::Remote,
    completion: u32,
) -> u32 {
    // SAFETY: the slot's contract.
    unsafe { post_request::<T, V, _>(ep, segments, iov, cookie, completion, WriteTo(remote)) }
}

pub(crate) unsafe extern "C" fn ep_post_recv<T: Transport, V: Layout>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut V::Local,
    cookie: DatContext,
    completion: u32,
) -> u32 {
    guard_fast::<V>(|| {
        if is_fast::<T, _>(ep, segments, iov, Send.address(), completion) {
            // SAFETY: an endpoint's address; not NULL, aligned, and valid by the slot's contract.
            let (ep, one) = unsafe { (T::arenas().ep.at(ep), &*iov) };
            return ep.post_recv_fast(one, cookie);
        }
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { post_recv_slow::<T, V>(ep, segments, iov, cookie, completion) }
    })
}

pub(crate) unsafe extern "C" fn srq_post_recv<T: Transport, V: Layout>(
    srq: DatHandle,
    segments: DatCount,
    iov: *mut V::Local,
    cookie: DatContext,
) -> u32 {
    guard_fast::<V>(|| {
        let srq = handle::srq::<T>(srq, Subtype::InvalidHandleSrq)?;
        // SAFETY: NULL or valid by the slot's contract.
        let given = unsafe { SegmentArray::new(segments, iov.cast_const(), 2)? };
        given.with(srq.max_segments(), |iov| srq.post_recv(iov, cookie))
    })
}
