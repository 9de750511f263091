//! IA handles of uDAPL 2.0: the consumer gets a small integer for the provider's pointer.

use std::sync::{Mutex, MutexGuard};

use dat_os::mutex::lock;

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

/// What a number stands for.
#[derive(Debug)]
enum Slot {
    Free,
    Open(OpenIa),
    /// A close is in progress, which the provider may refuse.
    Closing(OpenIa),
}

impl Slot {
    const fn ia(&self) -> Option<&OpenIa> {
        match self {
            Self::Free => None,
            Self::Open(ia) | Self::Closing(ia) => Some(ia),
        }
    }
}

/// Open IAs by number. Numbers begin at 1. A new IA gets the lowest free number, as C programs that print them expect. A number is in use
/// until its provider has closed the IA.
#[derive(Debug, Default)]
pub struct Handles {
    slots: Mutex<Vec<Slot>>,
}

impl Handles {
    /// Returns an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            slots: Mutex::new(Vec::new()),
        }
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        lock(&self.slots)
    }

    /// Adds an IA and returns its number.
    pub fn insert(&self, ia: OpenIa) -> usize {
        let mut slots = self.slots();
        let free = slots.iter().position(|slot| matches!(slot, Slot::Free));
        let at = free.unwrap_or_else(|| {
            slots.push(Slot::Free);
            slots.len() - 1
        });
        slots[at] = Slot::Open(ia);
        at + 1
    }

    /// Returns the IA with this number or with this provider's handle, which programs hold that call the function table
    /// directly.
    #[must_use]
    pub fn find(&self, handle: usize) -> Option<OpenIa> {
        let slots = self.slots();
        slots[index(&slots, handle)?].ia().cloned()
    }

    /// Returns the first IA that was opened by this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<OpenIa> {
        let slots = self.slots();
        let mut all = slots.iter().filter_map(Slot::ia);
        all.find(|ia| ia.name == name).cloned()
    }

    /// Begins to close the IA that [`find`](Self::find) finds, and returns its number and the IA. Returns `None` if there is none, or
    /// another close of it is in progress. [`end_close`](Self::end_close) ends the close; the number keeps its IA until then.
    pub fn begin_close(&self, handle: usize) -> Option<(usize, OpenIa)> {
        let mut slots = self.slots();
        let at = index(&slots, handle)?;
        let Slot::Open(ia) = &slots[at] else {
            return None;
        };
        let ia = ia.clone();
        slots[at] = Slot::Closing(ia.clone());
        Some((at + 1, ia))
    }

    /// Ends a close that [`begin_close`](Self::begin_close) began: frees `number`, or keeps its IA open if the provider refused.
    pub fn end_close(&self, number: usize, closed: bool) {
        let mut slots = self.slots();
        let Some(slot) = number.checked_sub(1).and_then(|at| slots.get_mut(at)) else {
            return;
        };
        *slot = match std::mem::replace(slot, Slot::Free) {
            Slot::Closing(_) if closed => Slot::Free,
            Slot::Closing(ia) => Slot::Open(ia),
            other => other,
        };
    }
}

/// Returns the index of the slot of a number, or of that of a provider's handle. A provider may use a handle again before the close of its
/// former IA has ended, so an open IA comes before one that is being closed.
fn index(slots: &[Slot], handle: usize) -> Option<usize> {
    let number = handle.checked_sub(1).filter(|at| *at < slots.len());
    let has = |slot: &Slot| slot.ia().is_some_and(|ia| ia.provider == handle);
    number
        .or_else(|| {
            slots
                .iter()
                .position(|slot| matches!(slot, Slot::Open(_)) && has(slot))
        })
        .or_else(|| slots.iter().position(has))
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
        let (number, closing) = handles.begin_close(0x1000).unwrap();
        assert_eq!((number, closing.provider), (1, 0x1000));
        handles.end_close(1, true);
        assert_eq!(handles.find(1), None);
        assert_eq!(handles.begin_close(1), None);
        assert_eq!(handles.insert(ia(0x4000)), 1);
    }

    #[test]
    fn a_number_is_in_use_while_its_ia_is_being_closed() {
        let handles = Handles::new();
        let ia = |name: &str| OpenIa {
            provider: 0x1000,
            name: name.into(),
            table: Table(1),
        };
        assert_eq!(handles.insert(ia("refuses")), 1);
        for _ in 0..2 {
            assert_eq!(handles.begin_close(1).unwrap().0, 1);
            assert_eq!(handles.begin_close(1), None, "of a second thread");
            assert_eq!(handles.begin_close(0x1000), None, "of a second thread");
            assert_eq!(handles.find(1).unwrap().name, "refuses");
            handles.end_close(1, false);
        }
        handles.begin_close(1).unwrap();
        // The provider has closed it, and has used its memory for another one.
        assert_eq!(handles.insert(ia("other")), 2);
        assert_eq!(handles.find(0x1000).unwrap().name, "other");
        handles.end_close(1, true);
        assert_eq!(handles.find(1), None);
        assert_eq!(handles.begin_close(0x1000).unwrap().0, 2);
    }
}
