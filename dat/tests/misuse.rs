//! The errors for uses of connections that cannot work, and the peer that each end reports.

use std::time::Duration;

use udapl::aio::{Connection, Context, Options, block_on, join, try_join};
use udapl::{Access, DtoOp, DtoStatus, Error, Result};

fn open() -> Context {
    udapl::log::install();
    Context::open("softrxe-lo").expect("opens")
}

/// Connects two ends in one process, each with options of its own.
fn connect(context: &Context, of_client: &Options, of_server: Options) -> Result<[Connection; 2]> {
    let mut listener = context.listen(None, of_server)?;
    let attempt = context.connect(context.address(), listener.conn_qual(), of_client);
    let (client, server) = block_on(try_join(attempt, listener.accept()))?;
    Ok([client, server])
}

fn short() -> Options {
    Options {
        message_size: 16,
        ..Options::default()
    }
}

#[test]
fn a_message_that_is_too_long_is_named_at_the_receiver() {
    let context = open();
    let [client, server] = connect(&context, &Options::default(), short()).expect("connects");
    let message = context.pool(1, 17).expect("a pool").try_take();
    let sent = block_on(client.send(message.expect("one"))).1;
    let sent = sent.expect_err("it is too long").to_string();
    assert!(sent.contains("length of its receives"), "{sent}");
    for failed in [
        block_on(server.recv()).expect_err("it is too long"),
        block_on(server.closed()),
    ] {
        let is_named = matches!(
            failed,
            Error::Failed {
                op: DtoOp::Receive,
                status: DtoStatus::LocalLength
            }
        );
        assert!(is_named && !failed.is_connection_gone(), "{failed}");
        assert!(failed.to_string().contains("message_size"), "{failed}");
    }
}

#[test]
fn an_operation_stays_within_its_remote() {
    let context = open();
    let options = Options::default();
    let [client, server] = connect(&context, &options, options.clone()).expect("connects");
    let region = context.pz().register(vec![7; 64], Access::ALL);
    let region = region.expect("memory");
    let (pool, part) = (context.pool(1, 9).expect("a pool"), region.remote(8..16));
    block_on(async {
        let (buffer, written) = client.write(pool.take().await, part).await;
        let (buffer, told) = (client.write_immediate(buffer, part, 1).await, written);
        let (read, immediate) = (client.read(part, buffer.0).await, buffer.1);
        for refused in [told, immediate, read.1] {
            let refused = refused.expect_err("9 bytes do not fit");
            let is_named = matches!(
                refused,
                Error::BeyondRemote {
                    length: 9,
                    room: 8,
                    ..
                }
            );
            assert!(is_named, "{refused}");
        }
        assert_eq!(region.to_vec(0..64), [7; 64]);

        // Nothing was posted: the connection is as before.
        let (_, written) = client.write(read.0.filled(&[8; 8]), part).await;
        assert_eq!(written.expect("it fits"), 8);
        assert_eq!(region.to_vec(7..17), [7, 8, 8, 8, 8, 8, 8, 8, 8, 7]);
        client.disconnect().await.expect("it ends");
        let end = server.recv().await.expect_err("it ended");
        assert!(end.is_connection_gone(), "{end}");
    });
}

#[test]
fn numbers_with_which_nothing_would_work_are_refused() {
    let context = open();
    let refused = |options: Options| {
        let refused = connect(&context, &options, Options::default());
        refused.expect_err("it cannot work")
    };
    let none = refused(Options {
        requests: 0,
        ..Options::default()
    });
    assert!(matches!(none, Error::Limit { given: 0, .. }), "{none}");
    let many = refused(Options {
        receives: u32::MAX,
        ..Options::default()
    });
    let is_named = matches!(
        many,
        Error::Limit {
            what: "receives",
            given: u32::MAX,
            ..
        }
    );
    assert!(is_named, "{many}");
    let long = refused(Options {
        message_size: 5 << 30,
        receives: 1,
        ..Options::default()
    });
    assert!(matches!(long, Error::Length { .. }), "{long}");
}

#[test]
fn private_data_and_time_limits_that_are_impossible_are_named() {
    let context = open();
    let most = context.ia().attributes().expect("known").max_private_data as usize;
    let long = Options {
        private_data: vec![1; most + 1],
        ..Options::default()
    };
    let is_length = |error: &Error| {
        matches!(error, Error::Length { what: "private data", length, most: known }
            if (*length, *known) == (most + 1, most))
    };
    let refused = connect(&context, &long, Options::default()).expect_err("too long");
    assert!(is_length(&refused), "{refused}");

    // A server whose answer is too long: its accept fails, and the client is rejected.
    let mut listener = context.listen(None, long).expect("listens");
    let plain = Options::default();
    let attempt = context.connect(context.address(), listener.conn_qual(), &plain);
    let (client, server) = block_on(join(attempt, listener.accept()));
    let (client, server) = (client.map(drop), server.map(drop));
    assert!(matches!(client, Err(Error::Rejected { .. })), "{client:?}");
    let server = server.expect_err("too long");
    assert!(is_length(&server), "{server}");

    let attempt = context.connect(context.address(), listener.conn_qual(), &plain);
    let reject = async {
        let request = listener.next_request().await?;
        request.reject(&vec![1; most + 1])
    };
    let (client, rejected) = block_on(join(attempt, reject));
    let client = client.map(drop);
    assert!(matches!(client, Err(Error::Rejected { .. })), "{client:?}");
    let rejected = rejected.expect_err("too long");
    assert!(is_length(&rejected), "{rejected}");

    let at_once = Options {
        timeout: Duration::ZERO,
        ..Options::default()
    };
    let refused = connect(&context, &at_once, Options::default()).expect_err("no time");
    assert!(matches!(refused, Error::TimeLimit { .. }), "{refused}");
}

#[test]
fn a_connection_that_is_refused_is_told_from_one_that_ended() {
    let context = open();
    let options = Options::default();
    let nothing = block_on(context.connect(context.address(), 0x7abe, &options));
    let nothing = nothing.expect_err("nothing listens");
    assert!(
        nothing.is_refused() && nothing.is_connection_gone(),
        "{nothing}"
    );
    let [client, server] = connect(&context, &options, options.clone()).expect("connects");
    drop(client);
    let ended = block_on(server.closed());
    assert!(!ended.is_refused() && ended.is_connection_gone(), "{ended}");
}

#[test]
fn both_sides_know_whom_they_are_connected_to() {
    let context = open();
    let says = |text: &[u8]| Options {
        private_data: text.to_vec(),
        ..Options::default()
    };
    let [client, server] = connect(&context, &says(b"client"), says(b"server")).expect("connects");
    assert!(client.private_data().starts_with(b"server"));
    assert!(server.private_data().starts_with(b"client"));
    let remotes = [client.remote(), server.remote()];
    assert_eq!(remotes, [context.address(); 2]);
}
