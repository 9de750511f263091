//! The entries of a configuration, and which of them satisfies a request.

use std::collections::HashMap;
use std::path::Path;

use crate::conf::{self, Alias, ConfError, ConfErrorKind, Effect, Entry, Origin, Parsed};
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

/// Longest chain of aliases that is followed.
const LONGEST_CHAIN: usize = 8;

/// All entries of one configuration. Those that win over others come first.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    parsed: Parsed,
    /// Paths of the files, for messages.
    source: String,
}

impl Catalog {
    /// Reads the configuration ([`search::find`]). A faulty entry is logged with file, line and column, and left out.
    ///
    /// # Errors
    /// The same as [`search::find`].
    pub fn read(own_path: Option<&Path>) -> Result<Self, SearchError> {
        let mut parsed = Parsed::default();
        let mut paths = Vec::new();
        for found in search::find(own_path)? {
            let one = conf::parse(&found.bytes, &found.path);
            parsed.entries.extend(one.entries);
            parsed.aliases.extend(one.aliases);
            parsed.errors.extend(one.errors);
            paths.push(found.path.display().to_string());
        }
        let catalog = Self::new(parsed, paths.join(", "));
        for error in catalog.parsed.errors.iter().chain(&catalog.faults()) {
            tracing::warn!("{error}");
        }
        Ok(catalog)
    }

    /// Makes a catalog of what files say.
    #[must_use]
    pub fn new(parsed: Parsed, source: String) -> Self {
        Self { parsed, source }
    }

