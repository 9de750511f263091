//! Numbers of endpoints, and what the crate counts of each.
//!
//! A provider uses a handle again some time after its object was freed; a number is used once. An [`Entry`] belongs to a handle, and
//! lives for the rest of the process, as the objects of providers do. So the look-up for each completion takes no lock.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The number of an endpoint in events ([`Ep::id`](crate::Ep::id)). No two endpoints of a process have the same one.
///
/// ```
/// use std::collections::HashMap;
/// use udapl::{EpId, Event};
///
/// /// What a server knows of each client.
/// #[derive(Default)]
/// struct Clients(HashMap<EpId, String>);
///
/// impl Clients {
///     fn take(&mut self, event: &Event) {
///         match event {
///             Event::Established { ep, .. } => _ = self.0.insert(*ep, "new".to_owned()),
///             Event::Ended { ep, .. } => _ = self.0.remove(ep),
///             _ => {}
///         }
///     }
/// }
/// # Clients::default().take(&Event::Software(1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct EpId(u64);

impl EpId {
    /// The number of no endpoint, in completions of binds.
    pub const NONE: Self = Self(0);

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for EpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EpId({})", self.0)
    }
}

impl fmt::Display for EpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A queue of work: index of [`Entry::posted`] and [`Entry::done`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Requests = 0,
    Receives = 1,
}

/// What is known of the object that has a handle now: an endpoint or an SRQ.
#[derive(Debug)]
pub(crate) struct Entry {
    handle: usize,
    id: AtomicU64,
    alive: AtomicBool,
    /// The object connected, so that it may have had events.
    connected: AtomicBool,
    /// Every post has a completion event, so that the counts below tell what is outstanding.
    exact: AtomicBool,
    /// Queues of events in which events of an earlier object of this handle may be left.
    late: AtomicU32,
    posted: [AtomicU64; 2],
    done: [AtomicU64; 2],
    /// The entry that counts the receives: this one or that of an SRQ.
    receives: AtomicPtr<Self>,
}

