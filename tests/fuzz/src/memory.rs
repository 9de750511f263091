//! Memory of one engine, in one range, with a log of accesses. The bodies check the log, not the result of the checks here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use softrxe_proto::{
    Access, AccessError, AtomicOp, Memory, MwBind, Pd, Qpn, Rights, Sge, WindowType, near,
};

use crate::reached::{Reached, note};

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

/// Memory of this side that a record lends.
struct Loan {
    key: u32,
    range: Range<usize>,
    qpn: Qpn,
    /// Memory of a request of the consumer, not of the answer to a READ.
    of_request: bool,
    taken_back: bool,
}

/// Memory of the peer that the record at hand lends.
pub(crate) struct Borrowed {
    pub(crate) bytes: Vec<u8>,
    /// A copy of a byte from this position on fails.
    pub(crate) readable: usize,
}

struct Inner {
    bytes: Vec<u8>,
    /// `None` for an unbound window.
    keys: BTreeMap<u32, Option<Grant>>,
    reads: Vec<Range<usize>>,
    writes: Vec<Range<usize>>,
    /// The record of a channel at hand.
    record: Vec<u8>,
    /// Records lend their payload.
    lends: bool,
    loans: Vec<Loan>,
    borrowed: Option<Borrowed>,
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
            lends: false,
            loans: Vec::new(),
            borrowed: None,
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
        let mut inner = self.0.borrow_mut();
        inner.keys.remove(&key);
        inner.take_back(|loan| loan.key == key);
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

    /// Lets records lend their payload, or not.
    pub(crate) fn set_lends(&self, lends: bool) {
        self.0.borrow_mut().lends = lends;
    }

    /// Sets what the record at hand lends.
    pub(crate) fn set_borrowed(&self, borrowed: Option<Borrowed>) {
        self.0.borrow_mut().borrowed = borrowed;
    }

    /// Returns what the description in a record stands for, as the peer reads it now.
    pub(crate) fn lent(&self, description: &[u8]) -> Vec<u8> {
        let number = description.try_into().expect("eight bytes");
        let inner = self.0.borrow();
        let loan = &inner.loans[u64::from_ne_bytes(number) as usize];
        assert!(!loan.taken_back, "the record was made just now");
        inner.bytes[loan.range.clone()].to_vec()
    }

    /// Returns true if queue pair `qpn` lends memory of its requests that was not taken back. The answer to a READ that arrived
    /// before its end may follow, as long as the key grants the memory.
    pub(crate) fn is_lent_by(&self, qpn: Qpn) -> bool {
        let inner = self.0.borrow();
        let mut loans = inner.loans.iter();
        loans.any(|loan| loan.qpn == qpn && loan.of_request && !loan.taken_back)
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
    fn take_back(&mut self, of: impl Fn(&Loan) -> bool) {
        for loan in &mut self.loans {
            if !loan.taken_back && of(loan) {
                loan.taken_back = true;
                note(Reached::Recalled);
            }
        }
    }

    /// Copies from the peer's memory, as far as it is readable.
    fn borrow(&mut self, range: Range<usize>, at: usize) -> bool {
        let borrowed = self.borrowed.take().expect("the record lends");
        let length = range.len();
        let readable = borrowed.readable.saturating_sub(at).min(length);
        let from = &borrowed.bytes[at..at + length];
        let written = range.start..range.start + readable;
        self.bytes[written.clone()].copy_from_slice(&from[..readable]);
        self.writes.push(written);
        self.borrowed = Some(borrowed);
        readable == length
    }

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

    fn lends(&self) -> bool {
        self.0.borrow().lends
    }

    fn lend_record(
        &self,
        access: &Access,
        va: u64,
        length: usize,
        at: usize,
    ) -> Result<(), AccessError> {
        let inner = &mut *self.0.borrow_mut();
        assert!(inner.lends && length <= near::MAX_LENT as usize);
        let range = inner.find(access, va, length as u64)?;
        let number = (inner.loans.len() as u64).to_ne_bytes();
        inner.record[at..at + near::LENT_LEN].copy_from_slice(&number);
        inner.reads.push(range.clone());
        inner.loans.push(Loan {
            key: access.key,
            range,
            qpn: access.qpn,
            of_request: access.need != Rights::REMOTE_READ,
            taken_back: false,
        });
        note(Reached::Lent);
        Ok(())
    }

    fn recall(&self, qpn: Qpn) {
        self.0.borrow_mut().take_back(|loan| loan.qpn == qpn);
    }

    fn place(&self, access: &Access, va: u64, at: usize, length: usize) -> Result<(), AccessError> {
        let inner = &mut *self.0.borrow_mut();
        let range = inner.find(access, va, length as u64)?;
        if inner.borrowed.is_some() {
            if inner.borrow(range, at) {
                note(Reached::Borrowed);
                return Ok(());
            }
            note(Reached::BorrowFailed);
            let (key, length) = (access.key, length as u64);
            return Err(AccessError::Withdrawn { key, va, length });
        }
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
        // A window's name here is the key before the bind.
        let old_key = bind.window as u32;
        if !inner.keys.contains_key(&old_key) {
            return Err(AccessError::Window(bind.new_key));
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
        inner.keys.remove(&old_key);
        inner.keys.insert(bind.new_key, bound);
        Ok(())
    }
}
