//! Slots of outstanding work requests: they keep the cookie from post to completion, and the work request id finds
//! them.
//!
//! A ring has one poster, which owns the head under its queue's lock, and one completer, which owns the tail under
//! the lock of the EVD whose completion queue it reads. Neither takes the other's lock. Slots are allocated once for
//! each size, on first use, and kept with the endpoint, whose memory is never freed. So a late completion still finds
//! slots, and its generation shows that they belong to another endpoint.

use std::sync::OnceLock;

use dat_arena::Cycle;

use crate::counters::Received;
use crate::error::{Error, Result, Subtype};
use crate::event::DtoOp;
use crate::sync::{AtomicU32, AtomicU64, Ordering, zeroed};
use crate::transport::WrId;

/// Queue that a work request belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum QueueKind {
    /// Requests of an endpoint.
    Request = 0,
    /// Receives of an endpoint.
    Receive = 1,
    /// Receives of a shared receive queue.
    Shared = 2,
}

/// Returns the part of a work request id above its number: object index (22 bits), generation of the object (8),
/// queue kind (2).
pub(crate) const fn id_base(index: u32, generation: u32, queue_kind: QueueKind) -> u64 {
    (index as u64) << 42 | ((generation & 0xff) as u64) << 34 | (queue_kind as u64) << 32
}

/// Returns the id of `number` (a sequence number, or an SRQ's slot) under an [`id_base`].
#[inline(always)]
pub(crate) const fn id(base: u64, number: u32) -> WrId {
    WrId(base | number as u64)
}

/// Work request id, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Id(u64);

impl Id {
    #[inline(always)]
    pub(crate) const fn of(id: WrId) -> Self {
        Self(id.0)
    }
    /// Returns the arena index of the endpoint or SRQ.
    #[inline(always)]
    pub(crate) const fn index(self) -> u32 {
        (self.0 >> 42) as u32
    }
    /// Returns true if the work request was posted in that generation of the object.
    #[inline(always)]
    pub(crate) const fn is_of(self, generation: u32) -> bool {
        (self.0 >> 34) as u32 & 0xff == generation & 0xff
    }
    /// Returns the queue; `None` for an id that core never used.
    #[inline(always)]
    pub(crate) const fn queue_kind(self) -> Option<QueueKind> {
        match (self.0 >> 32) & 3 {
            0 => Some(QueueKind::Request),
            1 => Some(QueueKind::Receive),
            2 => Some(QueueKind::Shared),
            _ => None,
        }
    }
    /// Returns all but the number, which is the same for all work requests of one queue of one endpoint in one
    /// generation.
    #[inline(always)]
    pub(crate) const fn source(self) -> u32 {
        (self.0 >> 32) as u32
    }
    /// Returns the number.
    #[inline(always)]
    pub(crate) const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// Content of a slot beside the cookie, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SlotInfo(u64);

impl SlotInfo {
    /// The consumer gets an event only for a failure.
    pub(crate) const SUPPRESSED: u64 = 1 << 4;
    /// The consumer has no EVD for the completion, and gets no event.
    pub(crate) const NO_EVD: u64 = 1 << 5;
    /// The completion is no notification. DAT's flag shifted left by 4, like [`SlotInfo::SUPPRESSED`], so one shift
    /// converts both.
    pub(crate) const UNSIGNALLED: u64 = 1 << 6;

    /// The event differs from the most frequent ones: a bind, or a receive of a datagram.
    pub(crate) const BIND_OR_DATAGRAM: u64 = 1 << 7;

    /// Last request before a graceful disconnect: its completion ends the connection.
    pub(crate) const LAST: u64 = 1 << 8;

    /// A successful completion gives no event and is reported by the transport: [counted](crate::evd::Evd::expect_silent).
    pub(crate) const SILENT: u64 = 1 << 9;

    /// Set for all but a message, an RDMA operation and a receive that give the consumer an event.
    pub(crate) const SLOW_PATH: u64 =
        Self::SUPPRESSED | Self::NO_EVD | Self::BIND_OR_DATAGRAM | Self::LAST | 0b1100;

    /// Makes the word. `extra` is the length in bytes, or for a bind the arena index of the RMR.
    #[inline(always)]
    pub(crate) const fn new(op: DtoOp, bits: u64, extra: u64) -> Self {
        let bind = if matches!(op, DtoOp::BindMw) {
            Self::BIND_OR_DATAGRAM
        } else {
            0
        };
        Self(op as u64 | bits | bind | extra << 10)
    }
    /// Returns the length or the RMR index.
    #[inline(always)]
    pub(crate) const fn extra(self) -> u64 {
        self.0 >> 10
    }
    /// Returns true if one of `bits` is set.
    #[inline(always)]
    pub(crate) const fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }
    /// Returns the posted operation, for a slot without [`SlotInfo::SLOW_PATH`].
    #[inline(always)]
    pub(crate) const fn fast_op(self) -> DtoOp {
        match self.0 & 3 {
            0 => DtoOp::Send,
            1 => DtoOp::RdmaWrite,
            2 => DtoOp::RdmaRead,
            _ => DtoOp::Receive,
        }
    }
    /// Returns the posted operation.
    #[inline(always)]
    pub(crate) const fn op(self) -> DtoOp {
        OPS[(self.0 & 15) as usize]
    }
}

