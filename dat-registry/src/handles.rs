//! IA handles of uDAPL 2.0: the consumer gets a small integer for the provider's pointer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::registrations::Table;

/// An open IA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenIa {
    /// Handle that the provider returned.
    pub provider: usize,
    /// Name by which the IA was opened.
    pub name: String,
    /// Registered table through which the IA was opened.
    pub table: Table,
}

/// Open IAs by number. Numbers begin at 1. A new IA gets the lowest free number, as C programs that print them expect.
#[derive(Debug, Default)]
pub struct Handles {
    slots: Mutex<Vec<Option<OpenIa>>>,
}

impl Handles {
    /// Returns an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            slots: Mutex::new(Vec::new()),
        }
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Option<OpenIa>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an IA and returns its number.
    pub fn insert(&self, ia: OpenIa) -> usize {
        let mut slots = self.slots();
        let at = slots.iter().position(Option::is_none).unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        slots[at] = Some(ia);
        at + 1
    }

    /// Returns the IA with this number or with this provider's handle, which programs hold that call the function table
    /// directly.
    #[must_use]
    pub fn find(&self, handle: usize) -> Option<OpenIa> {
        let slots = self.slots();
        let by_number = handle.checked_sub(1).and_then(|at| slots.get(at));
        match by_number {
            Some(slot) => slot.clone(),
            None => slots
                .iter()
                .flatten()
                .find(|ia| ia.provider == handle)
                .cloned(),
        }
    }

    /// Returns the first IA that was opened by this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<OpenIa> {
        let slots = self.slots();
        slots.iter().flatten().find(|ia| ia.name == name).cloned()
    }

    /// Removes an IA and returns it.
    pub fn remove(&self, handle: usize) -> Option<OpenIa> {
        let mut slots = self.slots();
        let at = match handle.checked_sub(1).filter(|at| *at < slots.len()) {
            Some(at) => at,
            None => slots
                .iter()
                .position(|s| s.as_ref().is_some_and(|ia| ia.provider == handle))?,
        };
        slots[at].take()
    }

    /// Adds an IA again that [`Handles::remove`] returned, with the same number.
    pub fn restore(&self, handle: usize, ia: OpenIa) {
        let mut slots = self.slots();
        match handle.checked_sub(1).filter(|at| *at < slots.len()) {
            Some(at) if slots[at].is_none() => slots[at] = Some(ia),
            _ => slots.push(Some(ia)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_at_one_and_work_both_ways() {
        let handles = Handles::new();
        let ia = |provider| OpenIa {
            provider,
            name: "a".into(),
            table: Table(1),
        };
        assert_eq!(
            (handles.insert(ia(0x1000)), handles.insert(ia(0x2000))),
            (1, 2)
        );
        assert_eq!(handles.find(2).unwrap().provider, 0x2000);
        assert_eq!(handles.find(0x1000).unwrap().provider, 0x1000);
        assert_eq!(handles.named("a").unwrap().provider, 0x1000);
        assert_eq!(handles.named("b"), None);
        for wrong in [0, 3, 0x3000, usize::MAX] {
            assert_eq!(handles.find(wrong), None, "{wrong:#x}");
        }
        assert_eq!(handles.remove(0x1000).unwrap().provider, 0x1000);
        assert_eq!((handles.find(1), handles.remove(1)), (None, None));
        assert_eq!(handles.insert(ia(0x4000)), 1);
        let taken = handles.remove(2).unwrap();
        handles.restore(2, taken);
        assert_eq!(handles.find(2).unwrap().provider, 0x2000);
    }
}
