//! Listeners.

use std::net::IpAddr;
use std::task::{Context as TaskContext, Poll};

use super::connection::Connection;
use super::context::Context;
use super::options::Options;
use super::state::Requests;
use crate::error::Result;
use crate::{ConnRequest, Listener};

/// A service point whose requests are awaited. It listens until it is dropped.
#[derive(Debug)]
pub struct AsyncListener {
    listener: Listener,
    options: Options,
    context: Context,
}

/// A connection request. It is rejected if it is dropped.
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
                requests.watchers.push(context.waker().clone());
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
        let connection = Connection::new(&self.context, options)?;
        self.request
            .accept(connection.ep(), &options.private_data)?;
        connection.established().await
    }

    /// Rejects the request; the peer gets `private_data`.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        self.request.reject(private_data)
    }
}
