//! Connections.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use super::context::{Context, Shared};
use super::link::Inner;
use super::message::{Home, Message};
use super::operation::Operation;
use super::options::Options;
use super::pool::{Buffer, IoBuffer, Pool, sealed::Segment};
use super::state::{Arrived, Link};
use crate::error::{Error, Result};
use crate::{Close, CompletionFlags, DtoOp, Ep, EpId, Remote};

const NONE: CompletionFlags = CompletionFlags::empty();

/// Checks that a request stays within the segment that the program was given. The key may open more: peers get one key for a region.
fn fits(op: DtoOp, local: &impl IoBuffer, remote: Remote) -> Result<()> {
    let length = local.length();
    if length > remote.length as usize {
        return Err(Error::BeyondRemote {
            op,
            length,
            room: remote.length,
        });
    }
    Ok(())
}

/// Connection events of an endpoint.
const CONNECTION_EVENTS: u32 = 4;

/// A connection. Clones are the same one, which ends when the last is dropped, and with it the messages and the operations that are
/// not finished: each of these keeps the connection.
///
/// ```
/// use udapl::aio::Connection;
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
///
/// # fn main() -> Result<(), udapl::Error> {
/// # udapl::aio::block_on(async {
/// # let (client, server) = connection().await?;
/// /// Answers each message, until the client closes the connection.
/// async fn serve(client: &Connection) -> Result<(), udapl::Error> {
///     let pool = client.context().pool(4, 4096)?;
///     loop {
///         let message = match client.recv().await {
///             Err(error) if error.is_connection_gone() => return Ok(()),
///             message => message?,
///         };
///         let answer = pool.take().await.filled(&message);
///         drop(message); // its buffer is posted again
///         client.send(answer).await.1?;
///     }
/// }
/// # let pool = client.context().pool(1, 64)?;
/// # let (_, sent) = client.send(pool.take().await.filled(b"hello")).await;
/// # sent?;
/// # let ended = async { let text = client.recv().await?.to_vec(); client.disconnect().await?; Ok::<_, udapl::Error>(text) };
/// # let (served, text) = udapl::aio::join(serve(&server), ended).await;
/// # served?;
/// # assert_eq!(text?, b"hello");
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Connection {
    inner: Arc<Inner>,
}

impl Connection {
    /// Makes an endpoint with posted receives.
    pub(super) fn new(context: &Context, options: &Options, remote: IpAddr) -> Result<Self> {
        let shared = &context.shared;
        let queue = options.shared_receives.as_ref().map(|of| &of.queue);
        if queue.is_some_and(|queue| !Arc::ptr_eq(&queue.shared, shared)) {
            return Err(Error::OtherZone {
                call: "dat_ep_create_with_srq",
            });
        }
        // The operations of a connection without requests would wait for ever.
        if options.requests == 0
            && let Some(error) = options.refused(&shared.ia)
        {
            return Err(error);
        }
        let receives = if queue.is_some() { 0 } else { options.receives };
        let events = receives.saturating_add(options.requests);
        let events = events.saturating_add(CONNECTION_EVENTS);
        let link = Link {
            remote: Some(remote),
            credits: options.requests,
            queue: queue.map(|queue| queue.id()),
            ..Link::default()
        };
        let inner = Pool::new(&shared.pz, options.requests as usize, 8).and_then(|words| {
            Inner::new(shared, events, link, Some(words), queue, || {
                Self::create(shared, options)
            })
        });
        // What failed may be the room for their events.
        let inner = inner.map_err(|error| options.refused(&shared.ia).unwrap_or(error))?;
        inner.post_receives(receives, options.message_size)?;
        Ok(Self { inner })
    }

