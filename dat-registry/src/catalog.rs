//! The entries of a configuration, and which of them satisfies a request. `faults` has what is wrong with them together, `explain`
//! the message for a request that none satisfies.

mod explain;
mod faults;

use std::path::{Path, PathBuf};

use crate::conf::{self, Alias, ConfError, ConfErrorKind, Entry, Origin, Parsed};
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
mod tests;
