//! The state of one connection, and the messages that it sends.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dat_handshake::{Agreement, Capabilities, Offer, final_psn};

use super::answered::Request;
use super::peer::Peer;
use super::state::State;
use crate::near::Link;
use crate::qp::Path;
use crate::time::{Spared, Time};
use crate::wire::cm::{
    Answered, CmMessage, CmPath, Drep, Dreq, Mra, Rej, Rep, Req, Rtu, private_data,
};
use crate::wire::cma::{CmaHeader, gid};
use crate::wire::{MadHeader, Nak, Syndrome, mad};
use crate::{Psn, Qpn, RejectReason};

/// A whole management datagram.
pub(crate) type Mad = [u8; mad::MadHeader::MAD_LEN];

/// Local ACK timeout proposed for the peer's queue pair: 4.096 us * 2^14 = 67 ms.
const ACK_TIMEOUT: u8 = 14;
/// CM response timeout announced in a REQ: 4.096 us * 2^20 = 4.3 s.
const RESPONSE_TIMEOUT: u8 = 20;
/// Service timeout of our MRAs, and the longest one of a peer's that counts: 4.096 us * 2^24 = 69 s.
pub(crate) const SERVICE_TIMEOUT: u8 = 24;
/// Repetitions of a REQ or SIDR_REQ that may be missing before its sender counts as gone. Each is due within the response
/// timeout, which both sides announce.
const MISSED_REPETITIONS: u32 = 8;

/// Bytes of a packet with a management datagram, BTH to ICRC, and of a [keepalive](crate::qp) probe.
pub(crate) const MAD_DATAGRAM: u32 = 280;
pub(crate) const PROBE_PACKET: u32 = 32;
/// Bytes sent at most for each byte received from a peer that has not yet shown that it receives our answers. Any address
/// can stand in a REQ.
pub(crate) const AMPLIFICATION: u32 = 3;

/// Returns how long a request is kept when its peer does not repeat it: 34 s.
pub(crate) fn request_lifetime() -> Duration {
    timeout_of(RESPONSE_TIMEOUT) * MISSED_REPETITIONS
}

/// Returns how long a request is kept after an MRA, which allows the peer to be silent for its service timeout: 103 s.
pub(crate) fn request_lifetime_after_mra() -> Duration {
    timeout_of(SERVICE_TIMEOUT) + request_lifetime()
}

/// The PSN that a queue pair expected last, and what it refused.
pub(crate) type LastReceived = (Psn, Option<(Psn, Nak)>);

/// What the engine states of itself in a REQ or REP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) guid: u64,
    pub(crate) offer: Offer,
}

/// Parameters of a connection that REQ and REP negotiate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) mtu: u16,
    pub(crate) initiator_depth: u8,
    pub(crate) responder_resources: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
}

/// A connection, from REQ to the end of TimeWait.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) state: State,
    pub(crate) local_id: u32,
    pub(crate) remote_id: u32,
    pub(crate) remote_guid: u64,
    /// The handshake's result; that of a foreign peer until the peer's REQ or REP has arrived.
    pub(crate) agreement: Agreement,
    /// What carries the packets, decided by the passive side at its REP.
    pub(crate) link: Link,
    pub(crate) remote_qpn: Qpn,
    pub(crate) remote: SocketAddr,
    pub(crate) transaction: u64,
    pub(crate) service_id: u64,
    pub(crate) qpn: Option<Qpn>,
    pub(crate) terms: Terms,
    /// First PSN that we expect.
    pub(crate) receive_psn: Psn,
    /// First PSN that the peer expects.
    pub(crate) send_psn: Psn,
    /// The last message, kept for repetition.
    pub(crate) last: Option<Box<Mad>>,
    /// Repetitions so far.
    pub(crate) repeated: u8,
    pub(crate) spared: Spared,
    /// Number of refusals of our REQ because no service listens.
    pub(crate) refused: u8,
    /// Time of the next repetition.
    pub(crate) due: Option<Time>,
    /// Bytes that may still be sent to a peer that has not shown that it receives. `None` once it has, and on the active side.
    pub(crate) allowance: Option<u32>,
    /// Time of the earliest timer entry for this connection, which may be before `due`.
    pub(crate) armed: Option<Time>,
}

/// Builds a management datagram.
pub(crate) fn mad(transaction: u64, message: &CmMessage) -> Box<Mad> {
    let mut out = Box::new([0; MadHeader::MAD_LEN]);
    MadHeader::cm(transaction, message.attribute_id()).emit(&mut out[..]);
    out[MadHeader::LEN..].copy_from_slice(&message.emit());
    out
}

