//! Signals in a process with an adapter of the user engine: they are delivered to the application's threads, and end
//! their waits.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use dat::{Ia, Streams};

const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `body` in a process of its own, with an adapter named "user".
fn with_engine(name: &str, host: u8, body: impl FnOnce()) {
    let params = format!("127.66.20.{host} 0 engine=user");
    let line = || dat_tests::line("user", &dat_tests::softrxe(), &params);
    dat_tests::inside(name, line, body);
}

/// Otherwise the kernel might deliver to the helper thread a signal that the application blocks in all threads and
/// waits for.
#[test]
fn threads_of_the_library_take_no_signal() {
    with_engine("threads_of_the_library_take_no_signal", 1, || {
        let _ia = Ia::open("user").expect("the IA opens");
        let begin = Instant::now();
        // The thread sets its name and blocks the signals itself, a moment after it started.
        loop {
            let mut ours = 0;
            let mut open = Vec::new();
            for task in std::fs::read_dir("/proc/self/task").expect("threads") {
                let path = task.expect("a thread").path().join("status");
                let status = std::fs::read_to_string(path).expect("its status");
                let of = |key: &str| {
                    let line = status.lines().find_map(|line| line.strip_prefix(key));
                    line.expect("a line").trim().to_owned()
                };
                let name = of("Name:");
                if !name.starts_with("dat-") {
                    continue;
                }
                ours += 1;
                let blocked = u64::from_str_radix(&of("SigBlk:"), 16).expect("a number");
                if [libc::SIGTERM, libc::SIGUSR1, libc::SIGCHLD, libc::SIGALRM]
                    .iter()
                    .any(|signal| blocked >> (signal - 1) & 1 == 0)
                {
                    open.push(name);
                }
            }
            if ours > 0 && open.is_empty() {
                return;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "of {ours}, {open:?} take signals"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}

extern "C" fn nothing(_: libc::c_int) {}

/// One of several waiters sleeps on the socket for all; signals end the waits of the others too.
#[test]
fn a_signal_ends_the_wait_of_whichever_thread_it_is_sent_to() {
    let name = "a_signal_ends_the_wait_of_whichever_thread_it_is_sent_to";
    with_engine(name, 2, || {
        // SAFETY: a handler that does nothing; waits are not restarted after it.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            assert_eq!(
                libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()),
                0
            );
        }
        let ia = Ia::open("user").expect("the IA opens");
        let evds: Vec<_> = (0..3)
            .map(|_| ia.create_evd(8, Streams::SOFTWARE))
            .collect::<Result<_, _>>()
            .expect("EVDs");
        std::thread::scope(|scope| {
            let mut waiters = Vec::new();
            for evd in &evds {
                let (here, there) = channel();
                let waiter = scope.spawn(move || {
                    // SAFETY: always right.
                    here.send(unsafe { libc::pthread_self() }).unwrap();
                    evd.wait(2 * PATIENCE).expect_err("interrupted")
                });
                waiters.push((waiter, there.recv().expect("its thread")));
                std::thread::sleep(Duration::from_millis(50));
            }
            // The first one drives the engine: the later ones are woken while it continues.
            for (waiter, thread) in waiters.into_iter().rev() {
                let begin = Instant::now();
                while !waiter.is_finished() {
                    assert!(
                        begin.elapsed() < PATIENCE,
                        "the signal did not end the wait"
                    );
                    // SAFETY: the thread is not joined yet.
                    unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                    std::thread::sleep(Duration::from_millis(10));
                }
                let error = waiter.join().expect("no panic");
                assert!(error.to_string().contains("INTERRUPTED"), "{error}");
            }
        });
    });
}
