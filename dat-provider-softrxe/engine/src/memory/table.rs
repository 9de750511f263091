//! The table of keys: the memory of each key, the protection domain that may use it, and the rights.

use rustc_hash::FxHashMap;
use softrxe_proto::{Access, AccessError, Pd, SecretKey};

use super::entries::{Entries, Entry, Region, Target, Window, offset_inside};
use super::keys::Keys;
use super::range::Range;

/// Largest number of regions and windows of an engine.
pub(super) const MAX_ENTRIES: usize = 1 << 23;

/// Regions and windows, by their keys.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) entries: Entries,
    pub(super) windows: FxHashMap<Window, Current>,
    pub(super) last_window: u64,
    /// A window of type 2, which belongs to a queue pair, was created at some time.
    pub(super) any_type2: bool,
    keys: Keys,
}

/// State of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    /// Its key, which changes with each bind.
    pub(super) key: u32,
    /// The latest bind that was executed, or that supersedes earlier ones.
    pub(super) order: u32,
}

impl Table {
    /// Makes an empty table. `secret` determines the keys.
    pub(super) fn new(secret: &SecretKey) -> Self {
        Self {
            entries: Entries::default(),
            windows: FxHashMap::default(),
            last_window: 0,
            any_type2: false,
            keys: Keys::new(secret),
        }
    }

    pub(super) fn add(&mut self, pd: Pd, target: Target) -> Option<u32> {
        let key = self.draw();
        self.add_as(key, pd, target)?;
        Some(key)
    }

    /// Adds `target` under `key` unless that is in use. Returns whether it did; `None` if the table is full or has no memory.
    pub(super) fn add_as(&mut self, key: u32, pd: Pd, target: Target) -> Option<bool> {
        if self.entries.len() >= MAX_ENTRIES {
            return None;
        }
        self.entries.try_reserve_one().ok()?;
        let free = !self.entries.contains(key);
        if free {
            self.entries.insert(key, Entry { pd, target });
        }
        Some(free)
    }

    pub(super) fn draw(&mut self) -> u32 {
        let Self { entries, keys, .. } = self;
        keys.draw(|key| entries.contains(key))
    }

    pub(super) fn remove(&mut self, key: u32) {
        if self.entries.remove(key).is_some() {
            self.keys.retire(key);
        }
    }

    /// Removes a region, and what windows make accessible of it.
    pub(super) fn remove_region(&mut self, key: u32) {
        self.remove(key);
        // A window without its region makes nothing accessible.
        self.unbind_windows(|bound| bound.region == key);
    }

    /// Returns whether `key` is in use.
    pub(super) fn uses(&self, key: u32) -> bool {
        self.entries.contains(key)
    }

    /// Returns the key of the region below `key`, which is that of a region or of a bound window.
    pub(super) fn region_of(&self, key: u32) -> u32 {
        match self.entries.get(key).map(|entry| &entry.target) {
            Some(Target::Window { bound, .. }) => bound.map_or(key, |bound| bound.region),
            _ => key,
        }
    }

    /// Returns the memory that `access` refers to and the offset of `va` in it, if access to all of `length` bytes is granted.
    #[inline]
    pub(super) fn resolve(
        &self,
        access: &Access,
        va: u64,
        length: u64,
    ) -> Result<(Range, u64), AccessError> {
        let recent = self.entries.recent(access);
        match recent.and_then(|region| Some((region.range, region.offset(va, length)?))) {
            Some(found) => Ok(found),
            None => self.look_up(access, va, length),
        }
    }

    /// Does what [`resolve`](Self::resolve) does, without the regions that were looked up last.
    #[inline(never)]
    fn look_up(&self, access: &Access, va: u64, length: u64) -> Result<(Range, u64), AccessError> {
        let key = access.key;
        let entry = self.entries.get(key).ok_or(AccessError::Key(key))?;
        if entry.pd != access.pd {
            return Err(AccessError::Scope(key));
        }
        let bounds = AccessError::Bounds { key, va, length };
        let right = AccessError::Right {
            key,
            need: access.need,
        };
        match &entry.target {
            Target::Region {
                range,
                start,
                rights,
                ..
            } => {
                let offset = offset_inside(va, length, *start, range.length()).ok_or(bounds)?;
                if !rights.contains(access.need) {
                    return Err(right);
                }
                self.entries.remember(Region {
                    key,
                    pd: entry.pd,
                    start: *start,
                    rights: *rights,
                    range: *range,
                });
                Ok((*range, offset))
            }
            Target::Window { bound, .. } => {
                let bound = bound.ok_or(AccessError::Key(key))?;
                if bound.qpn.is_some_and(|owner| owner != access.qpn) {
                    return Err(AccessError::Scope(key));
                }
                offset_inside(va, length, bound.start, bound.length).ok_or(bounds)?;
                if !bound.rights.contains(access.need) {
                    return Err(right);
                }
                let region = self
                    .entries
                    .get(bound.region)
                    .ok_or(AccessError::Key(key))?;
                let Target::Region { range, start, .. } = &region.target else {
                    return Err(AccessError::Key(key));
                };
                let offset = offset_inside(va, length, *start, range.length()).ok_or(bounds)?;
                Ok((*range, offset))
            }
        }
    }
}
