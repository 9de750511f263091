//! Messages that say why no entry satisfies a request.

use super::{Catalog, Request};
use crate::conf::{self, Effect, Entry};

/// Patterns that a message names behind names.
const PATTERNS: usize = 3;

impl Catalog {
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
        let list = listed(&names, &patterns, request.major);
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

/// Returns the names and patterns of a configuration as a message lists them.
fn listed(names: &[&str], patterns: &[&str], major: u32) -> String {
    let noun = |count| if count == 1 { "pattern" } else { "patterns" };
    match (names.is_empty(), patterns.is_empty()) {
        (true, true) => format!("no entry of u{}.x", major),
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
    }
}
