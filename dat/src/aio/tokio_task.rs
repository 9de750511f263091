//! Contexts in tokio: a task watches the descriptor.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::context::Context;
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

impl Context {
    /// Opens an adapter whose events a task of the current tokio runtime takes; it ends with the context.
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
            loop {
                let Ok(mut ready) = descriptor.readable().await else {
                    return;
                };
                // Cleared first: a notification after it makes the descriptor readable again.
                ready.clear_ready();
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                if let Err(error) = shared.drive() {
                    tracing::error!(%error, "events of an adapter cannot be dequeued; its futures stay pending");
                    return;
                }
            }
        });
        context.ends_with(AbortOnDrop(task));
        Ok(context)
    }
}
