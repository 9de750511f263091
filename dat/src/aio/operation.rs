//! The future of one operation.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::context::finish;
use super::link::Inner;
use super::watchers::Ticket;
use crate::error::{Error, Result};
use crate::{Completion, Ep};

type Post<B> = Box<dyn FnOnce(&Ep, &mut B, u64) -> Result<()> + Send>;

/// An operation of a [`Connection`](super::Connection) or of [`Datagrams`](super::Datagrams). It begins when it is first polled; its output
/// is the memory, and the number of bytes or the error. If it is dropped while it is under way, it goes on, and the memory stays until it
/// completes.
///
/// A program that is not to wait any longer drops the future, and the operation goes on:
///
///
/// ```
/// use std::future::poll_fn;
/// use std::pin::Pin;
/// use std::task::Poll;
/// use std::future::Future;
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
///
/// # fn main() -> Result<(), udapl::Error> {
/// # udapl::aio::block_on(async {
/// # let (client, server) = connection().await?;
/// let pool = client.context().pool(1, 64)?;
/// let mut send = client.send(pool.take().await.filled(b"hello"));
/// let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut send).poll(cx))).await; // e.g. in a select
/// if first.is_pending() {
///     drop(send);
/// }
/// assert_eq!(&server.recv().await?[..], b"hello");
/// let buffer = pool.take().await; // as soon as the send is complete
/// # Ok(())
/// # })
/// # }
/// ```
#[must_use = "an operation begins when it is polled"]
pub struct Operation<B: Send + 'static> {
    link: Arc<Inner>,
    buffer: Option<B>,
    post: Option<Post<B>>,
    cookie: Option<u64>,
    /// By which it waits for room.
    ticket: Ticket,
    /// Why the post failed.
    refused: Option<Error>,
}

impl<B: Send + 'static> fmt::Debug for Operation<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operation({:?} of {})", self.cookie, self.link.id())
    }
}

// Nothing points into it.
impl<B: Send + 'static> Unpin for Operation<B> {}

impl<B: Send + 'static> Operation<B> {
    pub(super) fn new<E: Into<Error>>(
        link: &Arc<Inner>,
        buffer: B,
        post: impl FnOnce(&Ep, &mut B, u64) -> Result<(), E> + Send + 'static,
    ) -> Self {
        Self {
            link: Arc::clone(link),
            buffer: Some(buffer),
            post: Some(Box::new(|ep, buffer, cookie| {
                post(ep, buffer, cookie).map_err(Into::into)
            })),
            cookie: None,
            ticket: Ticket::default(),
            refused: None,
        }
    }

    /// Returns the operation as soon as it is under way, or has failed. Operations of a connection are processed in the order in which
    /// they are posted, so that a program with several under way posts them one after the other:
    ///
    /// ```
    /// # use std::collections::VecDeque;
    /// # use udapl::aio::{Buffer, Connection, Operation, Pool};
    /// /// Sends all parts of `bytes`, with as many sends under way as the pool has buffers.
    /// async fn send_all(to: &Connection, pool: &Pool, bytes: &[u8]) -> Result<(), udapl::Error> {
    ///     let mut sends: VecDeque<Operation<Buffer>> = VecDeque::new();
    ///     for part in bytes.chunks(pool.buffer_size()) {
    ///         let buffer = match pool.try_take() {
    ///             Some(free) => free,
    ///             None => {
    ///                 let (buffer, sent) = sends.pop_front().expect("it has a buffer").await;
    ///                 sent?;
    ///                 buffer
    ///             }
    ///         };
    ///         sends.push_back(to.send(buffer.filled(part)).posted().await);
    ///     }
    ///     for send in sends {
    ///         send.await.1?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn posted(mut self) -> Self {
        std::future::poll_fn(|context| match self.poll_begin(context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        self
    }

    /// Posts the operation, unless it is posted. Returns false if it waits for room.
    fn poll_begin(&mut self, context: &Context<'_>) -> bool {
        // Not again after the end.
        if self.post.is_some() {
            match self.begin(context) {
                Ok(is_posted) => return is_posted,
                Err(error) => self.refused = Some(error),
            }
        }
        true
    }

    /// Posts the operation, if there is room. Returns false if it waits for room.
    fn begin(&mut self, context: &Context<'_>) -> Result<bool> {
        let id = self.link.id();
        let shared = self.link.shared();
        let mut former = None;
        let waker = context.waker();
        let begun = shared
            .state()
            .begin(id, &mut self.ticket, waker, &mut former);
        drop(former);
        let Some(cookie) = begun else {
            return Ok(false);
        };
        let (Some(post), Some(buffer)) = (self.post.take(), &mut self.buffer) else {
            return Ok(false);
        };
        match post(self.link.ep(), buffer, cookie) {
            Ok(()) => {
                self.cookie = Some(cookie);
                Ok(true)
            }
            Err(error) => {
                let todo = shared.state().abandon(id, cookie);
                finish(todo);
                Err(error)
            }
        }
    }

    /// Returns the outcome of the posted operation. The adapter is polled if the completion is not there yet and the post was not
    /// just now.
    fn poll_completion(
        &self,
        cookie: u64,
        was_posted: bool,
        context: &Context<'_>,
    ) -> Option<Result<u32>> {
        let shared = self.link.shared();
        if was_posted {
            if let Some(done) = shared.state().completed(cookie) {
                return Some(result(done));
            }
            if let Err(error) = shared.poll_events() {
                tracing::error!(%error, "events of an adapter cannot be dequeued");
            }
        }
        // An operation does not linger: of several futures that are polled in turn, each would wait for its own before the next one posts.
        let mut former = None;
        let done = shared.state().poll(cookie, context.waker(), &mut former);
        drop(former);
        done.map(result)
    }
}

