//! The program that the kernel runs for each datagram that arrives at the socket.
//!
//! It is a socket filter of BPF. It sees the datagram from the UDP header on, and returns how many bytes of it the
//! socket gets: all, none, or the UDP header only. The header alone arrives as an empty datagram, which wakes a sleeping
//! reader. Several processors may run it at the same time.
//!
//! ```text
//! an empty datagram is dropped (the socket's reader has no use for it, and an empty datagram means a wake-up)
//! WORD += 1; TO_SOCKET was set -> PASS
//! longer than a slot, of another family, from a link-local address, no free slot -> TURN
//! reserves the slot at HEAD, fills it, publishes its sequence number
//! TO_SOCKET is set now -> returns the UDP header; else returns nothing
//! TURN: sets TO_SOCKET; TURNS += 1
//! PASS: returns the whole datagram
//! ```

use std::os::fd::RawFd;

use super::layout::{
    DATA, FIRST_SLOT, FREED, HEAD, LENGTH, ROOM, SEGMENT, SEQUENCE, SLOT_BITS, SLOTS, SOURCE,
    TURNS, UDP_HEADER, WORD,
};

/// Attempts to reserve a slot while other processors reserve slots. After the last one the datagram passes to the socket.
const ATTEMPTS: usize = 4;

/// Fields of `struct __sk_buff`.
const SKB_LEN: i16 = 0;
const SKB_PROTOCOL: i16 = 16;
const SKB_GSO_SIZE: i16 = 176;
/// Protocol numbers of Ethernet.
const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
/// Offsets of the sender's address in the IP headers.
const IPV4_SOURCE: i32 = 12;
const IPV6_SOURCE: i32 = 8;
/// Helper functions of the kernel.
const SKB_LOAD_BYTES: i32 = 26;
const SKB_LOAD_BYTES_RELATIVE: i32 = 68;
const FROM_NETWORK_HEADER: i32 = 1;

/// One instruction, `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Places that jumps lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Label {
    Drop,
    Reserved,
    Unfilled,
    Turn,
    Pass,
    Wake,
}

