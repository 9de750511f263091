//! What arrives in shared receives.

use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use super::message::{Home, Message};
use super::shared_receives::{SharedReceives, Wait};
use super::state;
use crate::error::Result;
use crate::{ConnectionEvent, DtoStatus, EpId};

/// What arrived in [`SharedReceives`].
///
/// Example: [`SharedReceives`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Arrival {
    /// A message.
    Message {
        /// The connection ([`Connection::id`](super::Connection::id)).
        from: EpId,
        /// The message.
        message: Message,
    },
    /// A receive failed, which breaks its connection. The end of the connection follows.
    Failed {
        /// The connection ([`Connection::id`](super::Connection::id)).
        connection: EpId,
        /// What happened: [`DtoStatus::LocalLength`] if the message was longer than the buffers.
        status: DtoStatus,
    },
    /// A connection ended.
    ///
    /// With several tasks this may arrive before [`Incoming::accept`](super::Incoming::accept) has returned the connection. So a program
    /// that keeps its connections in a map, and removes one here, looks once more when it has put one there:
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use std::sync::Mutex;
    /// use udapl::EpId;
    /// use udapl::aio::Connection;
    ///
    /// fn keep(clients: &Mutex<HashMap<EpId, Connection>>, client: Connection) {
    ///     clients.lock().expect("no panic").insert(client.id(), client.clone());
    ///     if client.ended().is_some() {
    ///         clients.lock().expect("no panic").remove(&client.id());
    ///     }
    /// }
    /// ```
    Ended {
        /// The connection ([`Connection::id`](super::Connection::id)).
        connection: EpId,
        /// Kind of the end.
        how: ConnectionEvent,
    },
}

impl SharedReceives {
    /// Returns the next message of any connection, or the end of one. A call that is dropped loses none.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub async fn next(&self) -> Result<Arrival> {
        let mut wait = Wait::new(&self.queue);
        let arrival = std::future::poll_fn(|context| wait.poll(context)).await?;
        Ok(self.arrival(arrival))
    }

    /// Polls for the next arrival, for streams and select loops of other crates.
    ///
    /// # Errors
    /// As [`SharedReceives::next`].
    pub fn poll_arrival(&self, context: &mut TaskContext<'_>) -> Poll<Result<Arrival>> {
        let arrival = self.queue.poll(context, None);
        arrival.map_ok(|arrival| self.arrival(arrival))
    }

    fn arrival(&self, arrival: state::Arrival) -> Arrival {
        match arrival {
            state::Arrival::Message(from, arrived) => {
                let home = Home::Queue(Arc::clone(&self.queue));
                let message = Message::new(arrived, 0, home);
                Arrival::Message { from, message }
            }
            state::Arrival::Failed(connection, status) => Arrival::Failed { connection, status },
            state::Arrival::Ended(connection, how) => Arrival::Ended { connection, how },
        }
    }
}
