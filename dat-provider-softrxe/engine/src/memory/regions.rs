//! Registered regions and windows: which memory a local segment or a remote peer may access, and how.
//!
//! The table is not `Sync`: it is under the engine's lock, and so is every copy. Deregistration takes that lock; when it has returned,
//! no copy is under way and none will start.

use std::cell::{Cell, RefCell};

use rustc_hash::FxHashMap;
use softrxe_proto::{
    Access, AccessError, AtomicOp, Memory, MwBind, Pd, Qpn, Rights, SecretKey, Time, WindowType,
};

use super::entries::{Bound, Entries, Entry, Region, Target, Window, offset_inside};
use super::guard::{CopyMethod, MethodCache};
use super::keys::Keys;
use super::lending::{Loan, Loans};
use super::payload_refs::{MIN_REFERENCED, PayloadRefs, Pieces};
use super::range::{Failed, PullFailed, Range, RecordBytes};

/// Shortest payload that is written past the caches. The way through memory takes longer than a shorter one in all.
pub(crate) const MIN_LONG: usize = 2 << 10;

/// Largest number of regions and windows of an engine.
const MAX_ENTRIES: usize = 1 << 23;

/// All regions and windows of one engine, by their keys.
#[derive(Debug)]
pub(crate) struct Regions {
    table: RefCell<Table>,
    payload_refs: RefCell<PayloadRefs>,
    /// The record that the engine reads or writes at present.
    record: Cell<RecordBytes>,
    /// Long payloads of the record that is being written go past the caches.
    past_caches: Cell<bool>,
    /// What channels lend and borrow.
    loans: RefCell<Loans>,
    copy_method: MethodCache,
}

#[derive(Debug)]
struct Table {
    entries: Entries,
    windows: FxHashMap<Window, Current>,
    last_window: u64,
    /// A window of type 2, which belongs to a queue pair, was created at some time.
    any_type2: bool,
    keys: Keys,
}

/// State of a window.
#[derive(Clone, Copy, Debug)]
struct Current {
    /// Its key, which changes with each bind.
    key: u32,
    /// The latest bind that was executed, or that supersedes earlier ones.
    order: u32,
}

impl Regions {
    /// Makes an empty table. `secret` determines the keys. Each run must be sent through [`gather`](Self::gather).
    #[must_use]
    pub(crate) fn new(secret: &SecretKey) -> Self {
        let table = Table {
            entries: Entries::default(),
            windows: FxHashMap::default(),
            last_window: 0,
            any_type2: false,
            keys: Keys::new(secret),
        };
        Self {
            table: RefCell::new(table),
            payload_refs: RefCell::default(),
            record: Cell::new(RecordBytes::NONE),
            past_caches: Cell::new(false),
            loans: RefCell::default(),
            copy_method: MethodCache::new(),
        }
    }

    /// Copies each referenced payload of the run in `out` to its position there, for a capture.
    pub(crate) fn copy_payload_into(&self, out: &mut [u8]) {
        let refs = self.payload_refs.borrow();
        refs.copy_into(self.copy_method.get(), out);
    }

    /// Chooses the copy method for the calling thread. The caller holds the engine's lock, and calls this each time that it has taken the
    /// lock and the engine may copy.
    #[inline]
    pub(crate) fn prepare(&self, now: Time) {
        self.copy_method.update(now);
    }

    /// Returns the `length` bytes at position `at` of the present record, for the access to `va`.
    fn record_part(
        &self,
        access: &Access,
        va: u64,
        length: usize,
        at: usize,
    ) -> Result<RecordBytes, AccessError> {
        let part = self.record.get().part(at, length);
        part.ok_or_else(|| error_of(Failed::Outside, access, va, length as u64))
    }

    /// Makes the positions of [`Memory::fill`] and [`Memory::place`] refer to `record`, which stays mapped until the next call.
    pub(crate) fn set_record(&self, record: RecordBytes) {
        self.record.set(record);
    }

