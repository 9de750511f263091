//! Registered memory for tests: regions and windows in vectors, every access checked.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use softrxe_proto::{
    Access, AccessError, AtomicOp, Memory, MwBind, Pd, Qpn, Remote, Rights, Sge, WindowType,
};

struct Region {
    pd: Pd,
    base: u64,
    bytes: Vec<u8>,
    rights: Rights,
}

struct Window {
    pd: Pd,
    qpn: Option<Qpn>,
    region: u32,
    base: u64,
    length: u64,
    rights: Rights,
}

#[derive(Default)]
struct Inner {
    regions: BTreeMap<u32, Region>,
    windows: BTreeMap<u32, Option<Window>>,
    next_key: u32,
    /// Calls of `atomic`.
    atomics: usize,
    lends_payload: bool,
    /// Offset in the driver's buffer; region, offset, length.
    lent: Vec<(usize, u32, usize, usize)>,
    /// The record of a channel that is being written or handled.
    record: Vec<u8>,
    /// Records lend their payload.
    lends_records: bool,
    /// What records lend: key, offset, length, queue pair, and whether it was taken back.
    record_lent: Vec<(u32, usize, usize, Qpn, bool)>,
    /// Payloads of peers that cannot be read, by the number of those before.
    unreadable: std::ops::Range<usize>,
    /// Payloads of peers that were to be read.
    pulled: usize,
    /// What the record at hand lends, unless it cannot be read.
    borrowed: Option<Vec<u8>>,
}

/// Memory of one side; clones share it.
#[derive(Clone, Default)]
pub struct TestMemory(Rc<RefCell<Inner>>);

impl std::fmt::Debug for TestMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestMemory")
    }
}

pub const PD: Pd = Pd(7);
pub const ALL: Rights = Rights::all();

/// Returns the name of the range at the peer.
pub fn at(sge: Sge) -> Remote {
    Remote {
        address: sge.address,
        key: sge.key,
    }
}

impl TestMemory {
    /// Registers `bytes` at a made-up address; returns its SGE.
    pub fn register(&self, bytes: Vec<u8>, rights: Rights) -> Sge {
        self.register_in(PD, bytes, rights)
    }

    /// Registers `bytes` in another protection domain.
    pub fn register_in(&self, pd: Pd, bytes: Vec<u8>, rights: Rights) -> Sge {
        let mut inner = self.0.borrow_mut();
        inner.next_key += 1;
        let key = inner.next_key << 8 | 0x5a;
        let base = 0x1_0000_0000 + (u64::from(key) << 32);
        let length = bytes.len() as u32;
        inner.regions.insert(
            key,
            Region {
                pd,
                base,
                bytes,
                rights,
            },
        );
        Sge {
            address: base,
            length,
            key,
        }
    }

    pub fn deregister(&self, key: u32) {
        let mut inner = self.0.borrow_mut();
        inner.regions.remove(&key);
        inner.take_back(|of, _| of == key);
    }

    /// Starts to lend the payload of records.
    pub fn lend_records(&self) {
        self.0.borrow_mut().lends_records = true;
    }

    /// Returns the number of payloads that records have lent.
    pub fn records_lent(&self) -> usize {
        self.0.borrow().record_lent.len()
    }

    /// Makes these of the payloads that peers lend unreadable, counted from 0.
    pub fn fail_pulls(&self, which: std::ops::Range<usize>) {
        self.0.borrow_mut().unreadable = which;
    }

    /// Returns the bytes that the description `lent` in a record stands for, as they are now; `None` if they were taken back.
    pub fn lent_bytes(&self, lent: &[u8]) -> Option<Vec<u8>> {
        let number = u64::from_ne_bytes(lent[..8].try_into().unwrap()) as usize;
        let inner = self.0.borrow();
        let (region, offset, length, _, taken_back) = inner.record_lent[number];
        let region = inner.regions.get(&region).filter(|_| !taken_back)?;
        Some(region.bytes[offset..offset + length].to_vec())
    }

    /// Sets what the record that is to be handled lends, unless it cannot be read.
    pub fn set_borrowed(&self, bytes: Option<Vec<u8>>) {
        let mut inner = self.0.borrow_mut();
        let fails = inner.unreadable.contains(&inner.pulled);
        inner.pulled += 1;
        inner.borrowed = bytes.filter(|_| !fails);
    }

    /// Returns the key of a new unbound window.
    pub fn window(&self) -> u32 {
        let mut inner = self.0.borrow_mut();
        inner.next_key += 1;
        let key = inner.next_key << 8;
        inner.windows.insert(key, None);
        key
    }

    pub fn bytes(&self, sge: &Sge) -> Vec<u8> {
        self.0.borrow().regions[&sge.key].bytes.clone()
    }