/// Operations that can be posted, by number.
const OPS: [DtoOp; 16] = {
    let posted = [
        DtoOp::RdmaWrite,
        DtoOp::RdmaRead,
        DtoOp::Receive,
        DtoOp::BindMw,
        DtoOp::LmrInvalidate,
        DtoOp::RdmaWriteImmediate,
        DtoOp::CompareSwap,
        DtoOp::FetchAdd,
        DtoOp::SendUd,
    ];
    let mut table = [DtoOp::Send; 16];
    let mut n = 0;
    while n < posted.len() {
        table[posted[n] as usize] = posted[n];
        n += 1;
    }
    table
};

/// One outstanding work request: cookie and slot info. Plain words, because the memory starts zeroed.
pub(crate) type Slot = [AtomicU64; 2];

/// Returns the slots of a queue that was never opened.
pub(crate) const fn none() -> Cycle<Slot> {
    static NONE: [Slot; 1] = [[const { AtomicU64::new(0) }; 2]];
    Cycle::new(&NONE)
}

/// Access to a slot.
pub(crate) trait Outstanding {
    /// Stores cookie and slot info.
    fn fill(&self, cookie: u64, info: SlotInfo);
    /// Returns cookie and slot info.
    fn read(&self) -> (u64, SlotInfo);
    /// Sets [`SlotInfo::LAST`].
    fn mark_last(&self);
}

impl Outstanding for Slot {
    #[inline(always)]
    fn fill(&self, cookie: u64, info: SlotInfo) {
        self[0].store(cookie, Ordering::Relaxed);
        self[1].store(info.0, Ordering::Relaxed);
    }
    #[inline(always)]
    fn read(&self) -> (u64, SlotInfo) {
        (
            self[0].load(Ordering::Relaxed),
            SlotInfo(self[1].load(Ordering::Relaxed)),
        )
    }
    fn mark_last(&self) {
        self[1].fetch_or(SlotInfo::LAST, Ordering::Relaxed);
    }
}

/// Number of ring sizes. Each is four times the one before.
const CLASSES: usize = 10;
const MIN_SLOTS: u32 = if cfg!(all(loom, test)) { 2 } else { 16 };
const fn class_of(slots: u32) -> usize {
    let mut class = 0;
    while class + 1 < CLASSES && MIN_SLOTS << (2 * class) < slots {
        class += 1;
    }
    class
}

/// Outstanding work of one direction of an endpoint.
#[derive(Debug)]
pub(crate) struct Ring {
    sizes: [OnceLock<Cycle<Slot>>; CLASSES],
    class: AtomicU32,
    tail: AtomicU32,
    /// Generation in the work request ids; a new endpoint and a reset begin another one.
    generation: AtomicU32,
    /// Counts of a receive ring, since its memory was made.
    received: Received,
}

impl Ring {
    /// Makes a ring without slots.
    pub(crate) const fn new() -> Self {
        Self {
            sizes: [const { OnceLock::new() }; CLASSES],
            class: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            received: Received::new(),
        }
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

impl Ring {
    /// Maximum number of outstanding work requests, without the one that ends a graceful disconnect.
    pub(crate) const MAX: u32 = 1 << 20;

    /// Empties the ring and makes room for `count` outstanding work requests, numbered from 0. The caller holds the
    /// queue's lock and has begun a new generation.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES` if there is no memory for the slots.
    pub(crate) fn open(&'static self, count: u32) -> Result<Cycle<Slot>> {
        let class = class_of(count);
        let size = &self.sizes[class];
        let slots = match size.get() {
            Some(slots) => *slots,
            None => {
                let made = zeroed((MIN_SLOTS as usize) << (2 * class));
                let made = made.ok_or(Error::resource(Subtype::ResourceMemory))?;
                *size.get_or_init(|| made)
            }
        };
        self.class.store(class as u32, Ordering::Relaxed);
        self.tail.store(0, Ordering::Release);
        Ok(slots)
    }

    /// Begins `generation`; completions of other generations are dropped from then on.
    pub(crate) fn begin(&self, generation: u32) {
        self.generation.store(generation, Ordering::Release);
    }

    /// Returns the present generation.
    #[inline(always)]
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the slots in use; `None` before the first generation.
    pub(crate) fn slots(&'static self) -> Option<Cycle<Slot>> {
        self.sizes
            .get(self.class.load(Ordering::Relaxed) as usize)
            .and_then(OnceLock::get)
            .copied()
    }

    /// Returns the counts of received messages.
    #[inline(always)]
    pub(crate) fn received(&self) -> &Received {
        &self.received
    }

    /// Returns the sequence number of the oldest outstanding work request.
    #[inline(always)]
    pub(crate) fn tail(&self) -> u32 {
        self.tail.load(Ordering::Acquire)
    }

    /// Returns cookie and slot info of the work request `number` in `slots`, which are [this ring's](Ring::slots). Returns
    /// `None` if it is not outstanding.
    #[inline(always)]
    pub(crate) fn find(&self, slots: Cycle<Slot>, number: u32) -> Option<(u64, SlotInfo)> {
        let ahead = number.wrapping_sub(self.tail.load(Ordering::Relaxed));
        (ahead <= slots.span()).then(|| slots.at(number).read())
    }

    /// Removes the work request `number`, which was found, and all older ones, which were posted unsignaled.
    #[inline(always)]
    pub(crate) fn done(&self, number: u32) {
        self.tail.store(number.wrapping_add(1), Ordering::Release);
    }

    /// Removes the work request `number` and returns its cookie and slot info. Returns `None` if it is not outstanding.
    pub(crate) fn take(&'static self, number: u32) -> Option<(u64, SlotInfo)> {
        let found = self.find(self.slots()?, number)?;
        self.done(number);
        Some(found)
    }
}

#[cfg(all(loom, test))]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_holds_all_its_parts() {
        for (index, generation, queue_kind, number) in [
            (0, 0, QueueKind::Request, 0),
            ((1 << 22) - 1, 255, QueueKind::Shared, u32::MAX),
            (4711, 300, QueueKind::Receive, 77),
        ] {
            let id = Id::of(id(id_base(index, generation, queue_kind), number));
            assert_eq!((id.index(), id.number()), (index, number));
            assert_eq!(id.queue_kind(), Some(queue_kind));
            assert!(id.is_of(generation));
            assert!(!id.is_of(generation + 1));
        }
        assert_eq!(Id::of(WrId(u64::MAX)).queue_kind(), None);
    }

