//! A connection as its operations and messages see it.

use std::fmt;
use std::sync::{Arc, Weak};
use std::task::{Context as TaskContext, Poll};

use super::context::{Shared, finish};
use super::pool::{Buffer, Pool, sealed::Segment};
use super::shared_receives::Queue;
use super::state::{Link, Phase, State};
use super::watchers::{Ticket, wake};
use crate::error::{Error, Result};
use crate::{DtoOp, Ep, EpId};

/// What the handles, operations and messages of a connection share.
pub(super) struct Inner {
    /// Taken when it is dropped.
    pub(super) ep: Option<Ep>,
    pub(super) id: EpId,
    /// Events for which the dispatcher has room.
    events: u32,
    /// Buffers of atomics.
    pub(super) words: Option<Pool>,
    pub(super) shared: Arc<Shared>,
    /// Dropped after the endpoint.
    queue: Option<Arc<Queue>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}

impl Inner {
    /// Adds the endpoint that `create` makes to the context.
    pub(super) fn new(
        shared: &Arc<Shared>,
        events: u32,
        link: Link,
        words: Option<Pool>,
        queue: Option<&Arc<Queue>>,
        create: impl FnOnce() -> Result<Ep>,
    ) -> Result<Arc<Self>> {
        shared.reserve(events)?;
        let ep = create().inspect_err(|_| shared.release(events))?;
        let id = ep.id();
        let inner = Arc::new(Self {
            ep: Some(ep),
            id,
            events,
            words,
            shared: Arc::clone(shared),
            queue: queue.cloned(),
        });
        let owner: Weak<Self> = Arc::downgrade(&inner);
        let link = Link {
            owner: Some(owner),
            ..link
        };
        shared.state().links.insert(id, link);
        Ok(inner)
    }

    /// Posts `count` receives of `size` bytes.
    pub(super) fn post_receives(&self, count: u32, size: usize) -> Result<()> {
        if count > 0 {
            let pool = Pool::new(&self.shared.pz, count as usize, size)?;
            while let Some(buffer) = pool.try_take() {
                // A refused one would come back to the pool.
                self.post_receive(buffer)?;
            }
        }
        Ok(())
    }

    pub(super) fn has_shared_receives(&self) -> bool {
        self.queue.is_some()
    }

    pub(super) fn id(&self) -> EpId {
        self.id
    }

    pub(super) fn ep(&self) -> &Ep {
        self.ep.as_ref().expect("only drop takes it")
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Posts a receive of a whole buffer.
    pub(super) fn post_receive(&self, mut buffer: Buffer) -> Result<()> {
        buffer.set_len(buffer.capacity());
        let mut state = self.shared.state();
        let cookie = state.add_receive(self.id, buffer);
        let Some(buffer) = state.receive(cookie) else {
            return Ok(());
        };
        let posted = self.ep().post_recv(&[buffer.segment()], cookie);
        let refused = posted.is_err().then(|| state.remove_receive(cookie));
        drop(state);
        drop(refused);
        Ok(posted?)
    }

    /// Returns the end of the connection, if it ended.
    fn end(link: &Link) -> Option<Error> {
        match &link.phase {
            Phase::Connecting | Phase::Connected => None,
            Phase::Rejected(private_data) => Some(Error::Rejected {
                private_data: private_data.clone(),
            }),
            Phase::Ended(how) => Some(match link.fault {
                Some(status) => Error::Failed {
                    op: DtoOp::Receive,
                    status,
                },
                None => Error::Disconnected { how: *how },
            }),
        }
    }

    /// Returns the end of the connection, if it ended, after the adapter was polled.
    pub(super) fn ended(&self) -> Option<Error> {
        if let Err(error) = self.shared.poll_events() {
            return Some(error);
        }
        self.shared.state().links.get(&self.id).and_then(Self::end)
    }

    /// Waits while `look` returns `None`.
    pub(super) async fn wait<T>(&self, mut look: impl FnMut(&mut Link) -> Option<T>) -> Result<T> {
        let mut wait = Wait {
            inner: self,
            ticket: Ticket::default(),
        };
        std::future::poll_fn(|context| self.poll(context, Some(&mut wait.ticket), &mut look)).await
    }

    /// Looks at the connection under the lock, and once more after the adapter was polled; waits while `look` returns `None`.
    pub(super) fn poll<T>(
        &self,
        context: &TaskContext<'_>,
        ticket: Option<&mut Ticket>,
        look: impl FnMut(&mut Link) -> Option<T>,
    ) -> Poll<Result<T>> {
        let turns = &self.shared.turns;
        if turns.is_over() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let done = self.poll_in_turn(context, ticket, look);
        turns.ended(done.is_ready());
        done
    }

    fn poll_in_turn<T>(
        &self,
        context: &TaskContext<'_>,
        ticket: Option<&mut Ticket>,
        mut look: impl FnMut(&mut Link) -> Option<T>,
    ) -> Poll<Result<T>> {
        if let Some(found) = self
            .shared
            .state()
            .links
            .get_mut(&self.id)
            .and_then(&mut look)
        {
            return Poll::Ready(Ok(found));
        }
        if let Err(error) = self.shared.poll_events() {
            return Poll::Ready(Err(error));
        }
        // The end comes after what arrived before it.
        let mut settle = |state: &mut State| {
            let link = state.links.get_mut(&self.id)?;
            look(link).map(Ok).or_else(|| Self::end(link).map(Err))
        };
        if let Some(done) = settle(&mut self.shared.state()) {
            return Poll::Ready(done);
        }
        if let Some(done) = self.shared.linger(&mut settle) {
            return Poll::Ready(done);
        }
        // Once more: another thread may have dequeued the event.
        let mut state = self.shared.state();
        if let Some(done) = settle(&mut state) {
            return Poll::Ready(done);
        }
        let Some(link) = state.links.get_mut(&self.id) else {
            return Poll::Pending;
        };
        let (mut former, mut woken) = (None, Vec::new());
        match ticket {
            Some(ticket) => former = link.watchers.watch(ticket, context.waker()),
            None => woken = link.watchers.watch_for_ever(context.waker()),
        }
        drop(state);
        drop(former);
        woken.into_iter().for_each(wake);
        Poll::Pending
    }
}

/// A future that waits for a connection.
struct Wait<'a> {
    inner: &'a Inner,
    ticket: Ticket,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let id = &self.inner.id;
        self.inner.shared.forget(&self.ticket, |state| {
            Some(&mut state.links.get_mut(id)?.watchers)
        });
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Once the endpoint is freed, the adapter uses no buffer of its operations any more.
        drop(self.ep.take());
        let todo = self.shared.state().remove_link(self.id);
        finish(todo);
        self.shared.release(self.events);
    }
}
