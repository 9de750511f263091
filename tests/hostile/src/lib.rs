//! The attacker's suite: what other users of a host, and peers on the network, try against processes that use the
//! user engine. Each file in `tests` holds one attack; this library holds what they share.
//!
//! A test plays several parts. The test as nextest starts it is the *scenario*. It starts each other part as an
//! [`Actor`]: the same test in a process of its own, as root, as another user, or as a user in a network of its own
//! ([`Identity`]). Parts talk to the scenario by lines on standard input and output. [`Figures`] shows what an attack
//! costs its victim: memory, processor time, descriptors.
//!
//! The suite needs root, because only root can start processes of several users. Without root each test fails and
//! says so. The filter `-E 'not package(dat-hostile)'` of nextest leaves the suite out.
//!
//! ```no_run
//! use dat_hostile::{Actor, Figures, Identity, NOBODY, Stage, play, say, tempt};
//!
//! fn the_attack_is_harmless() {
//!     play("the_attack_is_harmless", scenario, |part| match part {
//!         "victim" => dat_hostile::echo::serve(5001),
//!         "attacker" => tempt("attacked", || { /* the attack */ }),
//!         other => panic!("no part {other}"),
//!     });
//! }
//!
//! fn scenario() {
//!     // An address that no other test uses.
//!     let stage = Stage::new("the_attack_is_harmless", "127.60.1.1", "");
//!     let victim = stage.start("victim", Identity::Root);
//!     victim.says("ready");
//!     let mut figures = Figures::new("the attack");
//!     figures.note("before", &victim);
//!     let attacker = stage.start("attacker", Identity::User(NOBODY));
//!     attacker.says("attacked");
//!     figures.note("after", &victim);
//!     figures.show();
//! }
//! ```

pub mod abstract_socket;
mod actor;
pub mod echo;
mod identity;
mod old_kernel;
mod usage;

pub use actor::{Actor, Stage};
pub use identity::{Identity, NOBODY};
pub use usage::{Figures, Usage};

use std::io::Write;
use std::time::Duration;

/// The longest time that a step may take on a busy machine. Nothing waits so long unless something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(50);

pub(crate) const PART: &str = "DAT_HOSTILE_PART";

/// Runs `part` in a process that [`Stage::start`] started, with the part's name, and else `scenario`.
///
/// # Panics
/// When the scenario is not run by root.
pub fn play(test: &str, scenario: impl FnOnce(), part: impl FnOnce(&str)) {
    match std::env::var(PART) {
        Ok(name) => part(&name),
        Err(_) => {
            // SAFETY: a plain system call.
            let uid = unsafe { libc::geteuid() };
            assert!(
                uid == 0,
                "{test} plays attacks of one user on another, which takes root (this is uid {uid}); \
                 nextest -E 'not package(dat-hostile)' leaves these tests out"
            );
            scenario();
        }
    }
}

/// Says `line` to the scenario, from a part.
///
/// # Panics
/// When the scenario is gone.
pub fn say(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    // libtest begins a line of its own and does not end it.
    writeln!(out, "\n{line}").expect("the scenario listens");
    out.flush().expect("the scenario listens");
}

/// Waits, in a part, for a line of the scenario. `None`: the scenario says no more.
#[must_use]
pub fn hear() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(bytes) if bytes > 0 => Some(line.trim_end().to_owned()),
        _ => None,
    }
}

/// Does `attack`, says `done`, and keeps what the attack returned (descriptors, names) until the scenario ends the
/// part.
pub fn tempt<T>(done: &str, attack: impl FnOnce() -> T) {
    let kept = attack();
    say(done);
    while hear().is_some() {}
    drop(kept);
}
