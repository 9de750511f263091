//! Packets to send: runs of equal size for one destination, written to the driver's buffer.

use std::net::SocketAddr;
use std::time::Duration;

use dat_handshake::Capabilities;

use super::Engine;
use super::timers::Owner;
use crate::memory::Memory;
use crate::near::Link;
use crate::opcode::Opcode;
use crate::psn::Qpn;
use crate::qp::QpKind;
use crate::qp::outgoing::Role;
use crate::time::Time;
use crate::transmit::Transmit;
use crate::wire::icrc::{self, Flow};
use crate::wire::icrc_cache::Direction;
use crate::wire::{Bth, Deth, Headers, Packet};

/// Limit of segments in one sendmsg (UDP_MAX_SEGMENTS of older Linux kernels).
const MAX_SEGMENTS: usize = 64;
/// Limit of runs of queue pairs that are sent before a waiting management datagram.
const MAX_OVERTAKEN: u32 = 8;
/// Bytes of answers that are sent over datagrams at a time. A READ of the peer may ask for 2 GiB, several of them in a row, and other work waits
/// meanwhile.
const MAX_ANSWERS: usize = 4 << 20;
/// Pause after that, in which the driver looks at what has arrived.
const ANSWERS_PAUSE: Duration = Duration::from_micros(1);
/// Q_Key of the general services queue pair.
pub(super) const GSI_QKEY: u32 = 0x8001_0000;

/// A run under construction.
struct Run<'a> {
    buffer: &'a mut [u8],
    transmit: Option<Transmit>,
    packets: usize,
    closed: bool,
}

impl Run<'_> {
    /// Returns true if the packet fits into the run. Closes the run if not.
    fn admits(&mut self, destination: SocketAddr, size: usize, may_follow: bool) -> bool {
        let fits = match &self.transmit {
            None => size <= self.buffer.len(),
            Some(run) => {
                may_follow
                    && run.destination == destination
                    && size <= run.segment
                    && self.packets < MAX_SEGMENTS
                    && run.length + size <= self.buffer.len()
            }
        };
        self.closed |= !fits;
        fits
    }

    /// Returns offset and space of the next packet of `size` bytes.
    fn space(&mut self, size: usize) -> (usize, &mut [u8]) {
        let at = self.transmit.map_or(0, |run| run.length);
        (at, &mut self.buffer[at..at + size])
    }

    fn push(&mut self, destination: SocketAddr, size: usize) {
        self.packets += 1;
        match &mut self.transmit {
            None => {
                self.transmit = Some(Transmit {
                    destination,
                    length: size,
                    segment: size,
                });
            }
            Some(run) => {
                run.length += size;
                // A shorter packet must be the last.
                self.closed |= size < run.segment;
            }
        }
    }
}

