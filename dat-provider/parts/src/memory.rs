//! Copies between registered ranges. The only module with `unsafe` code.

use std::collections::TryReserveError;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// A range of registered memory. Only [`Keys`](crate::keys::Keys) creates one, after it has checked the bounds. It borrows the keys, so the
/// region cannot be deregistered while it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<'k> {
    address: usize,
    length: usize,
    keys: PhantomData<&'k ()>,
}

impl Range<'_> {
    pub(crate) const fn new(address: usize, length: usize) -> Self {
        Self {
            address,
            length,
            keys: PhantomData,
        }
    }

    /// Address of the first byte.
    #[must_use]
    pub const fn address(&self) -> usize {
        self.address
    }
}

/// Copies bytes between two lists of ranges until one of them ends; returns the number of bytes.
pub fn copy(from: &[Range<'_>], to: &[Range<'_>]) -> usize {
    let (mut sources, mut targets) = (from.iter().copied(), to.iter().copied());
    let (mut source, mut target) = (sources.next(), targets.next());
    let mut copied = 0;
    while let (Some(s), Some(t)) = (source, target) {
        let length = s.length.min(t.length);
        // SAFETY: both are parts of registered memory. The consumer keeps the memory mapped, with the access that it granted,
        // until it deregisters it (dat_lmr_create). The ranges borrow the keys, so the memory stays registered. The ranges may
        // overlap, so this is a memmove.
        unsafe { std::ptr::copy(s.address as *const u8, t.address as *mut u8, length) };
        copied += length;
        source = rest(s, length).or_else(|| sources.next());
        target = rest(t, length).or_else(|| targets.next());
    }
    copied
}

fn rest(range: Range<'_>, done: usize) -> Option<Range<'_>> {
    (range.length > done).then(|| Range::new(range.address + done, range.length - done))
}

/// Returns the ranges without their first `done` bytes.
#[must_use]
pub fn skip<'k>(ranges: &[Range<'k>], mut done: usize) -> Vec<Range<'k>> {
    let mut left = Vec::with_capacity(ranges.len());
    for range in ranges {
        left.extend(rest(*range, done.min(range.length)));
        done = done.saturating_sub(range.length);
    }
    left
}

/// Writes `bytes` to the ranges until one of them ends; returns the number of bytes.
pub fn write(bytes: &[u8], to: &[Range<'_>]) -> usize {
    copy(&[Range::new(bytes.as_ptr() as usize, bytes.len())], to)
}

/// Appends the bytes of the ranges to `to`.
///
/// # Errors
/// There is no memory for them.
pub fn read(from: &[Range<'_>], to: &mut Vec<u8>) -> Result<(), TryReserveError> {
    let length: usize = from.iter().map(|range| range.length).sum();
    to.try_reserve(length)?;
    let room = to.spare_capacity_mut().as_mut_ptr() as usize;
    let copied = copy(from, &[Range::new(room, length)]);
    // SAFETY: `length` bytes were reserved, and `copied`, not more than that, were written there.
    unsafe { to.set_len(to.len() + copied) };
    Ok(())
}

/// Atomically replaces 8 bytes by the result of `change`; returns the old value, or `None` if the range is misaligned.
pub fn update(range: Range<'_>, mut change: impl FnMut(u64) -> u64) -> Option<u64> {
    if range.length != 8 || !range.address.is_multiple_of(8) {
        return None;
    }
    // SAFETY: the memory is registered as in `copy`, and aligned for `AtomicU64`. Other accesses to these bytes race with this one
    // as they would with hardware.
    let word = unsafe { AtomicU64::from_ptr(range.address as *mut u64) };
    let mut current = word.load(Ordering::Relaxed);
    loop {
        match word.compare_exchange(
            current,
            change(current),
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            Ok(old) => return Some(old),
            Err(now) => current = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(bytes: &mut [u8]) -> Range<'_> {
        Range::new(bytes.as_mut_ptr() as usize, bytes.len())
    }

    #[test]
    fn bytes_are_read_written_and_skipped_across_ranges() {
        let (mut a, mut b) = ([1, 2, 3], [4, 5]);
        let mut seen = vec![9];
        read(&[range(&mut a), range(&mut b)], &mut seen).unwrap();
        assert_eq!(seen, [9, 1, 2, 3, 4, 5]);
        seen.clear();
        read(&skip(&[range(&mut a), range(&mut b)], 4), &mut seen).unwrap();
        assert_eq!(seen, [5]);
        assert_eq!(write(&[7; 9], &[range(&mut a), range(&mut b)]), 5);
        assert_eq!((a, b), ([7; 3], [7; 2]));
    }

    #[test]
    fn segments_of_both_lists_may_differ_in_length() {
        let (mut a, mut b, mut c, mut d) = ([1, 2, 3], [4, 5], [0; 1], [0; 6]);
        let copied = copy(
            &[range(&mut a), range(&mut []), range(&mut b)],
            &[range(&mut c), range(&mut d)],
        );
        assert_eq!((copied, c, d), (5, [1], [2, 3, 4, 5, 0, 0]));
    }

    #[test]
    fn updates_require_eight_aligned_bytes() {
        let mut words = [5_u64, 0];
        let address = words.as_mut_ptr() as usize;
        let at = Range::new;
        assert_eq!(update(at(address, 8), |old| old + 2), Some(5));
        assert_eq!(update(at(address + 1, 8), |old| old), None);
        assert_eq!(update(at(address, 4), |old| old), None);
        assert_eq!(words, [7, 0]);
    }
}
