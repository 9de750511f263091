//! Progress on the user engine with consumers that block, poll, do both, or make no calls, between two IAs of this
//! process over UDP.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dat::{Access, Completion, CompletionFlags, DtoStatus, Evd, Event, Region, Remote, Streams};
use dat_tests::engine::{Endpoint, Limits, TIMEOUT, with_engine};

const MESSAGE: usize = 64;
const WINDOW: usize = 8192;
const RECEIVE: u64 = 1;
const REQUEST: u64 = 2;

/// A connected endpoint with buffers for messages, and receives posted.
struct Side {
    endpoint: Endpoint,
    messages: Region,
}

impl Deref for Side {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// The way in which a consumer obtains completions.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    Block,
    Poll,
    Mix,
}

impl Side {
    fn open(name: &str) -> Self {
        let limits = Limits {
            receives: 16,
            requests: 16,
            reads: 4,
            memory: WINDOW,
        };
        let endpoint = Endpoint::open(name, limits);
        let messages = endpoint
            .pz
            .allocate(2 * MESSAGE, Access::LOCAL_READ | Access::LOCAL_WRITE)
            .expect("memory");
        let side = Self { endpoint, messages };
        for _ in 0..8 {
            side.expect();
        }
        side
    }

    /// Returns two connected sides.
    fn pair() -> (Self, Self) {
        let (a, b) = (Self::open("a"), Self::open("b"));
        a.connect(&b);
        (a, b)
    }

    fn expect(&self) {
        let into = [self.messages.slice(0..MESSAGE)];
        self.ep.post_recv(&into, RECEIVE).expect("posted");
    }

    fn send(&self) {
        let from = [self.messages.slice(MESSAGE..2 * MESSAGE)];
        self.ep.post_send(&from, REQUEST).expect("posted");
    }

    fn completion(&self, waiting: Waiting, turn: usize) -> Completion {
        let blocks = match waiting {
            Waiting::Block => true,
            Waiting::Poll => false,
            Waiting::Mix => turn.is_multiple_of(3),
        };
        if blocks {
            return self
                .completions
                .wait_completion(TIMEOUT)
                .expect("a completion");
        }
        let begin = Instant::now();
        loop {
            match self.completions.poll().expect("polled") {
                Some(Event::Completion(done)) => {
                    assert_eq!(done.status, DtoStatus::Success);
                    return done;
                }
                Some(other) => panic!("no completion: {other:?}"),
                None => assert!(begin.elapsed() < TIMEOUT, "no completion came"),
            }
            // There are more threads than processors: a thread without work yields.
            std::thread::yield_now();
        }
    }

    /// Takes the next message; counts completions of requests.
    fn message(&self, waiting: Waiting, turn: usize, requests: &mut usize) {
        while self.completion(waiting, turn).cookie != RECEIVE {
            *requests += 1;
        }
        self.expect();
    }
}

#[test]
fn consumers_that_block_poll_or_mix_both_all_progress() {
    with_engine(
        "consumers_that_block_poll_or_mix_both_all_progress",
        "127.66.1",
        || {
            const ROUNDS: usize = 60;
            let (a, b) = Side::pair();
            for (mine, theirs) in [
                (Waiting::Block, Waiting::Block),
                (Waiting::Poll, Waiting::Poll),
                (Waiting::Block, Waiting::Poll),
                (Waiting::Poll, Waiting::Block),
                (Waiting::Mix, Waiting::Mix),
            ] {
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let mut done = 0;
                        for turn in 0..ROUNDS {
                            b.message(theirs, turn, &mut done);
                            b.send();
                        }
                        while done < ROUNDS {
                            assert_eq!(b.completion(theirs, done).cookie, REQUEST);
                            done += 1;
                        }
                    });
                    let mut done = 0;
                    for turn in 0..ROUNDS {
                        a.send();
                        a.message(mine, turn, &mut done);
                    }
                    while done < ROUNDS {
                        assert_eq!(a.completion(mine, done).cookie, REQUEST);
                        done += 1;
                    }
                });
            }
        },
    );
}

