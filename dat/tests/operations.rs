//! Operations beyond sends and RDMA, on the user engine that is built in.

mod common;

use std::collections::HashSet;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{PATIENCE, Side, connect, pair, side};
use udapl::{
    Access, Changes, Close, CompletionFlags, DATAGRAM_HEADER, DatagramEvent, DtoOp, Error, Event,
    Memory, Object, ObjectKind, Peer, PostError, Proxy, Remote, Streams,
};

const NONE: CompletionFlags = CompletionFlags::empty();

#[test]
fn regions_are_made_of_any_memory() {
    let (a, b) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("memory");
    std::fs::write(&path, [0; 8192]).expect("a file");
    let file = std::fs::File::options().read(true).write(true).open(path);
    let file = file.expect("a file");
    let mut sources = vec![
        Memory::from(vec![1_u8; 100]),
        Memory::mapped(8192).expect("mapped"),
        Memory::file(&file, 8192).expect("mapped"),
    ];
    match Memory::huge(1) {
        Ok(huge) => sources.push(huge),
        Err(error) => assert!(matches!(error, Error::OutOfMemory { .. }), "{error}"),
    }
    let message = a.pz.allocate(100, Access::ALL).expect("memory");
    message.write(0, &[9; 100]);
    let part = [message.slice(0..100)];
    for source in sources {
        let region = b.pz.register(source, Access::ALL).expect("registered");
        a.ep.post_rdma_write(&part, region.remote(0..100), 1, NONE)
            .expect("posts");
        a.done.wait_completion(PATIENCE).expect("written");
        assert_eq!(region.to_vec(0..100), [9; 100]);
        let info = region.info().expect("info");
        assert_eq!(
            (info.length, info.access),
            (region.len() as u64, Access::ALL)
        );
        let again = region.register_again(Access::REMOTE_READ | Access::LOCAL_READ);
        let again = again.expect("registered");
        drop(region);
        assert_ne!(again.remote(0..1).key, 0);
        a.ep.post_rdma_read(&part, again.remote(0..100), 2, NONE)
            .expect("posts");
        a.done.wait_completion(PATIENCE).expect("read");
    }
    if b.ia.attributes().expect("attributes").zero_based {
        let region =
            b.pz.register_zero_based(Memory::mapped(4096).expect("mapped"), Access::ALL);
        let region = region.expect("registered");
        let remote = region.remote(8..108);
        assert_eq!(remote.address, 8);
        a.ep.post_rdma_write(&part, remote, 3, NONE).expect("posts");
        a.done.wait_completion(PATIENCE).expect("written");
        assert_eq!(region.load(8), 9);
        // The segments of posts count from 0, too.
        let back = a.pz.allocate(100, Access::ALL).expect("memory");
        b.ep.post_rdma_write(&[region.slice(8..108)], back.remote(0..100), 4, NONE)
            .expect("posts");
        b.done.wait_completion(PATIENCE).expect("written");
        assert_eq!(back.to_vec(0..100), [9; 100]);
        b.ia.sync_rdma_read(&[region.slice(0..4096)])
            .expect("synchronised");
        let mut window = b.pz.create_rmr().expect("a window");
        let open = window.bind(&region, 200..300, Access::REMOTE_WRITE, &b.ep, 5);
        let open = open.expect("binds");
        b.done.wait_completion(PATIENCE).expect("bound");
        assert_eq!(open.address, 200);
        a.ep.post_rdma_write(&part, open, 6, NONE).expect("posts");
        a.done.wait_completion(PATIENCE).expect("written");
        assert_eq!(region.to_vec(200..300), [9; 100]);
    }
    let name = b"a name of forty bytes for shared memory!";
    let shared =
        b.pz.register_shared(Memory::mapped(4096).expect("mapped"), name, Access::ALL);
    assert_eq!(shared.expect("registered").len(), 4096);
    a.ia.sync_rdma_read(&part).expect("synchronised");
    a.ia.sync_rdma_write(&part).expect("synchronised");
}