    /// Makes [`Memory::fill`] write long payloads past the caches, or no more.
    pub(crate) fn set_past_caches(&self, past_caches: bool) {
        self.past_caches.set(past_caches);
    }

    /// Returns what channels lend and borrow.
    pub(crate) const fn loans(&self) -> &RefCell<Loans> {
        &self.loans
    }

    /// Copies from position `at` of what the record at hand lends to `offset` of `range`, to which `access` to `va` leads.
    #[cold]
    fn pull(
        &self,
        access: &Access,
        va: u64,
        (range, offset): (Range, u64),
        at: usize,
        length: usize,
    ) -> Result<(), AccessError> {
        let (key, bytes) = (access.key, length as u64);
        let mut loans = self.loans.borrow_mut();
        let done = loans.pull(&range, self.copy_method.get(), offset, at, length);
        done.map_err(|failed| match failed {
            PullFailed::Own(failed) => error_of(failed, access, va, bytes),
            PullFailed::Peer(_) => AccessError::Withdrawn {
                key,
                va,
                length: bytes,
            },
        })
    }

    /// Calls `send` with the pieces of the run in `out`: its own bytes and the payload that it refers to.
    pub(crate) fn gather<R>(&self, out: &[u8], send: impl FnOnce(Pieces<'_>) -> R) -> R {
        self.payload_refs.borrow_mut().gather(out, send)
    }

    /// Registers `range` and returns its key; addresses in it count from `start`. Returns `None` if there are [`MAX_ENTRIES`] already,
    /// or no memory for the table.
    #[must_use]
    pub(crate) fn register(&self, range: Range, start: u64, rights: Rights, pd: Pd) -> Option<u32> {
        self.table.borrow_mut().add(
            pd,
            Target::Region {
                range,
                start,
                rights,
            },
        )
    }

    /// Registers what another table [registered](Self::register) as `key` under the same key. Returns `false` if this table uses the key
    /// already, `None` as `register` does.
    #[must_use]
    pub(crate) fn register_as(
        &self,
        key: u32,
        range: Range,
        start: u64,
        rights: Rights,
        pd: Pd,
    ) -> Option<bool> {
        let target = Target::Region {
            range,
            start,
            rights,
        };
        self.table.borrow_mut().add_as(key, pd, target)
    }

    /// Returns whether `key` is in use.
    pub(crate) fn uses(&self, key: u32) -> bool {
        self.table.borrow().entries.contains(key)
    }

    /// Makes binds of `window` that were posted before the one with number `order`, and are executed after this call, without effect.
    pub(crate) fn supersede(&self, window: Window, order: u32) {
        if let Some(current) = self.table.borrow_mut().windows.get_mut(&window) {
            current.order = order;
        }
    }

    /// Returns whether `window` makes memory accessible.
    pub(crate) fn is_bound(&self, window: Window) -> bool {
        let table = self.table.borrow();
        let current = table.windows.get(&window);
        let entry = current.and_then(|current| table.entries.get(current.key));
        let target = entry.map(|entry| &entry.target);
        matches!(target, Some(Target::Window { bound: Some(_), .. }))
    }

    /// Removes a region. The caller holds the engine's lock.
    pub(crate) fn deregister(&self, key: u32) {
        let mut table = self.table.borrow_mut();
        table.remove(key);
        // A window without its region makes nothing accessible.
        table.unbind_windows(|bound| bound.region == key);
        self.loans.borrow_mut().withdraw(|loan| loan.region == key);
    }

    /// Creates an unbound window and returns it with its key, or `None` as [`register`](Self::register) does.
    #[must_use]
    pub(crate) fn create_window(&self, kind: WindowType, pd: Pd) -> Option<(Window, u32)> {
        let mut table = self.table.borrow_mut();
        table.windows.try_reserve(1).ok()?;
        let window = Window(table.last_window + 1);
        let unbound = Target::Window { kind, bound: None };
        let key = table.add(pd, unbound)?;
        table.last_window = window.0;
        table.windows.insert(window, Current { key, order: 0 });
        table.any_type2 |= kind == WindowType::Type2;
        Some((window, key))
    }

    /// Unbinds the windows that belong to `qpn`, and takes back what is lent for it. It is destroyed or reset. Its number may be used again.
    pub(crate) fn unbind_windows_of(&self, qpn: Qpn) {
        self.loans.borrow_mut().withdraw(|loan| loan.qpn == qpn);
        let mut table = self.table.borrow_mut();
        if !table.any_type2 {
            return;
        }
        table.unbind_windows(|bound| bound.qpn == Some(qpn));
    }

    /// Destroys a window, bound or not. The caller holds the engine's lock.
    pub(crate) fn destroy_window(&self, window: Window) {
        let mut table = self.table.borrow_mut();
        if let Some(Current { key, .. }) = table.windows.remove(&window) {
            table.remove(key);
            self.loans.borrow_mut().withdraw(|loan| loan.key == key);
        }
    }

    /// Draws a key for a window that is about to be bound. The key is not reserved: if a region gets the same one before the bind is
    /// executed, the bind fails.
    #[must_use]
    pub(crate) fn draw_key(&self) -> u32 {
        self.table.borrow_mut().draw()
    }
}

impl Table {
    fn add(&mut self, pd: Pd, target: Target) -> Option<u32> {
        let key = self.draw();
        self.add_as(key, pd, target)?;
        Some(key)
    }

