//! Result of a statement, and the checks that produce it. Each failure text names the call, what was found and what
//! was expected; the program prints the page and the sentence before it.

use dat_core::error::{Error, Kind};

/// The reason why a statement does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The provider reports that it does not support this.
    Lacks(String),
    /// The provider behaves differently; the text says how.
    Broken(String),
}

/// Result of a test.
pub type Check<T = ()> = Result<T, Verdict>;

/// Returns a failed check.
pub(crate) fn broken<T>(seen: impl Into<String>) -> Check<T> {
    Err(Verdict::Broken(seen.into()))
}

/// Checks that the call succeeded. A provider may report that it does not support the call.
pub(crate) fn ok(code: u32, call: &str) -> Check {
    let Some(error) = Error::from_code(code) else {
        return Ok(());
    };
    let text = format!("{call} returned {error}; expected DAT_SUCCESS");
    match error.kind() {
        Some(Kind::NotImplemented | Kind::ModelNotSupported) => Err(Verdict::Lacks(text)),
        _ => Err(Verdict::Broken(text)),
    }
}

/// Checks that the call failed with `kind`, with or without a subtype.
pub(crate) fn refused(code: u32, kind: Kind, call: &str) -> Check {
    match Error::from_code(code) {
        Some(error) if error.kind() == Some(kind) => Ok(()),
        Some(error) => broken(format!("{call} returned {error}; expected {}", kind.name())),
        None => broken(format!(
            "{call} returned DAT_SUCCESS; expected {}",
            kind.name()
        )),
    }
}

/// Checks that the found value is the expected one.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(seen: &T, expected: &T, what: &str) -> Check {
    if seen == expected {
        Ok(())
    } else {
        broken(format!("{what}: found {seen:?}, expected {expected:?}"))
    }
}

/// Checks that `yes` is true; `otherwise` says what was found.
pub(crate) fn holds(yes: bool, otherwise: &str) -> Check {
    if yes { Ok(()) } else { broken(otherwise) }
}
