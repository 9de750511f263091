//! Which thread drives an adapter: its roles, and how one thread wakes another. The roles are under the hub's lock.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use dat_os::eventfd::EventFd;
use softrxe_proto::Time;

use crate::wait::Permit;

/// Socket reads by consumers, counted in [`Roles::polls`], that make a loop: the watcher then stops watching the socket.
const POLLS_OF_A_LOOP: u32 = 8;
/// The same while a completion queue is watched. Its consumer polls a few times before it sleeps on a CNO's descriptor, and only
/// the helper can wake it.
const WATCHED_POLLS_OF_A_LOOP: u32 = 64;
/// Polls between two that read the mailbox and not only the socket.
const POLLS_OF_A_MAILBOX_READ: u32 = 64;
/// Shortest sleep before a deadline, so that no thread loops while a deadline is being reached.
pub(super) const MIN_SLEEP: Duration = Duration::from_micros(50);

/// Returns whether `polls` socket reads make a loop. `watched` says whether a completion queue is watched.
pub(super) const fn make_a_loop(polls: u32, watched: bool) -> bool {
    let least = if watched {
        WATCHED_POLLS_OF_A_LOOP
    } else {
        POLLS_OF_A_LOOP
    };
    polls >= least
}

/// Wakes threads that drive the adapter.
#[derive(Debug)]
pub(crate) struct Wakers {
    /// Wakes the helper thread.
    pub(crate) helper: EventFd,
    /// Wakes the leader, which sleeps on the descriptors.
    pub(crate) leader: Arc<EventFd>,
}

impl Wakers {
    /// Opens both.
    ///
    /// # Errors
    /// As `eventfd`.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            helper: EventFd::new()?,
            leader: Arc::new(EventFd::new()?),
        })
    }
}

/// The thread that sleeps on the descriptors, and so notices what arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Watcher {
    /// No thread: consumers poll, the helper sleeps for a fixed time.
    #[default]
    None,
    /// The helper.
    Helper,
    /// A consumer, the leader.
    Leader,
}

/// Roles of the threads.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    pub(super) watcher: Watcher,
    /// Deadline at which the watcher wakes by itself.
    pub(super) wakes_at: Option<Time>,
    /// The helper sleeps until it is woken by [`wake_helper`](Self::wake_helper).
    pub(super) helper_rests: bool,
    /// Value of `polls` when the last leader gave up the lead, or a thread that polled fell asleep in another lane, until the helper's next round.
    pub(super) lead_ended: Option<u32>,
    /// Last sleep of the helper for a fixed time, zero since it watched.
    pub(super) helper_slept_for: Duration,
    /// The helper was woken and has not run since.
    pub(super) helper_woken: bool,
    /// Socket reads by consumers' polls, plus one per given-up lead; wrapping.
    pub(super) polls: u32,
    /// Value of `polls` when the helper or the leader last became the watcher.
    pub(super) watched_since: u32,
    /// The leader sleeps for a fixed time, not on the socket, because other consumers poll.
    pub(super) leader_ignores_socket: bool,
    /// Waiters that sleep because another one leads.
    pub(super) followers: Vec<Arc<Permit>>,
}

impl Roles {
    /// Returns whether only consumers' polls read the socket, apart from a thread that sleeps for a fixed time between its reads.
    pub(super) fn is_left_to_polls(&self) -> bool {
        self.watcher == Watcher::None
            || self.watcher == Watcher::Leader && self.leader_ignores_socket
    }

    /// Returns whether the helper goes on as soon as the leader gives up the lead.
    pub(crate) const fn is_left_to_helper(&self) -> bool {
        matches!(self.watcher, Watcher::Leader) && self.helper_rests
    }

    /// Counts a poll of a consumer. Returns whether it is to read the mailbox as well.
    pub(super) const fn count_poll(&mut self) -> bool {
        self.polls = self.polls.wrapping_add(1);
        self.polls.is_multiple_of(POLLS_OF_A_MAILBOX_READ)
    }

    /// Returns whether consumers polled in a loop since the watcher began to watch.
    pub(super) const fn polled_in_a_loop(&self, watched: bool) -> bool {
        make_a_loop(self.polls.wrapping_sub(self.watched_since), watched)
    }

