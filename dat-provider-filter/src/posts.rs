//! The slots that post requests and receives, and those that end or change the queues of an endpoint.

use std::marker::PhantomData;

use dat_abi::ret::{DAT_SUCCESS, DatReturn};
use dat_abi::types::{DatBoolean, DatContext, DatCount, DatHandle};
use dat_abi::v2_0::table::DatProvider;
use dat_abi::v2_0::types::{DatEpAttr, DatLmrTriplet, DatRmrTriplet};
use dat_core::error::{Error, Subtype};

use crate::filter::{Endpoint, Operation, Post, Queue};
use crate::slots::{Call, Slot, generic, not_implemented};

/// The local memory of a post that the provider has accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments<'a> {
    count: usize,
    list: *const DatLmrTriplet,
    call: PhantomData<&'a ()>,
}

impl Segments<'_> {
    const NONE: Self = Segments {
        count: 0,
        list: std::ptr::null(),
        call: PhantomData,
    };

    /// Returns address and length of each segment.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        (0..self.count).map(|at| {
            // SAFETY: the list has this many elements, at any address, for as long as the call lasts ([`accepted`]).
            let one = unsafe { self.list.add(at).read_unaligned() };
            (one.virtual_address, one.segment_length)
        })
    }

    /// Returns the sum of the lengths.
    pub(crate) fn bytes(&self) -> u64 {
        self.iter().map(|(_, length)| u64::from(length)).sum()
    }
}

/// Returns the segments of a post.
///
/// # Safety
/// The provider has accepted a post with this list, whose caller waits.
unsafe fn accepted<'a>(count: DatCount, list: *const DatLmrTriplet) -> Segments<'a> {
    Segments {
        count: usize::try_from(count).unwrap_or(0),
        list,
        call: PhantomData,
    }
}

/// What the inner provider did with a post.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted<'a> {
    /// Its code.
    pub(crate) code: DatReturn,
    /// The local memory if it accepted the post; else, and for posts without a list, nothing.
    pub(crate) segments: Segments<'a>,
}

