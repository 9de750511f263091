//! IA handles of uDAPL 2.0: small integers for the consumer, the provider's pointers behind them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::registrations::Table;

/// An open IA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenIa {
    /// The provider's handle.
    pub provider: usize,
    /// Name it was opened by.
    pub name: String,
    /// The registered table it was opened through.
    pub table: Table,
}

/// Open IAs by number. Numbers begin at 1 and are used again lowest first, as C programs that print them expect.
#[derive(Debug, Default)]
pub struct Handles {
    slots: Mutex<Vec<Option<OpenIa>>>,
}

impl Handles {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            slots: Mutex::new(Vec::new()),
        }
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Option<OpenIa>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an IA its number.
    pub fn insert(&self, ia: OpenIa) -> usize {
        let mut slots = self.slots();
        let at = slots.iter().position(Option::is_none).unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        slots[at] = Some(ia);
        at + 1
    }

    /// The IA that a consumer means: by its number, or by the provider's handle, which programs that use the
    /// function table directly hold.
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

    /// The first IA that was opened by this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<OpenIa> {
        let slots = self.slots();
        slots.iter().flatten().find(|ia| ia.name == name).cloned()
    }

    /// Takes the IA out.
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

    /// Puts back what [`Handles::remove`] took out, under the same number.
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
