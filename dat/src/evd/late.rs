//! Endpoints that were freed before their events were taken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::ids::Entry;

/// Endpoints that were freed while events of theirs may be in the queue. Their handles are not given to new endpoints until the queue
/// was seen empty.
#[derive(Debug, Default)]
pub(super) struct Late {
    is_any: AtomicBool,
    entries: Mutex<Vec<&'static Entry>>,
}

impl Late {
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    pub(super) fn take(&self) -> Vec<&'static Entry> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *entries)
    }

    pub(super) fn put(&self, more: impl IntoIterator<Item = &'static Entry>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in more {
            if entries.len() == entries.capacity() {
                forget_repeated(&mut entries);
            }
            entries.push(entry);
        }
        self.is_any.store(true, Ordering::Release);
    }

    pub(super) fn forget(&self) {
        self.take().into_iter().for_each(Entry::remove_late);
    }
}

/// Leaves each entry once. The queue of a busy program may never be empty, and the provider uses handles again.
#[cold]
fn forget_repeated(entries: &mut Vec<&'static Entry>) {
    entries.sort_unstable_by_key(|entry| std::ptr::from_ref(*entry).addr());
    entries.dedup_by(|one, other| {
        let repeated = std::ptr::eq(*one, *other);
        if repeated {
            one.remove_late();
        }
        repeated
    });
}
