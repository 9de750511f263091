//! Scatter/gather elements and remote addresses. They have the layout of uDAPL 2.0, so that a 2.0 post needs no conversion; an
//! `ibv_sge` has the same layout.

use std::borrow::Borrow;

/// A segment of local memory (`DAT_LMR_TRIPLET` of 2.0).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct LmrTriplet {
    /// Address of the first byte.
    pub virtual_address: u64,
    /// Length in bytes.
    pub segment_length: u32,
    /// Local key of the LMR.
    pub lmr_context: u32,
}

/// A segment of remote memory (`DAT_RMR_TRIPLET` of 2.0).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct RmrTriplet {
    /// Address of the first byte, as the remote region numbers it.
    pub virtual_address: u64,
    /// Length in bytes.
    pub segment_length: u32,
    /// Remote key of the memory.
    pub rmr_context: u32,
}

/// The segments of a post, in memory of the consumer. They are not read if there are more than the queue accepts.
#[derive(Clone, Copy, Debug)]
pub struct Iov<'a>(Option<&'a [LmrTriplet]>);

impl<'a> Iov<'a> {
    /// Stands for more segments than the queue accepts. The post refuses it at the point where it checks the number of segments.
    pub const TOO_MANY: Self = Self(None);

    /// Returns all segments, or `None` for [`Iov::TOO_MANY`].
    #[must_use]
    pub const fn all(self) -> Option<&'a [LmrTriplet]> {
        self.0
    }

    /// Returns all segments if there are at most `max`.
    #[inline(always)]
    pub(crate) fn within(self, max: usize) -> Option<&'a [LmrTriplet]> {
        self.0.filter(|all| all.len() <= max)
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

/// A segment of local memory in the layout of the consumer's version of the API.
pub trait Local {
    /// Returns the length in bytes.
    fn length(&self) -> u64;
    /// Returns the segment in core's layout. The length must be less than 4 GiB.
    fn triplet(&self) -> impl Borrow<LmrTriplet>;
}

/// A segment of remote memory in the layout of the consumer's version of the API.
pub trait Remote: Copy {
    /// Returns the length in bytes.
    fn length(&self) -> u64;
    /// Returns the segment in core's layout. A greater length becomes `u32::MAX`: it is only an upper bound of the transfer.
    fn triplet(&self) -> RmrTriplet;
}

impl Local for LmrTriplet {
    #[inline(always)]
    fn length(&self) -> u64 {
        self.segment_length.into()
    }
    #[inline(always)]
    fn triplet(&self) -> impl Borrow<Self> {
        self
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