    pub fn fill(&self, sge: &Sge, bytes: &[u8]) {
        let mut inner = self.0.borrow_mut();
        inner.regions.get_mut(&sge.key).unwrap().bytes[..bytes.len()].copy_from_slice(bytes);
    }

    pub fn atomics(&self) -> usize {
        self.0.borrow().atomics
    }

    /// Starts to lend payload. The user of a run calls [`gather`](Self::gather) for it.
    pub fn lend_payload(&self) {
        self.0.borrow_mut().lends_payload = true;
    }

    /// Copies the lent payload of the run in `buffer` to its places, as it is now. Returns the number of payloads.
    pub fn gather(&self, buffer: &mut [u8]) -> usize {
        let mut inner = self.0.borrow_mut();
        let lent = std::mem::take(&mut inner.lent);
        for (at, region, offset, length) in &lent {
            let from = &inner.regions[region].bytes[*offset..offset + length];
            buffer[*at..at + length].copy_from_slice(from);
        }
        lent.len()
    }

    /// Sets the record of a channel that is to be written or handled.
    pub fn set_record(&self, bytes: Vec<u8>) {
        self.0.borrow_mut().record = bytes;
    }

    /// Makes the record that `other` has at hand the one of this side; a first one has `length` bytes.
    pub fn lend_record(&self, other: &Self, length: usize) {
        let mut record = other.take_record();
        let mine = &mut self.0.borrow_mut().record;
        if record.is_empty() {
            std::mem::swap(&mut record, mine);
        }
        if record.is_empty() {
            record = vec![0; length];
        }
        *mine = record;
    }

    pub fn take_record(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.borrow_mut().record)
    }

    /// Returns the contents of all regions.
    pub fn snapshot(&self) -> Vec<Vec<u8>> {
        let inner = self.0.borrow();
        inner.regions.values().map(|r| r.bytes.clone()).collect()
    }
}

impl Inner {
    /// Takes back what is lent of the regions and queue pairs for which `of` returns true.
    fn take_back(&mut self, of: impl Fn(u32, Qpn) -> bool) {
        for (region, _, _, qpn, taken_back) in &mut self.record_lent {
            *taken_back |= of(*region, *qpn);
        }
    }

    /// Returns region and offset of an access.
    fn find(&self, a: &Access, va: u64, length: u64) -> Result<(u32, usize), AccessError> {
        let bounds = AccessError::Bounds {
            key: a.key,
            va,
            length,
        };
        let inside = |base: u64, size: u64| -> Result<u64, AccessError> {
            let offset = va.checked_sub(base).ok_or(bounds)?;
            if offset <= size && length <= size - offset {
                Ok(offset)
            } else {
                Err(bounds)
            }
        };
        let right = AccessError::Right {
            key: a.key,
            need: a.need,
        };
        let (pd, rights, region) = match (self.regions.get(&a.key), self.windows.get(&a.key)) {
            (Some(r), _) => {
                inside(r.base, r.bytes.len() as u64)?;
                (r.pd, r.rights, a.key)
            }
            (None, Some(Some(w))) => {
                inside(w.base, w.length)?;
                if w.qpn.is_some_and(|qpn| qpn != a.qpn) {
                    return Err(AccessError::Scope(a.key));
                }
                (w.pd, w.rights, w.region)
            }
            _ => return Err(AccessError::Key(a.key)),
        };
        if pd != a.pd {
            return Err(AccessError::Scope(a.key));
        }
        if !rights.contains(a.need) {
            return Err(right);
        }
        let base = self
            .regions
            .get(&region)
            .ok_or(AccessError::Key(a.key))?
            .base;
        Ok((region, (va - base) as usize))
    }
}

impl Memory for TestMemory {
    fn check(&self, access: &Access, va: u64, length: u64) -> Result<(), AccessError> {
        self.0.borrow().find(access, va, length).map(|_| ())
    }

    fn read(&self, access: &Access, va: u64, into: &mut [u8]) -> Result<(), AccessError> {
        let inner = self.0.borrow();
        let (region, at) = inner.find(access, va, into.len() as u64)?;
        into.copy_from_slice(&inner.regions[&region].bytes[at..at + into.len()]);
        Ok(())
    }

    fn lend(
        &self,
        access: &Access,
        va: u64,
        length: usize,
        at: usize,
        crc: u32,
    ) -> Result<Option<u32>, AccessError> {
        let mut inner = self.0.borrow_mut();
        if !inner.lends_payload {
            return Ok(None);
        }
        let (region, offset) = inner.find(access, va, length as u64)?;
        let mut crc = crc32fast::Hasher::new_with_initial(crc);
        crc.update(&inner.regions[&region].bytes[offset..offset + length]);
        inner.lent.push((at, region, offset, length));
        Ok(Some(crc.finalize()))
    }

