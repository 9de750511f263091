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

/// Compiles a provider of `tests/c`, whose symbols of the registry are undefined.
fn classic(dir: &Path, source: &str) -> std::path::PathBuf {
    let library = dir.join("classic.so");
    let top = Path::new(dat_tests::TOP);
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,-z,now", "-o"])
        .arg(&library)
        .arg("-I")
        .arg(top.join("capi/include"))
        .arg(top.join("tests/c").join(source))
        .status();
    assert!(made.expect("cc runs").success());
    library
}

#[test]
fn a_classic_provider_opens_answers_and_comes_back_after_its_last_close() {
    let dir = tempfile::tempdir().expect("a folder");
    let lines = || unsafe_line("classic", &classic(dir.path(), "classic_provider.c"));
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

/// A library is loaded and initialised for a name while another name of it is in use, and ends with the last adapter.
#[test]
fn a_provider_for_one_thread_is_entered_by_one_at_a_time() {
    const NAMES: [&str; 4] = ["one", "two", "three", "refused"];
    let dir = tempfile::tempdir().expect("a folder");
    let lines = || {
        let library = classic(dir.path(), "one_at_a_time.c");
        NAMES.map(|name| unsafe_line(name, &library)).concat()
    };
    dat_tests::inside(
        "a_provider_for_one_thread_is_entered_by_one_at_a_time",
        lines,
        || {
            let use_it = |name: &str| {
                for _ in 0..20 {
                    match Ia::open(name) {
                        Ok(ia) => _ = ia.attributes().expect("the IA answers"),
                        Err(error) => assert_eq!(name, "refused", "{error}"),
                    }
                }
            };
            thread::scope(|scope| {
                for name in NAMES {
                    scope.spawn(move || use_it(name));
                }
            });
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