fn result(done: Completion) -> Result<u32> {
    done.result().map(|done| done.length)
}

impl<B: Send + 'static> Future for Operation<B> {
    type Output = (B, Result<u32>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        assert!(
            this.buffer.is_some(),
            "an operation was polled after its end"
        );
        let was_posted = this.cookie.is_some();
        if !this.poll_begin(context) {
            return Poll::Pending;
        }
        // Posted in any case.
        let shared = Arc::clone(this.link.shared());
        if shared.turns.is_over() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let outcome = match (this.refused.take(), this.cookie) {
            (Some(error), _) => Some(Err(error)),
            (None, Some(cookie)) => this.poll_completion(cookie, was_posted, context),
            (None, None) => None,
        };
        shared.turns.ended(outcome.is_some());
        let Some(outcome) = outcome else {
            return Poll::Pending;
        };
        this.cookie = None;
        match this.buffer.take() {
            Some(buffer) => Poll::Ready((buffer, outcome)),
            None => Poll::Pending,
        }
    }
}

impl<B: Send + 'static> Drop for Operation<B> {
    fn drop(&mut self) {
        if let (Some(cookie), Some(buffer)) = (self.cookie, self.buffer.take()) {
            let left = self.link.shared().state().detach(cookie, Box::new(buffer));
            drop(left);
        } else {
            let id = self.link.id();
            self.link.shared().forget(&self.ticket, |state| {
                Some(&mut state.links.get_mut(&id)?.posters)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;
    use crate::aio::{self, Options, block_on, join};

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_operation_that_waits_gets_the_credit_of_one_that_is_refused() {
        let context = aio::Context::open("softrxe-lo").expect("opens");
        let options = Options {
            requests: 1,
            ..Options::default()
        };
        let mut listener = context.listen(None, options.clone()).expect("listens");
        let attempt = context.connect(context.address(), listener.conn_qual(), &options);
        let (client, server) = block_on(join(attempt, listener.accept()));
        let (client, _server) = (client.expect("connects"), server.expect("accepts"));

        let pool = context.pool(1, 8).expect("a pool");
        let waiting = client.send(pool.try_take().expect("a buffer"));
        let waiting = Arc::new(Mutex::new(waiting));
        let task = Arc::new(Task::default());
        // As another thread does while the post is refused.
        let meanwhile = {
            let (waiting, waker) = (Arc::clone(&waiting), Waker::from(Arc::clone(&task)));
            move |_: &Ep, (): &mut (), _| {
                let mut waiting = waiting.lock().expect("no panic");
                let polled = Pin::new(&mut *waiting).poll(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
                Err(Error::OtherZone { call: "a test" })
            }
        };
        let (_, refused) = block_on(Operation::new(client.inner(), (), meanwhile));
        assert!(matches!(refused, Err(Error::OtherZone { .. })));
        assert_eq!(task.0.load(Ordering::Relaxed), 1, "it is woken");
        let mut waiting = waiting.lock().expect("no panic");
        block_on(&mut *waiting).1.expect("sent");
    }
}
