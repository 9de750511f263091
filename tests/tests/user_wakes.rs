//! Wake-ups of ends that sleep, between two IAs of this process. They are counted, not timed.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use dat::{Access, DtoStatus, Ia, Region};
use dat_tests::engine::{Endpoint, Limits, TIMEOUT, with_engine};

const MESSAGE: usize = 64;
const MESSAGES: u64 = 200;
/// Messages that another thread's work may wake an end for once more.
const SPARE: u64 = MESSAGES / 2;

struct Side {
    endpoint: Endpoint,
    message: Region,
}

impl Side {
    fn open(name: &str) -> Self {
        let limits = Limits {
            receives: 4,
            requests: 4,
            reads: 1,
            memory: MESSAGE,
        };
        let endpoint = Endpoint::open(name, limits);
        let message = endpoint.pz.allocate(MESSAGE, Access::ALL);
        let side = Self {
            endpoint,
            message: message.expect("memory"),
        };
        side.expect();
        side
    }

    fn expect(&self) {
        let into = [self.message.slice(0..MESSAGE)];
        self.endpoint.ep.post_recv(&into, 1).expect("posted");
    }

    /// Waits for a completion, which is to be one.
    fn wait(&self) {
        let done = self.endpoint.completions.wait_completion(TIMEOUT);
        assert_eq!(done.expect("a completion").status, DtoStatus::Success);
    }
}

/// How often the IA woke a peer that slept.
fn wakes(ia: &Ia) -> u64 {
    let counters = ia.provider_counters().expect("its counters");
    let found = counters.iter().find(|(name, _)| *name == "near_wakes");
    found.expect("the counter").1
}

/// Waits until the thread with the status file `status` sleeps.
fn until_asleep(status: &PathBuf) {
    let sleeps = || {
        let text = std::fs::read_to_string(status).expect("its status");
        text.lines().any(|line| line.starts_with("State:\tS"))
    };
    // A thread that sleeps for a lock goes on at once.
    while !(sleeps() && sleeps()) {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// A lost wake-up would end the wait without a message.
#[test]
fn a_message_wakes_an_end_that_sleeps_once_and_its_acknowledgement_the_sender_at_most_once() {
    let name =
        "a_message_wakes_an_end_that_sleeps_once_and_its_acknowledgement_the_sender_at_most_once";
    with_engine(name, "127.66.11", || {
        let (a, b) = (Side::open("a"), Side::open("b"));
        a.endpoint.connect(&b.endpoint);
        let near = std::fs::read_to_string("/proc/self/maps").expect("the mappings");
        let near = near.contains("memfd:dat-rs-near");
        let (ready, is_ready) = mpsc::channel();
        std::thread::scope(|scope| {
            let b = &b;
            scope.spawn(move || {
                let thread = std::fs::read_link("/proc/thread-self").expect("this thread");
                let status = PathBuf::from("/proc").join(thread).join("status");
                for _ in 0..MESSAGES {
                    ready.send(status.clone()).expect("the sender lives");
                    b.wait();
                    b.expect();
                }
            });
            for _ in 0..MESSAGES {
                until_asleep(&is_ready.recv().expect("the receiver lives"));
                let from = [a.message.slice(0..MESSAGE)];
                a.endpoint.ep.post_send(&from, 2).expect("posted");
                a.wait();
            }
        });
        let [sent, acknowledged] = [&a, &b].map(|side| wakes(&side.endpoint.ia));
        println!(
            "wake-ups of {MESSAGES} messages: {sent}, of their acknowledgements: {acknowledged}"
        );
        if near {
            // A receiver may still be on its way into its sleep, where it finds the record itself.
            let wanted = MESSAGES / 2..=MESSAGES + SPARE;
            assert!(wanted.contains(&sent), "{sent}");
            assert!(acknowledged <= MESSAGES + SPARE, "{acknowledged}");
        } else {
            assert_eq!([sent, acknowledged], [0, 0]);
        }
    });
}
