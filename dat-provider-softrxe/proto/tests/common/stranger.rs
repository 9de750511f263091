//! Management datagrams of a foreign peer: rdma_rxe, or a forger.

use std::net::{IpAddr, SocketAddr};

use softrxe_proto::opcode::Opcode;
use softrxe_proto::wire::cm::{
    CmMessage, CmPath, Drep, Dreq, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq,
};
use softrxe_proto::wire::cma::{CmaHeader, gid};
use softrxe_proto::wire::{Bth, Deth, Headers, MadHeader, Packet, icrc};
use softrxe_proto::{Engine, Memory, Meta, Psn, Qpn, RejectReason, Time};

/// CA GUID of a foreign adapter.
pub const FOREIGN: u64 = 0x0200_00ff_fe00_0001;
const QKEY: u32 = 0x8001_0000;

/// Returns a REQ as rdma_rxe sends it.
pub fn req(from: IpAddr, to: IpAddr, service_id: u64, (guid, id, qpn): (u64, u32, Qpn)) -> Req {
    let mut private_data = [0; Req::PRIVATE_DATA];
    cma(from, to, &mut private_data);
    Req {
        local_id: id,
        vendor: 0,
        service_id,
        ca_guid: guid,
        qkey: 0,
        qpn,
        responder_resources: 4,
        local_ee_context: 0,
        initiator_depth: 4,
        remote_ee_context: 0,
        remote_response_timeout: 20,
        transport: 0,
        flow_control: false,
        starting_psn: Psn::new(100),
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        mtu: 3,
        rdc_exists: false,
        rnr_retry: 7,
        max_cm_retries: 15,
        srq: false,
        extended_transport: 0,
        primary: CmPath {
            local_gid: gid(from),
            remote_gid: gid(to),
            ack_timeout: 19,
            ..CmPath::default()
        },
        alternate: CmPath::default(),
        private_data,
    }
}

/// Returns a SIDR_REQ as rdma_rxe sends it.
pub fn sidr_req(from: IpAddr, to: IpAddr, service_id: u64, request_id: u32) -> SidrReq {
    let mut private_data = [0; SidrReq::PRIVATE_DATA];
    cma(from, to, &mut private_data);
    SidrReq {
        request_id,
        pkey: 0xffff,
        service_id,
        private_data,
    }
}

fn cma(from: IpAddr, to: IpAddr, data: &mut [u8]) {
    CmaHeader {
        source: SocketAddr::new(from, 7),
        destination: to,
    }
    .emit(&mut data[..CmaHeader::LEN]);
}

pub fn rtu(local_id: u32, remote_id: u32) -> CmMessage {
    CmMessage::Rtu(Rtu {
        local_id,
        remote_id,
        private_data: [0; Rtu::PRIVATE_DATA],
    })
}

pub fn mra(local_id: u32, remote_id: u32) -> CmMessage {
    CmMessage::Mra(Mra {
        local_id,
        remote_id,
        message: softrxe_proto::wire::cm::Answered::Req,
        service_timeout: 24,
        private_data: [0; Mra::PRIVATE_DATA],
    })
}

pub fn dreq(local_id: u32, remote_id: u32, remote_qpn: Qpn) -> CmMessage {
    CmMessage::Dreq(Dreq {
        local_id,
        remote_id,
        remote_qpn,
        private_data: [0; Dreq::PRIVATE_DATA],
    })
}

pub fn rej(local_id: u32, remote_id: u32, reason: RejectReason, guid: u64) -> CmMessage {
    let mut info = [0; 72];
    info[..8].copy_from_slice(&guid.to_be_bytes());
    CmMessage::Rej(Rej {
        local_id,
        remote_id,
        message: softrxe_proto::wire::cm::Answered::Other,
        info_length: 8,
        reason,
        info,
        private_data: [0; Rej::PRIVATE_DATA],
    })
}

pub fn drep(local_id: u32, remote_id: u32) -> CmMessage {
    CmMessage::Drep(Drep {
        local_id,
        remote_id,
        private_data: [0; Drep::PRIVATE_DATA],
    })
}

pub fn rep(local_id: u32, remote_id: u32, qpn: Qpn) -> CmMessage {
    CmMessage::Rep(Rep {
        local_id,
        remote_id,
        qkey: 0,
        qpn,
        vendor_high: 0,
        ee_context: 0,
        starting_psn: Psn::new(1),
        responder_resources: 4,
        initiator_depth: 4,
        target_ack_delay: 15,
        failover: 0,
        flow_control: false,
        rnr_retry: 7,
        srq: false,
        ca_guid: FOREIGN,
        private_data: [0; Rep::PRIVATE_DATA],
    })
}

pub fn sidr_rep(request_id: u32) -> CmMessage {
    CmMessage::SidrRep(SidrRep {
        request_id,
        status: 0,
        info_length: 0,
        vendor_high: 0,
        qpn: Qpn::new(2),
        vendor_low: 0,
        service_id: 7,
        qkey: 0,
        info: [0; 72],
        private_data: [0; SidrRep::PRIVATE_DATA],
    })
}

/// Returns the datagram with `message`, from BTH to ICRC.
pub fn datagram(
    from: SocketAddr,
    to: SocketAddr,
    transaction: u64,
    message: &CmMessage,
) -> Vec<u8> {
    let mut mad = [0; MadHeader::MAD_LEN];
    MadHeader::cm(transaction, message.attribute_id()).emit(&mut mad);
    mad[MadHeader::LEN..].copy_from_slice(&message.emit());
    let packet = Packet {
        bth: Bth::new(Opcode::UdSendOnly as u8, Qpn::GSI, Psn::new(1)),
        opcode: Opcode::UdSendOnly,
        headers: Headers {
            deth: Some(Deth {
                qkey: QKEY,
                source: Qpn::GSI,
            }),
            ..Headers::default()
        },
        payload: &mad,
    };
    let mut bytes = vec![0; 300];
    let end = packet.emit(&mut bytes);
    bytes.truncate(end);
    let flow = icrc::Flow {
        source: from,
        destination: to,
    };
    let crc = icrc::compute(&flow, 0, &bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

/// Returns the message of a management datagram.
pub fn message(datagram: &[u8]) -> Option<CmMessage> {
    let packet = Packet::parse(datagram).ok()?;
    (packet.bth.destination == Qpn::GSI).then_some(())?;
    let header = MadHeader::parse(packet.payload)?;
    CmMessage::parse(
        header.attribute_id,
        packet.payload[MadHeader::LEN..].try_into().ok()?,
    )
}

/// Delivers a message from `source` to `engine`.
pub fn inject<M: Memory>(
    engine: &mut Engine<M>,
    now: Time,
    source: SocketAddr,
    transaction: u64,
    message: &CmMessage,
) {
    let local = SocketAddr::new(engine.config().local, engine.config().port);
    let bytes = datagram(source, local, transaction, message);
    engine.handle_datagram(now, &Meta { source, ip_id: 0 }, &bytes);
}

/// Returns the datagrams that `engine` sends now, with their destinations.
pub fn sent<M: Memory>(engine: &mut Engine<M>, now: Time) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut buffer = vec![0; 65_000];
    let mut sent = Vec::new();
    while let Some(run) = engine.poll_transmit(now, &mut buffer) {
        let packets = buffer[..run.length].chunks(run.segment);
        sent.extend(packets.map(|packet| (run.destination, packet.to_vec())));
    }
    sent
}
