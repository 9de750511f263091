//! Faults of the first version of this API. Each test failed then.

mod common;

use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use common::{PATIENCE, Side, connect, pair, side};
use udapl::{
    Access, AsyncEvent, Close, CompletionFlags, DtoStatus, Error, Event, Ia, PostError, Pz, Queue,
    Streams,
};

#[test]
fn an_adapter_opens_without_a_configuration() {
    assert!(udapl::built_in().contains(&"softrxe-lo"));
    let ia = Ia::open("softrxe-lo").expect("built in");
    assert!(ia.attributes().expect("attributes").address.is_loopback());
    let unknown = Ia::open("no-such-adapter").expect_err("there is none");
    assert!(matches!(unknown, Error::Lookup(_)), "{unknown}");
}

#[test]
fn a_region_that_is_dropped_while_it_is_posted_stays_until_the_post_is_complete() {
    let (a, b) = pair();
    let keep = a.pz.allocate(64, Access::ALL).expect("memory");
    let room = b.pz.allocate(64, Access::ALL).expect("memory");
    b.ep.post_recv(&[room.slice(0..32)], 1).expect("posts");
    b.ep.post_recv(&[room.slice(32..64)], 2).expect("posts");
    drop(room);
    for cookie in 3..5 {
        let message = a.pz.allocate(32, Access::ALL).expect("memory");
        a.ep.post_send(&[message.slice(0..32)], cookie)
            .expect("posts");
        drop(message);
    }
    for side in [&a, &b] {
        for _ in 0..2 {
            let done = side.done.wait_completion(PATIENCE).expect("complete");
            assert_eq!(done.length, 32);
        }
    }
    // A read whose events of success are omitted, so that nothing says when it is complete.
    let remote = b.pz.allocate(32, Access::ALL).expect("memory");
    let into = a.pz.allocate(32, Access::ALL).expect("memory");
    let suppressed = CompletionFlags::SUPPRESS;
    a.ep.post_rdma_read(&[into.slice(0..32)], remote.remote(0..32), 5, suppressed)
        .expect("posts");
    drop(into);
    a.ep.post_rdma_read(
        &[keep.slice(0..32)],
        remote.remote(0..32),
        6,
        CompletionFlags::empty(),
    )
    .expect("posts");
    assert_eq!(a.done.wait_completion(PATIENCE).expect("read").cookie, 6);
}

#[test]
fn a_region_is_freed_when_its_posts_are_complete() {
    let (a, b) = pair();
    // Each is dropped while posted, and all of them would exceed what can be locked or allocated.
    for round in 0..300 {
        let room = b.pz.allocate(1 << 20, Access::ALL).expect("memory");
        let message = a.pz.allocate(1 << 20, Access::ALL).expect("memory");
        b.ep.post_recv(&[room.slice(0..8)], round).expect("posts");
        a.ep.post_send(&[message.slice(0..8)], round)
            .expect("posts");
        drop((room, message));
        a.done.wait_completion(PATIENCE).expect("sent");
        b.done.wait_completion(PATIENCE).expect("received");
        assert!(a.done.poll().expect("polls").is_none());
        assert!(b.done.poll().expect("polls").is_none());
    }
    let resident = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: usize = resident
        .split(' ')
        .nth(1)
        .expect("resident")
        .parse()
        .expect("a number");
    assert!(pages < 50_000, "{pages} pages: dropped regions are kept");
}

#[test]
fn an_event_that_was_dropped_for_want_of_room_is_heard_of() {
    let server = side();
    let requests = server.ia.create_evd(1, Streams::CR).expect("an EVD");
    let errors = server.ia.async_evd();
    let listener = server.ia.listen(None, &requests).expect("listens");
    let address = server.ia.attributes().expect("attributes").address;
    let clients: Vec<_> = (0..40).map(|_| side()).collect();
    for client in &clients {
        let attempt = client.ep.connect(address, listener.conn_qual());
        attempt.timeout(PATIENCE).start().expect("starts");
    }
    match errors.wait(PATIENCE) {
        Ok(Event::Async { number, .. }) => assert_eq!(number, AsyncEvent::EvdOverflow),
        other => panic!("{other:?}"),
    }
}