    /// Wakes the helper, unless it is woken already.
    pub(crate) fn wake_helper(&mut self, wakers: &Wakers) {
        if !std::mem::replace(&mut self.helper_woken, true) {
            wakers.helper.signal();
        }
    }

    /// Makes the caller the leader if there is none; `due` is the engine's next deadline. Returns whether it is.
    pub(super) fn take_lead(&mut self, due: Option<Time>, wakers: &Wakers) -> bool {
        match self.watcher {
            Watcher::Leader => return false,
            Watcher::Helper => self.wake_helper(wakers),
            Watcher::None => {}
        }
        self.watcher = Watcher::Leader;
        self.leader_ignores_socket = false;
        self.watched_since = self.polls;
        self.wakes_at = due;
        true
    }

    /// Gives up the lead. One follower becomes leader; if there is none, the helper watches.
    pub(super) fn give_up_lead(&mut self, wakers: &Wakers) {
        self.watcher = Watcher::None;
        self.polls = self.polls.wrapping_add(1);
        self.lead_ended = Some(self.polls);
        if let Some(next) = self.followers.pop() {
            next.give();
        }
        if self.helper_rests {
            self.wake_helper(wakers);
        }
    }

    /// Makes the watcher sleep for a fixed time, not on the socket, once a consumer polls in a loop. The consumer reads what would
    /// wake the watcher, and each wake-up costs the sender. `watched`: see [`make_a_loop`].
    pub(super) fn stop_watching_socket(&mut self, watched: bool, wakers: &Wakers) {
        if !self.polled_in_a_loop(watched) {
            return;
        }
        match self.watcher {
            Watcher::Helper => {
                self.watcher = Watcher::None;
                self.wake_helper(wakers);
            }
            Watcher::Leader if !std::mem::replace(&mut self.leader_ignores_socket, true) => {
                wakers.leader.signal();
            }
            _ => {}
        }
    }

    /// Makes the leader watch the socket and the rings again: a thread that polled for what it waits for sleeps now.
    pub(super) fn watch_again(&mut self, wakers: &Wakers) {
        if self.watcher == Watcher::Leader && std::mem::take(&mut self.leader_ignores_socket) {
            self.watched_since = self.polls;
            wakers.leader.signal();
        }
    }

    /// Makes a thread watch the descriptors for one that polled here, and sleeps in another lane now.
    pub(super) fn watch_for_sleeper(&mut self, wakers: &Wakers) {
        self.watch_again(wakers);
        if self.watcher == Watcher::None {
            self.lead_ended = Some(self.polls);
            self.wake_helper(wakers);
        }
    }

    /// Wakes the watcher. Without one a consumer polls, or the helper wakes soon.
    pub(crate) fn wake_watcher(&mut self, wakers: &Wakers) {
        match self.watcher {
            Watcher::Helper => self.wake_helper(wakers),
            Watcher::Leader => wakers.leader.signal(),
            Watcher::None => {}
        }
    }

    /// Wakes the watcher if it would wake after `due`.
    pub(crate) fn wake_by(&mut self, due: Option<Time>, wakers: &Wakers) {
        let late = match (due, self.wakes_at) {
            (Some(due), Some(wakes_at)) => due < wakes_at,
            (due, None) => due.is_some(),
            _ => false,
        };
        if late {
            self.wakes_at = due;
            self.wake_watcher(wakers);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    /// A second waiter polls a few times and then sleeps, while the leader has stopped to watch the socket because of these polls.
    #[test]
    fn a_leader_watches_again_once_the_thread_that_polled_sleeps() {
        let (wakers, mut roles) = (Wakers::new().unwrap(), Roles::default());
        assert!(roles.take_lead(None, &wakers));
        for _ in 0..POLLS_OF_A_LOOP {
            roles.count_poll();
            roles.stop_watching_socket(false, &wakers);
        }
        assert!(roles.leader_ignores_socket);
        wakers.leader.clear();
        assert!(!roles.take_lead(None, &wakers));
        roles.watch_again(&wakers);
        assert!(!roles.leader_ignores_socket && !roles.polled_in_a_loop(false));
        let fd = wakers.leader.as_raw_fd();
        let slept = dat_os::sleep::on_readable([fd], Some(Duration::ZERO));
        assert_eq!(slept, dat_os::sleep::Slept::Woken);
    }
}