#[test]
fn atomics_change_words_of_the_peer_and_of_this_side() {
    let (a, b) = pair();
    let rights = Access::ALL | Access::REMOTE_ATOMIC;
    let theirs = b.pz.allocate(64, rights).expect("memory");
    let old = a.pz.allocate(8, Access::ALL).expect("memory");
    theirs.store_u64(8, 40);
    let word = theirs.remote(8..16);
    a.ep.post_fetch_add(old.slice(0..8), word, 2, 1, NONE)
        .expect("posts");
    let done = a.done.wait_completion(PATIENCE).expect("added");
    assert_eq!((done.op, old.load_u64(0)), (DtoOp::FetchAdd, 40));
    assert_eq!(theirs.fetch_add_u64(8, 1), 42);
    for (expected, found) in [(7, 43), (43, 43)] {
        a.ep.post_compare_swap(old.slice(0..8), word, (expected, 1), 2, NONE)
            .expect("posts");
        a.done.wait_completion(PATIENCE).expect("compared");
        assert_eq!(old.load_u64(0), found);
    }
    assert_eq!(theirs.load_u64(8), 1);
}

#[test]
fn immediate_data_arrives_with_a_write() {
    let (a, b) = pair();
    let theirs = b.pz.allocate(64, Access::ALL).expect("memory");
    let ours = a.pz.allocate(64, Access::ALL).expect("memory");
    b.ep.post_recv(&[], 5).expect("posts");
    ours.write(0, b"data");
    let part = [ours.slice(0..4)];
    a.ep.post_rdma_write_immediate(&part, theirs.remote(0..4), 0xfeed, 6, NONE)
        .expect("posts");
    a.done.wait_completion(PATIENCE).expect("written");
    let told = b.done.wait_completion(PATIENCE).expect("received");
    assert_eq!((told.cookie, told.immediate), (5, 0xfeed));
    assert_eq!(told.op, DtoOp::ReceiveRdmaImmediate);
    assert_eq!(theirs.to_vec(0..4), b"data");
}

#[test]
fn windows_are_queried_and_closed() {
    let (a, b) = pair();
    let region = b.pz.allocate(64, Access::ALL).expect("memory");
    let mut window = b.pz.create_rmr().expect("a window");
    let open = window.bind(&region, 8..24, Access::REMOTE_WRITE, &b.ep, 1);
    let open = open.expect("binds");
    b.done.wait_completion(PATIENCE).expect("bound");
    let info = window.info().expect("info");
    assert_eq!((info.remote, info.access), (open, Access::REMOTE_WRITE));
    let message = a.pz.allocate(16, Access::ALL).expect("memory");
    let write = |to: Remote| {
        a.ep.post_rdma_write(&[message.slice(0..16)], to, 2, NONE)
            .expect("posts");
        a.done.wait_completion(PATIENCE)
    };
    write(open).expect("written");
    window.unbind(&b.ep, 3).expect("unbinds");
    b.done.wait_completion(PATIENCE).expect("unbound");
    assert!(write(open).is_err());
    // The window is dropped after its region.
    drop(region);
}

