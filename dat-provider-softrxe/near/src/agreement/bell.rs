//! The connection of a channel: it carries wake-ups, and shows the end of the peer.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use softrxe_port::credentials;
use softrxe_port::fork::CloseOnFork;
use softrxe_port::packets::{self, Incoming};

/// Wake-ups that are read at a time. A peer sends one for each sleep.
const BATCH: usize = 16;

/// Wakes the peer, and is readable when the peer wakes this process or has ended.
#[derive(Debug)]
pub struct Bell(CloseOnFork<OwnedFd>);

impl Bell {
    pub(super) const fn new(connection: CloseOnFork<OwnedFd>) -> Self {
        Self(connection)
    }

    /// Returns the process that listened or connected at the other end; `None` if it is in a PID namespace that this process does
    /// not see.
    ///
    /// # Errors
    /// As `getsockopt`.
    pub fn peer_pid(&self) -> io::Result<Option<i32>> {
        credentials::peer_pid(self.0.as_fd())
    }

    /// Wakes the peer. If it has ended, [`clear`](Self::clear) says so.
    pub fn ring(&self) {
        // With a full queue the peer has wake-ups enough.
        let _ = packets::send(self.0.as_fd(), &[1], &[]);
    }

    /// Takes wake-ups; the descriptor stays readable while there are more. Returns false if the peer has ended or
    /// closed the channel.
    ///
    /// # Errors
    /// As `recvmsg`; the channel ends.
    pub fn clear(&self) -> io::Result<bool> {
        for _ in 0..BATCH {
            match packets::receive(self.0.as_fd(), &mut [0; 8], false)? {
                Incoming::Empty => return Ok(true),
                Incoming::Closed => return Ok(false),
                Incoming::Packet(..) => {}
            }
        }
        Ok(true)
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
