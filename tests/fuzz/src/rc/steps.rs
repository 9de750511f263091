//! The possible steps.

use std::ops::Range;
use std::time::Duration;

use softrxe_proto::opcode::Opcode;
use softrxe_proto::wire::{Aeth, AtomicEth, Bth, Deth, Headers, Packet, Reth, packet};
use softrxe_proto::{Link, MwBind, NearId, Op, Qpn, Remote, Rights, WindowType};

use super::world::{BELOW, INBOX, OPEN, OUTBOX, READABLE, SECRET, World};
use crate::input::Input;
use crate::memory::{BASE, sge};
use crate::packets::{append_icrc, deliver, headers_of, with_icrc};
use crate::records;

/// Bits of a raw packet's first byte: the fields that are corrected before it is sent.
const FIX_QPN: u8 = 1;
const FIX_PSN: u8 = 2;
const FIX_KEY: u8 = 4;
/// Number of the step that replays a captured packet.
pub(crate) const RAW_STEP: u8 = 6;

const PAYLOADS: &[usize] = &[0, 1, 7, 8, 255, 256, 257, 1024, 1023, 4096, 64, 300];

impl World {
    pub(super) fn step(&mut self, input: &mut Input<'_>) {
        if self.link != Link::Wire && input.below(4) == 3 {
            return self.record(input);
        }
        match input.below(18) {
            0..=5 => self.request(input),
            6 => self.raw(input),
            7 | 8 => self.post_receive(input),
            9 => self.change_grants(input),
            10 => self.pass_time(input),
            11 => self.post_send(input),
            12..=14 => self.answer(input),
            15 => self.bind(input),
            16 => self.engine.fail_qp(self.now, self.qpn),
            _ => self.reset(input),
        }
    }

    pub(super) fn key(&self, input: &mut Input<'_>) -> u32 {
        let known = [
            OPEN.0,
            OPEN.0,
            OPEN.0,
            READABLE.0,
            SECRET.0,
            INBOX.0,
            BELOW.0,
            self.keys[0],
            self.keys[1],
            OPEN.0 | 1,
            0,
        ];
        input.pick(&known)
    }

    pub(super) fn address(input: &mut Input<'_>) -> u64 {
        let starts = [
            OPEN.1.start,
            OPEN.1.start,
            OPEN.1.start,
            READABLE.1.start,
            BELOW.1.start,
            SECRET.1.start,
            INBOX.1.start,
        ];
        let start = BASE + input.pick(&starts) as u64;
        let offset = input.pick(&[0, 0, 8, 1, -1, 1000, 2040, 2047, 2048, i64::MIN]);
        start.wrapping_add_signed(offset)
    }

    /// Returns all extended headers; a packet takes those of its opcode.
    pub(super) fn headers(&self, input: &mut Input<'_>, length: usize) -> Headers {
        let va = Self::address(input);
        let rkey = self.key(input);
        let whole = length as u32;
        let mtu = u32::from(self.mtu);
        let bytes = [
            whole,
            whole,
            mtu,
            2 * mtu,
            mtu + whole,
            2 * mtu + whole,
            0,
            2048,
            2049,
            1 << 31,
            u32::MAX,
        ];
        Headers {
            deth: Some(Deth {
                qkey: input.u8().into(),
                source: Qpn::GSI,
            }),
            reth: Some(Reth {
                va,
                rkey,
                length: input.pick(&bytes),
            }),
            atomic: Some(AtomicEth {
                va,
                rkey,
                swap_or_add: 3,
                compare: 0xaaaa_aaaa_aaaa_aaaa,
            }),
            aeth: Some(Aeth {
                syndrome: 0x1f,
                msn: input.u8().into(),
            }),
            original: Some(input.u8().into()),
            immediate: Some(*b"imm!"),
            invalidate: Some(rkey),
        }
    }

    fn request(&mut self, input: &mut Input<'_>) {
        let opcode = input.pick(Opcode::ALL);
        let length = match input.below(3) {
            0 => usize::from(self.mtu),
            _ => input.pick(PAYLOADS),
        };
        let delta = input.pick(&[0, 0, 0, 0, 0, 0, 1, 2, -1, -2, -5, -100, 100, 0x7f_ffff]);
        let psn = self.expected.plus(delta as u32);
        let headers = headers_of(opcode, &self.headers(input, length));
        let mut bth = Bth::new(opcode as u8, self.qpn, psn);
        bth.ack_request = input.flag();
        self.give(bth, opcode, headers, length);
        if delta == 0 {
            let count = match headers.reth {
                Some(reth) if opcode == Opcode::ReadRequest => {
                    reth.length.div_ceil(self.mtu.into()).max(1)
                }
                _ => 1,
            };
            self.expected = psn.plus(count);
        }
    }

