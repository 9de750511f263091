//! The entries of a configuration, and which of them satisfies a request.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::conf::{self, Alias, ConfError, ConfErrorKind, Effect, Entry, Origin, Parsed};
use crate::search::{self, Found, SearchError};

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

impl<'a> Request<'a> {
    /// Returns the request of a program that does not ask for thread safety.
    #[must_use]
    pub const fn new(name: &'a str, (major, minor): (u32, u32)) -> Self {
        Self {
            name,
            major,
            minor,
            thread_safe: false,
        }
    }
}

/// Longest chain of aliases that is followed.
const LONGEST_CHAIN: usize = 8;

/// Patterns that a message names behind names.
const PATTERNS: usize = 3;

/// All entries of one configuration. Those that win over others come first.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    parsed: Parsed,
    /// The files; those that win over others first.
    files: Vec<PathBuf>,
    /// Their paths, for messages.
    source: String,
}

impl Catalog {
    /// Reads the configuration ([`search::find`]). A faulty entry is logged with file, line and column, and left out.
    ///
    /// # Errors
    /// The same as [`search::find`].
    pub fn read(own_path: Option<&Path>) -> Result<Self, SearchError> {
        let catalog = Self::of(&search::find(own_path)?);
        for error in catalog.parsed.errors.iter().chain(&catalog.faults()) {
            tracing::warn!("{error}");
        }
        Ok(catalog)
    }

    /// Makes a catalog of files, those that win over others first.
    #[must_use]
    pub fn of(files: &[Found]) -> Self {
        let mut parsed = Parsed::default();
        for found in files {
            let one = parse(found);
            parsed.entries.extend(one.entries);
            parsed.aliases.extend(one.aliases);
            parsed.errors.extend(one.errors);
        }
        let paths = files.iter().map(|found| found.path.clone());
        Self::new(parsed, paths.collect())
    }

