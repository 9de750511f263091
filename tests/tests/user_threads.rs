//! Several threads of one IA: some post, some poll, some poll queues that stay empty. Between two IAs of this process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dat::{Close, Completion, DtoStatus, Evd, Event, Streams};
use dat_tests::engine::{Endpoint, Limits, TIMEOUT, connect, with_engine};

const MESSAGE: usize = 64;
const MESSAGES: u64 = 20_000;
const DEPTH: u64 = 16;
/// Connections that end while other threads use their IA, and receives that are posted to each.
const CONNECTIONS: u64 = 100;
const RECEIVES: u64 = 12;

fn open(name: &str) -> Endpoint {
    let limits = Limits {
        receives: DEPTH as u32,
        requests: DEPTH as u32,
        reads: 1,
        memory: DEPTH as usize * MESSAGE,
    };
    Endpoint::open(name, limits)
}

/// Polls an EVD of its own, which stays empty, until `done`.
fn poll_in_vain(side: &Endpoint, done: &AtomicBool) {
    let idle = side.ia.create_evd(8, Streams::DTO).expect("an EVD");
    let ep = side
        .ia
        .endpoint(&side.pz)
        .recv_evd(&idle)
        .request_evd(&idle);
    let _ep = ep.create().expect("an EP");
    while !done.load(Ordering::Acquire) {
        assert!(idle.poll_completion().expect("polled").is_none());
    }
}

/// Polls until there is a completion.
fn next(evd: &Evd) -> Completion {
    loop {
        if let Some(done) = evd.poll_completion().expect("polled") {
            return done;
        }
    }
}

fn place(message: u64) -> usize {
    (message % DEPTH) as usize * MESSAGE
}

fn expect(side: &Endpoint, message: u64) {
    let at = place(message);
    let into = [side.memory.slice(at..at + MESSAGE)];
    side.ep.post_recv(&into, message).expect("posted");
}

/// One thread posts and another one polls at each end, and one more at each end polls in vain.
#[test]
fn messages_arrive_in_order_where_other_threads_post_and_poll_in_vain() {
    let name = "messages_arrive_in_order_where_other_threads_post_and_poll_in_vain";
    with_engine(name, "127.66.41", || {
        let (a, b) = (open("a"), open("b"));
        for message in 0..DEPTH {
            expect(&b, message);
        }
        a.connect(&b);
        let done = AtomicBool::new(false);
        // Messages that have arrived, whose completions at the sender have been taken, and whose receives are posted again.
        let [arrived, sent, posted] = [(); 3].map(|()| AtomicU64::new(0));
        posted.store(DEPTH, Ordering::Release);
        std::thread::scope(|scope| {
            let (a, b, done) = (&a, &b, &done);
            let (arrived, sent, posted) = (&arrived, &sent, &posted);
            for side in [a, b] {
                scope.spawn(move || poll_in_vain(side, done));
            }
            scope.spawn(move || {
                for message in 0..MESSAGES {
                    while sent.load(Ordering::Acquire) + DEPTH <= message
                        || posted.load(Ordering::Acquire) <= message
                    {
                        std::thread::yield_now();
                    }
                    let at = place(message);
                    a.memory.write(at, &message.to_ne_bytes());
                    let from = [a.memory.slice(at..at + MESSAGE)];
                    a.ep.post_send(&from, message).expect("posted");
                }
            });
            scope.spawn(move || {
                for message in 0..MESSAGES {
                    let completion = next(&a.completions);
                    assert_eq!(completion.status, DtoStatus::Success);
                    assert_eq!(completion.cookie, message);
                    sent.store(message + 1, Ordering::Release);
                }
            });
            scope.spawn(move || {
                for message in 0..MESSAGES - DEPTH {
                    while arrived.load(Ordering::Acquire) <= message {
                        std::thread::yield_now();
                    }
                    expect(b, message + DEPTH);
                    posted.store(message + DEPTH + 1, Ordering::Release);
                }
            });
            for message in 0..MESSAGES {
                let completion = next(&b.completions);
                assert_eq!(completion.status, DtoStatus::Success);
                assert_eq!(completion.cookie, message);
                let mut got = [0; 8];
                b.memory.read(place(message), &mut got);
                assert_eq!(u64::from_ne_bytes(got), message);
                arrived.store(message + 1, Ordering::Release);
            }
            while sent.load(Ordering::Acquire) < MESSAGES {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Release);
        });
    });
}

/// A poll that leaves the lock to other threads must not take a queue for empty that holds completions.
#[test]
fn an_empty_queue_after_a_disconnect_has_shown_each_receive_where_other_threads_poll() {
    let name = "an_empty_queue_after_a_disconnect_has_shown_each_receive_where_other_threads_poll";
    with_engine(name, "127.66.42", || {
        let (a, b) = (open("a"), open("b"));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (a, b, done) = (&a, &b, &done);
            for side in [a, b, b] {
                scope.spawn(move || poll_in_vain(side, done));
            }
            for round in 0..CONNECTIONS {
                let [active, passive] = [a, b].map(|side| {
                    let ep = side.ia.endpoint(&side.pz).recv_evd(&side.completions);
                    let ep = ep.request_evd(&side.completions);
                    let ep = ep.connect_evd(&side.connections).max_recv(RECEIVES as u32);
                    ep.create().expect("an EP")
                });
                for receive in 0..RECEIVES {
                    let into = [b.memory.slice(0..MESSAGE)];
                    passive.post_recv(&into, receive).expect("posted");
                }
                connect((&active, &a.connections), (&passive, &b.connections), &b.ia);
                passive.disconnect(Close::Abrupt).expect("disconnected");
                for side in [a, b] {
                    let event = side.connections.wait(TIMEOUT).expect("an event");
                    assert!(matches!(event, Event::Ended { .. }), "{event:?}");
                }
                let mut flushed = 0;
                while let Some(completion) = b.completions.poll_completion().expect("polled") {
                    assert_eq!(completion.status, DtoStatus::Flushed, "{round}");
                    assert_eq!(completion.cookie, flushed, "{round}");
                    flushed += 1;
                }
                assert_eq!(flushed, RECEIVES, "{round}");
            }
            done.store(true, Ordering::Release);
        });
    });
}
