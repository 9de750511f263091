//! Conformance tests: the promises of DAT's manual pages, sentence by sentence, each with a test through the C
//! function table of uDAPL 1.2 or 2.0. They apply to any provider in any language.
//!
//! [`STATEMENTS`] is the list; [`judge`] runs one statement on a [`Dat`]. Each statement opens its own IAs and closes
//! them abruptly in any case, so statements neither depend on nor disturb each other.
//!
//! Sentences are in our words; the pages are those of uDAPL 1.2 (man3dat), and 2.0's where it has more.
//!
//! The crate imports `dat-core`, `dat-abi`, and `dat-registry` for its loader of providers. Begin reading in
//! `pages/mod.rs` (the statements), then `dat/mod.rs` (the table as methods) and `fixture.rs`; `suite` tests them in processes
//! of their own, `raw` passes invalid arguments, `matrix` generates MATRIX.md.

mod api;
mod calls;
mod coverage;
pub mod dat;
mod event;
mod fixture;
mod fuzz;
pub mod host;
pub mod matrix;
mod names;
pub mod pages;
mod peer;
mod printed;
mod progress;
pub mod raw;
mod revoke;
mod storm;
pub mod suite;
mod verdict;

pub use api::{Api, Table};
pub use coverage::{Calls, Coverage};
pub use dat::{Dat, Launcher};
pub use event::Seen;
pub use fuzz::fuzz;
pub use names::{EventNumber, Status};
pub use pages::{STATEMENTS, Statement, of_version};
pub use revoke::revoke;
pub use storm::storm;
pub use verdict::{Check, Verdict};

/// Runs one statement on a provider. A test that panics counts as broken.
pub fn judge(statement: &Statement, dat: &Dat) -> Check {
    let tested = std::panic::AssertUnwindSafe(|| (statement.test)(dat));
    std::panic::catch_unwind(tested)
        .unwrap_or_else(|_| verdict::broken("the test of the statement panicked"))
}
