//! The order of completions on one EVD for requests and receives, which programs rely on.

use dat::{Completion, Evd};
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
