//! Another name for an IA.

use super::entry::matched;
use super::place::{Origin, Place};

/// A line `alias NAME TARGET`, or a key of TOML's `[alias]`: programs that ask for NAME get TARGET. The alias `*` is the default IA, for
/// every name that the file does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// Name, or a pattern with one `*`.
    pub name: String,
    /// Name of an entry or of another alias.
    pub target: String,
    /// File and line.
    pub origin: Origin,
    /// Place of the target.
    pub place: Place,
}

impl Alias {
    /// Returns true if programs that ask for `name` get the target.
    #[must_use]
    pub fn is_for(&self, name: &str) -> bool {
        matched(&self.name, name).is_some()
    }

    /// Returns true if the name has a `*`.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        self.name.contains('*')
    }
}
