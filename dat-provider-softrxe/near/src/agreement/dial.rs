//! A call of this process to a peer.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use dat_os::eventfd::EventFd;
use softrxe_port::discard::{Connection, close_elsewhere};
use softrxe_port::own_user;
use softrxe_port::packets::{self, Incoming};

use super::bell::Wakes;
use super::hello::{Hello, HelloError, LENGTH, Packet, Reason};
use super::{ANY_GUID, Agreed, Bell, End, Offer, own_role, role};
use crate::channel::Channel;
use crate::map::MapError;

/// Why a call leads to no channel.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No process of the own user answers, or the connection failed.
    #[error("connecting to the engine in slot {slot} of {ip} for shared memory: {error}", ip = .peer.ip, slot = .peer.slot)]
    Connection {
        /// The engine that was called.
        peer: End,
        /// `PermissionDenied`: a process of another user has the name. `WouldBlock`: the peer's queue is full.
        error: io::Error,
    },
    /// The peer closed the connection without an answer.
    #[error("the peer closed the connection before it answered")]
    Closed,
    /// The peer refused.
    #[error("the peer refuses a channel: {0}")]
    Refused(Reason),
    /// The answer is not one.
    #[error("the peer answers with {0}")]
    Hello(#[from] HelloError),
    /// The answer belongs to another call.
    #[error("the peer answers as {found:?} where {wanted:?} was called")]
    Peer {
        /// The sender, or the addressee's GUID, that the answer states.
        found: End,
        /// The engine that was called.
        wanted: End,
    },
    /// The answer has another number of descriptors than it states: that of the memory, alone or with two for wake-ups. It has fewer where this
    /// process may open no more.
    #[error("the peer's answer comes with {found} descriptors, and states {stated}")]
    Descriptors {
        /// Descriptors that came.
        found: usize,
        /// Descriptors that the answer states.
        stated: usize,
    },
    /// The answer states event descriptors, which this process did not offer.
    #[error("the peer's answer states event descriptors, which were not offered")]
    NotOffered,
    /// A descriptor that came for wake-ups is none for events, or counts down. One that is always readable would keep this process from
    /// sleeping, and the peer's own end of the connection would hide its end.
    #[error(
        "the peer's answer comes with wake-ups that are no event descriptors, or such that count down"
    )]
    NoEvents,
    /// The peer's memory cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// A call that waits for its answer.
#[derive(Debug)]
pub struct Dial {
    connection: Option<Connection>,
    own: End,
    peer: End,
    offer: Offer,
}

impl Dial {
    /// Calls `peer` for a channel.
    ///
    /// # Errors
    /// [`DialError::Connection`].
    pub fn start(own: End, peer: End, offer: Offer) -> Result<Self, DialError> {
        let failed = |error| DialError::Connection { peer, error };
        let connection = connect(peer).map_err(failed)?;
        let offer = offer.to(connection.as_fd());
        let hello = Packet::Call(Hello::new(own, peer.guid, offer));
        packets::send(connection.as_fd(), &hello.encode(), &[]).map_err(failed)?;
        Ok(Self {
            connection: Some(connection),
            own,
            peer,
            offer,
        })
    }

    /// Returns the engine that is called, with its own GUID once it has answered.
    #[must_use]
    pub const fn peer(&self) -> End {
        self.peer
    }

    /// Returns the channel once the peer has answered. Call it when the descriptor is readable.
    ///
    /// # Errors
    /// [`DialError`]; the call is over.
    pub fn poll(&mut self) -> Result<Option<Agreed>, DialError> {
        let Some(connection) = &self.connection else {
            return Err(DialError::Closed);
        };
        let mut bytes = [0; LENGTH + 1];
        let received = packets::receive_all(connection.as_fd(), &mut bytes);
        let peer = self.peer;
        let (length, mut descriptors) =
            match received.map_err(|error| DialError::Connection { peer, error })? {
                Incoming::Empty => return Ok(None),
                Incoming::Closed => return Err(DialError::Closed),
                Incoming::Packet(length, descriptors) => (length, descriptors),
            };
        let adopted = self.adopt(&bytes[..length], &mut descriptors);
        let (channel, wakes, hello) = adopted.inspect_err(|_| {
            // One of another kind may make the thread wait that closes it.
            close_elsewhere(std::mem::take(&mut descriptors));
        })?;
        self.peer = hello.from;
        let connection = self.connection.take().ok_or(DialError::Closed)?;
        let bell = Bell::new(connection, wakes);
        let port = hello.port;
        Ok(Some(Agreed {
            channel,
            bell,
            port,
        }))
    }

    /// Checks an answer and maps the memory that came with it. Returns what the peer says as well. Descriptors that were not checked are left.
    fn adopt(
        &self,
        answer: &[u8],
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<(Channel, Option<Wakes>, Hello), DialError> {
        let hello = match Packet::decode(answer)? {
            Packet::Answer(hello) => hello,
            Packet::Refusal(reason) => return Err(DialError::Refused(reason)),
            Packet::Call(_) => return Err(HelloError::Foreign(answer.len()).into()),
        };
        let mut wanted = self.peer;
        if wanted.guid == ANY_GUID {
            wanted.guid = hello.from.guid;
        }
        if hello.from != wanted || hello.to != self.own.guid {
            return Err(DialError::Peer {
                found: hello.from,
                wanted,
            });
        }
        let ring = hello.ring as usize;
        if ring > self.offer.ring {
            return Err(MapError::Size(ring).into());
        }
        if hello.events && !self.offer.events {
            return Err(DialError::NotOffered);
        }
        let (found, stated) = (descriptors.len(), if hello.events { 3 } else { 1 });
        if found != stated {
            return Err(DialError::Descriptors { found, stated });
        }
        if !descriptors[1..]
            .iter()
            .all(|fd| EventFd::is_one(fd.as_fd()))
        {
            return Err(DialError::NoEvents);
        }
        let channel = Channel::adopt(&descriptors[0], ring)?;
        let wakes = <[OwnedFd; 2]>::try_from(descriptors.split_off(1)).ok();
        let wakes = wakes.map(Wakes::adopt).transpose();
        let failed = |error| DialError::Connection {
            peer: self.peer,
            error,
        };
        let wakes = wakes.map_err(failed)?;
        if wakes.as_ref().is_some_and(|wakes| !wakes.can_be_taken()) {
            return Err(DialError::NoEvents);
        }
        Ok((channel, wakes, hello))
    }
}

/// Connects to `peer`, at the name that no other program can have first. Few engines listen there, and a refused connect costs little. An
/// engine that has the other name leaves this one free, and a program that has learned the GUID can take it. So no failure decides.
fn connect(peer: End) -> io::Result<Connection> {
    if peer.guid != ANY_GUID
        && let Ok(connection) = own_user::connect(peer.ip, &own_role(peer))
    {
        return Ok(connection);
    }
    own_user::connect(peer.ip, &role(peer.slot))
}

impl AsRawFd for Dial {
    /// Returns the descriptor that is readable when the peer has answered; -1 when the call is over.
    fn as_raw_fd(&self) -> RawFd {
        self.connection.as_ref().map_or(-1, |c| c.as_raw_fd())
    }
}
