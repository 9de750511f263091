//! Arrays of segments that C programs pass: at any alignment, of any count, in the layout of their version.
//!
//! No more segments are read than the queue accepts, whatever the count says.

use std::any::TypeId;
use std::borrow::Borrow as _;
use std::mem::size_of;

use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::iov::{Iov, LmrTriplet, Local};
use dat_core::rmr::LmrRange;

use crate::types::DatCount;

/// Number of segments that are copied to the stack; longer arrays are copied to the heap.
const ON_STACK: usize = 16;

/// An array with a valid count and pointer, whose segments are not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentArray<L> {
    first: *const L,
    count: usize,
}

impl<L: Local + 'static> SegmentArray<L> {
    /// Makes the array of argument `number` + 1; its count is argument `number`.
    ///
    /// # Safety
    /// If `count` is positive, `first` is NULL or valid for reads of `count` segments, at any alignment, until the last use of the result.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` for a negative count, or NULL with a positive one.
    pub(crate) unsafe fn new(count: DatCount, first: *const L, number: u16) -> Result<Self> {
        let count = usize::try_from(count).map_err(|_| Error::arg(number))?;
        if count > 0 && first.is_null() {
            return Err(Error::arg(number + 1));
        }
        Ok(Self { first, count })
    }

    /// Reads the segment at `index`, which is below the count.
    fn read(&self, index: usize) -> Result<LmrTriplet> {
        // SAFETY: the promise of `new`; every bit pattern is a segment.
        let segment = unsafe { self.first.add(index).read_unaligned() };
        if segment.length() > u32::MAX.into() {
            return Err(Error::of(Kind::LengthError));
        }
        Ok(*segment.triplet().borrow())
    }

    /// Calls `f` with all segments in core's layout, or with [`Iov::TOO_MANY`] if there are more than `max`.
    ///
    /// # Errors
    /// The errors of `f`; `DAT_LENGTH_ERROR` for a segment of 4 GiB or more; `DAT_INSUFFICIENT_RESOURCES`.
    pub(crate) fn with<R>(self, max: u32, f: impl FnOnce(Iov<'_>) -> Result<R>) -> Result<R> {
        if self.count > max as usize {
            return f(Iov::TOO_MANY);
        }
        if self.count == 0 {
            return f(Iov::from(&[]));
        }
        let same = self.first.cast::<LmrTriplet>();
        if TypeId::of::<L>() == TypeId::of::<LmrTriplet>() && same.is_aligned() {
            // SAFETY: the type is the same, the address is aligned, and it is valid by the promise of `new`.
            return f(Iov::from(unsafe {
                std::slice::from_raw_parts(same, self.count)
            }));
        }
        if self.count <= ON_STACK {
            let mut buffer = [LmrTriplet::default(); ON_STACK];
            let few = &mut buffer[..self.count];
            for (index, to) in few.iter_mut().enumerate() {
                *to = self.read(index)?;
            }
            return f(Iov::from(&*few));
        }
        let mut many = Vec::new();
        many.try_reserve_exact(self.count)
            .map_err(|_| Error::resource(Subtype::ResourceMemory))?;
        for index in 0..self.count {
            many.push(self.read(index)?);
        }
        f(Iov::from(&*many))
    }
}

/// Iterator over the segments of dat_lmr_sync_rdma_*. The call does not limit their number, so the segments of a long array are read
/// through the kernel: if the memory ends before the count, the call returns an error and no signal is raised.
pub(crate) struct SyncSegments<L> {
    next: *const L,
    left: usize,
    /// Whether the array is long enough to be read through the kernel.
    long: bool,
}

impl<L: Local + 'static> SyncSegments<L> {
    /// Makes the iterator for argument 2, whose count is argument 3.
    ///
    /// # Safety
    /// `first` is NULL or valid for reads of `count` segments, at any alignment, until the last use of the result.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` for NULL with a positive count, and for a count that does not fit a `DAT_COUNT`.
    pub(crate) unsafe fn new(first: *const L, count: u64) -> Result<Self> {
        let count = DatCount::try_from(count).map_err(|_| Error::arg(3))?;
        let left = usize::try_from(count).map_err(|_| Error::arg(3))?;
        if left > 0 && first.is_null() {
            return Err(Error::arg(2));
        }
        Ok(Self {
            next: first,
            left,
            long: left > ON_STACK,
        })
    }
}

