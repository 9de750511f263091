//! Slots of outstanding work: cookies between post and completion, found again by work request id.
//!
//! A ring has one poster (under its queue's lock, it owns the head) and one completer (under the lock of the
//! EVD whose completion queue it reads, it owns the tail). Neither takes the other's lock. Slots are made once
//! for each size and then kept with the endpoint, whose memory lives for ever too; so a completion that comes
//! late still finds slots, and the endpoint's life tells it that they are not its own. They take memory when they are used for the
//! first time.

use std::sync::OnceLock;

use dat_arena::Cycle;

use crate::counters::Received;
use crate::error::{Error, Result, Subtype};
use crate::event::DtoOp;
use crate::sync::{AtomicU32, AtomicU64, Ordering, zeroed};
use crate::transport::WrId;

/// What a work request belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Lane {
    /// A request of an endpoint.
    Request = 0,
    /// A receive of an endpoint.
    Receive = 1,
    /// A receive of a shared receive queue.
    Shared = 2,
}

/// The part of a work request id above its number: object index (22 bits), life of the object (8), lane (2).
pub(crate) const fn id_base(index: u32, life: u32, lane: Lane) -> u64 {
    (index as u64) << 42 | ((life & 0xff) as u64) << 34 | (lane as u64) << 32
}

/// The id of `number` (a sequence number, or an SRQ's slot) under an [`id_base`].
#[inline(always)]
pub(crate) const fn id(base: u64, number: u32) -> WrId {
    WrId(base | number as u64)
}

/// The parts of a work request id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Id(u64);

impl Id {
    #[inline(always)]
    pub(crate) const fn of(id: WrId) -> Self {
        Self(id.0)
    }
    /// Arena index of the endpoint or SRQ.
    #[inline(always)]
    pub(crate) const fn index(self) -> u32 {
        (self.0 >> 42) as u32
    }
    /// Whether it was posted in that life of the object.
    #[inline(always)]
    pub(crate) const fn is_of(self, life: u32) -> bool {
        (self.0 >> 34) as u32 & 0xff == life & 0xff
    }
    /// What it belongs to; `None` for a number that core never gave out.
    #[inline(always)]
    pub(crate) const fn lane(self) -> Option<Lane> {
        match (self.0 >> 32) & 3 {
            0 => Some(Lane::Request),
            1 => Some(Lane::Receive),
            2 => Some(Lane::Shared),
            _ => None,
        }
    }
    /// All but the number: what was posted to the same lane of the same endpoint, in the same life, has it in common.
    #[inline(always)]
    pub(crate) const fn origin(self) -> u32 {
        (self.0 >> 32) as u32
    }
    /// The number.
    #[inline(always)]
    pub(crate) const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// What a slot remembers beside the cookie, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Note(u64);

impl Note {
    /// The consumer hears only of a failure.
    pub(crate) const QUIET: u64 = 1 << 4;
    /// The consumer hears nothing at all.
    pub(crate) const MUTE: u64 = 1 << 5;
    /// The completion does not notify. As far from [`Note::QUIET`] as the two flags of a post that they stand for.
    pub(crate) const NO_NOTICE: u64 = 1 << 6;

    /// It is told otherwise than the usual: a bind, or a receive of a datagram.
    pub(crate) const SPECIAL: u64 = 1 << 7;

    /// Set for everything but a message, an RDMA and a receive of which the consumer hears.
    pub(crate) const RARE: u64 = Self::QUIET | Self::MUTE | Self::SPECIAL | 0b1100;

    /// `extra` is the length in bytes, or for a bind the arena index of the RMR.
    #[inline(always)]
    pub(crate) const fn new(op: DtoOp, bits: u64, extra: u64) -> Self {
        let bind = if matches!(op, DtoOp::BindMw) {
            Self::SPECIAL
        } else {
            0
        };
        Self(op as u64 | bits | bind | extra << 8)
    }
    /// Length or RMR index.
    #[inline(always)]
    pub(crate) const fn extra(self) -> u64 {
        self.0 >> 8
    }
    /// Whether one of `bits` is set.
    #[inline(always)]
    pub(crate) const fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }
    /// The operation posted, of one that is not [`Note::RARE`].
    #[inline(always)]
    pub(crate) const fn usual_op(self) -> DtoOp {
        match self.0 & 3 {
            0 => DtoOp::Send,
            1 => DtoOp::RdmaWrite,
            2 => DtoOp::RdmaRead,
            _ => DtoOp::Receive,
        }
    }
    /// The operation posted.
    #[inline(always)]
    pub(crate) const fn op(self) -> DtoOp {
        OPS[(self.0 & 15) as usize]
    }
}

/// Every operation that can be posted, under its number.
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

/// One outstanding work request: cookie and note. Plain words, because they begin as zeroed memory.
pub(crate) type Slot = [AtomicU64; 2];

/// What a queue has for slots that was never opened.
pub(crate) const fn none() -> Cycle<Slot> {
    static NONE: [Slot; 1] = [[const { AtomicU64::new(0) }; 2]];
    Cycle::new(&NONE)
}

/// A slot's cookie and note.
pub(crate) trait Outstanding {
    /// Sets both.
    fn fill(&self, cookie: u64, note: Note);
    /// Both.
    fn read(&self) -> (u64, Note);
}

impl Outstanding for Slot {
    #[inline(always)]
    fn fill(&self, cookie: u64, note: Note) {
        self[0].store(cookie, Ordering::Relaxed);
        self[1].store(note.0, Ordering::Relaxed);
    }
    #[inline(always)]
    fn read(&self) -> (u64, Note) {
        (
            self[0].load(Ordering::Relaxed),
            Note(self[1].load(Ordering::Relaxed)),
        )
    }
}

