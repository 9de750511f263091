//! Errors of the API.

use dat_core::error::Error as Code;
use dat_registry::registry::LookupError;

/// Result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name cannot be opened: there is no configuration or no such entry, or its library cannot be used. The text says which.
    #[error("{0}")]
    Lookup(#[from] LookupError),
    /// A call returned an error code of the specification.
    #[error("{call}: {code}")]
    Call {
        /// Name of the DAT function.
        call: &'static str,
        /// Type and subtype of the error.
        code: Code,
    },
    /// A wait took an event other than the expected one.
    #[error("dat_evd_wait: waited for {wanted}, got {got}")]
    Unexpected {
        /// Description of the expected event.
        wanted: &'static str,
        /// The event that arrived.
        got: String,
    },
}

impl Error {
    /// Returns the DAT return code, if a call failed.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Call { code, .. } => Some(*code),
            Self::Lookup(error) => Some(error.code()),
            Self::Unexpected { .. } => None,
        }
    }

    /// Returns true if the error says that there is no event: an empty queue, or a time-out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        use dat_core::error::Kind;
        matches!(
            self.code().and_then(Code::kind),
            Some(Kind::QueueEmpty | Kind::TimeoutExpired)
        )
    }
}
