//! Progress on the user engine: consumers that block, poll, mix both, or call nothing, between two IAs of this process over UDP.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dat::{
    Access, Completion, CompletionFlags, DtoStatus, Ep, Evd, Event, Ia, Pz, Region, Remote, Streams,
};

const PATIENCE: Duration = Duration::from_secs(30);
const MESSAGE: usize = 64;
const WINDOW: usize = 8192;
const RECEIVE: u64 = 1;
const REQUEST: u64 = 2;

/// `net` keeps the addresses of tests apart.
fn with_engine(name: &str, net: u8, body: impl FnOnce()) {
    let lines = || {
        let library = dat_tests::softrxe();
        let line = |ia: &str, host: u8| {
            dat_tests::line(ia, &library, &format!("127.66.{net}.{host} 0 engine=user"))
        };
        line("a", 1) + &line("b", 2)
    };
    dat_tests::inside(name, lines, body);
}

/// One end.
struct Side {
    ep: Ep,
    done: Evd,
    connections: Evd,
    messages: Region,
    window: Region,
    _pz: Pz,
    ia: Ia,
}

/// How a consumer looks for completions.
#[derive(Clone, Copy, Debug)]
enum Habit {
    Block,
    Poll,
    Mix,
}

impl Side {
    fn open(name: &str) -> Self {
        let ia = Ia::open(name).expect("the IA opens");
        let pz = ia.create_pz().expect("a PZ");
        let done = ia.create_evd(64, Streams::DTO).expect("an EVD");
        let connections = ia
            .create_evd(16, Streams::CR | Streams::CONNECTION)
            .expect("an EVD");
        let builder = ia
            .endpoint(&pz)
            .recv_evd(&done)
            .request_evd(&done)
            .connect_evd(&connections);
        let ep = builder
            .max_recv(16)
            .max_requests(16)
            .create()
            .expect("an EP");
        let messages = pz
            .allocate(2 * MESSAGE, Access::LOCAL_READ | Access::LOCAL_WRITE)
            .expect("memory");
        let window = pz.allocate(WINDOW, Access::ALL).expect("memory");
        let side = Self {
            ep,
            done,
            connections,
            messages,
            window,
            _pz: pz,
            ia,
        };
        for _ in 0..8 {
            side.expect();
        }
        side
    }

