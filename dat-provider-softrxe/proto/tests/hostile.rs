//! Answers and management datagrams that no correct peer sends: no panic, no request completes twice, and only the
//! requested memory changes.

mod common;

use std::time::Duration;

use common::Rng;
use common::memory::ALL;
use common::pair::Pair;
use common::pcap;
use softrxe_proto::opcode::Opcode;
use softrxe_proto::wire::{Aeth, Bth, Headers, Packet, packet};
use softrxe_proto::{Meta, Op, Psn, QpState, Qpn, Remote, SendRequest, Sge, service_id};

fn response(rng: &mut Rng, to: Qpn) -> Vec<u8> {
    let opcode = Opcode::from_wire(0x0d + rng.below(6) as u8).expect("a response");
    let length = [0, 8, 500, 1024, 1028][rng.below(5) as usize];
    let payload = rng.bytes(if opcode == Opcode::Acknowledge {
        0
    } else {
        length
    });
    let aeth = Aeth {
        syndrome: [0x1f, 0x1f, 0x1f, 0x60, 0x2c, 0x61, rng.next() as u8][rng.below(7) as usize],
        msn: rng.next() as u32 & 0xff_ffff,
    };
    let psn = Psn::new(95 + rng.below(30) as u32);
    let packet = Packet {
        bth: Bth {
            pad: packet::pad(payload.len()),
            ..Bth::new(opcode as u8, to, psn)
        },
        opcode,
        headers: Headers {
            aeth: opcode.has_aeth().then_some(aeth),
            original: (opcode == Opcode::AtomicAcknowledge).then(|| rng.next()),
            ..Headers::default()
        },
        payload: &payload,
    };
    let mut bytes = vec![0; 1200];
    let end = packet.emit(&mut bytes);
    bytes.truncate(end);
    bytes
}

fn unsolicited_answers_have_no_effect() {
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::with("answers", seed, |_| {});
        let b = pair.sides[1].qp();
        let path = pair.path(0, Qpn::new(77), [Psn::new(100), Psn::new(1)]);
        pair.sides[1].engine.connect_qp(b, &path).unwrap();
        let memory = pair.sides[1].memory.clone();
        let before = memory.register(vec![1; 3000], ALL);
        let area = memory.register(vec![0; 3000], ALL);
        let after = memory.register(vec![2; 3000], ALL);
        let remote = Remote { address: 8, key: 9 };
        let part = |offset: u64, length| Sge {
            address: area.address + offset,
            length,
            key: area.key,
        };
        for (id, op, sge) in [
            (0, Op::Write(remote), before),
            (1, Op::Read(remote), part(100, 2500)),
            (2, Op::FetchAdd { remote, add: 1 }, part(8, 8)),
            (3, Op::Send, after),
            (4, Op::Read(remote), part(2900, 1)),
        ] {
            pair.post(1, b, &SendRequest::new(id, op, &[sge]));
        }
        for _ in 0..200 {
            pair.poll(1);
            let bytes = response(&mut rng, b);
            pair.inject(bytes);
            pair.now += Duration::from_micros(rng.below(500));
            let now = pair.now;
            pair.sides[1].engine.handle_timeout(now);
        }
        let mut done = [softrxe_proto::Completion::default(); 16];
        let side = &mut pair.sides[1];
        let count = side.engine.poll_cq(side.cq, &mut done);
        let ids: Vec<u64> = done[..count].iter().map(|c| c.wr_id).collect();
        let in_order: Vec<u64> = (0..count as u64).collect();
        assert_eq!(ids, in_order, "seed {seed}");
        if side.engine.qp_state(b) == Some(QpState::Error) {
            assert_eq!(count, 5, "seed {seed}: everything ends");
        }
        assert_eq!(memory.bytes(&before), [1; 3000]);
        assert_eq!(memory.bytes(&after), [2; 3000]);
        let bytes = memory.bytes(&area);
        for untouched in [
            &bytes[..8],
            &bytes[16..100],
            &bytes[2600..2900],
            &bytes[2901..],
        ] {
            assert!(untouched.iter().all(|byte| *byte == 0), "seed {seed}");
        }
    }
}