#[test]
fn a_waiter_for_the_end_of_a_connection_lets_others_poll() {
    with_engine(
        "a_waiter_for_the_end_of_a_connection_lets_others_poll",
        "127.66.6",
        || {
            let (a, b) = Side::pair();
            std::thread::scope(|scope| {
                // This EVD has no completion queue, and its waiter drives the engine all the time.
                let end = scope.spawn(|| b.connections.wait(TIMEOUT).expect("an event"));
                for waiting in [Waiting::Poll, Waiting::Block, Waiting::Poll] {
                    for turn in 0..200 {
                        let mut done = 0;
                        a.send();
                        b.message(waiting, turn, &mut done);
                        assert_eq!(a.completion(waiting, turn).cookie, REQUEST);
                    }
                }
                a.ep.disconnect(dat::Close::Abrupt).expect("it ends");
                let event = end.join().expect("the waiter");
                assert!(matches!(event, Event::Ended { .. }), "{event:?}");
            });
        },
    );
}

#[test]
fn a_target_that_calls_nothing_is_written_and_read() {
    with_engine(
        "a_target_that_calls_nothing_is_written_and_read",
        "127.66.2",
        || {
            let (a, b) = Side::pair();
            let remote = b.memory.remote(0..WINDOW);
            for round in 1..=50u8 {
                a.memory.write(0, &[round; WINDOW]);
                let all = [a.memory.slice(0..WINDOW)];
                let none = CompletionFlags::empty();
                a.ep.post_rdma_write(&all, remote, 3, none).expect("posted");
                assert_eq!(a.completion(Waiting::Block, 0).cookie, 3);
                a.memory.write(0, &[0; WINDOW]);
                a.ep.post_rdma_read(&all, remote, 4, none).expect("posted");
                assert_eq!(a.completion(Waiting::Block, 0).cookie, 4);
                assert_eq!(a.memory.to_vec(0..WINDOW), [round; WINDOW]);
            }
            assert_eq!(b.memory.to_vec(0..WINDOW), [50; WINDOW]);
        },
    );
}

/// A stream of writes ends no wait at its target, and keeps the thread that waits there busy.
#[test]
fn a_waiter_times_out_and_is_woken_while_a_stream_of_writes_arrives() {
    with_engine(
        "a_waiter_times_out_and_is_woken_while_a_stream_of_writes_arrives",
        "127.66.23",
        || {
            let (a, b) = Side::pair();
            let remote = b.memory.remote(0..MESSAGE);
            let evd = b.ia.create_evd(8, Streams::SOFTWARE | Streams::DTO);
            let (evd, done) = (evd.expect("an EVD"), AtomicU32::new(0));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let error = evd.wait(Duration::from_millis(100)).expect_err("no event");
                    assert!(matches!(error, dat::Error::TimedOut { .. }), "{error}");
                    done.store(1, Ordering::Release);
                    let event = evd.wait(TIMEOUT).expect("an event");
                    assert!(matches!(event, Event::Software(7)), "{event:?}");
                    done.store(2, Ordering::Release);
                });
                let (begin, mut posted) = (Instant::now(), false);
                while done.load(Ordering::Acquire) < 2 {
                    assert!(begin.elapsed() < TIMEOUT, "a wait did not end");
                    if done.load(Ordering::Acquire) == 1 && !std::mem::replace(&mut posted, true) {
                        evd.post(7).expect("posted");
                    }
                    let one = [a.memory.slice(0..MESSAGE)];
                    let none = CompletionFlags::empty();
                    a.ep.post_rdma_write(&one, remote, 3, none).expect("posted");
                    assert_eq!(a.completion(Waiting::Poll, 0).cookie, 3);
                }
            });
        },
    );
}