#[test]
fn endpoints_share_a_receive_queue() {
    let server = side();
    let srq = server.ia.create_srq(&server.pz, 16, 2).expect("an SRQ");
    let room = server.pz.allocate(8 * 64, Access::ALL).expect("memory");
    for slot in 0..8 {
        srq.post_recv(&[room.slice(slot * 64..slot * 64 + 64)], slot as u64)
            .expect("posts");
    }
    let constant = server.pz.allocate(8, Access::LOCAL_READ).expect("memory");
    let refused = srq.post_recv(&[constant.slice(0..8)], 9);
    assert!(matches!(refused, Err(PostError::ReadOnly { .. })));
    let clients: Vec<(Side, udapl::Ep)> = (0..2)
        .map(|_| {
            let client = side();
            let builder = server.ia.endpoint(&server.pz).srq(&srq);
            let builder = builder.recv_evd(&server.done).request_evd(&server.done);
            let ep = builder.connect_evd(&server.connections).create();
            let ep = ep.expect("an EP");
            let refused = ep.post_recv(&[room.slice(0..8)], 1);
            assert!(matches!(refused, Err(PostError::HasSrq { .. })));
            let at = Side {
                ep: ep.clone(),
                done: server.done.clone(),
                connections: server.connections.clone(),
                pz: server.pz.clone(),
                ia: server.ia.clone(),
            };
            connect(&client, &at);
            (client, ep)
        })
        .collect();
    for (client, ep) in &clients {
        let message = client.pz.allocate(4, Access::ALL).expect("memory");
        client
            .ep
            .post_send(&[message.slice(0..4)], 1)
            .expect("posts");
        client.done.wait_completion(PATIENCE).expect("sent");
        let done = server.done.wait_completion(PATIENCE).expect("received");
        assert_eq!((done.ep, done.length), (ep.id(), 4));
    }
    let info = srq.info().expect("info");
    assert_eq!((info.max_recv >= 16, info.max_segments >= 2), (true, true));
    srq.resize(32).expect("resized");
    srq.set_low_watermark(6).expect("set");
    let (client, ep) = &clients[0];
    let message = client.pz.allocate(4, Access::ALL).expect("memory");
    client
        .ep
        .post_send(&[message.slice(0..4)], 1)
        .expect("posts");
    server.done.wait_completion(PATIENCE).expect("received");
    let event = server.ia.async_evd().wait(PATIENCE);
    assert!(matches!(event, Ok(Event::Async { .. })), "{event:?}");
    let used = ep.receive_use().expect("known");
    assert!(used.in_use.is_none_or(|count| count <= 8));
    match ep.set_watermark(Some(4), Some(8)) {
        Ok(()) | Err(Error::Unsupported { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    // Its receives are not used up: the region stays until the queue is dropped.
    drop(room);
}

#[test]
fn requests_reach_reserved_endpoints_and_are_handed_on() {
    let (a, b) = (side(), side());
    let listener = b.ia.listen(None, &b.connections).expect("listens");
    let address = b.ia.attributes().expect("attributes").address;
    let reserved = b.ia.listen_reserved(0x7701, &b.ep, &b.connections);
    let reserved = reserved.expect("reserved");
    assert_eq!(reserved.query().expect("known"), 0x7701);
    assert_eq!(listener.query().expect("known"), listener.conn_qual());
    let attempt = a.ep.connect(address, listener.conn_qual());
    attempt
        .private_data(b"on")
        .timeout(PATIENCE)
        .start()
        .expect("starts");
    let Ok(Event::Request(request)) = b.connections.wait(PATIENCE) else {
        panic!("no request")
    };
    assert_eq!(request.kind().expect("a kind"), ObjectKind::ConnRequest);
    request.hand_off(0x7701).expect("handed on");
    let Ok(Event::Request(request)) = b.connections.wait(PATIENCE) else {
        panic!("no second request")
    };
    assert_eq!(request.conn_qual(), 0x7701);
    assert!(request.private_data().starts_with(b"on"));
    request.accept_reserved(b"").expect("accepts");
    for side in [&a, &b] {
        let event = side.connections.wait(PATIENCE);
        assert!(
            matches!(event, Ok(Event::Established { ep, .. }) if ep == side.ep.id()),
            "{event:?}"
        );
    }
    let info = a.ep.info().expect("info");
    assert_eq!(info.remote.map(|at| at.ip()), Some(address));
    assert_eq!(reserved.ep().id(), b.ep.id());

    // Another attempt at the same peer.
    let again = side();
    let attempt = again.ep.connect_as(&a.ep).timeout(PATIENCE);
    attempt.start().expect("starts");
    let Ok(Event::Request(request)) = b.connections.wait(PATIENCE) else {
        panic!("no request")
    };
    request.reject(b"enough").expect("rejects");
    let event = again.connections.wait(PATIENCE);
    assert!(matches!(event, Ok(Event::PeerRejected { .. })), "{event:?}");
}

#[test]
fn dispatchers_notify_descriptors_agents_and_threads() {
    let s = side();
    let notify = s.ia.create_notify_fd().expect("a descriptor");
    assert_eq!(notify.cno().proxy().expect("known"), Proxy::Fd);
    let evd =
        s.ia.create_evd_on(notify.cno(), 8, Streams::SOFTWARE)
            .expect("an EVD");
    let ready = |wait: i32| {
        let mut poll = libc::pollfd {
            fd: notify.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor, which lives.
        unsafe { libc::poll(&raw mut poll, 1, wait) == 1 }
    };
    assert!(evd.poll().expect("polls").is_none() && !ready(0));
    evd.post(1).expect("posts");
    assert!(ready(10_000));
    assert!(notify.take().expect("takes") && !notify.take().expect("takes") && !ready(0));
    assert!(matches!(evd.poll(), Ok(Some(Event::Software(1)))));
    assert!(evd.poll().expect("polls").is_none());
    evd.enable(false).expect("disabled");
    evd.post(2).expect("posts");
    assert!(!ready(0) && !evd.info().expect("info").is_enabled);
    evd.enable(true).expect("enabled");

    let cno = s.ia.create_cno().expect("a CNO");
    evd.set_cno(Some(&cno)).expect("moved");
    while evd.poll().expect("polls").is_some() {}
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    cno.set_agent(Some(Box::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    })))
    .expect("set");
    evd.post(3).expect("posts");
    while calls.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(cno.wait(PATIENCE).expect("notified").is(&evd));
    let held = Arc::new(());
    for _ in 0..2 {
        let held = Arc::clone(&held);
        let agent = move || drop(held);
        cno.set_agent(Some(Box::new(agent))).expect("set");
    }
    assert_eq!(Arc::strong_count(&held), 2, "the first one is dropped");
    cno.set_agent(None).expect("removed");
    assert_eq!(Arc::strong_count(&held), 1);
    evd.set_cno(None).expect("removed");

    while evd.poll().expect("polls").is_some() {}
    for value in 0..3 {
        evd.post(value).expect("posts");
    }
    let (first, more) = evd.wait_for(3, PATIENCE).expect("three");
    assert!(matches!(first, Event::Software(0)) && more == 2);
    evd.resize(64).expect("resized");
    assert!(evd.info().expect("info").queue >= 64);
}

#[test]
fn endpoints_are_queried_and_changed() {
    let s = side();
    let info = s.ep.info().expect("info");
    assert_eq!(info.state, udapl::EpState::Unconnected);
    assert_eq!(info.limits.max_recv_segments, 2);
    let other = s.ia.create_evd(32, Streams::DTO).expect("an EVD");
    let changes = Changes {
        recv_evd: Some(&other),
        max_recv: Some(20),
        max_recv_segments: Some(3),
        ..Changes::default()
    };
    s.ep.modify(&changes).expect("changed");
    assert_eq!(s.ep.info().expect("info").limits.max_recv_segments, 3);
    let room = s.pz.allocate(8, Access::ALL).expect("memory");
    let part = room.slice(0..2);
    for cookie in 0..20 {
        s.ep.post_recv(&[part; 3], cookie).expect("posts");
    }
    let (_, no_receives, no_requests) = s.ep.status().expect("status");
    assert!(!no_receives && no_requests);
    let zone = s.ia.create_pz().expect("a PZ");
    assert!(zone.is_of_ia().expect("known"));
    let moved =
        s.ia.endpoint(&s.pz)
            .recv_evd(&s.done)
            .create()
            .expect("an EP");
    let changes = Changes {
        pz: Some(&zone),
        ..Changes::default()
    };
    moved.modify(&changes).expect("changed");
    assert!(matches!(
        moved.post_recv(&[part], 1),
        Err(PostError::OtherZone { .. })
    ));

    s.ep.set_context(99).expect("set");
    assert_eq!(
        (s.ep.context().expect("set"), s.ep.kind().expect("known")),
        (99, ObjectKind::Ep)
    );
    assert_eq!(room.kind().expect("known"), ObjectKind::Region);
    assert!(!s.ia.is_ha_related("softrxe").expect("known"));
    assert_eq!(
        udapl::attributes_of("softrxe-lo").expect("known").max_eps,
        s.ia.attributes().expect("known").max_eps
    );
}

/// Returns a datagram endpoint in place of the side's own.
fn datagram_side() -> Side {
    let mut s = side();
    let builder = s.ia.endpoint(&s.pz).datagrams().recv_evd(&s.done);
    let builder = builder.request_evd(&s.done).connect_evd(&s.connections);
    let ep = builder.create().expect("an EP");
    s.ep = ep;
    s
}

#[test]
fn datagrams_reach_a_peer_that_was_looked_up() {
    let (a, b) = (datagram_side(), datagram_side());
    let listener = b.ia.listen(None, &b.connections).expect("listens");
    let address = b.ia.attributes().expect("attributes").address;
    let attempt = a.ep.connect(address, listener.conn_qual());
    attempt.private_data(b"who").start().expect("starts");
    let Ok(Event::Request(request)) = b.connections.wait(PATIENCE) else {
        panic!("no request")
    };
    assert!(request.is_datagram() && request.private_data().starts_with(b"who"));
    request.accept(&b.ep, b"me").expect("accepts");
    let peer = |side: &Side| -> Peer {
        match side.connections.wait(PATIENCE) {
            Ok(Event::Datagram {
                ep,
                how: DatagramEvent::Established,
                peer: Some(peer),
                ..
            }) => {
                assert_eq!(ep, side.ep.id());
                peer
            }
            other => panic!("{other:?}"),
        }
    };
    let (of_b, of_a) = (peer(&a), peer(&b));
    assert_eq!(of_b.socket_address().map(|at| at.ip()), Some(address));
    let room = b.pz.allocate(128, Access::ALL).expect("memory");
    b.ep.post_recv(&[room.slice(0..128)], 1).expect("posts");
    let message = a.pz.allocate(8, Access::ALL).expect("memory");
    message.write(0, b"datagram");
    a.ep.post_send_datagram(&[message.slice(0..8)], &of_b, 2, NONE)
        .expect("posts");
    a.done.wait_completion(PATIENCE).expect("sent");
    let got = b.done.wait_completion(PATIENCE).expect("received");
    assert_eq!(got.length as usize, DATAGRAM_HEADER + 8);
    assert_eq!(
        room.to_vec(DATAGRAM_HEADER..DATAGRAM_HEADER + 8),
        b"datagram"
    );
    a.ep.forget_peer(&of_b).expect("given back");
    b.ep.forget_peer(&of_a).expect("given back");
    assert_ne!(of_a.queue_pair(), 0);
}

#[test]
fn a_connection_that_ends_is_seen_by_both_sides() {
    let (a, b) = pair();
    a.ep.disconnect(Close::Graceful).expect("disconnects");
    for side in [&a, &b] {
        let event = side.connections.wait(PATIENCE);
        assert!(
            matches!(event, Ok(Event::Ended { ep, .. }) if ep == side.ep.id()),
            "{event:?}"
        );
    }
    a.ep.reset().expect("reset");
    b.ep.reset().expect("reset");
    connect(&a, &b);
}

#[test]
fn a_chosen_qualifier_is_seldom_one_that_was_just_released() {
    let s = side();
    let chosen = (0..8).map(|_| {
        let listener = s.ia.listen(None, &s.connections).expect("listens");
        listener.conn_qual()
    });
    let chosen: HashSet<u64> = chosen.collect();
    // A request that is sent once more would find the next listener.
    assert!(chosen.len() > 4, "{chosen:?}");
    assert!(chosen.iter().all(|qual| (49_152..=65_535).contains(qual)));
}

#[test]
fn a_request_is_accepted_long_after_its_listener_has_gone() {
    let (active, passive) = (side(), side());
    let listener = passive.ia.listen(None, &passive.connections);
    let listener = listener.expect("listens");
    let qual = listener.conn_qual();
    let address = passive.ia.attributes().expect("attributes").address;
    let attempt = active.ep.connect(address, qual);
    attempt.timeout(PATIENCE).start().expect("starts");
    let Ok(Event::Request(request)) = passive.connections.wait(PATIENCE) else {
        panic!("no request")
    };
    drop(listener);
    let listens = |side: &Side| side.ia.listen(Some(qual), &side.connections).map(drop);
    listens(&active).expect_err("the request still uses the qualifier");
    listens(&passive).expect("the adapter that has the request may listen again");
    // The peer repeats its request meanwhile.
    std::thread::sleep(Duration::from_secs(4));
    request.accept(&passive.ep, b"").expect("accepts");
    for side in [&active, &passive] {
        match side.connections.wait(PATIENCE) {
            Ok(Event::Established { ep, .. }) => assert_eq!(ep, side.ep.id()),
            other => panic!("not established: {other:?}"),
        }
    }
    let begin = Instant::now();
    while listens(&active).is_err() {
        assert!(begin.elapsed() < PATIENCE, "the qualifier is free again");
    }
}

#[test]
fn a_lookup_is_answered_long_after_its_listener_has_gone() {
    let (a, b) = (datagram_side(), datagram_side());
    let listener = b.ia.listen(None, &b.connections).expect("listens");
    let address = b.ia.attributes().expect("attributes").address;
    let attempt = a.ep.connect(address, listener.conn_qual());
    attempt.timeout(PATIENCE).start().expect("starts");
    let Ok(Event::Request(request)) = b.connections.wait(PATIENCE) else {
        panic!("no request")
    };
    drop(listener);
    // The lookup is repeated meanwhile.
    std::thread::sleep(Duration::from_secs(4));
    request.accept(&b.ep, b"").expect("accepts");
    match a.connections.wait(PATIENCE) {
        Ok(Event::Datagram { how, .. }) => assert_eq!(how, DatagramEvent::Established),
        other => panic!("{other:?}"),
    }
}
