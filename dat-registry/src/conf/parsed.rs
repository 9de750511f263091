//! What a parser returns.

use super::alias::Alias;
use super::entry::Entry;
use super::error::ConfError;

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Entries in file order, without the faulty ones.
    pub entries: Vec<Entry>,
    /// Aliases in file order.
    pub aliases: Vec<Alias>,
    /// Faults and warnings.
    pub errors: Vec<ConfError>,
    /// Number of lines with a comment.
    pub comments: usize,
}