    fn create(shared: &Shared, options: &Options) -> Result<Ep> {
        let evd = &shared.evd;
        let builder = shared.ia.endpoint(&shared.pz).recv_evd(evd);
        let builder = builder.request_evd(evd).connect_evd(evd).max_segments(1);
        let builder = match &options.shared_receives {
            Some(receives) => builder.srq(receives.queue.srq()),
            None => builder.max_recv(options.receives),
        };
        let builder = builder.max_requests(options.requests);
        builder.max_reads(options.reads).create()
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(super) fn ep(&self) -> &Ep {
        self.inner.ep()
    }

    /// Waits until the connection is established. One that has ended since gives its messages first.
    pub(super) async fn established(self) -> Result<Self> {
        self.inner
            .wait(|link| link.was_established.then_some(()))
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

    /// Returns the address of the peer's adapter.
    ///
    /// Example: [`Connection::private_data`].
    #[must_use]
    pub fn remote(&self) -> IpAddr {
        let state = self.inner.shared.state();
        let link = state.links.get(&self.inner.id);
        link.and_then(|link| link.remote)
            .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }

    /// Returns the private data of the peer's answer, or of its request if this side accepted it. Most transports pad it with zeros:
    /// decode it with a length of the program's own, or with [`Remote::from_prefix`].
    ///
    /// ```
    /// use udapl::aio::{Context, Options, block_on, try_join};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let context = Context::open("softrxe-lo")?;
    /// # let mut listener = context.listen(None, Options::default())?;
    /// let options = Options { private_data: b"client 7".to_vec(), ..Options::default() };
    /// # let attempt = context.connect(context.address(), listener.conn_qual(), &options);
    /// # block_on(async {
    /// # let accept = async {
    /// // The server, to which a client connects with these options:
    /// let connection = listener.accept().await?;
    /// println!("{} from {}", connection.id(), connection.remote());
    /// assert!(connection.private_data().starts_with(b"client 7"));
    /// # Ok(connection) };
    /// # let (client, server) = try_join(attempt, accept).await?;
    /// # assert_eq!((client.remote(), server.remote()), (context.address(), context.address()));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    #[must_use]
    pub fn private_data(&self) -> Vec<u8> {
        let state = self.inner.shared.state();
        let link = state.links.get(&self.inner.id);
        link.map(|link| link.private_data.clone())
            .unwrap_or_default()
    }

    pub(super) fn set_private_data(&self, private_data: Vec<u8>) {
        let mut state = self.inner.shared.state();
        if let Some(link) = state.links.get_mut(&self.inner.id) {
            link.private_data = private_data;
        }
    }

    /// Sends a message.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    /// # fn main() -> Result<(), udapl::Error> {
    /// # udapl::aio::block_on(async {
    /// # let (client, server) = connection().await?;
    /// // `client` is a connection.
    /// let pool = client.context().pool(4, 4096)?;
    /// let buffer = pool.take().await.filled(b"hello");
    /// let (buffer, sent) = client.send(buffer).await;
    /// match sent {
    ///     Ok(length) => assert_eq!(length, 5),
    ///     Err(error) => eprintln!("not sent: {error}"),
    /// }
    /// drop(buffer); // it goes back to the pool
    /// # assert_eq!(&server.recv().await?[..], b"hello");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn send<B: IoBuffer>(&self, buffer: B) -> Operation<B> {
        Operation::new(&self.inner, buffer, |ep, buffer, cookie| {
            ep.post_send(&[buffer.segment()], cookie)
        })
    }

    /// Returns the next message. A call that is dropped loses none. The message's buffer is posted again when it is dropped.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    /// # fn main() -> Result<(), udapl::Error> {
    /// # udapl::aio::block_on(async {
    /// # let (client, server) = connection().await?;
    /// // `server` is a connection.
    /// # let pool = client.context().pool(1, 64)?;
    /// # client.send(pool.take().await.filled(b"hello")).await.1?;
    /// let message = server.recv().await?;
    /// assert_eq!(&message[..], b"hello"); // a message is a slice of bytes
    /// drop(message); // now its buffer can take another one
    /// # drop(client);
    /// match server.recv().await {
    ///     Err(error) if error.is_connection_gone() => println!("the peer closed the connection"),
    ///     other => println!("{:?}", other?),
    /// }
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Disconnected`] after the last message; [`Error::Failed`] if a receive broke the connection, with
    /// [`DtoStatus::LocalLength`](crate::DtoStatus::LocalLength) if a message was longer than [`Options::message_size`];
    /// [`Error::HasSrq`] if the messages arrive in
    /// [`Options::shared_receives`].
    pub async fn recv(&self) -> Result<Message> {
        self.check_receives()?;
        let arrived = self.inner.wait(|link| link.arrived.pop_front()).await?;
        Ok(self.message(arrived))
    }

    /// Polls for the next message, for streams and select loops of other crates.
    ///
    /// # Errors
    /// As [`Connection::recv`].
    pub fn poll_recv(&self, context: &mut TaskContext<'_>) -> Poll<Result<Message>> {
        self.check_receives()?;
        let arrived = self
            .inner
            .poll(context, None, |link| link.arrived.pop_front());
        arrived.map_ok(|arrived| self.message(arrived))
    }

    fn check_receives(&self) -> Result<()> {
        if self.inner.has_shared_receives() {
            return Err(Error::HasSrq {
                call: "Connection::recv",
            });
        }
        Ok(())
    }

    fn message(&self, arrived: Arrived) -> Message {
        Message::new(arrived, 0, Home::Link(Arc::clone(&self.inner)))
    }

    /// Writes memory to the peer (RDMA Write), from the beginning of `to`. The output is [`Error::BeyondRemote`] if `to` is shorter.
    ///
    /// ```
    /// use udapl::{Access, Remote};
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # udapl::aio::block_on(async {
    /// # let (client, server) = connection().await?;
    /// // The server opens memory and has sent its key; `client` is the other end.
    /// let opened = server.context().pz().allocate(4096, Access::ALL)?;
    /// let key = opened.remote(0..4096).to_bytes();
    ///
    /// let remote = Remote::from_bytes(key);
    /// let pool = client.context().pool(4, 64)?;
    /// let buffer = pool.take().await.filled(b"some bytes");
    /// let (_buffer, written) = client.write(buffer, remote.slice(100..110)).await;
    /// written?;
    /// assert_eq!(opened.to_vec(100..110), b"some bytes");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn write<B: IoBuffer>(&self, buffer: B, to: Remote) -> Operation<B> {
        Operation::new(&self.inner, buffer, move |ep, buffer, cookie| {
            fits(DtoOp::RdmaWrite, buffer, to)?;
            ep.post_rdma_write(&[buffer.segment()], to, cookie, NONE)
                .map_err(Error::from)
        })
    }

