//! The entries of a configuration, and which of them satisfies a request.

use std::path::Path;

use crate::conf::{self, Entry};
use crate::search::{self, SearchError};

/// What a consumer asks for (dat_ia_openv).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// IA name.
    pub name: &'a str,
    /// Version of the API the consumer speaks.
    pub major: u32,
    /// Its minor version.
    pub minor: u32,
    /// Whether the consumer calls from several threads at a time.
    pub thread_safe: bool,
}

/// All entries of one configuration, in file order.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    entries: Vec<Entry>,
    /// Where they come from, or why there are none.
    source: String,
}

impl Catalog {
    /// Reads the configuration (see [`search::find`]). Faults are logged with file, line and column and cost
    /// what is faulty.
    ///
    /// # Errors
    /// As [`search::find`].
    pub fn read(beside: Option<&Path>) -> Result<Self, SearchError> {
        let found = search::find(beside)?;
        let (entries, errors) = conf::parse(&found.text, &found.path);
        for error in errors {
            tracing::warn!("{error}");
        }
        Ok(Self {
            entries,
            source: found.path.display().to_string(),
        })
    }

    /// From entries made otherwise.
    #[must_use]
    pub fn new(entries: Vec<Entry>, source: String) -> Self {
        Self { entries, source }
    }

    /// In file order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// File they come from.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The first entry that satisfies `request`; one with exactly the thread safety asked for goes before one
    /// that is safer. (Debian's registry wants all fields equal; a thread-safe provider serves a consumer that
    /// does not need it just as well.)
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

    /// Why `request` has no entry, with the names that do exist.
    #[must_use]
    pub fn why_not(&self, request: &Request<'_>) -> String {
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
            "IA {:?} is not there as u{}.{}{}; it is there as {}",
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
    fn the_best_entry_that_satisfies_the_request() {
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
            "a thread-safe provider serves everybody"
        );
        assert_eq!(library("k", 2, 0, false), None);
    }

    #[test]
    fn a_name_that_is_not_there_is_told_with_those_that_are() {
        let text = catalog().why_not(&Request {
            name: "c",
            major: 2,
            minor: 0,
            thread_safe: false,
        });
        assert!(
            text.contains("t.conf has no IA \"c\"; it has: a, b, k"),
            "{text}"
        );
        let text = catalog().why_not(&Request {
            name: "b",
            major: 1,
            minor: 2,
            thread_safe: true,
        });
        assert!(text.contains("u2.0 threadsafe at t.conf:4"), "{text}");
    }
}
