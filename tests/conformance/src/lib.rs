//! What the manual pages of DAT promise, sentence by sentence, each with a test that goes through the C function
//! table of uDAPL 1.2 or 2.0: so it can be put to any provider, whoever wrote it in whatever language.
//!
//! [`STATEMENTS`] is the list; [`judge`] puts one statement to a [`Dat`]. Each statement opens its own IAs, and
//! closes them abruptly whatever happened, so statements neither depend on nor disturb each other.
//!
//! Sentences are in our words; the pages are those of uDAPL 1.2 (man3dat), and 2.0's where it has more.

mod api;
mod coverage;
pub mod dat;
mod event;
mod fixture;
mod fuzz;
pub mod host;
pub mod matrix;
pub mod pages;
pub mod raw;
mod revoke;
mod storm;
mod verdict;

pub use api::{Api, Table};
pub use coverage::{Calls, Coverage};
pub use dat::Dat;
pub use event::Seen;
pub use fuzz::fuzz;
pub use pages::{STATEMENTS, Statement, of_version};
pub use revoke::revoke;
pub use storm::storm;
pub use verdict::{Check, Verdict};

/// Puts one statement to a provider. A test that panics counts as broken.
pub fn judge(statement: &Statement, dat: &Dat) -> Check {
    let tested = std::panic::AssertUnwindSafe(|| (statement.test)(dat));
    std::panic::catch_unwind(tested).unwrap_or_else(|_| verdict::broken("the test panicked"))
}