    /// Writes memory to the peer as [`Connection::write`], and the peer gets a [`Message`] with `immediate`.
    ///
    /// ```
    /// # use udapl::Access;
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    /// # fn main() -> Result<(), udapl::Error> {
    /// # udapl::aio::block_on(async {
    /// # let (client, server) = connection().await?;
    /// // `client` and `server` are the ends of a connection, and `remote` is a segment of the server's memory.
    /// # let opened = server.context().pz().allocate(4096, Access::ALL)?;
    /// # let remote = opened.remote(0..4096);
    /// let buffer = client.context().pool(1, 64)?.take().await.filled(b"record");
    /// client.write_immediate(buffer, remote.slice(64..70), 64).await.1?;
    ///
    /// let told = server.recv().await?;
    /// let (at, length) = (told.immediate().expect("a write") as usize, told.written() as usize);
    /// assert_eq!(opened.to_vec(at..at + length), b"record");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn write_immediate<B: IoBuffer>(
        &self,
        buffer: B,
        to: Remote,
        immediate: u32,
    ) -> Operation<B> {
        Operation::new(&self.inner, buffer, move |ep, buffer, cookie| {
            fits(DtoOp::RdmaWriteImmediate, buffer, to)?;
            ep.post_rdma_write_immediate(&[buffer.segment()], to, immediate, cookie, NONE)
                .map_err(Error::from)
        })
    }

    /// Reads the peer's memory (RDMA Read): as many bytes as the buffer has, from the beginning of `from`. The output is
    /// [`Error::BeyondRemote`] if `from` is shorter.
    ///
    /// ```
    /// # use udapl::Access;
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    /// # fn main() -> Result<(), udapl::Error> {
    /// # udapl::aio::block_on(async {
    /// # let (client, server) = connection().await?;
    /// // `client` is a connection, and `remote` a segment of the server's memory.
    /// # let opened = server.context().pz().register(b"some bytes".to_vec(), Access::ALL)?;
    /// # let remote = opened.remote(0..10);
    /// let mut buffer = client.context().pool(1, 64)?.take().await;
    /// buffer.set_len(5); // as many bytes are read
    /// let (buffer, read) = client.read(remote.slice(5..10), buffer).await;
    /// read?;
    /// assert_eq!(&buffer[..], b"bytes");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn read<B: IoBuffer>(&self, from: Remote, buffer: B) -> Operation<B> {
        Operation::new(&self.inner, buffer, move |ep, buffer, cookie| {
            fits(DtoOp::RdmaRead, buffer, from)?;
            ep.post_rdma_read(&[buffer.segment()], from, cookie, NONE)
                .map_err(Error::from)
        })
    }

    /// Adds to the peer's aligned word, and returns the value before.
    ///
    /// ```
    /// use udapl::Access;
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # udapl::aio::block_on(async {
    /// # let (client, server) = connection().await?;
    /// // The server opens a word; `client` is the other end.
    /// let words = server.context().pz().allocate(8, Access::ALL | Access::REMOTE_ATOMIC)?;
    /// let word = words.remote(0..8);
    /// assert_eq!(client.fetch_add(word, 2).await?, 0);
    /// assert_eq!(client.fetch_add(word, 2).await?, 2);
    /// assert_eq!(words.load_u64(0), 4);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::Unsupported`].
    pub async fn fetch_add(&self, word: Remote, add: u64) -> Result<u64> {
        let buffer = self.word().await;
        let operation = Operation::new(&self.inner, buffer, move |ep, buffer, cookie| {
            ep.post_fetch_add(buffer.segment(), word, add, cookie, NONE)
        });
        old_value(operation.await)
    }

    /// Replaces the peer's aligned word by `new` if it is `expected`, and returns the value before.
    ///
    /// ```
    /// use udapl::{Access, Remote};
    /// use udapl::aio::Connection;
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # udapl::aio::block_on(async {
    /// # let (client, server) = connection().await?;
    /// /// Raises a word of the peer to at least `value`.
    /// async fn raise(peer: &Connection, word: Remote, value: u64) -> udapl::Result<()> {
    ///     let mut seen = 0;
    ///     while seen < value {
    ///         let found = peer.compare_swap(word, seen, value).await?;
    ///         if found == seen {
    ///             break;
    ///         }
    ///         seen = found;
    ///     }
    ///     Ok(())
    /// }
    /// # let words = server.context().pz().allocate(8, Access::ALL | Access::REMOTE_ATOMIC)?;
    /// # words.store_u64(0, 4);
    /// # raise(&client, words.remote(0..8), 7).await?;
    /// # raise(&client, words.remote(0..8), 5).await?;
    /// # assert_eq!(words.load_u64(0), 7);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Connection::fetch_add`].
    pub async fn compare_swap(&self, word: Remote, expected: u64, new: u64) -> Result<u64> {
        let buffer = self.word().await;
        let operation = Operation::new(&self.inner, buffer, move |ep, buffer, cookie| {
            ep.post_compare_swap(buffer.segment(), word, (expected, new), cookie, NONE)
        });
        old_value(operation.await)
    }

    /// Returns a buffer for the old value of an atomic.
    async fn word(&self) -> Buffer {
        let words = self.inner.words.as_ref();
        words.expect("only datagrams have none").take().await
    }

    /// Ends the connection after the outstanding requests, and waits for the end.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    /// # fn main() -> Result<(), udapl::Error> {
    /// # udapl::aio::block_on(async {
    /// # let (client, server) = connection().await?;
    /// // `client` is a connection.
    /// let buffer = client.context().pool(1, 64)?.take().await.filled(b"the last message");
    /// client.send(buffer).await.1?;
    /// client.disconnect().await?;
    /// assert_eq!(&server.recv().await?[..], b"the last message");
    /// assert!(server.recv().await.is_err_and(|error| error.is_connection_gone()));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn disconnect(&self) -> Result<()> {
        self.ep().disconnect(Close::Graceful)?;
        self.closed().await;
        Ok(())
    }

    /// Waits for the end of the connection, and returns the reason.
    ///
    /// ```
    /// use udapl::{ConnectionEvent, Error};
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # udapl::aio::block_on(async {
    /// # let (client, server) = connection().await?;
    /// // A client of one-sided operations may receive nothing; it hears here that the server is gone.
    /// # drop(server);
    /// match client.closed().await {
    ///     Error::Disconnected { how: ConnectionEvent::Disconnected } => println!("the server closed"),
    ///     Error::Disconnected { how: ConnectionEvent::Broken } => println!("the server does not answer"),
    ///     other => return Err(other),
    /// }
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn closed(&self) -> Error {
        match self.inner.wait(|_| None::<()>).await {
            Err(error) => error,
            Ok(()) => unreachable!("it waits for the end only"),
        }
    }

    /// Returns the reason if the connection has ended, and does not wait. For a program that keeps its connections in a map, see
    /// [`Arrival::Ended`](super::Arrival::Ended).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # udapl::aio::block_on(async {
    /// # let (client, server) = connection().await?;
    /// assert!(client.ended().is_none());
    /// server.disconnect().await?;
    /// client.closed().await;
    /// assert!(client.ended().is_some_and(|reason| reason.is_connection_gone()));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    #[must_use]
    pub fn ended(&self) -> Option<Error> {
        self.inner.ended()
    }
}