#[test]
fn numbers_of_endpoints_are_used_once_and_a_late_event_names_its_own() {
    let s = side();
    let mut ids = HashSet::new();
    for _ in 0..5000 {
        let ep = s.ia.endpoint(&s.pz).recv_evd(&s.done).create();
        assert!(ids.insert(ep.expect("an EP").id()), "a number came back");
    }
    // Flushes of an endpoint that is dropped stay in the queue, while thousands of others come and go.
    let (a, b) = pair();
    let old = b.ep.id();
    let room = b.pz.allocate(64, Access::ALL).expect("memory");
    b.ep.post_recv(&[room.slice(0..64)], 7).expect("posts");
    a.ep.disconnect(Close::Abrupt).expect("disconnects");
    let (done, connections, pz, ia) = (b.done, b.connections, b.pz, b.ia);
    loop {
        // The end is queued behind what it flushed.
        if b.ep.state().expect("a state") == udapl::EpState::Disconnected {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    drop(b.ep);
    let mut later = HashSet::new();
    for _ in 0..5000 {
        let builder = ia.endpoint(&pz).recv_evd(&done).connect_evd(&connections);
        later.insert(builder.create().expect("an EP").id());
    }
    match connections.poll().expect("polls") {
        Some(Event::Ended { ep, .. }) => {
            assert_eq!(ep, old);
            assert!(!later.contains(&ep));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn impossible_lengths_and_times_are_errors() {
    let s = side();
    let length = |bytes| s.pz.allocate(bytes, Access::ALL).expect_err("impossible");
    assert!(matches!(length(0), Error::Length { length: 0, .. }));
    assert!(matches!(length(usize::MAX), Error::OutOfMemory { .. }));
    let large = length(1 << 46);
    assert!(
        matches!(large, Error::OutOfMemory { .. } | Error::Resources { .. }),
        "{large}"
    );
    assert!(s.pz.register(Vec::new(), Access::ALL).is_err());
    let region = s.pz.allocate(1, Access::ALL).expect("one byte");
    assert_eq!(region.len(), 1);

    let software = s.ia.create_evd(4, Streams::SOFTWARE).expect("an EVD");
    let poster = software.clone();
    let posted = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        poster.post(5)
    });
    let event = software.wait(Duration::MAX);
    assert!(matches!(event, Ok(Event::Software(5))), "{event:?}");
    posted.join().expect("no panic").expect("posted");

    let address = s.ia.attributes().expect("attributes").address;
    let attempt =
        s.ep.connect(address, 9)
            .timeout(Duration::from_secs(72 * 60));
    let refused = attempt.start().expect_err("too long");
    assert!(matches!(refused, Error::TimeLimit { .. }), "{refused}");
}

#[test]
fn a_receive_that_cannot_work_is_refused() {
    let (s, other) = (side(), side());
    let good = s.pz.allocate(8, Access::ALL).expect("memory");
    let foreign = other.pz.allocate(8, Access::ALL).expect("memory");
    let zone = s.ia.create_pz().expect("a PZ");
    let elsewhere = zone.allocate(8, Access::ALL).expect("memory");
    let constant = s.pz.allocate(8, Access::LOCAL_READ).expect("memory");
    for wrong in [&foreign, &elsewhere] {
        let error =
            s.ep.post_recv(&[wrong.slice(0..8)], 1)
                .expect_err("refused");
        assert!(matches!(error, PostError::OtherZone { .. }), "{error}");
        let error =
            s.ep.post_send(&[wrong.slice(0..8)], 1)
                .expect_err("refused");
        assert!(matches!(error, PostError::OtherZone { .. }), "{error}");
    }
    let error =
        s.ep.post_recv(&[constant.slice(0..8)], 1)
            .expect_err("refused");
    assert!(matches!(error, PostError::ReadOnly { .. }), "{error}");
    let deaf = s.ia.endpoint(&s.pz).request_evd(&s.done).create();
    let error = deaf.expect("an EP").post_recv(&[good.slice(0..8)], 1);
    let error = error.expect_err("refused");
    assert!(matches!(error, PostError::NoEvd { .. }), "{error}");
    assert!(
        error.to_string().contains("no dispatcher for receives"),
        "{error}"
    );
    s.ep.post_recv(&[good.slice(0..8)], 1).expect("a good one");
}

#[test]
fn errors_are_matched_by_what_happened() {
    let (a, b) = pair();
    let region = a.pz.allocate(64, Access::ALL).expect("memory");
    let part = region.slice(0..8);
    let error = a.ep.post_send(&[part; 3], 1).expect_err("too many");
    assert!(
        matches!(
            error,
            PostError::TooManySegments {
                given: 3,
                most: 2,
                ..
            }
        ),
        "{error}"
    );
    let full = (0..100).find_map(|cookie| a.ep.post_recv(&[part], cookie).err());
    let full = full.expect("a full queue");
    assert!(matches!(full, PostError::QueueFull { .. }), "{full}");
    let queue = Queue::Receives;
    let full = Error::from(full);
    assert!(matches!(full, Error::QueueFull { queue: which, .. } if which == queue));
    assert!(full.to_string().contains("receives is full"), "{full}");

    a.done.set_waitable(false).expect("unwaitable");
    let error = a.done.wait(PATIENCE).expect_err("unwaitable");
    assert!(
        matches!(error, Error::State { .. } | Error::Interrupted { .. }),
        "{error}"
    );
    a.done.set_waitable(true).expect("waitable");

    b.ep.disconnect(Close::Abrupt).expect("disconnects");
    assert!(matches!(
        a.connections.wait(PATIENCE),
        Ok(Event::Ended { .. })
    ));
    let early = side().ep;
    let early = early.post_send(&[], 1).expect_err("not connected");
    assert!(matches!(early, PostError::NotConnected { .. }), "{early}");
    assert!(!early.is_connection_gone(), "{early}");
}

#[test]
fn bytes_that_nothing_else_can_touch_are_a_slice() {
    let (a, b) = (side(), side());
    let mut open = a.pz.allocate(16, Access::ALL).expect("memory");
    assert!(open.get_mut().is_none(), "peers may write");
    let own = Access::LOCAL_READ | Access::LOCAL_WRITE;
    let mut region = b.pz.allocate(16, own).expect("memory");
    region.get_mut().expect("exclusive").fill(3);
    let clone = region.clone();
    assert!(region.get_mut().is_none(), "a clone exists");
    drop(clone);
    b.ep.post_recv(&[region.slice(0..16)], 1).expect("posts");
    assert!(region.get_mut().is_none(), "it is posted");
    connect(&a, &b);
    open.write(0, b"0123456789abcdef");
    a.ep.post_send(&[open.slice(0..16)], 1).expect("posts");
    let done = b.done.wait_completion(PATIENCE).expect("received");
    assert_eq!(done.status, DtoStatus::Success);
    assert_eq!(region.get_mut().expect("complete"), b"0123456789abcdef");
}

/// A window stays open where another bind of it is flushed.
#[test]
fn bytes_that_a_window_opens_are_no_slice_after_another_bind_was_flushed() {
    let (a, b) = pair();
    let builder = b.ia.endpoint(&b.pz).recv_evd(&b.done);
    let builder = builder.request_evd(&b.done).connect_evd(&b.connections);
    let ended = Side {
        ep: builder.create().expect("an EP"),
        done: b.done.clone(),
        connections: b.connections.clone(),
        pz: b.pz.clone(),
        ia: b.ia.clone(),
    };
    connect(&side(), &ended);
    let end = ended.connections.wait(PATIENCE).expect("the peer is gone");
    assert!(matches!(end, Event::Ended { .. }), "{end:?}");

    let own = Access::LOCAL_READ | Access::LOCAL_WRITE;
    let memory = || b.pz.allocate(16, own).expect("memory");
    let (mut region, other) = (memory(), memory());
    let mut window = b.pz.create_rmr().expect("a window");
    let open = window.bind(&region, 0..16, Access::REMOTE_WRITE, &b.ep, 1);
    let open = open.expect("binds");
    b.done.wait_completion(PATIENCE).expect("bound");
    let bound = window.bind(&other, 0..16, Access::REMOTE_WRITE, &ended.ep, 2);
    bound.expect("is posted");
    let flushed = b.done.wait_completion(PATIENCE);
    flushed.expect_err("the connection has ended");

    let message = a.pz.allocate(16, Access::ALL).expect("memory");
    message.write(0, b"0123456789abcdef");
    let none = CompletionFlags::empty();
    a.ep.post_rdma_write(&[message.slice(0..16)], open, 3, none)
        .expect("posts");
    a.done.wait_completion(PATIENCE).expect("written");
    assert_eq!(region.to_vec(0..16), b"0123456789abcdef");
    assert!(region.get_mut().is_none(), "peers may write");
    drop(window);
    assert!(region.get_mut().is_some(), "the window is closed");
}

/// The adapter may write to a posted receive until dat_ep_free returns.
#[test]
fn bytes_of_a_receive_are_no_slice_while_its_endpoint_is_being_freed() {
    const BYTES: usize = 32 << 20;
    const STEP: usize = 64 << 10;
    let own = Access::LOCAL_READ | Access::LOCAL_WRITE;
    for _ in 0..10 {
        let (a, b) = pair();
        let message = a.pz.allocate(BYTES, own).expect("memory");
        message.write(0, &vec![0xff; BYTES]);
        let mut room = b.pz.allocate(BYTES, own).expect("memory");
        b.ep.post_recv(&[room.slice(0..BYTES)], 1).expect("posts");
        a.ep.post_send(&[message.slice(0..BYTES)], 2)
            .expect("posts");
        while room.load(STEP) == 0 {
            thread::yield_now();
        }
        let ep = b.ep;
        let dropping = thread::spawn(move || drop(ep));
        while room.get_mut().is_none() {}
        let places = || (0..BYTES).step_by(STEP).map(|at| room.load(at));
        let before: Vec<u8> = places().collect();
        thread::sleep(Duration::from_millis(5));
        assert!(places().eq(before), "the adapter has written since");
        dropping.join().expect("drops");
    }
}

/// Where a dispatcher is never empty, endpoints get handles of which events are queued. These must not count as events of theirs.
#[test]
fn late_events_of_a_handle_complete_no_post_of_the_next_endpoint() {
    const LATE: usize = 100;
    /// The provider uses a handle again when so many others have been freed after it.
    const OTHERS: usize = 4095;
    let ia = Ia::open("softrxe-lo").expect("opens");
    let done = ia.create_evd(1024, Streams::DTO).expect("an EVD");
    let connections = ia.create_evd(1024, Streams::CONNECTION).expect("an EVD");
    let pz = ia.create_pz().expect("a PZ");
    let endpoint = |pz: &Pz| {
        let builder = ia.endpoint(pz).recv_evd(&done).request_evd(&done);
        builder.connect_evd(&connections).create().expect("an EP")
    };
    let address = ia.attributes().expect("attributes").address;
    let ended: Vec<_> = (0..LATE).map(|_| endpoint(&pz)).collect();
    for ep in &ended {
        ep.connect(address, 31_999).start().expect("starts");
    }
    for _ in &ended {
        connections.wait(PATIENCE).expect("nothing listens");
    }
    for ep in &ended {
        ep.post_recv(&[], 1).expect("is flushed at once");
    }
    let many: Vec<_> = (0..2 * LATE).map(|_| endpoint(&pz)).collect();
    drop(ended);
    for _ in LATE..OTHERS {
        drop(endpoint(&pz));
    }
    // All of a sudden the provider has many handles to use again.
    drop(many);
    let own = Access::LOCAL_READ | Access::LOCAL_WRITE;
    let mut posted: Vec<_> = (0..4 * LATE)
        .map(|_| {
            let pz = ia.create_pz().expect("a PZ");
            let region = pz.allocate(16, own).expect("memory");
            let ep = endpoint(&pz);
            ep.post_recv(&[region.slice(0..16)], 3).expect("posts");
            (ep, region)
        })
        .collect();
    while done.poll().expect("polls").is_some() {}
    for (ep, region) in &mut posted {
        assert!(region.get_mut().is_none(), "it is posted to {}", ep.id());
    }
}

/// The event that waits notifies the new CNO before the call returns, and calls its agent.
#[test]
fn an_agent_may_change_the_cno_of_its_dispatcher() {
    let ia = Ia::open("softrxe-lo").expect("opens");
    let (former, cno) = (ia.create_cno(), ia.create_cno());
    let (former, cno) = (former.expect("a CNO"), cno.expect("a CNO"));
    let evd = ia.create_evd_on(&former, 16, Streams::SOFTWARE);
    let evd = evd.expect("an EVD");
    evd.post(7).expect("posts");
    let (done, ended) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let of_agent = evd.clone();
        let agent = move || of_agent.set_cno(None).expect("changes");
        cno.set_agent(Some(Box::new(agent))).expect("sets");
        evd.set_cno(Some(&cno)).expect("changes");
        done.send(()).expect("the test waits");
    });
    let ended = ended.recv_timeout(Duration::from_secs(20));
    ended.expect("a thread waits for a lock that it holds");
}