/// Returns the program for a socket of IPv4 or IPv6, with the memory of the map `map`.
pub(super) fn program(map: RawFd, ipv6: bool) -> Vec<Instruction> {
    let mut a = Assembler::default();
    let (protocol, source_at, source_length) = if ipv6 {
        (ETH_P_IPV6, IPV6_SOURCE, 16)
    } else {
        (ETH_P_IP, IPV4_SOURCE, 4)
    };
    let at = |offset: usize| offset as i16;
    let in_slot = |offset: usize| (FIRST_SLOT + offset) as i16;

    // r6: the datagram, r7: its length, r9: the memory.
    a.copy(6, 1);
    a.load32(7, 6, SKB_LEN);
    a.jump_if(JLE, 7, UDP_HEADER as i32, Label::Drop);
    a.map_value(9, map);
    a.set(1, 1);
    a.atomic(FETCH_ADD, 9, 1, at(WORD));
    a.jump_if(JSLT, 1, 0, Label::Pass);

    a.jump_if(JGT, 7, ROOM as i32, Label::Turn);
    a.load32(1, 6, SKB_PROTOCOL);
    a.jump_if(JNE, 1, i32::from(protocol.to_be()), Label::Turn);
    if ipv6 {
        // A link-local sender has a scope, which only the socket reports.
        a.load_from_header(source_at, 10, -24, 2, Label::Turn);
        a.load16(1, 10, -24);
        a.and(1, i32::from(0xffc0_u16.to_be()));
        a.jump_if(JEQ, 1, i32::from(0xfe80_u16.to_be()), Label::Turn);
    }

    // r8: the position of the slot that this run reserves.
    a.load64(0, 9, at(HEAD));
    for _ in 0..ATTEMPTS {
        a.load64(1, 9, at(FREED));
        a.copy(2, 0);
        a.subtract(2, 1);
        a.jump_if(JGT, 2, SLOTS as i32 - 1, Label::Turn);
        a.copy(8, 0);
        a.copy(1, 0);
        a.add(1, 1);
        // Compares with r0, which gets the old value.
        a.atomic(COMPARE_EXCHANGE, 9, 1, at(HEAD));
        a.jump_if_equal(0, 8, Label::Reserved);
    }
    a.jump(Label::Turn);

    a.here(Label::Reserved);
    a.copy(1, 8);
    a.add(1, 1);
    a.store64(10, 1, -8);
    a.and(8, SLOTS as i32 - 1);
    a.shift_left(8, SLOT_BITS as i32);
    a.add_register(8, 9);
    a.load32(1, 6, SKB_GSO_SIZE);
    a.store32(8, 1, in_slot(SEGMENT));
    a.load_from_header(
        source_at,
        8,
        i32::from(in_slot(SOURCE)),
        source_length,
        Label::Unfilled,
    );
    a.copy(1, 6);
    a.set(2, 0);
    a.copy(3, 8);
    a.add(3, i32::from(in_slot(DATA)));
    a.copy(4, 7);
    a.call(SKB_LOAD_BYTES);
    a.jump_if(JNE, 0, 0, Label::Unfilled);
    a.store32(8, 7, in_slot(LENGTH));
    // The exchange is a full barrier: the slot is filled before it, and the mode is read after it.
    a.load64(1, 10, -8);
    a.atomic(EXCHANGE, 8, 1, in_slot(SEQUENCE));
    a.load64(1, 9, at(WORD));
    a.jump_if(JSLT, 1, 0, Label::Wake);
    a.here(Label::Drop);
    a.return_value(0);

    a.here(Label::Wake);
    a.return_value(UDP_HEADER as i32);

    // A reserved slot is published in any case, or the reader would wait for it for ever.
    a.here(Label::Unfilled);
    a.set(1, 0);
    a.store32(8, 1, in_slot(LENGTH));
    a.load64(1, 10, -8);
    a.atomic(EXCHANGE, 8, 1, in_slot(SEQUENCE));

    a.here(Label::Turn);
    a.minimum(1);
    a.atomic(FETCH_OR, 9, 1, at(WORD));
    a.set(1, 1);
    a.atomic(FETCH_ADD, 9, 1, at(TURNS));
    a.here(Label::Pass);
    a.return_value(-1);
    a.finish()
}

const JGT: u8 = 0x25;
const JNE: u8 = 0x55;
const JEQ: u8 = 0x15;
const JLE: u8 = 0xb5;
const JSLT: u8 = 0xc5;
const FETCH_ADD: i32 = 0x01;
const FETCH_OR: i32 = 0x41;
const EXCHANGE: i32 = 0xe1;
const COMPARE_EXCHANGE: i32 = 0xf1;

/// Makes instructions, and jumps to places that follow.
#[derive(Default)]
struct Assembler {
    code: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Assembler {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.code.push(Instruction {
            code,
            registers: to | from << 4,
            offset,
            immediate,
        });
    }

    fn copy(&mut self, to: u8, from: u8) {
        self.put(0xbf, to, from, 0, 0);
    }

    fn set(&mut self, to: u8, value: i32) {
        self.put(0xb7, to, 0, 0, value);
    }

    /// Sets `to` to the number whose highest bit alone is set, which is `TO_SOCKET`.
    fn minimum(&mut self, to: u8) {
        self.set(to, 1);
        self.shift_left(to, 63);
    }

    fn add(&mut self, to: u8, value: i32) {
        self.put(0x07, to, 0, 0, value);
    }

    fn add_register(&mut self, to: u8, from: u8) {
        self.put(0x0f, to, from, 0, 0);
    }

    fn subtract(&mut self, to: u8, from: u8) {
        self.put(0x1f, to, from, 0, 0);
    }

    fn and(&mut self, to: u8, value: i32) {
        self.put(0x57, to, 0, 0, value);
    }

