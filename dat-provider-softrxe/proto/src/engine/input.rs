//! Received datagrams: parses and checks them and finds their queue pair.

use std::net::SocketAddr;

use dat_handshake::{Agreement, Capabilities};

use super::Engine;
use crate::cm::state::Input;
use crate::memory::Memory;
use crate::near::Link;
use crate::opcode::Opcode;
use crate::outputs::Counters;
use crate::psn::Qpn;
use crate::qp::incoming::Incoming;
use crate::qp::{Qp, QpKind};
use crate::time::Time;
use crate::transmit::Meta;
use crate::wire::icrc::{self, Flow, Verdict};
use crate::wire::icrc_cache::Direction;
use crate::wire::{Bth, Packet};

/// Highest segment index in one sendmsg, which engines of this project use as IPv4 identification.
const MAX_SEGMENT: u16 = 127;

impl<M: Memory> Engine<M> {
    /// Handles one datagram; `payload` is without the UDP header. Call [`poll_transmit`](Self::poll_transmit) for the
    /// answers.
    pub fn handle_datagram(&mut self, now: Time, meta: &Meta, payload: &[u8]) {
        self.out.counters.received += 1;
        let packet = match Packet::parse(payload) {
            Ok(packet) => packet,
            Err(error) => {
                self.out.counters.malformed += 1;
                tracing::trace!(source = %meta.source, %error, "datagram dropped");
                return;
            }
        };
        // The top bit is the membership; only the partition must be equal.
        if packet.bth.pkey & 0x7fff != Bth::DEFAULT_PKEY & 0x7fff {
            self.out.counters.foreign += 1;
            return;
        }
        if packet.bth.destination == Qpn::GSI {
            if self.intact(meta, payload, false) && packet.opcode.has_deth() {
                self.handle_mad(now, meta.source, &packet);
            }
            return;
        }
        let Some(slot) = self.slot(packet.bth.destination) else {
            self.out.counters.unknown_qp += 1;
            return;
        };
        let Some(qp) = &self.qps[slot as usize] else {
            return;
        };
        let kind = qp.init.kind;
        let agreement = match agreement_with_sender(qp, meta.source, packet.opcode) {
            Ok(agreement) => agreement,
            Err(why) => {
                why.count(&mut self.out.counters);
                return;
            }
        };
        let incoming = if agreement.has(Capabilities::REQUEST_ACKNOWLEDGES) {
            Incoming::acknowledging(&packet, payload)
        } else {
            Some(Incoming::from(&packet))
        };
        let Some(incoming) = incoming else {
            self.out.counters.malformed += 1;
            return;
        };
        let waiting = qp
            .cm
            .filter(|_| qp.awaits_data() && qp.has_psn_of_rep(&incoming));
        let indexed = agreement.has(Capabilities::SEGMENT_INDEX);
        if !self.intact(meta, payload, indexed) {
            return;
        }
        if let Some(id) = waiting {
            self.cm_step(now, id.0, Input::Data);
        }
        let source = meta.source.ip();
        self.with_qp(now, slot, |qp, cx| match kind {
            QpKind::Rc => qp.handle(cx, &incoming),
            QpKind::Ud => qp.handle_datagram(cx, source, &incoming),
        });
        self.enqueue(slot);
        self.arm(now, slot);
    }

    /// Returns true if the ICRC is right. It is computed over IPv4 identification 0 or the index of a segment if `indexed`, over
    /// any identification otherwise.
    fn intact(&mut self, meta: &Meta, payload: &[u8], indexed: bool) -> bool {
        if !self.config.verify_icrc {
            return true;
        }
        // A packet of an engine of this project passes at once, unless it was sent to another port than ours.
        if indexed
            && let Some((transport, stored)) = payload.split_last_chunk::<{ icrc::LEN }>()
            && self
                .icrc_cache
                .compute(Direction::In, meta.source, meta.ip_id, transport)
                .to_le_bytes()
                == *stored
        {
            return true;
        }
        let arrived_at = |port| {
            let flow = Flow {
                source: meta.source,
                destination: SocketAddr::new(self.config.local, port),
            };
            icrc::verify(&flow, meta.ip_id, payload)
        };
        let right_at = |port| match arrived_at(port) {
            Verdict::Exact => true,
            Verdict::Identification(id) => !indexed || id <= MAX_SEGMENT,
            Verdict::Wrong => false,
        };
        // Or it was sent to port 4791, whose holder forwarded it.
        let port = self.config.port;
        let right = right_at(port) || port != crate::ROCE_PORT && right_at(crate::ROCE_PORT);
        if !right {
            self.out.counters.bad_icrc += 1;
        }
        right
    }
}

/// Why a packet is not for the queue pair that it names.
enum Unfit {
    /// Its opcode is one of the other kind of queue pair.
    Malformed,
    /// A congestion notification, which nothing here reacts to.
    Congestion,
    /// The queue pair has no peer yet.
    Unconnected,
    /// It is not from the queue pair's peer.
    Foreign,
}

impl Unfit {
    const fn count(self, counters: &mut Counters) {
        let counter = match self {
            Self::Malformed => &mut counters.malformed,
            Self::Congestion => &mut counters.congestion,
            Self::Unconnected => &mut counters.unknown_qp,
            Self::Foreign => &mut counters.foreign,
        };
        *counter += 1;
    }
}

/// Returns what was agreed on with the sender of a packet, if the packet is one for `qp`.
#[inline]
fn agreement_with_sender(qp: &Qp, source: SocketAddr, opcode: Opcode) -> Result<Agreement, Unfit> {
    if (qp.init.kind == QpKind::Ud) != opcode.has_deth() {
        return Err(if opcode == Opcode::Cnp {
            Unfit::Congestion
        } else {
            Unfit::Malformed
        });
    }
    if qp.init.kind == QpKind::Ud {
        return Ok(Agreement::FOREIGN);
    }
    let path = qp.path.as_ref().ok_or(Unfit::Unconnected)?;
    // An engine of this project sends from one port, which no other process of its address can send from.
    let theirs = path.link == Link::Wire
        && path.remote.ip() == source.ip()
        && (!path.agreement.is_own() || path.remote.port() == source.port());
    if theirs {
        Ok(path.agreement)
    } else {
        Err(Unfit::Foreign)
    }
}