    fn write(&self, access: &Access, va: u64, from: &[u8]) -> Result<(), AccessError> {
        let mut inner = self.0.borrow_mut();
        let (region, at) = inner.find(access, va, from.len() as u64)?;
        inner.regions.get_mut(&region).unwrap().bytes[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn fill(&self, access: &Access, va: u64, length: usize, at: usize) -> Result<(), AccessError> {
        let inner = &mut *self.0.borrow_mut();
        let (region, from) = inner.find(access, va, length as u64)?;
        let bytes = &inner.regions[&region].bytes[from..from + length];
        inner.record[at..at + length].copy_from_slice(bytes);
        Ok(())
    }

    fn lends(&self) -> bool {
        self.0.borrow().lends_records
    }

    fn lend_record(
        &self,
        access: &Access,
        va: u64,
        length: usize,
        at: usize,
    ) -> Result<(), AccessError> {
        let inner = &mut *self.0.borrow_mut();
        let (region, from) = inner.find(access, va, length as u64)?;
        let number = inner.record_lent.len() as u64;
        let lent = (region, from, length, access.qpn, false);
        inner.record_lent.push(lent);
        inner.record[at..at + 8].copy_from_slice(&number.to_ne_bytes());
        Ok(())
    }

    fn recall(&self, qpn: Qpn) {
        self.0.borrow_mut().take_back(|_, of| of == qpn);
    }

    fn place(&self, access: &Access, va: u64, at: usize, length: usize) -> Result<(), AccessError> {
        let inner = &mut *self.0.borrow_mut();
        let (region, to) = inner.find(access, va, length as u64)?;
        let region = inner.regions.get_mut(&region).unwrap();
        let lent = inner.record.is_empty();
        let from = match &inner.borrowed {
            Some(bytes) if lent => bytes,
            None if lent => {
                return Err(AccessError::Withdrawn {
                    key: access.key,
                    va,
                    length: length as u64,
                });
            }
            _ => &inner.record,
        };
        region.bytes[to..to + length].copy_from_slice(&from[at..at + length]);
        Ok(())
    }

    fn atomic(&self, access: &Access, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let mut inner = self.0.borrow_mut();
        let (region, at) = inner.find(access, va, 8)?;
        if !va.is_multiple_of(8) {
            return Err(AccessError::Alignment(va));
        }
        inner.atomics += 1;
        let bytes = &mut inner.regions.get_mut(&region).unwrap().bytes[at..at + 8];
        let old = u64::from_ne_bytes((&*bytes).try_into().unwrap());
        let new = match op {
            AtomicOp::CompareSwap { compare, swap } if old == compare => swap,
            AtomicOp::CompareSwap { .. } => old,
            AtomicOp::FetchAdd(add) => old.wrapping_add(add),
        };
        bytes.copy_from_slice(&new.to_ne_bytes());
        Ok(old)
    }

    fn invalidate(&self, key: u32, pd: Pd, qpn: Qpn, remote: bool) -> Result<(), AccessError> {
        let mut inner = self.0.borrow_mut();
        match inner.windows.get_mut(&key) {
            Some(slot @ Some(_)) => {
                let window = slot.as_ref().unwrap();
                if window.pd != pd || window.qpn.is_some_and(|q| q != qpn) {
                    return Err(AccessError::Scope(key));
                }
                if remote && window.qpn.is_none() {
                    return Err(AccessError::Window(key));
                }
                *slot = None;
                Ok(())
            }
            Some(None) => Err(AccessError::Window(key)),
            None => Err(AccessError::Key(key)),
        }
    }

    fn bind(&self, bind: &MwBind, pd: Pd, qpn: Qpn) -> Result<(), AccessError> {
        let mut inner = self.0.borrow_mut();
        // A window's name here is the key before the bind.
        let old_key = bind.window as u32;
        if !inner.windows.contains_key(&old_key) {
            return Err(AccessError::Window(bind.new_key));
        }
        let window = if bind.length == 0 {
            None
        } else {
            let access = Access {
                key: bind.lkey,
                pd,
                qpn,
                need: Rights::WINDOW_BIND,
            };
            let (region, _) = inner.find(&access, bind.address, bind.length)?;
            Some(Window {
                pd,
                qpn: (bind.kind == WindowType::Type2).then_some(qpn),
                region,
                base: bind.address,
                length: bind.length,
                rights: bind.rights,
            })
        };
        inner.windows.remove(&old_key);
        inner.windows.insert(bind.new_key, window);
        Ok(())
    }
}
