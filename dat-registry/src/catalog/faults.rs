//! Faults that only all entries and aliases together show.

use std::collections::HashMap;

use super::{Catalog, LONGEST_CHAIN};
use crate::conf::{Alias, ConfError, ConfErrorKind, Entry, Origin};

impl Catalog {
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

    /// Returns the fault of an alias: it leads nowhere, or no request reaches it.
    pub(super) fn fault_of(&self, alias: &Alias) -> Option<ConfErrorKind> {
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
}