    /// Adds `target` under `key` unless that is in use. Returns whether it did; `None` if the table is full or has no memory.
    fn add_as(&mut self, key: u32, pd: Pd, target: Target) -> Option<bool> {
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

    fn draw(&mut self) -> u32 {
        let Self { entries, keys, .. } = self;
        keys.draw(|key| entries.contains(key))
    }

    fn remove(&mut self, key: u32) {
        if self.entries.remove(key).is_some() {
            self.keys.retire(key);
        }
    }

    /// Unbinds the windows for which `unbinds` returns true.
    fn unbind_windows(&mut self, unbinds: impl Fn(&Bound) -> bool) {
        for current in self.windows.values() {
            if let Some(entry) = self.entries.get_mut(current.key)
                && let Target::Window { bound, .. } = &mut entry.target
                && bound.as_ref().is_some_and(&unbinds)
            {
                *bound = None;
            }
        }
    }

    /// Returns the key of the region below `key`, which is that of a region or of a bound window.
    fn region_of(&self, key: u32) -> u32 {
        match self.entries.get(key).map(|entry| &entry.target) {
            Some(Target::Window { bound, .. }) => bound.map_or(key, |bound| bound.region),
            _ => key,
        }
    }

    /// Returns the memory that `access` refers to and the offset of `va` in it, if access to all of `length` bytes is granted.
    #[inline]
    fn resolve(&self, access: &Access, va: u64, length: u64) -> Result<(Range, u64), AccessError> {
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

/// Converts the error of a granted access.
fn error_of(failed: Failed, access: &Access, va: u64, length: u64) -> AccessError {
    let key = access.key;
    match failed {
        Failed::Outside => AccessError::Bounds { key, va, length },
        Failed::Fault => {
            let error = AccessError::Fault { key, va, length };
            tracing::warn!(%error, "the connection ends; free an LMR before you unmap its memory");
            error
        }
    }
}

impl Memory for Regions {
    fn check(&self, access: &Access, va: u64, length: u64) -> Result<(), AccessError> {
        self.table.borrow().resolve(access, va, length).map(drop)
    }

    fn read(&self, access: &Access, va: u64, into: &mut [u8]) -> Result<(), AccessError> {
        let length = into.len() as u64;
        let (range, offset) = self.table.borrow().resolve(access, va, length)?;
        let done = range.read(self.copy_method.get(), offset, into);
        done.map_err(|failed| error_of(failed, access, va, length))
    }

    fn lend(
        &self,
        access: &Access,
        va: u64,
        length: usize,
        at: usize,
        crc: u32,
    ) -> Result<Option<u32>, AccessError> {
        let mut refs = self.payload_refs.borrow_mut();
        if length < MIN_REFERENCED
            || !refs.has_room()
            || self.copy_method.get() == CopyMethod::Kernel
        {
            return Ok(None);
        }
        let (range, offset) = self.table.borrow().resolve(access, va, length as u64)?;
        let lent = range
            .part(offset, length as u64)
            .ok_or(AccessError::Bounds {
                key: access.key,
                va,
                length: length as u64,
            })?;
        match lent.checksum(self.copy_method.get(), crc) {
            Err(failed) => Err(error_of(failed, access, va, length as u64)),
            Ok(crc) => {
                refs.add(at, lent);
                Ok(Some(crc))
            }
        }
    }

    fn write(&self, access: &Access, va: u64, from: &[u8]) -> Result<(), AccessError> {
        let length = from.len() as u64;
        let (range, offset) = self.table.borrow().resolve(access, va, length)?;
        let done = range.write(self.copy_method.get(), offset, from);
        done.map_err(|failed| error_of(failed, access, va, length))
    }

    #[inline]
    fn fill(&self, access: &Access, va: u64, length: usize, at: usize) -> Result<(), AccessError> {
        let bytes = length as u64;
        let (range, offset) = self.table.borrow().resolve(access, va, bytes)?;
        let record = self.record_part(access, va, length, at)?;
        let past_caches = length >= MIN_LONG && self.past_caches.get();
        let done = range.read_to_record(self.copy_method.get(), offset, record, past_caches);
        done.map_err(|failed| error_of(failed, access, va, bytes))
    }

    fn lends(&self) -> bool {
        self.loans.borrow_mut().lends()
    }

    fn lend_record(
        &self,
        access: &Access,
        va: u64,
        length: usize,
        at: usize,
    ) -> Result<(), AccessError> {
        let bytes = length as u64;
        let table = self.table.borrow();
        let (range, offset) = table.resolve(access, va, bytes)?;
        let lent = range.part(offset, bytes);
        let lent = lent.ok_or_else(|| error_of(Failed::Outside, access, va, bytes))?;
        let address = (lent.base() as u64).to_ne_bytes();
        let record = self.record_part(access, va, address.len(), at)?;
        record.store(address);
        self.loans.borrow_mut().add(|position| Loan {
            position,
            region: table.region_of(access.key),
            key: access.key,
            qpn: access.qpn,
        });
        Ok(())
    }

    fn recall(&self, qpn: Qpn) {
        self.loans.borrow_mut().withdraw(|loan| loan.qpn == qpn);
    }

    #[inline]
    fn place(&self, access: &Access, va: u64, at: usize, length: usize) -> Result<(), AccessError> {
        let bytes = length as u64;
        let (range, offset) = self.table.borrow().resolve(access, va, bytes)?;
        if self.loans.borrow().is_borrowing() {
            return self.pull(access, va, (range, offset), at, length);
        }
        let record = self.record_part(access, va, length, at)?;
        let method = self.copy_method.get();
        let done = if access.need.contains(Rights::REMOTE_WRITE) {
            range.write_from_record(method, offset, record)
        } else {
            // The completion says when a receive is whole, not its last byte.
            range.write_at_once(method, offset, record)
        };
        done.map_err(|failed| error_of(failed, access, va, bytes))
    }

    fn atomic(&self, access: &Access, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let (range, offset) = self.table.borrow().resolve(access, va, 8)?;
        let apply = |old: u64| match op {
            AtomicOp::CompareSwap { compare, swap } if old == compare => swap,
            AtomicOp::CompareSwap { .. } => old,
            AtomicOp::FetchAdd(add) => old.wrapping_add(add),
        };
        let done = range.update(self.copy_method.get(), offset, apply);
        done.map_err(|failed| match failed {
            Failed::Outside => AccessError::Alignment(va),
            Failed::Fault => error_of(failed, access, va, 8),
        })
    }

    fn invalidate(&self, key: u32, pd: Pd, qpn: Qpn, remote: bool) -> Result<(), AccessError> {
        let mut table = self.table.borrow_mut();
        let entry = table.entries.get_mut(key).ok_or(AccessError::Key(key))?;
        if entry.pd != pd {
            return Err(AccessError::Scope(key));
        }
        let Target::Window { kind, bound, .. } = &mut entry.target else {
            return Err(AccessError::Window(key));
        };
        let Some(now) = *bound else {
            return Err(AccessError::Window(key));
        };
        if remote && *kind != WindowType::Type2 {
            return Err(AccessError::Window(key));
        }
        if now.qpn.is_some_and(|owner| owner != qpn) {
            return Err(AccessError::Scope(key));
        }
        *bound = None;
        self.loans.borrow_mut().withdraw(|loan| loan.key == key);
        Ok(())
    }

    fn bind(&self, bind: &MwBind, pd: Pd, qpn: Qpn) -> Result<(), AccessError> {
        let mut table = self.table.borrow_mut();
        let window = Window(bind.window);
        let current = table.windows.get_mut(&window);
        let current = current.ok_or(AccessError::Window(bind.new_key))?;
        let old_key = current.key;
        let refused = AccessError::Window(old_key);
        // The numbers wrap.
        if bind.order.wrapping_sub(current.order).cast_signed() < 0 {
            // A later one opened the window already, and to all queue pairs if it is of type 1.
            return match bind.kind {
                WindowType::Type1 => Ok(()),
                WindowType::Type2 => Err(refused),
            };
        }
        current.order = bind.order;
        self.loans.borrow_mut().withdraw(|loan| loan.key == old_key);
        let entry = table.entries.get(old_key).ok_or(refused)?;
        let Target::Window {
            kind, bound: old, ..
        } = entry.target
        else {
            return Err(refused);
        };
        if entry.pd != pd
            || kind != bind.kind
            || table.entries.contains(bind.new_key)
            || old.is_some_and(|old| old.qpn.is_some_and(|owner| owner != qpn))
        {
            return Err(refused);
        }
        let new = if bind.length == 0 {
            None
        } else {
            let lkey = bind.lkey;
            let region = table.entries.get(lkey).ok_or(AccessError::Key(lkey))?;
            if region.pd != pd {
                return Err(AccessError::Scope(lkey));
            }
            let Target::Region {
                range,
                start,
                rights,
            } = &region.target
            else {
                return Err(AccessError::Key(lkey));
            };
            let bounds = AccessError::Bounds {
                key: lkey,
                va: bind.address,
                length: bind.length,
            };
            offset_inside(bind.address, bind.length, *start, range.length()).ok_or(bounds)?;
            let writes = bind
                .rights
                .intersects(Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC);
            if !rights.contains(Rights::WINDOW_BIND) {
                return Err(AccessError::Right {
                    key: lkey,
                    need: Rights::WINDOW_BIND,
                });
            }
            if writes && !rights.contains(Rights::LOCAL_WRITE) {
                return Err(AccessError::Right {
                    key: lkey,
                    need: Rights::LOCAL_WRITE,
                });
            }
            Some(Bound {
                region: lkey,
                start: bind.address,
                length: bind.length,
                rights: bind.rights,
                qpn: (kind == WindowType::Type2).then_some(qpn),
            })
        };
        table.entries.try_reserve_one().map_err(|_| refused)?;
        table.remove(old_key);
        let target = Target::Window { kind, bound: new };
        table.entries.insert(bind.new_key, Entry { pd, target });
        let current = Current {
            key: bind.new_key,
            order: bind.order,
        };
        table.windows.insert(window, current);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