/// Management datagrams of rdma_cm from one peer, with a few bytes changed, in any order.
#[test]
fn management_datagrams_with_changed_bytes() {
    let captures = [
        "rping4",
        "udaddy",
        "cm_slow",
        "rej_consumer",
        "cm_kill",
        "lossy_rping",
    ];
    let mads: Vec<Vec<u8>> = captures
        .iter()
        .flat_map(|name| pcap::read(name))
        .filter(|c| c.payload.len() == 280)
        .map(|c| c.payload[..276].to_vec())
        .collect();
    assert!(mads.len() > 20, "{}", mads.len());
    let mut raised = 0;
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::with("mads", seed, |_| {});
        for port in [7174, 7001, 7471] {
            pair.sides[1].engine.listen(service_id::tcp(port)).unwrap();
            pair.sides[1].engine.listen(service_id::udp(port)).unwrap();
        }
        let mut answered = 0;
        for _ in 0..300 {
            let mut bytes = mads[rng.below(mads.len() as u64) as usize].clone();
            for _ in 0..rng.below(4) {
                // Only bytes after the DETH change: the rest must be right for the message to be read.
                let at = 20 + rng.below(256) as usize;
                bytes[at] = rng.next() as u8;
            }
            pair.inject(bytes);
            pair.now += Duration::from_millis(rng.below(300));
            let now = pair.now;
            let engine = &mut pair.sides[1].engine;
            engine.handle_timeout(now);
            let mut buffer = vec![0; 4200];
            while let Some(run) = engine.poll_transmit(now, &mut buffer) {
                assert_eq!(run.length, 280);
                answered += 1;
            }
            while let Some(event) = engine.poll_event() {
                raised += 1;
                if let softrxe_proto::Event::Cm(event) = event
                    && rng.chance(500)
                {
                    let reason = softrxe_proto::RejectReason::CONSUMER;
                    let _ = engine.reject(now, event.id, reason, &[]);
                }
            }
        }
        // One answer per datagram, and repetitions by timer.
        assert!(answered < 600, "seed {seed}: {answered}");
        assert!(pair.sides[1].engine.connections() <= 300);
    }
    assert!(
        raised > 100,
        "{raised} events: the datagrams do reach the manager"
    );
}

fn bytes_that_are_no_packet_are_counted() {
    let mut rng = Rng::new(4);
    let mut pair = Pair::new("noise");
    pair.connected();
    for length in 0..200 {
        let bytes = rng.bytes(length);
        let meta = Meta {
            source: pair.sides[0].address,
            ip_id: 0,
        };
        let now = pair.now;
        pair.sides[1].engine.handle_datagram(now, &meta, &bytes);
    }
    let counters = pair.sides[1].engine.counters();
    assert_eq!(counters.received, 200);
    let dropped = counters.malformed + counters.bad_icrc + counters.unknown_qp + counters.foreign;
    assert_eq!(dropped, 200);
}

/// A message that another one interrupts completes its receive as flushed, like those after it.
fn a_receive_that_was_begun_completes_when_the_next_packet_is_refused() {
    let mut pair = Pair::new("broken_off");
    let b = pair.sides[1].qp();
    let path = pair.path(0, Qpn::new(77), [Psn::new(100), Psn::new(1)]);
    pair.sides[1].engine.connect_qp(b, &path).unwrap();
    let inbox = pair.sides[1].memory.register(vec![0; 3000], ALL);
    for id in [1, 2] {
        pair.receive(1, b, id, &[inbox]);
    }
    for (psn, opcode, length) in [(1, Opcode::SendFirst, 1024), (2, Opcode::SendFirst, 1024)] {
        let payload = vec![5; length];
        let packet = Packet {
            bth: Bth::new(opcode as u8, b, Psn::new(psn)),
            opcode,
            headers: Headers::default(),
            payload: &payload,
        };
        let mut bytes = vec![0; 1200];
        let end = packet.emit(&mut bytes);
        bytes.truncate(end);
        pair.inject(bytes);
    }
    let mut done = [softrxe_proto::Completion::default(); 4];
    let side = &mut pair.sides[1];
    assert_eq!(side.engine.qp_state(b), Some(QpState::Error));
    let count = side.engine.poll_cq(side.cq, &mut done);
    let ended: Vec<_> = done[..count].iter().map(|c| (c.wr_id, c.status)).collect();
    let flushed = softrxe_proto::Status::Flushed;
    assert_eq!(ended, [(1, flushed), (2, flushed)]);
}

over_both_links!(
    unsolicited_answers_have_no_effect,
    bytes_that_are_no_packet_are_counted,
    a_receive_that_was_begun_completes_when_the_next_packet_is_refused,
);
