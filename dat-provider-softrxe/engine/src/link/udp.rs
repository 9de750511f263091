//! The link over UDP.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use softrxe_port::socket::{Received, Socket};
use softrxe_proto::Transmit;

use super::{Arrival, Inbound, Link, Properties};
use crate::memory::payload_refs::Pieces;

/// A read of fewer bytes most likely emptied the socket. Another read would delay the answer by a system call, and the next poll
/// comes soon.
const SHORT_READ: usize = 1024;

/// A UDP socket and the buffer that it is read into.
pub(crate) struct Udp<'a> {
    pub(crate) socket: &'a Socket,
    pub(crate) received: &'a mut Received,
    /// Largest payload for which the netdev's packets have room.
    pub(crate) mtu: u16,
}

impl Inbound for Udp<'_> {
    fn receive(&mut self, reads: usize, mut deliver: impl FnMut(&Arrival<'_>)) {
        for _ in 0..reads {
            match self.socket.receive(self.received) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let local = self.socket.local();
                    tracing::warn!(%error, %local, "cannot read the RoCE socket; packets wait and may be lost");
                    return;
                }
            }
            let source = self.received.from;
            for (index, packet) in self.received.datagrams() {
                deliver(&Arrival {
                    source,
                    index,
                    packet,
                });
            }
            if self.received.length() < SHORT_READ && !self.received.is_from_ring() {
                return;
            }
        }
    }

    fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn arm(&mut self) -> bool {
        self.socket.arm()
    }
}

impl Link for Udp<'_> {
    fn properties(&self) -> Properties {
        Properties {
            mtu: self.mtu,
            checksummed: true,
        }
    }

    /// The socket drops what its buffer cannot hold.
    fn room(&self) -> usize {
        usize::MAX
    }

    fn send(&mut self, run: &Transmit, pieces: Pieces<'_>) -> io::Result<()> {
        let segment = (run.length > run.segment).then_some(run.segment as u16);
        // SAFETY: all pieces can be read as long as `Pieces` lives.
        unsafe {
            self.socket
                .send(&run.destination, pieces.as_slice(), segment)
        }
    }
}