    fn answer(&mut self, input: &mut Input<'_>) {
        let opcode = input.pick(&[
            Opcode::Acknowledge,
            Opcode::Acknowledge,
            Opcode::AtomicAcknowledge,
            Opcode::ReadResponseFirst,
            Opcode::ReadResponseMiddle,
            Opcode::ReadResponseLast,
            Opcode::ReadResponseOnly,
        ]);
        let length = match opcode.is_read_response() {
            true => input.pick(&[usize::from(self.mtu), 8, 44, 0, 188, 1, 700]),
            false => 0,
        };
        let psn = self.high.minus(input.below(20) as u32).plus(2);
        let mut headers = headers_of(opcode, &self.headers(input, length));
        let syndrome = input.pick(&[0x1f, 0x1f, 0x1f, 0, 0x20, 0x2c, 0x60, 0x60, 0x61, 0x80]);
        headers.aeth = headers.aeth.map(|aeth| Aeth { syndrome, ..aeth });
        self.give(
            Bth::new(opcode as u8, self.qpn, psn),
            opcode,
            headers,
            length,
        );
    }

    fn give(&mut self, mut bth: Bth, opcode: Opcode, headers: Headers, length: usize) {
        bth.pad = packet::pad(length);
        let bytes = with_icrc(&Packet {
            bth,
            opcode,
            headers,
            payload: &vec![0x5b; length],
        });
        self.deliver(&bytes);
    }

    /// Delivers a datagram of the peer, or its record.
    fn deliver(&mut self, bytes: &[u8]) {
        if self.link == Link::Wire {
            return deliver(&mut self.engine, self.now, bytes);
        }
        let (header, payload) = records::split(bytes);
        records::deliver(&mut self.engine, self.now, records::ID, &header, &payload);
    }

    /// Delivers a record that no correct peer sends, or changes the room for ours.
    fn record(&mut self, input: &mut Input<'_>) {
        let header = match input.below(6) {
            4 | 5 => return self.lent(input),
            0 => {
                self.room = input.pick(&[records::ROOM, 0, 64, 128, 4096]);
                return;
            }
            1 => input.bytes(64).to_vec(),
            _ => {
                let opcode = input.pick(Opcode::ALL);
                let psn = self.expected.minus(input.below(3) as u32);
                let length = usize::from(self.mtu);
                let headers = headers_of(opcode, &self.headers(input, length));
                let to = input.pick(&[self.qpn, self.qpn, self.qpn, self.datagrams]);
                let mut header = record_header(&Bth::new(opcode as u8, to, psn), &headers);
                let acknowledged = self.high.minus(input.below(8) as u32).plus(2);
                records::acknowledge(&mut header, acknowledged.value(), input);
                header
            }
        };
        let length = input.pick(&[0, usize::from(self.mtu), 8, 1, 64, 8000]);
        let id = input.pick(&[records::ID, records::ID, records::OTHER, NearId(7)]);
        let payload = vec![0x5b; length];
        records::deliver(&mut self.engine, self.now, id, &header, &payload);
    }

    /// Sends bytes as a packet, corrected as the first byte says.
    fn raw(&mut self, input: &mut Input<'_>) {
        let fix = input.u8();
        let length = usize::from(input.u16()) % 4300;
        let mut bytes = input.bytes(length).to_vec();
        // Parsing needs room for an ICRC.
        bytes.extend([0; 4]);
        let sealed = match Packet::parse(&bytes) {
            Ok(mut packet) => {
                if fix & FIX_QPN != 0 {
                    packet.bth.destination = self.qpn;
                }
                if fix & FIX_PSN != 0 {
                    let to = match packet.opcode.is_response() {
                        true => self.high.minus(1),
                        false => self.expected,
                    };
                    packet.bth.psn = to;
                }
                if let (Some(reth), true) = (&mut packet.headers.reth, fix & FIX_KEY != 0) {
                    reth.rkey = OPEN.0;
                    reth.va = BASE + OPEN.1.start as u64 + (reth.va & 0x3f8);
                }
                if let (Some(atomic), true) = (&mut packet.headers.atomic, fix & FIX_KEY != 0) {
                    atomic.rkey = OPEN.0;
                    atomic.va = BASE + OPEN.1.start as u64 + (atomic.va & 0x3f8);
                }
                if fix & FIX_PSN != 0 && packet.opcode.request().is_some() {
                    self.expected = self.expected.plus(1);
                }
                with_icrc(&packet)
            }
            Err(_) => {
                bytes.truncate(bytes.len() - 4);
                append_icrc(bytes)
            }
        };
        self.deliver(&sealed);
    }

