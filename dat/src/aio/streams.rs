//! Streams (feature `stream`).

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::arrivals::Arrival;
use super::connection::Connection;
use super::datagrams::Datagrams;
use super::events::Events;
use super::listener::{AsyncListener, Incoming};
use super::message::Message;
use super::shared_receives::SharedReceives;
use crate::error::{Error, Result};
use crate::{ConnectionEvent, Event};

/// The messages of a connection. The stream ends when the connection was closed; another end is its last item.
///
/// ```
/// use std::future::poll_fn;
/// use std::pin::pin;
/// use futures_core::Stream;
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
///
/// # fn main() -> Result<(), udapl::Error> {
/// # udapl::aio::block_on(async {
/// # let (client, server) = connection().await?;
/// // With `StreamExt` of the crate `futures` this is `while let Some(message) = messages.next().await`.
/// let mut messages = pin!(server.messages());
/// # let pool = client.context().pool(1, 64)?;
/// # client.send(pool.take().await.filled(b"hello")).await.1?;
/// # client.disconnect().await?;
/// while let Some(message) = poll_fn(|cx| messages.as_mut().poll_next(cx)).await {
///     println!("{} bytes", message?.len());
/// }
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct Messages {
    connection: Connection,
    is_over: bool,
}

impl Connection {
    /// Returns the messages that arrive from now on.
    #[must_use]
    pub fn messages(&self) -> Messages {
        Messages {
            connection: self.clone(),
            is_over: false,
        }
    }
}

impl Stream for Messages {
    type Item = Result<Message>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let item = std::task::ready!(self.connection.poll_recv(cx));
        self.is_over = item.is_err();
        match item {
            Err(Error::Disconnected {
                how: ConnectionEvent::Disconnected,
            }) => Poll::Ready(None),
            item => Poll::Ready(Some(item)),
        }
    }
}

/// The requests that arrive. It does not end.
impl Stream for AsyncListener {
    type Item = Result<Incoming>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_request(cx).map(Some)
    }
}

/// What arrives. It does not end.
impl Stream for SharedReceives {
    type Item = Result<Arrival>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_arrival(cx).map(Some)
    }
}

/// The datagrams that arrive. It does not end.
impl Stream for Datagrams {
    type Item = Result<Message>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_recv(cx).map(Some)
    }
}

/// The events of the dispatcher. It does not end.
impl Stream for Events {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_event(cx).map(Some)
    }
}