/// Returns the code of a path MTU (IBTA 9.6.1 table): 256 is 1, 4096 is 5.
pub(crate) const fn mtu_code(mtu: u16) -> u8 {
    (mtu.trailing_zeros() as u8).saturating_sub(7)
}

/// Returns the path MTU of a code.
pub(crate) const fn mtu_of(code: u8) -> Option<u16> {
    match code {
        1..=5 => Some(128 << code),
        _ => None,
    }
}

/// Returns 4.096 us * 2^code.
pub(crate) fn timeout_of(code: u8) -> Duration {
    Duration::from_nanos(4096 << code.min(31))
}

impl Connection {
    /// Raises the allowance for another REQ of the peer.
    pub(crate) fn add_allowance(&mut self) {
        if let Some(left) = &mut self.allowance {
            *left = left.saturating_add(AMPLIFICATION * MAD_DATAGRAM);
        }
    }

    /// Returns true if the allowance covers `bytes`.
    pub(crate) fn affords(&self, bytes: u32) -> bool {
        self.allowance.is_none_or(|left| left >= bytes)
    }

    /// Takes `bytes` from the allowance. Returns false if it does not cover them.
    pub(crate) fn spend(&mut self, bytes: u32) -> bool {
        let affords = self.affords(bytes);
        if let Some(left) = &mut self.allowance
            && affords
        {
            *left -= bytes;
        }
        affords
    }

    /// Returns the owner of the peer's ids. Its GUID is known.
    pub(crate) const fn peer(&self) -> Peer {
        Peer::new(self.remote, self.remote_guid)
    }

    /// Returns what identifies the REQ of a peer.
    pub(crate) const fn request(&self) -> Request {
        (self.peer(), self.remote_id, self.transaction)
    }

    /// Returns true if a message from `source` that names these ids can be the peer's. Before the REP only the peer's
    /// address is known.
    pub(crate) fn is_from_peer(&self, source: SocketAddr, remote_id: u32) -> bool {
        if self.remote_guid == 0 {
            return self.remote.ip() == source.ip();
        }
        self.remote_id == remote_id && self.peer() == Peer::new(source, self.remote_guid)
    }

    /// Returns the path to the peer, once it is known.
    pub(crate) const fn path(&self) -> Path {
        Path {
            remote: self.remote,
            qpn: self.remote_qpn,
            mtu: self.terms.mtu,
            send_psn: self.send_psn,
            receive_psn: self.receive_psn,
            initiator_depth: self.terms.initiator_depth,
            responder_resources: self.terms.responder_resources,
            retry_count: self.terms.retry_count,
            rnr_retry: self.terms.rnr_retry,
            agreement: self.agreement,
            link: self.link,
        }
    }

    /// Builds the REQ; `data` is the consumer's part of the private data.
    pub(crate) fn req(&self, this: Identity, local: SocketAddr, qpn: Qpn, data: &[u8]) -> Box<Mad> {
        let mut field = [0; Req::PRIVATE_DATA];
        let (header, rest) = field.split_at_mut(CmaHeader::LEN);
        CmaHeader {
            source: local,
            destination: self.remote.ip(),
        }
        .emit(header);
        rest[..data.len()].copy_from_slice(data);
        let req = Req {
            local_id: self.local_id,
            vendor: 0,
            service_id: self.service_id,
            ca_guid: this.guid,
            qkey: this.offer.word(),
            qpn,
            responder_resources: self.terms.responder_resources,
            local_ee_context: 0,
            initiator_depth: self.terms.initiator_depth,
            remote_ee_context: 0,
            remote_response_timeout: RESPONSE_TIMEOUT,
            transport: 0,
            flow_control: false,
            starting_psn: self.receive_psn,
            local_response_timeout: RESPONSE_TIMEOUT,
            retry_count: self.terms.retry_count,
            pkey: 0xffff,
            mtu: mtu_code(self.terms.mtu),
            rdc_exists: false,
            rnr_retry: self.terms.rnr_retry,
            max_cm_retries: 15,
            srq: false,
            extended_transport: 0,
            primary: path(local.ip(), self.remote.ip()),
            alternate: CmPath::default(),
            private_data: field,
        };
        mad(self.transaction, &CmMessage::Req(req))
    }

    pub(crate) fn rep(
        &self,
        this: Identity,
        qpn: Qpn,
        srq: bool,
        rnr: u8,
        data: &[u8],
    ) -> Box<Mad> {
        let rep = Rep {
            local_id: self.local_id,
            remote_id: self.remote_id,
            qkey: this
                .offer
                .only_agreed(self.agreement, Capabilities::NEAR)
                .answer(self.remote_guid),
            qpn,
            vendor_high: 0,
            ee_context: 0,
            starting_psn: self.receive_psn,
            responder_resources: self.terms.responder_resources,
            initiator_depth: self.terms.initiator_depth,
            target_ack_delay: 15,
            failover: 0,
            flow_control: false,
            rnr_retry: rnr & 7,
            srq,
            ca_guid: this.guid,
            private_data: private_data(data),
        };
        mad(self.transaction, &CmMessage::Rep(rep))
    }

