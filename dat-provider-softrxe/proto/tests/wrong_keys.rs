//! A peer whose key does not grant the access loses its connection, whatever the request and whatever the fault of the key;
//! it is counted and logged.

mod common;

use std::time::Duration;

use common::lines::Lines;
use common::memory::{ALL, TestMemory};
use common::pair::Pair;
use softrxe_proto::opcode::Opcode;
use softrxe_proto::wire::{AtomicEth, Bth, Headers, Nak, Packet, Reth, Syndrome, packet};
use softrxe_proto::{
    Access, Event, Memory, MwBind, Pd, Psn, QpState, Qpn, Remote, Rights, WindowType,
};
use tracing::Level;

/// First PSN of side 0, and the path MTU.
const FIRST: u32 = 100;
const MTU: u32 = 1024;
/// Bytes of the target memory.
const SIZE: u32 = 4 * MTU;

/// Packets of one request, with the bytes that they access.
#[derive(Clone, Copy, Debug)]
struct Request {
    packets: &'static [Opcode],
    length: u32,
}

const fn request(packets: &'static [Opcode], length: u32) -> Request {
    Request { packets, length }
}

/// Every request that accesses memory: its last packet, and the right that it needs.
const REQUESTS: [(Request, Rights); 10] = [
    (request(&[Opcode::WriteOnly], 8), Rights::REMOTE_WRITE),
    (request(&[Opcode::WriteOnlyImm], 8), Rights::REMOTE_WRITE),
    (
        request(&[Opcode::WriteFirst], 2 * MTU),
        Rights::REMOTE_WRITE,
    ),
    (
        request(&[Opcode::WriteFirst], 3 * MTU),
        Rights::REMOTE_WRITE,
    ),
    (request(&[Opcode::WriteOnly], MTU), Rights::REMOTE_WRITE),
    (request(&[Opcode::ReadRequest], 1), Rights::REMOTE_READ),
    (
        request(&[Opcode::ReadRequest], 3 * MTU),
        Rights::REMOTE_READ,
    ),
    (request(&[Opcode::ReadRequest], SIZE), Rights::REMOTE_READ),
    (request(&[Opcode::CompareSwap], 8), Rights::REMOTE_ATOMIC),
    (request(&[Opcode::FetchAdd], 8), Rights::REMOTE_ATOMIC),
];

/// Returns packet `index` of `request` to `target`.
fn packet_of(request: &Request, index: usize, to: Qpn, target: Remote) -> Vec<u8> {
    let opcode = request.packets[index];
    let length = match opcode {
        Opcode::WriteFirst | Opcode::WriteMiddle => MTU,
        _ if opcode.has_atomic() || opcode == Opcode::ReadRequest => 0,
        _ => request.length - MTU * index as u32,
    };
    let headers = Headers {
        reth: opcode.has_reth().then_some(Reth {
            va: target.address,
            rkey: target.key,
            length: request.length,
        }),
        atomic: opcode.has_atomic().then_some(AtomicEth {
            va: target.address,
            rkey: target.key,
            swap_or_add: 7,
            compare: 0,
        }),
        immediate: opcode.has_immediate().then_some(*b"data"),
        ..Headers::default()
    };
    raw(opcode, to, FIRST + index as u32, headers, length)
}

/// Returns a packet, BTH to padding.
fn raw(opcode: Opcode, to: Qpn, psn: u32, headers: Headers, length: u32) -> Vec<u8> {
    let payload = vec![0x66; length as usize];
    let packet = Packet {
        bth: Bth {
            pad: packet::pad(payload.len()),
            ack_request: true,
            ..Bth::new(opcode as u8, to, Psn::new(psn))
        },
        opcode,
        headers,
        payload: &payload,
    };
    let mut bytes = vec![0; payload.len() + 100];
    let end = packet.emit(&mut bytes);
    bytes.truncate(end);
    bytes
}

/// Creates two connected queue pairs; the second has receives.
fn connected(name: &str) -> (Pair, Qpn) {
    let mut pair = Pair::new(name);
    let [_, b] = pair.connected_at([Psn::new(FIRST), Psn::new(5000)]);
    for id in 0..4 {
        pair.receive(1, b, id, &[]);
    }
    (pair, b)
}

