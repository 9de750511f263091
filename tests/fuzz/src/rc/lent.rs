//! Steps with long payloads that stay in the sender's memory: the peer lends some, or the engine does.
//!
//! The peer's memory is of any length, and unreadable from any byte on. What the engine lends is taken back when its key is revoked
//! and when the queue pair ends.

use softrxe_proto::opcode::Opcode;
use softrxe_proto::wire::{Aeth, Bth, Reth};
use softrxe_proto::{Op, Remote, Rights, near};

use super::steps::record_header;
use super::world::{LONG, World};
use crate::input::Input;
use crate::memory::{BASE, Borrowed, sge};
use crate::packets::headers_of;
use crate::records;

/// Lengths of what is lent. The last ones are more than any region has.
const LENGTHS: &[usize] = &[
    near::MIN_LENT as usize,
    4096,
    LONG.1.end - LONG.1.start,
    1,
    0,
    20_000,
    8192,
    near::MAX_LENT as usize - 1,
    near::MAX_LENT as usize,
];
/// Opcodes of packets that may lend their payload, in the order in which the seed picks them.
const OPCODES: &[Opcode] = &[
    Opcode::WriteOnly,
    Opcode::SendOnly,
    Opcode::ReadResponseOnly,
    Opcode::WriteFirst,
    Opcode::WriteMiddle,
    Opcode::WriteLast,
    Opcode::SendFirst,
    Opcode::SendMiddle,
    Opcode::SendLast,
    Opcode::ReadResponseFirst,
    Opcode::ReadResponseMiddle,
    Opcode::ReadResponseLast,
    Opcode::WriteOnlyImm,
    Opcode::SendOnlyInvalidate,
    Opcode::ReadRequest,
    Opcode::FetchAdd,
];

impl World {
    pub(super) fn lent(&mut self, input: &mut Input<'_>) {
        match input.below(8) {
            0 => self.memory.set_lends(input.below(4) != 3),
            1 => self.post_long_send(input),
            2 => self.receive(&[sge(LONG.0, LONG.1)], vec![LONG.1]),
            3 => self.change_long_grant(input),
            4 => self.read_long(input),
            _ => self.peer_lends(input),
        }
    }

    /// Posts a request that is long enough to be lent, or a READ whose answer is.
    fn post_long_send(&mut self, input: &mut Input<'_>) {
        let remote = Remote {
            address: 0x7000,
            key: 0x99,
        };
        let op = input.pick(&[
            Op::Write(remote),
            Op::Send,
            Op::Read(remote),
            Op::WriteImm(remote, *b"long"),
            Op::SendInvalidate(5),
        ]);
        let length = input.pick(&[near::MIN_LENT as usize, LONG.1.len(), 20_000]);
        let place = LONG.1.start..LONG.1.start + length;
        let fence = input.flag();
        self.send(op, &[sge(LONG.0, place.clone())], place, fence);
    }

    /// Revokes the region, with what it lends, or grants it again.
    fn change_long_grant(&mut self, input: &mut Input<'_>) {
        let local = Rights::LOCAL_READ | Rights::LOCAL_WRITE;
        let remote = Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC;
        match input.below(3) {
            0 => self.memory.revoke(LONG.0),
            1 => drop(self.memory.grant(LONG.0, LONG.1, local)),
            _ => drop(self.memory.grant(LONG.0, LONG.1, local | remote)),
        }
    }

    /// Delivers a READ of the peer that is long enough for an answer that lends.
    fn read_long(&mut self, input: &mut Input<'_>) {
        let length = input.pick(LENGTHS) as u32;
        let opcode = Opcode::ReadRequest;
        let mut headers = headers_of(opcode, &self.headers(input, 0));
        headers.reth = Some(Reth {
            va: BASE + LONG.1.start as u64,
            rkey: LONG.0,
            length,
        });
        let bth = Bth::new(opcode as u8, self.qpn, self.expected);
        let header = record_header(&bth, &headers);
        records::deliver(&mut self.engine, self.now, records::ID, &header, &[]);
        let packets = length.div_ceil(self.mtu.into()).max(1);
        self.expected = self.expected.plus(packets);
    }

    /// Delivers a record of the peer whose payload is in its memory.
    fn peer_lends(&mut self, input: &mut Input<'_>) {
        let opcode = input.pick(OPCODES);
        let length = input.pick(LENGTHS);
        let readable = input.pick(&[usize::MAX, usize::MAX, 0, 1, length / 2, length.max(1) - 1]);
        let mut headers = headers_of(opcode, &self.headers(input, length));
        if input.below(4) != 3 {
            headers.reth = headers.reth.map(|reth| Reth {
                va: BASE + LONG.1.start as u64,
                rkey: LONG.0,
                length: reth.length,
            });
        }
        headers.aeth = headers.aeth.map(|aeth| Aeth {
            syndrome: 0x1f,
            ..aeth
        });
        let back = input.below(4) as u32;
        let psn = if opcode.is_response() {
            let packets = length.div_ceil(self.mtu.into()).max(1) as u32;
            self.high.minus(packets).plus(back)
        } else {
            self.expected.minus(back)
        };
        let mut bth = Bth::new(opcode as u8, self.qpn, psn);
        bth.ack_request = input.below(4) != 3;
        let header = record_header(&bth, &headers);
        let bytes = vec![0x6c; length];
        let memory = Borrowed { bytes, readable };
        records::deliver_lent(&mut self.engine, self.now, records::ID, &header, memory);
        if back == 0 && !opcode.is_response() {
            let packets = length.div_ceil(self.mtu.into()).max(1) as u32;
            self.expected = self.expected.plus(packets);
        }
    }
}

/// Returns an input that lends and borrows: in each direction, with success, failure and withdrawal.
pub(crate) fn seed() -> Vec<u8> {
    // Seed, path MTU 1024, all rights; PSNs, depths, retries, agreement; two receives and two requests.
    let mut seed = vec![1, 1, 7, 0, 0, 0, 0, 0, 0];
    seed.extend([0; 14]);
    // The queue pair is connected again, without the receives, which are too short.
    seed.extend([0, 17, 0, 0, 0, 0, 0, 0]);
    // A step that is a record of this file.
    let step = |decisions: &[u8]| [&[3, 4][..], decisions].concat();
    // The key and the address of the region; PSNs as expected; with a request for an acknowledgement.
    let good = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let lends = |opcode: u8, length: u8, readable: u8| {
        step(&[&[5, opcode, length, readable][..], &good].concat())
    };
    let long_receive = step(&[2]);
    let lending = step(&[0, 0]);
    for opcode in [0, 1] {
        for readable in [0, 2, 4] {
            seed.extend(&long_receive);
            seed.extend(lends(opcode, 0, readable));
            seed.extend(lends(opcode, 5, 0));
        }
    }
    seed.extend(&lending);
    seed.extend(step(&[4, 0, 0, 0, 0, 0, 0, 0, 0]));
    for op in 0..3 {
        seed.extend(step(&[1, op, 0, 0]));
        seed.extend(lends(2, 0, 0));
    }
    // The region is revoked, granted again, and the queue pair fails.
    seed.extend(step(&[3, 0]));
    seed.extend(step(&[3, 2]));
    seed.extend(step(&[1, 0, 1, 0]));
    seed.extend([0, 16]);
    seed
}
