//! Copies between registered ranges. The only module with `unsafe` code.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a consumer registered. Made only by [`crate::keys`], which has checked the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) address: usize,
    pub(crate) length: usize,
}

/// Copies as many bytes as both lists have, from one list to the other; returns how many.
pub(crate) fn copy(from: &[Range], to: &[Range]) -> usize {
    let (mut sources, mut targets) = (from.iter().copied(), to.iter().copied());
    let (mut source, mut target) = (sources.next(), targets.next());
    let mut copied = 0;
    while let (Some(s), Some(t)) = (source, target) {
        let length = s.length.min(t.length);
        // SAFETY: both are parts of registered memory, which the consumer keeps mapped and suitable for the rights
        // it gave until it deregisters it (dat_lmr_create); the fabric's lock, held by our caller, keeps it
        // registered. The ranges may overlap, so this is memmove.
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

/// Writes `value` to a local range of 8 bytes, aligned or not.
pub(crate) fn store(value: u64, to: &[Range]) {
    let bytes = value.to_ne_bytes();
    let from = Range {
        address: bytes.as_ptr() as usize,
        length: bytes.len(),
    };
    copy(&[from], to);
}

/// Replaces 8 bytes by what `change` makes of them, in one step; returns what was there. `None`: misaligned.
pub(crate) fn update(range: Range, mut change: impl FnMut(u64) -> u64) -> Option<u64> {
    if range.length != 8 || !range.address.is_multiple_of(8) {
        return None;
    }
    // SAFETY: registered as in `copy`, aligned as `AtomicU64` wants it; others that touch these bytes during the
    // call race with us as they would with hardware.
    let word = unsafe { AtomicU64::from_ptr(range.address as *mut u64) };
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        match word.compare_exchange(seen, change(seen), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(old) => return Some(old),
            Err(now) => seen = now,
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
    fn segments_need_not_match() {
        let (mut a, mut b, mut c, mut d) = ([1, 2, 3], [4, 5], [0; 1], [0; 6]);
        let copied = copy(
            &[range(&mut a), range(&mut []), range(&mut b)],
            &[range(&mut c), range(&mut d)],
        );
        assert_eq!((copied, c, d), (5, [1], [2, 3, 4, 5, 0, 0]));
    }

    #[test]
    fn updates_want_eight_aligned_bytes() {
        let mut words = [5_u64, 0];
        let address = words.as_mut_ptr() as usize;
        let at = |address, length| Range { address, length };
        assert_eq!(update(at(address, 8), |old| old + 2), Some(5));
        assert_eq!(update(at(address + 1, 8), |old| old), None);
        assert_eq!(update(at(address, 4), |old| old), None);
        assert_eq!(words, [7, 0]);
    }
}
