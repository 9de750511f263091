//! MATRIX.md: each function, in each version, on each of our providers; what it does there, and which statements test it.
//!
//! What a provider refuses is declared ([`REFUSALS`]); so is what it does otherwise than a page says ([`EXCEPTIONS`]).
//! [`put`] puts all statements to a provider and finds out whether that is true: a function that is not declared as
//! refused must have succeeded, one that is must have been refused with that code and never have succeeded.
//! [`markdown`] writes the declarations down.

mod declared;
mod library;
mod print;

use std::collections::BTreeSet;

use dat_abi::types::CLayout;
use dat_abi::{v1_2, v2_0};
use dat_core::error::Kind;

use crate::api::Api;
use crate::dat::{Dat, Extension};
use crate::pages::{STATEMENTS, of_version};
use crate::verdict::Verdict;

pub use declared::{EXCEPTIONS, Exception, REFUSALS, Refusal};
pub use library::{LIBRARY, LibraryFunction};
pub use print::markdown;

/// A provider of ours: a column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Provider {
    /// dat-provider-ibverbs.
    Ibverbs,
    /// dat-provider-softrxe, kernel engine.
    Kernel,
    /// dat-provider-softrxe, user engine.
    User,
    /// examples/loopback.
    Loopback,
}

impl Provider {
    /// All, in the order of the columns.
    pub const ALL: [Self; 4] = [Self::Ibverbs, Self::Kernel, Self::User, Self::Loopback];

    /// Its name as a heading.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ibverbs => "ibverbs",
            Self::Kernel => "softrxe kernel",
            Self::User => "softrxe user",
            Self::Loopback => "loopback",
        }
    }
}

/// A line: a function, or what it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The function without `dat_`, or an extension's macro.
    pub function: &'static str,
    /// A way to call it that a provider may lack.
    pub with: Option<&'static str>,
}

impl Row {
    /// Under which name [`Coverage`](crate::Coverage) has its calls.
    fn noted(self) -> &'static str {
        self.with.unwrap_or(self.function)
    }

    /// The manual page.
    #[must_use]
    pub fn page(self) -> String {
        if self.function.starts_with("dat_") {
            self.function.to_owned()
        } else {
            format!("dat_{}", self.function)
        }
    }
}

/// Ways to call functions that a provider may lack although it has the function.
const WAYS: [(&str, &str, Api); 7] = [
    ("ep_connect", "a quality of service", Api::V1_2),
    ("ep_connect", "multipathing", Api::V1_2),
    ("ep_create", "an endpoint for datagrams", Api::V2_0),
    ("ep_set_watermark", "a watermark", Api::V1_2),
    ("lmr_create", "virtual memory", Api::V1_2),
    ("lmr_create", "an LMR's range", Api::V1_2),
    ("lmr_create", "shared memory", Api::V1_2),
];

/// All lines of a version: the slots of its table in their order, then the extension's operations.
#[must_use]
pub fn rows(api: Api) -> Vec<Row> {
    let fields = match api {
        Api::V1_2 => v1_2::table::DatProvider::FIELDS,
        Api::V2_0 => v2_0::table::DatProvider::FIELDS,
    };
    let slots = fields.iter().filter_map(|(name, _)| {
        let slot = name.strip_suffix("_func")?;
        // It is the extension's operations below.
        (slot != "handle_extendedop").then_some(slot)
    });
    let mut rows = Vec::new();
    for function in slots {
        rows.push(Row {
            function,
            with: None,
        });
        let ways = WAYS.iter().filter(|(of, ..)| *of == function);
        rows.extend(
            ways.filter(|(.., since)| *since <= api)
                .map(|(_, with, _)| Row {
                    function,
                    with: Some(with),
                }),
        );
    }
    if api == Api::V2_0 {
        rows.extend(Extension::ALL.iter().map(|extension| Row {
            function: extension.name,
            with: None,
        }));
    }
    rows
}

/// The declared refusal of a cell; `None`: yes.
#[must_use]
pub fn refusal(row: Row, provider: Provider) -> Option<&'static Refusal> {
    REFUSALS
        .iter()
        .find(|r| r.functions.contains(&row.noted()) && r.providers.contains(&provider))
}

/// The declared exception of a provider to a statement.
fn exception(page: &str, says: &str, provider: Provider) -> Option<&'static Exception> {
    EXCEPTIONS
        .iter()
        .find(|e| e.page == page && e.says == says && e.providers.contains(&provider))
}

/// Puts all statements to `dat`, which is `provider`, and compares what comes of it with what is declared. What is
/// returned is wrong with the one or the other.
#[must_use]
pub fn put(dat: &Dat, provider: Provider) -> Vec<String> {
    let api = dat.api();
    let refused: BTreeSet<String> = rows(api)
        .into_iter()
        .filter(|row| refusal(*row, provider).is_some())
        .map(Row::page)
        .collect();
    let mut wrong = Vec::new();
    for s in STATEMENTS.iter().flat_map(|group| of_version(group, api)) {
        let what = format!("{}: {}", s.page, s.says);
        let declared = exception(s.page, s.says, provider);
        match (crate::judge(s, dat), declared) {
            (Ok(()), None) | (Err(Verdict::Broken(_)), Some(_)) => {}
            (Err(Verdict::Lacks(_)), _) if refused.contains(s.page) => {}
            (Err(Verdict::Lacks(why) | Verdict::Broken(why)), _) => {
                wrong.push(format!("{what}\n    {why}"));
            }
            (Ok(()), Some(_)) => {
                wrong.push(format!("{what}\n    holds, but is declared an exception"));
            }
        }
    }
    for row in rows(api) {
        let calls = dat.coverage().of(row.noted());
        let name = format!("{} ({})", row.page(), row.noted());
        let as_declared = match refusal(row, provider) {
            None => calls.succeeded > 0,
            Some(refusal) => {
                let by = refusal.by.map_or(calls, |by| dat.coverage().of(by));
                let times = match refusal.kind {
                    Kind::NotImplemented => by.not_implemented,
                    _ => by.not_supported,
                };
                calls.succeeded == 0 && times > 0
            }
        };
        if !as_declared {
            wrong.push(format!("{name} is not what is declared: {calls:?}"));
        }
    }
    wrong
}
