//! Posting: each usual kind of post leads straight to core's short way, everything else to the long one.

use dat_core::ep::fast_ops::{FastOp, RdmaRead, RdmaWrite, Send};
use dat_core::ep::fast_path::One;
use dat_core::error::{Error, Result, Subtype};
use dat_core::flags::CompletionFlags;
use dat_core::iov::Remote;
use dat_core::transport::Transport;

use super::find;
use super::layout::Layout;
use crate::boundary::{guard_hot, structure};
use crate::handle;
use crate::segments::Given;
use crate::types::{DatContext, DatCount, DatHandle};

/// Converts completion flags at argument `number`; unknown ones are an error.
#[inline(always)]
pub(crate) fn flags(bits: u32, number: u16) -> Result<CompletionFlags> {
    CompletionFlags::from_bits(bits).ok_or(Error::arg(number))
}

/// Completion flags of a hot call: core refuses those that the endpoint cannot have, unknown ones among them.
#[inline(always)]
fn hot_flags(bits: u32) -> CompletionFlags {
    CompletionFlags::from_bits_retain(bits)
}

/// A frequent request as a C program asks for it: what is beside its segments is not looked at yet.
trait Wanted: Copy {
    /// The structure that is beside them.
    type Beside: Copy;
    type What<'a>: FastOp;
    /// The address of the structure; of none one that is not wrong.
    fn address(self) -> usize;
    /// The request.
    fn what(beside: &Self::Beside) -> Self::What<'_>;
    /// The structure where it is.
    ///
    /// # Safety
    /// It is there: not NULL, aligned, valid for reads until the result is used up.
    unsafe fn beside<'a>(self) -> &'a Self::Beside;
    /// A copy of the structure, of any address.
    ///
    /// # Safety
    /// It is NULL or valid for reads.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER`.
    unsafe fn copied(self) -> Result<Self::Beside>;
}

impl Wanted for Send {
    type Beside = ();
    type What<'a> = Self;
    #[inline(always)]
    fn address(self) -> usize {
        8
    }
    #[inline(always)]
    fn what((): &()) -> Self {
        Self
    }
    #[inline(always)]
    unsafe fn beside<'a>(self) -> &'a () {
        &()
    }
    #[inline(always)]
    unsafe fn copied(self) -> Result<()> {
        Ok(())
    }
}

/// dat_ep_post_rdma_write to here.
#[derive(Clone, Copy)]
struct WriteTo<R>(*const R);

/// dat_ep_post_rdma_read from here.
#[derive(Clone, Copy)]
struct ReadFrom<R>(*const R);

macro_rules! wanted {
    ($($from:ident: $what:ident;)*) => {$(
        impl<R: Remote + 'static> Wanted for $from<R> {
            type Beside = R;
            type What<'a> = $what<'a, R>;
            #[inline(always)]
            fn address(self) -> usize {
                self.0.addr()
            }
            #[inline(always)]
            fn what(beside: &R) -> $what<'_, R> {
                $what(beside)
            }
            #[inline(always)]
            unsafe fn beside<'a>(self) -> &'a R {
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

wanted! {
    WriteTo: RdmaWrite;
    ReadFrom: RdmaRead;
}

/// 0 if both addresses are of something: not NULL, and aligned.
#[inline(always)]
fn wrong(one: usize, other: usize) -> u32 {
    // NULL less 8 has the highest bit, a misaligned address one of the lowest three: the rotation brings these four
    // together. (No program has an address with the highest bit.)
    let pointers = one.wrapping_sub(8) | other.wrapping_sub(8);
    pointers.rotate_left(1) as u32 & 0xf
}

/// Whether this is the usual post: to an endpoint, dead or alive, of one segment, without flags; `iov` and `beside` are
/// then not NULL, and aligned.
#[inline(always)]
fn is_usual<T: Transport, L>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const L,
    beside: usize,
    completion: u32,
) -> bool {
    const { assert!(align_of::<L>() <= 8) };
    // One test for all but the endpoint.
    segments.wrapping_sub(1).cast_unsigned() | completion | wrong(iov.addr(), beside) == 0
        && T::arenas().ep.holds(ep)
}

/// A request. A dead endpoint has no room for requests: that is how core knows it on the short way.
///
/// # Safety
/// As the slot's contract has it: the pointers are NULL or valid.
#[inline(always)]
unsafe fn request<T: Transport, V: Layout, W: Wanted>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const V::Local,
    cookie: DatContext,
    completion: u32,
    wanted: W,
) -> u32 {
    guard_hot::<V>(|| {
        if is_usual::<T, _>(ep, segments, iov, wanted.address(), completion) {
            // SAFETY: an endpoint's address; not NULL, aligned, and valid by the slot's contract.
            let (ep, one, what) =
                unsafe { (T::arenas().ep.at(ep), &*iov, W::what(wanted.beside())) };
            return ep.post_fast(One(one), cookie, CompletionFlags::empty(), what);
        }
        // SAFETY: the same promise.
        unsafe {
            if completion == 0 {
                several::<T, V, W>(ep, segments, iov, cookie, wanted)
            } else {
                flagged::<T, V, W>(ep, segments, iov, cookie, completion, wanted)
            }
        }
    })
}

/// One segment, and flags.
///
/// # Safety
/// As [`request`].
#[inline(never)]
unsafe fn flagged<T: Transport, V: Layout, W: Wanted>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const V::Local,
    cookie: DatContext,
    completion: u32,
    wanted: W,
) -> Result<()> {
    if is_usual::<T, _>(ep, segments, iov, wanted.address(), 0) {
        // SAFETY: as in `request`.
        let (ep, one, what) = unsafe { (T::arenas().ep.at(ep), &*iov, W::what(wanted.beside())) };
        return ep.post_fast(One(one), cookie, hot_flags(completion), what);
    }
    // SAFETY: the same promise.
    unsafe { unusual::<T, V, W>(ep, segments, iov, cookie, completion, wanted) }
}

