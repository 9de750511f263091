//! Tasks that wait for something. Pure.

use std::task::Waker;

use crate::contain::contain;

/// Wakes a task. An executor may run it at once, and then its panic comes back: it must not keep other tasks from their events.
pub(super) fn wake(waker: Waker) {
    contain("a task that was woken", || waker.wake());
}

/// What a future waits by. Its task is forgotten when the future gives up: what many tasks wait for in turn, each for a while, may never
/// happen.
#[derive(Debug, Default)]
pub(super) struct Ticket(u64);

impl Ticket {
    /// Returns whether the future has waited.
    pub(super) const fn is_used(&self) -> bool {
        self.0 != 0
    }
}

/// Largest number of tasks that are kept although one polls without a future of this crate. A waker may be another one at each poll, as
/// that of an executor that wraps it, and nothing says which of them are of use.
const MOST_KEPT: usize = 256;

/// Tasks that wait for the same. Wakers that it returns are dropped without the lock, as in [`State::poll`](super::state::State::poll).
#[derive(Debug, Default)]
pub(super) struct Watchers {
    tasks: Vec<Task>,
    /// Number of the last task.
    last: u64,
}

#[derive(Debug)]
struct Task {
    /// A number that is used once.
    number: u64,
    waker: Waker,
    /// Futures of the task that wait.
    futures: usize,
    /// The task also polls without a future of this crate.
    stays: bool,
}

impl Watchers {
    fn find(&mut self, waker: &Waker) -> &mut Task {
        let known = self.tasks.iter().position(|of| of.waker.will_wake(waker));
        let at = known.unwrap_or_else(|| {
            self.last += 1;
            self.tasks.push(Task {
                number: self.last,
                waker: waker.clone(),
                futures: 0,
                stays: false,
            });
            self.tasks.len() - 1
        });
        &mut self.tasks[at]
    }

    /// Adds the task of a future. Returns the waker of its former one, if no other future waits in that.
    #[must_use = "it is dropped without the lock"]
    pub(super) fn watch(&mut self, ticket: &mut Ticket, waker: &Waker) -> Option<Waker> {
        let task = self.find(waker);
        if task.number == ticket.0 {
            return None;
        }
        task.futures += 1;
        let former = std::mem::replace(ticket, Ticket(task.number));
        self.leave(&former)
    }

    /// Adds a task that polls without a future of this crate. It stays until it is woken. Returns the other tasks of this kind if they are too
    /// many: they are to be woken without the lock, and those that still wait poll again.
    #[must_use = "they are woken without the lock"]
    pub(super) fn watch_for_ever(&mut self, waker: &Waker) -> Vec<Waker> {
        let task = self.find(waker);
        if task.stays {
            return Vec::new();
        }
        task.stays = true;
        let number = task.number;
        if self.tasks.iter().filter(|task| task.stays).count() <= MOST_KEPT {
            return Vec::new();
        }
        // Not the tasks of futures, which leave by themselves: many of them and one that polls would wake each other without end.
        let are_former = |task: &mut Task| task.stays && task.number != number;
        let former = self.tasks.extract_if(.., are_former);
        former.map(|task| task.waker).collect()
    }

    /// Forgets a future that gives up. Returns the waker of its task, if no other future waits in that.
    #[must_use = "it is dropped without the lock"]
    pub(super) fn leave(&mut self, ticket: &Ticket) -> Option<Waker> {
        let at = self.tasks.iter().position(|of| of.number == ticket.0)?;
        let task = &mut self.tasks[at];
        task.futures -= 1;
        let is_last = task.futures == 0 && !task.stays;
        is_last.then(|| self.tasks.remove(at).waker)
    }

    /// Returns true if no task waits.
    pub(super) const fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Takes all tasks, to wake them.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Waker> {
        self.tasks.drain(..).map(|task| task.waker)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    struct Ignore;

    impl Wake for Ignore {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn a_task_waits_until_its_last_future_gives_up() {
        let [one, other] = [(); 2].map(|()| Waker::from(Arc::new(Ignore)));
        let (mut watchers, mut tickets) =
            (Watchers::default(), [(); 3].map(|()| Ticket::default()));
        assert!(watchers.leave(&tickets[0]).is_none());
        for ticket in &mut tickets {
            assert!(watchers.watch(ticket, &one).is_none());
            assert!(watchers.watch(ticket, &one).is_none());
        }
        assert_eq!(watchers.len(), 1);
        // A future goes to another task.
        assert!(watchers.watch(&mut tickets[0], &other).is_none());
        assert_eq!(watchers.len(), 2);
        assert!(watchers.leave(&tickets[1]).is_none());
        let left = watchers.watch(&mut tickets[2], &other);
        assert!(left.is_some_and(|waker| waker.will_wake(&one)));
        assert!(watchers.leave(&tickets[2]).is_none());
        let left = watchers.leave(&tickets[0]);
        assert!(left.is_some_and(|waker| waker.will_wake(&other)));
        assert_eq!(watchers.len(), 0);
    }

    #[test]
    fn a_task_that_was_woken_is_forgotten_and_one_that_only_polls_stays_until_then() {
        let waker = Waker::from(Arc::new(Ignore));
        let (mut watchers, mut ticket) = (Watchers::default(), Ticket::default());
        assert!(watchers.watch_for_ever(&waker).is_empty());
        assert!(watchers.watch(&mut ticket, &waker).is_none());
        assert!(watchers.leave(&ticket).is_none());
        assert_eq!(watchers.drain().count(), 1);
        let former = ticket;
        let mut ticket = Ticket::default();
        assert!(watchers.watch(&mut ticket, &waker).is_none());
        assert!(watchers.leave(&former).is_none());
        assert_eq!(watchers.len(), 1);
    }

    #[test]
    fn a_task_that_polls_with_another_waker_each_time_leaves_a_bounded_number() {
        let mut watchers = Watchers::default();
        let mut woken = 0;
        for _ in 0..10 * MOST_KEPT {
            let waker = Waker::from(Arc::new(Ignore));
            woken += watchers.watch_for_ever(&waker).len();
            assert!(watchers.len() <= MOST_KEPT);
        }
        // None is forgotten without being woken.
        assert_eq!(woken + watchers.len(), 10 * MOST_KEPT);
    }

    #[test]
    fn tasks_that_poll_beside_many_that_wait_wake_none_of_them() {
        let mut watchers = Watchers::default();
        let waiting = [(); 2 * MOST_KEPT].map(|()| Waker::from(Arc::new(Ignore)));
        let mut tickets = waiting.each_ref().map(|_| Ticket::default());
        for (ticket, waker) in tickets.iter_mut().zip(&waiting) {
            assert!(watchers.watch(ticket, waker).is_none());
        }
        let polling = [(); MOST_KEPT].map(|()| Waker::from(Arc::new(Ignore)));
        for waker in polling.iter().chain(&polling) {
            assert!(watchers.watch_for_ever(waker).is_empty());
        }
        let one_more = Waker::from(Arc::new(Ignore));
        assert_eq!(watchers.watch_for_ever(&one_more).len(), MOST_KEPT);
        assert_eq!(watchers.len(), 2 * MOST_KEPT + 1);
    }
}
