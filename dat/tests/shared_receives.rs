//! Futures of shared receives, datagrams, windows and dispatchers, without a runtime.

use std::future::Future;
use std::task::{Context as TaskContext, Poll, Waker};

use udapl::aio::{Arrival, Connection, Context, Options, block_on, join};
use udapl::{Access, AsyncEvent, DtoStatus, Error, Event, Streams};

fn open() -> Context {
    Context::open("softrxe-lo").expect("opens")
}

/// Connects `count` clients to a server whose messages arrive in one queue.
fn crowd(server: &Context, options: &Options, count: usize) -> Vec<(Connection, Connection)> {
    let mut listener = server.listen(None, options.clone()).expect("listens");
    let plain = Options::default();
    let context = open();
    let connect = || {
        let attempt = context.connect(server.address(), listener.conn_qual(), &plain);
        let (client, served) = block_on(join(attempt, listener.accept()));
        (client.expect("connects"), served.expect("accepts"))
    };
    std::iter::repeat_with(connect).take(count).collect()
}

#[test]
fn many_connections_share_receives() {
    let server = open();
    let receives = server.shared_receives(4, 32).expect("shared receives");
    let options = Options {
        shared_receives: Some(receives.clone()),
        ..Options::default()
    };
    let mut pairs = crowd(&server, &options, 5);
    // More messages than buffers: each is posted again when its message is dropped.
    for round in 0..20_u8 {
        for (client, served) in &pairs {
            block_on(async {
                let pool = client.context().pool(1, 1).expect("a pool");
                let message = pool.take().await.filled(&[round]);
                client.send(message).await.1.expect("sent");
                match receives.next().await.expect("an arrival") {
                    Arrival::Message { from, message } => {
                        assert_eq!((from, &message[..]), (served.id(), &[round][..]));
                    }
                    other => panic!("{other:?}"),
                }
            });
        }
    }
    let known = server.connection(pairs[0].1.id()).expect("it exists");
    assert_eq!(known.id(), pairs[0].1.id());
    assert!(
        server.connection(pairs[0].0.id()).is_none(),
        "of another context"
    );
    // The end of a connection arrives in order with the messages, and its receives are used again.
    let (client, served) = pairs.pop().expect("five");
    drop(client);
    match block_on(receives.next()).expect("an arrival") {
        Arrival::Ended { connection, .. } => assert_eq!(connection, served.id()),
        other => panic!("{other:?}"),
    }
    let alone = open().shared_receives(1, 8).expect("shared receives");
    let foreign = Options {
        shared_receives: Some(alone),
        ..Options::default()
    };
    let refused = block_on(server.connect(server.address(), 1, &foreign));
    assert!(
        matches!(refused, Err(Error::OtherZone { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_message_that_is_too_long_ends_its_connection_only() {
    let server = open();
    let receives = server.shared_receives(1, 8).expect("shared receives");
    let options = Options {
        shared_receives: Some(receives.clone()),
        ..Options::default()
    };
    let pairs = crowd(&server, &options, 2);
    let send = |client: &Connection, length: usize| {
        let pool = client.context().pool(1, 64).expect("a pool");
        let message = pool.try_take().expect("one").filled(&vec![7; length]);
        block_on(client.send(message)).1
    };
    assert!(send(&pairs[0].0, 9).is_err());
    match block_on(receives.next()).expect("an arrival") {
        Arrival::Failed { connection, status } => {
            assert_eq!(connection, pairs[0].1.id());
            assert_eq!(status, DtoStatus::LocalLength);
        }
        other => panic!("{other:?}"),
    }
    match block_on(receives.next()).expect("an arrival") {
        Arrival::Ended { connection, .. } => assert_eq!(connection, pairs[0].1.id()),
        other => panic!("{other:?}"),
    }
    // The only buffer is posted again while the next arrival is awaited.
    let (sent, arrival) = block_on(join(async { send(&pairs[1].0, 8) }, async {
        receives.next().await
    }));
    assert!(sent.is_ok(), "{sent:?}");
    assert!(
        matches!(arrival, Ok(Arrival::Message { .. })),
        "{arrival:?}"
    );
}

#[test]
fn datagrams_find_peers() {
    let (a, b) = (open(), open());
    let options = Options {
        message_size: 512,
        ..Options::default()
    };
    let (here, there) = (a.datagrams(&options), b.datagrams(&options));
    let (here, there) = (here.expect("datagrams"), there.expect("datagrams"));
    assert!(here.max_size().expect("known") >= 256);
    let mut listener = b.listen(None, options).expect("listens");
    let qual = listener.conn_qual();
    block_on(async {
        // An attempt whose future is dropped goes on; the next one waits for it.
        let mut abandoned = Box::pin(here.find(b.address(), qual, b"first"));
        let mut cx = TaskContext::from_waker(Waker::noop());
        assert!(abandoned.as_mut().poll(&mut cx).is_pending());
        drop(abandoned);
        let refuse = async {
            let incoming = listener.next_request().await.expect("a request");
            assert!(incoming.is_datagram() && incoming.private_data().starts_with(b"first"));
            incoming.reject(b"no").expect("rejects");
            let incoming = listener.next_request().await.expect("a request");
            assert!(incoming.private_data().starts_with(b"second"));
            there.accept(incoming, b"me").await.expect("accepts")
        };
        let found = here.find(b.address(), qual, b"second");
        let (found, back) = join(found, refuse).await;
        let (peer, answer) = found.expect("found");
        assert!(answer.starts_with(b"me"));
        let pool = a.pool(1, 512).expect("a pool");
        let buffer = pool.take().await.filled(b"ping");
        here.send_to(buffer, &peer).await.1.expect("sent");
        assert_eq!(&there.recv().await.expect("received")[..], b"ping");
        let buffer = b.pool(1, 512).expect("a pool").take().await.filled(b"pong");
        there.send_to(buffer, &back).await.1.expect("sent");
        assert_eq!(&here.recv().await.expect("received")[..], b"pong");
        here.forget(&peer).expect("forgotten");

        let refuse = async {
            let incoming = listener.next_request().await.expect("a request");
            incoming.reject(b"full").expect("rejects");
        };
        let (found, ()) = join(here.find(b.address(), qual, b""), refuse).await;
        assert!(matches!(found, Err(Error::Rejected { .. })), "{found:?}");
    });
    let nothing = block_on(here.find(b.address(), 0x7abd, b""));
    assert!(
        matches!(nothing, Err(Error::Disconnected { .. })),
        "{nothing:?}"
    );
}

#[test]
fn windows_open_and_close_memory() {
    let server = open();
    let pairs = crowd(&server, &Options::default(), 2);
    let (client, served) = &pairs[0];
    let rights = Access::LOCAL_READ | Access::LOCAL_WRITE;
    let region = server.pz().allocate(64, rights).expect("memory");
    region.write(8, b"content!");
    let pool = client.context().pool(2, 8).expect("a pool");
    block_on(async {
        let window = server.window().expect("a window");
        assert_eq!(window.remote(), None);
        let (window, done) = served.unbind(window).await;
        done.expect("nothing to close");
        let bound = served.bind(window, region.part(8..16), Access::REMOTE_READ);
        let (window, remote) = bound.await;
        let remote = remote.expect("bound");
        assert_eq!(window.remote(), Some(remote));
        let (buffer, read) = client.read(remote, pool.take().await).await;
        assert_eq!((read.expect("read"), &buffer[..]), (8, &b"content!"[..]));
        let (window, closed) = served.unbind(window).await;
        closed.expect("closed");
        assert_eq!(window.remote(), None);
        let (_, read) = client.read(remote, buffer).await;
        assert!(matches!(read, Err(Error::Failed { .. })), "{read:?}");
        // The connection broke with it.
        let (window, refused) = served
            .bind(window, region.part(0..8), Access::REMOTE_READ)
            .await;
        assert!(refused.is_err());
        let bound = pairs[1]
            .1
            .bind(window, region.part(0..8), Access::REMOTE_READ);
        bound.await.1.expect("bound by another connection");
    });
}

#[test]
fn a_write_with_immediate_data_may_be_longer_than_a_message() {
    let server = open();
    let options = Options {
        message_size: 8,
        ..Options::default()
    };
    let pairs = crowd(&server, &options, 1);
    let (client, served) = &pairs[0];
    let exposed = server.pz().allocate(4096, Access::ALL).expect("memory");
    let pool = client.context().pool(1, 4096).expect("a pool");
    block_on(async {
        let buffer = pool.take().await;
        let written = client.write_immediate(buffer, exposed.remote(0..4096), 5);
        written.await.1.expect("written");
        let told = served.recv().await.expect("told");
        assert_eq!((told.immediate(), told.written()), (Some(5), 4096));
        assert!(told.is_empty());
    });
}

#[test]
fn events_of_a_dispatcher_are_awaited() {
    let context = open();
    let streams = Streams::SOFTWARE | Streams::CR;
    let mut events = context.events(8, streams).expect("a dispatcher");
    let evd = events.evd().clone();
    let mut early = Box::pin(events.next());
    let mut cx = TaskContext::from_waker(Waker::noop());
    assert!(early.as_mut().poll(&mut cx).is_pending());
    let poster = std::thread::spawn(move || (0..3).for_each(|n| evd.post(n).expect("posts")));
    assert!(matches!(block_on(early), Ok(Event::Software(0))));
    poster.join().expect("posted");
    // A listener of the low layer.
    let listener = context.ia().listen(None, events.evd()).expect("listens");
    let options = Options::default();
    let attempt = context.connect(context.address(), listener.conn_qual(), &options);
    let serve = async {
        loop {
            if let Event::Request(request) = events.next().await.expect("an event") {
                return request.reject(b"").expect("rejects");
            }
        }
    };
    let (refused, ()) = block_on(join(attempt, serve));
    assert!(
        matches!(refused, Err(Error::Rejected { .. })),
        "{refused:?}"
    );
}

#[test]
fn the_end_of_a_connection_may_be_seen_before_it_is_accepted_and_is_there_afterwards() {
    let server = open();
    let receives = server.shared_receives(4, 32).expect("shared receives");
    let options = Options {
        shared_receives: Some(receives.clone()),
        ..Options::default()
    };
    let mut listener = server.listen(None, options.clone()).expect("listens");
    let (context, plain) = (open(), Options::default());
    let attempt = context.connect(server.address(), listener.conn_qual(), &plain);
    let (client, request) = block_on(async {
        let mut attempt = std::pin::pin!(attempt);
        let (mut request, mut accepted) = (None, None);
        // The task that accepts is polled once, when it answers the request.
        let client = std::future::poll_fn(|cx| {
            if accepted.is_none()
                && let Poll::Ready(incoming) = listener.poll_request(cx)
            {
                let incoming = incoming.expect("a request");
                let mut future = Box::pin(async { incoming.accept(&options).await });
                request = match future.as_mut().poll(cx) {
                    Poll::Ready(early) => Some(early),
                    Poll::Pending => None,
                };
                accepted = Some(future);
            }
            attempt.as_mut().poll(cx)
        });
        let client = client.await.expect("connects");
        (client, (request, accepted))
    });
    drop(client);
    let Ok(Arrival::Ended { connection, .. }) = block_on(receives.next()) else {
        panic!("no end");
    };
    let late = match request {
        (Some(early), _) => early,
        (None, accepted) => block_on(accepted.expect("a request")),
    };
    let late = late.expect("was accepted");
    assert_eq!(late.id(), connection);
    assert!(late.ended().is_some_and(|why| why.is_connection_gone()));
}

#[test]
fn the_end_of_a_connection_is_no_error_of_the_adapter() {
    let server = open();
    let receives = server.shared_receives(4, 32).expect("shared receives");
    let options = Options {
        shared_receives: Some(receives.clone()),
        ..Options::default()
    };
    for (client, served) in crowd(&server, &options, 2) {
        drop(client);
        let end = block_on(receives.next()).expect("an arrival");
        assert!(matches!(end, Arrival::Ended { connection, .. } if connection == served.id()));
    }
    // What comes after the reports of the two endpoints: the low watermark of a queue that has fewer receives.
    let srq = server.ia().create_srq(server.pz(), 16, 1).expect("an SRQ");
    let room = server
        .pz()
        .allocate(8, Access::LOCAL_WRITE)
        .expect("memory");
    srq.post_recv(&[room.slice(0..8)], 1).expect("posts");
    srq.set_low_watermark(8).expect("set");
    let event = block_on(server.next_error());
    assert!(
        matches!(event, Event::Async { number, .. } if number != AsyncEvent::EpBroken),
        "{event:?}"
    );
}
