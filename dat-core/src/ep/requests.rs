//! Functions that post requests: dat_ep_post_send, dat_ep_post_rdma_read, dat_ep_post_rdma_write, and the 2.0 and IB
//! additions. `post` has what they share.

use super::Ep;
use super::fast_ops::{RdmaRead, RdmaWrite, Send};
use super::post::{Limit, Post};
use crate::error::{Error, Kind, Result};
use crate::event::DtoOp;
use crate::flags::CompletionFlags;
use crate::iov::{Iov, LmrTriplet, RmrTriplet};
use crate::transport::{Op, Transport};

impl<T: Transport> Ep<T> {
    /// Posts a send (dat_ep_post_send). No segments make an empty message.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` unless Connected or Disconnected (where the send is flushed), `DAT_INVALID_PARAMETER` for
    /// too many segments (argument 2) or flags that the endpoint cannot have (the last argument), `DAT_LENGTH_ERROR`
    /// beyond the adapter's message size, `DAT_INSUFFICIENT_RESOURCES` when all request DTOs of the endpoint are
    /// outstanding.
    #[inline]
    pub fn post_send<'a>(
        &'static self,
        iov: impl Into<Iov<'a>>,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_slow(iov.into(), cookie, flags, Send)
    }

    /// Posts a send that invalidates the peer's `rmr_context` if `invalidate` is true (2.0
    /// dat_ep_post_send_with_invalidate).
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
        self.post_request(&Post {
            iov: iov.into(),
            cookie,
            flags: flags.bits(),
            argument: 5,
            limit: Limit::Message,
            kind: DtoOp::Send,
            op,
        })
    }

    /// Posts an RDMA Read (dat_ep_post_rdma_read).
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

    /// Refuses 2.0 dat_ep_post_rdma_read_to_rmr, which no verbs transport supports.
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

    /// Posts an RDMA Write (dat_ep_post_rdma_write).
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

    /// Posts an RDMA Write with immediate data (IB extension).
    ///
    /// # Errors
    /// As [`Ep::post_rdma_write`], with the argument numbers of dat_extension_op.
    pub fn post_rdma_write_immediate<'a>(
        &'static self,
        iov: impl Into<Iov<'a>>,
        cookie: u64,
        remote: &RmrTriplet,
        immediate: u32,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_request(&Post {
            iov: iov.into(),
            cookie,
            flags: flags.bits(),
            argument: 8,
            limit: Limit::Rdma(remote.segment_length.into()),
            kind: DtoOp::RdmaWriteImmediate,
            op: Op::RdmaWriteWithImmediate(*remote, immediate),
        })
    }

    /// Posts a compare-and-swap of 8 bytes, whose old value goes to `local` (IB extension).
    ///
    /// # Errors
    /// As [`Ep::post_rdma_read`]; `DAT_LENGTH_ERROR` unless `local` has 8 bytes.
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
        self.post_atomic(local, cookie, flags, 8, DtoOp::CompareSwap, op)
    }

    /// Posts a fetch-and-add of 8 bytes, whose old value goes to `local` (IB extension).
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
        self.post_atomic(local, cookie, flags, 7, DtoOp::FetchAdd, op)
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
        self.post_request(&Post {
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