    pub(crate) fn rtu(&self) -> Box<Mad> {
        let rtu = Rtu {
            local_id: self.local_id,
            remote_id: self.remote_id,
            private_data: [0; Rtu::PRIVATE_DATA],
        };
        mad(self.transaction, &CmMessage::Rtu(rtu))
    }

    pub(crate) fn mra(&self) -> Box<Mad> {
        let mra = Mra {
            local_id: self.local_id,
            remote_id: self.remote_id,
            message: Answered::Req,
            service_timeout: SERVICE_TIMEOUT,
            private_data: [0; Mra::PRIVATE_DATA],
        };
        mad(self.transaction, &CmMessage::Mra(mra))
    }

    pub(crate) fn rej(&self, guid: u64, reason: RejectReason, data: &[u8]) -> Box<Mad> {
        let timeout = reason == RejectReason::TIMEOUT;
        let message = match self.state {
            State::ReqReceived | State::MraSent => Answered::Req,
            _ => Answered::Other,
        };
        let rej = Rej {
            local_id: self.local_id,
            remote_id: self.remote_id,
            message,
            info_length: if timeout { 8 } else { 0 },
            reason,
            info: private_data(if timeout { guid.to_be_bytes() } else { [0; 8] }.as_slice()),
            private_data: private_data(data),
        };
        mad(self.transaction, &CmMessage::Rej(rej))
    }

    /// Builds the DREQ; `last` is what our queue pair received, for peers that read it.
    pub(crate) fn dreq(&self, last: Option<LastReceived>) -> Box<Mad> {
        let last = last.filter(|_| self.agreement.has(Capabilities::FINAL_PSN));
        let dreq = Dreq {
            local_id: self.local_id,
            remote_id: self.remote_id,
            remote_qpn: self.remote_qpn,
            private_data: last.map_or([0; Dreq::PRIVATE_DATA], |(expected, refusal)| {
                let refusal = refusal.map(|(psn, nak)| final_psn::Refusal {
                    syndrome: Syndrome::Nak(nak).to_wire(),
                    psn: psn.value(),
                });
                private_data(&final_psn::emit(expected.value(), refusal))
            }),
        };
        mad(self.transaction, &CmMessage::Dreq(dreq))
    }
}

/// Builds the DREP for a DREQ, also for one of an unknown connection.
pub(crate) fn drep(transaction: u64, dreq: &Dreq) -> Box<Mad> {
    let drep = Drep {
        local_id: dreq.remote_id,
        remote_id: dreq.local_id,
        private_data: [0; Drep::PRIVATE_DATA],
    };
    mad(transaction, &CmMessage::Drep(drep))
}

/// Builds the REJ of the REQ that a peer has sent as `remote_id`.
pub(crate) fn reject_req(transaction: u64, remote_id: u32, reason: RejectReason) -> Box<Mad> {
    rej(transaction, [0, remote_id], Answered::Req, reason)
}

/// Builds the REJ of a REP that answers no current REQ of ours.
pub(crate) fn reject_rep(transaction: u64, rep: &Rep) -> Box<Mad> {
    let ids = [rep.remote_id, rep.local_id];
    let reason = RejectReason::INVALID_COMM_ID;
    rej(transaction, ids, Answered::Rep, reason)
}

/// Builds a REJ outside a connection, with the ids of its sender and its receiver.
fn rej(
    transaction: u64,
    [local_id, remote_id]: [u32; 2],
    message: Answered,
    reason: RejectReason,
) -> Box<Mad> {
    let rej = Rej {
        local_id,
        remote_id,
        message,
        info_length: 0,
        reason,
        info: [0; 72],
        private_data: [0; Rej::PRIVATE_DATA],
    };
    mad(transaction, &CmMessage::Rej(rej))
}

fn path(local: IpAddr, remote: IpAddr) -> CmPath {
    CmPath {
        local_lid: 0xffff,
        remote_lid: 0xffff,
        local_gid: gid(local),
        remote_gid: gid(remote),
        packet_rate: 3,
        hop_limit: 64,
        ack_timeout: ACK_TIMEOUT,
        ..CmPath::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_codes_are_inverse() {
        for mtu in [256, 512, 1024, 2048, 4096] {
            assert_eq!(mtu_of(mtu_code(mtu)), Some(mtu));
        }
        assert_eq!(mtu_of(0), None);
        assert_eq!(mtu_of(6), None);
    }
}
