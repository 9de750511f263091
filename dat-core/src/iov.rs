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

/// A piece of local memory as a consumer describes it, in the layout of its version of the API.
pub trait Local {
    /// Bytes.
    fn length(&self) -> u64;
    /// Calls `f` with it in core's layout, which its length fits: less than 4 GiB.
    fn with<R>(&self, f: impl FnOnce(&LmrTriplet) -> R) -> R;
}

/// The same of remote memory.
pub trait Remote: Copy {
    /// Bytes.
    fn length(&self) -> u64;
    /// In core's layout. Longer than that can say is as long as it can say: it only bounds what is transferred.
    fn triplet(&self) -> RmrTriplet;
}

impl Local for LmrTriplet {
    #[inline(always)]
    fn length(&self) -> u64 {
        self.segment_length.into()
    }
    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce(&Self) -> R) -> R {
        f(self)
    }
}

impl Remote for RmrTriplet {
    #[inline(always)]
    fn length(&self) -> u64 {
        self.segment_length.into()
    }
    #[inline(always)]
    fn triplet(&self) -> RmrTriplet {
        *self
    }
}
