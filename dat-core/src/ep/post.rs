//! Posting work (dat_ep_post_send, dat_ep_post_recv, dat_ep_post_rdma_read, dat_ep_post_rdma_write and the
//! 2.0 and IB additions). The hot path: one lock, no allocation, no division.

use super::Ep;
use crate::error::{Error, Kind, Result};
use crate::flags::CompletionFlags;
use crate::iov::{LmrTriplet, RmrTriplet};
use crate::transport::{Bind, Transport, WrId};

impl<T: Transport> Ep<T> {
    /// dat_ep_post_send. No segments is an empty message.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` unless Connected or Disconnected (there it is flushed), `DAT_INVALID_PARAMETER`
    /// for too many segments (argument 2) or flags that the endpoint cannot have (the last argument),
    /// `DAT_LENGTH_ERROR` beyond the endpoint's message size, `DAT_INSUFFICIENT_RESOURCES` when the
    /// endpoint's request DTOs are all outstanding.
    #[inline]
    pub fn post_send(
        &'static self,
        _iov: &[LmrTriplet],
        _cookie: u64,
        _flags: CompletionFlags,
    ) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// 2.0 dat_ep_post_send_with_invalidate: the same, and the peer's `rmr_context` is invalidated if `invalidate`.
    ///
    /// # Errors
    /// As [`Ep::post_send`].
    pub fn post_send_with_invalidate(
        &'static self,
        _iov: &[LmrTriplet],
        _cookie: u64,
        _flags: CompletionFlags,
        _invalidate: bool,
        _rmr_context: u32,
    ) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_ep_post_recv, in any state; in Disconnected it is flushed.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (too many segments: argument 2; flags: 5), `DAT_INVALID_STATE` for an endpoint
    /// on an SRQ, `DAT_INSUFFICIENT_RESOURCES` when the endpoint's receive DTOs are all outstanding.
    #[inline]
    pub fn post_recv(
        &'static self,
        _iov: &[LmrTriplet],
        _cookie: u64,
        _flags: CompletionFlags,
    ) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_ep_post_rdma_read.
    ///
    /// # Errors
    /// As [`Ep::post_send`]; `DAT_LENGTH_ERROR` if the segments and `remote` differ in length, or are longer than
    /// the endpoint's RDMA size.
    #[inline]
    pub fn post_rdma_read(
        &'static self,
        _iov: &[LmrTriplet],
        _cookie: u64,
        _remote: &RmrTriplet,
        _flags: CompletionFlags,
    ) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// 2.0 dat_ep_post_rdma_read_to_rmr: no verbs transport can.
    ///
    /// # Errors
    /// `DAT_MODEL_NOT_SUPPORTED`.
    pub fn post_rdma_read_to_rmr(
        &'static self,
        _local: &RmrTriplet,
        _cookie: u64,
        _remote: &RmrTriplet,
        _flags: CompletionFlags,
    ) -> Result<()> {
        Err(Error::of(Kind::ModelNotSupported))
    }

    /// dat_ep_post_rdma_write.
    ///
    /// # Errors
    /// As [`Ep::post_rdma_read`].
    #[inline]
    pub fn post_rdma_write(
        &'static self,
        _iov: &[LmrTriplet],
        _cookie: u64,
        _remote: &RmrTriplet,
        _flags: CompletionFlags,
    ) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// IB extension: RDMA Write with immediate data.
    ///
    /// # Errors
    /// As [`Ep::post_rdma_write`].
    pub fn post_rdma_write_immediate(
        &'static self,
        _iov: &[LmrTriplet],
        _cookie: u64,
        _remote: &RmrTriplet,
        _immediate: u32,
        _flags: CompletionFlags,
    ) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// IB extension: compare and swap 8 bytes; the old value goes to `local`.
    ///
    /// # Errors
    /// As [`Ep::post_rdma_read`]; `DAT_LENGTH_ERROR` unless `local` is of 8 bytes.
    pub fn compare_swap(
        &'static self,
        _compare: u64,
        _swap: u64,
        _local: &LmrTriplet,
        _cookie: u64,
        _remote: &RmrTriplet,
        _flags: CompletionFlags,
    ) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// IB extension: add to 8 bytes; the old value goes to `local`.
    ///
    /// # Errors
    /// As [`Ep::compare_swap`].
    pub fn fetch_add(
        &'static self,
        _add: u64,
        _local: &LmrTriplet,
        _cookie: u64,
        _remote: &RmrTriplet,
        _flags: CompletionFlags,
    ) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// For `Rmr::bind`: takes a request slot for the RMR at `rmr_index` of its arena, and lets `make` build the bind for
    /// `T::post_bind` with the id and the transport's `signaled` and `fence`. Returns the new context.
    ///
    /// # Errors
    /// As [`Ep::post_send`] with the flags as argument 7; what `T::post_bind` says.
    pub(crate) fn post_bind<'a>(
        &'static self,
        _rmr_index: u32,
        _cookie: u64,
        _flags: CompletionFlags,
        _make: impl FnOnce(WrId, bool, bool) -> Bind<'a, T>,
    ) -> Result<u32> {
        Err(Error::of(Kind::NotImplemented))
    }
}
