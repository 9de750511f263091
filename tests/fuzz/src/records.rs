//! Records of a channel that the bodies make and check.

use softrxe_proto::wire::{Bth, Packet, packet};
use softrxe_proto::{Engine, NearId, RecordPart, Time, near};

use crate::input::Input;
use crate::memory::{Borrowed, Grants};
use crate::packets::Sent;

/// The channel of the queue pair under test, and one that another peer has.
pub(crate) const ID: NearId = NearId(1);
pub(crate) const OTHER: NearId = NearId(0);
/// Bytes of the memory that holds a record at hand.
pub(crate) const ROOM: usize = 8192;
/// Limit of records that one step may cause.
const STORM: usize = 3000;

/// Returns the transport headers of a datagram as a record has them, and the payload.
pub(crate) fn split(datagram: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let Ok(packet) = Packet::parse(datagram) else {
        let (header, payload) = datagram.split_at(datagram.len().min(near::MAX_HEADER));
        return (header.to_vec(), payload.to_vec());
    };
    let mut header = datagram[..Bth::LEN + packet.headers.length()].to_vec();
    header[1] &= !0x30;
    (header, packet.payload.to_vec())
}

/// Delivers a record with these headers and this payload.
pub(crate) fn deliver(
    engine: &mut Engine<Grants>,
    now: Time,
    id: NearId,
    header: &[u8],
    payload: &[u8],
) {
    let at = near::payload_at(header.len().min(near::MAX_HEADER), payload.len());
    let length = payload.len().min(ROOM - at);
    let mut record = vec![0; ROOM];
    record[at..at + length].copy_from_slice(&payload[..length]);
    engine.memory().set_record(record);
    let payload = RecordPart {
        at,
        length,
        lent: false,
    };
    engine.handle_near(now, id, header, payload);
    engine.memory().set_record(Vec::new());
}

/// Delivers a record with these headers, whose payload is memory of the peer.
pub(crate) fn deliver_lent(
    engine: &mut Engine<Grants>,
    now: Time,
    id: NearId,
    header: &[u8],
    memory: Borrowed,
) {
    let payload = RecordPart {
        at: 0,
        length: memory.bytes.len(),
        lent: true,
    };
    engine.memory().set_borrowed(Some(memory));
    engine.handle_near(now, id, header, payload);
    engine.memory().set_borrowed(None);
}

/// Appends an acknowledgement to the headers of a request, as they have one; or to any headers, or half of one.
pub(crate) fn acknowledge(header: &mut Vec<u8>, psn: u32, input: &mut Input<'_>) {
    if header.len() >= Bth::LEN {
        header[8] |= 0x40;
    }
    let bytes = psn.to_be_bytes();
    header.extend(&bytes[..input.pick(&[4, 4, 4, 3, 0])]);
}

/// Takes all records that fit in `room` bytes. Each must be well formed. They are returned as datagrams without ICRC.
pub(crate) fn drain(engine: &mut Engine<Grants>, now: Time, room: usize) -> Vec<Sent> {
    let mut out = Vec::new();
    loop {
        engine.memory().set_record(vec![0; room]);
        let sent = engine.poll_near(now, ID, room, false);
        let record = engine.memory().take_record();
        let Some(sent) = sent else { break };
        assert!(sent.record_length() <= room && sent.record_length().is_multiple_of(64));
        assert!(sent.payload_at >= near::RECORD_HEAD + sent.header_length);
        let mut header = sent.header().to_vec();
        assert!(header[1] & 0x30 == 0, "a record has no padding");
        if header[8] & 0x40 != 0 {
            header[8] &= !0x40;
            header.truncate(header.len() - 4);
        }
        header[1] |= packet::pad(sent.payload_length) << 4;
        let in_record = &record[sent.payload_at..];
        let payload = match sent.lent {
            true => engine.memory().lent(&in_record[..near::LENT_LEN]),
            false => in_record[..sent.payload_length].to_vec(),
        };
        assert_eq!(payload.len(), sent.payload_length);
        let pad = vec![0; usize::from(packet::pad(payload.len())) + 4];
        let bytes = [&header[..], &payload, &pad].concat();
        let packet = Packet::parse(&bytes).expect("sent packets are well formed");
        assert_eq!(Bth::LEN + packet.headers.length(), header.len());
        out.push(Sent { bytes, index: 0 });
        assert!(
            out.len() <= STORM,
            "{} records caused by one step",
            out.len()
        );
    }
    out
}
