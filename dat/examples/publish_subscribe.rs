//! Publish and subscribe: publishers send messages over connections, which share one queue of receives at the broker. The broker
//! sends them on as datagrams, one for each subscriber of the topic. Datagrams may be lost; a slow subscriber delays nothing.
//!
//! ```sh
//! cargo run --example publish_subscribe -- broker softrxe-lo     # prints its address and qualifier
//! cargo run --example publish_subscribe -- subscribe softrxe-lo ADDRESS QUALIFIER TOPIC COUNT
//! cargo run --example publish_subscribe -- publish softrxe-lo ADDRESS QUALIFIER TOPIC TEXT COUNT
//! ```

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use udapl::aio::{
    Arrival, AsyncListener, Connection, Context, Datagrams, Options, SharedReceives, block_on, join,
};
use udapl::{EpId, Peer};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Longest message: topic, zero, text. Every adapter's datagrams are longer.
const MOST: usize = 256;

/// What the two tasks of the broker share.
#[derive(Default)]
struct Broker {
    publishers: RefCell<HashMap<EpId, Connection>>,
    subscribers: RefCell<HashMap<Vec<u8>, Vec<Peer>>>,
}

impl Broker {
    /// Accepts publishers, which request connections, and subscribers, which request datagrams of a topic.
    async fn accept(
        &self,
        listener: &mut AsyncListener,
        datagrams: &Datagrams,
    ) -> udapl::Result<()> {
        loop {
            let request = listener.next_request().await?;
            let accepted = if request.is_datagram() {
                let topic = topic_of(&request.private_data()).to_vec();
                let peer = datagrams.accept(request, b"").await;
                peer.map(|peer| {
                    let mut subscribers = self.subscribers.borrow_mut();
                    subscribers.entry(topic).or_default().push(peer);
                })
            } else {
                let publisher = request.accept(listener.options()).await;
                publisher.map(|one| self.keep(one))
            };
            if let Err(error) = accepted {
                eprintln!("a request was not accepted: {error}");
            }
        }
    }

    /// Keeps a publisher until it ends. Its end may have arrived before.
    fn keep(&self, publisher: Connection) {
        if publisher.ended().is_none() {
            let mut publishers = self.publishers.borrow_mut();
            publishers.insert(publisher.id(), publisher);
        }
    }

    /// Sends each message to the subscribers of its topic.
    async fn forward(
        &self,
        receives: &SharedReceives,
        datagrams: &Datagrams,
        context: &Context,
    ) -> udapl::Result<()> {
        let pool = context.pool(1, MOST)?;
        loop {
            match receives.next().await? {
                Arrival::Message { message, .. } => {
                    let subscribers = self.subscribers.borrow().get(topic_of(&message)).cloned();
                    for peer in subscribers.iter().flatten() {
                        let copy = pool.take().await.filled(&message);
                        datagrams.send_to(copy, peer).await.1?;
                    }
                }
                Arrival::Ended { connection, .. } => {
                    self.publishers.borrow_mut().remove(&connection);
                }
                _ => {}
            }
        }
    }
}

/// Returns the topic at the beginning of a message, or of private data, which transports pad with zeros.
fn topic_of(message: &[u8]) -> &[u8] {
    message.split(|byte| *byte == 0).next().unwrap_or_default()
}

async fn broker(adapter: &str) -> Result<()> {
    let context = Context::open(adapter)?;
    let receives = context.shared_receives(64, MOST)?;
    let options = Options {
        shared_receives: Some(receives.clone()),
        ..Options::default()
    };
    let datagrams = context.datagrams(&options)?;
    let mut listener = context.listen(None, options)?;
    println!("listens {} {}", context.address(), listener.conn_qual());
    let broker = Broker::default();
    let (accepted, forwarded) = join(
        broker.accept(&mut listener, &datagrams),
        broker.forward(&receives, &datagrams, &context),
    )
    .await;
    accepted?;
    Ok(forwarded?)
}

async fn subscribe(adapter: &str, at: [&str; 2], topic: &str, count: &str) -> Result<()> {
    let count: u32 = count.parse()?;
    let context = Context::open(adapter)?;
    let options = Options {
        receives: 64,
        message_size: MOST,
        ..Options::default()
    };
    let datagrams = context.datagrams(&options)?;
    let broker = datagrams.find(at[0].parse()?, at[1].parse()?, topic.as_bytes());
    broker.await?;
    println!("subscribed");
    for _ in 0..count {
        let message = datagrams.recv().await?;
        println!("{}", String::from_utf8_lossy(&message).replace('\0', ": "));
    }
    Ok(())
}

async fn publish(adapter: &str, at: [&str; 2], text: [&str; 2], count: &str) -> Result<()> {
    let count: u32 = count.parse()?;
    let context = Context::open(adapter)?;
    let options = Options::default();
    let broker = context.connect(at[0].parse()?, at[1].parse()?, &options);
    let broker = broker.await?;
    let pool = context.pool(1, MOST)?;
    for number in 1..=count {
        let message = format!("{}\0{} {number}", text[0], text[1]);
        if message.len() > MOST {
            return Err(format!("a message has at most {MOST} bytes").into());
        }
        let message = pool.take().await.filled(message.as_bytes());
        broker.send(message).await.1?;
        std::thread::sleep(Duration::from_millis(1));
    }
    broker.disconnect().await?;
    Ok(())
}

fn main() -> Result<()> {
    udapl::log::install();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["broker", adapter] => block_on(broker(adapter)),
        ["subscribe", adapter, address, qualifier, topic, count] => {
            block_on(subscribe(adapter, [address, qualifier], topic, count))
        }
        ["publish", adapter, address, qualifier, topic, text, count] => {
            block_on(publish(adapter, [address, qualifier], [topic, text], count))
        }
        _ => Err("usage: publish_subscribe broker ADAPTER | subscribe ADAPTER ADDRESS QUALIFIER TOPIC COUNT | publish ADAPTER ADDRESS QUALIFIER TOPIC TEXT COUNT".into()),
    }
}
