//! Shared receive queues (dat_srq_create, dat_srq_post_recv, dat_srq_query, dat_srq_resize, dat_srq_set_lw,
//! dat_srq_free). Their receives complete in any order, on the receive EVDs of the endpoints.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::attr::SrqAttr;
use crate::ep::{Id, Lane, id, id_base};
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::event::AsyncEvent;
use crate::head::{Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::iov::LmrTriplet;
use crate::ledger::Claim;
use crate::pz::Pz;
use crate::transport::{Token, Transport};

/// `DAT_SRQ_LOW_WATERMARK_EVENT`, the reason of the asynchronous event.
const LOW_WATERMARK_REASON: u32 = 2;

/// Receives an SRQ can hold at most.
const MOST: u32 = 1 << 20;

const DEAD: Error = Error::handle(Subtype::InvalidHandleSrq);

/// A shared receive queue. All methods may be called from any thread.
#[repr(C)]
pub struct Srq<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    /// Names this life in work request ids.
    life: AtomicU32,
    slots: Slots,
    inner: Mutex<Inner<T>>,
}

struct Inner<T: Transport> {
    queue: Option<Arc<T::Srq>>,
    pz: Option<&'static Pz<T>>,
    claim: Option<Claim>,
    max_recv_dtos: u32,
    max_recv_iov: u32,
    low_watermark: Option<u32>,
    id_base: u64,
}

debug_by_head!(Srq);

impl<T: Transport> Default for Srq<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            life: AtomicU32::new(0),
            slots: Slots::default(),
            inner: Mutex::new(Inner {
                queue: None,
                pz: None,
                claim: None,
                max_recv_dtos: 0,
                max_recv_iov: 0,
                low_watermark: None,
                id_base: 0,
            }),
        }
    }
}

/// What dat_srq_query reports (`DAT_SRQ_PARAM`).
#[derive(Clone, Debug)]
pub struct SrqInfo<T: Transport> {
    /// The adapter.
    pub ia: &'static Ia<T>,
    /// The protection zone.
    pub pz: &'static Pz<T>,
    /// Limits, and the low watermark if it is armed.
    pub attr: SrqAttr,
    /// Receives that are posted and wait for a message.
    pub available: u32,
    /// Receives that are posted and not completed.
    pub outstanding: u32,
}

