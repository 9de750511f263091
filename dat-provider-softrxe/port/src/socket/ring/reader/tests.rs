//! The reader, with the kernel's part played step by step.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::super::layout::{DATA, HEAD, LENGTH, SEGMENT, SEQUENCE, SLOT, SOURCE, TURNS, WORD};
use super::*;

/// What the kernel does, one step at a time.
struct Kernel {
    memory: Memory,
    socket: VecDeque<Vec<u8>>,
}

/// A datagram whose run saw the mode "ring" and has reserved a slot.
#[derive(Clone, Copy)]
struct Run(u64);

/// Fills and publishes a slot. Returns whether an empty datagram follows.
fn fill(memory: &Memory, run: Run, payload: &[u8]) -> bool {
    let length = (UDP_HEADER + payload.len()) as u32;
    memory.write(run.0, LENGTH, &length.to_ne_bytes());
    memory.write(run.0, SEGMENT, &[0; 4]);
    memory.write(run.0, SOURCE, &[127, 0, 0, 9]);
    memory.write(run.0, DATA, &[0x12, 0xb7]);
    memory.write(run.0, DATA + UDP_HEADER, payload);
    memory.write(run.0, SEQUENCE, &(run.0 + 1).to_ne_bytes());
    memory.word() & TO_SOCKET != 0
}

impl Kernel {
    fn new() -> (Self, Reader) {
        let memory = Memory::anonymous();
        let socket = VecDeque::new();
        (Self { memory, socket }, Reader::new(false).unwrap())
    }

    fn enter(&self) -> bool {
        self.memory.raw(WORD).fetch_add(1, Ordering::SeqCst) & TO_SOCKET == 0
    }

    fn reserve(&self) -> Run {
        Run(self.memory.raw(HEAD).fetch_add(1, Ordering::SeqCst))
    }

    fn publish(&mut self, run: Run, payload: &[u8]) {
        if fill(&self.memory, run, payload) {
            self.socket.push_back(Vec::new());
        }
    }

    fn turn(&self) {
        self.memory.raw(WORD).fetch_or(TO_SOCKET, Ordering::SeqCst);
        self.memory.raw(TURNS).fetch_add(1, Ordering::SeqCst);
    }

    /// A short datagram.
    fn short(&mut self, payload: &[u8]) {
        if self.enter() {
            let run = self.reserve();
            self.publish(run, payload);
        } else {
            self.socket.push_back(payload.to_vec());
        }
    }

    /// A datagram that no slot has room for.
    fn long(&mut self, payload: &[u8]) {
        if self.enter() {
            self.turn();
        }
        self.socket.push_back(payload.to_vec());
    }

    fn look(&mut self, reader: &mut Reader) -> Option<Vec<u8>> {
        self.look_while(reader, |_| ())
    }

    /// `meanwhile` runs when the reader has found the ring empty and reads the socket.
    fn look_while(
        &mut self,
        reader: &mut Reader,
        mut meanwhile: impl FnMut(&Memory),
    ) -> Option<Vec<u8>> {
        let (mut into, socket) = (Received::new(), &mut self.socket);
        let read = |into: &mut Received| {
            meanwhile(&self.memory);
            let Some(datagram) = socket.pop_front() else {
                return Ok(false);
            };
            into.length = datagram.len();
            into.segment = into.length.max(1);
            into.bytes[..into.length].copy_from_slice(&datagram);
            Ok(true)
        };
        let found = reader.look(&self.memory, &mut into, read).unwrap();
        found.then(|| into.bytes[..into.length].to_vec())
    }

    fn uses_ring(&self) -> bool {
        self.memory.word() & TO_SOCKET == 0
    }
}

#[test]
fn slots_come_before_what_passed_to_the_socket_after_them() {
    let (mut kernel, mut reader) = Kernel::new();
    kernel.short(b"before the ring");
    assert_eq!(kernel.look(&mut reader).unwrap(), b"before the ring");
    assert_eq!(kernel.look(&mut reader), None);
    assert!(kernel.uses_ring());
    for round in 0..1000_u32 {
        let expected: Vec<_> = (0..4).map(|n| (round * 4 + n).to_ne_bytes()).collect();
        kernel.short(&expected[0]);
        kernel.long(&expected[1]);
        kernel.short(&expected[2]);
        kernel.long(&expected[3]);
        for bytes in expected {
            assert_eq!(kernel.look(&mut reader).unwrap(), bytes);
        }
        assert_eq!(kernel.look(&mut reader), None);
        assert!(kernel.uses_ring());
    }
}

#[test]
fn a_datagram_of_the_socket_waits_for_slots_that_were_filled_meanwhile() {
    let (mut kernel, mut reader) = Kernel::new();
    assert_eq!(kernel.look(&mut reader), None);
    assert!(kernel.enter());
    let mut run = Some(kernel.reserve());
    // Another source turns to the socket; then the source of the run does.
    kernel.long(b"second");
    let found = kernel.look_while(&mut reader, |memory| {
        fill(memory, run.take().expect("one read"), b"first");
    });
    assert_eq!(found.unwrap(), b"first");
    assert_eq!(kernel.look(&mut reader).unwrap(), b"second");
    assert_eq!(kernel.look(&mut reader), None);
    assert!(kernel.uses_ring());
}

