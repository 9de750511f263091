//! The receiving direction of processes that share UDP port 4791: the port's holder passes packets on to its members.

use std::os::fd::{AsRawFd, RawFd};

use softrxe_port::member::Member;

use super::{Arrival, Inbound};

/// A member's connection to the holder of the port, and the buffer that it is read into.
pub(crate) struct Mailbox<'a> {
    pub(crate) member: &'a mut Member,
    pub(crate) buffer: &'a mut [u8],
}

impl Inbound for Mailbox<'_> {
    fn receive(&mut self, reads: usize, mut deliver: impl FnMut(&Arrival<'_>)) {
        for _ in 0..reads {
            match self.member.receive(self.buffer) {
                Ok(Some((source, _, packet))) => deliver(&Arrival {
                    source,
                    index: 0,
                    packet,
                }),
                Ok(None) => return,
                Err(error) => {
                    let local = self.member.local();
                    tracing::warn!(%error, %local, "cannot read packets from the port's holder; they wait and may be lost");
                    return;
                }
            }
        }
    }

    fn descriptor(&self) -> RawFd {
        self.member.as_raw_fd()
    }
}