#[test]
fn several_waiters_of_one_adapter_each_get_their_own() {
    with_engine(
        "several_waiters_of_one_adapter_each_get_their_own",
        "127.66.3",
        || {
            const WAITERS: usize = 4;
            let (a, b) = Side::pair();
            let software: Vec<Evd> = (0..WAITERS)
                .map(|_| b.ia.create_evd(8, Streams::SOFTWARE | Streams::DTO))
                .collect::<Result<_, _>>()
                .expect("EVDs");
            std::thread::scope(|scope| {
                for (number, evd) in software.iter().enumerate() {
                    scope.spawn(move || {
                        let event = evd.wait(TIMEOUT).expect("an event");
                        assert!(
                            matches!(event, Event::Software(n) if n == number),
                            "{event:?}"
                        );
                    });
                }
                // One of them drives the engine for all, and leaves while others still wait.
                for (number, evd) in software.iter().enumerate() {
                    let mut done = 0;
                    a.send();
                    b.message(Waiting::Block, 0, &mut done);
                    assert_eq!(a.completion(Waiting::Block, 0).cookie, REQUEST);
                    evd.post(number).expect("posted");
                }
            });
        },
    );
}

#[test]
fn a_poll_of_the_last_byte_of_a_write_sees_all_of_it() {
    with_engine(
        "a_poll_of_the_last_byte_of_a_write_sees_all_of_it",
        "127.66.4",
        || {
            const ROUNDS: u32 = 300;
            let (a, b) = Side::pair();
            let seen = AtomicU32::new(0);
            for size in [13, 256, 512, 1000, 4096, 5000] {
                seen.store(0, Ordering::Release);
                let remote = b.memory.remote(0..WINDOW);
                let begin = Instant::now();
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        for round in 1..=ROUNDS {
                            let value = (round % 250) as u8 + 1;
                            while b.memory.load(size - 1) != value {
                                assert!(begin.elapsed() < TIMEOUT, "a write did not arrive");
                                std::thread::yield_now();
                            }
                            let bytes = b.memory.to_vec(0..size);
                            assert!(
                                bytes.iter().all(|byte| *byte == value),
                                "{size} bytes, round {round}: torn"
                            );
                            seen.store(round, Ordering::Release);
                        }
                    });
                    for round in 1..=ROUNDS {
                        a.memory.write(0, &vec![(round % 250) as u8 + 1; size]);
                        let all = [a.memory.slice(0..size)];
                        let to = Remote {
                            length: size as u32,
                            ..remote
                        };
                        a.ep.post_rdma_write(&all, to, 3, CompletionFlags::empty())
                            .expect("posted");
                        assert_eq!(a.completion(Waiting::Block, 0).cookie, 3);
                        while seen.load(Ordering::Acquire) != round {
                            assert!(begin.elapsed() < TIMEOUT, "the reader stopped");
                            std::thread::yield_now();
                        }
                    }
                });
            }
        },
    );
}

/// Returns the run time of all threads of this process, as counted by the kernel.
fn processor_time() -> Duration {
    let mut total = Duration::ZERO;
    for task in std::fs::read_dir("/proc/self/task").expect("threads") {
        let path = task.expect("a thread").path().join("schedstat");
        let text = std::fs::read_to_string(path).expect("its times");
        let nanoseconds = text.split_whitespace().next().expect("a number");
        total += Duration::from_nanos(nanoseconds.parse().expect("a number"));
    }
    total
}

#[test]
fn an_idle_process_uses_no_processor() {
    with_engine("an_idle_process_uses_no_processor", "127.66.5", || {
        let (a, b) = Side::pair();
        // A message each way, so that every timer and adaptive setting has been in use.
        let mut done = 0;
        a.send();
        b.message(Waiting::Poll, 0, &mut done);
        assert_eq!(a.completion(Waiting::Poll, 0).cookie, REQUEST);
        // Pending retransmission timers and short sleeps expire.
        std::thread::sleep(Duration::from_millis(200));
        let before = processor_time();
        std::thread::sleep(Duration::from_secs(2));
        let idle = processor_time() - before;
        assert!(
            idle < Duration::from_millis(10),
            "{idle:?} in 2 s of idling"
        );
        // A waiter sleeps too, also on an EVD without completions.
        for evd in [&a.completions, &a.connections] {
            let before = processor_time();
            let error = evd.wait(Duration::from_secs(1)).expect_err("nothing comes");
            assert!(error.is_empty(), "{error}");
            let asleep = processor_time() - before;
            println!("processor time: {idle:?} in 2 s of idling, {asleep:?} in 1 s of waiting");
            assert!(
                asleep < Duration::from_millis(10),
                "{asleep:?} in 1 s of waiting"
            );
        }
    });
}