/// Several segments, no flags.
///
/// # Safety
/// As [`request`].
#[inline(never)]
unsafe fn several<T: Transport, V: Layout, W: Wanted>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const V::Local,
    cookie: DatContext,
    wanted: W,
) -> Result<()> {
    if wrong(iov.addr(), wanted.address()) == 0 && T::arenas().ep.holds(ep) {
        // SAFETY: as in `request`.
        let (ep, what) = unsafe { (T::arenas().ep.at(ep), W::what(wanted.beside())) };
        let count = segments.cast_unsigned();
        // Not 0 and not too many. Before that is known none is read.
        if count.wrapping_sub(1) < ep.max_segments() {
            // SAFETY: not NULL, aligned, and valid by the slot's contract.
            let all = unsafe { std::slice::from_raw_parts(iov, count as usize) };
            let no = CompletionFlags::empty();
            if let Some(posted) = V::few(all, |all| ep.post_fast(all, cookie, no, what)) {
                return posted;
            }
        }
    }
    // SAFETY: the same promise.
    unsafe { unusual::<T, V, W>(ep, segments, iov, cookie, 0, wanted) }
}

/// Any other post, good or bad.
///
/// # Safety
/// As [`request`].
#[cold]
#[inline(never)]
unsafe fn unusual<T: Transport, V: Layout, W: Wanted>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const V::Local,
    cookie: DatContext,
    completion: u32,
    wanted: W,
) -> Result<()> {
    let ep = find::<T>(ep)?;
    // SAFETY: by the caller's promise.
    let (given, beside) = unsafe { (Given::new(segments, iov, 2)?, wanted.copied()?) };
    given.with(ep.max_segments(), |iov| {
        ep.post_slow(iov, cookie, hot_flags(completion), W::what(&beside))
    })
}

/// Any other receive, good or bad.
///
/// # Safety
/// As [`request`].
#[inline(never)]
unsafe fn unusual_recv<T: Transport, V: Layout>(
    ep: DatHandle,
    segments: DatCount,
    iov: *const V::Local,
    cookie: DatContext,
    completion: u32,
) -> Result<()> {
    let ep = find::<T>(ep)?;
    // SAFETY: by the caller's promise.
    let given = unsafe { Given::new(segments, iov, 2)? };
    given.with(ep.max_recv_segments(), |iov| {
        ep.post_recv(iov, cookie, hot_flags(completion))
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
    unsafe { request::<T, V, _>(ep, segments, iov, cookie, completion, Send) }
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
    unsafe { request::<T, V, _>(ep, segments, iov, cookie, completion, ReadFrom(remote)) }
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
    unsafe { request::<T, V, _>(ep, segments, iov, cookie, completion, WriteTo(remote)) }
}

pub(crate) unsafe extern "C" fn ep_post_recv<T: Transport, V: Layout>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut V::Local,
    cookie: DatContext,
    completion: u32,
) -> u32 {
    guard_hot::<V>(|| {
        if is_usual::<T, _>(ep, segments, iov, Send.address(), completion) {
            // SAFETY: an endpoint's address; not NULL, aligned, and valid by the slot's contract.
            let (ep, one) = unsafe { (T::arenas().ep.at(ep), &*iov) };
            return ep.post_recv_fast(one, cookie);
        }
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { unusual_recv::<T, V>(ep, segments, iov, cookie, completion) }
    })
}

pub(crate) unsafe extern "C" fn srq_post_recv<T: Transport, V: Layout>(
    srq: DatHandle,
    segments: DatCount,
    iov: *mut V::Local,
    cookie: DatContext,
) -> u32 {
    guard_hot::<V>(|| {
        let srq = handle::srq::<T>(srq, Subtype::InvalidHandleSrq)?;
        // SAFETY: NULL or valid by the slot's contract.
        let given = unsafe { Given::new(segments, iov.cast_const(), 2)? };
        given.with(srq.max_segments(), |iov| srq.post_recv(iov, cookie))
    })
}