fn old_value((buffer, done): (Buffer, Result<u32>)) -> Result<u64> {
    done?;
    let mut word = [0; 8];
    word.copy_from_slice(&buffer);
    Ok(u64::from_ne_bytes(word))
}

impl Context {
    /// Returns the connection with this number, if a handle of it exists, for instance to answer a message of
    /// [`SharedReceives`](super::SharedReceives).
    ///
    /// Example: [`SharedReceives`](super::SharedReceives).
    #[must_use]
    pub fn connection(&self, id: EpId) -> Option<Connection> {
        let state = self.shared.state();
        let owner = state.links.get(&id)?.owner.as_ref()?.upgrade();
        drop(state);
        let inner = owner?.downcast::<Inner>().ok()?;
        inner.words.is_some().then_some(Connection { inner })
    }

    /// Connects to `conn_qual` at `address`. There is no time limit unless [`Options::timeout`] sets one. A call that is dropped ends the
    /// attempt; the peer's [`AsyncListener::accept`](super::AsyncListener::accept) fails then.
    ///
    /// A client that waits for its server. `pause` is the sleep of the runtime, such as `async || tokio::time::sleep(PAUSE).await`:
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use std::time::Duration;
    /// use udapl::aio::{Connection, Context, Options};
    /// use udapl::{ConnectionEvent, Error};
    ///
    /// async fn reach(
    ///     context: &Context,
    ///     server: IpAddr,
    ///     qualifier: u64,
    ///     pause: impl AsyncFn(),
    /// ) -> udapl::Result<Connection> {
    ///     let options = Options { timeout: Duration::from_secs(2), ..Options::default() };
    ///     loop {
    ///         match context.connect(server, qualifier, &options).await {
    ///             Err(error) if error.is_refused() => {} // it does not listen yet
    ///             Err(Error::Disconnected { how: ConnectionEvent::TimedOut }) => {}
    ///             other => return other,
    ///         }
    ///         pause().await;
    ///     }
    /// }
    /// # use udapl::aio::{block_on, join};
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let context = Context::open("softrxe-lo")?;
    /// # let mut listener = context.listen(None, Options::default())?;
    /// # let qualifier = listener.conn_qual();
    /// # let client = reach(&context, context.address(), qualifier, async || {});
    /// # let (client, server) = block_on(join(client, listener.accept()));
    /// # client?; server?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Rejected`]; [`Error::Disconnected`] if nothing listens there ([`Error::is_refused`]), or nothing answers in time;
    /// [`Error::Unreachable`], [`Error::Call`].
    pub async fn connect(
        &self,
        address: IpAddr,
        conn_qual: u64,
        options: &Options,
    ) -> Result<Connection> {
        let connection = Connection::new(self, options, address)?;
        let attempt = connection.ep().connect(address, conn_qual);
        let attempt = attempt.private_data(&options.private_data);
        attempt.timeout(options.timeout).start()?;
        connection.established().await
    }
}