/// Runs a post. `wrong` is the subtype for a number that no provider can be asked about.
fn run(
    level: usize,
    post: &Post,
    wrong: Subtype,
    inner: impl Fn(&'static DatProvider) -> Posted<'static>,
) -> DatReturn {
    let (Queue::Requests(handle) | Queue::Receives(handle)) = post.queue;
    let Some(call) = Call::begin(level, post.slot, handle) else {
        return Error::handle(wrong).code();
    };
    if let Some(code) = call.refused() {
        return call.end(code);
    }
    let mut code = None;
    let told = call.tell(|filter| {
        filter.post(post, &mut || {
            let done = inner(call.inner());
            code = Some(done.code);
            done
        })
    });
    // Without a filter, or after its panic, the post still has to be made, but once.
    let code = told.or(code).unwrap_or_else(|| inner(call.inner()).code);
    call.end(code)
}

/// Defines the slots: each with its operation, the kind of its queue, the subtype for a wrong handle, its parameters, its cookie,
/// and number and list of its segments.
macro_rules! posts {
    ($($slot:ident: $operation:ident to $queue:ident / $wrong:ident
        ($first:ident $(, $arg:ident: $ty:ty)*) $cookie:ident [$($count:ident, $list:ident)?];)*) => {$(
        pub(crate) unsafe extern "C" fn $slot<const LEVEL: usize>($first: DatHandle $(, $arg: $ty)*) -> DatReturn {
            let post = Post {
                slot: Slot::$slot,
                queue: Queue::$queue($first),
                operation: Operation::$operation,
                cookie: $cookie,
            };
            run(LEVEL, &post, Subtype::$wrong, |table| {
                let code = match table.$slot {
                    // SAFETY: the slot's contract is that of this one.
                    Some(slot) => unsafe { slot($first $(, $arg)*) },
                    None => not_implemented(),
                };
                // The list may be read only after the provider has judged it.
                let segments = match code {
                    // SAFETY: accepted just now.
                    $(DAT_SUCCESS => unsafe { accepted($count, $list) },)?
                    _ => Segments::NONE,
                };
                Posted { code, segments }
            })
        }
    )*};
}

posts! {
    ep_post_send: Send to Requests / InvalidHandleEp
        (ep, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, flags: u32) cookie [segments, iov];
    ep_post_send_with_invalidate: Send to Requests / InvalidHandleEp
        (ep, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, flags: u32, invalidate: DatBoolean, rmr_context: u32)
        cookie [segments, iov];
    ep_post_recv: Receive to Receives / InvalidHandleEp
        (ep, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, flags: u32) cookie [segments, iov];
    srq_post_recv: Receive to Receives / InvalidHandleSrq
        (srq, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext) cookie [segments, iov];
    ep_post_rdma_read: Read to Requests / InvalidHandleEp
        (ep, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, remote: *const DatRmrTriplet, flags: u32)
        cookie [segments, iov];
    ep_post_rdma_write: Write to Requests / InvalidHandleEp
        (ep, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, remote: *const DatRmrTriplet, flags: u32)
        cookie [segments, iov];
    ep_post_rdma_read_to_rmr: Read to Requests / InvalidHandleEp
        (ep, local: *const DatRmrTriplet, cookie: DatContext, remote: *const DatRmrTriplet, flags: u32) cookie [];
    rmr_bind: Bind to Requests / InvalidHandleRmr
        (rmr, lmr: DatHandle, triplet: *const DatLmrTriplet, privileges: u32, va_type: u32, ep: DatHandle, cookie: DatContext,
         flags: u32, rmr_context: *mut u32) cookie [];
}

/// Tells the filter about an endpoint, after a successful call.
fn about(
    level: usize,
    ep: DatHandle,
    code: DatReturn,
    what: impl FnOnce(&dyn crate::filter::Filter),
) -> DatReturn {
    if code == DAT_SUCCESS
        && let Some(call) = Call::begin(level, Slot::ep_free, ep)
    {
        call.tell(what);
    }
    code
}

/// Slot `ep_create`.
pub(crate) unsafe extern "C" fn ep_create<const LEVEL: usize>(
    ia: DatHandle,
    pz: DatHandle,
    recv_evd: DatHandle,
    request_evd: DatHandle,
    connect_evd: DatHandle,
    attr: *const DatEpAttr,
    ep: *mut DatHandle,
) -> DatReturn {
    // SAFETY: the slot's contract is that of this one.
    let code = unsafe {
        generic::ep_create::<LEVEL>(ia, pz, recv_evd, request_evd, connect_evd, attr, ep)
    };
    if code != DAT_SUCCESS {
        return code;
    }
    let endpoint = Endpoint {
        recv_evd,
        request_evd,
        srq: None,
    };
    // SAFETY: a slot that succeeds has written it.
    let ep = unsafe { ep.read_unaligned() };
    about(LEVEL, ep, code, |filter| filter.created(ep, endpoint))
}

/// Slot `ep_create_with_srq`.
pub(crate) unsafe extern "C" fn ep_create_with_srq<const LEVEL: usize>(
    ia: DatHandle,
    pz: DatHandle,
    recv_evd: DatHandle,
    request_evd: DatHandle,
    connect_evd: DatHandle,
    srq: DatHandle,
    attr: *const DatEpAttr,
    ep: *mut DatHandle,
) -> DatReturn {
    // SAFETY: the slot's contract is that of this one.
    let code = unsafe {
        generic::ep_create_with_srq::<LEVEL>(
            ia,
            pz,
            recv_evd,
            request_evd,
            connect_evd,
            srq,
            attr,
            ep,
        )
    };
    if code != DAT_SUCCESS {
        return code;
    }
    let endpoint = Endpoint {
        recv_evd,
        request_evd,
        srq: Some(srq),
    };
    // SAFETY: a slot that succeeds has written it.
    let ep = unsafe { ep.read_unaligned() };
    about(LEVEL, ep, code, |filter| filter.created(ep, endpoint))
}

/// Slot `ep_reset`.
pub(crate) unsafe extern "C" fn ep_reset<const LEVEL: usize>(ep: DatHandle) -> DatReturn {
    // SAFETY: the slot's contract is that of this one.
    let code = unsafe { generic::ep_reset::<LEVEL>(ep) };
    about(LEVEL, ep, code, |filter| filter.emptied(ep))
}

/// Slot `ep_free`. The filter forgets the posts first: a classic provider gives the number to the next endpoint at once.
pub(crate) unsafe extern "C" fn ep_free<const LEVEL: usize>(ep: DatHandle) -> DatReturn {
    about(LEVEL, ep, DAT_SUCCESS, |filter| filter.freed(ep));
    // SAFETY: the slot's contract is that of this one.
    unsafe { generic::ep_free::<LEVEL>(ep) }
}
