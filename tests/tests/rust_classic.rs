//! Classic C providers, and providers that dat.conf marks `nonthreadsafe`, through the Rust API: this program exports no symbol and
//! does not load libdat2.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dat::{Event, Ia, Streams};

const PATIENCE: Duration = Duration::from_secs(10);

fn unsafe_line(ia: &str, library: &Path) -> String {
    let line = dat_tests::line(ia, library, "127.0.0.1 0");
    line.replace(" threadsafe ", " nonthreadsafe ")
}

/// Compiles the provider of `tests/c/classic_provider.c`, whose symbols of the registry are undefined.
fn classic(dir: &Path) -> std::path::PathBuf {
    let library = dir.join("classic.so");
    let top = Path::new(dat_tests::TOP);
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,-z,now", "-o"])
        .arg(&library)
        .arg("-I")
        .arg(top.join("capi/include"))
        .arg(top.join("tests/c/classic_provider.c"))
        .status();
    assert!(made.expect("cc runs").success());
    library
}

#[test]
fn a_classic_provider_opens_answers_and_comes_back_after_its_last_close() {
    let dir = tempfile::tempdir().expect("a folder");
    let lines = || unsafe_line("classic", &classic(dir.path()));
    dat_tests::inside(
        "a_classic_provider_opens_answers_and_comes_back_after_its_last_close",
        lines,
        || {
            for _ in 0..2 {
                let ia = Ia::open("classic").expect("the IA opens");
                let again = Ia::open("classic").expect("it opens twice");
                ia.attributes().expect("the IA answers");
                drop(ia);
                again.attributes().expect("the other one is open still");
            }
            let names = dat::configured().expect("dat.conf");
            assert_eq!(names[0].0, "classic");
        },
    );
}

#[test]
fn a_wait_on_a_provider_for_one_thread_does_not_keep_other_threads_out() {
    let lines = || unsafe_line("loop", &dat_tests::loopback());
    dat_tests::inside(
        "a_wait_on_a_provider_for_one_thread_does_not_keep_other_threads_out",
        lines,
        || {
            let ia = Ia::open("loop").expect("the IA opens");
            let events = ia.create_evd(8, Streams::SOFTWARE).expect("an EVD");
            let began = AtomicBool::new(false);
            thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    began.store(true, Ordering::Release);
                    events.wait(PATIENCE)
                });
                while !began.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                ia.create_pz().expect("a call while the other thread waits");
                events.post(7).expect("posts");
                let event = waiter.join().expect("no panic");
                assert!(matches!(event, Ok(Event::Software(7))), "{event:?}");
            });
            let timeout = events.wait(Duration::from_millis(5));
            assert!(timeout.is_err_and(|error| error.is_empty()));
        },
    );
}
