//! Numbers of endpoints, and what the crate counts of each.
//!
//! A provider uses a handle again some time after its object was freed; a number is used once. An [`Entry`] belongs to a handle, and
//! lives for the rest of the process, as the objects of providers do. So the look-up for each completion takes no lock.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use dat_core::event::DtoOp;

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

/// A queue of work.
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
    /// Number of the last object whose free has begun, and of the last one that is freed.
    freeing: AtomicU64,
    freed: AtomicU64,
    /// The object connected, so that it may have had events.
    connected: AtomicBool,
    /// Every post has a completion event, and no other event counts, so that the counts below tell what is outstanding.
    exact: AtomicBool,
    /// Queues of events in which events of an earlier object of this handle may be left.
    late: AtomicU32,
    posted: [AtomicU64; 2],
    /// Completions by number of the operation, which costs less than by queue.
    done: [AtomicU64; OPERATIONS],
    /// The entry that counts the receives: this one or that of an SRQ.
    receives: AtomicPtr<Self>,
    /// The handle, or [`NO_HANDLE`] if an SRQ counts the receives.
    counts_all: AtomicUsize,
    /// Handle of the zone with which segments of requests are compared; 0 if a request may have no segment.
    zone: AtomicUsize,
    /// The same for receives; 0 also if the endpoint takes none.
    receive_zone: AtomicUsize,
}

/// The handle of no object.
const NO_HANDLE: usize = usize::MAX;

/// Numbers of operations in completions: a power of two.
const OPERATIONS: usize = 16;

/// How a completion is counted. A thread that sees the count may use the memory of the operation, so it must see what the operation wrote, too.
const COUNTED: Ordering = Ordering::Release;

/// The operations of receives, a bit for each number.
const RECEIVES: u32 = 1 << DtoOp::Receive as u32
    | 1 << DtoOp::ReceiveWithInvalidate as u32
    | 1 << DtoOp::ReceiveRdmaImmediate as u32
    | 1 << DtoOp::ReceiveMessageImmediate as u32
    | 1 << DtoOp::ReceiveUd as u32;

/// Returns the index of an operation's completions.
#[inline]
const fn index(operation: u32) -> usize {
    operation as usize & (OPERATIONS - 1)
}

/// Returns the queue of an operation.
const fn side(index: usize) -> Side {
    if RECEIVES >> index & 1 == 1 {
        Side::Receives
    } else {
        Side::Requests
    }
}

impl Entry {
    const fn of(handle: usize) -> Self {
        Self {
            handle,
            id: AtomicU64::new(0),
            freeing: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            connected: AtomicBool::new(false),
            exact: AtomicBool::new(true),
            late: AtomicU32::new(0),
            posted: [const { AtomicU64::new(0) }; 2],
            done: [const { AtomicU64::new(0) }; OPERATIONS],
            receives: AtomicPtr::new(std::ptr::null_mut()),
            counts_all: AtomicUsize::new(NO_HANDLE),
            zone: AtomicUsize::new(0),
            receive_zone: AtomicUsize::new(0),
        }
    }

