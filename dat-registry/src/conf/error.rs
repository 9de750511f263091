//! Faults of a dat.conf, with their place.

use super::entry::Origin;

/// A fault of an entry, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}:{column}: {kind}; this entry is left out")]
pub struct ConfError {
    /// File and line of the entry.
    pub origin: Origin,
    /// Column of the fault in characters, from 1.
    pub column: usize,
    /// Kind of the fault.
    pub kind: ConfErrorKind,
}

/// Kinds of faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfErrorKind {
    /// A quote is not closed.
    #[error("this quote is not closed on the line")]
    OpenQuote,
    /// Text follows a closing quote without a blank.
    #[error("a blank must follow a closing quote")]
    AfterQuote,
    /// The entry has fewer than eight fields.
    #[error("{0} is missing; an entry has eight fields")]
    Missing(&'static str),
    /// The entry has more than eight fields.
    #[error("{0:?} is a ninth field; an entry has eight, put values with blanks in double quotes")]
    TooMany(String),
    /// A field is empty that must not be.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// A field has neither of its two possible words.
    #[error("{given:?} is neither {yes} nor {no}")]
    Choice {
        /// The field's text.
        given: String,
        /// The word for true.
        yes: &'static str,
        /// The word for false.
        no: &'static str,
    },
    /// The API version is not of the form `u2.0`.
    #[error("API version {0:?} is not of the form u2.0, u1.2 or k1.2")]
    Api(String),
    /// The provider version is not of the form `vendor.major.minor`.
    #[error("provider version {0:?} is not of the form vendor.major.minor, e.g. dapl.2.0")]
    ProviderVersion(String),
    /// The text is no TOML, or has unknown or missing keys.
    #[error("{0}")]
    Toml(String),
}
