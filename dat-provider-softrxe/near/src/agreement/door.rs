//! Calls of other processes.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use softrxe_port::discard::Connection;
use softrxe_port::listener::Listener;
use softrxe_port::own_user;
use softrxe_port::packets::{self, Incoming};
use softrxe_port::poll_set::PollSet;

use super::bell::Wakes;
use super::hello::{Hello, LENGTH, Packet, Reason};
use super::{ANY_GUID, Agreed, Bell, End, Offer, own_role, role};
use crate::channel::Channel;
use crate::map::MapError;

/// Connections whose HELLO is awaited. A process sends it right after it has connected.
const MAX_PENDING: usize = 64;

/// Why a call could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The memory of the channel could not be made or mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The channel's wake-ups cannot be watched.
    #[error("the wake-ups of a channel cannot be watched: {0}")]
    Watch(io::Error),
    /// The answer could not be sent.
    #[error("sending the channel's memory to the engine in slot {slot} of {ip}: {error}", ip = .peer.ip, slot = .peer.slot)]
    Send {
        /// The engine that called.
        peer: End,
        /// The error of `sendmsg`.
        error: io::Error,
    },
}

/// Takes calls of processes of the own user.
#[derive(Debug)]
pub struct Door {
    own: End,
    listener: Arc<Listener>,
    /// Contains the listener, and the connections below.
    ready: Arc<PollSet>,
    pending: VecDeque<Connection>,
}

/// A call that waits for an answer.
#[derive(Debug)]
pub struct Call {
    connection: Connection,
    own: End,
    hello: Hello,
}

impl Door {
    /// Listens for calls to `own`.
    ///
    /// # Errors
    /// As `socket`, `bind`, `epoll_create1`.
    pub fn listen(own: End) -> io::Result<Self> {
        let ready = Arc::new(PollSet::new()?);
        let listen = |role: &str| own_user::listen(own.ip, role, Arc::clone(&ready));
        let listener = match listen(&role(own.slot)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let End { ip, slot, .. } = own;
                tracing::info!(%ip, slot, "another program has the name for calls for shared memory: datagrams stay on UDP");
                listen(&own_role(own))
            }
            other => other,
        }?;
        Ok(Self {
            own,
            listener: Arc::new(listener),
            ready,
            pending: VecDeque::new(),
        })
    }

    /// Returns the next call. Call it when the descriptor is readable, until it returns `None`.
    pub fn take(&mut self) -> Option<Call> {
        self.listener.accept();
        loop {
            let mut more = None;
            while let Some(connection) = self.accepted() {
                if self.pending.len() == MAX_PENDING {
                    more = Some(connection);
                    break;
                }
                self.add(connection);
            }
            if let Some(call) = self.next_call() {
                // The oldest connections have been silent for longest.
                if let Some(connection) = more {
                    self.add(connection);
                }
                return Some(call);
            }
            // All are silent, or some have gone.
            self.make_room_for(more?);
        }
    }

    /// Returns the next connection that was accepted.
    fn accepted(&self) -> Option<Connection> {
        self.listener.take().map(Connection::from)
    }

    /// Leaves calls for later, where [`take`](Self::take) has not returned `None`: the descriptor is readable while there are some.
    pub fn leave(&mut self) {
        while self.pending.len() < MAX_PENDING
            && let Some(connection) = self.accepted()
        {
            self.add(connection);
        }
        // All of them are silent.
        while !self.ready.is_readable()
            && let Some(connection) = self.accepted()
        {
            self.make_room_for(connection);
        }
    }

    /// Adds `connection` and as many others that wait as there is room for, in place of the oldest silent ones.
    fn make_room_for(&mut self, connection: Connection) {
        let others = std::iter::from_fn(|| self.accepted());
        let new: Vec<_> = std::iter::once(connection)
            .chain(others.take(MAX_PENDING - 1))
            .collect();
        for connection in new {
            if self.pending.len() == MAX_PENDING {
                self.drop_pending(0);
            }
            self.add(connection);
        }
    }

    /// Awaits the HELLO of `connection`.
    fn add(&mut self, connection: Connection) {
        // Outside of the set its HELLO would go unnoticed.
        if self.ready.add(connection.as_raw_fd()).is_ok() {
            self.pending.push_back(connection);
        }
    }

    /// Returns the first call among the connections, without those that are wrong or closed.
    fn next_call(&mut self) -> Option<Call> {
        let mut index = 0;
        while index < self.pending.len() {
            match self.hello(&self.pending[index]) {
                Some(Ok(hello)) => {
                    let connection = self.drop_pending(index)?;
                    let own = self.own;
                    return Some(Call {
                        connection,
                        own,
                        hello,
                    });
                }
                Some(Err(())) => drop(self.drop_pending(index)),
                None => index += 1,
            }
        }
        None
    }

    /// Removes a connection from the list and the set.
    fn drop_pending(&mut self, index: usize) -> Option<Connection> {
        let connection = self.pending.remove(index)?;
        self.ready.remove(connection.as_raw_fd());
        Some(connection)
    }

    /// Reads the HELLO of `connection`; `None` if there is none yet. A wrong one is refused.
    fn hello(&self, connection: &Connection) -> Option<Result<Hello, ()>> {
        let mut bytes = [0; LENGTH + 1];
        let length = match packets::receive_without_descriptors(connection.as_fd(), &mut bytes) {
            Ok(Incoming::Empty) => return None,
            Ok(Incoming::Packet(length, _)) => length,
            Ok(Incoming::Closed) | Err(_) => return Some(Err(())),
        };
        let wrong = match Packet::decode(&bytes[..length]) {
            // The caller has given up.
            Ok(Packet::Call(_)) if packets::is_closed(connection.as_fd()) => return Some(Err(())),
            Ok(Packet::Call(hello)) if [self.own.guid, ANY_GUID].contains(&hello.to) => {
                return Some(Ok(hello));
            }
            Ok(Packet::Call(hello)) => {
                tracing::debug!(
                    to = hello.to,
                    own = self.own.guid,
                    "a call for shared memory has another addressee"
                );
                Reason::Addressee
            }
            Ok(Packet::Answer(_) | Packet::Refusal(_)) => Reason::Version,
            Err(error) => {
                tracing::info!(%error, "a call for shared memory is refused");
                Reason::Version
            }
        };
        refuse(connection, wrong);
        Some(Err(()))
    }

    /// Returns the listener, whose [`Listener::accept`] needs no access to this: any user can connect.
    #[must_use]
    pub const fn listener(&self) -> &Arc<Listener> {
        &self.listener
    }
}

