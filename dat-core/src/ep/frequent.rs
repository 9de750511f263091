//! The requests that programs post all the time: they have a short way ([`Ep::post_one`](super::Ep::post_one)).

use crate::event::DtoOp;
use crate::iov::RmrTriplet;
use crate::transport::{Op, Transport};

/// One of them, with what it needs beside a segment and a cookie.
pub trait Frequent: Copy {
    /// What completes.
    const KIND: DtoOp;
    /// The number of the flags in the C prototype.
    const FLAGS: u16;
    /// The remote buffer, if there is one.
    fn remote(&self) -> Option<&RmrTriplet>;
    /// For the transport.
    fn op<T: Transport>(self) -> Op<'static, T>;
}

/// dat_ep_post_send.
#[derive(Clone, Copy, Debug)]
pub struct Send;

/// dat_ep_post_rdma_write.
#[derive(Clone, Copy, Debug)]
pub struct RdmaWrite<'a>(pub &'a RmrTriplet);

/// dat_ep_post_rdma_read.
#[derive(Clone, Copy, Debug)]
pub struct RdmaRead<'a>(pub &'a RmrTriplet);

impl Frequent for Send {
    const KIND: DtoOp = DtoOp::Send;
    const FLAGS: u16 = 5;
    #[inline(always)]
    fn remote(&self) -> Option<&RmrTriplet> {
        None
    }
    #[inline(always)]
    fn op<T: Transport>(self) -> Op<'static, T> {
        Op::Send
    }
}

impl Frequent for RdmaWrite<'_> {
    const KIND: DtoOp = DtoOp::RdmaWrite;
    const FLAGS: u16 = 6;
    #[inline(always)]
    fn remote(&self) -> Option<&RmrTriplet> {
        Some(self.0)
    }
    #[inline(always)]
    fn op<T: Transport>(self) -> Op<'static, T> {
        Op::RdmaWrite(*self.0)
    }
}

impl Frequent for RdmaRead<'_> {
    const KIND: DtoOp = DtoOp::RdmaRead;
    const FLAGS: u16 = 6;
    #[inline(always)]
    fn remote(&self) -> Option<&RmrTriplet> {
        Some(self.0)
    }
    #[inline(always)]
    fn op<T: Transport>(self) -> Op<'static, T> {
        Op::RdmaRead(*self.0)
    }
}
