//! Execution of requests: those of a queue pair in order, until one must wait for a receive.

use dat_core::event::{DtoOp, DtoStatus};
use dat_core::flags::MemPriv;
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::upcall::Fault;
use dat_provider_parts::keys::Window;
use dat_provider_parts::memory::{self, Range};

use crate::fabric::Fabric;
use crate::faults::{Planted, planted, zone};
use crate::qp::{Action, Connection, Delivery, Message, Receive, Work};
use crate::settings::Fail;
use crate::worker::{self, Upcall};

/// Length of the global route header that precedes a received datagram, as in InfiniBand.
const ROUTE_HEADER: usize = 40;

/// The reason why a request was not executed.
enum Stop {
    /// The peer has no receive posted: the request waits.
    NotReady,
    /// The request failed, which breaks the connection.
    Failed(DtoStatus),
}

impl From<DtoStatus> for Stop {
    fn from(status: DtoStatus) -> Self {
        Self::Failed(status)
    }
}

impl Fabric {
    /// Executes the requests of queue pair `number` until all are done, one has to wait, or one fails.
    pub(crate) fn advance(&mut self, number: u32) {
        while let Some(qp) = self.queue_pairs.get_mut(&number) {
            let peer = match qp.connection {
                Connection::Connected { peer, .. } => peer,
                // Datagrams need no connection; each names its receiver.
                Connection::Idle if qp.caps.datagram => number,
                _ => return,
            };
            let Some(work) = qp.sends.front().cloned() else {
                return;
            };
            if planted(Planted::FenceIgnored)
                && matches!(work.action, Action::Read(_))
                && !self.send_overtakes(number, peer)
            {
                return;
            }
            let Some(qp) = self.queue_pairs.get_mut(&number) else {
                return;
            };
            let lost = qp.settings.fail == Some(Fail::Wire);
            let waits = !qp.settings.receiver_not_ready_fails;
            let result = if lost {
                Err(Stop::Failed(DtoStatus::Transport))
            } else {
                self.execute(number, peer, &work)
            };
            let status = match result {
                Ok(()) => DtoStatus::Success,
                Err(Stop::NotReady) if waits => {
                    if let Some(qp) = self.queue_pairs.get_mut(&number)
                        && let Some(work) = qp.sends.front_mut()
                    {
                        work.waited = true;
                    }
                    return;
                }
                Err(Stop::NotReady) => DtoStatus::ReceiverNotReady,
                Err(Stop::Failed(_)) if planted(Planted::FailureIsSuccess) => DtoStatus::Success,
                Err(Stop::Failed(status)) => status,
            };
            if let Some(qp) = self.queue_pairs.get_mut(&number) {
                qp.sends.pop_front();
                qp.complete_request(&work, status);
            }
            let goes_on = status == DtoStatus::RemoteAccess && planted(Planted::RefusedGoesOn);
            if status != DtoStatus::Success && !goes_on {
                self.break_connection(number);
            }
        }
    }

    /// Completes a request of queue pair `number` whose memory is not registered; false if it is. It exists for a planted fault.
    pub(crate) fn fails_locally(&self, number: u32, work: &Work) -> bool {
        let Some(qp) = self.queue_pairs.get(&number) else {
            return false;
        };
        let found = self.keys.segments(qp.pz, &work.iov, MemPriv::LOCAL_READ);
        if let Err(status) = found {
            qp.complete_request(work, status);
        }
        found.is_err()
    }

    /// Executes the request behind the first one of queue pair `number` and leaves an empty one; false if there is none yet. It
    /// exists for a planted fault.
    fn send_overtakes(&mut self, number: u32, peer: u32) -> bool {
        let second = self
            .queue_pairs
            .get(&number)
            .and_then(|qp| qp.sends.get(1).cloned());
        let Some(second) = second else { return false };
        let executed = self.execute(number, peer, &second).is_ok();
        let queued = self
            .queue_pairs
            .get_mut(&number)
            .and_then(|qp| qp.sends.get_mut(1));
        if let (true, Some(queued)) = (executed, queued) {
            queued.action = Action::Write(RmrTriplet::default(), None);
            queued.iov.clear();
            queued.length = 0;
        }
        true
    }

    /// Continues the peer of queue pair `number`, which got a receive that the peer may have waited for.
    pub(crate) fn receive_posted(&mut self, number: u32) {
        if let Some(Connection::Connected { peer, .. }) =
            self.queue_pairs.get(&number).map(|qp| qp.connection)
        {
            self.advance(peer);
        }
    }

