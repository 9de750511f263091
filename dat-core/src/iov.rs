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

/// The segments of a post, which a consumer counts and keeps: those of more than a queue takes are not even read.
#[derive(Clone, Copy, Debug)]
pub struct Iov<'a>(Option<&'a [LmrTriplet]>);

impl<'a> Iov<'a> {
    /// More segments than the queue takes: it refuses them, in its place among what else may be wrong.
    pub const TOO_MANY: Self = Self(None);

    /// All of them; `None` for too many.
    #[must_use]
    pub const fn all(self) -> Option<&'a [LmrTriplet]> {
        self.0
    }

    /// All of them, if they are at most `most`.
    #[inline(always)]
    pub(crate) fn within(self, most: usize) -> Option<&'a [LmrTriplet]> {
        self.0.filter(|all| all.len() <= most)
    }
}

impl<'a> From<&'a [LmrTriplet]> for Iov<'a> {
    #[inline(always)]
    fn from(all: &'a [LmrTriplet]) -> Self {
        Self(Some(all))
    }
}

impl<'a, const COUNT: usize> From<&'a [LmrTriplet; COUNT]> for Iov<'a> {
    #[inline(always)]
    fn from(all: &'a [LmrTriplet; COUNT]) -> Self {
        Self(Some(all))
    }
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
