//! Completions.

use super::constants::{ibv_wc_opcode, ibv_wc_status, wc_flag};

/// `ibv_wc`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Wc {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm_or_rkey: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: u32,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

impl Wc {
    /// Returns true if the work request succeeded.
    #[inline(always)]
    pub(crate) fn succeeded(&self) -> bool {
        self.status == ibv_wc_status::IBV_WC_SUCCESS
    }

    /// Returns true for a successful receive without immediate data or invalidation.
    #[inline(always)]
    pub(crate) fn is_data_only_receive(&self) -> bool {
        self.opcode == ibv_wc_opcode::IBV_WC_RECV
            && self.wc_flags & (wc_flag::WITH_IMM | wc_flag::WITH_INV | wc_flag::KERNEL_WITH_INV)
                == 0
    }

    /// Converts a completion of rdma_rxe to the flags of other devices.
    pub(crate) fn of_rxe(mut self) -> Self {
        if self.wc_flags & wc_flag::KERNEL_WITH_INV != 0 {
            self.wc_flags |= wc_flag::WITH_INV;
        }
        self
    }
}
