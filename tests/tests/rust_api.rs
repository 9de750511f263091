//! The Rust API over the loopback provider, which a dat.conf names.

use std::path::Path;
use std::time::Duration;

use dat::{
    Access, Close, CompletionFlags, CounterType, DtoOp, DtoStatus, Ep, EpCounter, Evd, EvdCounter,
    Event, Ia, IaCounter, Pz, Remote, Streams,
};

const PATIENCE: Duration = Duration::from_secs(10);
fn with_loopback(name: &str, body: impl FnOnce()) {
    let line = |ia: &str, library: &Path| dat_tests::line(ia, library, "127.0.0.1 0");
    let lines =
        || line("loop", &dat_tests::loopback()) + &line("gone", Path::new("/nowhere/lib.so"));
    dat_tests::inside(name, lines, body);
}

struct Side {
    ep: Ep,
    done: Evd,
    connections: Evd,
    pz: Pz,
    ia: Ia,
}

fn side() -> Side {
    let ia = Ia::open("loop").expect("the IA opens");
    let pz = ia.create_pz().expect("a PZ");
    let done = ia
        .create_evd(64, Streams::DTO | Streams::RMR_BIND)
        .expect("an EVD");
    let connections = ia
        .create_evd(16, Streams::CR | Streams::CONNECTION)
        .expect("an EVD");
    let builder = ia
        .endpoint(&pz)
        .recv_evd(&done)
        .request_evd(&done)
        .connect_evd(&connections);
    let ep = builder
        .max_recv(8)
        .max_requests(8)
        .max_segments(2)
        .create()
        .expect("an EP");
    Side {
        ep,
        done,
        connections,
        pz,
        ia,
    }
}

/// Returns two connected sides; the active one first.
fn pair() -> (Side, Side) {
    let (active, passive) = (side(), side());
    let listener = passive
        .ia
        .listen(None, &passive.connections)
        .expect("listens");
    let address = passive.ia.attributes().expect("attributes").address;
    active
        .ep
        .connect(address, listener.conn_qual())
        .private_data(b"hello")
        .timeout(PATIENCE)
        .start()
        .expect("starts");
    let Ok(Event::Request(request)) = passive.connections.wait(PATIENCE) else {
        panic!("no request")
    };
    assert!(request.private_data().starts_with(b"hello"));
    request.accept(&passive.ep, b"welcome").expect("accepts");
    for (side, words) in [(&active, &b"welcome"[..]), (&passive, b"")] {
        match side.connections.wait(PATIENCE) {
            Ok(Event::Established { ep, private_data }) => {
                assert_eq!(ep, side.ep.id());
                assert!(private_data.starts_with(words));
            }
            other => panic!("not established: {other:?}"),
        }
    }
    (active, passive)
}

#[test]
fn every_way_of_moving_data() {
    with_loopback("every_way_of_moving_data", || {
        let (a, b) = pair();
        let ours = a.pz.allocate(4096, Access::ALL).expect("memory");
        let theirs = b.pz.allocate(4096, Access::ALL).expect("memory");
        b.ep.post_recv(&[theirs.slice(0..100)], 7).expect("posts");
        ours.write(0, b"a message in two pieces");
        a.ep.post_send(&[ours.slice(0..9), ours.slice(9..23)], 8)
            .expect("posts");
        let sent = a.done.wait_completion(PATIENCE).expect("sent");
        assert_eq!((sent.cookie, sent.length, sent.ep), (8, 23, a.ep.id()));
        let received = b.done.wait_completion(PATIENCE).expect("received");
        assert_eq!((received.cookie, received.length), (7, 23));
        assert_eq!(theirs.to_vec(0..23), b"a message in two pieces");

        let remote = theirs.remote(1000..1100);
        ours.write(0, &[5; 100]);
        a.ep.post_rdma_write(&[ours.slice(0..100)], remote, 9, CompletionFlags::empty())
            .expect("posts");
        a.done.wait_completion(PATIENCE).expect("written");
        assert_eq!(
            (
                theirs.load(999),
                theirs.load(1000),
                theirs.load(1099),
                theirs.load(1100)
            ),
            (0, 5, 5, 0)
        );
        theirs.write(1000, &[6; 100]);
        a.ep.post_rdma_read(
            &[ours.slice(200..300)],
            remote,
            10,
            CompletionFlags::empty(),
        )
        .expect("posts");
        a.done.wait_completion(PATIENCE).expect("read");
        assert_eq!(ours.to_vec(200..300), [6; 100]);

        let mut window = b.pz.create_rmr().expect("a window");
        let part = window
            .bind(&theirs, 2000..2010, Access::REMOTE_WRITE, &b.ep, 11)
            .expect("binds");
        assert_eq!(b.done.wait_completion(PATIENCE).expect("bound").cookie, 11);
        a.ep.post_rdma_write(&[ours.slice(0..10)], part, 12, CompletionFlags::empty())
            .expect("posts");
        a.done
            .wait_completion(PATIENCE)
            .expect("written through the window");
        let beyond = Remote { length: 11, ..part };
        a.ep.post_rdma_write(&[ours.slice(0..11)], beyond, 13, CompletionFlags::empty())
            .expect("posts");
        match a.done.wait(PATIENCE) {
            Ok(Event::Completion(done)) => assert_eq!(done.status, DtoStatus::RemoteAccess),
            other => panic!("{other:?}"),
        }
        assert_eq!(
            theirs.to_vec(2000..2012),
            [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0, 0]
        );
    });
}

