//! The versions of the specification.

use std::str::FromStr;

use dat_abi::ret::from_v1_2;
use dat_abi::{v1_2, v2_0};

/// A version of uDAPL.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Api {
    /// uDAPL 1.2.
    V1_2,
    /// uDAPL 2.0.
    V2_0,
}

impl Api {
    /// Both versions.
    pub const ALL: [Self; 2] = [Self::V1_2, Self::V2_0];

    /// Returns `DAT_VERSION_MAJOR` and `DAT_VERSION_MINOR`.
    #[must_use]
    pub const fn version(self) -> (u32, u32) {
        match self {
            Self::V1_2 => (1, 2),
            Self::V2_0 => (2, 0),
        }
    }
}

impl std::fmt::Display for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor) = self.version();
        write!(f, "{major}.{minor}")
    }
}

impl FromStr for Api {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|api| api.to_string() == word);
        found.ok_or_else(|| format!("{word:?} is no version of uDAPL; expected 1.2 or 2.0"))
    }
}

/// A provider's function table, in the layout of its version.
#[derive(Clone, Copy, Debug)]
pub enum Table {
    /// 560 bytes.
    V1_2(&'static v1_2::table::DatProvider),
    /// 648 bytes.
    V2_0(&'static v2_0::table::DatProvider),
}

impl Table {
    /// Returns the version.
    #[must_use]
    pub const fn api(self) -> Api {
        match self {
            Self::V1_2(_) => Api::V1_2,
            Self::V2_0(_) => Api::V2_0,
        }
    }

    /// Converts a return code of this table's functions to 2.0's numbers.
    pub(crate) const fn code(self, raw: u32) -> u32 {
        match self {
            Self::V1_2(_) => from_v1_2(raw),
            Self::V2_0(_) => raw,
        }
    }

    /// Returns the table that a handle begins with.
    ///
    /// # Safety
    /// `handle` is one of a provider of this version.
    pub(crate) unsafe fn of_handle(self, handle: usize) -> Self {
        // SAFETY: the first word of a handle is its table, which lives as long as the provider is loaded.
        unsafe {
            match self {
                Self::V1_2(_) => Self::V1_2(&**(handle as *const *const _)),
                Self::V2_0(_) => Self::V2_0(&**(handle as *const *const _)),
            }
        }
    }
}

impl From<&'static v1_2::table::DatProvider> for Table {
    fn from(table: &'static v1_2::table::DatProvider) -> Self {
        Self::V1_2(table)
    }
}

impl From<&'static v2_0::table::DatProvider> for Table {
    fn from(table: &'static v2_0::table::DatProvider) -> Self {
        Self::V2_0(table)
    }
}
