//! From a transport's completion to the event of the consumer.
//!
//! What a request was is told by our own record, never by the completion (verbs leave the operation of a
//! failed one undefined); completions of endpoints that are gone, or were reset, are recognised by the life
//! in their id and dropped.

use dat_arena::Cycle;

use super::ring::{Id, Lane, Note, Ring, Slot, none};
use super::{Ep, EpState};
use crate::evd::EventSink;
use crate::event::{Dto, DtoOp, DtoStatus, RawHandle};
use crate::head::raw;
use crate::rmr::Rmr;
use crate::srq::Srq;
use crate::transport::{Completion, Transport, WrId};

/// A completion that a consumer hears of.
struct Completed {
    dto: Dto,
    /// Whether it is a notification (wakes waiters, counts for CNOs): not for a post with
    /// `DAT_COMPLETION_UNSIGNALLED_FLAG` that succeeded.
    notify: bool,
}

/// Where a completion came from. Most come from the same lane of the same endpoint as the one before: then nothing has
/// to be looked up for it. An endpoint that begins another life has its EVDs [forget](crate::evd::Evd::forget) it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Origin {
    /// Receives of which the ring's counters do not know yet. Here, and apart from the bytes, each takes an instruction.
    messages: u64,
    /// [`Id::origin`] of its completions.
    key: u32,
    ep: RawHandle,
    ring: &'static Ring,
    slots: Cycle<Slot>,
    /// What they brought.
    bytes: u64,
}

impl Origin {
    /// No completion comes from here.
    pub(crate) const fn nowhere() -> Self {
        static NOWHERE: Ring = Ring::new();
        Self {
            // Lane 3, which does not exist.
            key: u32::MAX,
            messages: 0,
            bytes: 0,
            ep: 0,
            ring: &NOWHERE,
            slots: none(),
        }
    }
}

/// Where the last request and the last receive came from.
#[derive(Debug)]
pub(crate) struct Origins {
    request: Origin,
    receive: Origin,
}

impl Origins {
    pub(crate) const fn nowhere() -> Self {
        Self {
            request: Origin::nowhere(),
            receive: Origin::nowhere(),
        }
    }

    /// Counts what was received, and begins anew.
    pub(crate) fn forget(&mut self) {
        self.receive.settle();
        *self = Self::nowhere();
    }
}

impl Origin {
    /// Takes the work request `id` out of its ring: cookie and note. `id` has its key. `None` if it is not there, or rare.
    #[inline(always)]
    fn take_usual(&self, id: Id) -> Option<(u64, Note)> {
        let (cookie, note) = self.ring.find(self.slots, id.number())?;
        if note.has(Note::RARE) {
            return None;
        }
        self.ring.done(id.number());
        Some((cookie, note))
    }

    /// One more message was received.
    #[inline(always)]
    fn count(&mut self, bytes: u64) {
        self.bytes = self.bytes.wrapping_add(bytes);
        self.messages = self.messages.wrapping_add(1);
    }

    /// Hands what was counted on to the ring.
    #[inline(never)]
    fn settle(&mut self) {
        let (messages, bytes) = (&mut self.messages, &mut self.bytes);
        self.ring
            .received()
            .add_plain(std::mem::take(messages), std::mem::take(bytes));
    }
}

/// The usual case of [`complete`]: a success that is told, from where the one before came. False: it is not that, and
/// nothing was done. It calls nothing, for the sake of registers.
#[inline(always)]
pub(crate) fn complete_usual<T: Transport>(
    origins: &mut Origins,
    raw: &T::RawCompletion,
    sink: &mut impl EventSink,
) -> bool {
    let (id, succeeded) = T::outcome(raw);
    let id = Id::of(id);
    if !succeeded {
        return false;
    }
    let from = id.origin();
    if from == origins.receive.key {
        let Some(length) = T::data_only_receive(raw) else {
            return false;
        };
        let Some((cookie, _)) = origins.receive.take_usual(id) else {
            return false;
        };
        origins.receive.count(length.into());
        sink.dto(&Dto {
            ep: origins.receive.ep,
            cookie,
            op: DtoOp::Receive,
            length: length.into(),
            ..Dto::default()
        });
    } else if from == origins.request.key {
        let Some((cookie, note)) = origins.request.take_usual(id) else {
            return false;
        };
        sink.dto(&Dto {
            ep: origins.request.ep,
            cookie,
            op: note.usual_op(),
            length: note.extra(),
            ..Dto::default()
        });
    } else {
        return false;
    }
    true
}

/// Keeps in mind where a completion came from, for [`complete_usual`] of the next.
#[inline(never)]
pub(crate) fn remember<T: Transport>(origins: &mut Origins, id: WrId) {
    let id = Id::of(id);
    let Some(ep) = T::arenas().ep.get(id.index()) else {
        return;
    };
    let (origin, ring) = match id.lane() {
        Some(Lane::Request) => (&mut origins.request, &ep.request_ring),
        Some(Lane::Receive) => (&mut origins.receive, &ep.recv_ring),
        _ => return,
    };
    let life = ring.life();
    if id.is_of(life)
        && let Some(slots) = ring.slots()
    {
        origin.settle();
        *origin = Origin {
            key: id.origin(),
            messages: 0,
            bytes: 0,
            ep: raw(ep),
            ring,
            slots,
        };
    }
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
        if lane == Lane::Receive {
            let op = if note.has(Note::SPECIAL) {
                DtoOp::ReceiveUd
            } else {
                completion.op
            };
            ring.received().add(op, completion.length.into());
            if completion.op == DtoOp::ReceiveWithInvalidate {
                Rmr::<T>::invalidated(ep.ia(), completion.invalidated);
            }
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
    if let (Some(ep), true) = (ep, done) {
        ep.recv_ring.received().add(dto.op, dto.length);
        if completion.op == DtoOp::ReceiveWithInvalidate {
            Rmr::<T>::invalidated(ep.ia(), completion.invalidated);
        }
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
