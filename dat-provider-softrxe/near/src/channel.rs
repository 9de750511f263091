//! A channel: the sender of one ring and the receiver of the other.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use dat_os::processor::is_amd;

use crate::layout::{CONTROL, MAX_MTU, MTU_DIVISOR};
use crate::map::{Map, MapError};
use crate::receiver::Receiver;
use crate::sender::Sender;

/// Bytes of a ring of the first channels of a process, where [`prefers_wide_rings`]: the data is in the cache that the processors share.
pub const WIDE_RING: usize = 2 << 20;
/// Bytes of a ring of a process with few channels: the data stays in a processor's second cache.
pub const LARGE_RING: usize = 256 << 10;
/// Bytes of a ring of a process with many channels.
pub const SMALL_RING: usize = 64 << 10;

// The data is mapped twice in a row, each time from a page on.
const _: () = assert!(SMALL_RING.is_multiple_of(CONTROL) && LARGE_RING.is_multiple_of(CONTROL));

/// Returns whether a ring is faster if its data leaves the second cache of the processor that read it.
///
/// A processor of AMD writes 9 GB/s to lines that are in the second cache of another one, and 38 GB/s to lines that the other one's cache has
/// passed on to the third (Zen 4).
#[must_use]
pub fn prefers_wide_rings() -> bool {
    is_amd()
}

/// Returns the maximum length of a payload in a ring of `size` bytes.
#[must_use]
pub const fn mtu(size: usize) -> usize {
    let part = size / MTU_DIVISOR;
    if part < MAX_MTU { part } else { MAX_MTU }
}

/// One end of a channel. Sender and receiver may belong to different threads.
#[derive(Debug)]
pub struct Channel {
    /// Records to the peer.
    pub sender: Sender,
    /// Records from the peer.
    pub receiver: Receiver,
}

impl Channel {
    /// Creates a channel with rings of `size` bytes. The peer gets the descriptor of its memory and calls
    /// [`adopt`](Self::adopt); then the descriptor is of no more use.
    ///
    /// # Errors
    /// [`MapError::Size`]; [`MapError::Call`], such as `EMFILE`.
    pub fn create(size: usize) -> Result<(Self, OwnedFd), MapError> {
        let (map, memory) = Map::create(2, size)?;
        Ok((Self::of(map, size, [0, 1]), memory))
    }

    /// Takes the other end of the channel that a peer created in `memory`. After that the descriptor is of no more use.
    ///
    /// # Errors
    /// [`MapError::Seals`] and [`MapError::Length`] for memory that does not keep the agreed length; else as
    /// [`create`](Self::create).
    pub fn adopt(memory: &OwnedFd, size: usize) -> Result<Self, MapError> {
        let map = Map::adopt(memory, 2, size)?;
        Ok(Self::of(map, size, [1, 0]))
    }

    /// Creates a channel whose sender's records arrive at its own receiver.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn looped(size: usize) -> Result<Self, MapError> {
        let (map, _) = Map::create(1, size)?;
        Ok(Self::of(map, size, [0, 0]))
    }

    /// The ring numbers are those of sender and receiver.
    fn of(map: Map, size: usize, [to, from]: [usize; 2]) -> Self {
        let map = Arc::new(map);
        Self {
            sender: Sender::new(Arc::clone(&map), to, size),
            receiver: Receiver::new(map, from, to, size),
        }
    }
}
