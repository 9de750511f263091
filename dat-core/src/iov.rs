//! Scatter/gather elements and remote addresses, laid out as in uDAPL 2.0 so that a 2.0 post needs no
//! conversion (and bit for bit like an `ibv_sge`).

/// `DAT_LMR_TRIPLET` of 2.0: a piece of local memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct LmrTriplet {
    /// First byte.
    pub virtual_address: u64,
    /// Bytes.
    pub segment_length: u32,
    /// The LMR's local key.
    pub lmr_context: u32,
}

/// `DAT_RMR_TRIPLET` of 2.0: a piece of remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct RmrTriplet {
    /// First byte, in the remote region's counting.
    pub virtual_address: u64,
    /// Bytes.
    pub segment_length: u32,
    /// The remote key.
    pub rmr_context: u32,
}