    /// Returns all entries, those that win over others first.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.parsed.entries
    }

    /// Returns all aliases.
    #[must_use]
    pub fn aliases(&self) -> &[Alias] {
        &self.parsed.aliases
    }

    /// Returns the faults of single lines, which the parser found.
    #[must_use]
    pub fn errors(&self) -> &[ConfError] {
        &self.parsed.errors
    }

    /// Returns the paths of the files.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the faults that only all lines together show: entries that no request reaches, because an earlier one of the same file
    /// satisfies it, and aliases that lead nowhere.
    #[must_use]
    pub fn faults(&self) -> Vec<ConfError> {
        let mut faults = Vec::new();
        let mut first: HashMap<(&str, bool, u32, bool), &Entry> = HashMap::new();
        for entry in &self.parsed.entries {
            let key = (
                entry.name.as_str(),
                entry.api.kernel,
                entry.api.major,
                entry.thread_safe,
            );
            let winner = first.entry(key).or_insert(entry);
            let is_other = winner.origin != entry.origin;
            if is_other
                && winner.origin.path == entry.origin.path
                && winner.api.minor >= entry.api.minor
            {
                faults.push(ConfError {
                    origin: Origin {
                        path: entry.origin.path.clone(),
                        line: entry.places.name.line,
                    },
                    column: entry.places.name.column,
                    kind: ConfErrorKind::Dead {
                        first: winner.origin.clone(),
                    },
                });
            }
        }
        for alias in &self.parsed.aliases {
            if self.target_of(&alias.target).is_none() {
                faults.push(ConfError {
                    origin: alias.origin.clone(),
                    column: alias.place.column,
                    kind: ConfErrorKind::NoTarget(alias.target.clone()),
                });
            }
        }
        faults
    }

    /// Returns the name of an entry, of any version, that `name` leads to; `None` if there is none.
    fn target_of(&self, name: &str) -> Option<String> {
        let mut name = name.to_owned();
        for _ in 0..LONGEST_CHAIN {
            if self
                .parsed
                .entries
                .iter()
                .any(|e| e.for_name(&name).is_some())
            {
                return Some(name);
            }
            name.clone_from(&self.alias(&name)?.target);
        }
        None
    }

    /// Returns the alias for a name: one of exactly this name, else the first pattern.
    fn alias(&self, name: &str) -> Option<&Alias> {
        let all = || self.parsed.aliases.iter().filter(|a| a.is_for(name));
        all().find(|a| !a.is_pattern()).or_else(|| all().next())
    }

    /// Returns the first entry that satisfies `request`: one of that name, else a pattern that matches, else what an alias leads to.
    /// The entry is the requested name's: a pattern has become the entry of one name. An entry with exactly the requested thread safety
    /// is preferred to one that is safer. (Debian's registry requires all fields to be equal, but a thread-safe provider also serves a
    /// consumer that does not need it.)
    #[must_use]
    pub fn find(&self, request: &Request<'_>) -> Option<Entry> {
        let mut name = request.name.to_owned();
        for _ in 0..LONGEST_CHAIN {
            let request = Request {
                name: &name,
                ..*request
            };
            if let Some(entry) = self.find_named(&request) {
                return Some(entry);
            }
            name = self.alias(&name)?.target.clone();
        }
        None
    }

    fn find_named(&self, request: &Request<'_>) -> Option<Entry> {
        let fits = |e: &&Entry| {
            !e.api.kernel
                && e.api.major == request.major
                && e.api.minor >= request.minor
                && (e.thread_safe || !request.thread_safe)
        };
        for pattern in [false, true] {
            let named = self
                .parsed
                .entries
                .iter()
                .filter(|e| e.is_pattern() == pattern);
            let mut fitting = named.filter(fits).filter_map(|e| e.for_name(request.name));
            let mut all: Vec<Entry> = fitting.by_ref().collect();
            let exact = all
                .iter()
                .position(|e| e.thread_safe == request.thread_safe);
            if !all.is_empty() {
                return Some(all.swap_remove(exact.unwrap_or(0)));
            }
        }
        None
    }

    /// Returns the names of the user-level IAs of a major version, each once, and those of aliases. Patterns are left out.
    #[must_use]
    pub fn names(&self, major: u32) -> Vec<&str> {
        let entries = self.parsed.entries.iter();
        let entries = entries.filter(|e| !e.api.kernel && e.api.major == major && !e.is_pattern());
        let aliases = self.parsed.aliases.iter();
        let aliases = aliases.filter(|a| !a.is_pattern() && self.target_of(&a.target).is_some());
        let mut names: Vec<&str> = Vec::new();
        for name in entries
            .map(|e| e.name.as_str())
            .chain(aliases.map(|a| a.name.as_str()))
        {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Returns the message for a name that no entry has. It names an alias that leads nowhere, and an entry that was left out: it may be
    /// the one that was meant.
    fn explain_unknown(&self, request: &Request<'_>) -> String {
        let names = self.names(request.major);
        let list = if names.is_empty() {
            format!("no entry of u{}.x", request.major)
        } else {
            names.join(", ")
        };
        let hint = conf::suggest::hint(request.name, names);
        let source = &self.source;
        let mut text = format!(
            "{source} has no IA {:?}{hint}; it has: {list}",
            request.name
        );
        if let Some(alias) = self.alias(request.name) {
            text += &format!(
                "; the alias at {} leads to {:?}, which no entry has",
                alias.origin, alias.target
            );
        }
        let mut left_out = self
            .parsed
            .errors
            .iter()
            .filter(|e| e.kind.effect() != Effect::Warning);
        if let Some(first) = left_out.next() {
            text += &match left_out.count() {
                0 => format!("; {first}"),
                more => format!("; {first}, and {more} more, see `dat check`"),
            };
        }
        text
    }

    /// Returns a message that says why no entry satisfies `request`: what was asked for, which file was read, and what it has.
    #[must_use]
    pub fn explain_missing(&self, request: &Request<'_>) -> String {
        let same: Vec<&Entry> = self
            .parsed
            .entries
            .iter()
            .filter(|e| e.for_name(request.name).is_some())
            .collect();
        if same.is_empty() {
            return self.explain_unknown(request);
        }
        let has: Vec<String> = same
            .iter()
            .map(|e| {
                let safety = if e.thread_safe {
                    "threadsafe"
                } else {
                    "nonthreadsafe"
                };
                format!("{} {safety} at {}", e.api, e.origin)
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
        Catalog::new(
            conf::parse(text.as_bytes(), Path::new("t.conf")),
            "t.conf".into(),
        )
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
                .map(|e| e.library)
        };
        assert_eq!(library("a", 2, 0, false).as_deref(), Some("unsafe.so"));
        assert_eq!(library("a", 2, 0, true).as_deref(), Some("safe.so"));
        assert_eq!(library("a", 1, 2, false).as_deref(), Some("old.so"));
        assert_eq!(library("a", 1, 2, true), None);
        assert_eq!(library("a", 1, 1, false).as_deref(), Some("old.so"));
        assert_eq!(library("a", 2, 1, false), None);
        assert_eq!(
            library("b", 2, 0, false).as_deref(),
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
            text.contains("t.conf has no IA \"c\"; it has: a, b"),
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

    #[test]
    fn aliases_patterns_and_a_default() {
        let text = "\
            a u2.0 threadsafe default a.so v.1.0 \"\" \"\"\n\
            ofa-v2-*-1u u2.0 threadsafe nondefault u.so v.1.0 \"* 1\" \"\"\n\
            ofa-v2-* u2.0 threadsafe nondefault v.so v.1.0 \"* 0\" \"\"\n\
            alias OpenIB-cma b\nalias b a\nalias x-* a\nalias loop loop\nalias lost nowhere\n";
        let parsed = conf::parse(text.as_bytes(), Path::new("t.conf"));
        let find = |parsed: &Parsed, name| {
            let catalog = Catalog::new(parsed.clone(), "t.conf".into());
            let request = Request {
                name,
                major: 2,
                minor: 0,
                thread_safe: false,
            };
            catalog
                .find(&request)
                .map(|e| (e.name, e.library, e.ia_params))
        };
        let is = |name: &str, library: &str, params: &str| {
            Some((name.into(), library.into(), params.into()))
        };
        assert_eq!(find(&parsed, "OpenIB-cma"), is("a", "a.so", ""));
        assert_eq!(find(&parsed, "x-1"), is("a", "a.so", ""));
        assert_eq!(
            find(&parsed, "ofa-v2-mlx5_0-1u"),
            is("ofa-v2-mlx5_0-1u", "u.so", "mlx5_0 1")
        );
        assert_eq!(
            find(&parsed, "ofa-v2-ib0"),
            is("ofa-v2-ib0", "v.so", "ib0 0")
        );
        assert_eq!(
            (find(&parsed, "loop"), find(&parsed, "other")),
            (None, None)
        );
        let faults: Vec<String> = Catalog::new(parsed.clone(), String::new())
            .faults()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(
            faults[1].starts_with("t.conf:8:12: the alias stands for \"nowhere\""),
            "{faults:?}"
        );
        let mut with_default = parsed;
        with_default
            .aliases
            .extend(conf::parse(b"alias * a", Path::new("u")).aliases);
        assert_eq!(find(&with_default, "other"), is("a", "a.so", ""));
        assert_eq!(
            find(&with_default, "ofa-v2-ib0"),
            is("ofa-v2-ib0", "v.so", "ib0 0")
        );
    }

    #[test]
    fn an_entry_that_no_request_reaches_is_named() {
        let text = "\
            a u2.0 threadsafe default a.so v.1.0 \"\" \"\"\n\
            a u2.0 nonthreadsafe default b.so v.1.0 \"\" \"\"\n\
            a u2.0 threadsafe default c.so v.1.0 \"\" \"\"\n";
        let catalog = Catalog::new(
            conf::parse(text.as_bytes(), Path::new("t.conf")),
            "t.conf".into(),
        );
        let faults: Vec<String> = catalog.faults().iter().map(ToString::to_string).collect();
        assert_eq!(faults.len(), 1);
        assert!(
            faults[0].starts_with("t.conf:3:1: warning: this entry is dead: t.conf:1 has"),
            "{faults:?}"
        );
        assert_eq!(catalog.names(2), ["a"]);
    }
}
