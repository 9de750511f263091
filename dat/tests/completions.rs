//! Completions taken one by one, without their events.

mod common;

use std::time::Instant;

use common::{PATIENCE, Side, connect, pair, side};
use udapl::{
    Access, Close, Completion, CompletionFlags, ConnectionEvent, DtoOp, DtoStatus, Evd, PollError,
    Streams,
};

const NONE: CompletionFlags = CompletionFlags::empty();

/// Polls until there is a completion.
fn next(evd: &Evd) -> Result<Completion, PollError> {
    let start = Instant::now();
    loop {
        if let Some(done) = evd.poll_completion()? {
            return Ok(done);
        }
        assert!(start.elapsed() < PATIENCE, "no completion came");
        std::thread::yield_now();
    }
}

fn good(side: &Side) -> Completion {
    let done = next(&side.done).expect("a completion");
    assert_eq!(done.status, DtoStatus::Success, "{done:?}");
    done
}

#[test]
fn each_kind_of_completion_has_its_fields() {
    let (a, b) = pair();
    let rights = Access::ALL | Access::REMOTE_ATOMIC;
    let theirs = b.pz.allocate(64, rights).expect("memory");
    let ours = a.pz.allocate(64, Access::ALL).expect("memory");
    let (part, there) = ([ours.slice(0..8)], theirs.remote(0..8));

    b.ep.post_recv(&[theirs.slice(0..64)], 1).expect("posts");
    a.ep.post_send(&part, 2).expect("posts");
    let sent = good(&a);
    assert_eq!((sent.ep, sent.cookie, sent.op), (a.ep.id(), 2, DtoOp::Send));
    let got = good(&b);
    assert_eq!((got.ep, got.cookie, got.length), (b.ep.id(), 1, 8));
    assert_eq!(got.op, DtoOp::Receive);

    b.ep.post_recv(&[], 3).expect("posts");
    a.ep.post_rdma_write_immediate(&part, there, 0xfeed, 4, NONE)
        .expect("posts");
    assert_eq!(good(&a).cookie, 4);
    let told = good(&b);
    assert_eq!((told.cookie, told.immediate), (3, 0xfeed));
    assert_eq!(told.op, DtoOp::ReceiveRdmaImmediate);

    a.ep.post_fetch_add(part[0], there, 1, 5, NONE)
        .expect("posts");
    let added = good(&a);
    assert_eq!((added.cookie, added.op), (5, DtoOp::FetchAdd));

    let mut window = b.pz.create_rmr().expect("a window");
    window
        .bind(&theirs, 0..8, Access::REMOTE_WRITE, &b.ep, 6)
        .expect("binds");
    let bound = good(&b);
    assert_eq!((bound.cookie, bound.op), (6, DtoOp::BindMw));

    b.ep.post_recv(&[theirs.slice(0..64)], 7).expect("posts");
    a.ep.disconnect(Close::Abrupt).expect("disconnects");
    let flushed = next(&b.done).expect("a completion");
    assert_eq!((flushed.cookie, flushed.status), (7, DtoStatus::Flushed));
    assert_eq!(b.done.poll_completion(), Ok(None));
}

#[test]
fn an_event_of_another_kind_is_an_error() {
    let (a, b) = pair();
    b.ep.disconnect(Close::Abrupt).expect("disconnects");
    let ended = next(&a.connections).expect_err("no completion");
    let how = ConnectionEvent::Disconnected;
    assert!(
        matches!(ended, PollError::Disconnected { how: got } if got == how)
            || matches!(
                ended,
                PollError::Disconnected {
                    how: ConnectionEvent::Broken
                }
            ),
        "{ended}"
    );
    let software = a.ia.create_evd(4, Streams::SOFTWARE).expect("an EVD");
    software.post(7).expect("posts");
    let other = software.poll_completion().expect_err("no completion");
    assert!(matches!(other, PollError::Unexpected { .. }), "{other}");
    assert_eq!(software.poll_completion(), Ok(None));
}

#[test]
fn endpoints_of_one_queue_take_turns() {
    let (server, one, two) = (side(), side(), side());
    connect(&one, &server);
    let builder = server.ia.endpoint(&server.pz).recv_evd(&server.done);
    let builder = builder.request_evd(&server.done);
    let builder = builder.connect_evd(&server.connections);
    let second = Side {
        ep: builder.create().expect("an EP"),
        done: server.done.clone(),
        connections: server.connections.clone(),
        pz: server.pz.clone(),
        ia: server.ia.clone(),
    };
    connect(&two, &second);
    let room = server.pz.allocate(64, Access::ALL).expect("memory");
    for round in 0..50 {
        let ends = [(&one, &server), (&two, &second)];
        let (from, to) = ends[usize::from(round % 3 == 0)];
        let message = from.pz.allocate(8, Access::LOCAL_READ).expect("memory");
        to.ep.post_recv(&[room.slice(0..8)], round).expect("posts");
        from.ep
            .post_send(&[message.slice(0..8)], round)
            .expect("posts");
        // The region stays registered until its post is complete.
        drop(message);
        assert_eq!(good(from).cookie, round);
        let got = good(to);
        assert_eq!((got.ep, got.cookie), (to.ep.id(), round));
    }
}
