//! The grammar of dat.conf.

mod entry;
mod error;
mod lexer;
mod parser;
mod toml_form;

use std::path::Path;

pub use entry::{Api, Entry, Origin, ProviderVersion};
pub use error::{ConfError, ConfErrorKind};

/// Parses `text` of the file `path`: TOML if the name ends in `.toml`, else the classic form. A faulty entry is left out; the
/// others are returned.
#[must_use]
pub fn parse(text: &str, path: &Path) -> (Vec<Entry>, Vec<ConfError>) {
    if path.extension().is_some_and(|e| e == "toml") {
        toml_form::parse(text, path)
    } else {
        parser::parse(text, path)
    }
}
