//! Requests with a fast path ([`Ep::post_fast`](super::Ep::post_fast)).

use crate::event::DtoOp;
use crate::iov::Remote;
use crate::transport::{Op, Transport};

/// Operation of such a request, with its operands beside segments and cookie.
pub trait FastOp: Copy {
    /// Operation in the completion's event.
    const KIND: DtoOp;
    /// Argument number of the flags in the C prototype.
    const FLAGS: u16;
    /// Returns the length of the remote buffer, if there is one.
    fn remote(self) -> Option<u64>;
    /// Returns the operation for the transport.
    fn op<T: Transport>(self) -> Op<'static, T>;
}

/// dat_ep_post_send.
#[derive(Clone, Copy, Debug)]
pub struct Send;

/// dat_ep_post_rdma_write.
#[derive(Clone, Copy, Debug)]
pub struct RdmaWrite<'a, R>(pub &'a R);

/// dat_ep_post_rdma_read.
#[derive(Clone, Copy, Debug)]
pub struct RdmaRead<'a, R>(pub &'a R);

impl FastOp for Send {
    const KIND: DtoOp = DtoOp::Send;
    const FLAGS: u16 = 5;
    #[inline(always)]
    fn remote(self) -> Option<u64> {
        None
    }
    #[inline(always)]
    fn op<T: Transport>(self) -> Op<'static, T> {
        Op::Send
    }
}

impl<R: Remote> FastOp for RdmaWrite<'_, R> {
    const KIND: DtoOp = DtoOp::RdmaWrite;
    const FLAGS: u16 = 6;
    #[inline(always)]
    fn remote(self) -> Option<u64> {
        Some(self.0.length())
    }
    #[inline(always)]
    fn op<T: Transport>(self) -> Op<'static, T> {
        Op::RdmaWrite(self.0.triplet())
    }
}

impl<R: Remote> FastOp for RdmaRead<'_, R> {
    const KIND: DtoOp = DtoOp::RdmaRead;
    const FLAGS: u16 = 6;
    #[inline(always)]
    fn remote(self) -> Option<u64> {
        Some(self.0.length())
    }
    #[inline(always)]
    fn op<T: Transport>(self) -> Op<'static, T> {
        Op::RdmaRead(self.0.triplet())
    }
}
