//! Posting, sending, receiving and completing allocate nothing once a connection is warm.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::channel;
use common::memory::ALL;
use common::pair::Pair;
use softrxe_proto::{Completion, Meta, NearOut, Op, Qpn, RecordPart, Remote, SendRequest, Status};

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: both calls go to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn the_hot_path_allocates_nothing() {
    let mut pair = Pair::new("allocation");
    let [a, b] = pair.connected();
    let local = pair.sides[0].memory.register(vec![1; 9000], ALL);
    let there = pair.sides[1].memory.register(vec![0; 9000], ALL);
    let remote = Remote {
        address: there.address,
        key: there.key,
    };
    let mut counter = local;
    counter.length = 8;
    let mut buffer = vec![0; 65_000];
    let mut done = [Completion::default(); 16];
    let mut counts = Vec::new();
    for _ in 0..50 {
        let before = COUNT.get();
        pair.receive(1, b, 1, &[there]);
        let add = Op::FetchAdd { remote, add: 1 };
        for (id, op, sge) in [
            (1, Op::Write(remote), local),
            (2, Op::Send, local),
            (3, Op::Read(remote), local),
            (4, add, counter),
        ] {
            post(&mut pair, a, &SendRequest::new(id, op, &[sge]));
        }
        let mut completed = 0;
        let now = pair.now;
        for _ in 0..10 {
            for from in 0..2 {
                while pair.channels.is_some() && carry_record(&mut pair, from) {}
                while let Some(run) = pair.sides[from].engine.poll_transmit(now, &mut buffer) {
                    let packets = buffer[..run.length].chunks(run.segment);
                    for (index, packet) in packets.enumerate() {
                        let meta = Meta {
                            source: pair.sides[from].address,
                            ip_id: index as u16,
                        };
                        let to = &mut pair.sides[1 - from].engine;
                        to.handle_datagram(now, &meta, packet);
                    }
                }
            }
            for side in &mut pair.sides {
                let count = side.engine.poll_cq(side.cq, &mut done);
                completed += count;
                assert!(done[..count].iter().all(|c| c.status == Status::Success));
            }
        }
        assert_eq!(completed, 5);
        counts.push(COUNT.get() - before);
    }
    assert_eq!(counts[1..], [0; 49]);
}

/// Posts a request of side 0, and passes the record on that it may make.
fn post(pair: &mut Pair, qpn: Qpn, request: &SendRequest<'_>) {
    let side = &mut pair.sides[0];
    let length = request.sges.iter().map(|sge| u64::from(sge.length)).sum();
    let near = side.engine.near_for_post(qpn, length);
    let Some(near) = near.filter(|_| channel::posts_at_once()) else {
        side.engine.post_send(pair.now, qpn, request).unwrap();
        return;
    };
    let (room, mut out) = (channel::ROOM, NearOut::EMPTY);
    let memory = side.memory.clone();
    memory.lend_record(&pair.sides[1].memory, room);
    let engine = &mut pair.sides[0].engine;
    let sent = engine.post_near(pair.now, near, request, room, |packet| out = *packet);
    if sent.unwrap() {
        deliver(pair, 0, &out);
    }
}

/// Passes the next record of `from` to the other side.
fn carry_record(pair: &mut Pair, from: usize) -> bool {
    let room = channel::ROOM;
    let (now, memory) = (pair.now, pair.sides[from].memory.clone());
    memory.lend_record(&pair.sides[1 - from].memory, room);
    let engine = &mut pair.sides[from].engine;
    let out = engine.poll_near(now, channel::ID, room, false);
    if let Some(out) = &out {
        deliver(pair, from, out);
    }
    out.is_some()
}

/// Passes a record of `from` to the other side.
fn deliver(pair: &mut Pair, from: usize, out: &NearOut) {
    let payload = RecordPart {
        at: out.payload_at,
        length: out.payload_length,
        lent: false,
    };
    let memory = pair.sides[from].memory.clone();
    let peer = &mut pair.sides[1 - from];
    peer.memory.lend_record(&memory, channel::ROOM);
    peer.engine
        .handle_near(pair.now, channel::ID, out.header(), payload);
}

over_both_links!(the_hot_path_allocates_nothing);