impl<T: Transport> Srq<T> {
    /// dat_srq_create.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (third argument), `DAT_INSUFFICIENT_RESOURCES`, `DAT_MODEL_NOT_SUPPORTED` where
    /// the transport has no such queues, `DAT_INVALID_HANDLE` of a PZ of another IA.
    pub fn create(ia: &'static Ia<T>, pz: &'static Pz<T>, attr: &SrqAttr) -> Result<&'static Self> {
        let adapter = ia.attributes()?;
        if !std::ptr::eq(pz.ia(), ia) {
            return Err(Error::handle(Subtype::InvalidHandlePz));
        }
        // Limits of 0 are what a transport says that does not know them.
        let most = match adapter.max_recv_per_srq {
            0 => MOST,
            n => n.min(MOST),
        };
        if attr.max_recv_dtos == 0
            || attr.max_recv_dtos > most
            || attr.max_recv_iov > adapter.max_iov
            || attr
                .low_watermark
                .is_some_and(|low| low > attr.max_recv_dtos)
        {
            return Err(Error::arg(3));
        }
        let claim = pz.head.claim(Subtype::InvalidHandlePz)?;
        let arena = &T::arenas().srq;
        let (index, srq) = arena.alloc().ok_or(Error::resource(Subtype::ResourceSrq))?;
        let made = srq.make(ia, index, pz, claim, attr);
        if made.is_err() {
            srq.clear();
            arena.recycle(index);
        }
        made.map(|()| srq)
    }

    fn make(
        &'static self,
        ia: &'static Ia<T>,
        index: u32,
        pz: &'static Pz<T>,
        claim: Claim,
        attr: &SrqAttr,
    ) -> Result<()> {
        let generation = self.head.generation.load(Ordering::Acquire).wrapping_add(1);
        let queue =
            T::create_srq(&pz.zone()?, attr, Token::new(index, generation)).map_err(unsupported)?;
        let life = self.life.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        self.slots.open(attr.max_recv_dtos);
        *self.inner.lock() = Inner {
            queue: Some(Arc::new(queue)),
            pz: Some(pz),
            claim: Some(claim),
            max_recv_dtos: attr.max_recv_dtos,
            max_recv_iov: attr.max_recv_iov,
            low_watermark: None,
            id_base: id_base(index, life, Lane::Shared),
        };
        ia.adopt(Kind::Srq, index, &self.head, 0)?;
        match attr.low_watermark {
            None => Ok(()),
            Some(low) => self.set_low_watermark(low).inspect_err(|_| {
                ia.leave(Kind::Srq, index);
                let _ = self
                    .head
                    .retire(Subtype::InvalidHandleSrq, Subtype::InvalidStateSrqInUse);
            }),
        }
    }

    /// dat_srq_post_recv.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` for too many segments (argument 2), `DAT_INSUFFICIENT_RESOURCES` when all are
    /// outstanding.
    #[inline]
    pub fn post_recv(&'static self, iov: &[LmrTriplet], cookie: u64) -> Result<()> {
        let inner = self.inner.lock();
        let Some(queue) = &inner.queue else {
            return Err(DEAD);
        };
        if iov.len() > inner.max_recv_iov as usize {
            return Err(Error::arg(2));
        }
        if self.slots.taken() >= inner.max_recv_dtos {
            return Err(Error::resource(Subtype::ResourceMemory));
        }
        let Some(number) = self.slots.take(cookie) else {
            return Err(Error::resource(Subtype::ResourceMemory));
        };
        T::post_srq_recv(queue, id(inner.id_base, number), iov).inspect_err(|_| {
            self.slots.give_back(number);
        })
    }

    /// The receive of `id` is completed: its cookie. Called under an EVD's lock, takes none itself. `None` if it
    /// is not outstanding.
    #[inline]
    pub(crate) fn complete(&'static self, id: Id) -> Option<u64> {
        if !id.is_of(self.life.load(Ordering::Acquire)) {
            return None;
        }
        self.slots.give_back(id.number())
    }

    /// dat_srq_query. A transport does not tell how many receives endpoints have taken and not completed: those
    /// count as available.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was freed meanwhile.
    pub fn info(&'static self) -> Result<SrqInfo<T>> {
        let inner = self.inner.lock();
        let pz = inner.pz.ok_or(DEAD)?;
        let outstanding = self.slots.taken();
        Ok(SrqInfo {
            ia: self.ia(),
            pz,
            attr: SrqAttr {
                max_recv_dtos: inner.max_recv_dtos,
                max_recv_iov: inner.max_recv_iov,
                low_watermark: inner.low_watermark,
            },
            available: outstanding,
            outstanding,
        })
    }

    /// dat_srq_resize.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` below what is outstanding or the armed low watermark, `DAT_INVALID_PARAMETER` (second
    /// argument), `DAT_INSUFFICIENT_RESOURCES`.
    pub fn resize(&'static self, max_recv_dtos: u32) -> Result<()> {
        let adapter = self.ia().attributes()?;
        let mut inner = self.inner.lock();
        let queue = inner.queue.clone().ok_or(DEAD)?;
        let most = match adapter.max_recv_per_srq {
            0 => MOST,
            n => n.min(MOST),
        };
        if max_recv_dtos == 0 || max_recv_dtos > most {
            return Err(Error::arg(2));
        }
        if max_recv_dtos < self.slots.taken()
            || inner.low_watermark.is_some_and(|low| max_recv_dtos < low)
        {
            return Err(Error::state(Subtype::InvalidStateSrqOperational));
        }
        // "There is no requirement to shrink the SRQ to return DAT_SUCCESS."
        if max_recv_dtos > inner.max_recv_dtos {
            T::resize_srq(&queue, max_recv_dtos)?;
            self.slots.grow(max_recv_dtos);
        }
        inner.max_recv_dtos = max_recv_dtos;
        Ok(())
    }

    /// dat_srq_set_lw: one event, an asynchronous one, when fewer than `low_watermark` receives are left; 0
    /// disarms.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` above the size of the queue, `DAT_MODEL_NOT_SUPPORTED` where the transport cannot
    /// tell.
    pub fn set_low_watermark(&'static self, low_watermark: u32) -> Result<()> {
        let at_once = {
            let mut inner = self.inner.lock();
            let queue = inner.queue.clone().ok_or(DEAD)?;
            if low_watermark > inner.max_recv_dtos {
                return Err(Error::arg(2));
            }
            let at_once = self.slots.taken() < low_watermark;
            T::arm_srq_limit(&queue, if at_once { 0 } else { low_watermark })
                .map_err(unsupported)?;
            inner.low_watermark = (low_watermark != 0).then_some(low_watermark);
            at_once
        };
        if at_once {
            self.announce_low();
        }
        Ok(())
    }

    /// The transport says that fewer receives are left than the watermark.
    pub(crate) fn low(token: Token) {
        if let Some(srq) = T::arenas().srq.get(token.index())
            && srq.head.alive()
            && srq.head.token(token.index()) == token
        {
            srq.announce_low();
        }
    }

    /// Once per arming. `dat.h` has the reason but no event number of its own for it: handle and reason tell.
    fn announce_low(&'static self) {
        let armed = self.inner.lock().low_watermark.take().is_some();
        if armed {
            self.ia().post_async(
                AsyncEvent::ProviderInternalError,
                self.handle(),
                LOW_WATERMARK_REASON,
            );
        }
    }

    /// dat_srq_free.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` (`DAT_INVALID_STATE_SRQ_IN_USE`) while an endpoint uses it.
    pub fn free(&'static self) -> Result<()> {
        self.head
            .retire(Subtype::InvalidHandleSrq, Subtype::InvalidStateSrqInUse)?;
        self.clear();
        let index = T::arenas().srq.index_of(self);
        self.ia().leave(Kind::Srq, index);
        T::arenas().srq.recycle(index);
        Ok(())
    }

    fn clear(&'static self) {
        self.life.fetch_add(1, Ordering::AcqRel);
        let mut inner = self.inner.lock();
        let parts = (inner.queue.take(), inner.claim.take(), inner.pz.take());
        inner.low_watermark = None;
        drop(inner);
        // The queue goes before the claim on its protection zone.
        drop(parts.0);
        drop(parts.1);
    }

    /// Receives that may be outstanding.
    pub(crate) fn depth(&'static self) -> u32 {
        self.inner.lock().max_recv_dtos
    }

    /// The transport's queue.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if freed.
    pub(crate) fn queue(&'static self) -> Result<Arc<T::Srq>> {
        self.inner.lock().queue.clone().ok_or(DEAD)
    }

    /// The IA it belongs to.
    pub fn ia(&self) -> &'static Ia<T> {
        Ia::of(&self.head)
    }

    /// The handle as a number.
    #[inline]
    pub fn handle(&'static self) -> usize {
        raw(self)
    }
}