    /// Returns a part of `region`.
    fn part(input: &mut Input<'_>, region: &Range<usize>) -> Range<usize> {
        let start = region.start + 8 * input.below(64);
        start..start + input.pick(&[256, 8, 0, 1, 300, 700, 1024, 1500])
    }

    pub(super) fn post_receive(&mut self, input: &mut Input<'_>) {
        let places: Vec<_> = (0..=input.below(2))
            .map(|_| Self::part(input, &INBOX.1))
            .collect();
        let sges: Vec<_> = places.iter().map(|p| sge(INBOX.0, p.clone())).collect();
        self.receive(&sges, places);
    }

    pub(super) fn post_send(&mut self, input: &mut Input<'_>) {
        let remote = Remote {
            address: 0x7000,
            key: 0x99,
        };
        let kind = input.below(10);
        let mut place = Self::part(input, &OUTBOX.1);
        let op = match kind {
            0 => Op::Send,
            1 => Op::SendImm(*b"abcd"),
            2 => Op::SendInvalidate(5),
            3 => Op::Write(remote),
            4 => Op::WriteImm(remote, *b"efgh"),
            5 | 6 => Op::Read(remote),
            7 => Op::LocalInvalidate(self.keys[1]),
            8 => Op::CompareSwap {
                remote,
                compare: 1,
                swap: 2,
            },
            _ => Op::FetchAdd { remote, add: 1 },
        };
        if kind >= 8 {
            place.end = place.start + 8;
        }
        let segment = [sge(OUTBOX.0, place.clone())];
        let sges = if kind == 7 { &[][..] } else { &segment };
        let fence = input.flag();
        self.send(op, sges, place, fence);
    }

    /// Revokes the peer's right, or grants it again.
    fn change_grants(&mut self, input: &mut Input<'_>) {
        let remote = Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC;
        match input.below(4) {
            0 => self.memory.revoke(OPEN.0),
            1 => self.memory.revoke(READABLE.0),
            2 => drop(
                self.memory
                    .grant(READABLE.0, READABLE.1, Rights::REMOTE_READ),
            ),
            _ => drop(self.memory.grant(OPEN.0, OPEN.1, remote)),
        }
    }

    fn bind(&mut self, input: &mut Input<'_>) {
        let which = input.below(2);
        let old_key = self.keys[which];
        let new_key = old_key & !0xff | (old_key + 1) & 0xff;
        let start = BELOW.1.start + 8 * input.below(32);
        let bind = MwBind {
            window: old_key.into(),
            order: 1,
            new_key,
            lkey: BELOW.0,
            address: BASE + start as u64,
            length: input.pick(&[512, 8, 0]),
            rights: input.pick(&[
                Rights::REMOTE_WRITE,
                Rights::REMOTE_READ,
                Rights::REMOTE_ATOMIC,
            ]),
            kind: [WindowType::Type1, WindowType::Type2][which],
        };
        self.send(Op::Bind(bind), &[], 0..0, false);
        self.settle();
        // The window is bound, waits for earlier requests, or failed: the next bind uses its present key.
        if self.memory.has_key(new_key) {
            self.keys[which] = new_key;
        }
    }

    fn pass_time(&mut self, input: &mut Input<'_>) {
        self.now = match (input.flag(), self.engine.poll_timeout()) {
            (true, Some(at)) => self.now.max(at),
            _ => self.now + Duration::from_micros(input.u8().into()),
        };
        self.engine.handle_timeout(self.now);
    }
}

/// Returns transport headers as a record has them.
pub(super) fn record_header(bth: &Bth, headers: &Headers) -> Vec<u8> {
    let mut header = vec![0; 64];
    bth.emit(&mut header);
    let end = Bth::LEN + headers.emit(&mut header[Bth::LEN..]);
    header.truncate(end);
    header
}
