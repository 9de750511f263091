//! Record of the functions called, and of their results.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dat_core::error::{Error, Kind};

/// Results of the calls of one function.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Calls {
    /// Number of calls that succeeded.
    pub succeeded: u64,
    /// Number of calls refused as `DAT_NOT_IMPLEMENTED`.
    pub not_implemented: u64,
    /// Number of calls refused as `DAT_MODEL_NOT_SUPPORTED`.
    pub not_supported: u64,
    /// Number of calls that failed otherwise.
    pub failed: u64,
}

/// The record of a provider under test; clones share it. Names are those of the table's slots, or of an extension's
/// operation.
#[derive(Clone, Default, Debug)]
pub struct Coverage(Arc<Mutex<BTreeMap<&'static str, Calls>>>);

impl Coverage {
    /// Records a call of `function` that returned `code` in 2.0's numbers.
    pub(crate) fn note(&self, function: &'static str, code: u32) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = all.entry(function).or_default();
        match Error::from_code(code).map(Error::kind) {
            None => calls.succeeded += 1,
            Some(Some(Kind::NotImplemented)) => calls.not_implemented += 1,
            Some(Some(Kind::ModelNotSupported)) => calls.not_supported += 1,
            Some(_) => calls.failed += 1,
        }
    }

    /// Returns the results of the calls of `function`.
    #[must_use]
    pub fn of(&self, function: &str) -> Calls {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(function).copied().unwrap_or_default()
    }
}
