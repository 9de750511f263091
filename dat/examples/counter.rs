//! A counter that clients change by atomics in the server's memory: the server's processor has no part in it.
//!
//! ```sh
//! cargo run --example counter -- server softrxe-lo CLIENTS       # prints its address and qualifier, at the end the sum
//! cargo run --example counter -- client softrxe-lo ADDRESS QUALIFIER COUNT
//! ```

#![forbid(unsafe_code)]

use udapl::aio::{Connection, Context, Options, block_on};
use udapl::{Access, Remote};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Offsets of the words: the sum, and the largest number that a client has seen.
const SUM: usize = 0;
const LARGEST: usize = 8;

async fn server(adapter: &str, clients: &str) -> Result<()> {
    let clients: usize = clients.parse()?;
    let context = Context::open(adapter)?;
    let rights = Access::ALL | Access::REMOTE_ATOMIC;
    let words = context.pz().allocate(16, rights)?;
    // The key goes to each client with the answer to its request.
    let options = Options {
        private_data: words.remote(0..16).to_bytes().to_vec(),
        ..Options::default()
    };
    let mut listener = context.listen(None, options)?;
    println!("listens {} {}", context.address(), listener.conn_qual());
    let mut connections = Vec::new();
    while connections.len() < clients {
        connections.push(listener.accept().await?);
    }
    for connection in connections {
        connection.closed().await;
    }
    let (sum, largest) = (words.load_u64(SUM), words.load_u64(LARGEST));
    println!("the sum is {sum}, the largest number {largest}");
    Ok(())
}

/// Raises the word to at least `value`: a compare-and-swap is repeated until no other client came in between.
async fn raise(server: &Connection, word: Remote, value: u64) -> udapl::Result<()> {
    let mut seen = 0;
    while seen < value {
        let found = server.compare_swap(word, seen, value).await?;
        if found == seen {
            return Ok(());
        }
        seen = found;
    }
    Ok(())
}

async fn client(adapter: &str, address: &str, qualifier: &str, count: &str) -> Result<()> {
    let (qualifier, count) = (qualifier.parse()?, count.parse::<u64>()?);
    let context = Context::open(adapter)?;
    let options = Options::default();
    let server = context.connect(address.parse()?, qualifier, &options);
    let server = server.await?;
    let words = Remote::from_prefix(&server.private_data()).ok_or("the server sent no key")?;
    for _ in 0..count {
        let before = server.fetch_add(words.slice(0..8), 1).await?;
        raise(&server, words.slice(8..16), before + 1).await?;
    }
    println!("added {count}");
    server.disconnect().await?;
    Ok(())
}

fn main() -> Result<()> {
    udapl::log::install();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["server", adapter, clients] => block_on(server(adapter, clients)),
        ["client", adapter, address, qualifier, count] => {
            block_on(client(adapter, address, qualifier, count))
        }
        _ => Err(
            "usage: counter server ADAPTER CLIENTS | client ADAPTER ADDRESS QUALIFIER COUNT".into(),
        ),
    }
}