    /// Both ends, connected.
    fn pair() -> (Self, Self) {
        let (a, b) = (Self::open("a"), Self::open("b"));
        let listener = b.ia.listen(None, &b.connections).expect("a PSP");
        let address = b.ia.attributes().expect("attributes").address;
        let connect = a.ep.connect(address, listener.conn_qual());
        connect.timeout(PATIENCE).start().expect("started");
        let Event::Request(request) = b.connections.wait(PATIENCE).expect("a request") else {
            panic!("the first event is a request");
        };
        request.accept(&b.ep, b"").expect("accepted");
        for side in [&a, &b] {
            let event = side.connections.wait(PATIENCE).expect("an event");
            assert!(matches!(event, Event::Established { .. }), "{event:?}");
        }
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

    fn completion(&self, habit: Habit, turn: usize) -> Completion {
        let blocks = match habit {
            Habit::Block => true,
            Habit::Poll => false,
            Habit::Mix => turn.is_multiple_of(3),
        };
        if blocks {
            return self.done.wait_completion(PATIENCE).expect("a completion");
        }
        let begin = Instant::now();
        loop {
            match self.done.poll().expect("polled") {
                Some(Event::Completion(done)) => {
                    assert_eq!(done.status, DtoStatus::Success);
                    return done;
                }
                Some(other) => panic!("no completion: {other:?}"),
                None => assert!(begin.elapsed() < PATIENCE, "no completion came"),
            }
            // More threads than processors: whoever has nothing lets the others.
            std::thread::yield_now();
        }
    }

    /// The next message; completions of requests are counted.
    fn message(&self, habit: Habit, turn: usize, requests: &mut usize) {
        while self.completion(habit, turn).cookie != RECEIVE {
            *requests += 1;
        }
        self.expect();
    }
}

#[test]
fn consumers_that_block_poll_or_mix_both_all_progress() {
    with_engine(
        "consumers_that_block_poll_or_mix_both_all_progress",
        1,
        || {
            const ROUNDS: usize = 60;
            let (a, b) = Side::pair();
            for (mine, theirs) in [
                (Habit::Block, Habit::Block),
                (Habit::Poll, Habit::Poll),
                (Habit::Block, Habit::Poll),
                (Habit::Poll, Habit::Block),
                (Habit::Mix, Habit::Mix),
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
fn who_waits_for_the_end_of_a_connection_leaves_others_to_poll() {
    with_engine(
        "who_waits_for_the_end_of_a_connection_leaves_others_to_poll",
        6,
        || {
            let (a, b) = Side::pair();
            std::thread::scope(|scope| {
                // No completion queue is behind it, and it leads all the while.
                let end = scope.spawn(|| b.connections.wait(PATIENCE).expect("an event"));
                for habit in [Habit::Poll, Habit::Block, Habit::Poll] {
                    for turn in 0..200 {
                        let mut done = 0;
                        a.send();
                        b.message(habit, turn, &mut done);
                        assert_eq!(a.completion(habit, turn).cookie, REQUEST);
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
    with_engine("a_target_that_calls_nothing_is_written_and_read", 2, || {
        let (a, b) = Side::pair();
        let remote = b.window.remote(0..WINDOW);
        for round in 1..=50u8 {
            a.window.write(0, &[round; WINDOW]);
            let all = [a.window.slice(0..WINDOW)];
            let none = CompletionFlags::empty();
            a.ep.post_rdma_write(&all, remote, 3, none).expect("posted");
            assert_eq!(a.completion(Habit::Block, 0).cookie, 3);
            a.window.write(0, &[0; WINDOW]);
            a.ep.post_rdma_read(&all, remote, 4, none).expect("posted");
            assert_eq!(a.completion(Habit::Block, 0).cookie, 4);
            assert_eq!(a.window.to_vec(0..WINDOW), [round; WINDOW]);
        }
        assert_eq!(b.window.to_vec(0..WINDOW), [50; WINDOW]);
    });
}

#[test]
fn several_waiters_of_one_adapter_each_get_their_own() {
    with_engine(
        "several_waiters_of_one_adapter_each_get_their_own",
        3,
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
                        let event = evd.wait(PATIENCE).expect("an event");
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
                    b.message(Habit::Block, 0, &mut done);
                    assert_eq!(a.completion(Habit::Block, 0).cookie, REQUEST);
                    evd.post(number).expect("posted");
                }
            });
        },
    );
}

#[test]
fn who_polls_the_last_byte_of_a_write_sees_all_of_it() {
    with_engine(
        "who_polls_the_last_byte_of_a_write_sees_all_of_it",
        4,
        || {
            const ROUNDS: u32 = 300;
            let (a, b) = Side::pair();
            let seen = AtomicU32::new(0);
            for size in [13, 256, 512, 1000, 4096, 5000] {
                seen.store(0, Ordering::Release);
                let remote = b.window.remote(0..WINDOW);
                let begin = Instant::now();
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        for round in 1..=ROUNDS {
                            let value = (round % 250) as u8 + 1;
                            while b.window.load(size - 1) != value {
                                assert!(begin.elapsed() < PATIENCE, "a write did not come");
                                std::thread::yield_now();
                            }
                            let bytes = b.window.to_vec(0..size);
                            assert!(
                                bytes.iter().all(|byte| *byte == value),
                                "{size} bytes, round {round}: torn"
                            );
                            seen.store(round, Ordering::Release);
                        }
                    });
                    for round in 1..=ROUNDS {
                        a.window.write(0, &vec![(round % 250) as u8 + 1; size]);
                        let all = [a.window.slice(0..size)];
                        let to = Remote {
                            length: size as u32,
                            ..remote
                        };
                        a.ep.post_rdma_write(&all, to, 3, CompletionFlags::empty())
                            .expect("posted");
                        assert_eq!(a.completion(Habit::Block, 0).cookie, 3);
                        while seen.load(Ordering::Acquire) != round {
                            assert!(begin.elapsed() < PATIENCE, "the reader stopped");
                            std::thread::yield_now();
                        }
                    }
                });
            }
        },
    );
}

/// Time that all threads of this process have run, from the kernel's own count.
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
    with_engine("an_idle_process_uses_no_processor", 5, || {
        let (a, b) = Side::pair();
        // Something has moved, so every timer and habit has been in use.
        let mut done = 0;
        a.send();
        b.message(Habit::Poll, 0, &mut done);
        assert_eq!(a.completion(Habit::Poll, 0).cookie, REQUEST);
        // Retransmission timers that are still set run out, naps end.
        std::thread::sleep(Duration::from_millis(200));
        let before = processor_time();
        std::thread::sleep(Duration::from_secs(2));
        let idle = processor_time() - before;
        assert!(
            idle < Duration::from_millis(10),
            "{idle:?} in 2 s of idling"
        );
        // A waiter sleeps as well, also one for what is no completion.
        for evd in [&a.done, &a.connections] {
            let before = processor_time();
            let error = evd.wait(Duration::from_secs(1)).expect_err("nothing comes");
            assert!(error.is_empty(), "{error}");
            let waiting = processor_time() - before;
            println!("processor time: {idle:?} in 2 s of idling, {waiting:?} in 1 s of waiting");
            assert!(
                waiting < Duration::from_millis(10),
                "{waiting:?} in 1 s of waiting"
            );
        }
    });
}
