//! The statements, a file for each group of pages. They began with dat_lmr_free, dat_rmr_free and
//! dat_ep_disconnect, sentence by sentence.

mod adapters;
mod completions;
mod connections;
mod disconnect;
mod endpoints;
mod events;
mod handles;
mod regions;
mod windows;

use crate::dat::Dat;
use crate::verdict::Check;

/// A sentence of a manual page, and its test.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    /// The page, as in `man 3dat dat_lmr_free`.
    pub page: &'static str,
    /// What it promises, in our words.
    pub says: &'static str,
    /// Puts it to the test.
    pub test: fn(&Dat) -> Check,
}

/// All statements, by group.
pub const STATEMENTS: &[&[Statement]] = &[
    regions::STATEMENTS,
    windows::STATEMENTS,
    disconnect::STATEMENTS,
    endpoints::STATEMENTS,
    connections::STATEMENTS,
    completions::STATEMENTS,
    events::STATEMENTS,
    adapters::STATEMENTS,
    handles::STATEMENTS,
];

/// Writes the list of a group.
macro_rules! statements {
    ($($page:literal: $says:literal => $test:ident;)*) => {
        pub(super) const STATEMENTS: &[$crate::pages::Statement] = &[$(
            $crate::pages::Statement { page: $page, says: $says, test: $test },
        )*];
    };
}
use statements;
