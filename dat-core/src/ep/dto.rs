//! From a transport's completion to the event of the consumer.
//!
//! What a request was is told by our own record, never by the completion (verbs leave the operation of a
//! failed one undefined); completions of endpoints that are gone, or were reset, are recognised by the life
//! in their id and dropped.

use std::sync::atomic::Ordering;

use super::ring::{Id, Lane, Note};
use super::{Ep, EpState};
use crate::event::{Dto, DtoOp, DtoStatus};
use crate::head::raw;
use crate::srq::Srq;
use crate::transport::{Completion, Transport};

/// A completion that a consumer hears of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// The event.
    pub dto: Dto,
    /// Whether it is a notification (wakes waiters, counts for CNOs): not for a post with
    /// `DAT_COMPLETION_UNSIGNALLED_FLAG` that succeeded.
    pub notify: bool,
}

/// What `completion` means. `None`: the consumer hears nothing (suppressed, or of an endpoint that is gone).
/// Called under the lock of the EVD whose completion queue it came out of; takes no lock itself.
#[inline(always)]
pub fn complete<T: Transport>(completion: &Completion) -> Option<Completed> {
    let id = Id::of(completion.id);
    match id.lane()? {
        Lane::Request => {
            let ep = T::arenas().ep.get(id.index())?;
            if !id.is_of(ep.life.load(Ordering::Acquire)) {
                return None;
            }
            let (cookie, note) = ep.request_ring.take(id.number())?;
            if completion.status == DtoStatus::Success {
                if note.has(Note::QUIET | Note::MUTE) {
                    return None;
                }
            } else {
                ep.failed(completion.status);
                if note.has(Note::MUTE) {
                    return None;
                }
            }
            let mut dto = Dto {
                ep: raw(ep),
                cookie,
                status: completion.status,
                op: note.op(),
                length: note.extra(),
                ..Dto::default()
            };
            if dto.op == DtoOp::BindMw {
                dto.length = 0;
                dto.rmr = T::arenas().rmr.get(note.extra() as u32).map_or(0, raw);
            }
            Some(notified(dto, note))
        }
        Lane::Receive => {
            let ep = T::arenas().ep.get(id.index())?;
            if !id.is_of(ep.life.load(Ordering::Acquire)) {
                return None;
            }
            let (cookie, note) = ep.recv_ring.take(id.number())?;
            if completion.status != DtoStatus::Success {
                ep.failed(completion.status);
            }
            if note.has(Note::MUTE) {
                return None;
            }
            Some(notified(received(completion, raw(ep), cookie), note))
        }
        Lane::Shared => {
            let srq = T::arenas().srq.get(id.index())?;
            let cookie = Srq::complete(srq, id)?;
            let ep = T::arenas().ep.get(completion.ep.index())?;
            if !ep.is_queue_pair(completion.ep) {
                // The endpoint is gone; its buffer is not: the consumer hears of it by the SRQ's handle.
                return Some(notified(
                    received(completion, raw(srq), cookie),
                    Note::default(),
                ));
            }
            if completion.status != DtoStatus::Success {
                ep.failed(completion.status);
            }
            Some(notified(
                received(completion, raw(ep), cookie),
                Note::default(),
            ))
        }
    }
}

#[inline(always)]
fn notified(dto: Dto, note: Note) -> Completed {
    Completed {
        notify: !note.has(Note::NO_NOTICE) || dto.status != DtoStatus::Success,
        dto,
    }
}

#[inline(always)]
fn received(completion: &Completion, ep: usize, cookie: u64) -> Dto {
    let done = completion.status == DtoStatus::Success;
    Dto {
        ep,
        rmr: 0,
        cookie,
        status: completion.status,
        op: if done && !completion.op.is_request() {
            completion.op
        } else {
            DtoOp::Receive
        },
        length: if done {
            u64::from(completion.length)
        } else {
            0
        },
        rmr_context: completion.invalidated,
        immediate: completion.immediate,
    }
}

impl<T: Transport> Ep<T> {
    /// A completion tells of a failure: unless it is only flushed, the connection is broken. Nobody else may
    /// notice (verbs report no event), so the service thread breaks it, after the caller's locks are gone.
    #[cold]
    fn failed(&'static self, status: DtoStatus) {
        if status == DtoStatus::Flushed
            || !matches!(
                self.current_state(),
                EpState::Connected | EpState::DisconnectPending
            )
        {
            return;
        }
        self.break_later();
    }
}
