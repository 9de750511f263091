//! Posts: sends, receives, RDMA and atomics.

use std::sync::atomic::Ordering;

use dat_abi::v2_0::types::ib_op;

use super::Ep;
use crate::CompletionFlags;
use crate::error::{Queue, Result};
use crate::extension::{full, operate};
use crate::ids::Side;
use crate::memory::region::Slice;
use crate::memory::remote::Remote;
use crate::segments::{Segments, require_writable};
use crate::sys::call;

/// Immediate data and atomics ride on the IB extension; names of its operations.
const WRITE_IMMEDIATE: &str = "dat_ib_post_rdma_write_immed";
const FETCH_ADD: &str = "dat_ib_post_fetch_and_add";
const COMPARE_SWAP: &str = "dat_ib_post_cmp_and_swap";

impl Ep {
    /// Returns the segments of a request.
    #[inline]
    pub(crate) fn segments(&self, slices: &[Slice<'_>], call: &'static str) -> Result<Segments> {
        let most = self.inner.segments[Side::Requests as usize].load(Ordering::Relaxed);
        Segments::request(slices, self.zone(), most, call)
    }

    /// Returns the segments of a request that writes to them.
    fn writable(&self, slices: &[Slice<'_>], call: &'static str) -> Result<Segments> {
        for slice in slices {
            require_writable(slice, call)?;
        }
        self.segments(slices, call)
    }

    /// Counts a post and makes it.
    #[inline]
    pub(crate) fn counted(
        &self,
        side: Side,
        flags: CompletionFlags,
        post: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let entry = self.inner.entry;
        if flags.contains(CompletionFlags::SUPPRESS) {
            entry.inexact();
        }
        entry.post(side);
        let posted = post();
        if posted.is_err() {
            entry.unpost(side);
        }
        posted
    }

    /// Posts a message (dat_ep_post_send); at most 16 slices.
    ///
    /// # Errors
    /// [`Error::NotConnected`](crate::Error::NotConnected), [`Error::QueueFull`](crate::Error::QueueFull), [`Error::TooManySegments`](crate::Error::TooManySegments), [`Error::OtherZone`](crate::Error::OtherZone), [`Error::Call`](crate::Error::Call).
    #[inline]
    pub fn post_send(&self, slices: &[Slice<'_>], cookie: u64) -> Result<()> {
        self.post_send_with(slices, cookie, CompletionFlags::empty())
    }

    /// Posts a message with completion flags: [`CompletionFlags::SOLICITED_WAIT`] wakes a peer that waits for such messages only,
    /// `SUPPRESS` omits the event of a success, `BARRIER_FENCE` waits for earlier reads, `UNSIGNALLED` wakes no waiter.
    ///
    /// # Errors
    /// As [`Ep::post_send`].
    #[inline]
    pub fn post_send_with(
        &self,
        slices: &[Slice<'_>],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let mut s = self.segments(slices, "dat_ep_post_send")?;
        let (count, iov) = (s.count(), s.as_mut_ptr());
        self.counted(Side::Requests, flags, || {
            call!(post Queue::Requests, self.handle(), ep_post_send(count, iov, cookie, flags.bits()))
        })
    }

    /// Posts a message that invalidates a window of the peer, given by its key (dat_ep_post_send_with_invalidate); at most 16 slices.
    /// The peer must have created the window by [`Pz::create_rmr_for_ep`](crate::Pz::create_rmr_for_ep) and bound it on the
    /// connected endpoint.
    ///
    /// # Errors
    /// As [`Ep::post_send`].
    pub fn post_send_with_invalidate(
        &self,
        slices: &[Slice<'_>],
        window: Remote,
        cookie: u64,
    ) -> Result<()> {
        let mut s = self.segments(slices, "dat_ep_post_send_with_invalidate")?;
        let (count, iov, key) = (s.count(), s.as_mut_ptr(), window.key);
        self.counted(Side::Requests, CompletionFlags::empty(), || {
            call!(post Queue::Requests, self.handle(), ep_post_send_with_invalidate(count, iov, cookie, 0, 1, key))
        })
    }

    /// Posts a receive (dat_ep_post_recv); at most 16 slices.
    ///
    /// # Errors
    /// [`Error::QueueFull`](crate::Error::QueueFull), [`Error::NoEvd`](crate::Error::NoEvd), [`Error::HasSrq`](crate::Error::HasSrq), [`Error::OtherZone`](crate::Error::OtherZone), [`Error::ReadOnly`](crate::Error::ReadOnly),
    /// [`Error::TooManySegments`](crate::Error::TooManySegments), [`Error::Call`](crate::Error::Call).
    #[inline]
    pub fn post_recv(&self, slices: &[Slice<'_>], cookie: u64) -> Result<()> {
        self.post_recv_with(slices, cookie, CompletionFlags::empty())
    }

    /// Posts a receive with completion flags.
    ///
    /// # Errors
    /// As [`Ep::post_recv`].
    #[inline]
    pub fn post_recv_with(
        &self,
        slices: &[Slice<'_>],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        const NAME: &str = "dat_ep_post_recv";
        let zone = self.inner.receive_zone.load(Ordering::Relaxed);
        if zone == 0 {
            return Err(self.receive_refused(NAME));
        }
        let most = self.inner.segments[Side::Receives as usize].load(Ordering::Relaxed);
        let mut s = Segments::receive(slices, zone, most, NAME, || self.receive_refused(NAME))?;
        let (count, iov) = (s.count(), s.as_mut_ptr());
        self.counted(Side::Receives, flags, || {
            call!(post Queue::Receives, self.handle(), ep_post_recv(count, iov, cookie, flags.bits()))
        })
    }

    /// Writes to the peer's memory (dat_ep_post_rdma_write); at most 16 slices.
    ///
    /// # Errors
    /// As [`Ep::post_send`].
    #[inline]
    pub fn post_rdma_write(
        &self,
        slices: &[Slice<'_>],
        remote: Remote,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let mut s = self.segments(slices, "dat_ep_post_rdma_write")?;
        let to = remote.triplet();
        let (count, iov) = (s.count(), s.as_mut_ptr());
        self.counted(Side::Requests, flags, || {
            call!(post Queue::Requests, self.handle(), ep_post_rdma_write(count, iov, cookie, &raw const to, flags.bits()))
        })
    }

    /// Reads the peer's memory (dat_ep_post_rdma_read); at most 16 slices.
    ///
    /// # Errors
    /// As [`Ep::post_send`]; [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub fn post_rdma_read(
        &self,
        slices: &[Slice<'_>],
        remote: Remote,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let mut s = self.writable(slices, "dat_ep_post_rdma_read")?;
        let from = remote.triplet();
        let (count, iov) = (s.count(), s.as_mut_ptr());
        self.counted(Side::Requests, flags, || {
            call!(post Queue::Requests, self.handle(), ep_post_rdma_read(count, iov, cookie, &raw const from, flags.bits()))
        })
    }

    /// Writes to the peer's memory and completes a receive of the peer, whose event has `immediate` (dat_ib_post_rdma_write_immed).
    ///
    /// # Errors
    /// As [`Ep::post_send`]; [`Error::Unsupported`](crate::Error::Unsupported) without the IB extension.
    pub fn post_rdma_write_immediate(
        &self,
        slices: &[Slice<'_>],
        remote: Remote,
        immediate: u32,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let s = self.segments(slices, WRITE_IMMEDIATE)?;
        let to = remote.triplet();
        let arguments = [
            s.count() as u64,
            s.as_ptr() as u64,
            cookie,
            &raw const to as u64,
            immediate.into(),
            flags.bits().into(),
        ];
        self.extended(ib_op::RDMA_WRITE_IMMED, WRITE_IMMEDIATE, flags, &arguments)
    }

    /// Adds `add` to the peer's aligned word `remote`; `old` gets the value before (dat_ib_post_fetch_and_add). `old` is 8 bytes.
    ///
    /// # Errors
    /// As [`Ep::post_rdma_write_immediate`]; [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub fn post_fetch_add(
        &self,
        old: Slice<'_>,
        remote: Remote,
        add: u64,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let local = self.writable(&[old], FETCH_ADD)?;
        let to = remote.triplet();
        let arguments = [
            add,
            local.as_ptr() as u64,
            cookie,
            &raw const to as u64,
            flags.bits().into(),
        ];
        self.extended(ib_op::FETCH_AND_ADD, FETCH_ADD, flags, &arguments)
    }

    /// Replaces the peer's aligned word `remote` by `new` if it is `expected`; `old` gets the value before
    /// (dat_ib_post_cmp_and_swap). `old` is 8 bytes.
    ///
    /// # Errors
    /// As [`Ep::post_fetch_add`].
    pub fn post_compare_swap(
        &self,
        old: Slice<'_>,
        remote: Remote,
        (expected, new): (u64, u64),
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let local = self.writable(&[old], COMPARE_SWAP)?;
        let to = remote.triplet();
        let arguments = [
            expected,
            new,
            local.as_ptr() as u64,
            cookie,
            &raw const to as u64,
            flags.bits().into(),
        ];
        self.extended(ib_op::CMP_AND_SWAP, COMPARE_SWAP, flags, &arguments)
    }

    fn extended(
        &self,
        op: i32,
        name: &'static str,
        flags: CompletionFlags,
        arguments: &[u64],
    ) -> Result<()> {
        self.counted(Side::Requests, flags, || {
            // SAFETY: the callers pass the arguments of the operation; their pointers are valid during the call.
            unsafe { operate(self.handle(), op, name, arguments) }
        })
        .map_err(|error| full(error, name))
    }
}
