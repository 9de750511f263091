//! Attacks of other users of a host, and of peers on the network, against processes that use the user engine. Each file
//! in `tests` contains one kind of attack; this library contains what they share.
//!
//! A test consists of several processes. The one that nextest starts is the *scenario*. It starts each other process as
//! an [`Actor`] with a role, its *part*. An actor is the same test in a process of its own: as root, as another user, or
//! as a user in a network of its own ([`Identity`]). They exchange lines with the scenario on standard input and output.
//! [`Figures`] shows what an attack costs its victim: memory, processor time, descriptors.
//!
//! The crate imports `dat`, `dat-tests`, `dat-untested` and, in its tests, `softrxe-port` and `softrxe-proto`. Begin with `tests/scaffold.rs`.
//!
//! The suite needs root, because only root can start processes of several users. Without root each test is
//! [untested](dat_untested::untested). The filter `-E 'not package(dat-hostile)'` of nextest leaves the suite out.
//!
//! ```no_run
//! use dat_hostile::{Actor, Figures, Identity, UNPRIVILEGED, Stage, run_test, print_line, attack_then_wait};
//!
//! fn the_attack_is_harmless() {
//!     run_test("the_attack_is_harmless", scenario, |part| match part {
//!         "victim" => dat_hostile::echo::serve(5001),
//!         "attacker" => attack_then_wait("attacked", || { /* the attack */ }),
//!         other => panic!("no part {other}"),
//!     });
//! }
//!
//! fn scenario() {
//!     // An address that no other test uses.
//!     let stage = Stage::new("the_attack_is_harmless", "127.60.1.1", "");
//!     let victim = stage.start("victim", Identity::Root);
//!     victim.expect_line("ready");
//!     let mut figures = Figures::new("the attack");
//!     figures.note("before", &victim);
//!     let attacker = stage.start("attacker", Identity::User(UNPRIVILEGED));
//!     attacker.expect_line("attacked");
//!     figures.note("after", &victim);
//!     figures.show();
//! }
//! ```

pub mod abstract_socket;
mod actor;
pub mod echo;
mod identity;
mod old_kernel;
pub mod shared_memory;
mod usage;

pub use actor::{Actor, Stage};
pub use identity::{Identity, UNPRIVILEGED};
pub use usage::{Figures, Usage};

use std::io::Write;
use std::time::Duration;

/// Longest time that a step of a test may take on a busy machine.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(50);

pub(crate) const PART: &str = "DAT_HOSTILE_PART";

/// Runs `part` with its name in a process that [`Stage::start`] started, and `scenario` in any other process.
///
/// One user's attacks on another take root: without it the scenario is [untested](dat_untested::untested).
pub fn run_test(test: &str, scenario: impl FnOnce(), part: impl FnOnce(&str)) {
    match std::env::var(PART) {
        Ok(name) => part(&name),
        Err(_) => {
            // SAFETY: a plain system call.
            let uid = unsafe { libc::geteuid() };
            if uid != 0 {
                dat_untested::untested(format_args!(
                    "{test}: attacks of one user on another take root"
                ));
                return;
            }
            let _alone = dat_tests::alone();
            scenario();
        }
    }
}

/// Prints `line` for the scenario.
///
/// # Panics
/// When the scenario has ended.
pub fn print_line(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    // libtest begins a line of its own and does not end it.
    writeln!(out, "\n{line}").expect("the scenario reads");
    out.flush().expect("the scenario reads");
}

/// Reads the next line from the scenario; `None` if there are no more.
#[must_use]
pub fn read_line() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(bytes) if bytes > 0 => Some(line.trim_end().to_owned()),
        _ => None,
    }
}

/// Calls `attack`, prints `done`, and keeps the result of the attack (descriptors, names) until the scenario ends the
/// process.
pub fn attack_then_wait<T>(done: &str, attack: impl FnOnce() -> T) {
    let kept = attack();
    print_line(done);
    while read_line().is_some() {}
    drop(kept);
}
