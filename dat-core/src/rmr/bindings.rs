//! What a window may be bound to: the bind that was posted last, and what it and earlier ones replace when they complete. Pure.
//!
//! A bind takes effect when the queue pair executes it, and never if it is flushed. Until its completion is taken, the LMR before it may
//! still be open to the peer.

use std::collections::TryReserveError;

use crate::transport::WrId;

/// The bindings of a window, of type `B`; `None` is unbound.
#[derive(Debug)]
pub(super) struct Bindings<B> {
    /// The bind that was posted last, as if it were complete.
    latest: Option<B>,
    /// Binds that are not complete, the oldest first.
    pending: Vec<Pending<B>>,
    /// Bindings of binds that are over, and may be in force although none succeeded.
    doubtful: Vec<B>,
    /// True if such a bind, or unbind, came since [`take`](Self::take).
    in_doubt: bool,
}

/// A bind that is not complete.
#[derive(Debug)]
struct Pending<B> {
    id: WrId,
    /// What it replaces.
    before: Option<B>,
}

impl<B> Default for Bindings<B> {
    fn default() -> Self {
        Self {
            latest: None,
            pending: Vec::new(),
            doubtful: Vec::new(),
            in_doubt: false,
        }
    }
}

impl<B> Bindings<B> {
    /// Makes room for one more bind.
    pub(super) fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.pending.try_reserve(1)?;
        self.doubtful.try_reserve(self.pending.len() + 1)
    }

    /// Records that the bind `id` to `new` is posted. [`reserve`](Self::reserve) has made room.
    pub(super) fn post(&mut self, id: WrId, new: Option<B>) {
        let before = std::mem::replace(&mut self.latest, new);
        self.pending.push(Pending { id, before });
    }

    /// Records that the bind `id` is complete, with success or not. Returns the bindings that can be in force no more: those before it,
    /// or its own. Earlier binds have taken effect before it.
    #[must_use = "the peer can use them no more"]
    pub(super) fn complete(&mut self, id: WrId, success: bool) -> Vec<B> {
        let Some(at) = self.pending.iter().position(|bind| bind.id == id) else {
            return Vec::new();
        };
        if success {
            let complete = self.pending.drain(..=at);
            return complete.filter_map(|bind| bind.before).collect();
        }
        let before = self.pending.remove(at).before;
        let own = match self.pending.get_mut(at) {
            Some(next) => &mut next.before,
            None => &mut self.latest,
        };
        std::mem::replace(own, before).into_iter().collect()
    }

    /// Records that the bind `id` is over, and may have taken effect.
    pub(super) fn doubt(&mut self, id: WrId) {
        if self.is_pending(id) {
            let own = self.complete(id, false);
            self.doubtful.extend(own);
            self.in_doubt = true;
        }
    }

    /// Returns true if a bind that did not succeed may be in force, until all is [taken](Self::take).
    pub(super) const fn in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Returns true if one of the bindings that may be in force without success `is_wanted`.
    pub(super) fn is_doubtful(&self, is_wanted: impl Fn(&B) -> bool) -> bool {
        self.doubtful.iter().any(is_wanted)
    }

    fn is_pending(&self, id: WrId) -> bool {
        self.pending.iter().any(|bind| bind.id == id)
    }

    /// Returns the bind that was posted last, as if it were complete.
    pub(super) fn latest(&self) -> Option<&B> {
        self.latest.as_ref()
    }

    /// Returns the binding that `is_wanted`, of all that may be in force.
    pub(super) fn find(&mut self, is_wanted: impl Fn(&B) -> bool) -> Option<&mut Option<B>> {
        let before = self.pending.iter_mut().map(|bind| &mut bind.before);
        let mut all = before.chain([&mut self.latest]);
        all.find(|binding| binding.as_ref().is_some_and(&is_wanted))
    }

    /// Returns the binds that are not complete.
    pub(super) fn pending(&self) -> impl Iterator<Item = WrId> {
        self.pending.iter().map(|bind| bind.id)
    }

    /// Removes all, with the room for more: thousands of freed windows wait until their memory is used again.
    pub(super) fn take(&mut self) -> Vec<B> {
        let all = std::mem::take(self);
        let before = all.pending.into_iter().filter_map(|bind| bind.before);
        before.chain(all.doubtful).chain(all.latest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Posts binds 1, 2, ... to themselves, after one to 0 that is complete.
    fn posted(count: u64) -> Bindings<u64> {
        let mut bindings = Bindings::default();
        for id in 0..=count {
            bindings.reserve().unwrap();
            bindings.post(WrId(id), Some(id));
        }
        assert_eq!(bindings.complete(WrId(0), true), []);
        bindings
    }

    #[test]
    fn a_window_without_bindings_keeps_no_room_for_them() {
        let mut bindings = posted(100);
        bindings.doubt(WrId(1));
        assert_eq!(bindings.take().len(), 101);
        assert!(!bindings.in_doubt());
        let room = (bindings.pending.capacity(), bindings.doubtful.capacity());
        assert_eq!(room, (0, 0));
    }

    #[test]
    fn a_bind_that_succeeds_ends_what_was_before_it() {
        let mut bindings = posted(2);
        assert_eq!(bindings.latest(), Some(&2));
        assert_eq!(bindings.complete(WrId(1), true), [0]);
        assert_eq!(bindings.complete(WrId(2), true), [1]);
        assert_eq!(bindings.complete(WrId(2), true), []);
        assert_eq!(
            (bindings.latest(), bindings.pending().count()),
            (Some(&2), 0)
        );
        // One of a later number has taken effect after all before it.
        assert_eq!(posted(3).complete(WrId(2), true), [0, 1]);
    }

    #[test]
    fn a_bind_that_fails_leaves_what_was_before_it() {
        let mut bindings = posted(3);
        assert_eq!(bindings.complete(WrId(2), false), [2]);
        assert_eq!(bindings.latest(), Some(&3));
        assert_eq!(bindings.complete(WrId(3), false), [3]);
        assert_eq!(bindings.latest(), Some(&1));
        assert_eq!(bindings.complete(WrId(1), false), [1]);
        assert_eq!(
            (bindings.latest(), bindings.pending().count()),
            (Some(&0), 0)
        );
        // In the order of the queue.
        let mut bindings = posted(2);
        assert_eq!(bindings.complete(WrId(1), false), [1]);
        assert_eq!(bindings.complete(WrId(2), false), [2]);
        assert_eq!(bindings.latest(), Some(&0));
    }

    #[test]
    fn an_unbind_is_a_bind_to_nothing() {
        let mut bindings = posted(0);
        bindings.post(WrId(1), None);
        assert_eq!(bindings.latest(), None);
        assert_eq!(bindings.complete(WrId(1), false), []);
        assert_eq!(bindings.latest(), Some(&0));
        bindings.post(WrId(2), None);
        assert_eq!(bindings.complete(WrId(2), true), [0]);
        assert_eq!(bindings.take(), []);
    }

    #[test]
    fn all_that_may_be_in_force_is_found_and_taken() {
        let mut bindings = posted(2);
        for of in 0..=2 {
            assert_eq!(bindings.find(|binding| *binding == of), Some(&mut Some(of)));
        }
        *bindings.find(|binding| *binding == 1).unwrap() = None;
        assert_eq!(bindings.find(|binding| *binding == 1), None);
        assert_eq!(
            bindings.pending().map(|id| id.0).collect::<Vec<_>>(),
            [1, 2]
        );
        assert_eq!(bindings.take(), [0, 2]);
        assert_eq!((bindings.latest(), bindings.pending().count()), (None, 0));
    }

    #[test]
    fn a_bind_in_doubt_is_kept_until_all_is_taken() {
        let mut bindings = posted(3);
        bindings.doubt(WrId(2));
        bindings.doubt(WrId(2));
        assert!(bindings.in_doubt() && bindings.is_doubtful(|b| *b == 2));
        assert_eq!(bindings.complete(WrId(3), true), [0, 1]);
        assert!(bindings.in_doubt());
        assert_eq!(bindings.take(), [2, 3]);
        assert!(!bindings.in_doubt());
        assert_eq!(bindings.latest(), None);
    }
}
