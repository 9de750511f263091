//! From a transport's completion to the event of the consumer.
//!
//! What a request was is told by our own record, never by the completion (verbs leave the operation of a
//! failed one undefined); completions of endpoints that are gone, or were reset, are recognised by the life
//! in their id and dropped.

use super::ring::{Id, Lane, Note};
use super::{Ep, EpState};
use crate::event::{Dto, DtoOp, DtoStatus};
use crate::head::raw;
use crate::srq::Srq;
use crate::transport::{Completion, Transport};

/// A completion that a consumer hears of.
struct Completed {
    dto: Dto,
    /// Whether it is a notification (wakes waiters, counts for CNOs): not for a post with
    /// `DAT_COMPLETION_UNSIGNALLED_FLAG` that succeeded.
    notify: bool,
}

/// The usual case of [`complete`]: a success that is told, of an endpoint's own request or receive. False: it
/// is not that, and nothing was done. Small, so that whoever dequeues saves few registers.
#[inline(always)]
pub fn complete_usual<T: Transport>(completion: &Completion, tell: impl FnOnce(&Dto)) -> bool {
    let id = Id::of(completion.id);
    if completion.status != DtoStatus::Success {
        return false;
    }
    let receive = match id.lane() {
        Some(Lane::Request) => false,
        Some(Lane::Receive) => true,
        _ => return false,
    };
    let Some(ep) = T::arenas().ep.get(id.index()) else {
        return false;
    };
    let ring = if receive {
        &ep.recv_ring
    } else {
        &ep.request_ring
    };
    if !id.is_of(ring.life()) {
        return false;
    }
    let Some((cookie, note)) = ring.find(ring.slots(), id.number()) else {
        return false;
    };
    if note.has(Note::QUIET | Note::MUTE | Note::SPECIAL) {
        return false;
    }
    ring.done(id.number());
    if receive {
        tell(&received(completion, raw(ep), cookie));
    } else {
        tell(&Dto {
            ep: raw(ep),
            cookie,
            op: note.op(),
            length: note.extra(),
            ..Dto::default()
        });
    }
    true
}

/// Tells what `completion` means: the event, and whether it is a notification. Returns whether there was
/// anything to tell: not for a suppressed one, or of an endpoint that is gone.
///
/// Called under the lock of the EVD whose completion queue it came out of; takes no lock itself. The usual
/// case goes straight into `tell`, so that nothing is copied on the way to the consumer's event.
#[inline(always)]
pub fn complete<T: Transport>(completion: &Completion, tell: impl FnOnce(&Dto, bool)) -> bool {
    let rare = 'rare: {
        let id = Id::of(completion.id);
        let Some(lane) = id.lane() else {
            return false;
        };
        if lane == Lane::Shared {
            break 'rare shared::<T>(completion, id);
        }
        let Some(ep) = T::arenas().ep.get(id.index()) else {
            return false;
        };
        let ring = if lane == Lane::Request {
            &ep.request_ring
        } else {
            &ep.recv_ring
        };
        if !id.is_of(ring.life()) {
            return false;
        }
        let Some((cookie, note)) = ring.take(id.number()) else {
            return false;
        };
        if completion.status != DtoStatus::Success {
            break 'rare failed(ep, completion, cookie, note);
        }
        if note.has(Note::QUIET | Note::MUTE) {
            return false;
        }
        let notify = !note.has(Note::NO_NOTICE);
        if lane == Lane::Receive {
            if note.has(Note::SPECIAL) {
                break 'rare Some(Completed {
                    dto: datagram(received(completion, raw(ep), cookie)),
                    notify,
                });
            }
            tell(&received(completion, raw(ep), cookie), notify);
            return true;
        }
        let op = note.op();
        if op == DtoOp::BindMw {
            break 'rare Some(bound(ep, completion, cookie, note));
        }
        tell(
            &Dto {
                ep: raw(ep),
                cookie,
                op,
                length: note.extra(),
                ..Dto::default()
            },
            notify,
        );
        return true;
    };
    match rare {
        None => false,
        Some(Completed { dto, notify }) => {
            tell(&dto, notify);
            true
        }
    }
}

/// A request or receive that did not succeed: always told, unless nobody listens at all.
#[cold]
#[inline(never)]
fn failed<T: Transport>(
    ep: &'static Ep<T>,
    completion: &Completion,
    cookie: u64,
    note: Note,
) -> Option<Completed> {
    ep.failed(completion.status);
    if note.has(Note::MUTE) {
        return None;
    }
    let mut op = note.op();
    if op == DtoOp::BindMw {
        return Some(bound(ep, completion, cookie, note));
    }
    if note.has(Note::SPECIAL) {
        op = DtoOp::ReceiveUd;
    }
    Some(Completed {
        dto: Dto {
            ep: raw(ep),
            cookie,
            status: completion.status,
            op,
            length: note.extra(),
            ..Dto::default()
        },
        notify: true,
    })
}

/// A bind, done or failed.
#[cold]
#[inline(never)]
fn bound<T: Transport>(
    ep: &'static Ep<T>,
    completion: &Completion,
    cookie: u64,
    note: Note,
) -> Completed {
    let done = completion.status == DtoStatus::Success;
    Completed {
        dto: Dto {
            ep: raw(ep),
            rmr: T::arenas().rmr.get(note.extra() as u32).map_or(0, raw),
            cookie,
            status: completion.status,
            op: DtoOp::BindMw,
            ..Dto::default()
        },
        notify: !(done && note.has(Note::NO_NOTICE)),
    }
}

/// A receive of an SRQ: belongs to the endpoint that took it.
#[inline(never)]
fn shared<T: Transport>(completion: &Completion, id: Id) -> Option<Completed> {
    let srq = T::arenas().srq.get(id.index())?;
    let cookie = Srq::complete(srq, id)?;
    let ep = T::arenas()
        .ep
        .get(completion.ep.index())
        .filter(|ep| ep.is_queue_pair(completion.ep));
    let done = completion.status == DtoStatus::Success;
    if let (Some(ep), false) = (ep, done) {
        ep.failed(completion.status);
    }
    // If the endpoint is gone its buffer is not: the consumer hears of it by the SRQ's handle.
    let mut dto = received(completion, ep.map_or_else(|| raw(srq), raw), cookie);
    if !done {
        (dto.status, dto.op, dto.length) = (completion.status, DtoOp::Receive, 0);
    }
    if ep.is_some_and(Ep::is_datagram) {
        dto = datagram(dto);
    }
    Some(Completed { dto, notify: true })
}

/// A receive of a datagram endpoint: transports tell it like any other.
#[cold]
fn datagram(received: Dto) -> Dto {
    Dto {
        op: DtoOp::ReceiveUd,
        ..received
    }
}

/// A receive that succeeded.
#[inline(always)]
fn received(completion: &Completion, ep: usize, cookie: u64) -> Dto {
    Dto {
        ep,
        rmr: 0,
        cookie,
        status: DtoStatus::Success,
        op: completion.op,
        length: u64::from(completion.length),
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
