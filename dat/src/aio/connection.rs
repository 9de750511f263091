//! Connections.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use super::context::{Context, Options, Shared};
use super::link::Inner;
use super::operation::Operation;
use super::pool::{Buffer, IoBuffer, Pool};
use super::state::{Link, Phase};
use crate::error::{Error, Result};
use crate::{Close, CompletionFlags, Ep, EpId, Remote};

const NONE: CompletionFlags = CompletionFlags::empty();
/// Connection events of an endpoint.
const CONNECTION_EVENTS: u32 = 4;

/// A connection. Clones are the same one, which ends when the last is dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    inner: Arc<Inner>,
}

impl Connection {
    /// Makes an endpoint with posted receives.
    pub(super) fn new(context: &Context, options: &Options) -> Result<Self> {
        let shared = Arc::clone(&context.shared);
        let events = options.receives + options.requests + CONNECTION_EVENTS;
        shared.reserve(events)?;
        let made = Self::create(&shared, options);
        let (ep, words) = made.inspect_err(|_| shared.release(events))?;
        let id = ep.id();
        let link = Link {
            credits: options.requests,
            ..Link::default()
        };
        shared.state().links.insert(id, link);
        let inner = Arc::new(Inner {
            ep: Some(ep),
            id,
            events,
            words,
            shared,
        });
        let receives = options.receives as usize;
        if receives > 0 {
            let pool = Pool::new(&inner.shared.pz, receives, options.message_size)?;
            while let Some(buffer) = pool.try_take() {
                // A refused one would come back to the pool.
                inner.post_receive(buffer)?;
            }
        }
        Ok(Self { inner })
    }

    fn create(shared: &Shared, options: &Options) -> Result<(Ep, Pool)> {
        let evd = &shared.evd;
        let builder = shared.ia.endpoint(&shared.pz).recv_evd(evd);
        let builder = builder.request_evd(evd).connect_evd(evd).max_segments(1);
        let builder = builder
            .max_recv(options.receives)
            .max_requests(options.requests)
            .max_reads(options.reads);
        let words = Pool::new(&shared.pz, options.requests.max(1) as usize, 8)?;
        Ok((builder.create()?, words))
    }

    pub(super) fn ep(&self) -> &Ep {
        self.inner.ep()
    }

    /// Waits until the connection is established.
    pub(super) async fn established(self) -> Result<Self> {
        std::future::poll_fn(|context| {
            self.inner.poll(context, |link| {
                matches!(link.phase, Phase::Connected).then_some(())
            })
        })
        .await?;
        Ok(self)
    }

    /// Returns the context.
    #[must_use]
    pub fn context(&self) -> Context {
        Context {
            shared: Arc::clone(&self.inner.shared),
        }
    }

    /// Returns the number of its endpoint.
    #[must_use]
    pub fn id(&self) -> EpId {
        self.inner.id
    }

    /// Returns the private data of the peer's answer.
    #[must_use]
    pub fn private_data(&self) -> Vec<u8> {
        let state = self.inner.shared.state();
        let link = state.links.get(&self.inner.id);
        link.map(|link| link.private_data.clone())
            .unwrap_or_default()
    }

    /// Sends a message.
    pub fn send<B: IoBuffer>(&self, buffer: B) -> Operation<B> {
        Operation::new(&self.inner, buffer, |ep, part, cookie| {
            ep.post_send(&[part], cookie)
        })
    }

    /// Returns the next message. A call that is dropped loses none. The message's buffer is posted again when it is dropped.
    ///
    /// # Errors
    /// [`Error::Disconnected`] after the last message.
    pub async fn recv(&self) -> Result<Message> {
        std::future::poll_fn(|context| self.poll_recv(context)).await
    }

    /// Polls for the next message, for streams and select loops of other crates.
    ///
    /// # Errors
    /// As [`Connection::recv`].
    pub fn poll_recv(&self, context: &mut TaskContext<'_>) -> Poll<Result<Message>> {
        let arrived = self.inner.poll(context, |link| link.arrived.pop_front());
        arrived.map_ok(|arrived| Message {
            immediate: arrived.immediate,
            buffer: Some(arrived.buffer),
            link: Arc::clone(&self.inner),
        })
    }

