//! Parameters of a connection.

use std::time::Duration;

use super::shared_receives::SharedReceives;

/// Parameters of a connection.
///
/// ```
/// use udapl::aio::Options;
///
/// let options = Options { message_size: 64, receives: 256, ..Options::default() };
/// assert_eq!(options.requests, 64);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Receives that are posted ahead; a peer that sends more has to wait. Not used with `shared_receives`.
    pub receives: u32,
    /// Largest message that is received, in bytes. Not used with `shared_receives`.
    pub message_size: usize,
    /// Requests that are outstanding at a time; others wait their turn.
    pub requests: u32,
    /// RDMA Reads and atomics that are outstanding at a time.
    pub reads: u32,
    /// Private data for the peer.
    pub private_data: Vec<u8>,
    /// Time limit of a connection attempt; `Duration::MAX` is none.
    pub timeout: Duration,
    /// The queue into which messages arrive, instead of [`Connection::recv`](super::Connection::recv).
    pub shared_receives: Option<SharedReceives>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            receives: 16,
            message_size: 4096,
            requests: 64,
            reads: 4,
            private_data: Vec::new(),
            timeout: Duration::MAX,
            shared_receives: None,
        }
    }
}