    fn new(handle: usize) -> &'static Self {
        let entry = Box::leak(Box::new(Self::of(handle)));
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
        // Late events of an earlier object of this handle will count as completions.
        let has_late = self.has_late();
        self.exact.store(!has_late, Ordering::Relaxed);
        if has_late && let Some(srq) = srq {
            srq.inexact();
        }
        self.connected.store(false, Ordering::Relaxed);
        let receives = std::ptr::from_ref(srq.unwrap_or(self)).cast_mut();
        self.receives.store(receives, Ordering::Relaxed);
        let counts_all = if srq.is_none() {
            self.handle
        } else {
            NO_HANDLE
        };
        self.counts_all.store(counts_all, Ordering::Relaxed);
        self.set_zones(0, 0);
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        self.id.store(id, Ordering::Release);
    }

    /// Says that the object is freed next: the provider must not be asked for its status any more.
    pub(crate) fn begin_free(&self) {
        self.freeing.store(self.id().0, Ordering::Release);
    }

    /// Ends the life of the object `id`. Its number remains for late events. Another object may have the handle meanwhile.
    pub(crate) fn end(&self, id: EpId) {
        self.freed.fetch_max(id.0, Ordering::AcqRel);
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
    fn complete(&self, operation: u32) {
        let index = index(operation);
        let of = match side(index) {
            Side::Requests => self,
            Side::Receives => self.receiver(),
        };
        of.done[index].fetch_add(1, COUNTED);
    }

    /// Sets the zones with which segments of requests and of receives are compared; 0 refuses segments.
    pub(crate) fn set_zones(&self, requests: usize, receives: usize) {
        self.zone.store(requests, Ordering::Relaxed);
        self.receive_zone.store(receives, Ordering::Relaxed);
    }

    /// Returns the zone of requests with one segment, or 0.
    #[inline]
    pub(crate) fn zone(&self) -> usize {
        self.zone.load(Ordering::Relaxed)
    }

    /// Returns the zone of receives with one segment, or 0.
    #[inline]
    pub(crate) fn receive_zone(&self) -> usize {
        self.receive_zone.load(Ordering::Relaxed)
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

    /// Says that the counts do not tell what is outstanding from now on.
    pub(crate) fn inexact(&self) {
        self.exact.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.exact.load(Ordering::Relaxed)
    }

    /// Returns whether the object `id` is alive, also while it is being freed.
    pub(crate) fn lives(&self, id: EpId) -> bool {
        self.id() == id && self.freed.load(Ordering::Acquire) < id.0
    }

    /// Returns whether the free of the object `id` has begun.
    pub(crate) fn is_being_freed(&self, id: EpId) -> bool {
        self.freeing.load(Ordering::Acquire) == id.0
    }

    pub(crate) fn posted(&self, side: Side) -> u64 {
        self.posted[side as usize].load(Ordering::Acquire)
    }

    pub(crate) fn done(&self, side: Side) -> u64 {
        let of_side = (0..OPERATIONS).filter(|index| self::side(*index) == side);
        of_side
            .map(|index| self.done[index].load(Ordering::Acquire))
            .sum()
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

/// The entry of the completion before, which most often is that of the next one too.
#[derive(Debug)]
pub(crate) struct Recent(AtomicPtr<Entry>);

impl Default for Recent {
    fn default() -> Self {
        static NONE: Entry = Entry::of(NO_HANDLE);
        Self(AtomicPtr::new(std::ptr::from_ref(&NONE).cast_mut()))
    }
}

impl Recent {
    /// Counts a completion of the endpoint with this handle, and returns its number.
    #[inline]
    pub(crate) fn complete(&self, handle: usize, operation: u32) -> EpId {
        match self.complete_same(handle, operation) {
            Some(id) => id,
            None => self.find(handle, operation),
        }
    }

    /// The same, if it is the endpoint of the completion before.
    #[inline]
    pub(crate) fn complete_same(&self, handle: usize, operation: u32) -> Option<EpId> {
        // SAFETY: entries are never freed.
        let entry = unsafe { &*self.0.load(Ordering::Acquire) };
        if entry.counts_all.load(Ordering::Relaxed) != handle {
            return None;
        }
        entry.done[index(operation)].fetch_add(1, COUNTED);
        Some(entry.id())
    }

    /// Counts a completion of any endpoint, and returns its number.
    #[inline(never)]
    pub(crate) fn find(&self, handle: usize, operation: u32) -> EpId {
        let Some(Ok(entry)) = table().map(|table| table.find(handle)) else {
            return EpId::NONE;
        };
        entry.complete(operation);
        let at = std::ptr::from_ref(entry).cast_mut();
        self.0.store(at, Ordering::Release);
        entry.id()
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
        let recent = Recent::default();
        for operation in [DtoOp::Receive, DtoOp::Send, DtoOp::ReceiveWithInvalidate] {
            assert_eq!(recent.complete(ep.handle(), operation as u32), ep.id());
        }
        assert_eq!((srq.done(Side::Receives), ep.done(Side::Receives)), (2, 0));
        assert_eq!((srq.done(Side::Requests), ep.done(Side::Requests)), (0, 1));
    }

    #[test]
    fn counts_are_not_exact_where_late_events_may_come() {
        let (srq, ep) = (entry(0x6800_0000_0000), entry(0x6800_0000_0040));
        srq.begin(None);
        ep.begin(Some(srq));
        assert!(srq.is_exact() && ep.is_exact());
        ep.add_late();
        ep.begin(Some(srq));
        assert!(!srq.is_exact() && !ep.is_exact());
        ep.remove_late();
        ep.begin(None);
        assert!(!srq.is_exact() && ep.is_exact());
    }

    #[test]
    fn completions_of_endpoints_in_turn_are_counted_at_each() {
        let eps = [entry(0x5000_0000_0000), entry(0x5000_0000_0040)];
        for ep in eps {
            ep.begin(None);
        }
        let recent = Recent::default();
        for (ep, operation) in [(0, 3), (0, 0), (1, 1), (0, 14), (1, 2), (1, 4)] {
            assert_eq!(recent.complete(eps[ep].handle(), operation), eps[ep].id());
        }
        let counts = |ep: &Entry| (ep.done(Side::Requests), ep.done(Side::Receives));
        assert_eq!((counts(eps[0]), counts(eps[1])), ((1, 2), (2, 1)));
        assert_eq!(recent.complete(0x40, 3), EpId::NONE);
    }

    #[test]
    fn the_receives_are_those_of_the_operation() {
        use DtoOp as O;
        let receives = [
            O::Receive,
            O::ReceiveWithInvalidate,
            O::ReceiveRdmaImmediate,
        ];
        let more = [O::ReceiveMessageImmediate, O::ReceiveUd];
        for op in receives.into_iter().chain(more) {
            assert!(
                !op.is_request() && side(op as usize) == Side::Receives,
                "{op:?}"
            );
        }
        assert_eq!(RECEIVES.count_ones(), 5);
    }
}
