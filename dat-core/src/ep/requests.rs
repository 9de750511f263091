//! The functions that post requests: dat_ep_post_send, dat_ep_post_rdma_read, dat_ep_post_rdma_write, and the 2.0 and IB
//! additions. What they have in common is in `post`.

use super::Ep;
use super::fast_ops::{RdmaRead, RdmaWrite, Send};
use super::post::{Limit, Post};
use crate::error::{Error, Kind, Result};
use crate::event::DtoOp;
use crate::flags::CompletionFlags;
use crate::iov::{Iov, LmrTriplet, RmrTriplet};
use crate::transport::{Op, Transport};

impl<T: Transport> Ep<T> {
    /// dat_ep_post_send. No segments is an empty message.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` unless Connected or Disconnected (there it is flushed), `DAT_INVALID_PARAMETER`
    /// for too many segments (argument 2) or flags that the endpoint cannot have (the last argument),
    /// `DAT_LENGTH_ERROR` beyond the adapter's message size, `DAT_INSUFFICIENT_RESOURCES` when the
    /// endpoint's request DTOs are all outstanding.
    #[inline]
    pub fn post_send<'a>(
        &'static self,
        iov: impl Into<Iov<'a>>,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_slow(iov.into(), cookie, flags, Send)
    }

    /// 2.0 dat_ep_post_send_with_invalidate: the same, and the peer's `rmr_context` is invalidated if `invalidate`.
    ///
    /// # Errors
    /// As [`Ep::post_send`].
    pub fn post_send_with_invalidate<'a>(
        &'static self,
        iov: impl Into<Iov<'a>>,
        cookie: u64,
        flags: CompletionFlags,
        invalidate: bool,
        rmr_context: u32,
    ) -> Result<()> {
        let op = if invalidate {
            Op::SendWithInvalidate(rmr_context)
        } else {
            Op::Send
        };
        self.post_any(&Post {
            iov: iov.into(),
            cookie,
            flags: flags.bits(),
            argument: 5,
            limit: Limit::Message,
            kind: DtoOp::Send,
            op,
        })
    }

    /// dat_ep_post_rdma_read.
    ///
    /// # Errors
    /// As [`Ep::post_send`]; `DAT_LENGTH_ERROR` if the segments are longer than the adapter's RDMA size, or, with
    /// `strict=lengths`, than `remote`.
    #[inline]
    pub fn post_rdma_read<'a>(
        &'static self,
        iov: impl Into<Iov<'a>>,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_slow(iov.into(), cookie, flags, RdmaRead(remote))
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
    pub fn post_rdma_write<'a>(
        &'static self,
        iov: impl Into<Iov<'a>>,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_slow(iov.into(), cookie, flags, RdmaWrite(remote))
    }

    /// IB extension: RDMA Write with immediate data.
    ///
    /// # Errors
    /// As [`Ep::post_rdma_write`].
    pub fn post_rdma_write_immediate<'a>(
        &'static self,
        iov: impl Into<Iov<'a>>,
        cookie: u64,
        remote: &RmrTriplet,
        immediate: u32,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_any(&Post {
            iov: iov.into(),
            cookie,
            flags: flags.bits(),
            argument: 7,
            limit: Limit::Rdma(remote.segment_length.into()),
            kind: DtoOp::RdmaWriteImmediate,
            op: Op::RdmaWriteWithImmediate(*remote, immediate),
        })
    }

    /// IB extension: compare and swap 8 bytes; the old value goes to `local`.
    ///
    /// # Errors
    /// As [`Ep::post_rdma_read`]; `DAT_LENGTH_ERROR` unless `local` is of 8 bytes.
    pub fn compare_swap(
        &'static self,
        compare: u64,
        swap: u64,
        local: &LmrTriplet,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        let op = Op::CompareSwap {
            remote: *remote,
            compare,
            swap,
        };
        self.post_atomic(local, cookie, flags, 7, DtoOp::CompareSwap, op)
    }

    /// IB extension: add to 8 bytes; the old value goes to `local`.
    ///
    /// # Errors
    /// As [`Ep::compare_swap`].
    pub fn fetch_add(
        &'static self,
        add: u64,
        local: &LmrTriplet,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        let op = Op::FetchAdd {
            remote: *remote,
            add,
        };
        self.post_atomic(local, cookie, flags, 6, DtoOp::FetchAdd, op)
    }

    fn post_atomic(
        &'static self,
        local: &LmrTriplet,
        cookie: u64,
        flags: CompletionFlags,
        argument: u16,
        kind: DtoOp,
        op: Op<'_, T>,
    ) -> Result<()> {
        if local.segment_length != 8 {
            return Err(Error::of(Kind::LengthError));
        }
        self.post_any(&Post {
            iov: std::slice::from_ref(local).into(),
            cookie,
            flags: flags.bits(),
            argument,
            limit: Limit::Rdma(0),
            kind,
            op,
        })
    }
}