/// Returns the NAK that side 1 sends.
fn nak(pair: &mut Pair) -> Option<Nak> {
    let mut buffer = vec![0; 65_000];
    let mut naks = Vec::new();
    while let Some(run) = pair.sides[1].engine.poll_transmit(pair.now, &mut buffer) {
        let packet = Packet::parse(&buffer[..run.length]).unwrap();
        let syndrome = packet
            .headers
            .aeth
            .and_then(|a| Syndrome::from_wire(a.syndrome));
        naks.extend(match syndrome {
            Some(Syndrome::Nak(nak)) => Some(nak),
            _ => None,
        });
    }
    assert!(naks.len() <= 1, "{naks:?}");
    naks.pop()
}

/// Checks that the peer was refused with `expected`, was counted, and cannot try again with a right key.
#[track_caller]
fn assert_over(pair: &mut Pair, b: Qpn, expected: Nak, what: &str) {
    assert_eq!(nak(pair), Some(expected), "{what}");
    assert_eq!(
        pair.sides[1].engine.qp_state(b),
        Some(QpState::Error),
        "{what}"
    );
    let counters = pair.sides[1].engine.counters();
    assert_eq!((counters.wrong_keys, counters.refused), (1, 1), "{what}");
    let mut told = 0;
    while let Some(event) = pair.sides[1].engine.poll_event() {
        told += u32::from(matches!(event, Event::QpError { qpn, .. } if qpn == b));
    }
    assert_eq!(told, 1, "{what}");

    let right = pair.sides[1].memory.register(vec![0; 64], ALL);
    let before = pair.sides[1].memory.snapshot();
    let target = common::memory::at(right);
    for psn in FIRST..FIRST + 4 {
        for packets in [
            &[Opcode::WriteOnly],
            &[Opcode::FetchAdd],
            &[Opcode::ReadRequest],
        ] {
            let mut bytes = packet_of(&request(packets, 8), 0, b, target);
            bytes[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
            pair.inject(bytes);
        }
    }
    assert_eq!(nak(pair), None, "{what}");
    assert_eq!(pair.sides[1].memory.snapshot(), before, "{what}");
    assert_eq!(pair.sides[1].engine.counters().wrong_keys, 1, "{what}");
}

/// Binds a window of `kind` to all of `region` for `qpn`. Returns its key and address.
fn window(memory: &TestMemory, kind: WindowType, pd: Pd, qpn: Qpn, rights: Rights) -> Remote {
    let region = memory.register_in(pd, vec![0; SIZE as usize], ALL);
    let old_key = memory.window();
    let bind = MwBind {
        window: old_key.into(),
        order: 1,
        new_key: old_key | 1,
        lkey: region.key,
        address: region.address,
        length: SIZE.into(),
        rights,
        kind,
    };
    memory.bind(&bind, pd, qpn).unwrap();
    Remote {
        address: region.address,
        key: bind.new_key,
    }
}

/// Faults of a key.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Unknown,
    Freed,
    OtherDomain,
    Before,
    Behind,
    WithoutRight,
    UnboundWindow,
    InvalidatedWindow,
    WindowOfAnother,
    WindowWithoutRight,
}

const WRONGS: [Wrong; 10] = [
    Wrong::Unknown,
    Wrong::Freed,
    Wrong::OtherDomain,
    Wrong::Before,
    Wrong::Behind,
    Wrong::WithoutRight,
    Wrong::UnboundWindow,
    Wrong::InvalidatedWindow,
    Wrong::WindowOfAnother,
    Wrong::WindowWithoutRight,
];

impl Wrong {
    /// Returns a target with this fault for a request of `length` bytes through `qpn`, which needs `need`.
    fn target(self, memory: &TestMemory, qpn: Qpn, need: Rights, length: u32) -> Remote {
        let pd = common::memory::PD;
        let whole = || memory.register(vec![0; SIZE as usize], ALL);
        let at = common::memory::at;
        match self {
            Self::Unknown => Remote {
                key: whole().key ^ 1 << 31,
                ..at(whole())
            },
            Self::Freed => {
                let region = whole();
                memory.deregister(region.key);
                at(region)
            }
            Self::OtherDomain => at(memory.register_in(Pd(8), vec![0; SIZE as usize], ALL)),
            Self::Before => {
                let region = whole();
                Remote {
                    address: region.address - 8,
                    key: region.key,
                }
            }
            Self::Behind => {
                let region = whole();
                Remote {
                    address: region.address + u64::from(SIZE + 8 - length.next_multiple_of(8)),
                    key: region.key,
                }
            }
            Self::WithoutRight => at(memory.register(vec![0; SIZE as usize], ALL - need)),
            Self::UnboundWindow => Remote {
                key: memory.window(),
                ..at(whole())
            },
            Self::InvalidatedWindow => {
                let window = window(memory, WindowType::Type2, pd, qpn, ALL);
                memory.invalidate(window.key, pd, qpn, false).unwrap();
                window
            }
            Self::WindowOfAnother => window(
                memory,
                WindowType::Type2,
                pd,
                Qpn::new(qpn.value() + 1),
                ALL,
            ),
            Self::WindowWithoutRight => window(memory, WindowType::Type1, pd, qpn, ALL - need),
        }
    }
}

