//! The order of completions on one EVD for requests and receives, which programs rely on.

use dat::{Close, Completion, Evd, Event};
use dat_tests::engine::{Endpoint, Limits, TIMEOUT, with_engine};

const MESSAGE: usize = 64;
const ROUNDS: u64 = 1_000;
/// The cookie of every receive.
const RECEIVE: u64 = u64::MAX;

fn open(name: &str) -> Endpoint {
    let limits = Limits {
        receives: 2,
        requests: 2,
        reads: 1,
        memory: 2 * MESSAGE,
    };
    Endpoint::open(name, limits)
}

fn expect(side: &Endpoint) {
    let into = [side.memory.slice(0..MESSAGE)];
    side.ep.post_recv(&into, RECEIVE).expect("posted");
}

fn send(side: &Endpoint, cookie: u64) {
    let from = [side.memory.slice(MESSAGE..2 * MESSAGE)];
    side.ep.post_send(&from, cookie).expect("posted");
}

/// Takes the event that the connection has ended, and makes the endpoint ready for the next one.
fn ended(side: &Endpoint) {
    let event = side.connections.wait(TIMEOUT).expect("an event");
    assert!(matches!(event, Event::Ended { .. }), "{event:?}");
    side.ep.reset().expect("reset");
}

/// Returns the next completion: every third by polling, the others by a wait.
fn next(evd: &Evd, round: u64) -> Completion {
    if !round.is_multiple_of(3) {
        return evd.wait_completion(TIMEOUT).expect("a completion");
    }
    loop {
        if let Some(done) = evd.poll_completion().expect("polled") {
            return done;
        }
    }
}

/// Adapters acknowledge a message before their consumer can answer it.
#[test]
fn a_send_completes_before_the_answer_to_it() {
    let name = "a_send_completes_before_the_answer_to_it";
    with_engine(name, "127.66.43", || {
        let (a, b) = (open("a"), open("b"));
        expect(&a);
        expect(&b);
        a.connect(&b);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    while next(&b.completions, round).cookie != RECEIVE {}
                    expect(&b);
                    send(&b, round);
                }
            });
            for round in 0..ROUNDS {
                send(&a, round);
                assert_eq!(next(&a.completions, round).cookie, round);
                assert_eq!(next(&a.completions, round).cookie, RECEIVE);
                expect(&a);
            }
        });
    });
}

/// One thread posts while another one disconnects: what is posted during and after the disconnect completes behind what was
/// posted before.
#[test]
fn posts_during_a_disconnect_complete_in_their_order() {
    const POSTS: u64 = 24;
    let name = "posts_during_a_disconnect_complete_in_their_order";
    with_engine(name, "127.66.44", || {
        let limits = Limits {
            receives: 1,
            requests: POSTS as u32,
            reads: 1,
            memory: 2 * MESSAGE,
        };
        let (a, b) = (Endpoint::open("a", limits), Endpoint::open("b", limits));
        for round in 0..ROUNDS / 2 {
            a.connect(&b);
            // The peer has no receives, so these wait.
            (0..POSTS / 3).for_each(|cookie| send(&a, cookie));
            std::thread::scope(|scope| {
                scope.spawn(|| (POSTS / 3..POSTS).for_each(|cookie| send(&a, cookie)));
                (0..round * 16 % 4096).for_each(|_| std::hint::spin_loop());
                a.ep.disconnect(Close::Abrupt).expect("disconnected");
            });
            for cookie in 0..POSTS {
                // By polling: a wait returns a flush as an error.
                assert_eq!(next(&a.completions, 0).cookie, cookie, "round {round}");
            }
            ended(&a);
            ended(&b);
        }
    });
}
