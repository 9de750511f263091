//! Work queue elements: requests of the send queue.

use crate::opcode::Opcode;
use crate::psn::Psn;
use crate::work::{CompletedOp, Op};

/// A request of the send queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wqe {
    pub(super) wr_id: u64,
    pub(super) op: Op,
    pub(super) signaled: bool,
    pub(super) solicited: bool,
    pub(super) fence: bool,
    pub(super) sge_count: usize,
    pub(super) length: u32,
    /// First PSN and number of PSNs, once the request was begun.
    pub(super) span: Option<(Psn, u32)>,
}

impl Wqe {
    pub(super) const fn completed_op(&self) -> CompletedOp {
        match self.op {
            Op::Send | Op::SendImm(_) | Op::SendInvalidate(_) | Op::Datagram { .. } => {
                CompletedOp::Send
            }
            Op::Write(_) | Op::WriteImm(..) => CompletedOp::Write,
            Op::Read(_) => CompletedOp::Read,
            Op::CompareSwap { .. } => CompletedOp::CompareSwap,
            Op::FetchAdd { .. } => CompletedOp::FetchAdd,
            Op::LocalInvalidate(_) => CompletedOp::LocalInvalidate,
            Op::Bind(_) => CompletedOp::Bind,
        }
    }

    /// Returns true if the answer is more than an acknowledgement.
    pub(super) const fn has_response(&self) -> bool {
        matches!(
            self.op,
            Op::Read(_) | Op::CompareSwap { .. } | Op::FetchAdd { .. }
        )
    }

    pub(super) const fn is_local(&self) -> bool {
        matches!(self.op, Op::LocalInvalidate(_) | Op::Bind(_))
    }

    pub(super) fn packets(&self, mtu: u32) -> u32 {
        match self.op {
            Op::LocalInvalidate(_) | Op::Bind(_) => 0,
            Op::CompareSwap { .. } | Op::FetchAdd { .. } => 1,
            _ => self.length.div_ceil(mtu).max(1),
        }
    }

    /// Returns the opcode of a packet of a SEND or WRITE.
    pub(super) fn opcode(&self, first: bool, last: bool) -> Opcode {
        use Opcode as O;
        match (self.op, first, last) {
            (Op::Write(_) | Op::WriteImm(..), true, false) => O::WriteFirst,
            (Op::Write(_) | Op::WriteImm(..), false, false) => O::WriteMiddle,
            (Op::Write(_), false, true) => O::WriteLast,
            (Op::Write(_), true, true) => O::WriteOnly,
            (Op::WriteImm(..), false, true) => O::WriteLastImm,
            (Op::WriteImm(..), true, true) => O::WriteOnlyImm,
            (_, true, false) => O::SendFirst,
            (_, false, false) => O::SendMiddle,
            (Op::SendImm(_), false, true) => O::SendLastImm,
            (Op::SendImm(_), true, true) => O::SendOnlyImm,
            (Op::SendInvalidate(_), false, true) => O::SendLastInvalidate,
            (Op::SendInvalidate(_), true, true) => O::SendOnlyInvalidate,
            (_, false, true) => O::SendLast,
            (_, true, true) => O::SendOnly,
        }
    }
}
