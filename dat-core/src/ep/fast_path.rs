//! The short ways of posting. They lead past every other call than the transport's own: what is unusual, errors too,
//! leaves them by a call at their end. So the compiler keeps everything in registers that need not be saved, which is half
//! of what a post costs.

use dat_arena::BriefGuard;

use super::fast_ops::FastOp;
use super::post::{QUIET, length_of, limit, note_bits};
use super::queue::Uncount;
use super::ring::{Note, Outstanding, id};
use super::{DEAD, Ep};
use crate::error::{Error, Kind, Result};
use crate::event::DtoOp;
use crate::flags::CompletionFlags;
use crate::iov::{LmrTriplet, Local};
use crate::transport::{Request, Transport};

/// The end of a post on the short way that the transport refused.
#[cold]
#[inline(never)]
fn not_posted<Q: Uncount>(mut queue: BriefGuard<'static, Q>, why: Error) -> Result<()> {
    queue.uncount();
    // Else the compiler sees that this is the argument, and the caller keeps that in a register after all.
    Err(std::hint::black_box(why))
}

/// The segments of a request on the short way.
pub trait Segments: Copy {
    /// Bytes of all.
    fn length(self) -> u64;
    /// Whether there are at most so many; one is known not to be too many.
    fn within(self, most: usize) -> bool;
    /// Whether core's layout cannot say how long one of them is.
    fn too_long(self) -> bool;
    /// Calls `f` with them in core's layout; none is [too long](Segments::too_long).
    fn with<R>(self, f: impl FnOnce(&[LmrTriplet]) -> R) -> R;
}

/// One segment.
#[derive(Debug)]
pub struct One<'a, L>(pub &'a L);

/// Any number of them.
#[derive(Clone, Copy, Debug)]
pub struct Several<'a> {
    /// The segments.
    pub iov: &'a [LmrTriplet],
    /// Bytes of all.
    pub length: u64,
}

impl<'a> Several<'a> {
    /// Adds up their lengths.
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
    fn with<R>(self, f: impl FnOnce(&[LmrTriplet]) -> R) -> R {
        self.0.with(|one| f(std::slice::from_ref(one)))
    }
}

impl Segments for Several<'_> {
    #[inline(always)]
    fn length(self) -> u64 {
        self.length
    }
    #[inline(always)]
    fn within(self, most: usize) -> bool {
        self.iov.len() <= most
    }
    #[inline(always)]
    fn too_long(self) -> bool {
        false
    }
    #[inline(always)]
    fn with<R>(self, f: impl FnOnce(&[LmrTriplet]) -> R) -> R {
        f(self.iov)
    }
}

impl<T: Transport> Ep<T> {
    /// The short way of a request. Inlined, for the callers' constants: the shortest has [`One`] segment and no flags.
    ///
    /// # Errors
    /// As the function of its kind, e.g. [`Ep::post_send`].
    #[inline(always)]
    pub fn post_fast<K: FastOp, S: Segments>(
        &'static self,
        segments: S,
        cookie: u64,
        flags: CompletionFlags,
        what: K,
    ) -> Result<()> {
        let Some(mut guard) = self.send.try_lock() else {
            return self.post_again(segments, cookie, flags, what);
        };
        let queue = &mut *guard;
        let bits = flags.bits();
        let length = segments.length();
        if queue.head != queue.limit
            && bits & queue.rare == 0
            && segments.within(queue.max_iov)
            && limit(what.remote()).allows_short(queue, length)
            && let Some(qp) = queue.qp.as_deref()
        {
            queue.slot(queue.head).fill(
                cookie,
                Note::new(K::KIND, note_bits(bits) | queue.mute, length),
            );
            queue.posted.add(K::KIND, length);
            let posted = segments.with(|iov| {
                T::post_send(
                    qp,
                    &Request {
                        id: id(queue.id_base, queue.head),
                        op: what.op(),
                        iov,
                        length,
                        signaled: queue.asks(queue.head, bits & QUIET == 0),
                        solicited: bits & CompletionFlags::SOLICITED_WAIT.bits() != 0,
                        fence: bits & CompletionFlags::BARRIER_FENCE.bits() != 0,
                    },
                )
            });
            return match posted {
                // Both in one stroke: then one register has all that is needed after the transport's call.
                Ok(()) => {
                    queue.head = queue.head.wrapping_add(1);
                    drop(guard);
                    Ok(())
                }
                Err(why) => not_posted(guard, why),
            };
        }
        drop(guard);
        self.post_again(segments, cookie, flags, what)
    }

    /// What did not go the short way.
    #[cold]
    #[inline(never)]
    fn post_again<K: FastOp, S: Segments>(
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
        segments.with(|iov| self.post_slow(iov.into(), cookie, flags, what))
    }

    /// The short way of a receive, of one segment without flags; see [`Ep::post_fast`].
    ///
    /// # Errors
    /// As [`Ep::post_recv`].
    #[inline(always)]
    pub fn post_recv_fast<L: Local>(&'static self, segment: &L, cookie: u64) -> Result<()> {
        let Some(mut guard) = self.recv.try_lock() else {
            return self.post_recv_again(segment, cookie);
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
                .fill(cookie, Note::new(DtoOp::Receive, queue.mute, 0));
            queue.last = length as u32;
            queue.posted.add_bytes(DtoOp::Receive, length);
            let posted = segment.with(|one| {
                let id = id(queue.id_base, queue.head);
                T::post_recv(qp, id, std::slice::from_ref(one))
            });
            return match posted {
                // Both in one stroke: then one register has all that is needed after the transport's call.
                Ok(()) => {
                    queue.head = queue.head.wrapping_add(1);
                    drop(guard);
                    Ok(())
                }
                Err(why) => not_posted(guard, why),
            };
        }
        drop(guard);
        self.post_recv_again(segment, cookie)
    }

    /// A receive that did not go the short way.
    #[cold]
    #[inline(never)]
    fn post_recv_again<L: Local>(&'static self, segment: &L, cookie: u64) -> Result<()> {
        if self.head.alive() && One(segment).too_long() {
            return Err(Error::of(Kind::LengthError));
        }
        segment.with(|one| self.post_any_recv(std::slice::from_ref(one).into(), cookie, 0))
    }
}
