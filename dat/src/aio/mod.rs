//! Futures: connections, messages, RDMA and atomics that are awaited, in any runtime.
//!
//! ```
//! use udapl::aio::{Context, Options};
//!
//! # fn main() -> Result<(), udapl::Error> {
//! # udapl::aio::block_on(async {
//! let context = Context::open("softrxe-lo")?;
//! let mut listener = context.listen(None, Options::default())?;
//! let (address, qual) = (context.address(), listener.conn_qual());
//! let options = Options::default();
//! let client = context.connect(address, qual, &options);
//! # let server = listener.accept();
//! # let (client, server) = udapl::aio::join(client, server).await;
//! # let (client, server) = (client?, server?);
//! let pool = context.pool(4, 4096)?;
//! let buffer = pool.take().await.filled(b"hello");
//! let (buffer, sent) = client.send(buffer).await;
//! assert_eq!(sent?, 5);
//! assert_eq!(&server.recv().await?[..], b"hello");
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! **Ownership.** A buffer moves into an operation and comes back with its result. **Cancellation.** A future that is dropped before its
//! end leaves its operation under way: the buffer stays with the context until the operation completes. A [`Connection::recv`] that is
//! dropped loses no message, because receives are posted ahead. Dropping the last handle of a connection ends it. A received message and an
//! operation that is awaited are handles, too. **Runtimes.** A thread of the context sleeps on its descriptor and wakes futures; a future
//! that waits for its peer polls for up to 10 us first. With [`Context::open_manual`] the context has no thread. The program watches the
//! descriptor ([`AsFd`](std::os::fd::AsFd)) in its reactor and calls [`Context::drive`]; the feature `tokio` does that in a task. **Servers.**
//! [`SharedReceives`] are the messages of many connections in one place. **Streams.** With the feature `stream`, [`AsyncListener`],
//! [`SharedReceives`], [`Datagrams`], [`Events`] and the messages of a connection are streams of `futures-core`. **Tasks.** All futures are
//! `Send`; one task may hold those of many connections. **Threads.** A context has one dispatcher: threads at high rates open a context
//! each ([tutorial](crate::tutorial#9-several-threads)).

mod arrivals;
mod block;
mod connection;
mod context;
mod datagrams;
mod events;
mod linger;
mod link;
mod listener;
mod message;
mod operation;
mod options;
#[cfg(feature = "tokio")]
mod polling;
mod pool;
mod shared_receives;
mod state;
#[cfg(feature = "stream")]
mod streams;
#[cfg(feature = "tokio")]
mod tokio_task;
mod watchers;
mod window;

pub use arrivals::Arrival;
pub use block::{block_on, join, try_join};
pub use connection::Connection;
pub use context::Context;
pub use datagrams::Datagrams;
pub use events::Events;
pub use listener::{AsyncListener, Incoming};
pub use message::Message;
pub use operation::Operation;
pub use options::Options;
pub use pool::{Buffer, IoBuffer, Part, Pool};
pub use shared_receives::SharedReceives;
#[cfg(feature = "stream")]
pub use streams::Messages;
pub use window::Window;