/// What a transport does not implement is a model that is not supported (dat_srq_create, dat_srq_set_lw).
fn unsupported(error: Error) -> Error {
    if error.kind() == Some(ErrorKind::NotImplemented) {
        Error::of(ErrorKind::ModelNotSupported)
    } else {
        error
    }
}

/// Numbered cookies, taken and given back in any order. One thread takes at a time (under the queue's lock),
/// any number give back (under the locks of EVDs).
#[derive(Default)]
struct Slots {
    /// Chunk `n` holds `64 << n` slots; chunks are made once and stay.
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    /// Numbers ever made.
    made: AtomicU32,
    /// First free slot + 1, and a count of changes above it, so that a taker sees whether it was beaten.
    free: AtomicU64,
    taken: AtomicU32,
}

const CHUNKS: usize = 15;

#[derive(Default)]
struct Slot {
    cookie: AtomicU64,
    /// Next free slot + 1; [`TAKEN`] while outstanding.
    next: AtomicU32,
}

const TAKEN: u32 = u32::MAX;

impl Slots {
    /// Empties it and makes at least `count` slots.
    fn open(&self, count: u32) {
        let made = self.made.load(Ordering::Acquire);
        self.taken.store(0, Ordering::Release);
        self.free.store(0, Ordering::Release);
        for number in (0..made).rev() {
            if let Some(slot) = self.slot(number) {
                self.push(number, slot);
            }
        }
        self.grow(count);
    }