    /// Writes memory to the peer (RDMA Write).
    pub fn write<B: IoBuffer>(&self, buffer: B, to: Remote) -> Operation<B> {
        Operation::new(&self.inner, buffer, move |ep, part, cookie| {
            ep.post_rdma_write(&[part], to, cookie, NONE)
        })
    }

    /// Writes memory to the peer, which gets a [`Message`] with `immediate`.
    pub fn write_immediate<B: IoBuffer>(
        &self,
        buffer: B,
        to: Remote,
        immediate: u32,
    ) -> Operation<B> {
        Operation::new(&self.inner, buffer, move |ep, part, cookie| {
            ep.post_rdma_write_immediate(&[part], to, immediate, cookie, NONE)
        })
    }

    /// Reads the peer's memory (RDMA Read): as many bytes as the buffer has, from the beginning of `from`.
    pub fn read<B: IoBuffer>(&self, from: Remote, buffer: B) -> Operation<B> {
        Operation::new(&self.inner, buffer, move |ep, part, cookie| {
            ep.post_rdma_read(&[part], from, cookie, NONE)
        })
    }

    /// Adds to the peer's aligned word, and returns the value before.
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::Unsupported`].
    pub async fn fetch_add(&self, word: Remote, add: u64) -> Result<u64> {
        let buffer = self.inner.words.take().await;
        let operation = Operation::new(&self.inner, buffer, move |ep, part, cookie| {
            ep.post_fetch_add(part, word, add, cookie, NONE)
        });
        old_value(operation.await)
    }

    /// Replaces the peer's aligned word by `new` if it is `expected`, and returns the value before.
    ///
    /// # Errors
    /// As [`Connection::fetch_add`].
    pub async fn compare_swap(&self, word: Remote, expected: u64, new: u64) -> Result<u64> {
        let buffer = self.inner.words.take().await;
        let operation = Operation::new(&self.inner, buffer, move |ep, part, cookie| {
            ep.post_compare_swap(part, word, (expected, new), cookie, NONE)
        });
        old_value(operation.await)
    }

    /// Ends the connection after the outstanding requests, and waits for the end.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn disconnect(&self) -> Result<()> {
        self.ep().disconnect(Close::Graceful)?;
        self.closed().await;
        Ok(())
    }

    /// Waits for the end of the connection, and returns the reason.
    pub async fn closed(&self) -> Error {
        let ended = std::future::poll_fn(|context| self.inner.poll(context, |_| None::<()>)).await;
        match ended {
            Err(error) => error,
            Ok(()) => unreachable!("it waits for the end only"),
        }
    }
}

fn old_value((buffer, done): (Buffer, Result<u32>)) -> Result<u64> {
    done?;
    let mut word = [0; 8];
    word.copy_from_slice(&buffer);
    Ok(u64::from_ne_bytes(word))
}

/// A message that arrived. Its buffer is posted again when it is dropped.
pub struct Message {
    buffer: Option<Buffer>,
    immediate: u32,
    link: Arc<Inner>,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({} bytes of {:?})", self.len(), self.link)
    }
}

impl Message {
    /// Returns the value that came with a write ([`Connection::write_immediate`]), otherwise 0.
    #[must_use]
    pub fn immediate(&self) -> u32 {
        self.immediate
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(mut buffer) = self.buffer.take() {
            buffer.set_len(buffer.capacity());
            // After the end of the connection it is flushed at once, or refused.
            let _ = self.link.post_receive(buffer);
        }
    }
}

impl Context {
    /// Connects to `conn_qual` at `address`.
    ///
    /// # Errors
    /// [`Error::Rejected`]; [`Error::Disconnected`] if nothing listens there, or in time; [`Error::Unreachable`], [`Error::Call`].
    pub async fn connect(
        &self,
        address: IpAddr,
        conn_qual: u64,
        options: &Options,
    ) -> Result<Connection> {
        let connection = Connection::new(self, options)?;
        let attempt = connection.ep().connect(address, conn_qual);
        let attempt = attempt.private_data(&options.private_data);
        attempt.timeout(options.timeout).start()?;
        connection.established().await
    }
}