impl<L: Local + 'static> Iterator for SyncSegments<L> {
    type Item = Result<LmrRange>;

    fn next(&mut self) -> Option<Result<LmrRange>> {
        self.left = self.left.checked_sub(1)?;
        let at = self.next;
        self.next = at.wrapping_add(1);
        if self.long && !readable(at.cast(), size_of::<L>()) {
            return Some(Err(Error::arg(2)));
        }
        // SAFETY: the promise of `new`; every bit pattern is a segment.
        let segment = unsafe { at.read_unaligned() };
        // The length apart, because a segment of 1.2 may have 4 GiB or more.
        Some(Ok(LmrRange {
            length: segment.length(),
            ..LmrRange::from(*segment.triplet().borrow())
        }))
    }
}

/// Returns true if the kernel can read these bytes; true also if it refuses to say.
fn readable(at: *const u8, bytes: usize) -> bool {
    let mut buffer = [0_u8; 64];
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: bytes.min(buffer.len()),
    };
    let remote = libc::iovec {
        iov_base: at.cast_mut().cast(),
        iov_len: local.iov_len,
    };
    // SAFETY: the buffer is ours; the kernel checks the other range.
    let read = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    match usize::try_from(read) {
        Ok(read) => read == local.iov_len,
        Err(_) => std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1_2::types::DatLmrTriplet;

    const ONE: LmrTriplet = LmrTriplet {
        virtual_address: 0x1_2345_6789,
        segment_length: 7,
        lmr_context: 9,
    };
    const OLD: DatLmrTriplet = DatLmrTriplet {
        lmr_context: 9,
        pad: 0,
        virtual_address: 0x1_2345_6789,
        segment_length: 7,
    };

    /// Returns the segments that [`SegmentArray::with`] passes; `None` for too many.
    fn seen<L: Local + 'static>(
        count: i32,
        at: *const L,
        max: u32,
    ) -> Result<Option<Vec<LmrTriplet>>> {
        // SAFETY: the callers' arrays are as long as the count, or as the limit.
        let given = unsafe { SegmentArray::new(count, at, 2)? };
        given.with(max, |iov| Ok(iov.all().map(<[_]>::to_vec)))
    }

    /// Returns an array of `count` copies of `one`, `offset` bytes behind an aligned address.
    fn placed<L: Copy>(one: L, count: usize, offset: usize) -> (Vec<u64>, *const L) {
        let mut buffer = vec![0_u64; (count * size_of::<L>()).div_ceil(8) + 2];
        // SAFETY: inside the buffer.
        let at = unsafe { buffer.as_mut_ptr().byte_add(offset).cast::<L>() };
        for index in 0..count {
            // SAFETY: as above.
            unsafe { at.add(index).write_unaligned(one) };
        }
        (buffer, at)
    }

    #[test]
    fn alignment_and_layout_do_not_change_the_segments() {
        for offset in [0, 1, 4, 7] {
            for count in [1, 3, ON_STACK, ON_STACK + 1, 40] {
                let number = count as i32;
                let (_new, new) = placed(ONE, count, offset);
                assert_eq!(seen(number, new, 40), Ok(Some(vec![ONE; count])));
                let (_old, old) = placed(OLD, count, offset);
                assert_eq!(seen(number, old, 40), Ok(Some(vec![ONE; count])));
            }
        }
    }

    #[test]
    fn a_sync_takes_a_long_segment_of_1_2() {
        let long = DatLmrTriplet {
            segment_length: 5 << 30,
            ..OLD
        };
        let (_buffer, at) = placed(long, 1, 1);
        // SAFETY: one segment is there.
        let mut segments = unsafe { SyncSegments::new(at, 1).unwrap() };
        let expected = LmrRange {
            lmr_context: 9,
            address: 0x1_2345_6789,
            length: 5 << 30,
        };
        assert_eq!(segments.next(), Some(Ok(expected)));
        assert_eq!(segments.next(), None);
    }

    #[test]
    fn an_array_with_a_wrong_count_is_not_read() {
        let (_buffer, one) = placed(ONE, 1, 0);
        let (_buffer, old) = placed(OLD, 1, 0);
        for count in [2, 100, i32::MAX] {
            assert_eq!(seen(count, one, 1), Ok(None));
            assert_eq!(seen(count, old, 1), Ok(None));
        }
        assert_eq!(seen(-1, one, 1), Err(Error::arg(2)));
        assert_eq!(
            seen::<LmrTriplet>(1, std::ptr::null(), 4),
            Err(Error::arg(3))
        );
        assert_eq!(seen::<LmrTriplet>(0, std::ptr::null(), 4), Ok(Some(vec![])));
        let long = DatLmrTriplet {
            segment_length: 1 << 32,
            ..OLD
        };
        let (_buffer, long) = placed(long, 1, 0);
        assert_eq!(seen(1, long, 4), Err(Error::of(Kind::LengthError)));
    }
}
