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
