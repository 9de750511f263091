//! A connection request that the consumer has not answered yet.

use std::net::SocketAddr;
use std::sync::Arc;

use dat_core::error::{Error, Kind, Result};
use dat_handshake::scm::{MAX_PRIVATE, Message};

use crate::adapter::{EventTarget, Shared};
use crate::cm::socket::stream::Stream;

/// A request and its TCP connection; dropping it refuses the request.
pub(crate) struct ConnRequest {
    shared: Arc<Shared>,
    stream: Option<Stream>,
    key: u64,
    /// Local address of the TCP connection.
    local: SocketAddr,
    message: Message,
}

impl ConnRequest {
    /// Makes the request that arrived under `key`.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        stream: Stream,
        key: u64,
        local: SocketAddr,
        message: Message,
    ) -> Self {
        shared.put(key, EventTarget::Pending { withdrawn: false });
        Self {
            shared: Arc::clone(shared),
            stream: Some(stream),
            key,
            local,
            message,
        }
    }

    /// Returns the parts for a connection that takes over the key. They are always present: every path that takes them
    /// consumes the request.
    pub(crate) fn take(mut self) -> Option<(Stream, u64, SocketAddr, Message)> {
        let stream = self.stream.take()?;
        Some((stream, self.key, self.local, self.message.clone()))
    }

    /// Refuses the request with the consumer's private data.
    pub(crate) fn reject(mut self, private_data: &[u8]) -> Result<()> {
        if private_data.len() > MAX_PRIVATE {
            return Err(Error::of(Kind::InvalidParameter));
        }
        self.refuse(true, private_data);
        Ok(())
    }

    fn refuse(&mut self, by_consumer: bool, private_data: &[u8]) {
        let Some(stream) = self.stream.take() else {
            return;
        };
        self.shared.remove(self.key);
        refuse(&stream, &self.message, by_consumer, private_data);
    }
}

/// Sends the refusal of `request`.
pub(crate) fn refuse(stream: &Stream, request: &Message, by_consumer: bool, private_data: &[u8]) {
    let refusal = request
        .refusal(by_consumer, private_data)
        .encode(request.expects_old_tail());
    if let Err(e) = stream.send(&refusal) {
        // The peer has given up and needs no refusal.
        tracing::debug!("the refusal was not sent: {e}");
    }
}

impl Drop for ConnRequest {
    fn drop(&mut self) {
        self.refuse(false, &[]);
    }
}
