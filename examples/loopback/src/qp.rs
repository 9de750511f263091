//! Queue pairs and shared receive queues: the posts that have not completed.

use std::collections::VecDeque;
use std::sync::Arc;

use dat_core::error::{Error, Kind, Result};
use dat_core::event::{DtoOp, DtoStatus};
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::transport::{Completion, Op, QpCaps, Request, Token, WrId};
use dat_core::upcall::Upcalls;
use dat_provider_parts::cq::Entry;
use dat_provider_parts::keys::Window;

use crate::faults::{Planted, planted};
use crate::settings::Settings;
use crate::transport::{Cq, Loopback};

/// A posted request that has not been executed.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) id: WrId,
    pub(crate) action: Action,
    pub(crate) iov: Vec<LmrTriplet>,
    pub(crate) length: u64,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    /// True if the peer had no receive for it at first.
    pub(crate) waited: bool,
}

/// The operation of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Send(Message),
    Write(RmrTriplet, Option<u32>),
    Read(RmrTriplet),
    CompareSwap {
        remote: RmrTriplet,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        remote: RmrTriplet,
        add: u64,
    },
    /// Sends a datagram to queue pair `to`.
    Datagram {
        to: u32,
    },
    /// Binds `window` to `new`, a key and its memory, or unbinds it.
    Bind {
        window: u32,
        new: Option<(u32, Window)>,
    },
}

/// Data that a Send carries besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Message {
    pub(crate) immediate: Option<u32>,
    pub(crate) invalidate: Option<u32>,
}

impl Work {
    /// Copies a request of core.
    pub(crate) fn of(request: &Request<'_, Loopback>) -> Result<Self> {
        let action = match request.op {
            Op::Send => Action::Send(Message::default()),
            Op::SendWithInvalidate(key) => Action::Send(Message {
                invalidate: Some(key),
                immediate: None,
            }),
            Op::SendWithImmediate(data) => Action::Send(Message {
                immediate: Some(data),
                invalidate: None,
            }),
            Op::RdmaWrite(remote) => Action::Write(remote, None),
            Op::RdmaWriteWithImmediate(remote, data) => Action::Write(remote, Some(data)),
            Op::RdmaRead(remote) => Action::Read(remote),
            Op::CompareSwap {
                remote,
                compare,
                swap,
            } => Action::CompareSwap {
                remote,
                compare,
                swap,
            },
            Op::FetchAdd { remote, add } => Action::FetchAdd { remote, add },
            Op::SendUd { qpn, .. } => Action::Datagram { to: qpn },
            _ => return Err(Error::of(Kind::NotImplemented)),
        };
        Ok(Self {
            id: request.id,
            action,
            iov: request.iov.to_vec(),
            length: request.length,
            signaled: request.signaled,
            solicited: request.solicited,
            waited: false,
        })
    }
}

/// A posted receive.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub(crate) id: WrId,
    pub(crate) iov: Vec<LmrTriplet>,
}

/// Connection state of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Connection {
    /// The initial state.
    Idle,
    /// A connection request was sent; the token identifies the attempt.
    Connecting(Token),
    /// The queue pair is connected to queue pair `peer`.
    Connected { peer: u32, token: Token },
    /// The connection has ended; every post is flushed.
    Disconnected,
}

/// The state of a queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) upcalls: Upcalls<Loopback>,
    pub(crate) settings: Settings,
    /// Identifies the endpoint in completions of an SRQ.
    pub(crate) token: Token,
    pub(crate) pz: u32,
    pub(crate) caps: QpCaps,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) request_cq: Arc<Cq>,
    pub(crate) srq: Option<u32>,
    pub(crate) connection: Connection,
    /// Connection qualifier of this side, truncated to a port number.
    pub(crate) port: u16,
    pub(crate) sends: VecDeque<Work>,
    pub(crate) receives: VecDeque<Receive>,
}

impl QueuePair {
    /// Adds the completion of a request to its queue; a successful one only if the request is signaled.
    pub(crate) fn complete_request(&self, work: &Work, status: DtoStatus) {
        if work.signaled || status != DtoStatus::Success {
            if planted(Planted::SilentFailure) && !work.signaled {
                return;
            }
            if planted(Planted::CompletionLost) && status == DtoStatus::Success {
                return;
            }
            let read = matches!(work.action, Action::Read(_));
            let length = work.length as u32;
            self.request_cq
                .push(Entry::request(work.id, status, length));
            let twice = planted(Planted::CompletesTwice) || read && planted(Planted::ReadTwice);
            if twice && status == DtoStatus::Success {
                self.request_cq
                    .push(Entry::request(work.id, status, length));
            }
        }
    }

    /// Adds the completion of a receive to its queue.
    pub(crate) fn complete_receive(&self, id: WrId, status: DtoStatus, delivery: Delivery) {
        let mut completion = Completion::new(id, status);
        completion.op = delivery.op;
        completion.length = delivery.length;
        completion.immediate = delivery.immediate;
        completion.invalidated = delivery.invalidated;
        completion.ep = self.token;
        self.recv_cq.push(Entry {
            completion,
            solicited: Some(delivery.solicited),
        });
    }

    /// Completes all outstanding work as flushed, requests and receives each in the order of their posts.
    pub(crate) fn flush(&mut self) {
        for work in std::mem::take(&mut self.sends) {
            self.complete_request(&work, DtoStatus::Flushed);
        }
        let mut receives = std::mem::take(&mut self.receives);
        if planted(Planted::FlushLost) {
            return;
        }
        if planted(Planted::FlushReversed) {
            receives.make_contiguous().reverse();
        }
        let status = if planted(Planted::FlushIsSuccess) {
            DtoStatus::Success
        } else {
            DtoStatus::Flushed
        };
        for receive in receives {
            self.complete_receive(receive.id, status, Delivery::default());
            if planted(Planted::FlushTwice) {
                self.complete_receive(receive.id, status, Delivery::default());
            }
        }
    }
}

/// The data of a completed receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) op: DtoOp,
    pub(crate) length: u32,
    pub(crate) immediate: u32,
    pub(crate) invalidated: u32,
    pub(crate) solicited: bool,
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            op: DtoOp::Receive,
            length: 0,
            immediate: 0,
            invalidated: 0,
            solicited: false,
        }
    }
}

/// The state of a shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(crate) upcalls: Upcalls<Loopback>,
    pub(crate) token: Token,
    pub(crate) pz: u32,
    pub(crate) capacity: usize,
    /// Number of receives below which an event is raised; 0 means disarmed.
    pub(crate) limit: usize,
    pub(crate) receives: VecDeque<Receive>,
}

impl SharedQueue {
    /// Returns true if fewer receives than the limit are left, and disarms the limit.
    pub(crate) fn limit_passed(&mut self) -> bool {
        let early = usize::from(planted(Planted::SrqLimitEarly) && self.limit != 0);
        let low = self.receives.len() < self.limit + early;
        if low {
            self.limit = 0;
        }
        low
    }
}