impl AsRawFd for Door {
    /// Returns the descriptor that is readable when there may be a call.
    fn as_raw_fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }
}

/// Sends a refusal. If the peer does not get it, it sees the connection close.
fn refuse(connection: &Connection, reason: Reason) {
    let _ = packets::send(connection.as_fd(), &Packet::Refusal(reason).encode(), &[]);
}

impl Call {
    /// Returns the engine that calls.
    #[must_use]
    pub const fn peer(&self) -> End {
        self.hello.from
    }

    /// Creates a channel with what both sides offer, has `watch` prepare for its wake-ups, and sends its memory and event descriptors. So the
    /// peer has no channel that this side cannot use.
    ///
    /// # Errors
    /// [`AnswerError`]; without memory, and with an error of `watch`, the peer gets a refusal.
    pub fn answer(
        self,
        offer: Offer,
        watch: impl FnOnce(&Bell) -> io::Result<()>,
    ) -> Result<Agreed, AnswerError> {
        let offer = offer.to(self.connection.as_fd());
        let ring = offer.ring.min(self.hello.ring as usize);
        let (channel, memory) = match Channel::create(ring) {
            Ok(created) => created,
            Err(error) => {
                self.refuse(Reason::Full);
                return Err(error.into());
            }
        };
        let peer = self.peer();
        let wanted = offer.events && self.hello.events;
        // Without them the connection serves.
        let wakes = wanted.then(Wakes::new).and_then(Result::ok);
        // The caller has to know what this process signals: its kernel may pass on fewer descriptors than were sent.
        let events = wakes.is_some();
        let offer = Offer {
            ring,
            events,
            ..offer
        };
        let answer = Packet::Answer(Hello::new(self.own, peer.guid, offer)).encode();
        let mut descriptors = vec![memory.as_raw_fd()];
        descriptors.extend(wakes.iter().flat_map(Wakes::for_peer));
        let bell = Bell::new(self.connection, wakes);
        if let Err(error) = watch(&bell) {
            refuse(bell.connection(), Reason::Full);
            return Err(AnswerError::Watch(error));
        }
        packets::send(bell.connection().as_fd(), &answer, &descriptors)
            .map_err(|error| AnswerError::Send { peer, error })?;
        let port = self.hello.port;
        Ok(Agreed {
            channel,
            bell,
            port,
        })
    }

    /// Refuses the call.
    pub fn refuse(self, reason: Reason) {
        refuse(&self.connection, reason);
    }
}
