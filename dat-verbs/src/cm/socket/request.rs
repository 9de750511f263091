//! A connection request that the consumer has not answered yet.

use std::net::SocketAddr;
use std::sync::Arc;

use dat_core::error::{Error, Kind, Result};

use crate::adapter::{Shared, Slot};
use crate::cm::socket::stream::Stream;
use crate::cm::socket::wire::{MAX_PRIVATE, Message};

/// A request and the TCP connection it came on; dropping it refuses it.
pub(crate) struct Incoming {
    shared: Arc<Shared>,
    stream: Option<Stream>,
    key: u64,
    /// Our end.
    local: SocketAddr,
    message: Message,
}

impl Incoming {
    /// For what arrived under `key`.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        stream: Stream,
        key: u64,
        local: SocketAddr,
        message: Message,
    ) -> Self {
        shared.put(key, Slot::Pending { withdrawn: false });
        Self {
            shared: Arc::clone(shared),
            stream: Some(stream),
            key,
            local,
            message,
        }
    }

    /// The parts for a connection that takes over the key. There always are: whatever takes them out consumes the
    /// request.
    pub(crate) fn take(mut self) -> Option<(Stream, u64, SocketAddr, Message)> {
        let stream = self.stream.take()?;
        Some((stream, self.key, self.local, self.message.clone()))
    }

    /// Refuses with the consumer's data.
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
        .encode(request.wants_old_tail());
    if let Err(e) = stream.send(&refusal) {
        // The peer has given up: it does not need to be told.
        tracing::debug!("refusal: {e}");
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.refuse(false, &[]);
    }
}
