//! Memory of one engine, in one range, with a log of accesses. The bodies check the log, not the result of the checks here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use softrxe_proto::{
    Access, AccessError, AtomicOp, Memory, MwBind, Pd, Qpn, Rights, Sge, WindowType,
};

/// Address of the first byte.
pub(crate) const BASE: u64 = 0x10_0000;
pub(crate) const PD: Pd = Pd(7);

#[derive(Clone, Copy)]
struct Grant {
    start: usize,
    length: usize,
    rights: Rights,
    /// The queue pair of a window of type 2.
    qpn: Option<Qpn>,
}

struct Inner {
    bytes: Vec<u8>,
    /// `None` for an unbound window.
    keys: BTreeMap<u32, Option<Grant>>,
    reads: Vec<Range<usize>>,
    writes: Vec<Range<usize>>,
    /// The record of a channel at hand.
    record: Vec<u8>,
}

/// Memory of one engine; clones share it.
#[derive(Clone)]
pub(crate) struct Grants(Rc<RefCell<Inner>>);

impl Grants {
    /// Creates `length` bytes of `fill`, with nothing granted.
    pub(crate) fn new(length: usize, fill: u8) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            bytes: vec![fill; length],
            keys: BTreeMap::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            record: Vec::new(),
        })))
    }

    pub(crate) fn grant(&self, key: u32, range: Range<usize>, rights: Rights) -> Sge {
        let grant = Grant {
            start: range.start,
            length: range.len(),
            rights,
            qpn: None,
        };
        self.0.borrow_mut().keys.insert(key, Some(grant));
        sge(key, range)
    }

    pub(crate) fn window(&self, key: u32) {
        self.0.borrow_mut().keys.insert(key, None);
    }

    pub(crate) fn has_key(&self, key: u32) -> bool {
        self.0.borrow().keys.contains_key(&key)
    }

    pub(crate) fn revoke(&self, key: u32) {
        self.0.borrow_mut().keys.remove(&key);
    }

    pub(crate) fn fill(&self, at: usize, bytes: &[u8]) {
        self.0.borrow_mut().bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn bytes(&self, range: Range<usize>) -> Vec<u8> {
        self.0.borrow().bytes[range].to_vec()
    }

    pub(crate) fn set_record(&self, record: Vec<u8>) {
        self.0.borrow_mut().record = record;
    }

    pub(crate) fn take_record(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.borrow_mut().record)
    }

    /// Takes the ranges that were read and written since the last call.
    pub(crate) fn touched(&self) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
        let mut inner = self.0.borrow_mut();
        (
            std::mem::take(&mut inner.reads),
            std::mem::take(&mut inner.writes),
        )
    }

    /// Returns the ranges that a key with one of `rights` grants now.
    pub(crate) fn open(&self, rights: Rights) -> Vec<Range<usize>> {
        let inner = self.0.borrow();
        let open = inner.keys.values().flatten();
        open.filter(|grant| grant.rights.intersects(rights))
            .map(|grant| grant.start..grant.start + grant.length)
            .collect()
    }
}

/// Returns the SGE of `range`.
pub(crate) fn sge(key: u32, range: Range<usize>) -> Sge {
    Sge {
        address: BASE + range.start as u64,
        length: range.len() as u32,
        key,
    }
}

impl Inner {
    fn find(&self, access: &Access, va: u64, length: u64) -> Result<Range<usize>, AccessError> {
        let key = access.key;
        let grant = self.keys.get(&key).copied().flatten();
        let grant = grant.ok_or(AccessError::Key(key))?;
        let bounds = AccessError::Bounds { key, va, length };
        let at = va.checked_sub(BASE + grant.start as u64).ok_or(bounds)?;
        if at > grant.length as u64 || length > grant.length as u64 - at {
            return Err(bounds);
        }
        if access.pd != PD || grant.qpn.is_some_and(|owner| owner != access.qpn) {
            return Err(AccessError::Scope(key));
        }
        if !grant.rights.contains(access.need) {
            let need = access.need;
            return Err(AccessError::Right { key, need });
        }
        let start = grant.start + at as usize;
        Ok(start..start + length as usize)
    }
}

