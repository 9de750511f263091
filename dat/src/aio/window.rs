//! Memory windows that are bound by operations.

use super::connection::Connection;
use super::context::Context;
use super::operation::Operation;
use super::pool::Part;
use crate::error::Result;
use crate::{Access, Remote, Rmr};

/// A memory window: opens a part of a region to peers that have its key, and closes it again without registering memory anew. The key
/// is good for the peers of all connections of the context, not only for that of the connection that the window is bound by.
/// The window moves into an operation and comes back with it. Dropping it closes it.
///
/// ```
/// use udapl::Access;
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
///
/// # fn main() -> Result<(), udapl::Error> {
/// # udapl::aio::block_on(async {
/// # let (client, server) = connection().await?;
/// // The server opens 16 bytes to the client, which are the ends of a connection.
/// let region = server.context().pz().allocate(4096, Access::ALL)?;
/// let window = server.context().window()?;
/// let (window, bound) = server.bind(window, region.part(64..80), Access::REMOTE_WRITE).await;
/// let remote = bound?; // to be sent to the client
///
/// let buffer = client.context().pool(1, 64)?.take().await.filled(b"sixteen bytes...");
/// client.write(buffer, remote).await.1?;
/// assert_eq!(region.to_vec(64..71), b"sixteen");
/// let (window, closed) = server.unbind(window).await; // the key is invalid from now on
/// closed?;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct Window {
    rmr: Rmr,
    remote: Option<Remote>,
    /// What is open once the bind under way succeeds.
    next: Option<Remote>,
}

impl Window {
    /// Returns the segment that is open, for a message to the peer.
    #[must_use]
    pub fn remote(&self) -> Option<Remote> {
        self.remote
    }
}

impl Context {
    /// Creates a window, which is closed.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the adapter has no windows; [`Error::Call`](crate::Error::Call).
    pub fn window(&self) -> Result<Window> {
        Ok(Window {
            rmr: self.pz().create_rmr()?,
            remote: None,
            next: None,
        })
    }
}

impl Connection {
    /// Opens a part of a region to peers with the rights `access`, in place of what the window opened before. Peers cannot use the
    /// earlier key any more. Later requests of the connection are processed after the bind. After an error the window is as it was
    /// before.
    ///
    /// # Errors
    /// [`Error::Failed`](crate::Error::Failed), [`Error::Call`](crate::Error::Call).
    pub async fn bind(
        &self,
        window: Window,
        part: Part,
        access: Access,
    ) -> (Window, Result<Remote>) {
        let bind = Operation::new(self.inner(), window, move |ep, window, cookie| {
            let (region, range) = (part.region(), part.range());
            let remote = window.rmr.bind(region, range, access, ep, cookie)?;
            window.next = Some(remote);
            Ok::<(), crate::Error>(())
        });
        let (mut window, done) = bind.await;
        let remote = match (done, window.next.take()) {
            (Ok(_), Some(remote)) => {
                window.remote = Some(remote);
                Ok(remote)
            }
            (Ok(_), None) => unreachable!("the post of a bind sets the segment"),
            // Peers may go on with what was open before.
            (Err(error), _) => Err(error),
        };
        (window, remote)
    }

    /// Closes a window: peers cannot use its key any more. If this connection has ended, the call fails, and the key may stay good for
    /// the peers of others: drop the window, or close it by another connection.
    ///
    /// # Errors
    /// As [`Connection::bind`].
    pub async fn unbind(&self, window: Window) -> (Window, Result<()>) {
        if window.rmr.region().is_none() {
            return (window, Ok(()));
        }
        let unbind = Operation::new(self.inner(), window, |ep, window, cookie| {
            window.rmr.unbind(ep, cookie)
        });
        let (mut window, done) = unbind.await;
        if done.is_ok() {
            window.remote = None;
        }
        (window, done.map(drop))
    }
}