    fn grow(&self, count: u32) {
        let mut made = self.made.load(Ordering::Acquire);
        while made < count.min(MOST) {
            let (chunk, _) = place(made);
            let slots = self.chunks[chunk]
                .get_or_init(|| (0..64usize << chunk).map(|_| Slot::default()).collect());
            self.made
                .store(made + slots.len() as u32, Ordering::Release);
            for (offset, slot) in slots.iter().enumerate() {
                self.push(made + offset as u32, slot);
            }
            made += slots.len() as u32;
        }
    }

    fn slot(&self, number: u32) -> Option<&Slot> {
        let (chunk, offset) = place(number);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    fn taken(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }

    fn take(&self, cookie: u64) -> Option<u32> {
        loop {
            let free = self.free.load(Ordering::Acquire);
            let number = (free as u32).checked_sub(1)?;
            let slot = self.slot(number)?;
            let rest = change(free, slot.next.load(Ordering::Relaxed));
            if self
                .free
                .compare_exchange_weak(free, rest, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                slot.cookie.store(cookie, Ordering::Relaxed);
                slot.next.store(TAKEN, Ordering::Release);
                self.taken.fetch_add(1, Ordering::AcqRel);
                return Some(number);
            }
        }
    }

    fn give_back(&self, number: u32) -> Option<u64> {
        let slot = self.slot(number)?;
        let cookie = slot.cookie.load(Ordering::Relaxed);
        // Of two who give the same back, one is wrong.
        slot.next
            .compare_exchange(TAKEN, 0, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        self.push(number, slot);
        self.taken.fetch_sub(1, Ordering::AcqRel);
        Some(cookie)
    }

    fn push(&self, number: u32, slot: &Slot) {
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            slot.next.store(free as u32, Ordering::Relaxed);
            let first = change(free, number + 1);
            match self
                .free
                .compare_exchange_weak(free, first, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
    }
}

/// The free word with another first slot and a new count.
const fn change(free: u64, first: u32) -> u64 {
    ((free >> 32).wrapping_add(1) << 32) | first as u64
}

/// Chunk and offset of slot `number`: chunks of 64, 128, 256 ...
const fn place(number: u32) -> (usize, usize) {
    let biased = number as usize + 64;
    let chunk = (biased.ilog2() - 6) as usize;
    (chunk, biased - (64 << chunk))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    #[test]
    fn every_number_has_its_place() {
        assert_eq!(place(0), (0, 0));
        assert_eq!(place(63), (0, 63));
        assert_eq!(place(64), (1, 0));
        assert_eq!(place(191), (1, 127));
        assert_eq!(place(192), (2, 0));
        assert!(place(MOST - 1).0 < CHUNKS);
    }

    #[test]
    fn cookies_come_back_in_any_order_and_once() {
        let slots = Slots::default();
        slots.open(100);
        let numbers: Vec<_> = (0..100u64).map(|c| slots.take(c).unwrap()).collect();
        assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), 100);
        assert_eq!(slots.taken(), 100);
        for c in [50usize, 3, 99, 0] {
            assert_eq!(slots.give_back(numbers[c]), Some(c as u64));
            assert_eq!(slots.give_back(numbers[c]), None, "twice");
        }
        assert_eq!(slots.taken(), 96);
        assert_eq!(slots.give_back(1 << 29), None);
        slots.open(10);
        assert_eq!((slots.taken(), slots.give_back(numbers[7])), (0, None));
    }

    #[test]
    fn takers_and_givers_do_not_lose_a_slot() {
        let slots = Slots::default();
        slots.open(64);
        let (send, recv) = std::sync::mpsc::channel::<(u32, u64)>();
        let recv = Mutex::new(recv);
        thread::scope(|scope| {
            for _ in 0..2 {
                let (recv, slots) = (&recv, &slots);
                scope.spawn(move || {
                    while let Ok((number, cookie)) = { recv.lock().recv() } {
                        assert_eq!(slots.give_back(number), Some(cookie));
                    }
                });
            }
            let mut cookie = 0;
            while cookie < 20_000 {
                if let Some(number) = slots.take(cookie) {
                    send.send((number, cookie)).unwrap();
                    cookie += 1;
                } else {
                    thread::yield_now();
                }
            }
            drop(send);
        });
        assert_eq!(slots.taken(), 0);
        let all: HashSet<_> = std::iter::from_fn(|| slots.take(0)).collect();
        assert_eq!(all.len(), 64);
    }
}
