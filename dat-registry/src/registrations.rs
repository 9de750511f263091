//! Function tables that are registered now, by a library that was loaded for an entry of dat.conf or by the program itself
//! (dat_registry_add_provider).

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard};

use dat_abi::types::DatProviderInfo;
use dat_os::mutex::lock;

use crate::catalog::Request;

/// Address of a registered function table. The registration's major version says of which type: `v1_2::table::DatProvider` or
/// `v2_0::table::DatProvider`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table(pub usize);

/// One registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// IA name.
    pub name: String,
    /// Major version of the table.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Whether several threads may call it at a time.
    pub thread_safe: bool,
    /// Function table.
    pub table: Table,
    /// Number of IAs that are open through the table.
    pub open: usize,
}

impl Registered {
    /// Returns the registration of `table` that a provider describes by `info`.
    #[must_use]
    pub fn new(table: *const c_void, info: &DatProviderInfo) -> Self {
        Self {
            name: info.name(),
            major: info.dapl_version_major,
            minor: info.dapl_version_minor,
            thread_safe: info.is_thread_safe != 0,
            table: Table(table as usize),
            open: 0,
        }
    }
}

/// The reason why a registration, or its removal, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Another registration has the same name, version and thread safety (`DAT_PROVIDER_ALREADY_REGISTERED`).
    #[error("a provider of that name, version and thread safety is registered already")]
    Already,
    /// No such registration exists (`DAT_PROVIDER_NOT_FOUND`).
    #[error("no provider of that name, version and thread safety is registered")]
    NotFound,
    /// IAs are open through the table (`DAT_PROVIDER_IN_USE`).
    #[error("IAs of that provider are open; close them first")]
    InUse,
}

/// The registrations of a process. No foreign code runs under the lock.
#[derive(Debug, Default)]
pub struct Registrations {
    list: Mutex<Vec<Registered>>,
    /// Tables whose libraries are being unloaded. No IA is opened through them.
    unloading: Mutex<Vec<Table>>,
}

impl Registrations {
    /// Returns an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            list: Mutex::new(Vec::new()),
            unloading: Mutex::new(Vec::new()),
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Registered>> {
        lock(&self.list)
    }

    /// Adds a registration (dat_registry_add_provider).
    ///
    /// # Errors
    /// [`RegisterError::Already`].
    pub fn add(&self, new: Registered) -> Result<(), RegisterError> {
        let mut list = self.list();
        if list.iter().any(|r| same(r, &new)) {
            return Err(RegisterError::Already);
        }
        list.push(new);
        Ok(())
    }

    /// Removes a registration (dat_registry_remove_provider).
    ///
    /// # Errors
    /// [`RegisterError::NotFound`], [`RegisterError::InUse`].
    pub fn remove(&self, old: &Registered) -> Result<(), RegisterError> {
        let mut list = self.list();
        let at = list
            .iter()
            .position(|r| same(r, old))
            .ok_or(RegisterError::NotFound)?;
        if list[at].open > 0 {
            return Err(RegisterError::InUse);
        }
        list.remove(at);
        Ok(())
    }

    /// Returns the table that satisfies `request`, by the rules of [`crate::catalog::Catalog::find`], and counts one more open IA. Tables of
    /// `others` do not count.
    #[must_use]
    pub fn open(&self, request: &Request<'_>, others: &[Table]) -> Option<Table> {
        let mut list = self.list();
        let unloading = lock(&self.unloading);
        let fits = |r: &Registered| {
            !unloading.contains(&r.table)
                && !others.contains(&r.table)
                && r.name == request.name
                && r.major == request.major
                && r.minor >= request.minor
                && (r.thread_safe || !request.thread_safe)
        };
        let at = list
            .iter()
            .position(|r| fits(r) && r.thread_safe == request.thread_safe)
            .or_else(|| list.iter().position(fits))?;
        list[at].open += 1;
        Some(list[at].table)
    }

    /// Counts one open IA less of `table` and `name`. Returns the registration if it was the last one.
    pub fn close(&self, name: &str, table: Table) -> Option<Registered> {
        let mut list = self.list();
        let found = list
            .iter_mut()
            .find(|r| r.table == table && r.name == name && r.open > 0);
        found.and_then(|r| {
            r.open -= 1;
            (r.open == 0).then(|| r.clone())
        })
    }

    /// Marks `table` as being unloaded if no IA of `name` is open through it; until [`Registrations::end_unload`] none can be
    /// opened. Returns whether it did.
    pub(crate) fn begin_unload(&self, name: &str, table: Table) -> bool {
        let list = self.list();
        let idle = list
            .iter()
            .any(|r| r.table == table && r.name == name && r.open == 0);
        if idle {
            lock(&self.unloading).push(table);
        }
        idle
    }

    /// Removes the registration and the mark of a table whose library was unloaded.
    pub(crate) fn end_unload(&self, name: &str, table: Table) {
        self.list().retain(|r| r.table != table || r.name != name);
        lock(&self.unloading).retain(|t| *t != table);
    }

    /// Returns a copy of the list.
    #[must_use]
    pub fn all(&self) -> Vec<Registered> {
        self.list().clone()
    }
}

fn same(a: &Registered, b: &Registered) -> bool {
    (&a.name, a.major, a.minor, a.thread_safe) == (&b.name, b.major, b.minor, b.thread_safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(minor: u32, thread_safe: bool) -> Registered {
        Registered {
            name: "a".into(),
            major: 2,
            minor,
            thread_safe,
            table: Table(minor as usize + 10),
            open: 0,
        }
    }

    #[test]
    fn registration_is_by_all_four_fields_and_counted() {
        let registrations = Registrations::new();
        let request = Request {
            name: "a",
            major: 2,
            minor: 0,
            thread_safe: false,
        };
        assert_eq!(registrations.open(&request, &[]), None);
        registrations.add(provider(0, true)).unwrap();
        assert_eq!(
            registrations.add(provider(0, true)),
            Err(RegisterError::Already)
        );
        assert_eq!(registrations.open(&request, &[]), Some(Table(10)));
        assert_eq!(
            registrations.remove(&provider(0, true)),
            Err(RegisterError::InUse)
        );
        registrations.close("a", Table(10));
        registrations.remove(&provider(0, true)).unwrap();
        assert_eq!(
            registrations.remove(&provider(0, true)),
            Err(RegisterError::NotFound)
        );
    }

    #[test]
    fn a_table_with_exactly_the_requested_thread_safety_is_preferred() {
        let registrations = Registrations::new();
        registrations.add(provider(0, true)).unwrap();
        registrations.add(provider(1, false)).unwrap();
        let open = |thread_safe| {
            let request = Request {
                thread_safe,
                ..Request::new("a", (2, 0))
            };
            registrations.open(&request, &[])
        };
        assert_eq!(
            (open(false), open(true)),
            (Some(Table(11)), Some(Table(10)))
        );
    }
}
