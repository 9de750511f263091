//! The same echo twice in tokio: over RDMA, and over a TcpStream. The client prints the time of a round trip of both, median and mean.
//!
//! ```sh
//! cargo run --release --features tokio --example tokio_echo -- server softrxe-lo     # prints address, qualifier, and TCP port
//! cargo run --release --features tokio --example tokio_echo -- client softrxe-lo ADDRESS QUALIFIER PORT COUNT
//! ```

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use udapl::aio::{Connection, Context, Options};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Bytes of a message.
const SIZE: usize = 64;

async fn serve_rdma(connection: Connection) -> Result<()> {
    let pool = connection.context().pool(4, SIZE)?;
    loop {
        let message = match connection.recv().await {
            Err(error) if error.is_connection_gone() => return Ok(()),
            other => other?,
        };
        let answer = pool.take().await.filled(&message);
        drop(message);
        // Its completion is not awaited before the next message.
        drop(connection.send(answer).posted().await);
    }
}

async fn serve_tcp(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut message = [0; SIZE];
    while stream.read_exact(&mut message).await.is_ok() {
        stream.write_all(&message).await?;
    }
    Ok(())
}

async fn server(adapter: &str) -> Result<()> {
    let context = Context::open_tokio(adapter)?;
    let mut listener = context.listen(None, Options::default())?;
    let tcp = TcpListener::bind((context.address(), 0)).await?;
    let port = tcp.local_addr()?.port();
    println!(
        "listens {} {} {port}",
        context.address(),
        listener.conn_qual()
    );
    loop {
        tokio::select! {
            request = listener.next_request() => {
                let (request, options) = (request?, listener.options().clone());
                tokio::spawn(async move { serve_rdma(request.accept(&options).await?).await });
            }
            accepted = tcp.accept() => {
                tokio::spawn(serve_tcp(accepted?.0));
            }
        }
    }
}

/// Times of single round trips.
struct Times(Vec<Duration>);

impl Times {
    fn with_room(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// The mean has the moments in which an end lost its processor, the median has not.
    fn print(mut self, line: &str) {
        self.0.sort_unstable();
        let count = self.0.len();
        let median = self.0.get(count / 2).copied().unwrap_or_default();
        let each = self.0.iter().sum::<Duration>() / count.max(1) as u32;
        println!("{line}: {count} round trips of {SIZE} bytes, {median:?} median, {each:?} each");
    }
}

async fn rdma(adapter: &str, address: &str, qualifier: &str, count: usize) -> Result<Times> {
    let context = Context::open_tokio(adapter)?;
    let options = Options::default();
    let server = context.connect(address.parse()?, qualifier.parse()?, &options);
    let server = server.await?;
    let mut buffer = context.pool(1, SIZE)?.take().await;
    let mut times = Times::with_room(count);
    for round in 0..count {
        let start = Instant::now();
        buffer.fill(round as u8);
        let send = server.send(buffer).posted().await;
        let answer = server.recv().await?;
        let (sent, done) = send.await;
        done?;
        if answer[..] != sent[..] {
            return Err(format!("message {round} came back changed").into());
        }
        buffer = sent;
        times.0.push(start.elapsed());
    }
    server.disconnect().await?;
    Ok(times)
}

async fn tcp(address: &str, port: &str, count: usize) -> Result<Times> {
    let at = SocketAddr::new(address.parse()?, port.parse()?);
    let mut stream = TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    let mut times = Times::with_room(count);
    for round in 0..count {
        let start = Instant::now();
        let sent = [round as u8; SIZE];
        stream.write_all(&sent).await?;
        let mut answer = [0; SIZE];
        stream.read_exact(&mut answer).await?;
        if answer != sent {
            return Err(format!("message {round} came back changed").into());
        }
        times.0.push(start.elapsed());
    }
    Ok(times)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    udapl::log::install();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["server", adapter] => server(adapter).await,
        ["client", adapter, address, qualifier, port, count] => {
            let count = count.parse()?;
            rdma(adapter, address, qualifier, count)
                .await?
                .print("rdma");
            tcp(address, port, count).await?.print("tcp");
            Ok(())
        }
        _ => Err(
            "usage: tokio_echo server ADAPTER | client ADAPTER ADDRESS QUALIFIER PORT COUNT".into(),
        ),
    }
}
