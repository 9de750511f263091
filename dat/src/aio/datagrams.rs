//! Unreliable datagrams.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use super::context::Context;
use super::link::Inner;
use super::listener::Incoming;
use super::message::{Home, Message};
use super::operation::Operation;
use super::options::Options;
use super::pool::IoBuffer;
use super::state::{Arrived, Attempt, Link, Phase};
use super::watchers::wake;
use crate::error::{Error, Result};
use crate::{CompletionFlags, ConnectionEvent, DATAGRAM_HEADER, DatagramEvent, Peer};

/// Events of attempts to find peers, of which there is one at a time.
const ATTEMPT_EVENTS: u32 = 4;

/// An endpoint for datagrams: it sends to any number of peers and receives from all. A datagram may be lost. Clones are the same
/// endpoint.
///
/// ```
/// use udapl::aio::{Context, Options, join};
///
/// # fn main() -> Result<(), udapl::Error> {
/// # udapl::aio::block_on(async {
/// let context = Context::open("softrxe-lo")?;
/// let options = Options { message_size: 1024, ..Options::default() };
/// let (here, there) = (context.datagrams(&options)?, context.datagrams(&options)?);
/// let mut listener = context.listen(None, Options::default())?;
/// let qual = listener.conn_qual();
/// let found = here.find(context.address(), qual, b"who is it?");
/// let accepted = async { there.accept(listener.next_request().await?, b"me").await };
/// let (found, accepted) = join(found, accepted).await;
/// accepted?; // a peer, to which `there` could send
/// let (peer, _data) = found?;
/// let buffer = context.pool(1, 1024)?.take().await.filled(b"hello");
/// here.send_to(buffer, &peer).await.1?;
/// assert_eq!(&there.recv().await?[..], b"hello");
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Datagrams {
    inner: Arc<Inner>,
    timeout: Duration,
}

impl Context {
    /// Makes an endpoint for datagrams. A datagram has at most [`Datagrams::max_size`] bytes. Of the options it uses `receives`,
    /// `message_size`, `requests` and `timeout`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the adapter has no datagrams; [`Error::Limit`], [`Error::Resources`], [`Error::Call`].
    pub fn datagrams(&self, options: &Options) -> Result<Datagrams> {
        let shared = &self.shared;
        // They are for connections only.
        let options = &Options {
            shared_receives: None,
            ..options.clone()
        };
        // Without requests each operation would wait for ever.
        if options.requests == 0
            && let Some(error) = options.refused(&shared.ia)
        {
            return Err(error);
        }
        let link = Link {
            phase: Phase::Connected,
            credits: options.requests,
            ..Link::default()
        };
        let events = options.receives.saturating_add(options.requests);
        let events = events.saturating_add(ATTEMPT_EVENTS);
        let inner = Inner::new(shared, events, link, None, None, || {
            let evd = &shared.evd;
            let builder = shared.ia.endpoint(&shared.pz).recv_evd(evd);
            let builder = builder.request_evd(evd).connect_evd(evd).max_segments(1);
            let builder = builder.max_recv(options.receives);
            builder.max_requests(options.requests).datagrams().create()
        });
        // What failed may be the room for their events.
        let inner = inner.map_err(|error| options.refused(&shared.ia).unwrap_or(error))?;
        let size = DATAGRAM_HEADER.saturating_add(options.message_size);
        inner.post_receives(options.receives, size)?;
        Ok(Datagrams {
            inner,
            timeout: options.timeout,
        })
    }
}

/// The turn to find or accept a peer. An attempt whose future is dropped goes on, and keeps the turn.
struct Turn<'a>(&'a Inner);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.shared().state();
        let Some(link) = state.links.get_mut(&self.0.id()) else {
            return;
        };
        let done = match link.attempt {
            Attempt::Pending => std::mem::replace(&mut link.attempt, Attempt::Abandoned),
            _ => std::mem::take(&mut link.attempt),
        };
        let woken: Vec<_> = link.watchers.drain().collect();
        drop(state);
        drop(done);
        woken.into_iter().for_each(wake);
    }
}

