//! One entry of dat.conf.

use std::fmt;
use std::path::PathBuf;

/// An IA name and how to open it: the eight fields of a line (dat_ia_open(3DAT), dat.conf(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the IA.
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

/// File and line of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Path of the file.
    pub path: PathBuf,
    /// Line, from 1; in a TOML file the number of the `[[ia]]` table.
    pub line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}
