//! The statements, a file for each group of pages. They began with dat_lmr_free, dat_rmr_free and
//! dat_ep_disconnect, sentence by sentence.

mod adapters;
mod bounds;
mod bulk;
mod common;
mod completions;
mod connections;
mod counters;
mod datagrams;
mod disconnect;
mod endpoints;
mod events;
mod growth;
mod handles;
mod notification;
mod order;
mod processes;
mod regions;
mod rights;
mod service_points;
mod shared_receive;
mod traffic;
mod v2_only;
mod windows;

use crate::api::Api;
use crate::dat::Dat;
use crate::verdict::Check;

/// A sentence of a manual page, and its test.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    /// The page, as in `man 3dat dat_lmr_free`.
    pub page: &'static str,
    /// What it promises, in our words.
    pub says: &'static str,
    /// The first version that has it.
    pub since: Api,
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
    service_points::STATEMENTS,
    shared_receive::STATEMENTS,
    notification::STATEMENTS,
    v2_only::STATEMENTS,
    datagrams::STATEMENTS,
    counters::STATEMENTS,
    common::STATEMENTS,
    traffic::STATEMENTS,
    rights::STATEMENTS,
    bounds::STATEMENTS,
    order::STATEMENTS,
    bulk::STATEMENTS,
    growth::STATEMENTS,
    processes::STATEMENTS,
];

/// The statements of `group` that a version knows.
pub fn of_version(group: &[Statement], api: Api) -> impl Iterator<Item = &Statement> {
    group.iter().filter(move |s| s.since <= api)
}

/// Bytes of a message that is too long for a device to copy at its post, as devices do with short ones. So the device looks at the key when
/// it sends.
const NOT_INLINE: usize = 8192;

/// Writes the list of a group.
macro_rules! statements {
    (since $since:ident; $($page:literal: $says:literal => $test:ident;)*) => {
        pub(super) const STATEMENTS: &[$crate::pages::Statement] = &[$(
            $crate::pages::Statement {
                page: $page,
                says: $says,
                since: $crate::api::Api::$since,
                test: $test,
            },
        )*];
    };
    ($($page:literal: $says:literal => $test:ident;)*) => {
        statements! { since V1_2; $($page: $says => $test;)* }
    };
}
use statements;
