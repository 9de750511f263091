//! Listeners.

use std::net::IpAddr;
use std::task::{Context as TaskContext, Poll};

use super::connection::Connection;
use super::context::Context;
use super::options::Options;
use super::state::Requests;
use super::watchers::Ticket;
use crate::error::Result;
use crate::{ConnRequest, Listener};

/// A service point whose requests are awaited. It listens until it is dropped.
///
/// ```
/// use udapl::aio::{Context, Options};
///
/// # fn main() -> Result<(), udapl::Error> {
/// # udapl::aio::block_on(async {
/// let context = Context::open("softrxe-lo")?;
/// let options = Options { message_size: 64, private_data: b"welcome".to_vec(), ..Options::default() };
/// let mut listener = context.listen(None, options)?;
/// # let mine = Options::default();
/// # let attempt = context.connect(context.address(), listener.conn_qual(), &mine);
/// # let accept = async {
/// let client = match listener.accept().await {
///     Ok(connection) => connection, // with the options of the listener
///     Err(error) => {
///         eprintln!("a client was not accepted: {error}"); // the next one may be
///         return Err(error);
///     }
/// };
/// # Ok(client) };
/// # let (client, server) = udapl::aio::join(attempt, accept).await;
/// # server?;
/// # assert!(client?.private_data().starts_with(b"welcome"));
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncListener {
    listener: Listener,
    options: Options,
    context: Context,
    ticket: Ticket,
}

/// A connection request. It is rejected if it is dropped.
///
/// ```
/// use udapl::aio::{Context, Options};
/// # use udapl::Error;
///
/// # fn main() -> Result<(), udapl::Error> {
/// # udapl::aio::block_on(async {
/// # let context = Context::open("softrxe-lo")?;
/// # let mut listener = context.listen(None, Options::default())?;
/// # let mine = Options { private_data: b"guest".to_vec(), ..Options::default() };
/// # let attempt = context.connect(context.address(), listener.conn_qual(), &mine);
/// # let answer = async {
/// let request = listener.next_request().await?;
/// println!("{} asks", request.remote());
/// if request.private_data().starts_with(b"guest") {
///     request.reject(b"members only")?;
/// } else {
///     let large = Options { message_size: 1 << 20, ..Options::default() };
///     let connection = request.accept(&large).await?;
/// }
/// # Ok::<_, Error>(()) };
/// # let (client, answered) = udapl::aio::join(attempt, answer).await;
/// # answered?;
/// # assert!(matches!(client, Err(Error::Rejected { private_data }) if private_data.starts_with(b"members")));
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct Incoming {
    request: ConnRequest,
    context: Context,
}

impl Context {
    /// Listens on `conn_qual`, or on a free one. `options` are those of [`AsyncListener::accept`].
    ///
    /// # Errors
    /// [`Error::AddressInUse`](crate::Error::AddressInUse), [`Error::Call`](crate::Error::Call).
    pub fn listen(&self, conn_qual: Option<u64>, options: Options) -> Result<AsyncListener> {
        // A request that arrives at once finds its queue, as events are given out under the lock.
        let mut state = self.shared.state();
        let listener = self.ia().listen(conn_qual, &self.shared.evd)?;
        let qual = listener.conn_qual();
        state.listeners.insert(qual, Requests::default());
        drop(state);
        Ok(AsyncListener {
            listener,
            options,
            context: self.clone(),
            ticket: Ticket::default(),
        })
    }
}

impl Drop for AsyncListener {
    fn drop(&mut self) {
        let qual = self.listener.conn_qual();
        let requests = self.context.shared.state().listeners.remove(&qual);
        drop(requests);
    }
}

impl AsyncListener {
    /// Returns the connection qualifier to which peers connect.
    #[must_use]
    pub fn conn_qual(&self) -> u64 {
        self.listener.conn_qual()
    }

    /// Returns the options of [`AsyncListener::accept`].
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the next request.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub async fn next_request(&mut self) -> Result<Incoming> {
        std::future::poll_fn(|context| self.poll_request(context)).await
    }

    /// Polls for the next request, for streams and select loops of other crates.
    ///
    /// # Errors
    /// As [`AsyncListener::next_request`].
    pub fn poll_request(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<Incoming>> {
        if let Err(error) = self.context.shared.poll_events() {
            return Poll::Ready(Err(error));
        }
        let mut state = self.context.shared.state();
        let requests = state
            .listeners
            .entry(self.listener.conn_qual())
            .or_default();
        match requests.queue.pop_front() {
            Some(request) => Poll::Ready(Ok(Incoming {
                request,
                context: self.context.clone(),
            })),
            None => {
                let watchers = &mut requests.watchers;
                let former = watchers.watch(&mut self.ticket, context.waker());
                drop(state);
                drop(former);
                Poll::Pending
            }
        }
    }

    /// Accepts the next request.
    ///
    /// # Errors
    /// As [`Incoming::accept`]. A request that fails does not end the listener: call again.
    pub async fn accept(&mut self) -> Result<Connection> {
        let request = self.next_request().await?;
        request.accept(&self.options).await
    }
}

impl Incoming {
    /// Returns the peer's address.
    #[must_use]
    pub fn remote(&self) -> IpAddr {
        self.request.remote()
    }

    /// Returns the peer's private data, which some transports pad with zeros.
    #[must_use]
    pub fn private_data(&self) -> Vec<u8> {
        self.request.private_data()
    }

    /// Returns true if the peer is a datagram endpoint, for which [`Datagrams::accept`](super::Datagrams::accept) is.
    #[must_use]
    pub fn is_datagram(&self) -> bool {
        self.request.is_datagram()
    }

    /// Returns the request of the low layer.
    #[must_use]
    pub fn into_request(self) -> ConnRequest {
        self.request
    }

    /// Accepts the request.
    ///
    /// # Errors
    /// [`Error::Disconnected`](crate::Error::Disconnected) if the peer is gone; [`Error::Resources`](crate::Error::Resources),
    /// [`Error::Call`](crate::Error::Call).
    pub async fn accept(self, options: &Options) -> Result<Connection> {
        let (remote, private_data) = (self.remote(), self.private_data());
        let connection = Connection::new(&self.context, options, remote)?;
        self.request
            .accept(connection.ep(), &options.private_data)?;
        let connection = connection.established().await?;
        connection.set_private_data(private_data);
        Ok(connection)
    }

    /// Rejects the request; the peer gets `private_data`.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        self.request.reject(private_data)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    struct Ignore;

    impl Wake for Ignore {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn a_listener_that_is_polled_again_keeps_one_waker_of_a_task() {
        let context = Context::open_manual("softrxe-lo").expect("opens");
        let mut listener = context.listen(None, Options::default()).expect("listens");
        let mut next_error = std::pin::pin!(context.next_error());
        let waker = Arc::new(Ignore).into();
        let mut cx = TaskContext::from_waker(&waker);
        for _ in 0..100 {
            assert!(listener.poll_request(&mut cx).is_pending());
            assert!(next_error.as_mut().poll(&mut cx).is_pending());
        }
        let state = context.shared.state();
        let requests = state.listeners.values().next().expect("the listener's");
        assert_eq!(
            (requests.watchers.len(), state.error_watchers.len()),
            (1, 1)
        );
    }
}