    /// Continues the peers of all queue pairs of a shared queue, which got a receive.
    pub(crate) fn shared_receive_posted(&mut self, srq: u32) {
        let numbers: Vec<u32> = self
            .queue_pairs
            .iter()
            .filter(|(_, qp)| qp.srq == Some(srq))
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            self.receive_posted(number);
        }
    }

    fn execute(&mut self, from: u32, to: u32, work: &Work) -> Result<(), Stop> {
        let (own, theirs) = (self.pz_of(from)?, self.pz_of(to)?);
        let own = zone(Planted::OneZone, own, |pz| {
            let found = self.keys.segments(pz, &work.iov, MemPriv::LOCAL_READ);
            found.is_ok()
        });
        let moved = planted(Planted::SegmentMovesIn).then(|| Work {
            iov: self.moved(own, &work.iov),
            ..work.clone()
        });
        let work = moved.as_ref().unwrap_or(work);
        let length = work.length;
        match work.action {
            Action::Send(message) => {
                let right = if planted(Planted::SendNeedsWrite) {
                    MemPriv::LOCAL_WRITE
                } else {
                    MemPriv::LOCAL_READ
                };
                self.keys.segments(own, &work.iov, right)?;
                self.deliver(to, own, work, message)
            }
            Action::Write(remote, immediate) => {
                let right = if planted(Planted::NoRemoteRight) {
                    MemPriv::empty()
                } else if planted(Planted::ReadImpliesWrite) {
                    MemPriv::REMOTE_READ
                } else {
                    MemPriv::REMOTE_WRITE
                };
                self.keys.segments(own, &work.iov, MemPriv::LOCAL_READ)?;
                self.remote(theirs, remote, length, right)?;
                if planted(Planted::WriteCompletesReceive)
                    && let Ok(receive) = self.take_receive(to)
                {
                    self.received(to, &receive, DtoStatus::Success, Delivery::default());
                }
                if planted(Planted::WriteIsLost) {
                    return Ok(());
                }
                let immediate = immediate.filter(|_| !planted(Planted::SilentImmediate));
                // Take the receive first: without one nothing may be written.
                let receive = immediate.map(|_| self.take_receive(to)).transpose()?;
                let data = self.keys.segments(own, &work.iov, MemPriv::LOCAL_READ)?;
                let target = self.remote(theirs, remote, length, right)?;
                if planted(Planted::CutsAtMegabyte) && length > 1 << 20 {
                    let mut bytes = Vec::new();
                    memory::read(&data, &mut bytes).map_err(|_| DtoStatus::LocalEp)?;
                    memory::write(&bytes[..1 << 20], &target);
                } else {
                    memory::copy(&data, &target);
                }
                if let (Some(immediate), Some(receive)) = (immediate, receive) {
                    let immediate = if planted(Planted::ImmediateSwapped) {
                        immediate.swap_bytes()
                    } else {
                        immediate
                    };
                    let length = if planted(Planted::ImmediateWithoutLength) {
                        0
                    } else {
                        length
                    };
                    let delivery = Delivery {
                        op: DtoOp::ReceiveRdmaImmediate,
                        length: length as u32,
                        immediate,
                        solicited: work.solicited,
                        ..Delivery::default()
                    };
                    self.received(to, &receive, DtoStatus::Success, delivery);
                }
                Ok(())
            }
            Action::Read(remote) => {
                let right = if planted(Planted::NoLocalWriteRight) {
                    MemPriv::LOCAL_READ
                } else {
                    MemPriv::LOCAL_WRITE
                };
                let into = self.keys.segments(own, &work.iov, right)?;
                let right = if planted(Planted::ReadNeedsNoRight) {
                    MemPriv::empty()
                } else {
                    MemPriv::REMOTE_READ
                };
                let source = self.remote(theirs, remote, length, right)?;
                assert!(!planted(Planted::PanicInRead), "planted");
                if !planted(Planted::ReadNothing) {
                    memory::copy(&source, &into);
                }
                Ok(())
            }
            Action::CompareSwap {
                remote,
                compare,
                swap,
            } => self.atomic(own, theirs, remote, work, |old| {
                while planted(Planted::HangInSwap) {
                    std::thread::park();
                }
                if old == compare || planted(Planted::SwapAlways) {
                    swap
                } else {
                    old
                }
            }),
            Action::FetchAdd { remote, add } => {
                if planted(Planted::AbortInAdd) {
                    std::process::abort();
                }
                self.atomic(own, theirs, remote, work, |old| old.wrapping_add(add))
            }
            Action::Bind { window, new } => self.bind(own, window, new),
            Action::Datagram { to } => {
                self.keys.segments(own, &work.iov, MemPriv::LOCAL_READ)?;
                self.deliver_datagram(to, own, work);
                Ok(())
            }
        }
    }

    /// Returns the segments, moved by a byte where that brings one into its region. It exists for a planted fault.
    fn moved(&self, pz: u32, iov: &[LmrTriplet]) -> Vec<LmrTriplet> {
        let inside = |segment: &LmrTriplet| {
            let found = self.keys.segments(pz, &[*segment], MemPriv::LOCAL_READ);
            found.is_ok()
        };
        iov.iter()
            .map(|segment| {
                let near = [0, 1, -1].map(|by| LmrTriplet {
                    virtual_address: segment.virtual_address.wrapping_add_signed(by),
                    ..*segment
                });
                near.into_iter().find(inside).unwrap_or(*segment)
            })
            .collect()
    }

    fn bind(&mut self, pz: u32, window: u32, new: Option<(u32, Window)>) -> Result<(), Stop> {
        // The window may have been freed since the post.
        let failed = Stop::Failed(DtoStatus::RmrOperationFailed);
        let bound = self.windows.get_mut(&window).ok_or(failed)?;
        if let Some(old) = bound.take()
            && !(planted(Planted::BindKeepsFormer) && new.is_some())
        {
            self.keys.close(old);
        }
        let Some((key, mut opens)) = new else {
            return Ok(());
        };
        if planted(Planted::BindGivesMore) {
            opens.length += 1;
        }
        if planted(Planted::BindGivesAll) {
            opens.rights = MemPriv::ALL;
        }
        if opens.pz != pz || !self.keys.open(key, opens) {
            return Err(DtoStatus::RmrOperationFailed.into());
        }
        *bound = Some(key);
        Ok(())
    }

    /// Returns the protection zone of a queue pair.
    fn pz_of(&self, number: u32) -> Result<u32, Stop> {
        self.queue_pairs
            .get(&number)
            .map(|qp| qp.pz)
            .ok_or(Stop::Failed(DtoStatus::Transport))
    }

    /// Returns remote memory; a length of 0 accesses none and needs no check.
    fn remote(
        &self,
        pz: u32,
        at: RmrTriplet,
        length: u64,
        right: MemPriv,
    ) -> Result<Vec<Range<'_>>, DtoStatus> {
        if length == 0 && !planted(Planted::EmptyNeedsKey) {
            return Ok(Vec::new());
        }
        let near = [0, 1, -1].map(|by| RmrTriplet {
            virtual_address: at.virtual_address.wrapping_add_signed(by),
            ..at
        });
        let inside = |at: &RmrTriplet| self.keys.target(pz, *at, length, right).is_ok();
        let at = match near.into_iter().find(inside) {
            Some(found) if planted(Planted::PeerMovesIn) => found,
            _ => at,
        };
        let pz = zone(Planted::ZoneIgnored, pz, |pz| {
            self.keys.target(pz, at, length, right).is_ok()
        });
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
        let right = if planted(Planted::AtomicNeedsNoRight) {
            MemPriv::empty()
        } else {
            MemPriv::REMOTE_ATOMIC
        };
        let word = self.keys.target(theirs, remote, 8, right)?;
        let old = memory::update(word, change).ok_or(DtoStatus::RemoteResponder)?;
        let sum = planted(Planted::AddReturnsSum) && matches!(work.action, Action::FetchAdd { .. });
        let old = if sum { old + 1 } else { old };
        memory::write(&old.to_ne_bytes(), &into);
        Ok(())
    }

    /// Delivers a message to the next receive of queue pair `to`.
    fn deliver(&mut self, to: u32, own: u32, work: &Work, message: Message) -> Result<(), Stop> {
        let receive = self.take_receive(to)?;
        if planted(Planted::MessageStays) {
            std::mem::forget(vec![1_u8; 4096]);
        }
        let mut delivery = Delivery {
            length: work.length as u32 + u32::from(planted(Planted::LongReport)),
            immediate: message.immediate.unwrap_or(0),
            invalidated: message.invalidate.unwrap_or(0),
            solicited: work.solicited && !planted(Planted::SolicitedLost),
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
        let written = self.write_message(to, own, 0, work, message, &receive);
        // The status of the receive and the result of the request.
        let (received, sent) = match written {
            Ok(()) => (DtoStatus::Success, Ok(())),
            Err(status @ (DtoStatus::LocalLength | DtoStatus::LocalProtection)) => {
                (status, Err(DtoStatus::RemoteResponder.into()))
            }
            Err(status) => (DtoStatus::LocalEp, Err(Stop::Failed(status))),
        };
        if received != DtoStatus::Success {
            delivery = Delivery::default();
        }
        self.received(to, &receive, received, delivery);
        sent
    }

    /// Delivers a datagram to the next receive of queue pair `to`, behind the header. Without such a queue pair or a receive the
    /// datagram is lost, and the sender is not informed.
    fn deliver_datagram(&mut self, to: u32, own: u32, work: &Work) {
        let receiver = self.queue_pairs.get(&to);
        if !receiver.is_some_and(|qp| qp.caps.datagram && qp.connection == Connection::Idle) {
            return;
        }
        let Ok(receive) = self.take_receive(to) else {
            return;
        };
        let message = Message::default();
        let header = if planted(Planted::NoRouteHeader) {
            0
        } else {
            ROUTE_HEADER
        };
        let written = self.write_message(to, own, header, work, message, &receive);
        let status = written.err().unwrap_or_default();
        let delivery = Delivery {
            length: work.length as u32 + ROUTE_HEADER as u32,
            solicited: work.solicited,
            ..Delivery::default()
        };
        self.received(to, &receive, status, delivery);
    }

    /// Copies a message from the memory of `own`, the sender's PZ, to the buffers of `receive` behind `header` zero bytes, and invalidates the
    /// window that it names.
    fn write_message(
        &mut self,
        to: u32,
        own: u32,
        header: usize,
        work: &Work,
        message: Message,
        receive: &Receive,
    ) -> Result<(), DtoStatus> {
        let room: u64 = receive
            .iov
            .iter()
            .map(|s| u64::from(s.segment_length))
            .sum();
        if work.length + header as u64 > room && !planted(Planted::Truncates) {
            return Err(DtoStatus::LocalLength);
        }
        let pz = self.receive_pz(to);
        let right = if planted(Planted::ReceiveNeedsNoRight) {
            MemPriv::LOCAL_READ
        } else {
            MemPriv::LOCAL_WRITE
        };
        let into = self.keys.segments(pz, &receive.iov, right)?;
        let mut data = self.keys.segments(own, &work.iov, MemPriv::LOCAL_READ)?;
        if planted(Planted::OneSegment) {
            data.truncate(1);
        }
        if planted(Planted::FewSegments) {
            data.truncate(8);
        }
        if planted(Planted::SortedSegments) {
            data.sort_by_key(Range::address);
        }
        if planted(Planted::ShortCopy) {
            data = memory::skip(&data, 1);
        }
        memory::write(&[0; ROUTE_HEADER][..header], &into);
        memory::copy(&data, &memory::skip(&into, header));
        if work.waited && work.length > 0 && planted(Planted::WaitingIsCut) {
            let last = memory::skip(&into, header + work.length as usize - 1);
            memory::write(&[0], &last);
        }
        match message.invalidate {
            None => Ok(()),
            Some(_) if planted(Planted::InvalidatesNothing) => Ok(()),
            Some(key) => {
                let pz = self.queue_pairs.get(&to).map_or(0, |qp| qp.pz);
                self.keys.invalidate(pz, key)
            }
        }
    }

    /// Returns the protection zone of receive buffers: that of the shared queue, or that of the queue pair.
    fn receive_pz(&self, number: u32) -> u32 {
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
            let taken = if planted(Planted::ReceivesReversed) {
                qp.receives.pop_back()
            } else {
                qp.receives.pop_front()
            };
            return taken.ok_or(Stop::NotReady);
        };
        let srq = self.shared_queues.get_mut(&srq).ok_or(Stop::NotReady)?;
        let receive = srq.receives.pop_front().ok_or(Stop::NotReady)?;
        if srq.limit_passed() && !planted(Planted::SrqLimitSilent) {
            worker::enqueue(Upcall::fault(srq.upcalls, Fault::SrqLow(srq.token)));
        }
        Ok(receive)
    }

    fn received(&self, number: u32, receive: &Receive, status: DtoStatus, delivery: Delivery) {
        if let Some(qp) = self.queue_pairs.get(&number) {
            qp.complete_receive(receive.id, status, delivery);
        }
    }
}
