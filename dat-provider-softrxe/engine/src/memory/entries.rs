//! Regions and windows by their keys, and the regions that were looked up last.

use std::cell::Cell;
use std::collections::TryReserveError;

use rustc_hash::FxHashMap;
use softrxe_proto::{Access, Pd, Qpn, Rights, WindowType};

use super::range::Range;

/// Number of regions that are found without the map, each at the last bits of its key.
const RECENT: usize = 8;

/// Name of a window, which stays the same when its key changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Window(pub(super) u64);

impl Window {
    /// The name of no window.
    pub(crate) const NONE: Self = Self(0);

    /// Returns the name as [`MwBind`](softrxe_proto::MwBind) has it.
    pub(crate) const fn value(self) -> u64 {
        self.0
    }
}

/// What a key names.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) pd: Pd,
    pub(super) target: Target,
}

#[derive(Debug)]
pub(super) enum Target {
    Region {
        range: Range,
        start: u64,
        rights: Rights,
    },
    Window {
        kind: WindowType,
        bound: Option<Bound>,
    },
}

/// Memory that a bound window makes accessible.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// The region's key.
    pub(super) region: u32,
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) rights: Rights,
    /// The queue pair of a type 2 window.
    pub(super) qpn: Option<Qpn>,
}

/// A copy of a region's entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) key: u32,
    pub(super) pd: Pd,
    pub(super) start: u64,
    pub(super) rights: Rights,
    pub(super) range: Range,
}

impl Region {
    /// Returns the offset of `va` if `length` bytes from there are inside.
    #[inline]
    pub(super) fn offset(&self, va: u64, length: u64) -> Option<u64> {
        offset_inside(va, length, self.start, self.range.length())
    }
}

/// All entries. Whatever may change or remove one also removes the copy of it.
#[derive(Debug, Default)]
pub(super) struct Entries {
    all: FxHashMap<u32, Entry>,
    recent: [Cell<Option<Region>>; RECENT],
}

impl Entries {
    #[inline]
    const fn place(key: u32) -> usize {
        key as usize % RECENT
    }

    /// Returns the region of `access` if it was looked up recently, and grants the access as far as the addresses do.
    #[inline]
    pub(super) fn recent(&self, access: &Access) -> Option<Region> {
        let region = self.recent[Self::place(access.key)].get()?;
        let granted = region.key == access.key
            && region.pd == access.pd
            && region.rights.contains(access.need);
        granted.then_some(region)
    }

    /// Keeps a copy of a region that was looked up.
    pub(super) fn remember(&self, region: Region) {
        self.recent[Self::place(region.key)].set(Some(region));
    }

    fn forget(&self, key: u32) {
        self.recent[Self::place(key)].set(None);
    }

    pub(super) fn get(&self, key: u32) -> Option<&Entry> {
        self.all.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: u32) -> Option<&mut Entry> {
        self.forget(key);
        self.all.get_mut(&key)
    }

    pub(super) fn contains(&self, key: u32) -> bool {
        self.all.contains_key(&key)
    }

    pub(super) fn insert(&mut self, key: u32, entry: Entry) {
        self.forget(key);
        self.all.insert(key, entry);
    }

    pub(super) fn remove(&mut self, key: u32) -> Option<Entry> {
        self.forget(key);
        self.all.remove(&key)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Makes room for one more entry.
    pub(super) fn try_reserve_one(&mut self) -> Result<(), TryReserveError> {
        self.all.try_reserve(1)
    }
}

/// Returns the offset of `va` from `start` if `length` bytes from there end within `size`.
#[inline]
pub(super) fn offset_inside(va: u64, length: u64, start: u64, size: u64) -> Option<u64> {
    let offset = va.checked_sub(start)?;
    (offset <= size && length <= size - offset).then_some(offset)
}
