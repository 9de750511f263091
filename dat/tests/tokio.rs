//! Futures in tokio.

use std::task::Poll;

use udapl::aio::{Context, Options};

#[tokio::test]
async fn tasks_of_a_runtime_exchange_messages() {
    let context = Context::open_tokio("softrxe-lo").expect("opens");
    let options = Options::default();
    let mut listener = context.listen(None, options.clone()).expect("listens");
    let qual = listener.conn_qual();
    let server = tokio::spawn(async move {
        let connection = listener.accept().await.expect("accepts");
        let pool = connection.context().pool(4, 4096).expect("a pool");
        while let Ok(message) = connection.recv().await {
            let answer = pool.take().await.filled(&message);
            drop(message);
            connection.send(answer).await.1.expect("sent");
        }
    });
    let client = context.connect(context.address(), qual, &options).await;
    let client = client.expect("connects");
    let pool = context.pool(4, 4096).expect("a pool");
    for round in 0..1000_u32 {
        let ping = pool.take().await.filled(&round.to_be_bytes());
        client.send(ping).await.1.expect("sent");
        assert_eq!(
            &client.recv().await.expect("answered")[..],
            round.to_be_bytes()
        );
    }
    // A lost race of two futures loses no message.
    for round in 0..100_u32 {
        let ping = pool.take().await.filled(&round.to_be_bytes());
        client.send(ping).await.1.expect("sent");
        tokio::select! {
            biased;
            () = tokio::task::yield_now() => {}
            message = client.recv() => {
                assert_eq!(&message.expect("answered")[..], round.to_be_bytes());
                continue;
            }
        }
        assert_eq!(
            &client.recv().await.expect("answered")[..],
            round.to_be_bytes()
        );
    }
    client.disconnect().await.expect("disconnects");
    server.await.expect("the server ends");
}

#[test]
fn an_adapter_is_not_opened_outside_a_runtime() {
    let error = Context::open_tokio("softrxe-lo").expect_err("there is no runtime");
    assert!(matches!(error, udapl::Error::System { .. }), "{error}");
    assert!(error.to_string().contains("tokio runtime"), "{error}");
}

#[tokio::test]
async fn a_task_that_always_finds_a_message_leaves_the_others_their_turns() {
    const MESSAGES: u32 = 512;
    let context = Context::open_tokio("softrxe-lo").expect("opens");
    let options = Options {
        receives: MESSAGES,
        ..Options::default()
    };
    let mut listener = context.listen(None, options.clone()).expect("listens");
    let qualifier = listener.conn_qual();
    let attempt = context.connect(context.address(), qualifier, &options);
    let (client, server) = tokio::join!(attempt, listener.accept());
    let (client, server) = (client.expect("connects"), server.expect("accepts"));
    let pool = context.pool(1, 64).expect("a pool");
    for _ in 0..MESSAGES {
        let message = pool.take().await.filled(b"ping");
        client.send(message).await.1.expect("sent");
    }
    // They have all arrived.
    let task = tokio::spawn(async move {
        for _ in 0..MESSAGES {
            assert_eq!(&server.recv().await.expect("a message")[..], b"ping");
        }
    });
    let counter = tokio::spawn(async move {
        let mut turns = 0;
        while !task.is_finished() {
            turns += 1;
            next_turn().await;
        }
        task.await.expect("it ends");
        turns
    });
    let turns = counter.await.expect("it ends");
    assert!(turns >= MESSAGES / 33, "{turns} turns of the other task");
}

/// Lets the other tasks run. tokio's `yield_now` waits until no task is ready.
async fn next_turn() {
    let mut was_polled = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut was_polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
