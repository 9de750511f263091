//! Carries requests out: in order, one queue pair's after another, as far as they go.

use dat_core::event::{DtoOp, DtoStatus};
use dat_core::flags::MemPriv;
use dat_core::iov::RmrTriplet;
use dat_core::upcall::Fault;

use crate::fabric::Fabric;
use crate::keys::Window;
use crate::memory::{self, Range};
use crate::qp::{Action, Arrived, Link, Message, Receive, Work};
use crate::settings::Fail;
use crate::worker::{self, Job};

/// Bytes in front of a received datagram, where InfiniBand has the global route header.
const ROUTE_HEADER: usize = 40;

/// Why a request is not done.
enum Stop {
    /// The peer has no receive posted: later.
    NotReady,
    /// It failed, and with it the connection.
    Failed(DtoStatus),
}

impl From<DtoStatus> for Stop {
    fn from(status: DtoStatus) -> Self {
        Self::Failed(status)
    }
}

impl Fabric {
    /// Carries out what queue pair `number` has to send, until it is done, has to wait, or fails.
    pub(crate) fn advance(&mut self, number: u32) {
        while let Some(qp) = self.queue_pairs.get_mut(&number) {
            let peer = match qp.link {
                Link::Up { peer, .. } => peer,
                // Datagrams need no connection, and name their receivers.
                Link::Idle if qp.caps.datagram => number,
                _ => return,
            };
            let Some(work) = qp.sends.front().cloned() else {
                return;
            };
            let lost = qp.settings.fail == Some(Fail::Wire);
            let waits = !qp.settings.receiver_not_ready_fails;
            let ended = if lost {
                Err(Stop::Failed(DtoStatus::Transport))
            } else {
                self.carry_out(number, peer, &work)
            };
            let status = match ended {
                Ok(()) => DtoStatus::Success,
                Err(Stop::NotReady) if waits => return,
                Err(Stop::NotReady) => DtoStatus::ReceiverNotReady,
                Err(Stop::Failed(status)) => status,
            };
            if let Some(qp) = self.queue_pairs.get_mut(&number) {
                qp.sends.pop_front();
                qp.complete_request(&work, status);
            }
            if status != DtoStatus::Success {
                self.break_connection(number);
            }
        }
    }

    /// A receive came to queue pair `number`: its peer may have waited for one.
    pub(crate) fn receive_posted(&mut self, number: u32) {
        if let Some(Link::Up { peer, .. }) = self.queue_pairs.get(&number).map(|qp| qp.link) {
            self.advance(peer);
        }
    }

    /// The same for all queue pairs of a shared queue.
    pub(crate) fn shared_receive_posted(&mut self, srq: u32) {
        let on_it: Vec<u32> = self
            .queue_pairs
            .iter()
            .filter(|(_, qp)| qp.srq == Some(srq))
            .map(|(number, _)| *number)
            .collect();
        for number in on_it {
            self.receive_posted(number);
        }
    }

    fn carry_out(&mut self, from: u32, to: u32, work: &Work) -> Result<(), Stop> {
        let (own, theirs) = (self.zone(from)?, self.zone(to)?);
        let length = work.length;
        match work.action {
            Action::Send(message) => {
                let data = self.keys.segments(own, &work.iov, MemPriv::LOCAL_READ)?;
                self.deliver(to, &data, work, message)
            }
            Action::Write(remote, immediate) => {
                let data = self.keys.segments(own, &work.iov, MemPriv::LOCAL_READ)?;
                let target = self.remote(theirs, remote, length, MemPriv::REMOTE_WRITE)?;
                // The receive first: without one nothing is written yet.
                let receive = immediate.map(|_| self.take_receive(to)).transpose()?;
                memory::copy(&data, &target);
                if let (Some(immediate), Some(receive)) = (immediate, receive) {
                    let arrived = Arrived {
                        op: DtoOp::ReceiveRdmaImmediate,
                        length: length as u32,
                        immediate,
                        solicited: work.solicited,
                        ..Arrived::default()
                    };
                    self.received(to, &receive, DtoStatus::Success, arrived);
                }
                Ok(())
            }
            Action::Read(remote) => {
                let into = self.keys.segments(own, &work.iov, MemPriv::LOCAL_WRITE)?;
                let source = self.remote(theirs, remote, length, MemPriv::REMOTE_READ)?;
                memory::copy(&source, &into);
                Ok(())
            }
            Action::CompareSwap {
                remote,
                compare,
                swap,
            } => self.atomic(own, theirs, remote, work, |old| {
                if old == compare { swap } else { old }
            }),
            Action::FetchAdd { remote, add } => {
                self.atomic(own, theirs, remote, work, |old| old.wrapping_add(add))
            }
            Action::Bind { window, new } => self.bind(own, window, new),
            Action::Datagram { to } => {
                let data = self.keys.segments(own, &work.iov, MemPriv::LOCAL_READ)?;
                self.deliver_datagram(to, &data, work);
                Ok(())
            }
        }
    }

    fn bind(&mut self, pz: u32, window: u32, new: Option<(u32, Window)>) -> Result<(), Stop> {
        // It may have been freed since the post.
        let failed = Stop::Failed(DtoStatus::RmrOperationFailed);
        let bound = self.windows.get_mut(&window).ok_or(failed)?;
        if let Some(old) = bound.take() {
            self.keys.close(old);
        }
        let Some((key, opens)) = new else {
            return Ok(());
        };
        if opens.pz != pz || !self.keys.open(key, opens) {
            return Err(DtoStatus::RmrOperationFailed.into());
        }
        *bound = Some(key);
        Ok(())
    }

