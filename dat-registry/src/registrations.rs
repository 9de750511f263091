//! Providers that are registered now: by a library that was loaded for an entry, or by the program itself
//! (dat_registry_add_provider).

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::catalog::Request;

/// A registered function table. What it is of, its version says: 1.x is `v1_2::DatProvider`, 2.x `v2_0::DatProvider`.
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
    /// Thread safety.
    pub thread_safe: bool,
    /// The table.
    pub table: Table,
    /// IAs open through it.
    pub open: usize,
}

/// Why a registration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// All of name, version and thread safety are taken (`DAT_PROVIDER_ALREADY_REGISTERED`).
    #[error("a provider of that name, version and thread safety is registered already")]
    Already,
    /// Not registered (`DAT_PROVIDER_NOT_FOUND`).
    #[error("no provider of that name, version and thread safety is registered")]
    NotFound,
    /// IAs are open through it (`DAT_PROVIDER_IN_USE`).
    #[error("IAs of that provider are open")]
    InUse,
}

/// The registrations of a process. Short critical sections only: nothing foreign runs under the lock.
#[derive(Debug, Default)]
pub struct Registrations {
    list: Mutex<Vec<Registered>>,
    /// Tables whose libraries are being unloaded: not opened any more.
    unloading: Mutex<Vec<Table>>,
}

impl Registrations {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            list: Mutex::new(Vec::new()),
            unloading: Mutex::new(Vec::new()),
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Registered>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// dat_registry_add_provider.
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

    /// dat_registry_remove_provider.
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

    /// The table that satisfies `request`, counted as opened. Chosen as in [`crate::catalog::Catalog::find`].
    #[must_use]
    pub fn open(&self, request: &Request<'_>) -> Option<Table> {
        let mut list = self.list();
        let unloading = self
            .unloading
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fits = |r: &Registered| {
            !unloading.contains(&r.table)
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

    /// One IA less is open through `table` under `name`; returns whether it was the last one.
    pub fn close(&self, name: &str, table: Table) -> bool {
        let mut list = self.list();
        let found = list
            .iter_mut()
            .find(|r| r.table == table && r.name == name && r.open > 0);
        found.is_some_and(|r| {
            r.open -= 1;
            r.open == 0
        })
    }

    /// If nothing is open through `table` under `name`: from now on nothing can be, until [`Registrations::end_unload`].
    pub(crate) fn begin_unload(&self, name: &str, table: Table) -> bool {
        let list = self.list();
        let idle = list
            .iter()
            .any(|r| r.table == table && r.name == name && r.open == 0);
        if idle {
            self.unloading
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(table);
        }
        idle
    }

    /// The library of `table` is gone, and so is its registration.
    pub(crate) fn end_unload(&self, name: &str, table: Table) {
        self.list().retain(|r| r.table != table || r.name != name);
        self.unloading
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|t| *t != table);
    }

    /// A copy of the list.
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
        assert_eq!(registrations.open(&request), None);
        registrations.add(provider(0, true)).unwrap();
        assert_eq!(
            registrations.add(provider(0, true)),
            Err(RegisterError::Already)
        );
        assert_eq!(registrations.open(&request), Some(Table(10)));
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
    fn exactly_the_thread_safety_asked_for_goes_first() {
        let registrations = Registrations::new();
        registrations.add(provider(0, true)).unwrap();
        registrations.add(provider(1, false)).unwrap();
        let open = |thread_safe| {
            registrations.open(&Request {
                name: "a",
                major: 2,
                minor: 0,
                thread_safe,
            })
        };
        assert_eq!(
            (open(false), open(true)),
            (Some(Table(11)), Some(Table(10)))
        );
    }
}
