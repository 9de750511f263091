//! Memory of objects that are kept though nothing uses them.

use std::sync::atomic::AtomicU64;

/// Gives the memory of `slots` back to the system, as far as they fill whole pages: those contain zeros then, and occupy no memory until
/// they are written. The other slots keep their contents, and all of them do where the system refuses. Other threads may use the slots
/// meanwhile.
pub fn discard<const N: usize>(slots: &[[AtomicU64; N]]) {
    if cfg!(miri) {
        return;
    }
    // SAFETY: the call only reads a setting.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let Ok(page @ 1..) = usize::try_from(page) else {
        return;
    };
    let whole = slots.as_ptr_range();
    let start = whole.start.addr().next_multiple_of(page);
    let end = whole.end.addr() / page * page;
    if start >= end {
        return;
    }
    let first = whole.start.with_addr(start).cast_mut().cast();
    // Only private anonymous memory has MADV_FREE. Of other memory, such as the huge pages that an allocator may use, MADV_DONTNEED might
    // take more than these pages, or bring back what a file contains.
    for advice in [libc::MADV_FREE, libc::MADV_DONTNEED] {
        // SAFETY: the pages contain only these atomics, any of which may become 0 at any time, as by a store of another thread.
        if unsafe { libc::madvise(first, end - start, advice) } != 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no madvise")]
    fn whole_pages_are_given_back_and_nothing_else_changes() {
        let slots: Vec<[AtomicU64; 2]> = (0..20_000)
            .map(|n| [AtomicU64::new(n + 1), AtomicU64::new(n + 1)])
            .collect();
        let inner = &slots[100..19_900];
        discard(inner);
        let kept = |slots: &[[AtomicU64; 2]]| {
            let kept = |slot: &&[AtomicU64; 2]| slot[0].load(Relaxed) != 0;
            slots.iter().filter(kept).count()
        };
        assert_eq!((kept(&slots[..100]), kept(&slots[19_900..])), (100, 100));
        // Less than a page at each end. Pages have 64 KiB at most.
        assert!(kept(inner) < 2 * (64 << 10) / 16, "{}", kept(inner));
        let last = &slots[10_000];
        last[1].store(7, Relaxed);
        assert_eq!((last[0].load(Relaxed), last[1].load(Relaxed)), (0, 7));
        discard(&slots[..1]);
        assert_eq!(slots[0][0].load(Relaxed), 1);
    }
}
