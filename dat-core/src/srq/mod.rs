//! Shared receive queues (dat_srq_create, dat_srq_post_recv, dat_srq_query, dat_srq_resize, dat_srq_set_lw,
//! dat_srq_free). Their receives complete in any order, on the receive EVDs of the endpoints.

mod slots;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dat_arena::{Mutex, MutexGuard};

use self::slots::{MAX_SLOTS, Slots};
use crate::attributes::SrqAttr;
use crate::ep::{Ep, Id, QueueKind, id, id_base};
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::event::AsyncEvent;
use crate::head::{Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::iov::Iov;
use crate::pz::Pz;
use crate::transport::{Token, Transport};
use crate::use_count::Claim;

/// Value of `DAT_SRQ_LOW_WATERMARK_EVENT`, the reason of the asynchronous event.
const LOW_WATERMARK_REASON: u32 = 2;

const DEAD: Error = Error::handle(Subtype::InvalidHandleSrq);

/// Shared receive queue. All methods may be called from any thread.
#[repr(C)]
pub struct Srq<T: Transport> {
    /// Table, liveness, generation, use count.
    pub head: Head,
    /// Generation in work request ids.
    generation: AtomicU32,
    slots: Slots,
    /// True once an endpoint without an EVD for receives was made on it. No consumer takes the completions of that.
    unheard: AtomicBool,
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
            generation: AtomicU32::new(0),
            slots: Slots::default(),
            unheard: AtomicBool::new(false),
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

/// Result of dat_srq_query (`DAT_SRQ_PARAM`).
#[derive(Clone, Debug)]
pub struct SrqInfo<T: Transport> {
    /// Adapter.
    pub ia: &'static Ia<T>,
    /// Protection zone.
    pub pz: &'static Pz<T>,
    /// Limits, and the low watermark if it is armed.
    pub attr: SrqAttr,
    /// Number of receives that are posted and wait for a message.
    pub available: u32,
    /// Number of receives that are posted and not complete.
    pub outstanding: u32,
}

impl<T: Transport> Srq<T> {
    /// Creates a shared receive queue (dat_srq_create).
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (third argument), `DAT_INSUFFICIENT_RESOURCES`, `DAT_MODEL_NOT_SUPPORTED` if the
    /// transport has no such queues, `DAT_INVALID_HANDLE` of a PZ of another IA.
    pub fn create(ia: &'static Ia<T>, pz: &'static Pz<T>, attr: &SrqAttr) -> Result<&'static Self> {
        let adapter = ia.attributes()?;
        if !std::ptr::eq(pz.ia(), ia) {
            return Err(Error::handle(Subtype::InvalidHandlePz));
        }
        // A limit of 0 means that the transport has no figure.
        let max = match adapter.max_recv_per_srq {
            0 => MAX_SLOTS,
            n => n.min(MAX_SLOTS),
        };
        if attr.max_recv_dtos == 0
            || attr.max_recv_dtos > max
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
        srq.make(ia, index, pz, claim, attr).inspect_err(|_| {
            srq.clear();
            arena.recycle(index);
        })?;
        if let Some(low) = attr.low_watermark {
            srq.set_low_watermark(low).inspect_err(|_| {
                // Unless an abrupt close has freed it.
                let _ = srq.free();
            })?;
        }
        Ok(srq)
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
        let generation = self
            .generation
            .fetch_add(1, Ordering::AcqRel)
            .wrapping_add(1);
        self.slots.open(attr.max_recv_dtos)?;
        self.unheard.store(false, Ordering::Relaxed);
        *self.inner.lock() = Inner {
            queue: Some(Arc::new(queue)),
            pz: Some(pz),
            claim: Some(claim),
            max_recv_dtos: attr.max_recv_dtos,
            max_recv_iov: attr.max_recv_iov,
            low_watermark: None,
            id_base: id_base(index, generation, QueueKind::Shared),
        };
        ia.add_member(Kind::Srq, index, &self.head, 0)
    }

    /// Returns whether its receives may use the memory of `pz`. The provider attribute `srq_ep_pz_difference_supported` is false, so an
    /// endpoint has the PZ of its queue.
    pub(crate) fn has_pz(&self, pz: &'static Pz<T>) -> bool {
        self.inner.lock().pz.is_none_or(|own| std::ptr::eq(own, pz))
    }

    /// Posts a receive (dat_srq_post_recv).
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` for too many segments (argument 2), `DAT_INSUFFICIENT_RESOURCES` when all are
    /// outstanding.
    #[inline]
    pub fn post_recv<'a>(&'static self, iov: impl Into<Iov<'a>>, cookie: u64) -> Result<()> {
        let mut inner = self.inner.lock();
        if self.slots.taken() >= inner.max_recv_dtos {
            inner = self.make_room(inner)?;
        }
        let Some(queue) = &inner.queue else {
            return Err(DEAD);
        };
        let Some(iov) = iov.into().within(inner.max_recv_iov as usize) else {
            return Err(Error::arg(2));
        };
        let Some(number) = self.slots.take(cookie) else {
            return Err(Error::resource(Subtype::ResourceMemory));
        };
        T::post_srq_recv(queue, id(inner.id_base, number), iov).inspect_err(|_| {
            self.slots.release(number);
        })
    }

    /// Frees slots of a full queue: takes the completions of endpoints that have no EVD for receives.
    #[cold]
    fn make_room(
        &'static self,
        inner: MutexGuard<'static, Inner<T>>,
    ) -> Result<MutexGuard<'static, Inner<T>>> {
        // Unlocked, because the connection side of endpoints precedes SRQs in the lock order.
        drop(inner);
        if self.unheard.load(Ordering::Relaxed) {
            Ep::<T>::take_unheard_of(self);
        }
        let inner = self.inner.lock();
        if inner.queue.is_none() {
            return Err(DEAD);
        }
        if self.slots.taken() >= inner.max_recv_dtos {
            return Err(Error::resource(Subtype::ResourceMemory));
        }
        Ok(inner)
    }

    /// Returns the maximum number of segments of a receive; 0 if the queue was freed.
    pub fn max_segments(&self) -> u32 {
        self.inner.lock().max_recv_iov
    }

    /// Says that an endpoint without an EVD for receives uses the queue.
    pub(crate) fn expect_unheard(&self) {
        self.unheard.store(true, Ordering::Relaxed);
    }

    /// Removes the completed receive of `id` and returns its cookie; `None` if it is not outstanding. The caller
    /// holds an EVD's lock; no lock is taken here.
    #[inline]
    pub(crate) fn complete(&'static self, id: Id) -> Option<u64> {
        if !id.is_of(self.generation.load(Ordering::Acquire)) {
            return None;
        }
        let cookie = self.slots.release(id.number())?;
        // Another thread may have freed the queue meanwhile, and then given back the memory of the cookie, which was read as 0.
        id.is_of(self.generation.load(Ordering::Acquire))
            .then_some(cookie)
    }

    /// Returns limits and counts (dat_srq_query). No transport reports the receives that endpoints have taken and not
    /// completed: those count as available.
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

    /// Changes the size of the queue (dat_srq_resize).
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` below the number of outstanding receives or the armed low watermark,
    /// `DAT_INVALID_PARAMETER` (second argument), `DAT_INSUFFICIENT_RESOURCES`.
    pub fn resize(&'static self, max_recv_dtos: u32) -> Result<()> {
        let adapter = self.ia().attributes()?;
        let max = match adapter.max_recv_per_srq {
            0 => MAX_SLOTS,
            n => n.min(MAX_SLOTS),
        };
        if max_recv_dtos == 0 || max_recv_dtos > max {
            return Err(if self.head.alive() {
                Error::arg(2)
            } else {
                DEAD
            });
        }
        if self.check_resize(&self.inner.lock(), max_recv_dtos)? {
            Ep::reserve_receives_of(self, max_recv_dtos)?;
        }
        let grown = {
            let mut inner = self.inner.lock();
            let grows = self.check_resize(&inner, max_recv_dtos)?;
            // "There is no requirement to shrink the SRQ to return DAT_SUCCESS."
            if grows {
                let queue = inner.queue.clone().ok_or(DEAD)?;
                self.slots.grow(max_recv_dtos)?;
                T::resize_srq(&queue, max_recv_dtos)?;
            }
            inner.max_recv_dtos = max_recv_dtos;
            grows
        };
        if grown {
            // For endpoints that other threads have made meanwhile.
            Ep::reserve_receives_of(self, max_recv_dtos)?;
        }
        Ok(())
    }

    /// Checks that the queue can have this size; returns whether it is a larger one.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE`, `DAT_INVALID_HANDLE`.
    fn check_resize(&self, inner: &Inner<T>, max_recv_dtos: u32) -> Result<bool> {
        if inner.queue.is_none() {
            return Err(DEAD);
        }
        if max_recv_dtos < self.slots.taken()
            || inner.low_watermark.is_some_and(|low| max_recv_dtos < low)
        {
            return Err(Error::state(Subtype::InvalidStateSrqOperational));
        }
        Ok(max_recv_dtos > inner.max_recv_dtos)
    }

    /// Arms the low watermark (dat_srq_set_lw): one asynchronous event when fewer than `low_watermark` receives are
    /// left; 0 disarms.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` above the size of the queue, `DAT_MODEL_NOT_SUPPORTED` if the transport does not
    /// report it.
    pub fn set_low_watermark(&'static self, low_watermark: u32) -> Result<()> {
        let mut is_low = {
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
        if !is_low && low_watermark != 0 {
            // Messages that were not taken yet leave fewer receives than were counted, and a device need not look at the limit before
            // the next message takes one (rdma_rxe).
            Ep::gather_receives_of(self);
            is_low = self.slots.taken() < low_watermark;
        }
        if is_low {
            self.announce_low();
        }
        Ok(())
    }

    /// Handles the transport's report that fewer receives than the watermark are left.
    pub(crate) fn low(token: Token) {
        if let Some(srq) = T::arenas().srq.get(token.index())
            && srq.head.alive()
            && srq.head.token(token.index()) == token
        {
            srq.announce_low();
        }
    }

    /// Posts the asynchronous event, once per arming. `dat.h` has the reason but no event number of its own for it,
    /// so handle and reason identify it.
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

    /// Frees the queue (dat_srq_free).
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` (`DAT_INVALID_STATE_SRQ_IN_USE`) while an endpoint uses it.
    pub fn free(&'static self) -> Result<()> {
        self.head
            .retire(Subtype::InvalidHandleSrq, Subtype::InvalidStateSrqInUse)?;
        self.clear();
        let index = T::arenas().srq.index_of(self);
        self.ia().remove_member(Kind::Srq, index);
        T::arenas().srq.recycle(index);
        Ok(())
    }

    fn clear(&'static self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        let mut inner = self.inner.lock();
        let parts = (inner.queue.take(), inner.claim.take(), inner.pz.take());
        inner.low_watermark = None;
        drop(inner);
        // No post takes a slot from here on.
        self.slots.discard();
        // The queue is dropped before the claim on its protection zone.
        drop(parts.0);
        drop(parts.1);
    }

    /// Returns the maximum number of outstanding receives.
    pub(crate) fn depth(&'static self) -> u32 {
        self.inner.lock().max_recv_dtos
    }

    /// Returns the transport's queue.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if freed.
    pub(crate) fn queue(&'static self) -> Result<Arc<T::Srq>> {
        self.inner.lock().queue.clone().ok_or(DEAD)
    }

    /// Returns the IA that the queue belongs to.
    pub fn ia(&self) -> &'static Ia<T> {
        Ia::of(&self.head)
    }

    /// Returns the handle as a number.
    #[inline]
    pub fn handle(&'static self) -> usize {
        raw(self)
    }
}

/// Converts the transport's `DAT_NOT_IMPLEMENTED` to `DAT_MODEL_NOT_SUPPORTED`, as dat_srq_create and dat_srq_set_lw
/// return it.
fn unsupported(error: Error) -> Error {
    if error.kind() == Some(ErrorKind::NotImplemented) {
        Error::of(ErrorKind::ModelNotSupported)
    } else {
        error
    }
}
