//! Settings of an engine.

use std::net::IpAddr;
use std::time::Duration;

use dat_handshake::Offer;

use crate::secrets::SecretKey;

/// Settings of an engine; they do not change after its creation.
#[derive(Clone, Debug)]
pub struct Config {
    /// The local address: source of all packets, and the GID.
    pub local: IpAddr,
    /// The UDP port that the driver's socket sends from (4791 unless several processes share the address).
    pub port: u16,
    /// Key of the generator of communication ids, transaction ids and first PSNs. Secret, and used by no other engine.
    pub secret: SecretKey,
    /// The lower 48 bits of the CA GUID. Public, unique, and independent of `secret`.
    pub guid: u64,
    /// Version and capabilities offered to peers that are engines of this crate.
    pub offer: Offer,
    /// Limit of queue pairs, as a power of two; at most 16.
    pub qp_bits: u8,
    /// Top bits of every QPN and communication id, `qpn_prefix_bits` of them. With them several engines can share an
    /// address.
    pub qpn_prefix: u32,
    /// Number of prefix bits; at most 24 - `qp_bits`.
    pub qpn_prefix_bits: u8,
    /// Largest path MTU: 256, 512, 1024, 2048 or 4096. Proposed in REQs; a larger one of a peer is refused, and
    /// a peer that is an engine of this crate then proposes the next smaller one.
    pub mtu: u16,
    /// Check the ICRC of received packets.
    pub verify_icrc: bool,
    /// Send runs of several packets to foreign IPv4 peers that are not on loopback.
    pub gso_foreign: bool,
    /// Limit of PSNs in flight to engines of this project, and of those of READs to all peers. To other peers the limit is 128.
    pub max_window: u32,
    /// Response packets that one READ request asks for.
    pub read_chunk: u32,
    /// Longest wait of an ACK for data of this side.
    pub ack_delay: Duration,
    /// Packets after which an ACK no longer waits.
    pub ack_every: u32,
    /// First retransmission timeout of a queue pair; doubles.
    pub ack_timeout: Duration,
    /// RNR timer code sent when no receive is posted (12 = 0.64 ms).
    pub rnr_code: u8,
    /// First repetition of a connection manager message; doubles up to 4 s.
    pub cm_retry: Duration,
    /// Repetitions of a REQ, REP or DREQ before giving up.
    pub cm_retries: u8,
    /// Silence after which a connected peer with no request outstanding is probed; `None` disables probes. A peer that does
    /// not answer breaks its connection as one that does not acknowledge.
    pub keepalive: Option<Duration>,
    /// Repetitions of a REQ that is refused because no service listens (yet), after 10 ms, 20 ms and so on. 0: the first
    /// refusal counts.
    pub refused_repeats: u8,
}

impl Config {
    /// Returns the limit of requests and resolutions of peers that wait for the consumer: half the limit of queue pairs.
    pub(crate) const fn max_requests(&self) -> usize {
        1 << self.qp_bits >> 1
    }

    /// Returns the part of [`max_requests`](Self::max_requests) for one address.
    pub(crate) const fn share_of_requests(&self) -> usize {
        self.max_requests().div_ceil(4)
    }

    /// Returns the limit of ended connections that are kept to repeat their last messages.
    pub(crate) const fn max_ended(&self) -> usize {
        2 << self.qp_bits
    }

    /// Returns default settings: port 4791, MTU 4096, 16,384 queue pairs.
    #[must_use]
    pub const fn new(local: IpAddr, secret: SecretKey, guid: u64) -> Self {
        Self {
            local,
            port: crate::ROCE_PORT,
            secret,
            guid,
            offer: Offer::CURRENT,
            qp_bits: 14,
            qpn_prefix: 0,
            qpn_prefix_bits: 0,
            mtu: 4096,
            verify_icrc: true,
            gso_foreign: false,
            max_window: 128,
            read_chunk: 16,
            ack_delay: Duration::ZERO,
            ack_every: 32,
            ack_timeout: Duration::from_millis(50),
            rnr_code: 12,
            cm_retry: Duration::from_millis(250),
            cm_retries: 9,
            keepalive: None,
            refused_repeats: 0,
        }
    }
}
