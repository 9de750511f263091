//! Registered regions and windows: which memory a local segment or a remote peer may access, and how.
//!
//! The table of keys is in `table`, what a window makes accessible in `windows`. They are not `Sync`: they are under the engine's lock,
//! and so is every copy. Deregistration takes that lock; when it has returned, no copy is under way and none will start.

use std::cell::{Cell, RefCell};

use softrxe_proto::{
    Access, AccessError, AtomicOp, Memory, MwBind, Pd, Qpn, Rights, SecretKey, Time, WindowType,
};

use super::entries::{Target, Window};
use super::guard::{CopyMethod, MethodCache};
use super::lending::{Loan, Loans};
use super::payload_refs::{MIN_REFERENCED, PayloadRefs, Pieces};
use super::range::{Failed, PullFailed, Range};
use super::record_bytes::RecordBytes;
use super::table::Table;

/// Shortest payload that is written past the caches. The way through memory takes longer than a shorter one in all.
pub(crate) const MIN_LONG: usize = 2 << 10;

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

impl Regions {
    /// Makes an empty table. `secret` determines the keys. Each run must be sent through [`gather`](Self::gather).
    #[must_use]
    pub(crate) fn new(secret: &SecretKey) -> Self {
        Self {
            table: RefCell::new(Table::new(secret)),
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

    /// Registers `range` and returns its key; addresses in it count from `start`. Returns `None` if there are
    /// [`MAX_ENTRIES`](super::table::MAX_ENTRIES) already, or no memory for the table.
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
        self.table.borrow().uses(key)
    }

    /// Makes binds of `window` that were posted before the one with number `order`, and are executed after this call, without effect.
    pub(crate) fn supersede(&self, window: Window, order: u32) {
        self.table.borrow_mut().supersede(window, order);
    }

    /// Returns whether `window` makes memory accessible.
    pub(crate) fn is_bound(&self, window: Window) -> bool {
        self.table.borrow().is_bound(window)
    }

    /// Removes a region. The caller holds the engine's lock.
    pub(crate) fn deregister(&self, key: u32) {
        self.table.borrow_mut().remove_region(key);
        self.loans.borrow_mut().withdraw(|loan| loan.region == key);
    }

    /// Creates an unbound window and returns it with its key, or `None` as [`register`](Self::register) does.
    #[must_use]
    pub(crate) fn create_window(&self, kind: WindowType, pd: Pd) -> Option<(Window, u32)> {
        self.table.borrow_mut().create_window(kind, pd)
    }

    /// Unbinds the windows that belong to `qpn`, and takes back what is lent for it. It is destroyed or reset. Its number may be used again.
    pub(crate) fn unbind_windows_of(&self, qpn: Qpn) {
        self.loans.borrow_mut().withdraw(|loan| loan.qpn == qpn);
        self.table.borrow_mut().unbind_windows_of(qpn);
    }

    /// Destroys a window, bound or not. The caller holds the engine's lock.
    pub(crate) fn destroy_window(&self, window: Window) {
        let key = self.table.borrow_mut().destroy_window(window);
        if let Some(key) = key {
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
        self.table.borrow_mut().invalidate(key, pd, qpn, remote)?;
        self.loans.borrow_mut().withdraw(|loan| loan.key == key);
        Ok(())
    }

    fn bind(&self, bind: &MwBind, pd: Pd, qpn: Qpn) -> Result<(), AccessError> {
        self.table.borrow_mut().bind(bind, pd, qpn, |old_key| {
            self.loans.borrow_mut().withdraw(|loan| loan.key == old_key);
        })
    }
}

#[cfg(test)]
mod tests;
