//! Events that are taken without a wait.

use dat_abi::ret::DAT_SUCCESS;
use dat_abi::types::event_number;
use dat_abi::v2_0::types::DatEvent;

use super::Evd;
use crate::Error;
use crate::error::{Code, Result};
use crate::event::{Completion, Event, Filled};
use crate::hot::quick;
use crate::ids::{Entry, EpId};
use crate::post_error::PollError;
use crate::sys;

impl Evd {
    /// Takes the next event, if there is one (dat_evd_dequeue).
    ///
    /// # Errors
    /// [`Error::Call`]. An empty queue is `Ok(None)`.
    #[inline(always)]
    pub fn poll(&self) -> Result<Option<Event>> {
        let mut event = Filled::uninit();
        let code = quick!(self.hot, self.handle(), evd_dequeue(event.zero()));
        // Each way out builds its result where the caller wants it: a result that is moved costs as much as the call.
        if code == DAT_SUCCESS && event.number() == event_number::DTO_COMPLETION {
            return Ok(Some(Event::Completion(self.usual_completion(&event, 0))));
        }
        if code != DAT_SUCCESS && self.is_settled(code) {
            return Ok(None);
        }
        self.poll_rare(code, &mut event)
    }

    /// The rest of a poll: an event that is no completion of a post, or an empty queue on which something depends.
    #[cold]
    #[inline(never)]
    fn poll_rare(&self, code: u32, event: &mut Filled) -> Result<Option<Event>> {
        if code != DAT_SUCCESS {
            match self.poll_again(code, event.zero()) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(code) => return Err(Error::of("dat_evd_dequeue", code)),
            }
        }
        Ok(Some(self.event(&event.whole())))
    }

    /// Takes the next completion, if there is one (dat_evd_dequeue). It costs less than [`Evd::poll`], and is for a dispatcher that
    /// takes completions only.
    ///
    /// ```
    /// use udapl::Access;
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let (pz, (client, sent), (server, received)) = pair()?;
    /// // `client` is a connected endpoint; its completions arrive in `sent`.
    /// let message = pz.allocate(64, Access::LOCAL_READ)?;
    /// # let room = pz.allocate(64, Access::LOCAL_WRITE)?;
    /// # server.post_recv(&[room.slice(0..64)], 2)?;
    /// client.post_send(&[message.slice(0..10)], 7)?;
    /// let done = loop {
    ///     if let Some(done) = sent.poll_completion()? {
    ///         break done.result()?; // an error if the operation failed
    ///     }
    /// };
    /// assert_eq!((done.cookie, done.ep), (7, client.id()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`PollError::Disconnected`] if the event is the end of a connection; [`PollError::Unexpected`] for any other event;
    /// [`PollError::Refused`]. The completion of an operation that failed is no error: see [`Completion::result`].
    #[inline(always)]
    pub fn poll_completion(&self) -> Result<Option<Completion>, PollError> {
        let mut event = Filled::uninit();
        let code = quick!(self.hot, self.handle(), evd_dequeue(event.clear()));
        if code != DAT_SUCCESS {
            if self.is_settled(code) {
                return Ok(None);
            }
            match self.poll_again(code, event.clear()) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(code) => return Err(PollError::Refused { code }),
            }
        }
        self.completion(&mut event).map(Some)
    }

    /// Converts a completion that was taken.
    #[inline(always)]
    pub(super) fn completion(&self, event: &mut Filled) -> Result<Completion, PollError> {
        let mut immediate = 0;
        if event.number() != event_number::DTO_COMPLETION {
            immediate = self.rare_completion(event)?;
        }
        Ok(self.usual_completion(event, immediate))
    }

    /// Converts a completion of a post that was taken, and counts it.
    #[inline(always)]
    pub(super) fn usual_completion(&self, event: &Filled, immediate: u32) -> Completion {
        let dto = event.completion();
        let (handle, operation) = (dto.ep_handle, dto.operation);
        let ep = match self.inner.recent.complete_same(handle, operation) {
            Some(ep) => ep,
            None => self.other_endpoint(handle, operation),
        };
        Completion::of(&dto, ep, immediate)
    }

    #[cold]
    #[inline(never)]
    fn other_endpoint(&self, handle: usize, operation: u32) -> EpId {
        self.inner.recent.find(handle, operation)
    }

    /// Makes a usual completion of one of an extension or of a bind, and returns its immediate data.
    #[cold]
    #[inline(never)]
    fn rare_completion(&self, event: &mut Filled) -> Result<u32, PollError> {
        if let Some(immediate) = event.make_completion() {
            return Ok(immediate);
        }
        // A connection request is rejected when it is dropped.
        match self.event(&event.whole()) {
            Event::Ended { how, .. } => Err(PollError::Disconnected { how }),
            _ => Err(PollError::Unexpected {
                number: event.number(),
            }),
        }
    }

    /// Converts an event that was taken.
    #[inline]
    pub(super) fn event(&self, event: &DatEvent) -> Event {
        Event::of(&self.inner.ia, &self.inner.recent, event)
    }

    /// Returns true for the return code of an empty queue on which nothing else depends.
    #[inline]
    fn is_settled(&self, code: u32) -> bool {
        let inner = &*self.inner;
        sys::says_empty(code) && !inner.ia.limbo().is_any() && !inner.late.is_any()
    }

    /// A dequeue failed with `code`: looks once more if something depends on an empty queue. Returns whether `event` has an event.
    #[cold]
    #[inline(never)]
    fn poll_again(&self, code: u32, event: *mut DatEvent) -> std::result::Result<bool, Code> {
        let Some(failed) = Code::from_code(code) else {
            return Ok(true);
        };
        if !sys::says_empty(code) {
            return Err(failed);
        }
        self.inner.ia.limbo().collect();
        if !self.inner.late.is_any() {
            return Ok(false);
        }
        let code = self.dequeue_late(event);
        if sys::says_empty(code) {
            return Ok(false);
        }
        Code::from_code(code).map_or(Ok(true), Err)
    }

    /// Takes the next event. If there is none, the endpoints that were freed before have no events here any more. Returns the
    /// provider's code.
    pub(super) fn dequeue_late(&self, event: *mut DatEvent) -> u32 {
        let late = self.inner.late.take();
        let code = quick!(self.hot, self.handle(), evd_dequeue(event));
        if sys::says_empty(code) {
            late.into_iter().for_each(Entry::remove_late);
        } else {
            self.inner.late.put(late);
        }
        code
    }
}