    /// Makes a catalog of what `files` say; those that win over others come first.
    #[must_use]
    pub fn new(parsed: Parsed, files: Vec<PathBuf>) -> Self {
        let paths: Vec<String> = files.iter().map(|p| p.display().to_string()).collect();
        Self {
            parsed,
            files,
            source: paths.join(", "),
        }
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
            faults.extend(self.fault_of(alias).map(|kind| ConfError {
                origin: alias.origin.clone(),
                column: alias.place.column,
                kind,
            }));
        }
        faults
    }

    fn fault_of(&self, alias: &Alias) -> Option<ConfErrorKind> {
        if self.target_of(&alias.target).is_none() {
            return Some(self.why_no_target(alias));
        }
        // The alias counts for a version of the API that its target has, if no entry of its name does.
        let rank = self.rank(&alias.origin);
        let wins = |e: &&Entry| e.name == alias.name && self.rank(&e.origin) <= rank;
        let entries = || self.parsed.entries.iter();
        let first = entries().find(wins)?;
        let reached = self.target_of(&alias.target)?;
        let mut targets = entries().filter(|e| e.for_name(&reached).is_some());
        let is_taken = |api: u32| entries().filter(wins).any(|e| e.api.major == api);
        targets
            .all(|target| is_taken(target.api.major))
            .then(|| ConfErrorKind::DeadAlias {
                first: first.origin.clone(),
            })
    }

    /// Returns the fault of an alias that leads to no entry. No longer chain is followed than for a request: programs do this for
    /// each alias when they read the file.
    fn why_no_target(&self, alias: &Alias) -> ConfErrorKind {
        let target = alias.target.clone();
        let mut seen = vec![&alias.target];
        while seen.len() <= LONGEST_CHAIN {
            let name = seen[seen.len() - 1];
            let Some(next) = self.alias(name).map(|next| &next.target) else {
                return ConfErrorKind::NoTarget(target);
            };
            if alias.is_for(name) || seen.contains(&next) {
                return ConfErrorKind::Loop(target);
            }
            seen.push(next);
        }
        ConfErrorKind::LongChain(target, LONGEST_CHAIN)
    }

    /// Returns the position of a line's file: a lower one wins.
    fn rank(&self, origin: &Origin) -> usize {
        let file = self.files.iter().position(|path| *path == origin.path);
        file.unwrap_or(self.files.len())
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

    /// Returns the first entry that satisfies `request`: an entry or alias of exactly that name, else a pattern of entries, else a pattern
    /// of aliases. Of an entry and an alias of the same name, the one in the file that wins counts, and in one file the entry. The entry is
    /// the requested name's: a pattern has become the entry of one name. Of the entries of one file, one with exactly the requested thread
    /// safety is preferred to one that is safer. (Debian's registry requires all fields to be equal, but a thread-safe provider also serves
    /// a consumer that does not need it.)
    #[must_use]
    pub fn find(&self, request: &Request<'_>) -> Option<Entry> {
        self.find_within(request, LONGEST_CHAIN)
    }

    /// [`find`](Self::find), over at most `aliases` of them.
    fn find_within(&self, request: &Request<'_>, aliases: usize) -> Option<Entry> {
        let alias = self.alias(request.name).filter(|_| aliases > 0);
        let target = || {
            let name = &alias?.target;
            self.find_within(&Request { name, ..*request }, aliases - 1)
        };
        let literal = alias.filter(|alias| !alias.is_pattern());
        let exact = self.find_entry(request, false);
        let entry_wins = exact.as_ref().is_some_and(|entry| {
            literal.is_none_or(|alias| self.rank(&entry.origin) <= self.rank(&alias.origin))
        });
        if entry_wins {
            return exact;
        }
        let of_alias = || literal.and_then(|_| target());
        of_alias()
            .or(exact)
            .or_else(|| self.find_entry(request, true))
            .or_else(target)
    }

    /// Returns the best entry that fits `request`: of exactly that name, or of a pattern.
    fn find_entry(&self, request: &Request<'_>, pattern: bool) -> Option<Entry> {
        let fits = |e: &&Entry| {
            e.is_pattern() == pattern
                && !e.api.kernel
                && e.api.major == request.major
                && e.api.minor >= request.minor
                && (e.thread_safe || !request.thread_safe)
        };
        let fitting = self.parsed.entries.iter().filter(fits);
        let mut all: Vec<Entry> = fitting.filter_map(|e| e.for_name(request.name)).collect();
        // An entry of a file that loses is no better for its thread safety.
        let file = &all.first()?.origin.path;
        let is_exact = |e: &Entry| e.thread_safe == request.thread_safe && e.origin.path == *file;
        let best = all.iter().position(is_exact).unwrap_or(0);
        Some(all.swap_remove(best))
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

    /// Returns the patterns of user-level entries of a major version, each once.
    fn patterns(&self, major: u32) -> Vec<&str> {
        let entries = self.parsed.entries.iter();
        let patterns = entries.filter(|e| !e.api.kernel && e.api.major == major && e.is_pattern());
        let mut names: Vec<&str> = Vec::new();
        for entry in patterns {
            if !names.contains(&entry.name.as_str()) {
                names.push(&entry.name);
            }
        }
        names
    }

    /// Returns the message for a name that no entry has. It names an alias that leads nowhere, and an entry that was left out: it may be
    /// the one that was meant. The entry `asks`, which asks for the name, is not offered.
    fn explain_unknown(&self, request: &Request<'_>, asks: Option<&str>) -> String {
        let mut names = self.names(request.major);
        names.retain(|name| Some(*name) != asks);
        let patterns = self.patterns(request.major);
        if patterns.contains(&request.name) {
            return format!(
                "{} has {:?} as a pattern, which is no IA: ask for one of its names, with a device for the *",
                self.source, request.name
            );
        }
        let noun = |count| if count == 1 { "pattern" } else { "patterns" };
        let list = match (names.is_empty(), patterns.is_empty()) {
            (true, true) => format!("no entry of u{}.x", request.major),
            (true, false) => format!("the {} {}", noun(patterns.len()), patterns.join(", ")),
            (false, true) => names.join(", "),
            (false, false) => {
                let first: Vec<&str> = patterns.iter().copied().take(PATTERNS).collect();
                let more = match patterns.len() - first.len() {
                    0 => String::new(),
                    n => format!(" and {n} more"),
                };
                let (names, first) = (names.join(", "), first.join(", "));
                format!("{names}, and the {} {first}{more}", noun(patterns.len()))
            }
        };
        let hint = conf::suggest::hint(request.name, names);
        let (has, they) = match self.files.len() {
            0 | 1 => ("has", "it has"),
            _ => ("have", "they have"),
        };
        let mut text = format!(
            "{} {has} no IA {:?}{hint}; {they}: {list}",
            self.source, request.name
        );
        if let Some(alias) = self.alias(request.name) {
            text += &match self.fault_of(alias) {
                Some(fault) => format!("; {}: {fault}", alias.origin),
                None => format!(
                    "; the alias at {} leads to {:?}",
                    alias.origin, alias.target
                ),
            };
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
        self.explain(request, None)
    }

    /// Does the same for the IA that `filter` wraps. A filter cannot wrap itself, so its own name is no remedy.
    #[must_use]
    pub fn explain_missing_below(&self, request: &Request<'_>, filter: &str) -> String {
        self.explain(request, Some(filter))
    }

    fn explain(&self, request: &Request<'_>, asks: Option<&str>) -> String {
        let same: Vec<&Entry> = self
            .parsed
            .entries
            .iter()
            .filter(|e| e.for_name(request.name).is_some())
            .collect();
        if same.is_empty() {
            return self.explain_unknown(request, asks);
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

/// Parses a file. One that cannot be read has that fault and nothing else.
fn parse(found: &Found) -> Parsed {
    let reason = match &found.contents {
        Ok(bytes) => return conf::parse(bytes, &found.path),
        Err(reason) => reason.clone(),
    };
    let origin = Origin {
        path: found.path.clone(),
        line: 1,
    };
    let error = ConfError {
        origin,
        column: 1,
        kind: ConfErrorKind::Unreadable(reason),
    };
    Parsed {
        errors: vec![error],
        ..Parsed::default()
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
            vec!["t.conf".into()],
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
        let line = |name: &str| format!("{name} u2.0 threadsafe default p.so v.1.0 \"* 0\" \"\"\n");
        let said = |text: &str| {
            let parsed = conf::parse(text.as_bytes(), Path::new("p.conf"));
            let request = Request {
                name: "c",
                major: 2,
                minor: 0,
                thread_safe: false,
            };
            Catalog::new(parsed, vec!["p.conf".into()]).explain_missing(&request)
        };
        let text = said(&(line("x-*") + &line("y-*-1") + &line("x-*")));
        assert!(text.ends_with("it has: the patterns x-*, y-*-1"), "{text}");
        let text = said(&["a", "x-*", "y-*", "z-*", "w-*"].map(line).concat());
        assert!(said(&line("x-*")).ends_with("it has: the pattern x-*"));
        let one = said(&(line("a") + &line("x-*")));
        assert!(one.ends_with("it has: a, and the pattern x-*"), "{one}");
        let wants = "it has: a, and the patterns x-*, y-*, z-* and 1 more";
        assert!(text.ends_with(wants), "{text}");
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
            let catalog = Catalog::new(parsed.clone(), vec!["t.conf".into()]);
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
        let faults: Vec<String> = Catalog::new(parsed.clone(), vec!["t.conf".into()])
            .faults()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(
            faults[0].starts_with("t.conf:7:12: the alias stands for \"loop\", which leads back"),
            "{faults:?}"
        );
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
    fn a_chain_of_aliases_that_is_too_long_is_named() {
        let entry = "n10 u2.0 threadsafe default a.so v.1.0 \"\" \"\"\n";
        let chain = |count: u32| -> String {
            (0..count)
                .map(|n| format!("alias n{n} n{}\n", n + 1))
                .collect()
        };
        let said = |text: &str| -> Vec<String> {
            let parsed = conf::parse(text.as_bytes(), Path::new("t.conf"));
            let catalog = Catalog::new(parsed, vec!["t.conf".into()]);
            catalog.faults().iter().map(ToString::to_string).collect()
        };
        let faults = said(&(chain(10) + entry));
        assert_eq!(faults.len(), 2, "{faults:?}");
        let wants = "t.conf:1:10: the alias stands for \"n1\", and more than 8 aliases follow";
        assert!(faults[0].starts_with(wants), "{faults:?}");
        for (text, wants) in [
            ("alias a b\nalias b c\n", "which no entry has"),
            ("alias a b\nalias b b\n", "which leads back"),
            ("alias a b\nalias b a\n", "which leads back"),
        ] {
            assert!(said(text)[0].contains(wants), "{:?}", said(text));
        }
    }

    #[test]
    fn an_alias_of_a_file_that_wins_leads_an_old_name_elsewhere() {
        let file = |path: &str, text: &str| Found {
            path: path.into(),
            contents: Ok(text.into()),
        };
        let main = "\
            ofa-v2-* u2.0 threadsafe default v.so v.1.0 \"* 0\" \"\"\n\
            ofa-v2-ib0 u2.0 threadsafe default ib.so v.1.0 \"\" \"\"\n\
            mine u2.0 threadsafe default mine.so v.1.0 \"\" \"\"\n\
            old u1.2 threadsafe default old.so v.1.0 \"\" \"\"\n";
        let library = |catalog: &Catalog, name, major| {
            let request = Request {
                name,
                major,
                minor: 0,
                thread_safe: false,
            };
            catalog.find(&request).map(|entry| entry.library)
        };
        let site = "alias ofa-v2-ib0 mine\nalias ofa-v2-ib1 mine\nalias old mine\n";
        let catalog = Catalog::of(&[file("d/site.conf", site), file("dat.conf", main)]);
        for name in ["ofa-v2-ib0", "ofa-v2-ib1", "old"] {
            assert_eq!(library(&catalog, name, 2).as_deref(), Some("mine.so"));
        }
        assert_eq!(library(&catalog, "ofa-v2-ib2", 2).as_deref(), Some("v.so"));
        // The alias leads to nothing of 1.2, so the entry counts.
        assert_eq!(library(&catalog, "old", 1).as_deref(), Some("old.so"));
        assert_eq!(catalog.faults(), []);
        // In one file, or in one that loses, the entry counts.
        let one = Catalog::of(&[file("dat.conf", &(main.to_owned() + site))]);
        let lost = Catalog::of(&[file("d/main.conf", main), file("site.conf", site)]);
        for catalog in [one, lost] {
            assert_eq!(library(&catalog, "ofa-v2-ib0", 2).as_deref(), Some("ib.so"));
            assert_eq!(
                library(&catalog, "ofa-v2-ib1", 2).as_deref(),
                Some("mine.so")
            );
            let faults: Vec<String> = catalog.faults().iter().map(ToString::to_string).collect();
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(faults[0].contains("this alias is dead"), "{faults:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_fault_of_its_own() {
        let gone = Found {
            path: "d/gone.conf".into(),
            contents: Err("Permission denied".into()),
        };
        let main = Found {
            path: "dat.conf".into(),
            contents: Ok("a u2.0 threadsafe default a.so v.1.0 \"\" \"\"\n".into()),
        };
        let catalog = Catalog::of(&[gone, main]);
        assert_eq!(catalog.names(2), ["a"]);
        assert_eq!(
            catalog.errors()[0].to_string(),
            "d/gone.conf: this cannot be read: Permission denied; it is left out"
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
            vec!["t.conf".into()],
        );
        let faults: Vec<String> = catalog.faults().iter().map(ToString::to_string).collect();
        assert_eq!(faults.len(), 1);
        assert!(
            faults[0].starts_with("t.conf:3:1: warning: this entry is dead: t.conf:1 has"),
            "{faults:?}"
        );
        assert_eq!(catalog.names(2), ["a"]);
    }

    #[test]
    fn an_entry_of_a_file_that_wins_counts_whatever_its_thread_safety() {
        let file = |path: &str, text: &str| Found {
            path: path.into(),
            contents: Ok(text.into()),
        };
        let site = "a u2.0 threadsafe default site.so v.1.0 \"\" \"\"\n\
            only u2.0 nonthreadsafe default site.so v.1.0 \"\" \"\"\n";
        let main = "a u2.0 nonthreadsafe default main.so v.1.0 \"\" \"\"\n\
            only u2.0 threadsafe default main.so v.1.0 \"\" \"\"\n";
        let catalog = Catalog::of(&[file("d/site.conf", site), file("dat.conf", main)]);
        let library = |name, thread_safe| {
            let request = Request {
                thread_safe,
                ..Request::new(name, (2, 0))
            };
            catalog.find(&request).map(|entry| entry.library)
        };
        assert_eq!(library("a", false).as_deref(), Some("site.so"));
        assert_eq!(library("a", true).as_deref(), Some("site.so"));
        assert_eq!(library("only", false).as_deref(), Some("site.so"));
        // The entry of the file that wins does not serve this request.
        assert_eq!(library("only", true).as_deref(), Some("main.so"));
    }
}