impl Entry {
    fn new(handle: usize) -> &'static Self {
        let entry = Box::leak(Box::new(Self {
            handle,
            id: AtomicU64::new(0),
            alive: AtomicBool::new(false),
            connected: AtomicBool::new(false),
            exact: AtomicBool::new(true),
            late: AtomicU32::new(0),
            posted: Default::default(),
            done: Default::default(),
            receives: AtomicPtr::default(),
        }));
        let at = &raw mut *entry;
        entry.receives.store(at, Ordering::Relaxed);
        entry
    }

    pub(crate) fn id(&self) -> EpId {
        EpId(self.id.load(Ordering::Relaxed))
    }

    pub(crate) fn handle(&self) -> usize {
        self.handle
    }

    /// Returns the entry that counts the receives.
    fn receiver(&self) -> &'static Self {
        // SAFETY: entries are never freed.
        unsafe { &*self.receives.load(Ordering::Relaxed) }
    }

    /// Begins the life of an object, whose receives come from `srq` if there is one.
    pub(crate) fn begin(&'static self, srq: Option<&'static Self>) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        for count in self.posted.iter().chain(&self.done) {
            count.store(0, Ordering::Relaxed);
        }
        self.exact.store(true, Ordering::Relaxed);
        self.connected.store(false, Ordering::Relaxed);
        let receives = std::ptr::from_ref(srq.unwrap_or(self)).cast_mut();
        self.receives.store(receives, Ordering::Relaxed);
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        self.id.store(id, Ordering::Relaxed);
        self.alive.store(true, Ordering::Release);
    }

    /// Ends the life of the object. Its number remains for late events.
    pub(crate) fn end(&self) {
        self.alive.store(false, Ordering::Release);
    }

    /// Counts a post, before it is made.
    #[inline]
    pub(crate) fn post(&self, side: Side) {
        self.posted[side as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the count of a post back, which was refused.
    #[cold]
    pub(crate) fn unpost(&self, side: Side) {
        self.posted[side as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a completion.
    #[inline]
    fn complete(&self, side: Side) {
        match side {
            Side::Requests => self.done[0].fetch_add(1, Ordering::Relaxed),
            Side::Receives => self.receiver().done[1].fetch_add(1, Ordering::Relaxed),
        };
    }

    /// Says that the object begins to connect.
    pub(crate) fn connect(&self) {
        self.connected.store(true, Ordering::Relaxed);
    }

    /// Returns whether the object may have had events.
    pub(crate) fn had_events(&self) -> bool {
        let posted = |count: &AtomicU64| count.load(Ordering::Relaxed) != 0;
        self.connected.load(Ordering::Relaxed) || self.posted.iter().any(posted)
    }

    /// Says that some posts have no completion event from now on.
    pub(crate) fn inexact(&self) {
        self.exact.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.exact.load(Ordering::Relaxed)
    }

    /// Returns whether the object `id` is alive.
    pub(crate) fn lives(&self, id: EpId) -> bool {
        self.alive.load(Ordering::Acquire) && self.id() == id
    }

    pub(crate) fn posted(&self, side: Side) -> u64 {
        self.posted[side as usize].load(Ordering::Acquire)
    }

    pub(crate) fn done(&self, side: Side) -> u64 {
        self.done[side as usize].load(Ordering::Acquire)
    }

    /// Changes the number of queues in which late events may be left.
    pub(crate) fn add_late(&self) {
        self.late.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove_late(&self) {
        self.late.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn has_late(&self) -> bool {
        self.late.load(Ordering::Acquire) != 0
    }
}

/// An open hash table that only grows. Earlier tables stay, because readers take no lock.
struct Table {
    mask: usize,
    slots: Box<[AtomicPtr<Entry>]>,
}

impl Table {
    fn with(size: usize) -> &'static Self {
        let slots = (0..size).map(|_| AtomicPtr::default()).collect();
        Box::leak(Box::new(Self {
            mask: size - 1,
            slots,
        }))
    }

    #[inline]
    fn find(&self, handle: usize) -> Result<&'static Entry, &AtomicPtr<Entry>> {
        // Objects are at least 64 bytes apart.
        let mut at = (handle >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        loop {
            let slot = &self.slots[at & self.mask];
            // SAFETY: NULL or an entry, which is never freed.
            match unsafe { slot.load(Ordering::Acquire).as_ref() } {
                Some(entry) if entry.handle == handle => return Ok(entry),
                None => return Err(slot),
                Some(_) => at += 1,
            }
        }
    }
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());
static USED: AtomicUsize = AtomicUsize::new(0);
static WRITER: Mutex<()> = Mutex::new(());

fn table() -> Option<&'static Table> {
    // SAFETY: NULL or a table, which is never freed.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Returns the entry of a handle.
pub(crate) fn entry(handle: usize) -> &'static Entry {
    let _writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    let used = USED.load(Ordering::Relaxed);
    let table = match table() {
        Some(table) if used * 2 < table.slots.len() => table,
        old => grow(old),
    };
    match table.find(handle) {
        Ok(entry) => entry,
        Err(slot) => {
            let entry = Entry::new(handle);
            slot.store(std::ptr::from_ref(entry).cast_mut(), Ordering::Release);
            USED.store(used + 1, Ordering::Relaxed);
            entry
        }
    }
}

fn grow(old: Option<&'static Table>) -> &'static Table {
    let new = Table::with(old.map_or(64, |old| old.slots.len() * 2));
    for slot in old.iter().flat_map(|old| old.slots.iter()) {
        let entry = slot.load(Ordering::Relaxed);
        // SAFETY: NULL or an entry, which is never freed.
        if let Some(of) = unsafe { entry.as_ref() }
            && let Err(free) = new.find(of.handle)
        {
            free.store(entry, Ordering::Relaxed);
        }
    }
    TABLE.store(std::ptr::from_ref(new).cast_mut(), Ordering::Release);
    new
}

/// Returns the number of the endpoint with this handle.
#[inline]
pub(crate) fn id(handle: usize) -> EpId {
    match table().map(|table| table.find(handle)) {
        Some(Ok(entry)) => entry.id(),
        _ => EpId::NONE,
    }
}

/// Counts a completion of the endpoint with this handle, and returns its number.
#[inline]
pub(crate) fn complete(handle: usize, side: Side) -> EpId {
    match table().map(|table| table.find(handle)) {
        Some(Ok(entry)) => {
            entry.complete(side);
            entry.id()
        }
        _ => EpId::NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_handle_keeps_its_entry_while_the_table_grows() {
        let handles: Vec<usize> = (1..2000).map(|n| 0x7000_0000_0000 + n * 192).collect();
        let entries: Vec<_> = handles.iter().map(|handle| entry(*handle)).collect();
        let mut ids = std::collections::HashSet::new();
        for entry in &entries {
            entry.begin(None);
            assert!(ids.insert(entry.id()), "a number is used once");
        }
        for (handle, of) in handles.iter().zip(&entries) {
            assert!(std::ptr::eq(entry(*handle), *of));
            assert_eq!(id(*handle), of.id());
        }
        assert_eq!(id(0x40), EpId::NONE);
    }

    #[test]
    fn receives_of_an_srq_are_counted_there() {
        let (srq, ep) = (entry(0x6000_0000_0000), entry(0x6000_0000_0040));
        srq.begin(None);
        ep.begin(Some(srq));
        srq.post(Side::Receives);
        assert_eq!(complete(ep.handle(), Side::Receives), ep.id());
        assert_eq!(complete(ep.handle(), Side::Requests), ep.id());
        assert_eq!((srq.done(Side::Receives), ep.done(Side::Receives)), (1, 0));
        assert_eq!((srq.done(Side::Requests), ep.done(Side::Requests)), (0, 1));
    }
}
