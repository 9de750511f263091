//! One entry of dat.conf.

use std::fmt;
use std::path::PathBuf;

/// An IA name and how to open it: the eight fields of a line (dat_ia_open(3DAT), dat.conf(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The IA's name.
    pub name: String,
    /// The API that the library speaks.
    pub api: Api,
    /// `threadsafe`.
    pub thread_safe: bool,
    /// `default`: loaded when no version is asked for, listed by dat_registry_list_providers.
    pub default: bool,
    /// Path or soname of the shared object.
    pub library: String,
    /// Version of the provider, for people.
    pub provider_version: ProviderVersion,
    /// Given to `dat_provider_init`.
    pub ia_params: String,
    /// For the platform's loader; ours ignores it.
    pub platform_params: String,
    /// Where it stands.
    pub origin: Origin,
}

/// `u2.0`: user level, major, minor. `k` is kernel level, of no use to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Api {
    /// `k` instead of `u`.
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

/// `vendor.major.minor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderVersion {
    /// Who made it.
    pub vendor: String,
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
}

/// File and line of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file.
    pub path: PathBuf,
    /// Line, from 1; in a TOML file the number of the `[[ia]]` table.
    pub line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}
