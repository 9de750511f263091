//! Contexts in tokio: a task watches the descriptor.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use dat_os::schedule::{preemptions, processors};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::context::{Context, Shared};
use super::polling::Polling;
use crate::NotifyFd;
use crate::error::{Error, Result};

/// Ends the task with the context.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps the descriptor open for the task.
struct Watched(NotifyFd);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Longest time for which the task polls before it leaves the wake-up to the descriptor.
const MAX_SPIN: Duration = Duration::from_micros(50);

/// Dequeues events until the context is gone. After an event it polls for a while, between the other tasks: waking a thread takes
/// longer than most replies. The time becomes shorter, down to zero, where the next event comes later.
async fn watch(descriptor: &AsyncFd<Watched>, shared: &Weak<Shared>) -> Result<()> {
    let mut polling = Polling::new(MAX_SPIN, processors());
    loop {
        let begin = Instant::now();
        let mut readable = pin!(descriptor.readable());
        let ready = match poll_events(readable.as_mut(), shared, polling.budget()).await {
            Found::Events => {
                polling.hit(preempted(begin));
                continue;
            }
            Found::Gone => return Ok(()),
            Found::Failed(error) => return Err(error),
            Found::Readable(ready) => {
                polling.hit(preempted(begin));
                ready
            }
            Found::Nothing => {
                let polled = begin.elapsed();
                let ready = readable.await;
                polling.missed(polled, begin.elapsed());
                ready
            }
        };
        let Ok(mut ready) = ready else {
            return Ok(());
        };
        // Cleared first: a notification after it makes the descriptor readable again.
        ready.clear_ready();
        let Some(shared) = shared.upgrade() else {
            return Ok(());
        };
        shared.drive()?;
    }
}

/// A wait that ends sooner is not asked for preemptions, which takes a system call.
const QUICK: Duration = Duration::from_micros(5);

/// Returns whether the scheduler preempted this thread in a wait that began at `begin`, or since the last one that was as long.
fn preempted(begin: Instant) -> bool {
    thread_local! {
        static COUNTED: Cell<u64> = const { Cell::new(0) };
    }
    begin.elapsed() > QUICK && {
        let preemptions = preemptions();
        COUNTED.replace(preemptions) != preemptions
    }
}

/// What polling found.
enum Found<R> {
    Events,
    /// The descriptor is readable, or the runtime ends.
    Readable(R),
    Nothing,
    /// The context was dropped.
    Gone,
    Failed(Error),
}

/// Polls for events for at most `budget`. The other tasks run between two polls.
async fn poll_events<F: Future>(
    mut readable: Pin<&mut F>,
    shared: &Weak<Shared>,
    budget: Duration,
) -> Found<F::Output> {
    let begin = Instant::now();
    let Some(before) = shared.upgrade().map(|shared| shared.dequeued()) else {
        return Found::Gone;
    };
    while begin.elapsed() < budget {
        tokio::task::yield_now().await;
        let ready = poll_fn(|context| match readable.as_mut().poll(context) {
            Poll::Ready(ready) => Poll::Ready(Some(ready)),
            Poll::Pending => Poll::Ready(None),
        });
        if let Some(ready) = ready.await {
            return Found::Readable(ready);
        }
        let Some(shared) = shared.upgrade() else {
            return Found::Gone;
        };
        if let Err(error) = shared.poll_events() {
            return Found::Failed(error);
        }
        // Another task's poll may have dequeued them.
        if shared.dequeued() != before {
            return Found::Events;
        }
    }
    Found::Nothing
}

impl Context {
    /// Opens an adapter whose events a task of the current tokio runtime takes; it ends with the context. After an event the task
    /// polls for up to 50 us, between the runtime's other tasks, if that has found events before. Once the runtime is dropped nothing
    /// takes events any more, and futures of the context wait for ever. So does [`block_on`](super::block_on) in a task of a runtime
    /// with one thread.
    ///
    /// ```
    /// use udapl::aio::{Context, Options};
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() -> Result<(), udapl::Error> {
    ///     let context = Context::open_tokio("softrxe-lo")?;
    ///     let mut listener = context.listen(None, Options::default())?;
    ///     let qualifier = listener.conn_qual();
    ///     let server = tokio::spawn(async move {
    ///         let connection = listener.accept().await?;
    ///         let message = connection.recv().await?;
    ///         Ok::<_, udapl::Error>(message.to_vec())
    ///     });
    ///     let options = Options::default();
    ///     let client = context.connect(context.address(), qualifier, &options).await?;
    ///     let buffer = context.pool(1, 64)?.take().await.filled(b"hello");
    ///     client.send(buffer).await.1?;
    ///     assert_eq!(server.await.expect("it ran")?, b"hello");
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Ia::open`](crate::Ia::open); [`Error::System`] outside a runtime, and if tokio cannot watch the descriptor.
    ///
    /// # Panics
    /// If the runtime has no I/O driver (`enable_io`).
    pub fn open_tokio(name: &str) -> Result<Self> {
        Handle::try_current().map_err(|error| Error::System {
            what: "find a tokio runtime; open the adapter in a task of one",
            source: std::io::Error::other(error),
        })?;
        let context = Self::open_manual(name)?;
        let watched = Watched(context.notify().clone());
        // SAFETY: the descriptor is open as long as its CNO, which `watched` keeps, and no other object registers it.
        let descriptor = unsafe { AsyncFd::register_with_interest(watched, Interest::READABLE) };
        let descriptor = descriptor.map_err(|error| Error::System {
            what: "watch the adapter's descriptor in tokio",
            source: error.into_parts().1,
        })?;
        let shared = Arc::downgrade(&context.shared);
        let task = tokio::spawn(async move {
            if let Err(error) = watch(&descriptor, &shared).await {
                tracing::error!(%error, "events of an adapter cannot be dequeued; its futures stay pending");
            }
        });
        context.ends_with(AbortOnDrop(task));
        Ok(context)
    }
}
