//! Segments of posts, in the form of the function table.

use dat_core::iov::LmrTriplet;

use crate::Access;
use crate::error::{Error, Result};
use crate::memory::region::Slice;

/// Most segments of a post.
const MOST: usize = 16;

/// Segments of a post in the form of the function table. They were checked, and their regions are marked as posted.
pub(crate) struct Segments {
    triplets: [LmrTriplet; MOST],
    count: usize,
}

/// Returns the segment of a post that has one, for memory of the zone with handle `zone`, and marks its region as posted. `None` if the
/// post is another one, or is to be refused: [`Segments`] has room for more, which is cleared each time.
#[inline]
pub(crate) fn single(slices: &[Slice<'_>], zone: usize, most: usize) -> Option<LmrTriplet> {
    match slices {
        [slice] if most != 0 && slice.region.zone == zone => {
            slice.region.mark_posted();
            Some(slice.triplet)
        }
        _ => None,
    }
}

impl Segments {
    /// The segments of a request on memory of the zone with handle `zone`.
    #[inline]
    pub(crate) fn request(
        slices: &[Slice<'_>],
        zone: usize,
        most: usize,
        call: &'static str,
    ) -> Result<Self> {
        let check = |slice: &Slice<'_>| {
            if slice.region.zone == zone {
                Ok(())
            } else {
                Err(Error::OtherZone { call })
            }
        };
        Self::collect(slices, most, call, check)
    }

    /// The segments of a receive for memory of the zone with handle `zone`.
    #[inline]
    pub(crate) fn receive(
        slices: &[Slice<'_>],
        zone: usize,
        most: usize,
        call: &'static str,
        refused: impl Fn() -> Error,
    ) -> Result<Self> {
        let check = |slice: &Slice<'_>| {
            if slice.region.zone != zone {
                return Err(refused());
            }
            require_writable(slice, call)
        };
        Self::collect(slices, most, call, check)
    }

    #[inline]
    fn collect(
        slices: &[Slice<'_>],
        most: usize,
        call: &'static str,
        check: impl Fn(&Slice<'_>) -> Result<()>,
    ) -> Result<Self> {
        if slices.len() > most.min(MOST) {
            return Err(Error::TooManySegments {
                call,
                given: slices.len(),
                most: most.min(MOST),
            });
        }
        let mut triplets = [LmrTriplet::default(); MOST];
        for (to, from) in triplets.iter_mut().zip(slices) {
            check(from)?;
            from.region.mark_posted();
            *to = from.triplet;
        }
        Ok(Self {
            triplets,
            count: slices.len(),
        })
    }

    #[inline]
    pub(crate) fn count(&self) -> i32 {
        self.count as i32
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *const LmrTriplet {
        self.triplets.as_ptr()
    }

    #[inline]
    pub(crate) fn as_mut_ptr(&mut self) -> *mut LmrTriplet {
        self.triplets.as_mut_ptr()
    }
}

#[inline]
pub(crate) fn require_writable(slice: &Slice<'_>, call: &'static str) -> Result<()> {
    if slice.region.access.contains(Access::LOCAL_WRITE) {
        Ok(())
    } else {
        Err(Error::ReadOnly { call })
    }
}