    #[test]
    fn slot_info_holds_every_request() {
        for op in [
            DtoOp::Send,
            DtoOp::RdmaWrite,
            DtoOp::RdmaRead,
            DtoOp::Receive,
            DtoOp::BindMw,
            DtoOp::LmrInvalidate,
            DtoOp::RdmaWriteImmediate,
            DtoOp::CompareSwap,
            DtoOp::FetchAdd,
            DtoOp::SendUd,
        ] {
            let info = SlotInfo::new(op, SlotInfo::SUPPRESSED | SlotInfo::NO_EVD, 1 << 40);
            assert_eq!((info.op(), info.extra()), (op, 1 << 40));
            assert!(
                info.has(SlotInfo::SUPPRESSED)
                    && info.has(SlotInfo::NO_EVD)
                    && !info.has(SlotInfo::UNSIGNALLED)
            );
            let with_event = SlotInfo::new(op, 0, 8);
            assert!(
                with_event.has(SlotInfo::SLOW_PATH) || with_event.fast_op() == op,
                "{op:?}"
            );
        }
    }

    fn ring() -> &'static Ring {
        Box::leak(Box::default())
    }

    #[test]
    fn cookies_survive_the_wrap_of_the_ring_and_of_the_numbers() {
        let ring = ring();
        let slots = ring.open(10).unwrap();
        assert_eq!(slots.span(), 15);
        // The state after 2^32 - 40 requests.
        let start = u32::MAX - 40;
        ring.tail.store(start, Ordering::Relaxed);
        for n in (0..100).map(|i| start.wrapping_add(i)) {
            slots
                .at(n)
                .fill(u64::from(n) * 3, SlotInfo::new(DtoOp::Send, 0, 8));
            let (cookie, info) = ring.take(n).unwrap();
            assert_eq!((cookie, info.extra()), (u64::from(n) * 3, 8));
            assert_eq!(ring.tail(), n.wrapping_add(1));
        }
    }

    #[test]
    fn a_completion_takes_the_unsignaled_ones_before_it() {
        let ring = ring();
        let slots = ring.open(16).unwrap();
        for n in 0..8u32 {
            slots.at(n).fill(u64::from(n), SlotInfo::default());
        }
        assert_eq!(ring.take(5).unwrap().0, 5);
        assert_eq!(ring.tail(), 6);
        assert_eq!(ring.take(5), None, "the same completion twice");
        assert_eq!(ring.take(0), None);
        assert_eq!(ring.take(7).unwrap().0, 7);
    }

    #[test]
    fn sizes_are_powers_of_two_that_fit() {
        let ring = ring();
        // Miri keeps a record of each byte.
        let most = if cfg!(miri) { 5000 } else { u32::MAX };
        let counts = [0, 1, 16, 17, 64, 65, 5000, 1 << 20, Ring::MAX + 1];
        for count in counts.into_iter().filter(|count| *count <= most) {
            assert!(ring.open(count).unwrap().span() + 1 >= count);
            assert_eq!(ring.take(u32::MAX), None, "nothing outstanding at the end");
        }
        assert_eq!(class_of(Ring::MAX + 1), CLASSES - 1);
    }
}
