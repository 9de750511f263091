//! Echo: a server sends each message back to its client.
//!
//! ```sh
//! cargo run --example echo -- server softrxe-lo              # prints its address and qualifier
//! cargo run --example echo -- client softrxe-lo ADDRESS QUALIFIER COUNT
//! ```

#![forbid(unsafe_code)]

use std::time::Instant;

use udapl::aio::{Connection, Context, Options, block_on};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Sends each message of one client back, until the client closes the connection.
async fn serve(connection: Connection) -> udapl::Result<()> {
    let pool = connection.context().pool(4, 4096)?;
    loop {
        let message = match connection.recv().await {
            Err(error) if error.is_connection_gone() => return Ok(()),
            other => other?,
        };
        let answer = pool.take().await.filled(&message);
        // The buffer of the message is posted again.
        drop(message);
        connection.send(answer).await.1?;
    }
}

fn server(adapter: &str) -> Result<()> {
    let context = Context::open(adapter)?;
    let mut listener = context.listen(None, Options::default())?;
    println!("listens {} {}", context.address(), listener.conn_qual());
    loop {
        let connection = match block_on(listener.accept()) {
            Ok(connection) => connection,
            Err(error) => {
                eprintln!("a client was not accepted: {error}");
                continue;
            }
        };
        std::thread::spawn(move || {
            if let Err(error) = block_on(serve(connection)) {
                eprintln!("a client was lost: {error}");
            }
        });
    }
}

async fn client(adapter: &str, address: &str, qualifier: &str, count: &str) -> Result<()> {
    let (qualifier, count) = (qualifier.parse()?, count.parse::<u32>()?);
    let context = Context::open(adapter)?;
    let options = Options::default();
    let server = context.connect(address.parse()?, qualifier, &options);
    let server = server.await?;
    let pool = context.pool(1, 64)?;
    let start = Instant::now();
    for round in 0..count {
        let ping = pool.take().await.filled(&round.to_be_bytes());
        server.send(ping).await.1?;
        let pong = server.recv().await?;
        if pong[..] != round.to_be_bytes() {
            return Err(format!("message {round} came back as {:?}", &pong[..]).into());
        }
    }
    let each = start.elapsed() / count.max(1);
    println!("{count} messages came back, {each:?} each");
    server.disconnect().await?;
    Ok(())
}

fn main() -> Result<()> {
    udapl::log::install();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["server", adapter] => server(adapter),
        ["client", adapter, address, qualifier, count] => {
            block_on(client(adapter, address, qualifier, count))
        }
        _ => Err("usage: echo server ADAPTER | client ADAPTER ADDRESS QUALIFIER COUNT".into()),
    }
}