#[test]
fn rejects_disconnects_and_lets_go_in_any_order() {
    with_loopback("rejects_disconnects_and_lets_go_in_any_order", || {
        let (active, passive) = (side(), side());
        let listener = passive
            .ia
            .listen(None, &passive.connections)
            .expect("listens");
        let address = passive.ia.attributes().expect("attributes").address;
        active
            .ep
            .connect(address, listener.conn_qual())
            .start()
            .expect("starts");
        let Ok(Event::Request(request)) = passive.connections.wait(PATIENCE) else {
            panic!("no request")
        };
        request.reject(b"no").expect("rejects");
        match active.connections.wait(PATIENCE) {
            Ok(Event::PeerRejected { private_data, .. }) => {
                assert!(private_data.starts_with(b"no"));
            }
            other => panic!("{other:?}"),
        }
        // A dropped request is refused too.
        active.ep.reset().expect("resets");
        active
            .ep
            .connect(address, listener.conn_qual())
            .start()
            .expect("starts");
        drop(passive.connections.wait(PATIENCE).expect("a request"));
        assert!(matches!(
            active.connections.wait(PATIENCE),
            Ok(Event::PeerRejected { .. } | Event::Ended { .. })
        ));

        let (a, b) = pair();
        let region = a.pz.allocate(64, Access::ALL).expect("memory");
        a.ep.post_recv(&[region.slice(0..64)], 1).expect("posts");
        b.ep.disconnect(Close::Graceful).expect("disconnects");
        assert!(matches!(
            a.connections.wait(PATIENCE),
            Ok(Event::Ended { .. })
        ));
        match a.done.wait(PATIENCE) {
            Ok(Event::Completion(done)) => {
                assert_eq!((done.cookie, done.status), (1, DtoStatus::Flushed));
            }
            other => panic!("{other:?}"),
        }
        // The adapter is dropped first, the region last: each object keeps those alive that it depends on.
        let Side {
            ep,
            done,
            connections,
            pz,
            ia,
        } = a;
        drop(ia);
        drop(pz);
        drop(done);
        drop(connections);
        drop(ep);
        region.write(0, b"still ours");
        assert_eq!(region.to_vec(0..5), b"still");
    });
}

#[test]
fn errors_name_the_call_and_nothing_there_is_none() {
    with_loopback("errors_name_the_call_and_nothing_there_is_none", || {
        let error = Ia::open("nobody").expect_err("there is none").to_string();
        assert!(
            error.contains("\"nobody\"") && error.contains("loop, gone"),
            "{error}"
        );
        let error = Ia::open("gone").expect_err("no library").to_string();
        assert!(error.contains("/nowhere/lib.so"), "{error}");
        let side = side();
        assert!(side.done.poll().expect("polls").is_none());
        assert!(
            side.done
                .wait(Duration::from_millis(1))
                .expect_err("nothing comes")
                .is_empty()
        );
        let region = side.pz.allocate(8, Access::ALL).expect("memory");
        let error = side
            .ep
            .post_send(&[region.slice(0..8)], 1)
            .expect_err("not connected")
            .to_string();
        assert!(
            error.contains("dat_ep_post_send") && error.contains("DAT_INVALID_STATE"),
            "{error}"
        );
        let events = side.ia.create_evd(4, Streams::SOFTWARE).expect("an EVD");
        events.post(77).expect("posts");
        assert!(matches!(events.wait(PATIENCE), Ok(Event::Software(77))));
    });
}

