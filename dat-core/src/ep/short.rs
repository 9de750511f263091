//! The short ways of posting. They lead past every other call than the transport's own: what is unusual, errors too,
//! leaves them by a call at their end. So the compiler keeps everything in registers that need not be saved, which is half
//! of what a post costs.

use dat_arena::BriefGuard;

use super::frequent::Frequent;
use super::post::{QUIET, length_of, limit, note_bits};
use super::queue::Uncount;
use super::ring::{Note, id};
use super::{DEAD, Ep};
use crate::error::{Error, Result};
use crate::event::DtoOp;
use crate::flags::CompletionFlags;
use crate::iov::LmrTriplet;
use crate::transport::{Request, Transport};

/// The end of a post on the short way that the transport refused.
#[cold]
#[inline(never)]
fn not_posted<Q: Uncount>(mut queue: BriefGuard<'static, Q>, why: Error) -> Result<()> {
    queue.uncount();
    // Else the compiler sees that this is the argument, and the caller keeps that in a register after all.
    Err(std::hint::black_box(why))
}

impl<T: Transport> Ep<T> {
    /// The shortest: one segment, no flags.
    ///
    /// # Errors
    /// As the function of its kind, e.g. [`Ep::post_send`].
    #[inline(always)]
    pub fn post_one<K: Frequent>(
        &'static self,
        segment: &LmrTriplet,
        cookie: u64,
        what: K,
    ) -> Result<()> {
        let iov = std::slice::from_ref(segment);
        let Some(mut guard) = self.send.try_lock() else {
            return self.post_again(segment, cookie, what);
        };
        let queue = &mut *guard;
        let length = segment.segment_length;
        if queue.head != queue.limit
            && limit(what.remote()).allows_one(queue, length)
            && let Some(qp) = queue.qp.as_deref()
        {
            queue
                .slot(queue.head)
                .fill(cookie, Note::new(K::KIND, queue.mute, length.into()));
            queue.posted.add(K::KIND, length.into());
            let posted = T::post_send(
                qp,
                &Request {
                    id: id(queue.id_base, queue.head),
                    op: what.op(),
                    iov,
                    length: length.into(),
                    signaled: true,
                    solicited: false,
                    fence: false,
                },
            );
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
        self.post_again(segment, cookie, what)
    }

    /// What did not go the short way.
    #[cold]
    #[inline(never)]
    fn post_again<K: Frequent>(
        &'static self,
        segment: &LmrTriplet,
        cookie: u64,
        what: K,
    ) -> Result<()> {
        if !self.head.alive() {
            return Err(DEAD);
        }
        let iov = std::slice::from_ref(segment);
        self.post_long(iov, cookie, CompletionFlags::empty(), what)
    }

    /// Any number of segments, any flags.
    ///
    /// # Errors
    /// As the function of its kind, e.g. [`Ep::post_send`].
    #[inline(always)]
    pub fn post_more<K: Frequent>(
        &'static self,
        iov: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
        what: K,
    ) -> Result<()> {
        let Some(mut guard) = self.send.try_lock() else {
            return self.post_long(iov, cookie, flags, what);
        };
        let queue = &mut *guard;
        let bits = flags.bits();
        let length = length_of(iov);
        if queue.head != queue.limit
            && bits & queue.refused == 0
            && iov.len() <= queue.max_iov
            && limit(what.remote()).allows(queue, length)
            && let Some(qp) = queue.qp.as_deref()
        {
            if bits & QUIET != 0 {
                queue.hush();
            }
            let note = note_bits(bits) | queue.mute;
            queue
                .slot(queue.head)
                .fill(cookie, Note::new(K::KIND, note, length));
            queue.posted.add(K::KIND, length);
            let posted = T::post_send(
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
            );
            return match posted {
                Ok(()) => {
                    queue.head = queue.head.wrapping_add(1);
                    drop(guard);
                    Ok(())
                }
                Err(why) => not_posted(guard, why),
            };
        }
        drop(guard);
        self.post_long(iov, cookie, flags, what)
    }

    /// The short way of a receive, of one segment without flags; see [`Ep::post_one`].
    ///
    /// # Errors
    /// As [`Ep::post_recv`].
    #[inline(always)]
    pub fn post_one_recv(&'static self, segment: &LmrTriplet, cookie: u64) -> Result<()> {
        let iov = std::slice::from_ref(segment);
        let Some(mut guard) = self.recv.try_lock() else {
            return self.post_any_recv(iov, cookie, 0);
        };
        let queue = &mut *guard;
        if queue.head != queue.limit
            && queue.max_iov != 0
            && let Some(qp) = queue.qp.as_deref()
        {
            queue
                .slot(queue.head)
                .fill(cookie, Note::new(DtoOp::Receive, queue.mute, 0));
            queue.last = segment.segment_length;
            queue
                .posted
                .add_bytes(DtoOp::Receive, segment.segment_length.into());
            let posted = T::post_recv(qp, id(queue.id_base, queue.head), iov);
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
        self.post_any_recv(iov, cookie, 0)
    }
}