#[test]
fn the_mode_stays_with_the_socket_while_a_run_is_in_progress() {
    let (mut kernel, mut reader) = Kernel::new();
    assert_eq!(kernel.look(&mut reader), None);
    kernel.long(b"1");
    // The run has seen the mode "socket" and has not passed its datagram on.
    assert!(!kernel.enter());
    assert_eq!(kernel.look(&mut reader).unwrap(), b"1");
    for _ in 0..10 {
        assert_eq!(kernel.look(&mut reader), None);
        assert!(!kernel.uses_ring());
    }
    kernel.socket.push_back(b"2".to_vec());
    kernel.short(b"3");
    for expected in [b"2", b"3"] {
        assert_eq!(kernel.look(&mut reader).unwrap(), expected);
    }
    assert_eq!(kernel.look(&mut reader), None);
    assert!(kernel.uses_ring());
}

#[test]
fn a_run_that_begins_while_the_mode_is_set_keeps_it() {
    let (mut kernel, mut reader) = Kernel::new();
    let word = kernel.memory.word();
    assert_eq!(
        kernel.look_while(&mut reader, |memory| {
            memory.raw(WORD).fetch_add(1, Ordering::SeqCst);
        }),
        None
    );
    assert_eq!(kernel.memory.word(), word + 1);
    assert!(!kernel.uses_ring());
}

#[test]
fn datagrams_that_the_socket_dropped_keep_the_ring_idle_for_a_while() {
    let (mut kernel, mut reader) = Kernel::new();
    assert_eq!(kernel.look(&mut reader), None);
    kernel.long(b"1");
    kernel.long(b"dropped");
    kernel.socket.pop_back();
    assert_eq!(kernel.look(&mut reader).unwrap(), b"1");
    assert_eq!(kernel.look(&mut reader), None);
    assert!(!kernel.uses_ring());
    // One more is on its way when the time is over: it is not counted as lost.
    kernel.enter();
    let (since, least) = reader.missing.unwrap();
    assert_eq!(least, 1);
    reader.missing = Some((since.checked_sub(LOST_AFTER).unwrap(), least));
    assert_eq!(kernel.look(&mut reader), None);
    assert!(!kernel.uses_ring());
    kernel.socket.push_back(b"2".to_vec());
    assert_eq!(kernel.look(&mut reader).unwrap(), b"2");
    assert_eq!(kernel.look(&mut reader), None);
    assert!(kernel.uses_ring());
}

#[test]
fn a_thread_sleeps_only_if_each_later_datagram_reaches_the_socket() {
    let (mut kernel, mut reader) = Kernel::new();
    assert_eq!(kernel.look(&mut reader), None);
    kernel.short(b"waits");
    assert!(!reader.arm(&kernel.memory, false));
    reader.disarm(false);
    assert_eq!(kernel.look(&mut reader).unwrap(), b"waits");
    assert_eq!(kernel.look(&mut reader), None);
    assert!(kernel.uses_ring());
    // A run that saw the mode "ring" before.
    kernel.enter();
    let run = kernel.reserve();
    assert!(reader.arm(&kernel.memory, false));
    kernel.publish(run, b"wakes");
    assert_eq!(kernel.socket.len(), 1);
    kernel.short(b"next");
    assert_eq!(kernel.socket.len(), 2);
    assert_eq!(kernel.look(&mut reader).unwrap(), b"wakes");
    assert_eq!(kernel.look(&mut reader).unwrap(), b"next");
    // Another thread receives while this one sleeps, and one pauses.
    assert_eq!(kernel.look(&mut reader), None);
    assert!(!kernel.uses_ring());
    assert!(reader.arm(&kernel.memory, true));
    reader.disarm(false);
    assert_eq!(kernel.look(&mut reader), None);
    assert!(!kernel.uses_ring());
    reader.disarm(true);
    assert_eq!(kernel.look(&mut reader), None);
    assert!(kernel.uses_ring());
}

#[test]
fn a_successor_takes_what_is_left_and_uses_the_socket() {
    let (mut kernel, mut reader) = Kernel::new();
    assert_eq!(kernel.look(&mut reader), None);
    for n in 0..100_u32 {
        kernel.short(&n.to_ne_bytes());
    }
    for n in 0..30_u32 {
        assert_eq!(kernel.look(&mut reader).unwrap(), n.to_ne_bytes());
    }
    drop(reader);
    let mut next = Reader::of_predecessor(false, &kernel.memory).unwrap();
    kernel.short(&100_u32.to_ne_bytes());
    assert!(!next.arm(&kernel.memory, false));
    next.disarm(false);
    for n in 30..=100_u32 {
        assert_eq!(kernel.look(&mut next).unwrap(), n.to_ne_bytes());
    }
    assert_eq!(kernel.look(&mut next), None);
    assert!(!kernel.uses_ring() && next.arm(&kernel.memory, false));
}

#[test]
fn any_content_of_a_slot_is_a_read_of_at_most_its_size_or_none() {
    let (mut kernel, mut reader) = Kernel::new();
    let mut random = fastrand::Rng::with_seed(3);
    assert_eq!(kernel.look(&mut reader), None);
    for position in 0..20_000_u64 {
        let mut bytes = [0; SLOT];
        random.fill(&mut bytes);
        if random.bool() {
            bytes[LENGTH..LENGTH + 4].copy_from_slice(&random.u32(0..1000).to_ne_bytes());
        }
        bytes[..8].copy_from_slice(&(position + 1).to_ne_bytes());
        kernel.memory.write(position, 0, &bytes);
        let found = kernel.look(&mut reader);
        assert!(found.is_none_or(|found| (1..=ROOM - UDP_HEADER).contains(&found.len())));
        assert_eq!(reader.next, position + 1);
    }
}
