//! Work requests of a queue pair, and their completions.

use super::{Token, Transport};
use crate::event::{DtoOp, DtoStatus};
use crate::flags::{MemPriv, VaType};
use crate::iov::{LmrTriplet, RmrTriplet};

/// Data that core puts into a work request and reads from its completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct WrId(pub u64);

/// Request of a send queue.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a, T: Transport> {
    /// Id for the completion.
    pub id: WrId,
    /// Operation and its operands.
    pub op: Op<'a, T>,
    /// Local segments. Their lengths are checked against the limits, not against the regions.
    pub iov: &'a [LmrTriplet],
    /// Sum of the segments' lengths.
    pub length: u64,
    /// True if a success must complete (a failure always does).
    pub signaled: bool,
    /// True if the peer's completion is solicited.
    pub solicited: bool,
    /// True if the request must wait for earlier RDMA Reads.
    pub fence: bool,
}

/// Operation of a [`Request`]. A transport refuses one that it does not know with `DAT_NOT_IMPLEMENTED`: later versions may add some.
#[derive(Debug)]
#[non_exhaustive]
pub enum Op<'a, T: Transport> {
    /// Message to a receive of the peer.
    Send,
    /// Message to a receive of the peer that also invalidates the peer's key.
    SendWithInvalidate(u32),
    /// Message to a receive of the peer with immediate data.
    SendWithImmediate(u32),
    /// RDMA Write of the local segments.
    RdmaWrite(RmrTriplet),
    /// RDMA Write of the local segments, with immediate data to a receive of the peer.
    RdmaWriteWithImmediate(RmrTriplet, u32),
    /// RDMA Read into the local segments.
    RdmaRead(RmrTriplet),
    /// Compare-and-swap of 8 bytes; the old value goes to the local segment.
    CompareSwap {
        /// Remote address.
        remote: RmrTriplet,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Fetch-and-add of 8 bytes; the old value goes to the local segment.
    FetchAdd {
        /// Remote address.
        remote: RmrTriplet,
        /// Summand.
        add: u64,
    },
    /// Datagram to an address handle.
    SendUd {
        /// Destination.
        to: &'a T::AddressHandle,
        /// Queue pair number of the destination.
        qpn: u32,
    },
}

impl<T: Transport> Clone for Op<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Transport> Copy for Op<'_, T> {}

/// Bind of an RMR (dat_rmr_bind), posted on a queue pair like a request. `length` 0 unbinds.
#[derive(Debug)]
pub struct Bind<'a, T: Transport> {
    /// Id for the completion.
    pub id: WrId,
    /// Memory window.
    pub rmr: &'a T::Rmr,
    /// Region to open; `None` unbinds.
    pub lmr: Option<&'a T::Lmr>,
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub length: u64,
    /// Rights for the peer.
    pub rights: MemPriv,
    /// Meaning of remote addresses.
    pub va_type: VaType,
    /// True if a success must complete.
    pub signaled: bool,
    /// True if the bind must wait for earlier RDMA Reads.
    pub fence: bool,
}

/// Completion of a work request as a transport reports it. Made by [`Completion::new`]; the transport then sets the fields that
/// apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// Id of the work request.
    pub id: WrId,
    /// Status of the work request.
    pub status: DtoStatus,
    /// For a receive: what arrived (`Receive` and its variants). Ignored for a request, whose operation core records.
    pub op: DtoOp,
    /// Bytes received; ignored for a request, whose length core records.
    pub length: u32,
    /// Immediate data, if `op` says so.
    pub immediate: u32,
    /// Key invalidated by the message, else 0.
    pub invalidated: u32,
    /// For a receive from an SRQ: the token given to `create_qp`; else ignored.
    pub ep: Token,
}

impl Completion {
    /// Returns the completion of request `id`: no bytes, no immediate data, no key, no endpoint.
    #[must_use]
    pub const fn new(id: WrId, status: DtoStatus) -> Self {
        Self {
            id,
            status,
            op: DtoOp::Send,
            length: 0,
            immediate: 0,
            invalidated: 0,
            ep: Token(0),
        }
    }
}

impl Default for Completion {
    fn default() -> Self {
        Self::new(WrId(0), DtoStatus::Success)
    }
}