impl<M: Memory> Engine<M> {
    /// Writes the next run of packets to `buffer`, which has at least 4,200 bytes. Call until `None`. Memory that
    /// [`Memory::lend`] lent during the call belongs to this run and must be sent with it.
    pub fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        self.transmit(now, buffer, false)
    }

    /// Like [`poll_transmit`](Self::poll_transmit), but holds back acknowledgements that are not urgent. The next call of
    /// `poll_transmit` can send them in a run with data. For a driver whose consumer is about to answer.
    pub fn poll_transmit_data(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        self.transmit(now, buffer, true)
    }

    /// Returns true if [`poll_transmit`](Self::poll_transmit) may have something to send.
    #[inline]
    #[must_use]
    pub fn has_datagrams(&self) -> bool {
        !self.ready.is_empty() || !self.held.is_empty() || !self.mads.is_empty()
    }

    /// Returns true if a queue pair on the ready list of datagrams owes an acknowledgement, or one of a channel owes one that can
    /// wait.
    pub fn owes_ack(&self) -> bool {
        if self.holds_any() {
            return true;
        }
        let mut slots = self.ready.iter().chain(&self.held);
        slots.any(|slot| matches!(self.qps.get(*slot as usize), Some(Some(qp)) if qp.owes_ack()))
    }

    fn transmit(&mut self, now: Time, buffer: &mut [u8], hold: bool) -> Option<Transmit> {
        self.ready.extend(self.held.drain(..));
        // A DREQ must not overtake the last answers of its queue pair, nor wait without limit.
        let turn = self.ready.is_empty() || self.overtaken >= MAX_OVERTAKEN;
        if turn
            && !self.mads.is_empty()
            && let Some(transmit) = self.next_mad(buffer)
        {
            return Some(transmit);
        }
        let mut run = Run {
            buffer,
            transmit: None,
            packets: 0,
            closed: false,
        };
        while let Some(slot) = self.ready.pop_front() {
            if let Some(Some(qp)) = self.qps.get_mut(slot as usize)
                && qp.link() != Link::Wire
            {
                // It was connected over a channel after it came here.
                qp.queued = false;
                self.enqueue(slot);
                continue;
            }
            if self.pauses_answers(now, slot) {
                continue;
            }
            self.fill(now, slot, &mut run, hold);
            if run.closed {
                // It may have more to send: to the end of the list.
                self.ready.push_back(slot);
                if run.transmit.is_none() {
                    tracing::error!("buffer of {} bytes holds no packet", run.buffer.len());
                }
                break;
            }
            if let Some(Some(qp)) = self.qps.get_mut(slot as usize) {
                if hold && qp.owes_ack() {
                    // It still counts as queued.
                    self.held.push(slot);
                } else {
                    qp.queued = false;
                }
            }
        }
        if self.mads.is_empty() {
            return run.transmit;
        }
        self.overtaken += 1;
        match run.transmit {
            Some(transmit) => Some(transmit),
            None => self.next_mad(run.buffer),
        }
    }

    /// Lets a queue pair that has more answers wait for a moment if enough of them were sent at `now`, the time of one look of the driver.
    fn pauses_answers(&mut self, now: Time, slot: u32) -> bool {
        if self.answered.1 < MAX_ANSWERS || self.answered.0 != now {
            return false;
        }
        match self.qps.get_mut(slot as usize) {
            Some(Some(qp)) if qp.has_answers() => {
                qp.queued = false;
                self.timers.add(now + ANSWERS_PAUSE, Owner::Answers(qp.qpn));
                true
            }
            _ => false,
        }
    }

    fn next_mad(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let (destination, mad) = self.mads.pop_front()?;
        if self.mads.is_empty() {
            self.overtaken = 0;
        }
        Some(self.write_mad(destination, &mad[..], buffer))
    }

    /// Appends a queue pair's packets to the run.
    fn fill(&mut self, now: Time, slot: u32, run: &mut Run<'_>, hold: bool) {
        let local = SocketAddr::new(self.config.local, self.config.port);
        let gso_foreign = self.config.gso_foreign;
        let sent = self.with_qp(now, slot, |qp, cx| {
            let follows = qp.init.kind == QpKind::Rc
                && (gso_foreign
                    || local.is_ipv6()
                    || local.ip().is_loopback()
                    || qp
                        .path
                        .is_some_and(|path| path.agreement.has(Capabilities::SEGMENT_INDEX)));
            let (mut sent, mut answered) = (0, 0);
            while !run.closed
                && let Some(packet) = qp.next(cx, hold)
            {
                let size = packet.size();
                if !run.admits(packet.destination, size, follows) {
                    break;
                }
                let index = run.packets as u16;
                let (at, out) = run.space(size);
                let Ok(lent) = qp.write(cx, &packet, at, out) else {
                    continue;
                };
                let end = size - icrc::LEN;
                let (to, transport) = (packet.destination, &out[..end]);
                let crc = match lent {
                    None => cx.icrc_cache.compute(Direction::Out, to, index, transport),
                    Some(plain) => {
                        cx.icrc_cache
                            .complete(Direction::Out, to, index, transport, plain)
                    }
                };
                icrc::store(out, end, crc);
                run.push(packet.destination, size);
                qp.sent(cx, &packet);
                sent += 1;
                if packet.role == Role::Response {
                    answered += size;
                }
            }
            (sent, answered)
        });
        let (sent, answered) = sent.unwrap_or_default();
        self.out.counters.sent += sent;
        if self.answered.0 != now {
            self.answered = (now, 0);
        }
        self.answered.1 += answered;
        self.arm(now, slot);
    }

    fn write_mad(&mut self, destination: SocketAddr, mad: &[u8], buffer: &mut [u8]) -> Transmit {
        let deth = Deth {
            qkey: GSI_QKEY,
            source: Qpn::GSI,
        };
        let packet = Packet {
            bth: Bth::new(Opcode::UdSendOnly as u8, Qpn::GSI, self.mad_psn),
            opcode: Opcode::UdSendOnly,
            headers: Headers {
                deth: Some(deth),
                ..Headers::default()
            },
            payload: mad,
        };
        self.mad_psn = self.mad_psn.plus(1);
        self.out.counters.sent += 1;
        let end = packet.emit(buffer);
        let flow = Flow {
            source: SocketAddr::new(self.config.local, self.config.port),
            destination,
        };
        icrc::store(buffer, end, icrc::compute(&flow, 0, &buffer[..end]));
        Transmit {
            destination,
            length: end + icrc::LEN,
            segment: end + icrc::LEN,
        }
    }
}
