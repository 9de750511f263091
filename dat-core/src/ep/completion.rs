//! Conversion of a transport's completion into the consumer's event. `fast_path` has the most frequent ones.
//!
//! Core's own record says what a request was, never the completion (verbs leave the operation of a failed one
//! undefined). Completions of endpoints that are freed or were reset have another generation in their id and are
//! dropped.

pub(crate) mod fast_path;

use super::ring::{Id, QueueKind, SlotInfo};
use super::{Ep, EpState};
use crate::counters::IaCounter;
use crate::event::{Dto, DtoOp, DtoStatus};
use crate::head::raw;
use crate::rmr::Rmr;
use crate::srq::Srq;
use crate::transport::{Completion, Transport, WrId};

/// Completion that gives the consumer an event.
struct Completed {
    dto: Dto,
    notice: Notice,
}

/// Handling of a completion's event.
#[derive(Clone, Copy, Debug)]
pub struct Notice {
    /// True for a notification, which wakes waiters and triggers CNOs. False for a successful post with
    /// `DAT_COMPLETION_UNSIGNALLED_FLAG`.
    pub notify: bool,
    /// True for a receive of an endpoint that is not connected yet: the event is kept.
    pub early: bool,
}

impl Notice {
    const fn new(notify: bool) -> Self {
        Self {
            notify,
            early: false,
        }
    }
}

/// Converts a completion: passes `deliver` the event and how to handle it. Calls nothing if there is no event: for a suppressed
/// completion, or for one of an endpoint that is freed or was reset. Adds a completion that
/// was [announced as silent](crate::evd::Evd::expect_silent) to `silent`.
///
/// The caller holds the lock of the EVD whose completion queue it came from; no lock is taken here. The most frequent
/// cases pass the event from here, so that it is copied only once.
#[inline(always)]
pub(crate) fn complete<T: Transport>(
    completion: &Completion,
    silent: &mut u64,
    deliver: impl FnOnce(&Dto, Notice),
) {
    let slow = 'slow: {
        let id = Id::of(completion.id);
        let Some(queue_kind) = id.queue_kind() else {
            return;
        };
        if queue_kind == QueueKind::Shared {
            break 'slow shared::<T>(completion, id);
        }
        let Some(ep) = T::arenas().ep.get(id.index()) else {
            return;
        };
        let ring = if queue_kind == QueueKind::Request {
            &ep.request_ring
        } else {
            &ep.recv_ring
        };
        if !id.is_of(ring.generation()) {
            return;
        }
        let Some((cookie, info)) = ring.take(id.number()) else {
            not_outstanding(ep, completion.id);
            return;
        };
        *silent += u64::from(info.has(SlotInfo::SILENT));
        if completion.status != DtoStatus::Success {
            break 'slow failed(ep, completion, cookie, info);
        }
        if queue_kind == QueueKind::Receive {
            let op = if info.has(SlotInfo::BIND_OR_DATAGRAM) {
                DtoOp::ReceiveUd
            } else {
                completion.op
            };
            ring.received().add(op, completion.length.into());
            if completion.op == DtoOp::ReceiveWithInvalidate {
                Rmr::<T>::invalidated(ep.ia(), completion.invalidated);
            }
        }
        if info.has(SlotInfo::LAST) {
            ep.last_request_done();
        }
        if info.has(SlotInfo::SUPPRESSED | SlotInfo::NO_EVD) {
            if queue_kind == QueueKind::Request && info.op() == DtoOp::BindMw {
                bind_completed(ep, completion, info);
            }
            return;
        }
        let mut notice = Notice::new(!info.has(SlotInfo::UNSIGNALLED));
        if queue_kind == QueueKind::Receive {
            if ep.gate.is_closed() {
                ep.received_early();
                notice.early = true;
            }
            if info.has(SlotInfo::BIND_OR_DATAGRAM) {
                break 'slow Some(Completed {
                    dto: datagram(received(completion, raw(ep), cookie)),
                    notice,
                });
            }
            deliver(&received(completion, raw(ep), cookie), notice);
            return;
        }
        let op = info.op();
        if op == DtoOp::BindMw {
            break 'slow Some(bound(ep, completion, cookie, info));
        }
        deliver(
            &Dto {
                ep: raw(ep),
                cookie,
                op,
                length: info.extra(),
                ..Dto::default()
            },
            notice,
        );
        return;
    };
    if let Some(Completed { dto, notice }) = slow {
        deliver(&dto, notice);
    }
}

/// Reports a completion that the present connection of an endpoint has, but whose work request is not outstanding. The transport is at
/// fault, and its author sees nothing else of it: the consumer gets no event. It counts as an asynchronous error; there is none in
/// the EVD, whose lock may not be taken here.
#[cold]
#[inline(never)]
fn not_outstanding<T: Transport>(ep: &Ep<T>, id: WrId) {
    ep.ia().count(IaCounter::AsyncError);
    tracing::error!(
        id = id.0,
        "the transport completed a work request twice, or after a later one of its queue; the completion is dropped"
    );
}

