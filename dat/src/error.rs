//! What can go wrong.

use dat_core::error::Error as Code;
use dat_registry::registry::LookupError;

/// Result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name cannot be opened: no configuration, no such entry, or its library cannot be used. The text says which.
    #[error("{0}")]
    Lookup(#[from] LookupError),
    /// A call returned an error of the specification.
    #[error("{call}: {code}")]
    Call {
        /// The DAT function.
        call: &'static str,
        /// Type and subtype.
        code: Code,
    },
    /// An event is not what the caller waited for.
    #[error("waited for {wanted}, got {got}")]
    Unexpected {
        /// What was waited for.
        wanted: &'static str,
        /// The event.
        got: String,
    },
}

impl Error {
    /// The DAT return code, if it was a call.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Call { code, .. } => Some(*code),
            Self::Lookup(error) => Some(error.code()),
            Self::Unexpected { .. } => None,
        }
    }

    /// Whether nothing was there: an empty queue, or the time is over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        use dat_core::error::Kind;
        matches!(
            self.code().and_then(Code::kind),
            Some(Kind::QueueEmpty | Kind::TimeoutExpired)
        )
    }
}
