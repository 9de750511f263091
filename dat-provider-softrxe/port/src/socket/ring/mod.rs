//! The receive ring: short datagrams that the kernel copies into memory of this process as they arrive.
//!
//! A program of the kernel ([`program`]) runs for each datagram of one socket. It copies a short datagram into a slot of
//! memory that this process has mapped ([`layout`], [`memory`]), so a thread that polls finds it without a system call.
//! All others arrive at the socket. [`reader`] keeps the order and switches between both. The ring needs CAP_BPF and
//! Linux 5.12. Without it the socket delivers the same datagrams.
//!
//! **Another process.** A holder of UDP port 4791 sends the ring's map to its members together with the socket. When it has
//! ended, its successor detaches the program and takes what is left in the ring ([`Ring::succeed`]). Without that,
//! datagrams would go to a ring without a reader.

mod bpf;
mod layout;
mod memory;
mod program;
mod reader;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Received;
use crate::fork::CloseOnFork;
use memory::Memory;
use reader::Reader;

pub use reader::Counters;

/// A receive ring: the memory, the program that fills it, and their reader.
#[derive(Debug)]
pub(super) struct Ring {
    socket: RawFd,
    map: CloseOnFork<OwnedFd>,
    memory: Memory,
    /// Locked for a moment; callers have a lock of their own, so no thread waits here.
    reader: Mutex<Reader>,
}

impl Ring {
    /// Creates a ring for `socket`, which the caller closes after the ring.
    ///
    /// # Errors
    /// `PermissionDenied` without the capability, or with a system call filter; as bpf(2), mmap(2) and setsockopt(2).
    pub(super) fn attach(socket: RawFd, ipv6: bool) -> io::Result<Self> {
        if cfg!(target_endian = "big") {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if let Some(obstacle) = bpf::obstacle() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, obstacle));
        }
        let map = CloseOnFork::new(|| bpf::create_map(layout::SIZE))?;
        let memory = Memory::create(map.as_raw_fd())?;
        let reader = Mutex::new(Reader::new(ipv6)?);
        let program = bpf::load(&program::program(map.as_raw_fd(), ipv6))?;
        bpf::attach(socket, program.as_raw_fd())?;
        Ok(Self {
            socket,
            map,
            memory,
            reader,
        })
    }

    /// Detaches the ring that another process attached to `socket`, and takes what is left in it. `map` is the ring's
    /// map. In-flight datagrams of other processors may still arrive in the ring; the reader looks at it before each read.
    ///
    /// # Errors
    /// `InvalidData` for another descriptor; as mmap(2) and setsockopt(2).
    pub(super) fn succeed(
        socket: RawFd,
        ipv6: bool,
        map: CloseOnFork<OwnedFd>,
    ) -> io::Result<Self> {
        let memory = Memory::of_predecessor(map.as_raw_fd())?;
        let reader = Mutex::new(Reader::of_predecessor(ipv6, &memory)?);
        bpf::detach(socket)?;
        Ok(Self {
            socket,
            map,
            memory,
            reader,
        })
    }

    /// Returns the descriptor that a successor needs.
    pub(super) fn map(&self) -> RawFd {
        self.map.as_raw_fd()
    }

    fn reader(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next read: from the ring, or what `read` takes from the socket. Returns false if nothing has arrived.
    ///
    /// # Errors
    /// As `read`.
    pub(super) fn look(
        &self,
        into: &mut Received,
        read: impl FnMut(&mut Received) -> io::Result<bool>,
    ) -> io::Result<bool> {
        self.reader().look(&self.memory, into, read)
    }

    /// See [`Socket::arm`](super::Socket::arm).
    pub(super) fn arm(&self, pause: bool) -> bool {
        self.reader().arm(&self.memory, pause)
    }

    /// See [`Socket::disarm`](super::Socket::disarm).
    pub(super) fn disarm(&self, pause: bool) {
        self.reader().disarm(pause);
    }

    /// Returns the counters.
    pub(super) fn counters(&self) -> Counters {
        self.reader().counters()
    }
}

impl Drop for Ring {
    /// Other processes may have the socket, and read it without this ring from now on. They have the map too, and take
    /// what is left.
    fn drop(&mut self) {
        self.memory.turn_to_socket();
        if let Err(error) = bpf::detach(self.socket) {
            tracing::debug!(%error, "the receive ring stays attached to its socket");
        }
    }
}

/// Detaches a ring whose map this process does not have.
///
/// # Errors
/// As setsockopt(2).
pub(super) fn detach(socket: RawFd) -> io::Result<()> {
    bpf::detach(socket)
}
