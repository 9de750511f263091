//! The entries of a configuration, and which of them satisfies a request.

use std::path::Path;

use crate::conf::{self, Entry};
use crate::search::{self, SearchError};

/// A consumer's request for an IA (dat_ia_openv).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// IA name.
    pub name: &'a str,
    /// Major version of the consumer's API.
    pub major: u32,
    /// Minor version of the consumer's API.
    pub minor: u32,
    /// Whether the consumer calls the IA from several threads at a time.
    pub thread_safe: bool,
}

/// All entries of one configuration, in file order.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    entries: Vec<Entry>,
    /// Path of the file, for messages.
    source: String,
}

impl Catalog {
    /// Reads the configuration ([`search::find`]). A faulty entry is logged with file, line and column, and left out.
    ///
    /// # Errors
    /// The same as [`search::find`].
    pub fn read(own_path: Option<&Path>) -> Result<Self, SearchError> {
        let found = search::find(own_path)?;
        let (entries, errors) = conf::parse(&found.text, &found.path);
        for error in errors {
            tracing::warn!("{error}");
        }
        Ok(Self {
            entries,
            source: found.path.display().to_string(),
        })
    }

    /// Makes a catalog of entries that come from elsewhere.
    #[must_use]
    pub fn new(entries: Vec<Entry>, source: String) -> Self {
        Self { entries, source }
    }

    /// Returns all entries in file order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the first entry that satisfies `request`. An entry with exactly the requested thread safety is preferred to one
    /// that is safer. (Debian's registry requires all fields to be equal, but a thread-safe provider also serves a consumer that
    /// does not need it.)
    #[must_use]
    pub fn find(&self, request: &Request<'_>) -> Option<&Entry> {
        let fits = |e: &&Entry| {
            e.name == request.name
                && !e.api.kernel
                && e.api.major == request.major
                && e.api.minor >= request.minor
                && (e.thread_safe || !request.thread_safe)
        };
        let mut fitting = self.entries.iter().filter(fits);
        let exact = fitting
            .clone()
            .find(|e| e.thread_safe == request.thread_safe);
        exact.or_else(|| fitting.next())
    }

    /// Returns a message that says why no entry satisfies `request`, with the names that exist.
    #[must_use]
    pub fn explain_missing(&self, request: &Request<'_>) -> String {
        let same: Vec<&Entry> = self
            .entries
            .iter()
            .filter(|e| e.name == request.name)
            .collect();
        if same.is_empty() {
            let mut names: Vec<&str> = self.entries.iter().map(|e| e.name.as_str()).collect();
            names.dedup();
            let names = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            return format!(
                "{} has no IA {:?}; it has: {names}",
                self.source, request.name
            );
        }
        let has: Vec<String> = same
            .iter()
            .map(|e| {
                format!(
                    "{} {} at {}",
                    e.api,
                    if e.thread_safe {
                        "threadsafe"
                    } else {
                        "nonthreadsafe"
                    },
                    e.origin
                )
            })
            .collect();
        format!(
            "there is no IA {:?} of u{}.{}{}; there is {}",
            request.name,
            request.major,
            request.minor,
            if request.thread_safe {
                " threadsafe"
            } else {
                ""
            },
            has.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let text = "\
            a u2.0 threadsafe default safe.so v.1.0 \"\" \"\"\n\
            a u2.0 nonthreadsafe default unsafe.so v.1.0 \"\" \"\"\n\
            a u1.2 nonthreadsafe default old.so v.1.0 \"\" \"\"\n\
            b u2.0 threadsafe default b.so v.1.0 \"\" \"\"\n\
            k k2.0 threadsafe default k.so v.1.0 \"\" \"\"\n";
        Catalog::new(conf::parse(text, Path::new("t.conf")).0, "t.conf".into())
    }

    #[test]
    fn find_returns_the_best_entry_that_satisfies_the_request() {
        let catalog = catalog();
        let library = |name, major, minor, thread_safe| {
            catalog
                .find(&Request {
                    name,
                    major,
                    minor,
                    thread_safe,
                })
                .map(|e| e.library.as_str())
        };
        assert_eq!(library("a", 2, 0, false), Some("unsafe.so"));
        assert_eq!(library("a", 2, 0, true), Some("safe.so"));
        assert_eq!(library("a", 1, 2, false), Some("old.so"));
        assert_eq!(library("a", 1, 2, true), None);
        assert_eq!(library("a", 1, 1, false), Some("old.so"));
        assert_eq!(library("a", 2, 1, false), None);
        assert_eq!(
            library("b", 2, 0, false),
            Some("b.so"),
            "a thread-safe provider also serves a single thread"
        );
        assert_eq!(library("k", 2, 0, false), None);
    }

    #[test]
    fn the_message_for_an_unknown_name_lists_the_known_ones() {
        let text = catalog().explain_missing(&Request {
            name: "c",
            major: 2,
            minor: 0,
            thread_safe: false,
        });
        assert!(
            text.contains("t.conf has no IA \"c\"; it has: a, b, k"),
            "{text}"
        );
        let text = catalog().explain_missing(&Request {
            name: "b",
            major: 1,
            minor: 2,
            thread_safe: true,
        });
        assert!(text.contains("u2.0 threadsafe at t.conf:4"), "{text}");
    }
}
