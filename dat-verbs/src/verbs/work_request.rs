//! The fields of a work request that depend on its operation.

use dat_core::transport::Op;

use crate::Verbs;
use crate::sys::{self, ibv_wr_opcode as opcode, send};

/// An operation as verbs has it.
pub(super) struct Operation {
    pub(super) opcode: u32,
    /// `INLINE` for an operation whose payload may be in the work request, otherwise 0.
    pub(super) inline: u32,
}

impl Operation {
    const fn with_payload(opcode: u32) -> Option<Self> {
        let inline = send::INLINE;
        Some(Self { opcode, inline })
    }

    const fn without_payload(opcode: u32) -> Option<Self> {
        let inline = 0;
        Some(Self { opcode, inline })
    }
}

/// Writes the fields that verbs reads for `op`, or returns `None` for an operation that it does not have.
///
/// # Safety
/// `wr` is valid for writes.
// The union is written through the places of its fields, as the rest of `wr` has no value yet.
#[inline(always)]
pub(super) unsafe fn write_operation(
    wr: *mut sys::ibv_send_wr,
    op: Op<'_, Verbs>,
) -> Option<Operation> {
    // SAFETY: the caller's promise holds for each field.
    unsafe {
        let extra = (&raw mut (*wr).imm_or_rkey).cast::<u32>();
        match op {
            Op::Send => Operation::with_payload(opcode::IBV_WR_SEND),
            Op::SendWithInvalidate(key) => {
                extra.write(key);
                Operation::with_payload(opcode::IBV_WR_SEND_WITH_INV)
            }
            Op::SendWithImmediate(data) => {
                extra.write(data);
                Operation::with_payload(opcode::IBV_WR_SEND_WITH_IMM)
            }
            Op::RdmaWrite(to) => {
                (&raw mut (*wr).wr.rdma.remote_addr).write(to.virtual_address);
                (&raw mut (*wr).wr.rdma.rkey).write(to.rmr_context);
                Operation::with_payload(opcode::IBV_WR_RDMA_WRITE)
            }
            Op::RdmaWriteWithImmediate(to, data) => {
                extra.write(data);
                (&raw mut (*wr).wr.rdma.remote_addr).write(to.virtual_address);
                (&raw mut (*wr).wr.rdma.rkey).write(to.rmr_context);
                Operation::with_payload(opcode::IBV_WR_RDMA_WRITE_WITH_IMM)
            }
            Op::RdmaRead(from) => {
                (&raw mut (*wr).wr.rdma.remote_addr).write(from.virtual_address);
                (&raw mut (*wr).wr.rdma.rkey).write(from.rmr_context);
                Operation::without_payload(opcode::IBV_WR_RDMA_READ)
            }
            Op::CompareSwap {
                remote,
                compare,
                swap,
            } => {
                (&raw mut (*wr).wr.atomic.remote_addr).write(remote.virtual_address);
                (&raw mut (*wr).wr.atomic.rkey).write(remote.rmr_context);
                (&raw mut (*wr).wr.atomic.compare_add).write(compare);
                (&raw mut (*wr).wr.atomic.swap).write(swap);
                Operation::without_payload(opcode::IBV_WR_ATOMIC_CMP_AND_SWP)
            }
            Op::FetchAdd { remote, add } => {
                (&raw mut (*wr).wr.atomic.remote_addr).write(remote.virtual_address);
                (&raw mut (*wr).wr.atomic.rkey).write(remote.rmr_context);
                (&raw mut (*wr).wr.atomic.compare_add).write(add);
                (&raw mut (*wr).wr.atomic.swap).write(0);
                Operation::without_payload(opcode::IBV_WR_ATOMIC_FETCH_AND_ADD)
            }
            Op::SendUd { to, qpn } => {
                (&raw mut (*wr).wr.ud.ah).write(to.raw());
                (&raw mut (*wr).wr.ud.remote_qpn).write(qpn);
                (&raw mut (*wr).wr.ud.remote_qkey).write(to.qkey);
                Operation::with_payload(opcode::IBV_WR_SEND)
            }
            _ => None,
        }
    }
}
