//! Copies between registered ranges. The only module with `unsafe` code.

use std::sync::atomic::{AtomicU64, Ordering};

/// A range of registered memory. Only [`crate::keys`] creates one, after it has checked the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) address: usize,
    pub(crate) length: usize,
}

/// Copies bytes between two lists of ranges until one of them ends; returns the number of bytes.
pub(crate) fn copy(from: &[Range], to: &[Range]) -> usize {
    let (mut sources, mut targets) = (from.iter().copied(), to.iter().copied());
    let (mut source, mut target) = (sources.next(), targets.next());
    let mut copied = 0;
    while let (Some(s), Some(t)) = (source, target) {
        let length = s.length.min(t.length);
        // SAFETY: both are parts of registered memory. The consumer keeps that mapped, with the access that it granted, until it
        // deregisters it (dat_lmr_create); the caller holds the fabric's lock, which keeps it registered. The ranges may overlap,
        // so this is a memmove.
        unsafe { std::ptr::copy(s.address as *const u8, t.address as *mut u8, length) };
        copied += length;
        source = rest(s, length).or_else(|| sources.next());
        target = rest(t, length).or_else(|| targets.next());
    }
    copied
}

fn rest(range: Range, done: usize) -> Option<Range> {
    (range.length > done).then(|| Range {
        address: range.address + done,
        length: range.length - done,
    })
}

/// Writes `value` to local ranges of 8 bytes, aligned or not.
pub(crate) fn store(value: u64, to: &[Range]) {
    let bytes = value.to_ne_bytes();
    let from = Range {
        address: bytes.as_ptr() as usize,
        length: bytes.len(),
    };
    copy(&[from], to);
}

/// Atomically replaces 8 bytes by the result of `change`; returns the old value, or `None` if the range is misaligned.
pub(crate) fn update(range: Range, mut change: impl FnMut(u64) -> u64) -> Option<u64> {
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

    fn range(bytes: &mut [u8]) -> Range {
        Range {
            address: bytes.as_mut_ptr() as usize,
            length: bytes.len(),
        }
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
        let at = |address, length| Range { address, length };
        assert_eq!(update(at(address, 8), |old| old + 2), Some(5));
        assert_eq!(update(at(address + 1, 8), |old| old), None);
        assert_eq!(update(at(address, 4), |old| old), None);
        assert_eq!(words, [7, 0]);
    }
}
