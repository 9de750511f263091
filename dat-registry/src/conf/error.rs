//! Faults of a dat.conf, with their place.

use super::entry::Origin;

/// Why a line is no entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}:{column}: {kind}; this entry is left out")]
pub struct ConfError {
    /// File and line.
    pub origin: Origin,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub kind: ConfErrorKind,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfErrorKind {
    /// A quote is not closed.
    #[error("this quote is not closed on the line")]
    OpenQuote,
    /// No blank behind a closing quote.
    #[error("a blank must follow a closing quote")]
    AfterQuote,
    /// Fewer than eight fields.
    #[error("{0} is missing; an entry has eight fields")]
    Missing(&'static str),
    /// More than eight fields.
    #[error("{0:?} is a ninth field; an entry has eight, put values with blanks in double quotes")]
    TooMany(String),
    /// A field that must not be empty is.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// A field with two possible words.
    #[error("{given:?} is neither {yes} nor {no}")]
    Choice {
        /// What stands there.
        given: String,
        /// One word.
        yes: &'static str,
        /// The other.
        no: &'static str,
    },
    /// Not `u2.0` or the like.
    #[error("API version {0:?} is not of the form u2.0, u1.2 or k1.2")]
    Api(String),
    /// Not `vendor.major.minor`.
    #[error("provider version {0:?} is not of the form vendor.major.minor, e.g. dapl.2.0")]
    ProviderVersion(String),
    /// No TOML, or not ours.
    #[error("{0}")]
    Toml(String),
}
