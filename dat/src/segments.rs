//! Segments of posts, in the form of the function table.

use dat_core::iov::LmrTriplet;

use crate::memory::region::{READ_ONLY, Slice};
use crate::post_error::{PostCall, PostError};

/// Most segments of a post.
const MOST: usize = 16;

/// Segments of a post in the form of the function table. They were checked.
pub(crate) struct Segments {
    triplets: [LmrTriplet; MOST],
    count: usize,
}

impl Segments {
    /// The segments of a request on memory of the zone with handle `zone`.
    #[inline]
    pub(crate) fn request(
        slices: &[Slice<'_>],
        zone: usize,
        most: usize,
        call: PostCall,
    ) -> Result<Self, PostError> {
        let check = |slice: &Slice<'_>| {
            if slice.zone == zone {
                Ok(())
            } else {
                Err(PostError::OtherZone { call })
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
        call: PostCall,
        refused: impl Fn() -> PostError,
    ) -> Result<Self, PostError> {
        let check = |slice: &Slice<'_>| {
            if slice.zone != zone {
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
        call: PostCall,
        check: impl Fn(&Slice<'_>) -> Result<(), PostError>,
    ) -> Result<Self, PostError> {
        if slices.len() > most.min(MOST) {
            return Err(PostError::TooManySegments {
                call,
                given: u32::try_from(slices.len()).unwrap_or(u32::MAX),
                most: most.min(MOST) as u8,
            });
        }
        let mut triplets = [LmrTriplet::default(); MOST];
        for (to, from) in triplets.iter_mut().zip(slices) {
            check(from)?;
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
pub(crate) fn require_writable(slice: &Slice<'_>, call: PostCall) -> Result<(), PostError> {
    if slice.receive_zone == READ_ONLY {
        Err(PostError::ReadOnly { call })
    } else {
        Ok(())
    }
}
