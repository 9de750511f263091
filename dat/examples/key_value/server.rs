//! The server: it owns the table, and changes it when a client sends a new value.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{Ordering, fence};

use udapl::aio::{Arrival, AsyncListener, Connection, Context, Options, SharedReceives, join};
use udapl::{Access, EpId, Region};

use crate::Result;
use crate::slot::{Content, SIZE, SLOTS, VERSION, decode, first};

type Clients = RefCell<HashMap<EpId, Connection>>;

/// The table, which clients read at any time.
struct Table(Region);

impl Table {
    /// Stores a content in the slot of its key, or in the first free one. Returns false if the table is full.
    fn put(&self, content: &Content) -> bool {
        let Some((key, _)) = decode(content) else {
            return false;
        };
        let begin = first(key);
        let mut slots = (begin..SLOTS).chain(0..begin).map(|slot| slot * SIZE);
        let found = slots.find(|at| {
            let old = self.0.to_vec(at + VERSION..at + SIZE);
            decode(&old).is_some_and(|(found, _)| found.is_empty() || found == key)
        });
        if let Some(at) = found {
            self.write(at, content);
        }
        found.is_some()
    }

    /// Writes a slot. Readers that see an odd version, or two different ones, try again.
    fn write(&self, at: usize, content: &Content) {
        let version = self.0.word(at);
        let old = version.load(Ordering::Relaxed);
        version.store(old + 1, Ordering::Relaxed);
        // The odd version is visible before any byte, and each byte before the even version.
        fence(Ordering::Release);
        self.0.write(at + VERSION, content);
        version.store(old + 2, Ordering::Release);
    }
}

/// Accepts clients for ever.
async fn accept(listener: &mut AsyncListener, clients: &Clients) -> udapl::Result<()> {
    loop {
        let request = listener.next_request().await?;
        match request.accept(listener.options()).await {
            Ok(client) => drop(clients.borrow_mut().insert(client.id(), client)),
            Err(error) => eprintln!("a client was not accepted: {error}"),
        }
    }
}

/// Stores the values that clients send, for ever. All clients share one queue of receives.
async fn store(
    context: &Context,
    table: &Table,
    receives: &SharedReceives,
    clients: &Clients,
) -> udapl::Result<()> {
    let answers = context.pool(16, 1)?;
    loop {
        let (from, is_stored) = match receives.next().await? {
            Arrival::Message { from, message } => {
                let content = message
                    .first_chunk()
                    .filter(|_| message.len() == SIZE - VERSION);
                (from, content.is_some_and(|content| table.put(content)))
            }
            Arrival::Ended { connection, .. } => {
                clients.borrow_mut().remove(&connection);
                continue;
            }
            _ => continue,
        };
        if let Some(client) = context.connection(from) {
            let answer = answers.take().await;
            // A client that is gone is reported as an arrival.
            let _ = client.send(answer.filled(&[is_stored.into()])).await;
        }
    }
}

pub(crate) async fn run(adapter: &str) -> Result<()> {
    let context = Context::open(adapter)?;
    let rights = Access::LOCAL_READ | Access::LOCAL_WRITE | Access::REMOTE_READ;
    let table = Table(context.pz().allocate(SLOTS * SIZE, rights)?);
    let receives = context.shared_receives(64, SIZE - VERSION)?;
    let options = Options {
        private_data: table.0.remote(0..SLOTS * SIZE).to_bytes().to_vec(),
        shared_receives: Some(receives.clone()),
        ..Options::default()
    };
    let mut listener = context.listen(None, options)?;
    println!("listens {} {}", context.address(), listener.conn_qual());
    let clients = Clients::default();
    let (accepted, stored) = join(
        accept(&mut listener, &clients),
        store(&context, &table, &receives, &clients),
    )
    .await;
    accepted?;
    Ok(stored?)
}
