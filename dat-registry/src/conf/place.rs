//! Places in a file: what a message points at.

use std::fmt;
use std::path::PathBuf;

/// File and line of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Path of the file.
    pub path: PathBuf,
    /// Line, from 1; in a TOML file the line of the `[[ia]]` header.
    pub line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}

/// Line and column of a character, both from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Column in characters.
    pub column: usize,
}

impl Place {
    /// Returns the place of the byte `offset` of `text`. An offset beyond the end, or within a character, is the place before it.
    #[must_use]
    pub fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or_else(|| {
            let cut = (0..=offset.min(text.len())).rev();
            let end = cut.into_iter().find(|at| text.is_char_boundary(*at));
            &text[..end.unwrap_or(0)]
        });
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// Returns the place behind `text`, which begins at this one.
    #[must_use]
    pub(super) fn after(self, text: &str) -> Self {
        match text.rfind('\n') {
            None => Self {
                column: self.column + text.chars().count(),
                ..self
            },
            Some(at) => Self {
                line: self.line + text.matches('\n').count(),
                column: text[at + 1..].chars().count() + 1,
            },
        }
    }
}
