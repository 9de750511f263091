//! Faults of a dat.conf, with their place.

use std::fmt;

use super::place::Origin;
use super::suggest::hint;

/// A fault of an entry or of the file, with its place: `FILE:LINE:COLUMN: text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfError {
    /// File and line of the fault.
    pub origin: Origin,
    /// Column of the fault in characters, from 1.
    pub column: usize,
    /// Kind of the fault.
    pub kind: ConfErrorKind,
}

impl std::error::Error for ConfError {}

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            origin,
            column,
            kind,
        } = self;
        if let ConfErrorKind::Unreadable(_) = kind {
            return write!(f, "{}: {kind}; it is left out", origin.path.display());
        }
        match kind.effect() {
            Effect::Warning => write!(f, "{origin}:{column}: warning: {kind}"),
            Effect::Entry => write!(f, "{origin}:{column}: {kind}; this entry is left out"),
            Effect::Open => write!(f, "{origin}:{column}: {kind}; this IA does not open"),
            Effect::File => write!(f, "{origin}:{column}: {kind}; the whole file is left out"),
        }
    }
}

/// What a fault makes unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Warning,
    /// The IA of the entry, which is there but does not open.
    Open,
    /// The entry or the alias.
    Entry,
    /// All entries of the file.
    File,
}

/// Kinds of faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfErrorKind {
    /// A quote is not closed.
    #[error("this quote is not closed on the line; write a second \" behind the last value")]
    OpenQuote,
    /// Text follows a closing quote without a blank.
    #[error("a blank must follow a closing quote, not {0:?}")]
    AfterQuote(char),
    /// The entry has fewer than eight fields.
    #[error(
        "the field {0:?} is missing; an entry has eight, of which an empty one is written \"\""
    )]
    Missing(&'static str),
    /// The entry has more than eight fields.
    #[error("{0:?} is a ninth field; an entry has eight, put values with blanks in double quotes")]
    TooMany(String),
    /// A field is empty that must not be.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// A field has neither of its two possible words.
    #[error("{given:?} is neither {yes} nor {no}{}", hint(given, [*yes, *no]))]
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
    /// A name is longer than C programs can pass it.
    #[error("the IA name has {0} bytes; at most 255 fit into DAT_NAME_MAX_LENGTH")]
    LongName(usize),
    /// A field contains a character that no C string, line or name can have.
    #[error("the {field} contains {character:?}, which it must not")]
    Character {
        /// Name of the field.
        field: &'static str,
        /// The character.
        character: char,
    },
    /// A name has more than one `*`.
    #[error("the name {0:?} has more than one *")]
    Stars(String),
    /// A line of a classic file is TOML.
    #[error(
        "this is TOML, and only a file named *.toml is read as TOML; rename it (`dat convert` writes the classic form of it)"
    )]
    TomlLine,
    /// A line of a TOML file has the classic form.
    #[error(
        "this line has the classic form, and a file named *.toml is read as TOML; rename it (`dat convert` writes the TOML of it)"
    )]
    ClassicLine,
    /// A field is in typographic or single quotes.
    #[error("{0} is no quote here; write \" instead")]
    WrongQuote(char),
    /// A backslash ends a line, as in a shell.
    #[error("a backslash continues no line; write the entry on one line")]
    Continued,
    /// A setting has what a shell would expand.
    #[error("{0:?} is used as it stands: ~ and $NAME are not expanded; write the whole path")]
    NotExpanded(String),
    /// A byte of a field is not UTF-8.
    #[error("byte {0:#04x} is not UTF-8; save the file as UTF-8")]
    Encoding(u8),
    /// A byte of a comment is not UTF-8.
    #[error("byte {0:#04x} in this comment is not UTF-8")]
    EncodingOfComment(u8),
    /// The file, or a folder of files, cannot be read. The line and the column are 1.
    #[error("this cannot be read: {0}")]
    Unreadable(String),
    /// The file is UTF-16.
    #[error("the file is UTF-16; save it as UTF-8")]
    Utf16,
    /// The file begins with a byte order mark.
    #[error(
        "a byte order mark begins the file; it is ignored here, DAPL takes it for part of the first name"
    )]
    ByteOrderMark,
    /// Lines end with carriage return and line feed.
    #[error(
        "lines end with CR LF; this is accepted here, DAPL takes the CR behind a closing quote for a ninth field, and leaves the entry out"
    )]
    CarriageReturns,
    /// The text is no TOML.
    #[error("{0}")]
    Syntax(String),
    /// A table of the TOML form has a wrong or missing value.
    #[error("{0}")]
    Toml(String),
    /// A table of the TOML form has an unknown key.
    #[error("unknown key {key:?}{}; known ones: {}", hint(key, known.iter().copied()), known.join(", "))]
    UnknownKey {
        /// The key.
        key: String,
        /// The keys that are possible there.
        known: &'static [&'static str],
    },
    /// An earlier entry has the same name, version and thread safety.
    #[error("this entry is dead: {first} has the same name, version and thread safety")]
    Dead {
        /// Place of the earlier entry.
        first: Origin,
    },
    /// No entry has the name that an alias stands for.
    #[error(
        "the alias stands for {0:?}, which no entry has; correct the alias, or add an entry {0:?}"
    )]
    NoTarget(String),
    /// An alias leads back to itself.
    #[error(
        "the alias stands for {0:?}, which leads back to it; name an entry in one of the aliases"
    )]
    Loop(String),
    /// An alias leads over more aliases than are followed.
    #[error(
        "the alias stands for {0:?}, and more than {1} aliases follow one another; name an entry in one of them"
    )]
    LongChain(String, usize),
    /// Requests for an alias's name get an entry instead.
    #[error(
        "this alias is dead: {first} has an entry of this name; write the alias into a file of dat.conf.d, which wins"
    )]
    DeadAlias {
        /// Place of the entry.
        first: Origin,
    },
    /// A setting is without effect.
    #[error("{key} has no effect beside {by}")]
    NoEffect {
        /// The setting.
        key: String,
        /// The setting that makes it ineffective.
        by: String,
    },
    /// The provider refuses a setting, or its library cannot be used.
    #[error("{0}")]
    Provider(String),
}

impl ConfErrorKind {
    /// Returns what the fault makes unusable.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::EncodingOfComment(_)
            | Self::ByteOrderMark
            | Self::CarriageReturns
            | Self::NotExpanded(_)
            | Self::NoEffect { .. }
            | Self::Dead { .. }
            | Self::DeadAlias { .. } => Effect::Warning,
            Self::Provider(_) | Self::NoTarget(_) | Self::Loop(_) | Self::LongChain(..) => {
                Effect::Open
            }
            Self::Utf16 | Self::ClassicLine | Self::Syntax(_) | Self::Unreadable(_) => Effect::File,
            _ => Effect::Entry,
        }
    }
}
