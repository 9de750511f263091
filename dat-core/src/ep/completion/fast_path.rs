//! Fast path of completions: a success with an event, from the same queue of the same endpoint as the completion before.

use dat_arena::Cycle;

use crate::ep::ring::{Id, QueueKind, Ring, Slot, SlotInfo, none};
use crate::evd::EventSink;
use crate::event::{Dto, DtoOp, RawHandle};
use crate::head::raw;
use crate::transport::{Transport, WrId};

/// Source of completions: one queue of one endpoint. Most completions have the same source as the previous one, and
/// then need no look-up. When an endpoint begins another generation, its EVDs [drop](crate::evd::Evd::forget_sources)
/// it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Source {
    /// Received messages that the ring's counters do not include yet. Two plain fields (`messages`, `bytes`) cost one
    /// instruction each per completion.
    messages: u64,
    /// Value of [`Id::source`] in its completions.
    key: u32,
    ep: RawHandle,
    ring: &'static Ring,
    slots: Cycle<Slot>,
    /// Bytes of these messages.
    bytes: u64,
}

impl Source {
    /// Returns a source that no completion has.
    pub(crate) const fn unset() -> Self {
        static UNSET: Ring = Ring::new();
        Self {
            // Queue kind 3, which does not exist.
            key: u32::MAX,
            messages: 0,
            bytes: 0,
            ep: 0,
            ring: &UNSET,
            slots: none(),
        }
    }
}

/// Sources of the last request and of the last receive.
#[derive(Debug)]
pub(crate) struct LastSources {
    request: Source,
    receive: Source,
}

impl LastSources {
    pub(crate) const fn unset() -> Self {
        Self {
            request: Source::unset(),
            receive: Source::unset(),
        }
    }

    /// Adds the counts of received messages to the ring and drops both sources.
    pub(crate) fn forget_sources(&mut self) {
        self.receive.flush_counts();
        *self = Self::unset();
    }
}

impl Source {
    /// Removes the work request `id`, whose key is this source's, from its ring; returns cookie and slot info. Returns
    /// `None` if it is not outstanding or needs the slow path.
    #[inline(always)]
    fn take_fast(&self, id: Id) -> Option<(u64, SlotInfo)> {
        let (cookie, info) = self.ring.find(self.slots, id.number())?;
        if info.has(SlotInfo::SLOW_PATH) {
            return None;
        }
        self.ring.done(id.number());
        Some((cookie, info))
    }

    /// Counts one received message.
    #[inline(always)]
    fn count(&mut self, bytes: u64) {
        self.bytes = self.bytes.wrapping_add(bytes);
        self.messages = self.messages.wrapping_add(1);
    }

    /// Adds the counts to the ring's counters.
    #[inline(never)]
    fn flush_counts(&mut self) {
        let (messages, bytes) = (&mut self.messages, &mut self.bytes);
        self.ring
            .received()
            .add_plain(std::mem::take(messages), std::mem::take(bytes));
    }
}

/// Converts a completion on the fast path: a success with an event, from the same source as the last one of its
/// direction. Returns false if it is any other completion; then nothing was done. Makes no call, so that no register is saved for it.
#[inline(always)]
pub(crate) fn complete_fast<T: Transport>(
    sources: &mut LastSources,
    raw: &T::RawCompletion,
    sink: &mut impl EventSink,
) -> bool {
    let (id, succeeded) = T::outcome(raw);
    let id = Id::of(id);
    if !succeeded {
        return false;
    }
    let from = id.source();
    if from == sources.receive.key {
        let Some(length) = T::data_only_receive(raw) else {
            return false;
        };
        let Some((cookie, _)) = sources.receive.take_fast(id) else {
            return false;
        };
        sources.receive.count(length.into());
        sink.dto(&Dto {
            ep: sources.receive.ep,
            cookie,
            op: DtoOp::Receive,
            length: length.into(),
            ..Dto::default()
        });
    } else if from == sources.request.key {
        let Some((cookie, info)) = sources.request.take_fast(id) else {
            return false;
        };
        sink.dto(&Dto {
            ep: sources.request.ep,
            cookie,
            op: info.fast_op(),
            length: info.extra(),
            ..Dto::default()
        });
    } else {
        return false;
    }
    true
}

/// Stores the source of a completion for [`complete_fast`].
#[inline(never)]
pub(crate) fn remember_source<T: Transport>(sources: &mut LastSources, id: WrId) {
    let id = Id::of(id);
    let Some(ep) = T::arenas().ep.get(id.index()) else {
        return;
    };
    let (source, ring) = match id.queue_kind() {
        Some(QueueKind::Request) => (&mut sources.request, &ep.request_ring),
        Some(QueueKind::Receive) => (&mut sources.receive, &ep.recv_ring),
        _ => return,
    };
    let generation = ring.generation();
    if id.is_of(generation)
        && let Some(slots) = ring.slots()
    {
        source.flush_counts();
        *source = Source {
            key: id.source(),
            messages: 0,
            bytes: 0,
            ep: raw(ep),
            ring,
            slots,
        };
    }
}