impl Memory for Grants {
    fn check(&self, access: &Access, va: u64, length: u64) -> Result<(), AccessError> {
        self.0.borrow().find(access, va, length).map(drop)
    }

    fn read(&self, access: &Access, va: u64, into: &mut [u8]) -> Result<(), AccessError> {
        let mut inner = self.0.borrow_mut();
        let range = inner.find(access, va, into.len() as u64)?;
        into.copy_from_slice(&inner.bytes[range.clone()]);
        inner.reads.push(range);
        Ok(())
    }

    fn write(&self, access: &Access, va: u64, from: &[u8]) -> Result<(), AccessError> {
        let mut inner = self.0.borrow_mut();
        let range = inner.find(access, va, from.len() as u64)?;
        inner.bytes[range.clone()].copy_from_slice(from);
        inner.writes.push(range);
        Ok(())
    }

    fn fill(&self, access: &Access, va: u64, length: usize, at: usize) -> Result<(), AccessError> {
        let inner = &mut *self.0.borrow_mut();
        let range = inner.find(access, va, length as u64)?;
        inner.record[at..at + length].copy_from_slice(&inner.bytes[range.clone()]);
        inner.reads.push(range);
        Ok(())
    }

    fn place(&self, access: &Access, va: u64, at: usize, length: usize) -> Result<(), AccessError> {
        let inner = &mut *self.0.borrow_mut();
        let range = inner.find(access, va, length as u64)?;
        inner.bytes[range.clone()].copy_from_slice(&inner.record[at..at + length]);
        inner.writes.push(range);
        Ok(())
    }

    fn atomic(&self, access: &Access, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let mut inner = self.0.borrow_mut();
        let range = inner.find(access, va, 8)?;
        if !va.is_multiple_of(8) {
            return Err(AccessError::Alignment(va));
        }
        let bytes = &mut inner.bytes[range.clone()];
        let old = u64::from_ne_bytes((&*bytes).try_into().expect("eight bytes"));
        let new = match op {
            AtomicOp::CompareSwap { compare, swap } if old == compare => swap,
            AtomicOp::CompareSwap { .. } => old,
            AtomicOp::FetchAdd(add) => old.wrapping_add(add),
        };
        bytes.copy_from_slice(&new.to_ne_bytes());
        inner.writes.push(range);
        Ok(old)
    }

    fn invalidate(&self, key: u32, pd: Pd, qpn: Qpn, remote: bool) -> Result<(), AccessError> {
        let mut inner = self.0.borrow_mut();
        let window = inner.keys.get_mut(&key).ok_or(AccessError::Key(key))?;
        let grant = window.ok_or(AccessError::Window(key))?;
        if pd != PD || grant.qpn.is_some_and(|owner| owner != qpn) {
            return Err(AccessError::Scope(key));
        }
        if remote && grant.qpn.is_none() {
            return Err(AccessError::Window(key));
        }
        *window = None;
        Ok(())
    }

    fn bind(&self, bind: &MwBind, pd: Pd, qpn: Qpn) -> Result<(), AccessError> {
        let mut inner = self.0.borrow_mut();
        if !inner.keys.contains_key(&bind.old_key) {
            return Err(AccessError::Window(bind.old_key));
        }
        let mut bound = None;
        if bind.length > 0 {
            let access = Access {
                key: bind.lkey,
                pd,
                qpn,
                need: Rights::WINDOW_BIND,
            };
            let range = inner.find(&access, bind.address, bind.length)?;
            bound = Some(Grant {
                start: range.start,
                length: range.len(),
                rights: bind.rights,
                qpn: (bind.kind == WindowType::Type2).then_some(qpn),
            });
        }
        inner.keys.remove(&bind.old_key);
        inner.keys.insert(bind.new_key, bound);
        Ok(())
    }
}