/// Ring sizes: so many slots, then four times as many each.
const CLASSES: usize = 10;
const LEAST: u32 = if cfg!(all(loom, test)) { 2 } else { 16 };
const fn class_of(slots: u32) -> usize {
    let mut class = 0;
    while class + 1 < CLASSES && LEAST << (2 * class) < slots {
        class += 1;
    }
    class
}

/// The outstanding work of one direction of an endpoint.
#[derive(Debug)]
pub(crate) struct Ring {
    sizes: [OnceLock<Cycle<Slot>>; CLASSES],
    class: AtomicU32,
    tail: AtomicU32,
    /// Names the life of the endpoint (or what came after its last reset) in work request ids.
    life: AtomicU32,
    /// Of a receive ring, since its memory was made.
    received: Received,
}

impl Ring {
    /// Without slots.
    pub(crate) const fn new() -> Self {
        Self {
            sizes: [const { OnceLock::new() }; CLASSES],
            class: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            life: AtomicU32::new(0),
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
    /// Most that can be outstanding, beside the mark at the end of a graceful disconnect.
    pub(crate) const MAX: u32 = 1 << 20;

    /// Makes room for `count` outstanding work requests, numbered from 0, and forgets those that were. The
    /// caller holds the queue's lock and has made a new life of the endpoint.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES` if there is no memory for the slots.
    pub(crate) fn open(&'static self, count: u32) -> Result<Cycle<Slot>> {
        let class = class_of(count);
        let size = &self.sizes[class];
        let slots = match size.get() {
            Some(slots) => *slots,
            None => {
                let made = zeroed((LEAST as usize) << (2 * class));
                let made = made.ok_or(Error::resource(Subtype::ResourceMemory))?;
                *size.get_or_init(|| made)
            }
        };
        self.class.store(class as u32, Ordering::Relaxed);
        self.tail.store(0, Ordering::Release);
        Ok(slots)
    }

    /// From now on completions are of `life`; those of another are strangers.
    pub(crate) fn begin(&self, life: u32) {
        self.life.store(life, Ordering::Release);
    }

    /// The life that completions must be of.
    #[inline(always)]
    pub(crate) fn life(&self) -> u32 {
        self.life.load(Ordering::Acquire)
    }

    /// The slots in use; `None` before the first life.
    pub(crate) fn slots(&'static self) -> Option<Cycle<Slot>> {
        self.sizes
            .get(self.class.load(Ordering::Relaxed) as usize)
            .and_then(OnceLock::get)
            .copied()
    }

    /// What was received through it.
    #[inline(always)]
    pub(crate) fn received(&self) -> &Received {
        &self.received
    }

    /// Sequence number of the oldest outstanding work request.
    #[inline(always)]
    pub(crate) fn tail(&self) -> u32 {
        self.tail.load(Ordering::Acquire)
    }

    /// Finds the work request `number` in `slots`, which are [this ring's](Ring::slots): cookie and note. `None` if it
    /// is none of those outstanding.
    #[inline(always)]
    pub(crate) fn find(&self, slots: Cycle<Slot>, number: u32) -> Option<(u64, Note)> {
        let ahead = number.wrapping_sub(self.tail.load(Ordering::Relaxed));
        (ahead <= slots.span()).then(|| slots.at(number).read())
    }

    /// The work request `number`, which was found, is done, and with it all older ones: those were posted without
    /// asking for a completion.
    #[inline(always)]
    pub(crate) fn done(&self, number: u32) {
        self.tail.store(number.wrapping_add(1), Ordering::Release);
    }

    /// Takes the work request `number` out. `None` if it is none of those outstanding.
    pub(crate) fn take(&'static self, number: u32) -> Option<(u64, Note)> {
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
        for (index, life, lane, number) in [
            (0, 0, Lane::Request, 0),
            ((1 << 22) - 1, 255, Lane::Shared, u32::MAX),
            (4711, 300, Lane::Receive, 77),
        ] {
            let id = Id::of(id(id_base(index, life, lane), number));
            assert_eq!((id.index(), id.number()), (index, number));
            assert_eq!(id.lane(), Some(lane));
            assert!(id.is_of(life));
            assert!(!id.is_of(life + 1));
        }
        assert_eq!(Id::of(WrId(u64::MAX)).lane(), None);
    }

    #[test]
    fn note_holds_every_request() {
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
            let note = Note::new(op, Note::QUIET | Note::MUTE, 1 << 40);
            assert_eq!((note.op(), note.extra()), (op, 1 << 40));
            assert!(note.has(Note::QUIET) && note.has(Note::MUTE) && !note.has(Note::NO_NOTICE));
            let heard = Note::new(op, 0, 8);
            assert!(heard.has(Note::RARE) || heard.usual_op() == op, "{op:?}");
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
        // As if 2^32 - 40 requests had been done.
        let start = u32::MAX - 40;
        ring.tail.store(start, Ordering::Relaxed);
        for n in (0..100).map(|i| start.wrapping_add(i)) {
            slots
                .at(n)
                .fill(u64::from(n) * 3, Note::new(DtoOp::Send, 0, 8));
            let (cookie, note) = ring.take(n).unwrap();
            assert_eq!((cookie, note.extra()), (u64::from(n) * 3, 8));
            assert_eq!(ring.tail(), n.wrapping_add(1));
        }
    }

    #[test]
    fn a_completion_takes_the_unsignalled_ones_before_it() {
        let ring = ring();
        let slots = ring.open(16).unwrap();
        for n in 0..8u32 {
            slots.at(n).fill(u64::from(n), Note::default());
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