#[test]
fn every_fault_of_a_key_ends_the_connection_in_every_request() {
    for (request, need) in REQUESTS {
        for wrong in WRONGS {
            let what = format!("{request:?} {wrong:?}");
            let (mut pair, b) = connected("wrong_key");
            let memory = pair.sides[1].memory.clone();
            let target = wrong.target(&memory, b, need, request.length);
            let before = memory.snapshot();
            pair.inject(packet_of(&request, 0, b, target));
            assert_eq!(memory.snapshot(), before, "{what}");
            assert_over(&mut pair, b, Nak::RemoteAccess, &what);
        }
        // The same request with a right key succeeds.
        let (mut pair, b) = connected("right_key");
        let memory = pair.sides[1].memory.clone();
        let region = memory.register(vec![0; SIZE as usize], ALL);
        pair.inject(packet_of(&request, 0, b, common::memory::at(region)));
        assert_eq!(nak(&mut pair), None, "{request:?}");
        assert_eq!(pair.sides[1].engine.counters().wrong_keys, 0);
    }
}

#[test]
fn a_key_that_is_revoked_in_the_middle_of_a_write_ends_the_connection_at_the_next_packet() {
    use Opcode::{WriteFirst, WriteLast, WriteLastImm, WriteMiddle};
    for (packets, revoked) in [
        (&[WriteFirst, WriteMiddle, WriteLast][..], 1),
        (&[WriteFirst, WriteMiddle, WriteLast][..], 2),
        (&[WriteFirst, WriteMiddle, WriteLastImm][..], 2),
        (&[WriteFirst, WriteLastImm][..], 1),
    ] {
        let what = format!("{packets:?} {revoked}");
        let (mut pair, b) = connected("revoked");
        let memory = pair.sides[1].memory.clone();
        let pd = common::memory::PD;
        let target = window(&memory, WindowType::Type2, pd, b, ALL);
        let write = Request {
            packets,
            length: (packets.len() as u32 - 1) * MTU + 8,
        };
        for index in 0..revoked {
            pair.inject(packet_of(&write, index, b, target));
        }
        assert_eq!(nak(&mut pair), None, "{what}");
        memory.invalidate(target.key, pd, b, false).unwrap();
        let before = memory.snapshot();
        pair.inject(packet_of(&write, revoked, b, target));
        assert_eq!(memory.snapshot(), before, "{what}");
        assert_over(&mut pair, b, Nak::RemoteAccess, &what);
    }
}

#[test]
fn a_send_that_invalidates_a_wrong_key_ends_the_connection() {
    let pd = common::memory::PD;
    for wrong in [
        "unknown",
        "a region's",
        "type 1",
        "of another",
        "of another domain",
        "unbound",
    ] {
        for opcodes in [
            &[Opcode::SendOnlyInvalidate][..],
            &[Opcode::SendFirst, Opcode::SendLastInvalidate][..],
        ] {
            let mut pair = Pair::new("invalidate");
            let [_, b] = pair.connected_at([Psn::new(FIRST), Psn::new(5000)]);
            let memory = pair.sides[1].memory.clone();
            let inbox = memory.register(vec![0; SIZE as usize], ALL);
            pair.receive(1, b, 1, &[inbox]);
            let other = Qpn::new(b.value() + 1);
            let key = match wrong {
                "unknown" => inbox.key ^ 1 << 31,
                "a region's" => inbox.key,
                "type 1" => window(&memory, WindowType::Type1, pd, b, ALL).key,
                "of another" => window(&memory, WindowType::Type2, pd, other, ALL).key,
                "of another domain" => window(&memory, WindowType::Type2, Pd(8), b, ALL).key,
                _ => memory.window(),
            };
            for (index, opcode) in opcodes.iter().enumerate() {
                let last = index + 1 == opcodes.len();
                let headers = Headers {
                    invalidate: last.then_some(key),
                    ..Headers::default()
                };
                let length = if last { 8 } else { MTU };
                pair.inject(raw(*opcode, b, FIRST + index as u32, headers, length));
            }
            assert_over(&mut pair, b, Nak::InvalidRequest, wrong);
        }
    }
}

