//! How a statement comes off.

use dat_core::error::{Error, Kind};

/// Why a statement does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The provider says that it does not have this.
    Lacks(String),
    /// The provider does something else; what was seen.
    Broken(String),
}

/// Result of a test.
pub type Check<T = ()> = Result<T, Verdict>;

/// A failed check.
pub(crate) fn broken<T>(seen: impl Into<String>) -> Check<T> {
    Err(Verdict::Broken(seen.into()))
}

/// The call must succeed; a provider may say that it lacks what is asked for.
pub(crate) fn ok(code: u32, call: &str) -> Check {
    let Some(error) = Error::from_code(code) else {
        return Ok(());
    };
    let text = format!("{call} returned {error}");
    match error.kind() {
        Some(Kind::NotImplemented | Kind::ModelNotSupported) => Err(Verdict::Lacks(text)),
        _ => Err(Verdict::Broken(text)),
    }
}

/// The call must fail with `kind`, with or without a subtype.
pub(crate) fn refused(code: u32, kind: Kind, call: &str) -> Check {
    match Error::from_code(code) {
        Some(error) if error.kind() == Some(kind) => Ok(()),
        Some(error) => broken(format!("{call} returned {error}, not {}", kind.name())),
        None => broken(format!("{call} succeeded, expected {}", kind.name())),
    }
}

/// What was seen must be what is expected.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(seen: &T, expected: &T, what: &str) -> Check {
    if seen == expected {
        Ok(())
    } else {
        broken(format!("{what}: {seen:?}, expected {expected:?}"))
    }
}

/// `yes` must be true.
pub(crate) fn holds(yes: bool, otherwise: &str) -> Check {
    if yes { Ok(()) } else { broken(otherwise) }
}
