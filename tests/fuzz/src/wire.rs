//! Wire formats: any bytes are parsed or refused, and a parsed format survives encoding.

use softrxe_proto::wire::cm::{self, CmMessage};
use softrxe_proto::wire::icrc::{self, Flow, Verdict};
use softrxe_proto::wire::{Bth, CmaHeader, MadHeader, Packet};

use crate::packets::{HERE, THERE};

/// Parses `data` as a datagram and as each message of the connection manager.
///
/// # Panics
/// If encoding and parsing are not inverse, or the ICRC check is wrong.
pub fn wire(data: &[u8]) {
    datagram(data);
    checksum(data);
    message(data);
}

fn datagram(data: &[u8]) {
    let Ok(packet) = Packet::parse(data) else {
        return;
    };
    let end = data.len() - icrc::LEN;
    let mut again = vec![0xee; end];
    assert_eq!(packet.emit(&mut again), end);
    let mut want = data[..end].to_vec();
    // Reserved bits and padding bytes are not kept.
    want[8] &= 0x80;
    if packet.opcode.has_deth() {
        want[Bth::LEN + 4] = 0;
    }
    want[end - usize::from(packet.bth.pad)..].fill(0);
    assert_eq!(again, want);
    again.extend([0; icrc::LEN]);
    assert_eq!(Packet::parse(&again).as_ref(), Ok(&packet));
}

fn checksum(data: &[u8]) {
    let flow = Flow {
        source: THERE,
        destination: HERE,
    };
    // Any result is right for bytes without an ICRC; the call must return.
    let _ = icrc::verify(&flow, 0, data);
    if data.len() < Bth::LEN || data.len() > 5000 {
        return;
    }
    let id = u16::from_le_bytes([data[0], data[1]]);
    let mut sealed = data.to_vec();
    sealed.extend(icrc::compute(&flow, id, data).to_le_bytes());
    assert_eq!(icrc::verify(&flow, id, &sealed), Verdict::Exact);
    let unseen = icrc::verify(&flow, id ^ 1, &sealed);
    assert_eq!(unseen, Verdict::Identification(id));
}

fn message(data: &[u8]) {
    let mut mad = [0; MadHeader::MAD_LEN];
    let length = data.len().min(mad.len());
    mad[..length].copy_from_slice(&data[..length]);
    let Some(header) = MadHeader::parse(&mad) else {
        return;
    };
    let mut again = [0; MadHeader::LEN];
    header.emit(&mut again);
    assert_eq!(MadHeader::parse(&again), Some(header));
    let body: &cm::Body = mad[MadHeader::LEN..].try_into().expect("the rest of it");
    for attribute in (0x0f..=0x1b).chain([header.attribute_id]) {
        let Some(message) = CmMessage::parse(attribute, body) else {
            continue;
        };
        assert_eq!(message.attribute_id(), attribute);
        let written = message.emit();
        assert_eq!(CmMessage::parse(attribute, &written), Some(message));
    }
    if let Some(header) = CmaHeader::parse(body) {
        let mut again = [0; CmaHeader::LEN];
        header.emit(&mut again);
        assert_eq!(CmaHeader::parse(&again), Some(header));
    }
}
