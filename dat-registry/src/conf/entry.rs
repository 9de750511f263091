//! One entry of dat.conf.

use std::fmt;

use super::place::{Origin, Place};

/// An IA name and how to open it: the eight fields of a line (dat_ia_open(3DAT), dat.conf(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the IA. If it contains a `*`, the entry is for all names that match; see [`Entry::for_name`].
    pub name: String,
    /// Version of the API that the provider implements.
    pub api: Api,
    /// `threadsafe`: several threads may call the provider at a time.
    pub thread_safe: bool,
    /// `default`: dat_registry_list_providers lists the entry.
    pub default: bool,
    /// Path or soname of the shared object.
    pub library: String,
    /// Version of the provider, for information only.
    pub provider_version: ProviderVersion,
    /// Parameters for `dat_provider_init`.
    pub ia_params: String,
    /// Parameters for the platform's loader; ours ignores them.
    pub platform_params: String,
    /// Place of the entry.
    pub origin: Origin,
    /// Places of the fields, for messages.
    pub places: Places,
}

/// Places of an entry's fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Place of the name.
    pub name: Place,
    /// Place of the library.
    pub library: Place,
    /// Place of the IA parameters.
    pub params: Place,
    /// The `key=value` settings among the IA parameters.
    pub settings: Vec<Setting>,
}

/// A setting among the IA parameters, as the file writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Key.
    pub key: String,
    /// Value.
    pub value: Value,
    /// Place of the key.
    pub place: Place,
}

/// A value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A word of the classic form, which has no types.
    Word(String),
    /// A string of the TOML form.
    Text(String),
    /// An integer of the TOML form.
    Number(i64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(text) | Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl Entry {
    /// Returns true if the entry is a pattern, so that it is no IA by itself.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        self.name.contains('*')
    }

    /// Returns this entry for the IA `name`; `None` if it is for other names. What the `*` of a pattern stands for replaces a `*` in
    /// the IA parameters. It stands for no other `*`: a pattern is no name of an IA.
    #[must_use]
    pub fn for_name(&self, name: &str) -> Option<Self> {
        let part = matched(&self.name, name)?;
        let mut entry = self.clone();
        if part.contains('*') {
            return None;
        }
        if self.is_pattern() {
            name.clone_into(&mut entry.name);
            entry.ia_params = entry.ia_params.replace('*', part);
        }
        Some(entry)
    }
}

/// Returns the part of `name` that the `*` of `pattern` stands for; `None` if the name does not match. A pattern without `*` matches
/// itself.
#[must_use]
pub(super) fn matched<'a>(pattern: &str, name: &'a str) -> Option<&'a str> {
    match pattern.split_once('*') {
        None => (pattern == name).then_some(""),
        Some((start, end)) => name.strip_prefix(start)?.strip_suffix(end),
    }
}

/// API version such as `u2.0`: level, major, minor. `u` is user level; `k` is kernel level, which programs cannot use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Api {
    /// Whether the level is `k`.
    pub kernel: bool,
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{}.{}",
            if self.kernel { 'k' } else { 'u' },
            self.major,
            self.minor
        )
    }
}

/// Provider version: `vendor.major.minor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderVersion {
    /// Name of the vendor.
    pub vendor: String,
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
}

impl fmt::Display for ProviderVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.vendor, self.major, self.minor)
    }
}