    /// The protection zone of a queue pair.
    fn zone(&self, number: u32) -> Result<u32, Stop> {
        self.queue_pairs
            .get(&number)
            .map(|qp| qp.pz)
            .ok_or(Stop::Failed(DtoStatus::Transport))
    }

    /// Remote memory; a length of 0 touches none and checks nothing.
    fn remote(
        &self,
        pz: u32,
        at: RmrTriplet,
        length: u64,
        right: MemPriv,
    ) -> Result<Vec<Range>, DtoStatus> {
        if length == 0 {
            return Ok(Vec::new());
        }
        Ok(vec![self.keys.target(pz, at, length, right)?])
    }

    fn atomic(
        &self,
        own: u32,
        theirs: u32,
        remote: RmrTriplet,
        work: &Work,
        change: impl FnMut(u64) -> u64,
    ) -> Result<(), Stop> {
        let into = self.keys.segments(own, &work.iov, MemPriv::LOCAL_WRITE)?;
        let word = self
            .keys
            .target(theirs, remote, 8, MemPriv::REMOTE_ATOMIC)?;
        let old = memory::update(word, change).ok_or(DtoStatus::RemoteResponder)?;
        memory::store(old, &into);
        Ok(())
    }

    /// A message into the next receive of queue pair `to`.
    fn deliver(
        &mut self,
        to: u32,
        data: &[Range],
        work: &Work,
        message: Message,
    ) -> Result<(), Stop> {
        let receive = self.take_receive(to)?;
        let mut arrived = Arrived {
            length: work.length as u32,
            immediate: message.immediate.unwrap_or(0),
            invalidated: message.invalidate.unwrap_or(0),
            solicited: work.solicited,
            op: match message {
                Message {
                    immediate: Some(_), ..
                } => DtoOp::ReceiveMessageImmediate,
                Message {
                    invalidate: Some(_),
                    ..
                } => DtoOp::ReceiveWithInvalidate,
                _ => DtoOp::Receive,
            },
        };
        let placed = self.place(to, data, work, message, &receive);
        // What the receiver hears, and what the sender.
        let (here, there) = match placed {
            Ok(()) => (DtoStatus::Success, Ok(())),
            Err(status @ (DtoStatus::LocalLength | DtoStatus::LocalProtection)) => {
                (status, Err(DtoStatus::RemoteResponder.into()))
            }
            Err(status) => (DtoStatus::LocalEp, Err(Stop::Failed(status))),
        };
        if here != DtoStatus::Success {
            arrived = Arrived::default();
        }
        self.received(to, &receive, here, arrived);
        there
    }

    /// A datagram into the next receive of queue pair `to`, behind the room for the header. It is lost where there is
    /// no such queue pair, or no receive; the sender never hears of that.
    fn deliver_datagram(&mut self, to: u32, data: &[Range], work: &Work) {
        let receiver = self.queue_pairs.get(&to);
        if !receiver.is_some_and(|qp| qp.caps.datagram && qp.link == Link::Idle) {
            return;
        }
        let Ok(receive) = self.take_receive(to) else {
            return;
        };
        let header = [0_u8; ROUTE_HEADER];
        let mut parts = vec![Range {
            address: header.as_ptr() as usize,
            length: header.len(),
        }];
        parts.extend_from_slice(data);
        let whole = Work {
            length: work.length + ROUTE_HEADER as u64,
            ..work.clone()
        };
        let placed = self.place(to, &parts, &whole, Message::default(), &receive);
        let status = placed.err().unwrap_or_default();
        let arrived = Arrived {
            length: whole.length as u32,
            solicited: work.solicited,
            ..Arrived::default()
        };
        self.received(to, &receive, status, arrived);
    }

    fn place(
        &mut self,
        to: u32,
        data: &[Range],
        work: &Work,
        message: Message,
        receive: &Receive,
    ) -> Result<(), DtoStatus> {
        let room: u64 = receive
            .iov
            .iter()
            .map(|s| u64::from(s.segment_length))
            .sum();
        if work.length > room {
            return Err(DtoStatus::LocalLength);
        }
        let pz = self.receive_zone(to);
        let into = self.keys.segments(pz, &receive.iov, MemPriv::LOCAL_WRITE)?;
        memory::copy(data, &into);
        match message.invalidate {
            None => Ok(()),
            Some(key) => {
                let pz = self.queue_pairs.get(&to).map_or(0, |qp| qp.pz);
                self.keys.invalidate(pz, key)
            }
        }
    }

    /// The zone that the buffers of receives are in: a shared queue has its own.
    fn receive_zone(&self, number: u32) -> u32 {
        let qp = self.queue_pairs.get(&number);
        let shared = qp
            .and_then(|qp| qp.srq)
            .and_then(|srq| self.shared_queues.get(&srq))
            .map(|srq| srq.pz);
        shared.or(qp.map(|qp| qp.pz)).unwrap_or(0)
    }

    fn take_receive(&mut self, number: u32) -> Result<Receive, Stop> {
        let qp = self.queue_pairs.get_mut(&number).ok_or(Stop::NotReady)?;
        let Some(srq) = qp.srq else {
            return qp.receives.pop_front().ok_or(Stop::NotReady);
        };
        let srq = self.shared_queues.get_mut(&srq).ok_or(Stop::NotReady)?;
        let receive = srq.receives.pop_front().ok_or(Stop::NotReady)?;
        if srq.low() {
            worker::tell(Job::fault(srq.upcalls, Fault::SrqLow(srq.token)));
        }
        Ok(receive)
    }

    fn received(&self, number: u32, receive: &Receive, status: DtoStatus, arrived: Arrived) {
        if let Some(qp) = self.queue_pairs.get(&number) {
            qp.complete_receive(receive.id, status, arrived);
        }
    }
}
