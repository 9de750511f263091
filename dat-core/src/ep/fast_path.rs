//! Fast path of posts. It calls nothing but the transport. Every other case, errors included, is a tail call, so no
//! register has to be saved; that is half of the cost of a post.

use std::borrow::Borrow;

use dat_arena::BriefGuard;

use super::fast_ops::FastOp;
use super::post::{SUPPRESS, info_bits, length_of, limit};
use super::queue::{UndoCount, is_silent};
use super::ring::{Outstanding, SlotInfo, id};
use super::{DEAD, Ep};
use crate::error::{Error, Kind, Result};
use crate::event::DtoOp;
use crate::flags::CompletionFlags;
use crate::iov::{LmrTriplet, Local};
use crate::transport::{Request, Transport};

/// Ends a post on the fast path that the transport refused.
#[cold]
#[inline(never)]
fn undo_post<Q: UndoCount>(mut queue: BriefGuard<'static, Q>, why: Error) -> Result<()> {
    queue.undo_count();
    // Else the compiler would keep `why` in a register through the caller.
    Err(std::hint::black_box(why))
}

/// Segments of a request on the fast path.
pub trait Segments: Copy {
    /// Returns the sum of their lengths.
    fn length(self) -> u64;
    /// Returns true if there are at most `max` segments. One segment is never too many.
    fn within(self, max: usize) -> bool;
    /// Returns true if the length of a segment does not fit core's layout.
    fn too_long(self) -> bool;
    /// Returns the segments in core's layout. None of them is [too long](Segments::too_long).
    ///
    /// It takes no closure: the compiler would make a function of the post in some providers, at the cost of 47 instructions.
    fn triplets(self) -> impl AsRef<[LmrTriplet]>;
}

/// One segment in core's layout.
struct Triplet<B>(B);

impl<B: Borrow<LmrTriplet>> AsRef<[LmrTriplet]> for Triplet<B> {
    #[inline(always)]
    fn as_ref(&self) -> &[LmrTriplet] {
        std::slice::from_ref(self.0.borrow())
    }
}

/// One segment.
#[derive(Debug)]
pub struct One<'a, L>(pub &'a L);

/// Any number of segments.
#[derive(Clone, Copy, Debug)]
pub struct Several<'a> {
    /// Segments in core's layout.
    pub iov: &'a [LmrTriplet],
    /// Sum of their lengths.
    pub length: u64,
}

impl<'a> Several<'a> {
    /// Adds up the lengths of `iov`.
    #[inline(always)]
    #[must_use]
    pub fn new(iov: &'a [LmrTriplet]) -> Self {
        let length = length_of(iov);
        Self { iov, length }
    }
}

impl<L> Copy for One<'_, L> {}
impl<L> Clone for One<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Local> Segments for One<'_, L> {
    #[inline(always)]
    fn length(self) -> u64 {
        self.0.length()
    }
    #[inline(always)]
    fn within(self, _most: usize) -> bool {
        true
    }
    #[inline(always)]
    fn too_long(self) -> bool {
        self.length() > u32::MAX.into()
    }
    #[inline(always)]
    fn triplets(self) -> impl AsRef<[LmrTriplet]> {
        Triplet(self.0.triplet())
    }
}

impl Segments for Several<'_> {
    #[inline(always)]
    fn length(self) -> u64 {
        self.length
    }
    #[inline(always)]
    fn within(self, max: usize) -> bool {
        self.iov.len() <= max
    }
    #[inline(always)]
    fn too_long(self) -> bool {
        false
    }
    #[inline(always)]
    fn triplets(self) -> impl AsRef<[LmrTriplet]> {
        self.iov
    }
}

