//! Which rare paths the inputs of this thread have reached. Tests look here, so that a seed that no longer reaches its path is seen.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// A path that most inputs do not reach.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reached {
    /// `ring`: a copy of lent memory succeeded.
    Pulled,
    /// `ring`: an end took back what it lends.
    Withdrawal,
    /// `ring`: a copy of lent memory failed, since it was taken back.
    Withdrawn,
    /// `ring`: a copy of lent memory failed, since it is not mapped.
    Unreadable,
    /// `near`: the engine lent memory to the peer.
    Lent,
    /// `near`: the engine placed bytes of the peer's memory.
    Borrowed,
    /// `near`: the peer's memory could not be read.
    BorrowFailed,
    /// `near`: the engine took back what it lends.
    Recalled,
}

thread_local! {
    static COUNTS: RefCell<BTreeMap<Reached, u64>> = const { RefCell::new(BTreeMap::new()) };
}

pub(crate) fn note(what: Reached) {
    COUNTS.with_borrow_mut(|counts| *counts.entry(what).or_default() += 1);
}

/// Returns how often inputs of this thread have reached `what`.
#[must_use]
pub fn count(what: Reached) -> u64 {
    COUNTS.with_borrow(|counts| counts.get(&what).copied().unwrap_or_default())
}
