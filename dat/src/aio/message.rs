//! Messages that arrived.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::link::Inner;
use super::pool::Buffer;
use super::shared_receives::Queue;
use super::state::Arrived;

/// Where the buffer of a message is posted again.
pub(super) enum Home {
    Link(Arc<Inner>),
    Queue(Arc<Queue>),
}

/// A message that arrived. Its buffer is posted again when it is dropped, so a program that keeps messages keeps the peer waiting.
///
/// Examples: [`Connection::recv`](super::Connection::recv) and
/// [`Connection::write_immediate`](super::Connection::write_immediate).
pub struct Message {
    buffer: Option<Buffer>,
    immediate: Option<u32>,
    written: u32,
    /// Bytes in front of the message: those of the adapter, in a datagram.
    header: usize,
    home: Home,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.home {
            Home::Link(link) => write!(f, "Message({} bytes of {link:?})", self.len()),
            Home::Queue(_) => write!(f, "Message({} bytes)", self.len()),
        }
    }
}

impl Message {
    pub(super) fn new(arrived: Arrived, header: usize, home: Home) -> Self {
        Self {
            buffer: Some(arrived.buffer),
            immediate: arrived.immediate,
            written: arrived.written,
            header,
            home,
        }
    }

    /// Returns the value that came with a write ([`Connection::write_immediate`](super::Connection::write_immediate)). Such a message
    /// has no bytes of its own.
    #[must_use]
    pub fn immediate(&self) -> Option<u32> {
        self.immediate
    }

    /// Returns the number of bytes that a write with immediate data put into this side's memory, 0 for another message.
    #[must_use]
    pub fn written(&self) -> u32 {
        self.written
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.buffer.as_deref().unwrap_or_default();
        bytes.get(self.header..).unwrap_or_default()
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            // After the end of the connection it is flushed at once, or refused.
            let posted = match &self.home {
                Home::Link(link) => link.post_receive(buffer),
                Home::Queue(queue) => queue.post_receive(buffer),
            };
            if let Err(error) = posted {
                tracing::debug!(%error, "a receive is not posted again");
            }
        }
    }
}