#[test]
fn connections_by_socket_address_are_counted_on_both_sides() {
    with_loopback(
        "connections_by_socket_address_are_counted_on_both_sides",
        || {
            let (a, b) = (side(), side());
            let listener = b.ia.listen_common(0, &b.connections).expect("listens");
            let at = listener.address();
            assert_ne!(at.port(), 0);
            let taken = b.ia.listen_common(at.port(), &b.connections);
            let taken = taken.expect_err("the port is in use").to_string();
            assert!(taken.contains("dat_csp_create"), "{taken}");
            let attempt = a.ep.connect_common(at).private_data(b"hello");
            attempt.timeout(PATIENCE).start().expect("starts");
            let Ok(Event::Request(request)) = b.connections.wait(PATIENCE) else {
                panic!("no request")
            };
            assert!(request.private_data().starts_with(b"hello"));
            request.accept(&b.ep, b"").expect("accepts");
            for side in [&a, &b] {
                let event = side.connections.wait(PATIENCE);
                assert!(matches!(event, Ok(Event::Established { .. })), "{event:?}");
            }

            let memory = a.pz.allocate(64, Access::ALL).expect("memory");
            let room = b.pz.allocate(64, Access::ALL).expect("memory");
            b.ep.post_recv(&[room.slice(0..64)], 1).expect("posts");
            a.ep.post_send(&[memory.slice(0..40)], 2).expect("posts");
            a.done.wait_completion(PATIENCE).expect("sent");
            b.done.wait_completion(PATIENCE).expect("received");
            let sent = a.ep.counters().expect("counters");
            let of = |counter| sent.get(counter);
            assert_eq!(of(EpCounter::PostSend), 1, "{sent:?}");
            assert_eq!(of(EpCounter::PostSendData), 40, "{sent:?}");
            assert_eq!(of(EpCounter::Recv), 0, "{sent:?}");
            assert_eq!(format!("{sent:?}").matches("POST_SEND").count(), 2);
            let received = b.ep.take_counters().expect("counters");
            assert_eq!(received.get(EpCounter::RecvData), 40, "{received:?}");
            let anew = b.ep.counters().expect("counters");
            assert!(anew.iter().all(|(_, value)| value == 0), "{anew:?}");
            let of_ia = b.ia.counters().expect("counters");
            assert_eq!(of_ia.get(IaCounter::CmPassiveEst), 1, "{of_ia:?}");
            assert_eq!(of_ia.get(IaCounter::PzCreate), 1, "{of_ia:?}");
            let waits = a.done.counters().expect("counters");
            // The completion was there, and a wait takes that by dat_evd_dequeue.
            assert_eq!(waits.get(EvdCounter::DequeueFound), 1, "{waits:?}");
            assert_eq!(waits.get(EvdCounter::Wait), 0, "{waits:?}");
            let none = a.done.wait_completion(Duration::from_millis(1));
            assert!(matches!(none, Err(dat::Error::TimedOut { .. })), "{none:?}");
            let waits = a.done.counters().expect("counters");
            assert_eq!(waits.get(EvdCounter::Wait), 1, "{waits:?}");

            // Stopped counters keep their values.
            b.ia.run_counters(CounterType::Cm, false).expect("stops");
            drop(listener);
            let before = b.ia.counters().expect("counters");
            b.ep.disconnect(Close::Graceful).expect("disconnects");
            for side in [&a, &b] {
                let event = side.connections.wait(PATIENCE);
                assert!(matches!(event, Ok(Event::Ended { .. })), "{event:?}");
            }
            let after = b.ia.counters().expect("counters");
            let dreq = IaCounter::CmDreqTx;
            assert_eq!(before.get(dreq), after.get(dreq));
            assert_eq!(
                a.ia.counters().expect("counters").get(IaCounter::CmDreqRx),
                1
            );
        },
    );
}

#[test]
fn a_peer_closes_the_window_that_was_opened_for_it() {
    with_loopback("a_peer_closes_the_window_that_was_opened_for_it", || {
        let (a, b) = pair();
        let ours = a.pz.allocate(64, Access::ALL).expect("memory");
        let theirs = b.pz.allocate(64, Access::ALL).expect("memory");
        let mut window = b.pz.create_rmr_for_ep().expect("a window");
        let part = window
            .bind(&theirs, 8..16, Access::REMOTE_WRITE, &b.ep, 1)
            .expect("binds");
        b.done.wait_completion(PATIENCE).expect("bound");
        ours.write(0, &[3; 8]);
        let write = |cookie| {
            let slices = [ours.slice(0..8)];
            let posted =
                a.ep.post_rdma_write(&slices, part, cookie, CompletionFlags::empty());
            posted.expect("posts");
            a.done.wait(PATIENCE)
        };
        assert!(
            matches!(write(2), Ok(Event::Completion(done)) if done.status == DtoStatus::Success)
        );
        assert_eq!(theirs.to_vec(7..17), [0, 3, 3, 3, 3, 3, 3, 3, 3, 0]);
        b.ep.post_recv(&[theirs.slice(32..64)], 3).expect("posts");
        a.ep.post_send_with_invalidate(&[ours.slice(0..8)], part, 4)
            .expect("posts");
        a.done.wait_completion(PATIENCE).expect("sent");
        let told = b.done.wait_completion(PATIENCE).expect("received");
        assert_eq!((told.cookie, told.op), (3, DtoOp::ReceiveWithInvalidate));
        ours.write(0, &[4; 8]);
        assert!(
            matches!(write(5), Ok(Event::Completion(done)) if done.status == DtoStatus::RemoteAccess)
        );
        assert_eq!(theirs.to_vec(8..16), [3; 8]);
    });
}
