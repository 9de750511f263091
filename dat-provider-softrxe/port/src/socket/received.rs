//! The buffer of a read, and the datagrams in it.

use std::io;
use std::net::{IpAddr, SocketAddr};

/// One read of a socket: a datagram, or several of one sender that the kernel coalesced.
#[derive(Debug)]
pub struct Received {
    pub(super) bytes: Box<[u8]>,
    pub(super) length: usize,
    pub(super) segment: usize,
    pub(super) from_ring: bool,
    /// Address and port of the sender.
    pub from: SocketAddr,
}

impl Received {
    /// Creates a buffer for the largest read.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bytes: vec![0; 1 << 16].into_boxed_slice(),
            length: 0,
            segment: 1,
            from_ring: false,
            from: SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0),
        }
    }

    /// Creates a buffer for the largest read, if there is memory for it.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn try_new() -> io::Result<Self> {
        Ok(Self {
            bytes: zeros(1 << 16)?,
            length: 0,
            segment: 1,
            from_ring: false,
            from: SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0),
        })
    }

    /// Returns the length of the last read in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns whether the last read was taken from the receive ring, without a system call.
    #[must_use]
    pub const fn is_from_ring(&self) -> bool {
        self.from_ring
    }

    /// Returns the datagrams in order, with their index in the run (the IPv4 identification if an engine of this
    /// project sent it).
    pub fn datagrams(&self) -> impl Iterator<Item = (u16, &[u8])> {
        (0u16..).zip(self.bytes[..self.length].chunks(self.segment))
    }
}

impl Default for Received {
    fn default() -> Self {
        Self::new()
    }
}

/// Allocates a buffer of `bytes` zeros.
///
/// # Errors
/// `OutOfMemory`.
pub fn zeros(bytes: usize) -> io::Result<Box<[u8]>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(bytes)?;
    buffer.resize(bytes, 0);
    Ok(buffer.into())
}
