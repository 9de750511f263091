//! Streams of messages, requests and events, without a runtime.

use std::future::poll_fn;
use std::pin::{Pin, pin};

use futures_core::Stream;
use udapl::aio::{Arrival, Context, Options, block_on, join};
use udapl::{Error, Event, Streams};

/// Returns the next item of a stream.
async fn next<S: Stream>(mut stream: Pin<&mut S>) -> Option<S::Item> {
    poll_fn(|cx| stream.as_mut().poll_next(cx)).await
}

#[test]
fn a_stream_of_messages_ends_with_the_connection() {
    let context = Context::open("softrxe-lo").expect("opens");
    let mut listener = context.listen(None, Options::default()).expect("listens");
    let (qual, options) = (listener.conn_qual(), Options::default());
    block_on(async {
        let attempt = context.connect(context.address(), qual, &options);
        let accept = async {
            let incoming = next(pin!(&mut listener)).await.expect("endless");
            incoming.expect("a request").accept(&options).await
        };
        let (client, server) = join(attempt, accept).await;
        let (client, server) = (client.expect("connects"), server.expect("accepts"));
        let pool = context.pool(3, 1).expect("a pool");
        for byte in 0..3 {
            let message = pool.take().await.filled(&[byte]);
            client.send(message).await.1.expect("sent");
        }
        let mut messages = pin!(server.messages());
        let mut got = Vec::new();
        for _ in 0..3 {
            let message = next(messages.as_mut()).await.expect("not over");
            got.extend_from_slice(&message.expect("a message"));
        }
        client.disconnect().await.expect("disconnects");
        assert!(next(messages.as_mut()).await.is_none(), "closed");
        assert!(next(messages.as_mut()).await.is_none(), "stays over");
        assert_eq!(got, [0, 1, 2]);
    });
}

#[test]
fn a_queue_and_a_dispatcher_are_streams() {
    let context = Context::open("softrxe-lo").expect("opens");
    let receives = context.shared_receives(4, 16).expect("shared receives");
    let options = Options {
        shared_receives: Some(receives.clone()),
        ..Options::default()
    };
    let mut listener = context.listen(None, options).expect("listens");
    let (qual, plain) = (listener.conn_qual(), Options::default());
    let mut events = context.events(8, Streams::SOFTWARE).expect("a dispatcher");
    block_on(async {
        let attempt = context.connect(context.address(), qual, &plain);
        let (client, server) = join(attempt, listener.accept()).await;
        let (client, server) = (client.expect("connects"), server.expect("accepts"));
        assert!(matches!(server.recv().await, Err(Error::HasSrq { .. })));
        let message = context.pool(1, 4).expect("a pool").take().await;
        client.send(message.filled(b"here")).await.1.expect("sent");
        match next(pin!(receives)).await {
            Some(Ok(Arrival::Message { from, message })) => {
                assert_eq!((from, &message[..]), (server.id(), &b"here"[..]));
            }
            other => panic!("{other:?}"),
        }
        events.evd().post(3).expect("posts");
        let event = next(pin!(&mut events)).await.expect("endless");
        assert!(matches!(event, Ok(Event::Software(3))), "{event:?}");
    });
}
