//! The user engine where more threads want to run than there are processors: two IAs of this process over UDP, its threads bound to processors.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dat::{Access, CompletionFlags, DtoStatus, Ep, Evd, Event, Ia, Pz, Region, Streams};

const PATIENCE: Duration = Duration::from_secs(60);
const WINDOW: usize = 4096;

/// `net` keeps the addresses of tests apart.
fn with_engine(name: &str, net: u8, body: impl FnOnce()) {
    let lines = || {
        let library = dat_tests::softrxe();
        let line = |ia: &str, host: u8| {
            dat_tests::line(ia, &library, &format!("127.67.{net}.{host} 0 engine=user"))
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
    window: Region,
    _pz: Pz,
    ia: Ia,
}

impl Side {
    /// The engine's thread stays on the processor that the calling thread is bound to.
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
            .max_recv(1)
            .max_requests(16)
            .create()
            .expect("an EP");
        let window = pz.allocate(WINDOW, Access::ALL).expect("memory");
        Self {
            ep,
            done,
            connections,
            window,
            _pz: pz,
            ia,
        }
    }
}

fn connect(a: &Side, b: &Side) {
    let listener = b.ia.listen(None, &b.connections).expect("a PSP");
    let address = b.ia.attributes().expect("attributes").address;
    let connect = a.ep.connect(address, listener.conn_qual());
    connect.timeout(PATIENCE).start().expect("started");
    let Event::Request(request) = b.connections.wait(PATIENCE).expect("a request") else {
        panic!("the first event is a request");
    };
    request.accept(&b.ep, b"").expect("accepted");
    for side in [a, b] {
        let event = side.connections.wait(PATIENCE).expect("an event");
        assert!(matches!(event, Event::Established { .. }), "{event:?}");
    }
}

/// Processors that this process may use.
fn processors() -> Vec<usize> {
    // SAFETY: the set lives until the call returns, and all-zero is an empty one.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        (0..libc::CPU_SETSIZE as usize)
            .filter(|n| libc::CPU_ISSET(*n, &set))
            .collect()
    }
}

/// Binds the calling thread, and threads that it starts from now on.
fn bind(processor: usize) {
    // SAFETY: as above.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        let bound = libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        assert_eq!(bound, 0, "bound to processor {processor}");
    }
}

/// Processor time of the calling thread.
fn processor_time() -> Duration {
    // SAFETY: all-zero is a time, and it lives until the call returns.
    unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// Returns true on Linux 6.6 to 6.11: a thread that wakes up waits for the scheduler's tick there, and cannot ask for anything else.
fn tick_decides() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
    let mut numbers = release
        .split(['.', '-'])
        .map(|n| n.trim().parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    ((6, 6)..(6, 12)).contains(&version)
}

/// The target's thread counts up without pause and calls nothing; it shares its processor with the engine's thread. How far it counts between a post and the
/// arrival of the data is processor time that it keeps from the engine. Other load on the machine changes neither.
#[test]
fn a_target_that_spins_on_its_memory_is_served_before_its_time_slice_is_over() {
    const PUTS: usize = 400;
    const SERVED: Duration = Duration::from_millis(1);
    let name = "a_target_that_spins_on_its_memory_is_served_before_its_time_slice_is_over";
    with_engine(name, 1, || {
        let processors = processors();
        let [mine, theirs, ..] = processors[..] else {
            println!("one processor only: nothing to show");
            return;
        };
        bind(theirs);
        let b = Side::open("b");
        let (spins, arrived, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let spinner = scope.spawn(|| {
                let begin = processor_time();
                let (mut count, mut last) = (0u64, 0);
                while !stop.load(Ordering::Relaxed) {
                    count += 1;
                    spins.store(count, Ordering::Relaxed);
                    let now = b.window.load(0);
                    if now != last {
                        last = now;
                        arrived.store(count, Ordering::Release);
                    }
                }
                (processor_time() - begin).as_nanos() as f64 / count as f64
            });
            bind(mine);
            let a = Side::open("a");
            connect(&a, &b);
            let to = dat::Remote {
                length: 1,
                ..b.window.remote(0..WINDOW)
            };
            let mut taken = Vec::new();
            for put in 0..PUTS {
                a.window.write(0, &[(put % 2) as u8 + 1]);
                let before = arrived.load(Ordering::Acquire);
                let posted = spins.load(Ordering::Relaxed);
                let from = [a.window.slice(0..1)];
                a.ep.post_rdma_write(&from, to, 3, CompletionFlags::empty())
                    .expect("posted");
                let done = loop {
                    match a.done.poll().expect("polled") {
                        Some(Event::Completion(done)) => break done,
                        Some(other) => panic!("no completion: {other:?}"),
                        None => {}
                    }
                };
                assert_eq!(done.status, DtoStatus::Success);
                // The data are there; the spinner sees them when it runs next.
                let seen = loop {
                    match arrived.load(Ordering::Acquire) {
                        seen if seen == before => std::thread::yield_now(),
                        seen => break seen,
                    }
                };
                taken.push(seen - posted);
            }
            stop.store(true, Ordering::Relaxed);
            let nanoseconds = spinner.join().expect("it ends");
            taken.sort_unstable();
            let at = |share: usize| {
                Duration::from_nanos((taken[PUTS * share / 100] as f64 * nanoseconds) as u64)
            };
            println!(
                "the target ran for {:?} before a put arrived (median), {:?} (9 of 10), {:?} (99 of 100)",
                at(50),
                at(90),
                at(99)
            );
            assert!(
                at(90) < SERVED || tick_decides(),
                "9 of 10 puts took up to {:?} of the target's processor time",
                at(90)
            );
        });
    });
}

/// Times that the calling thread went to sleep by itself.
fn sleeps() -> i64 {
    // SAFETY: all-zero is a value of this structure of numbers, and it lives until the call returns.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw
    }
}

/// A consumer that polls an empty EVD, and another thread on its processor, for as long as that one has run for `span`. Returns how often the
/// consumer slept.
fn sleeps_beside_another(side: &Side, span: Duration) -> i64 {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while processor_time() < span {
                std::hint::spin_loop();
            }
            over.store(true, Ordering::Relaxed);
        });
        let before = sleeps();
        while !over.load(Ordering::Relaxed) {
            assert!(side.done.poll().expect("polled").is_none());
        }
        sleeps() - before
    })
}

#[test]
fn a_consumer_that_polls_in_vain_makes_room_for_others_on_its_processor() {
    let name = "a_consumer_that_polls_in_vain_makes_room_for_others_on_its_processor";
    with_engine(name, 2, || {
        bind(processors()[0]);
        let side = Side::open("a");
        let slept = sleeps_beside_another(&side, Duration::from_millis(300));
        println!("the consumer slept {slept} times while another thread ran for 300 ms");
        assert!(slept >= 100, "it slept {slept} times");
    });
}