    fn shift_left(&mut self, to: u8, bits: i32) {
        self.put(0x67, to, 0, 0, bits);
    }

    fn load16(&mut self, to: u8, base: u8, offset: i16) {
        self.put(0x69, to, base, offset, 0);
    }

    fn load32(&mut self, to: u8, base: u8, offset: i16) {
        self.put(0x61, to, base, offset, 0);
    }

    fn load64(&mut self, to: u8, base: u8, offset: i16) {
        self.put(0x79, to, base, offset, 0);
    }

    fn store32(&mut self, base: u8, from: u8, offset: i16) {
        self.put(0x63, base, from, offset, 0);
    }

    fn store64(&mut self, base: u8, from: u8, offset: i16) {
        self.put(0x7b, base, from, offset, 0);
    }

    fn atomic(&mut self, operation: i32, base: u8, operand: u8, offset: i16) {
        self.put(0xdb, base, operand, offset, operation);
    }

    /// Sets `to` to the address of the value of the array map `map`, which has one element.
    fn map_value(&mut self, to: u8, map: RawFd) {
        const PSEUDO_MAP_VALUE: u8 = 2;
        self.put(0x18, to, PSEUDO_MAP_VALUE, 0, map);
        self.put(0, 0, 0, 0, 0);
    }

    /// Copies `length` bytes at `offset` of the IP header to `base` plus `displacement`. Jumps to `failed` if it cannot.
    fn load_from_header(
        &mut self,
        offset: i32,
        base: u8,
        displacement: i32,
        length: i32,
        failed: Label,
    ) {
        self.copy(1, 6);
        self.set(2, offset);
        self.copy(3, base);
        self.add(3, displacement);
        self.set(4, length);
        self.set(5, FROM_NETWORK_HEADER);
        self.call(SKB_LOAD_BYTES_RELATIVE);
        self.jump_if(JNE, 0, 0, failed);
    }

    fn call(&mut self, helper: i32) {
        self.put(0x85, 0, 0, 0, helper);
    }

    fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.put(0x05, 0, 0, 0, 0);
    }

    fn jump_if(&mut self, condition: u8, register: u8, value: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.put(condition, register, 0, 0, value);
    }

    fn jump_if_equal(&mut self, a: u8, b: u8, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.put(0x1d, a, b, 0, 0);
    }

    fn return_value(&mut self, value: i32) {
        self.set(0, value);
        self.put(0x95, 0, 0, 0, 0);
    }

    fn here(&mut self, label: Label) {
        self.labels.push((label, self.code.len()));
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (at, to) in self.jumps {
            let place = self.labels.iter().find(|(label, _)| *label == to);
            let place = place.expect("each label has a place").1;
            self.code[at].offset = (place - at - 1) as i16;
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_forward_and_end_inside_the_program() {
        for ipv6 in [false, true] {
            let program = program(3, ipv6);
            let is_jump =
                |i: &Instruction| matches!(i.code & 7, 5) && !matches!(i.code, 0x85 | 0x95);
            let mut jumps = 0;
            for (at, instruction) in program.iter().enumerate().filter(|(_, i)| is_jump(i)) {
                assert!(instruction.offset >= 0);
                assert!(at + 1 + (instruction.offset as usize) < program.len());
                jumps += 1;
            }
            assert_eq!(jumps, if ipv6 { 18 } else { 16 });
            assert_eq!(program.last().unwrap().code, 0x95);
        }
    }

    #[test]
    fn registers_and_offsets_are_encoded_as_the_kernel_reads_them() {
        let program = program(7, false);
        // r6 = r1; r7 = *(u32 *)(r6 + 0)
        assert_eq!((program[0].code, program[0].registers), (0xbf, 0x16));
        assert_eq!((program[1].code, program[1].registers), (0x61, 0x67));
        let map = program.iter().find(|i| i.code == 0x18).unwrap();
        assert_eq!((map.registers, map.immediate), (0x29, 7));
        assert_eq!(size_of::<Instruction>(), 8);
    }
}