/// IBTA does not check the key of an access to 0 bytes, so the answer does not depend on it.
#[test]
fn an_access_to_no_bytes_does_not_reveal_whether_a_key_is_right() {
    for opcode in [Opcode::WriteOnly, Opcode::ReadRequest] {
        let answers = [true, false].map(|right| {
            let (mut pair, b) = connected("no_bytes");
            let region = pair.sides[1].memory.register(vec![0; 8], ALL);
            let mut target = common::memory::at(region);
            target.key ^= u32::from(!right) << 31;
            let empty = Reth {
                va: target.address,
                rkey: target.key,
                length: 0,
            };
            let headers = Headers {
                reth: Some(empty),
                ..Headers::default()
            };
            pair.inject(raw(opcode, b, FIRST, headers, 0));
            let mut buffer = vec![0; 65_000];
            let run = pair.sides[1].engine.poll_transmit(pair.now, &mut buffer);
            buffer[..run.expect("an answer").length].to_vec()
        });
        assert_eq!(answers[0], answers[1]);
    }
}

#[test]
fn wrong_keys_are_logged_with_peer_and_queue_pair_once_a_second() {
    let warnings = Lines::from(Level::WARN);
    let guessed = tracing::subscriber::with_default(warnings.clone(), || {
        let mut pair = Pair::new("guesses");
        let mut guessed = Vec::new();
        for _ in 0..50 {
            let [_, b] = pair.connected_at([Psn::new(FIRST), Psn::new(5000)]);
            let target = Remote {
                address: 8,
                key: 0xdead_beef,
            };
            pair.inject(packet_of(&REQUESTS[0].0, 0, b, target));
            guessed.push(b);
            pair.now += Duration::from_millis(50);
        }
        assert_eq!(pair.sides[1].engine.counters().wrong_keys, 50);
        guessed
    });
    let warnings = warnings.all();
    // At the start, after one second and after two.
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    for (line, (number, suppressed)) in warnings.iter().zip([(0, 0), (20, 19), (40, 19)]) {
        let qpn = format!("qpn={:?}", guessed[number]);
        let total = format!("total={}", number + 1);
        let suppressed = format!("suppressed={suppressed}");
        for part in ["10.9.0.1:4791", &qpn, &total, &suppressed] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(!line.contains("deadbeef") && !line.contains(&0xdead_beef_u32.to_string()));
    }
}

/// The answers to repetitions do not reveal whether a key is right.
#[test]
fn a_repetition_with_another_key_is_not_looked_up() {
    let (mut pair, b) = connected("repetition");
    let memory = pair.sides[1].memory.clone();
    let [granted, other] = [(); 2].map(|()| memory.register(vec![5; 64], ALL));
    let read = request(&[Opcode::ReadRequest], 64);
    pair.inject(packet_of(&read, 0, b, common::memory::at(granted)));
    let mut buffer = vec![0; 65_000];
    assert!(
        pair.sides[1]
            .engine
            .poll_transmit(pair.now, &mut buffer)
            .is_some()
    );
    for key in [other.key, other.key ^ 1 << 31] {
        let target = Remote {
            address: other.address,
            key,
        };
        pair.inject(packet_of(&read, 0, b, target));
        let answer = pair.sides[1].engine.poll_transmit(pair.now, &mut buffer);
        assert!(answer.is_none(), "{answer:?}");
    }
    assert_eq!(pair.sides[1].engine.qp_state(b), Some(QpState::ReadyToSend));
    let right = Access {
        key: other.key,
        pd: common::memory::PD,
        qpn: b,
        need: Rights::REMOTE_READ,
    };
    assert_eq!(memory.check(&right, other.address, 64), Ok(()));
}
