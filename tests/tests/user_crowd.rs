//! The user engine with more runnable threads than processors: two IAs of this process over UDP, with threads bound to
//! processors.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dat::{CompletionFlags, DtoStatus, Event};
use dat_tests::engine::{Endpoint, Limits, with_engine};

const WINDOW: usize = 4096;

/// Opens an endpoint. The engine's thread stays on the processor that the calling thread is bound to.
fn open(name: &str) -> Endpoint {
    let limits = Limits {
        receives: 1,
        requests: 16,
        reads: 4,
        memory: WINDOW,
    };
    Endpoint::open(name, limits)
}

/// Returns the processors that this process may use.
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

/// Binds the calling thread, and threads that it starts from now on, to a processor.
fn bind(processor: usize) {
    // SAFETY: as above.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        let bound = libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        assert_eq!(bound, 0, "bound to processor {processor}");
    }
}

/// Returns the processor time of the calling thread.
fn processor_time() -> Duration {
    // SAFETY: all-zero is a time, and it lives until the call returns.
    unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// Returns true on Linux 6.6 to 6.11, where a woken thread waits for the scheduler's tick and cannot request
/// otherwise.
fn tick_decides() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
    let mut numbers = release
        .split(['.', '-'])
        .map(|n| n.trim().parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    ((6, 6)..(6, 12)).contains(&version)
}

/// The target's thread counts without pause and makes no calls; it shares its processor with the engine's thread. Its
/// count between a post and the arrival of the data is the processor time that the engine had to wait for. Other load
/// on the machine does not change it.
#[test]
fn a_target_that_spins_on_its_memory_is_served_before_its_time_slice_is_over() {
    const PUTS: usize = 400;
    const SERVED: Duration = Duration::from_millis(1);
    let name = "a_target_that_spins_on_its_memory_is_served_before_its_time_slice_is_over";
    with_engine(name, "127.67.1", || {
        let processors = processors();
        let [mine, theirs, ..] = processors[..] else {
            println!("one processor only: nothing to show");
            return;
        };
        bind(theirs);
        let b = open("b");
        let (spins, arrived, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let spinner = scope.spawn(|| {
                let begin = processor_time();
                let (mut count, mut last) = (0u64, 0);
                while !stop.load(Ordering::Relaxed) {
                    count += 1;
                    spins.store(count, Ordering::Relaxed);
                    let now = b.memory.load(0);
                    if now != last {
                        last = now;
                        arrived.store(count, Ordering::Release);
                    }
                }
                (processor_time() - begin).as_nanos() as f64 / count as f64
            });
            bind(mine);
            let a = open("a");
            a.connect(&b);
            let to = dat::Remote {
                length: 1,
                ..b.memory.remote(0..WINDOW)
            };
            let mut taken = Vec::new();
            for put in 0..PUTS {
                a.memory.write(0, &[(put % 2) as u8 + 1]);
                let before = arrived.load(Ordering::Acquire);
                let posted = spins.load(Ordering::Relaxed);
                let from = [a.memory.slice(0..1)];
                a.ep.post_rdma_write(&from, to, 3, CompletionFlags::empty())
                    .expect("posted");
                let done = loop {
                    match a.completions.poll().expect("polled") {
                        Some(Event::Completion(done)) => break done,
                        Some(other) => panic!("no completion: {other:?}"),
                        None => {}
                    }
                };
                assert_eq!(done.status, DtoStatus::Success);
                // The data has arrived; the spinner sees it when it runs next.
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

/// Returns the number of times that the calling thread went to sleep voluntarily.
fn sleeps() -> i64 {
    // SAFETY: all-zero is a value of this structure of numbers, and it lives until the call returns.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw
    }
}

/// Polls an empty EVD beside another thread on the same processor, until that thread has run for `span`. Returns the
/// number of times that the polling thread slept.
fn sleeps_beside_another(side: &Endpoint, span: Duration) -> i64 {
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
            assert!(side.completions.poll().expect("polled").is_none());
        }
        sleeps() - before
    })
}

#[test]
fn a_consumer_that_polls_in_vain_makes_room_for_others_on_its_processor() {
    let name = "a_consumer_that_polls_in_vain_makes_room_for_others_on_its_processor";
    with_engine(name, "127.67.2", || {
        bind(processors()[0]);
        let side = open("a");
        let slept = sleeps_beside_another(&side, Duration::from_millis(300));
        println!("the consumer slept {slept} times while another thread ran for 300 ms");
        assert!(slept >= 100, "it slept {slept} times");
    });
}
