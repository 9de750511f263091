//! MATRIX.md: the state of each function, in each version, on each of our providers, and the statements that test it.
//!
//! Refusals of a provider are declared ([`REFUSALS`]), and so are its exceptions to statements ([`all_exceptions`]).
//! [`put`] runs all statements on a provider and checks the declarations. A function that is declared as refused must
//! have been refused with that code, and never have succeeded. Any other function must have succeeded. [`markdown`]
//! prints the declarations.

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

use declared::{EXCEPTIONS, LACKS};
pub use declared::{Exception, REFUSALS, Refusal};
pub use library::{LIBRARY, LibraryFunction};
pub use print::markdown;

/// One of our providers: a column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Provider {
    /// Provider of dat-provider-ibverbs.
    Ibverbs,
    /// Kernel engine of dat-provider-softrxe.
    Kernel,
    /// User engine of dat-provider-softrxe.
    User,
    /// Provider of examples/loopback.
    Loopback,
}

impl Provider {
    /// All providers, in the order of the columns.
    pub const ALL: [Self; 4] = [Self::Ibverbs, Self::Kernel, Self::User, Self::Loopback];

    /// Returns the heading.
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

/// A row: a function, or a way to call it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The function without `dat_`, or an extension's macro.
    pub function: &'static str,
    /// A way to call it that a provider may lack.
    pub with: Option<&'static str>,
}

impl Row {
    /// Returns the name that [`Coverage`](crate::Coverage) uses for its calls.
    fn noted(self) -> &'static str {
        self.with.unwrap_or(self.function)
    }

    /// Returns the manual page.
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

/// Returns all rows of a version: the slots of its table in order, then the extension's operations.
#[must_use]
pub fn rows(api: Api) -> Vec<Row> {
    let fields = match api {
        Api::V1_2 => v1_2::table::DatProvider::FIELDS,
        Api::V2_0 => v2_0::table::DatProvider::FIELDS,
    };
    let slots = fields.iter().filter_map(|(name, _)| {
        let slot = name.strip_suffix("_func")?;
        // The extension's operations follow as rows of their own.
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

/// Returns the declared refusal of a cell; `None` if the function works.
#[must_use]
pub fn refusal(row: Row, provider: Provider) -> Option<&'static Refusal> {
    REFUSALS
        .iter()
        .find(|r| r.functions.contains(&row.noted()) && r.providers.contains(&provider))
}

/// Returns all exceptions, those that statements allow included.
pub fn all_exceptions() -> impl Iterator<Item = &'static Exception> {
    EXCEPTIONS.iter().chain(LACKS)
}

/// Returns whether one of `declared` is an exception of a provider to a statement.
fn has(declared: &[Exception], page: &str, says: &str, provider: Provider) -> bool {
    declared
        .iter()
        .any(|e| e.page == page && e.says == says && e.providers.contains(&provider))
}

/// Runs all statements on `dat`, which is `provider`, and compares the results with the declarations. Returns the
/// differences.
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
        let [breaks, lacks] =
            [EXCEPTIONS, LACKS].map(|declared| has(declared, s.page, s.says, provider));
        match crate::judge(s, dat) {
            Ok(()) if !breaks && !lacks => {}
            Err(Verdict::Broken(_)) if breaks => {}
            Err(Verdict::Lacks(_)) if lacks || refused.contains(s.page) => {}
            Err(Verdict::Lacks(why) | Verdict::Broken(why)) => {
                wrong.push(format!("{what}\n    {why}"));
            }
            Ok(()) => {
                wrong.push(format!(
                    "{what}\n    The statement holds, but is declared an exception."
                ));
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
            wrong.push(format!(
                "{name}: found {calls:?}; this differs from the declaration"
            ));
        }
    }
    wrong
}
