//! Parameters of a connection.

use std::time::Duration;

use super::shared_receives::SharedReceives;
use crate::Ia;
use crate::error::Error;

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
    /// Receives that are posted ahead; a peer that sends more has to wait, with 0 for ever. Each message and each write with immediate
    /// data uses one. Not used with `shared_receives`. The default is 16.
    pub receives: u32,
    /// Largest message that is received, in bytes. A longer one breaks the connection. Not used with `shared_receives`. The default is
    /// 4096.
    pub message_size: usize,
    /// Requests that are outstanding at a time, at least 1; others wait their turn. The default is 64.
    pub requests: u32,
    /// RDMA Reads and atomics that are outstanding at a time, in each direction; with 0 there are none. The default is 4.
    pub reads: u32,
    /// Private data for the peer, at most [`Attributes::max_private_data`](crate::Attributes::max_private_data) bytes. The default is
    /// none.
    pub private_data: Vec<u8>,
    /// Time limit of a connection attempt. The default is `Duration::MAX`: none, so that an attempt may wait for ever.
    pub timeout: Duration,
    /// The queue into which messages arrive, instead of [`Connection::recv`](super::Connection::recv).
    /// The default is none.
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

impl Options {
    /// Returns the error if the adapter cannot have that many receives or requests, or if there are to be no requests.
    #[cold]
    pub(super) fn refused(&self, ia: &Ia) -> Option<Error> {
        let most = ia.attributes().ok()?.max_posts;
        let receives = match self.shared_receives {
            Some(_) => 0,
            None => self.receives,
        };
        let (what, given) = match self.requests {
            0 => ("requests", 0),
            requests if requests > most => ("requests", requests),
            _ if receives > most => ("receives", receives),
            _ => return None,
        };
        Some(Error::Limit { what, given, most })
    }
}
