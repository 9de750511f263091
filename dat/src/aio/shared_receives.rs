//! Receives that several connections share.

use std::fmt;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use super::context::{Context, Shared, finish};
use super::pool::{Buffer, Pool, sealed::Segment};
use super::state;
use super::watchers::{Ticket, wake};
use crate::Srq;
use crate::error::Result;

/// A shared receive queue: one set of buffers, and one place to await the messages of many connections. Give it to connections with
/// [`Options::shared_receives`](super::Options::shared_receives). Clones are the same queue.
///
/// ```
/// use udapl::aio::{Arrival, Context, Options};
///
/// # fn main() -> Result<(), udapl::Error> {
/// # udapl::aio::block_on(async {
/// let context = Context::open("softrxe-lo")?;
/// let receives = context.shared_receives(64, 4096)?;
/// let options = Options { shared_receives: Some(receives.clone()), ..Options::default() };
/// let mut listener = context.listen(None, options)?;
/// # let mine = Options::default();
/// # let attempt = context.connect(context.address(), listener.conn_qual(), &mine);
/// # let (client, server) = udapl::aio::join(attempt, listener.accept()).await;
/// # let (client, server) = (client?, server?);
/// # client.send(context.pool(1, 64)?.take().await.filled(b"hello")).await.1?;
/// // After connections were accepted, one task answers all of them.
/// let answers = context.pool(64, 4096)?;
/// match receives.next().await? {
///     Arrival::Message { from, message } => {
///         let answer = answers.take().await.filled(&message);
///         if let Some(client) = context.connection(from) {
///             client.send(answer).await.1?;
///         }
///     }
///     Arrival::Ended { connection, how } => println!("{connection} ended: {how:?}"),
///     _ => {}
/// }
/// # assert_eq!(&client.recv().await?[..], b"hello");
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedReceives {
    pub(super) queue: Arc<Queue>,
}

impl PartialEq for SharedReceives {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.queue, &other.queue)
    }
}

impl Eq for SharedReceives {}

/// What its handles, connections and messages share.
pub(super) struct Queue {
    /// Taken when it is dropped.
    srq: Option<Srq>,
    id: u64,
    events: u32,
    pub(super) shared: Arc<Shared>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared receives {}", self.id)
    }
}

impl Queue {
    /// Returns the number of the queue in the state of the context.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn srq(&self) -> &Srq {
        self.srq.as_ref().expect("only drop takes it")
    }

    /// Posts a receive of a whole buffer.
    pub(super) fn post_receive(&self, mut buffer: Buffer) -> Result<()> {
        buffer.set_len(buffer.capacity());
        let mut state = self.shared.state();
        let cookie = state.add_shared_receive(self.id, buffer);
        let Some(buffer) = state.receive(cookie) else {
            return Ok(());
        };
        let posted = self.srq().post_recv(&[buffer.segment()], cookie);
        let refused = posted.is_err().then(|| state.remove_receive(cookie));
        drop(state);
        drop(refused);
        Ok(posted?)
    }

    /// Posts the buffers of receives that failed again, and takes what arrived next.
    pub(super) fn poll(
        &self,
        context: &TaskContext<'_>,
        ticket: Option<&mut Ticket>,
    ) -> Poll<Result<state::Arrival>> {
        if let Err(error) = self.shared.poll_events() {
            return Poll::Ready(Err(error));
        }
        let mut state = self.shared.state();
        let Some(queue) = state.queues.get_mut(&self.id) else {
            return Poll::Pending;
        };
        let spent = std::mem::take(&mut queue.spent);
        let arrival = queue.arrivals.pop_front();
        let (mut former, mut woken) = (None, Vec::new());
        match ticket {
            _ if arrival.is_some() => {}
            Some(ticket) => former = queue.watchers.watch(ticket, context.waker()),
            None => woken = queue.watchers.watch_for_ever(context.waker()),
        }
        drop(state);
        drop(former);
        woken.into_iter().for_each(wake);
        for buffer in spent {
            if let Err(error) = self.post_receive(buffer) {
                tracing::error!(%error, "a receive cannot be posted again; {self:?} has one less");
            }
        }
        match arrival {
            Some(arrival) => Poll::Ready(Ok(arrival)),
            None => Poll::Pending,
        }
    }
}

/// A future that waits for an arrival.
pub(super) struct Wait<'a> {
    queue: &'a Queue,
    ticket: Ticket,
}

impl<'a> Wait<'a> {
    pub(super) fn new(queue: &'a Queue) -> Self {
        let ticket = Ticket::default();
        Self { queue, ticket }
    }

    pub(super) fn poll(&mut self, context: &TaskContext<'_>) -> Poll<Result<state::Arrival>> {
        self.queue.poll(context, Some(&mut self.ticket))
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let id = &self.queue.id;
        self.queue.shared.forget(&self.ticket, |state| {
            Some(&mut state.queues.get_mut(id)?.watchers)
        });
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // The connections are gone: once the queue is freed, the adapter uses no buffer of it any more.
        drop(self.srq.take());
        let todo = self.shared.state().remove_queue(self.id);
        finish(todo);
        self.shared.release(self.events);
    }
}

impl Context {
    /// Makes a shared receive queue with `count` buffers for messages of at most `size` bytes. A peer that finds no buffer has to
    /// wait.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the adapter has no shared receive queues;
    /// [`Error::Resources`](crate::Error::Resources), [`Error::Length`](crate::Error::Length), [`Error::Call`](crate::Error::Call).
    pub fn shared_receives(&self, count: u32, size: usize) -> Result<SharedReceives> {
        let shared = Arc::clone(&self.shared);
        let pool = Pool::new(&shared.pz, count as usize, size)?;
        let srq = shared.ia.create_srq(&shared.pz, count, 1)?;
        shared.reserve(count)?;
        let id = shared.state().add_queue();
        let queue = Arc::new(Queue {
            srq: Some(srq),
            id,
            events: count,
            shared,
        });
        while let Some(buffer) = pool.try_take() {
            queue.post_receive(buffer)?;
        }
        Ok(SharedReceives { queue })
    }
}
