//! Waits for events.

use std::time::Duration;

use dat_abi::ret::DAT_SUCCESS;
use dat_abi::types::event_number;
use dat_abi::v2_0::types::DatEvent;

use super::Evd;
use crate::error::Result;
use crate::event::{Completion, Event, Filled};
use crate::hot::quick;
use crate::sys::{self, count};

impl Evd {
    /// Waits for the next event (dat_evd_wait; an event that is there is taken by dat_evd_dequeue). Only one thread may wait at a time.
    /// `Duration::MAX` is no limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Error, Ia, Streams};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let ia = Ia::open("softrxe-lo")?;
    /// let evd = ia.create_evd(16, Streams::SOFTWARE)?;
    /// match evd.wait(Duration::from_millis(1)) {
    ///     Ok(event) => println!("{event:?}"),
    ///     Err(Error::TimedOut { .. }) => println!("nothing happened yet"),
    ///     Err(Error::Interrupted { .. }) => println!("a signal; wait again"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TimedOut`](crate::Error::TimedOut), [`Error::Interrupted`](crate::Error::Interrupted),
    /// [`Error::State`](crate::Error::State) if another thread waits or waiting is forbidden, [`Error::Call`](crate::Error::Call).
    #[inline]
    pub fn wait(&self, timeout: Duration) -> Result<Event> {
        let (mut event, mut more) = (Filled::uninit(), 0);
        let mut code = self.look(event.zero());
        if code != DAT_SUCCESS && self.inner.late.is_any() {
            code = self.look_for_late(event.zero());
        }
        if code != DAT_SUCCESS {
            code = self.wait_into(1, timeout, event.zero(), &mut more);
        }
        if code == DAT_SUCCESS && event.number() == event_number::DTO_COMPLETION {
            return Ok(Event::Completion(self.usual_completion(&event, 0)));
        }
        self.waited_event(code, &event)
    }

    /// The rest of a wait: it failed, or the event is no completion of a post.
    #[cold]
    #[inline(never)]
    fn waited_event(&self, code: u32, event: &Filled) -> Result<Event> {
        sys::done("dat_evd_wait", code)?;
        Ok(self.event(&event.whole()))
    }

    /// Waits until `threshold` events are there, and returns the first one and the number of the others.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use udapl::{Event, Ia, Streams};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let ia = Ia::open("softrxe-lo")?;
    /// # let evd = ia.create_evd(16, Streams::SOFTWARE)?;
    /// for value in 0..3 {
    ///     evd.post(value)?;
    /// }
    /// let (first, more) = evd.wait_for(3, Duration::from_secs(60))?;
    /// assert!(matches!(first, Event::Software(0)));
    /// assert_eq!(more, 2); // two are left for `poll`
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Evd::wait`]. If the limit expires while fewer events are there, these stay.
    pub fn wait_for(&self, threshold: u32, timeout: Duration) -> Result<(Event, u32)> {
        let (mut event, mut more) = (Filled::uninit(), 0);
        let code = self.wait_into(threshold, timeout, event.zero(), &mut more);
        if code == DAT_SUCCESS && event.number() == event_number::DTO_COMPLETION {
            let event = Event::Completion(self.usual_completion(&event, 0));
            return Ok((event, u32::try_from(more).unwrap_or(0)));
        }
        sys::done("dat_evd_wait", code)?;
        Ok((self.event(&event.whole()), u32::try_from(more).unwrap_or(0)))
    }

    /// Waits until `threshold` events are there; fills `event` with the first one and `more` with the number of the others. Returns the
    /// provider's code, and no `Result`: that would be moved, with room for an error.
    #[inline(always)]
    fn wait_into(
        &self,
        threshold: u32,
        timeout: Duration,
        event: *mut DatEvent,
        more: &mut i32,
    ) -> u32 {
        self.inner.ia.limbo().collect();
        self.inner.waits.begin();
        let code = match sys::one_piece(timeout) {
            Some(limit) => self.wait_once(limit, threshold, event, more),
            None => self.wait_often(threshold, timeout, event, more),
        };
        self.inner.waits.end(code);
        code
    }

    /// Takes an event that is there already, for a wait that may do so. Returns the provider's code, or one of no success.
    #[inline(always)]
    fn look(&self, event: *mut DatEvent) -> u32 {
        if self.inner.waits.may_look() {
            quick!(self.hot, self.handle(), evd_dequeue(event))
        } else {
            sys::ABSENT.code()
        }
    }

    /// Looks once more for a wait that found no event, as [`Evd::dequeue_late`] does. A program that only waits has no other look at an empty queue.
    #[cold]
    #[inline(never)]
    fn look_for_late(&self, event: *mut DatEvent) -> u32 {
        if self.inner.waits.may_look() {
            self.dequeue_late(event)
        } else {
            sys::ABSENT.code()
        }
    }

    #[inline(always)]
    fn wait_once(&self, limit: u32, threshold: u32, event: *mut DatEvent, more: &mut i32) -> u32 {
        let (threshold, more) = (count(threshold as usize), &raw mut *more);
        let wait = || {
            quick!(
                self.hot,
                self.handle(),
                evd_wait(limit, threshold, event, more)
            )
        };
        // `pthread_cancel` would unwind frames that own values, so a cancellation is deferred.
        dat_os::cancel::defer(wait)
    }

    #[cold]
    #[inline(never)]
    fn wait_often(
        &self,
        threshold: u32,
        timeout: Duration,
        event: *mut DatEvent,
        more: &mut i32,
    ) -> u32 {
        sys::wait_in_pieces(timeout, &mut |limit| {
            self.wait_once(limit, threshold, event, more)
        })
    }

    /// Waits for a successful completion, as [`Evd::wait`] does for any event.
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::Access;
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let (pz, (client, sent), (server, received)) = pair()?;
    /// // `client` is a connected endpoint; its completions arrive in `sent`.
    /// let message = pz.allocate(64, Access::LOCAL_READ)?;
    /// # let room = pz.allocate(64, Access::LOCAL_WRITE)?;
    /// # server.post_recv(&[room.slice(0..64)], 2)?;
    /// client.post_send(&[message.slice(0..10)], 1)?;
    /// let done = sent.wait_completion(Duration::from_secs(60))?;
    /// assert_eq!((done.cookie, done.ep), (1, client.id()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Failed`](crate::Error::Failed) if the operation failed; [`Error::Disconnected`](crate::Error::Disconnected) if the event
    /// is the end of a connection; [`Error::Unexpected`](crate::Error::Unexpected) for any other event; the errors of [`Evd::wait`].
    #[inline(always)]
    pub fn wait_completion(&self, timeout: Duration) -> Result<Completion> {
        let (mut event, mut more) = (Filled::uninit(), 0);
        let mut code = self.look(event.clear());
        if code != DAT_SUCCESS && self.inner.late.is_any() {
            code = self.look_for_late(event.clear());
        }
        if code != DAT_SUCCESS {
            code = self.wait_into(1, timeout, event.clear(), &mut more);
        }
        if code == DAT_SUCCESS && event.number() == event_number::DTO_COMPLETION {
            return self.usual_completion(&event, 0).result();
        }
        self.waited(code, &mut event)
    }

    /// The rest of a wait for a completion: it failed, or the event is no completion of a post.
    #[cold]
    #[inline(never)]
    fn waited(&self, code: u32, event: &mut Filled) -> Result<Completion> {
        sys::done("dat_evd_wait", code)?;
        self.completion(event)?.result()
    }
}
