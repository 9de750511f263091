//! Futures in tokio.

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

/// Answers each message, in a thread with a runtime of its own; returns where it listens.
fn echo_server() -> (std::net::IpAddr, u64) {
    let (sender, at) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        runtime.expect("a runtime").block_on(async {
            let context = Context::open_tokio("softrxe-lo").expect("opens");
            let mut listener = context.listen(None, Options::default()).expect("listens");
            let at = (context.address(), listener.conn_qual());
            sender.send(at).expect("is awaited");
            let connection = listener.accept().await.expect("accepts");
            let pool = context.pool(1, 64).expect("a pool");
            while let Ok(message) = connection.recv().await {
                let answer = pool.take().await.filled(&message);
                drop(message);
                // The client may be gone by now.
                let _ = connection.send(answer).await;
            }
        });
    });
    at.recv().expect("it listens")
}

#[tokio::test]
async fn a_task_whose_answers_come_at_once_leaves_the_others_their_turns() {
    const ROUNDS: usize = 500;
    let (address, qualifier) = echo_server();
    let context = Context::open_tokio("softrxe-lo").expect("opens");
    let options = Options::default();
    let connection = context.connect(address, qualifier, &options).await;
    let connection = connection.expect("connects");
    let pool = context.pool(1, 64).expect("a pool");
    let task = tokio::spawn(async move {
        for _ in 0..ROUNDS {
            let ping = pool.take().await.filled(b"ping");
            let send = connection.send(ping).posted().await;
            assert_eq!(&connection.recv().await.expect("answered")[..], b"ping");
            send.await.1.expect("sent");
        }
    });
    let mut turns = 0;
    while !task.is_finished() {
        turns += 1;
        tokio::task::yield_now().await;
    }
    task.await.expect("it ends");
    // Each round has two results; a turn ends after 32.
    assert!(turns >= 2 * ROUNDS / 33, "{turns} turns of the other task");
}
