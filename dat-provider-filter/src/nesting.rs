//! Filters that wrap filters: the chain of entries from a filter to the provider.
//!
//! The inner IA of a filter may be a filter of this library again. Such an entry is not loaded by a registry: this library has its code.

use crate::entry::{self, Entry};
use crate::inner::{self, Provider};
use crate::settings::SettingsError;
use crate::slots::LEVELS;

/// The reason why the filters below an entry cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NestingError {
    /// The filters wrap each other in a circle.
    #[error(
        "the filters wrap each other in a circle, {0}: let one of them name an IA that is no filter by inner="
    )]
    Circle(String),
    /// Too many filters wrap each other.
    #[error("more than {LEVELS} filters wrap each other, {0}: take some of them out")]
    TooMany(String),
    /// The settings of one of them are wrong.
    #[error("the filter {name} below it cannot be used: {source}")]
    Settings {
        /// Its name.
        name: String,
        /// What is wrong.
        source: SettingsError,
    },
}

/// Returns the filters that an entry wraps, the next one first; none if its inner IA is that of a provider.
///
/// # Errors
/// [`NestingError`].
pub(crate) fn below(entry: &'static Entry) -> Result<Vec<&'static Entry>, NestingError> {
    let filters = |name: &str, thread_safe| match inner::provider(name, thread_safe) {
        Provider::Filter(found) => {
            let added = entry::add(&found.name, found.thread_safe, &found.ia_params);
            added.map(Some).map_err(|source| NestingError::Settings {
                name: found.name,
                source,
            })
        }
        Provider::Ours | Provider::Classic => Ok(None),
    };
    let mut chain = vec![entry];
    let mut names = vec![entry.name()];
    let mut last = entry;
    while let Some(next) = filters(&last.inner, last.thread_safe)? {
        let is_circle = names.contains(&next.name());
        names.push(next.name());
        let path = || names.join(" over ");
        if is_circle {
            return Err(NestingError::Circle(path()));
        }
        if names.len() > LEVELS {
            return Err(NestingError::TooMany(path()));
        }
        chain.push(next);
        last = next;
    }
    Ok(chain.split_off(1))
}