impl Datagrams {
    /// Returns the largest number of bytes of a datagram, of which the adapter may allow less on a path.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn max_size(&self) -> Result<usize> {
        let attributes = self.inner.shared().ia.attributes()?;
        let named = attributes.transport.iter().chain(&attributes.named);
        let mut mtu = named.filter(|(name, _)| name == "DAT_IB_TRANSPORT_MTU");
        let size = mtu.find_map(|(_, value)| value.parse().ok());
        Ok(size.unwrap_or(256))
    }

    /// Makes an attempt that `start` begins, and waits for its result.
    async fn attempt(&self, start: impl FnOnce() -> Result<()>) -> Result<(Peer, Vec<u8>)> {
        let inner = &*self.inner;
        let begin = |link: &mut Link| match link.attempt {
            Attempt::None => {
                link.attempt = Attempt::Pending;
                Some(())
            }
            _ => None,
        };
        inner.wait(begin).await?;
        let turn = Turn(inner);
        if let Err(error) = start() {
            // Nothing is under way.
            if let Some(link) = inner.shared().state().links.get_mut(&inner.id()) {
                link.attempt = Attempt::Over;
            }
            return Err(error);
        }
        let take = |link: &mut Link| {
            // The turn ends with `turn` and no earlier: another task's attempt would be taken for this one.
            match std::mem::replace(&mut link.attempt, Attempt::Over) {
                Attempt::Done(how, peer, data) => Some((how, peer, data)),
                other => {
                    link.attempt = other;
                    None
                }
            }
        };
        let done = inner.wait(take).await;
        drop(turn);
        match done? {
            (DatagramEvent::Established, Some(peer), data) => Ok((peer, data)),
            (DatagramEvent::Rejected, _, private_data) => Err(Error::Rejected { private_data }),
            _ => Err(Error::Disconnected {
                how: ConnectionEvent::NonPeerRejected,
            }),
        }
    }

    /// Finds the datagram endpoint that accepts the request at `conn_qual` of `address`. Returns it, with the private data of its
    /// answer. Every datagram endpoint of the context may send to it, as long as this one lives.
    ///
    /// # Errors
    /// [`Error::Rejected`]; [`Error::Disconnected`] if nothing listens there; [`Error::Unreachable`], [`Error::Call`].
    pub async fn find(
        &self,
        address: IpAddr,
        conn_qual: u64,
        private_data: &[u8],
    ) -> Result<(Peer, Vec<u8>)> {
        self.attempt(|| {
            let attempt = self.inner.ep().connect(address, conn_qual);
            let attempt = attempt.private_data(private_data).timeout(self.timeout);
            attempt.start()
        })
        .await
    }

    /// Accepts the request of a datagram endpoint, which finds this one with `private_data`. Returns the peer.
    ///
    /// # Errors
    /// [`Error::Disconnected`] if the peer is gone; [`Error::Call`], for instance if the request is one for a connection.
    pub async fn accept(&self, request: Incoming, private_data: &[u8]) -> Result<Peer> {
        let accepted = self.attempt(|| {
            let request = request.into_request();
            request.accept(self.inner.ep(), private_data)
        });
        Ok(accepted.await?.0)
    }

    /// Sends a datagram to a peer.
    pub fn send_to<B: IoBuffer>(&self, buffer: B, to: &Peer) -> Operation<B> {
        let to = to.clone();
        Operation::new(&self.inner, buffer, move |ep, buffer, cookie| {
            let none = CompletionFlags::empty();
            ep.post_send_datagram(&[buffer.segment()], &to, cookie, none)
        })
    }

    /// Returns the next datagram. A call that is dropped loses none. Datagrams that arrive while all receives are used are lost.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn recv(&self) -> Result<Message> {
        let arrived = self.inner.wait(|link| link.arrived.pop_front()).await?;
        Ok(self.message(arrived))
    }

    /// Polls for the next datagram, for streams and select loops of other crates.
    ///
    /// # Errors
    /// As [`Datagrams::recv`].
    pub fn poll_recv(&self, context: &mut TaskContext<'_>) -> Poll<Result<Message>> {
        let arrived = self
            .inner
            .poll(context, None, |link| link.arrived.pop_front());
        arrived.map_ok(|arrived| self.message(arrived))
    }

    fn message(&self, arrived: Arrived) -> Message {
        let home = Home::Link(Arc::clone(&self.inner));
        Message::new(arrived, DATAGRAM_HEADER, home)
    }

    /// Frees what the provider keeps for a peer that this endpoint found or accepted. Otherwise it is freed with the endpoint.
    ///
    /// # Errors
    /// [`Error::Call`] if it was forgotten before.
    pub fn forget(&self, peer: &Peer) -> Result<()> {
        self.inner.ep().forget_peer(peer)
    }
}
