//! Unreliable datagrams (IBTA 9.8.3).

use std::net::{IpAddr, SocketAddr};

use super::Qp;
use super::incoming::{Arrived, Incoming};
use super::outgoing::{Outgoing, Payload, Role};
use crate::memory::Memory;
use crate::near::NearOut;
use crate::opcode::Opcode;
use crate::outputs::Context;
use crate::wire::cma::gid;
use crate::wire::{Bth, Deth, immdt};
use crate::work::{CompletedOp, Completion, Op, Status};

/// Bytes before a received datagram that hold a global route header.
pub(crate) const GRH_LEN: usize = 40;

impl Qp {
    pub(super) fn next_datagram(&self) -> Option<Outgoing> {
        let r = &self.requester;
        if !self.state.sends() || r.ring.len() == 0 {
            return None;
        }
        let seq = r.ring.head();
        let wqe = r.ring.get(seq)?;
        let Op::Datagram { to, immediate } = wqe.op else {
            return None;
        };
        let opcode = match immediate {
            Some(_) => Opcode::UdSendOnlyImm,
            None => Opcode::UdSendOnly,
        };
        let destination = SocketAddr::new(to.address, crate::ROCE_PORT);
        // PSNs of datagrams only count up; receivers do not check them.
        let bth = Bth {
            solicited: wqe.solicited,
            ..Bth::new(opcode as u8, to.qpn, r.next)
        };
        let mut packet = Outgoing::new(destination, Role::Datagram, &bth);
        let deth = Deth {
            qkey: to.qkey,
            source: self.qpn,
        };
        packet.push(Deth::LEN, |out| deth.emit(out));
        if let Some(data) = immediate {
            packet.push(immdt::LEN, |out| immdt::emit(data, out));
        }
        let payload = Payload::Request {
            seq,
            offset: 0,
            may_lend: false,
        };
        Some(packet.with_payload(payload, wqe.length as usize))
    }

    /// Sends the oldest datagram over a channel whose longest payload is `mtu`, if its record fits in `room` bytes. Writes the packet to
    /// `out`, and returns the length of its record. `None`: it was not sent, or has failed.
    pub(crate) fn send_datagram<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        room: usize,
        mtu: usize,
        out: &mut NearOut,
    ) -> Option<usize> {
        let packet = self.next_datagram()?;
        if packet.length > mtu || packet.record_length() > room {
            return None;
        }
        *out = self.write_near(cx, &packet).ok()?;
        self.datagram_sent(cx);
        Some(out.record_length())
    }

    /// Completes a datagram, which is done when it is sent.
    pub(super) fn datagram_sent<M>(&mut self, cx: &mut Context<'_, M>) {
        let r = &mut self.requester;
        r.next = r.next.plus(1);
        let Some(wqe) = r.ring.pop() else { return };
        r.cursor = r.ring.head();
        if wqe.signaled {
            let op = wqe.completed_op();
            self.complete_send(cx, wqe.wr_id, op, Status::Success, wqe.length);
        } else {
            cx.out.release_completions(self.init.send_cq, 1);
        }
    }

    /// Handles a datagram from `source`.
    pub(crate) fn handle_datagram<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        source: IpAddr,
        packet: &Incoming<'_>,
    ) {
        let Some(deth) = packet.headers.deth.filter(|d| d.qkey == self.init.qkey) else {
            cx.out.counters.foreign += 1;
            return;
        };
        if !self.state.receives() {
            return;
        }
        let Some(receive) = self.take_receive(cx) else {
            cx.out.counters.ud_dropped += 1;
            return;
        };
        let payload = packet.payload.len();
        let header = route_header(source, cx.config.local, payload);
        let length = GRH_LEN + payload;
        let status = if length > receive.length as usize {
            Status::LocalLength
        } else {
            match self
                .place_received(cx, 0, &Arrived::Bytes(&header))
                .and_then(|()| self.place_received(cx, GRH_LEN as u32, &packet.payload))
            {
                Ok(()) => Status::Success,
                Err(_) => Status::LocalProtection,
            }
        };
        let completion = Completion {
            status,
            op: CompletedOp::Receive,
            length: length as u32,
            immediate: packet.headers.immediate,
            solicited: packet.bth.solicited,
            source: Some((source, deth.source)),
            ..self.completion(receive.wr_id)
        };
        cx.out.complete(self.init.recv_cq, completion);
    }

    /// Writes `data` at `offset` of the receive that the responder uses.
    pub(super) fn place_received<M: Memory>(
        &self,
        cx: &Context<'_, M>,
        offset: u32,
        data: &Arrived<'_>,
    ) -> Result<(), crate::AccessError> {
        let sges = self.responder.sges();
        self.for_each_received(sges, offset, data.len(), |access, va, range| {
            data.place(cx.memory, access, va, range)
        })
    }
}

/// Returns the header before a received datagram: IPv6 as on the wire, IPv4 in the last 20 bytes (RoCEv2 annex A17.4.5.2).
/// Fields that a socket does not report have their most common values.
fn route_header(source: IpAddr, local: IpAddr, payload: usize) -> [u8; GRH_LEN] {
    let mut header = [0; GRH_LEN];
    // UDP header, BTH, DETH and ICRC are around the payload.
    let udp_length = (8 + 12 + 8 + payload + 4) as u16;
    if let (IpAddr::V4(from), IpAddr::V4(to)) = (source, local) {
        let ip = &mut header[20..];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(20 + udp_length).to_be_bytes());
        ip[6] = 0x40;
        ip[8] = 64;
        ip[9] = 17;
        ip[12..16].copy_from_slice(&from.octets());
        ip[16..20].copy_from_slice(&to.octets());
    } else {
        header[0] = 0x60;
        header[4..6].copy_from_slice(&udp_length.to_be_bytes());
        header[6] = 17;
        header[7] = 64;
        header[8..24].copy_from_slice(&gid(source));
        header[24..40].copy_from_slice(&gid(local));
    }
    header
}
