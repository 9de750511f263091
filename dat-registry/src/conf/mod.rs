//! dat.conf: grammar and entries.

mod entry;
mod error;
mod lexer;
mod manifest;
mod parser;

use std::path::Path;

pub use entry::{Api, Entry, Origin, ProviderVersion};
pub use error::{ConfError, ConfErrorKind};

/// Parses `text` of the file `path`: TOML if the name ends in `.toml`, else the classic form. A bad entry costs
/// that entry only.
#[must_use]
pub fn parse(text: &str, path: &Path) -> (Vec<Entry>, Vec<ConfError>) {
    if path.extension().is_some_and(|e| e == "toml") {
        manifest::parse(text, path)
    } else {
        parser::parse(text, path)
    }
}
