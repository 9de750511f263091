//! The socket of the port as all processes of one user share it, and the lock that decides which of them is the holder.
//!
//! Each member has a descriptor of the socket, so the port stays bound while one of them lives. No other process can
//! take it, and datagrams wait in the socket until the next holder reads them. The lock is a flock(2) on memory that
//! only these processes have. The kernel releases it when its process ends.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};

use dat_os::mutex::lock;

use crate::fork::CloseOnFork;
use crate::lock_memory::{is_memory, memory};
use crate::socket::Socket;

/// The socket of the port with its lock; each process of the user has the descriptors of both.
#[derive(Debug)]
pub struct SharedSocket {
    socket: Arc<Socket>,
    /// The memory as it is sent to members.
    shared: CloseOnFork<OwnedFd>,
    /// The same memory, opened by this process, because a flock(2) belongs to one opening.
    own: CloseOnFork<File>,
    /// The map of the holder's receive ring, which this process empties if it becomes the holder.
    ring: Mutex<Option<CloseOnFork<OwnedFd>>>,
}

impl SharedSocket {
    /// Creates the lock for the first holder, which has bound `socket`, and takes it.
    ///
    /// # Errors
    /// As `memfd_create`, and as `open` on /proc/self/fd.
    pub fn new(socket: Arc<Socket>) -> io::Result<Self> {
        let shared = CloseOnFork::new(memory)?;
        let shared_socket = Self::of(socket, shared)?;
        shared_socket.own.try_lock()?;
        Ok(shared_socket)
    }

    /// Takes the descriptors that a holder of the port of `local` sent. Further ones, of a later release, are closed.
    ///
    /// # Errors
    /// `InvalidData` for other descriptors; as `open` on /proc/self/fd.
    pub(crate) fn from_descriptors(
        descriptors: Vec<OwnedFd>,
        local: SocketAddr,
    ) -> io::Result<Self> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        let mut descriptors = descriptors.into_iter();
        let (Some(socket), Some(shared)) = (descriptors.next(), descriptors.next()) else {
            return Err(wrong());
        };
        let socket = CloseOnFork::new(|| Ok(socket))?;
        let shared = CloseOnFork::new(|| Ok(shared))?;
        let socket = Socket::adopt(socket)?;
        if socket.local() != local || !is_memory(shared.as_raw_fd()) {
            return Err(wrong());
        }
        Self::of(Arc::new(socket), shared)
    }

    fn of(socket: Arc<Socket>, shared: CloseOnFork<OwnedFd>) -> io::Result<Self> {
        let path = format!("/proc/self/fd/{}", shared.as_raw_fd());
        let own = CloseOnFork::new(|| File::open(path))?;
        Ok(Self {
            socket,
            shared,
            own,
            ring: Mutex::default(),
        })
    }

    /// Keeps the map of the holder's receive ring, which the holder sent.
    pub(crate) fn keep_ring(&self, map: CloseOnFork<OwnedFd>) {
        *lock(&self.ring) = Some(map);
    }

    /// Makes this process, which has become the holder, the reader of the socket: the former holder's receive ring would go
    /// on taking datagrams. Those that are in it are received first.
    pub(crate) fn succeed(&self) {
        let map = lock(&self.ring).take();
        if let Err(error) = self.socket.succeed(map) {
            tracing::warn!(%error, "datagrams that the former holder of the port had not read are lost");
        }
    }

    /// Returns the descriptor of the map of this process's receive ring, which a member receives.
    pub(crate) fn ring(&self) -> Option<RawFd> {
        self.socket.ring_map()
    }

    /// Makes this process the holder unless another one is.
    #[must_use]
    pub fn try_become_holder(&self) -> bool {
        self.own.try_lock().is_ok()
    }

    /// Returns the socket of the port, which only the holder reads.
    #[must_use]
    pub fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Returns the descriptors that a member receives.
    pub(crate) fn descriptors(&self) -> [RawFd; 2] {
        [self.socket.as_raw_fd(), self.shared.as_raw_fd()]
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn copy(fd: RawFd) -> OwnedFd {
        // SAFETY: the descriptor is open.
        let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
        borrowed.try_clone_to_owned().unwrap()
    }

    #[test]
    fn one_process_after_the_other_becomes_the_holder() {
        let socket = Arc::new(Socket::bind("127.77.7.1".parse().unwrap(), 0, 1 << 16).unwrap());
        let local = socket.local();
        let first = SharedSocket::new(socket).unwrap();
        let passed = || {
            let descriptors = first.descriptors().map(copy).into();
            SharedSocket::from_descriptors(descriptors, local).unwrap()
        };
        let (second, third) = (passed(), passed());
        assert!(first.try_become_holder(), "it is the holder already");
        assert!(!second.try_become_holder() && !third.try_become_holder());
        drop(first);
        assert!(second.try_become_holder());
        assert!(!third.try_become_holder());
        assert_eq!(third.socket().local(), local);
        // The port stays bound while one descriptor is left.
        assert!(std::net::UdpSocket::bind(local).is_err());
        drop(second);
        assert!(third.try_become_holder());
        drop(third);
        assert!(std::net::UdpSocket::bind(local).is_ok());
    }

    #[test]
    fn other_descriptors_are_refused() {
        let bind = |n| Arc::new(Socket::bind(n, 0, 1 << 16).unwrap());
        let socket = bind("127.77.7.2".parse().unwrap());
        let local = socket.local();
        let shared_socket = SharedSocket::new(socket).unwrap();
        let [udp, memory] = shared_socket.descriptors();
        let file = std::fs::File::open("/dev/null").unwrap();
        let null = file.as_fd().as_raw_fd();
        for wrong in [
            vec![],
            vec![udp],
            vec![udp, null],
            vec![null, memory],
            vec![memory, udp],
        ] {
            let wrong = wrong.into_iter().map(copy).collect();
            assert!(SharedSocket::from_descriptors(wrong, local).is_err());
        }
        let elsewhere = SocketAddr::new("127.77.7.3".parse().unwrap(), local.port());
        assert!(SharedSocket::from_descriptors([udp, memory].map(copy).into(), elsewhere).is_err());
        assert!(is_memory(memory) && !is_memory(null) && !is_memory(udp) && !is_memory(-1));
    }
}