/// Converts the completion of a failed request or receive, which gives an event unless the consumer has no EVD for
/// it.
#[cold]
#[inline(never)]
fn failed<T: Transport>(
    ep: &'static Ep<T>,
    completion: &Completion,
    cookie: u64,
    info: SlotInfo,
) -> Option<Completed> {
    ep.failed(completion.status);
    if info.has(SlotInfo::LAST) {
        ep.last_request_done();
    }
    let mut op = info.op();
    if info.has(SlotInfo::NO_EVD) {
        if op == DtoOp::BindMw {
            bind_completed(ep, completion, info);
        }
        return None;
    }
    if op == DtoOp::BindMw {
        return Some(bound(ep, completion, cookie, info));
    }
    if info.has(SlotInfo::BIND_OR_DATAGRAM) {
        op = DtoOp::ReceiveUd;
    }
    Some(Completed {
        dto: Dto {
            ep: raw(ep),
            cookie,
            status: completion.status,
            op,
            length: info.extra(),
            ..Dto::default()
        },
        notice: Notice {
            early: !op.is_request() && ep.gate.is_closed(),
            notify: true,
        },
    })
}

/// Tells the RMR of a bind that it is complete.
#[cold]
#[inline(never)]
fn bind_completed<T: Transport>(ep: &'static Ep<T>, completion: &Completion, info: SlotInfo) {
    let success = completion.status == DtoStatus::Success;
    Rmr::<T>::bind_completed(ep.ia(), info.extra() as u32, completion.id, success);
}

/// Converts the completion of a bind.
#[cold]
#[inline(never)]
fn bound<T: Transport>(
    ep: &'static Ep<T>,
    completion: &Completion,
    cookie: u64,
    info: SlotInfo,
) -> Completed {
    bind_completed(ep, completion, info);
    let done = completion.status == DtoStatus::Success;
    Completed {
        dto: Dto {
            ep: raw(ep),
            rmr: T::arenas().rmr.get(info.extra() as u32).map_or(0, raw),
            cookie,
            status: completion.status,
            op: DtoOp::BindMw,
            ..Dto::default()
        },
        notice: Notice::new(!(done && info.has(SlotInfo::UNSIGNALLED))),
    }
}

/// Converts a receive of an SRQ, which belongs to the endpoint that took it.
#[inline(never)]
fn shared<T: Transport>(completion: &Completion, id: Id) -> Option<Completed> {
    let srq = T::arenas().srq.get(id.index())?;
    let cookie = Srq::complete(srq, id)?;
    let slot = T::arenas().ep.get(completion.ep.index());
    // Of a freed endpoint too: its receives remain datagrams.
    let is_datagram = slot.is_some_and(|slot| slot.was_datagram(completion.ep));
    let ep = slot.filter(|ep| ep.is_queue_pair(completion.ep));
    let done = completion.status == DtoStatus::Success;
    if let (Some(ep), false) = (ep, done) {
        ep.failed(completion.status);
    }
    // If the endpoint is freed, the event names the SRQ, so that the consumer gets its buffer back.
    let mut dto = received(completion, ep.map_or_else(|| raw(srq), raw), cookie);
    if !done {
        (dto.status, dto.op, dto.length) = (completion.status, DtoOp::Receive, 0);
    }
    if is_datagram {
        dto = datagram(dto);
    }
    if let (Some(ep), true) = (ep, done) {
        ep.recv_ring.received().add(dto.op, dto.length);
        if completion.op == DtoOp::ReceiveWithInvalidate {
            Rmr::<T>::invalidated(ep.ia(), completion.invalidated);
        }
    }
    let early = ep.is_some_and(|ep| ep.gate.is_closed());
    if let (Some(ep), true, true) = (ep, early, done) {
        ep.received_early();
    }
    let notify = true;
    Some(Completed {
        dto,
        notice: Notice { notify, early },
    })
}

/// Marks a receive as a datagram; transports report it like any other receive.
#[cold]
fn datagram(received: Dto) -> Dto {
    Dto {
        op: DtoOp::ReceiveUd,
        ..received
    }
}

/// Returns the event of a successful receive.
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
    /// Breaks the connection after a failed completion. No other report may come (verbs report none). The timer thread does it, because the
    /// caller holds locks.
    #[cold]
    fn failed(&'static self, status: DtoStatus) {
        let state = self.current_state();
        if status == DtoStatus::Flushed {
            if state == EpState::Connected || state.is_attempt() {
                self.break_unless_ended();
            }
        } else if matches!(state, EpState::Connected | EpState::DisconnectPending) {
            self.break_later();
        }
    }
}