impl<T: Transport> Ep<T> {
    /// Posts a request on the fast path. Inlined for the constants of the callers: the shortest instance has [`One`]
    /// segment and no flags.
    ///
    /// # Errors
    /// As the function of the operation, e.g. [`Ep::post_send`].
    #[inline(always)]
    pub fn post_fast<K: FastOp, S: Segments>(
        &'static self,
        segments: S,
        cookie: u64,
        flags: CompletionFlags,
        what: K,
    ) -> Result<()> {
        let Some(mut guard) = self.send.try_lock() else {
            return self.fall_back(segments, cookie, flags, what);
        };
        let queue = &mut *guard;
        let bits = flags.bits();
        let length = segments.length();
        // The limit of a dead endpoint, and of a state that permits no post, is the head.
        if queue.head != queue.limit
            && bits & queue.invalid_flags == 0
            && !is_silent(bits, queue.is_signaled(queue.head, false))
            && segments.within(queue.max_iov)
            && limit(what.remote()).allows_fast(queue, length)
            && let Some(qp) = queue.qp.as_deref()
        {
            queue.slot(queue.head).fill(
                cookie,
                SlotInfo::new(K::KIND, info_bits(bits) | queue.info_base, length),
            );
            queue.posted.add(K::KIND, length);
            let posted = T::post_send(
                qp,
                &Request {
                    id: id(queue.id_base, queue.head),
                    op: what.op(),
                    iov: segments.triplets().as_ref(),
                    length,
                    // A suppressed request is signaled on the slow path only.
                    signaled: bits & SUPPRESS == 0,
                    solicited: bits & CompletionFlags::SOLICITED_WAIT.bits() != 0,
                    fence: bits & CompletionFlags::BARRIER_FENCE.bits() != 0,
                },
            );
            return match posted {
                // Head and unlocking together: one register then holds all that is needed after the transport's call.
                Ok(()) => {
                    queue.head = queue.head.wrapping_add(1);
                    drop(guard);
                    Ok(())
                }
                Err(why) => undo_post(guard, why),
            };
        }
        drop(guard);
        self.fall_back(segments, cookie, flags, what)
    }

    /// Continues on the slow path.
    #[cold]
    #[inline(never)]
    fn fall_back<K: FastOp, S: Segments>(
        &'static self,
        segments: S,
        cookie: u64,
        flags: CompletionFlags,
        what: K,
    ) -> Result<()> {
        if !self.head.alive() {
            return Err(DEAD);
        }
        if segments.too_long() {
            return Err(Error::of(Kind::LengthError));
        }
        let triplets = segments.triplets();
        self.post_slow(triplets.as_ref().into(), cookie, flags, what)
    }

    /// Posts a receive of one segment without flags on the fast path; see [`Ep::post_fast`].
    ///
    /// # Errors
    /// As [`Ep::post_recv`].
    #[inline(always)]
    pub fn post_recv_fast<L: Local>(&'static self, segment: &L, cookie: u64) -> Result<()> {
        let Some(mut guard) = self.recv.try_lock() else {
            return self.fall_back_recv(segment, cookie);
        };
        let queue = &mut *guard;
        let length = segment.length();
        if queue.head != queue.limit
            && queue.max_iov != 0
            && !One(segment).too_long()
            && let Some(qp) = queue.qp.as_deref()
        {
            queue
                .slot(queue.head)
                .fill(cookie, SlotInfo::new(DtoOp::Receive, queue.info_base, 0));
            queue.last = length as u32;
            queue.posted.add_bytes(DtoOp::Receive, length);
            let id = id(queue.id_base, queue.head);
            let posted = T::post_recv(qp, id, One(segment).triplets().as_ref());
            return match posted {
                // Head and unlocking together: one register then holds all that is needed after the transport's call.
                Ok(()) => {
                    queue.head = queue.head.wrapping_add(1);
                    drop(guard);
                    Ok(())
                }
                Err(why) => undo_post(guard, why),
            };
        }
        drop(guard);
        self.fall_back_recv(segment, cookie)
    }

    /// Continues a receive on the slow path, or on this one if the limit was all that kept it: in a program that posts a receive for each
    /// that completes, the limit is always one receive away.
    #[cold]
    #[inline(never)]
    fn fall_back_recv<L: Local>(&'static self, segment: &L, cookie: u64) -> Result<()> {
        if self.raise_receive_limit() {
            return self.post_recv_fast(segment, cookie);
        }
        if self.head.alive() && One(segment).too_long() {
            return Err(Error::of(Kind::LengthError));
        }
        let triplet = One(segment).triplets();
        self.post_recv_slow(triplet.as_ref().into(), cookie, 0)
    }
}
