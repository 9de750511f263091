//! Work that rdma_rxe flushes: receives that are posted while the peer ends the connection complete, and a connection whose queue pair has
//! failed ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dat::{
    Access, Close, CompletionFlags, ConnectionEvent, DtoStatus, Ep, Event, PostError, Remote,
    Streams,
};
use dat_tests::socket_cm::{PATIENCE, side, with_params};

/// Receives of an endpoint. More than fit into the time between the disconnect and its event.
const RECEIVES: u32 = 8192;
const CONNECTIONS: u32 = 20;

/// Posts receives until it is told to stop; returns how many.
fn post(ep: &Ep, stop: &AtomicBool) -> u32 {
    let mut posted = 0;
    while !stop.load(Ordering::Relaxed) && posted < RECEIVES {
        match ep.post_recv(&[], 0) {
            Ok(()) => posted += 1,
            Err(PostError::QueueFull { .. }) => std::thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    }
    posted
}

fn each_receive_completes() {
    let (mut active, mut passive) = (side(), side());
    let done = passive.ia.create_evd(2 * RECEIVES, Streams::DTO);
    passive.done = done.expect("an EVD");
    let listener = passive.listen();
    for connection in 0..CONNECTIONS {
        active.renew();
        let ends = passive.ia.endpoint(&passive.pz).recv_evd(&passive.done);
        let ends = ends.request_evd(&passive.done).max_recv(RECEIVES);
        let ends = ends.connect_evd(&passive.connections).create();
        passive.ep = ends.expect("an EP");
        active.connect(listener.conn_qual(), b"");
        passive.request().accept(&passive.ep, b"").expect("accepts");
        for side in [&active, &passive] {
            let event = side.connections.wait(PATIENCE).expect("an event");
            assert!(matches!(event, Event::Established { .. }), "{event:?}");
        }
        let stop = AtomicBool::new(false);
        let posted = std::thread::scope(|scope| {
            let posts = scope.spawn(|| post(&passive.ep, &stop));
            active.ep.disconnect(Close::Abrupt).expect("disconnects");
            passive.ended(ConnectionEvent::Disconnected);
            stop.store(true, Ordering::Relaxed);
            posts.join().expect("posts")
        });
        active.ended(ConnectionEvent::Disconnected);
        let (mut completed, begin) = (0, Instant::now());
        while completed < posted {
            match passive.done.poll().expect("an EVD") {
                Some(Event::Completion(_)) => completed += 1,
                Some(other) => panic!("{other:?}"),
                None => assert!(
                    begin.elapsed() < PATIENCE,
                    "connection {connection}: {completed} of {posted} receives completed"
                ),
            }
        }
    }
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn receives_that_are_posted_at_the_end_complete_over_sockets() {
    let name = "receives_that_are_posted_at_the_end_complete_over_sockets";
    with_params(name, "v0 0 cm=socket", each_receive_completes);
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn receives_that_are_posted_at_the_end_complete_over_rdma_cm() {
    let name = "receives_that_are_posted_at_the_end_complete_over_rdma_cm";
    with_params(name, "v0 0", each_receive_completes);
}

/// The device refuses a request of the peer, whose program does not take the completion. Here only flushed completions come.
fn a_refusal_ends_the_connection() {
    let (active, passive) = (side(), side());
    let listener = passive.listen();
    passive.ep.post_recv(&[], 1).expect("posts");
    active.connect(listener.conn_qual(), b"");
    passive.request().accept(&passive.ep, b"").expect("accepts");
    for side in [&active, &passive] {
        let event = side.connections.wait(PATIENCE).expect("an event");
        assert!(matches!(event, Event::Established { .. }), "{event:?}");
    }
    let bytes = active.pz.allocate(100, Access::LOCAL_READ).expect("an LMR");
    let nowhere = Remote {
        address: 0x1000,
        length: 100,
        key: 0x77,
    };
    let (slices, flags) = ([bytes.slice(0..100)], CompletionFlags::empty());
    let posted = active.ep.post_rdma_write(&slices, nowhere, 2, flags);
    posted.expect("posts");
    match passive.done.wait(PATIENCE) {
        Ok(Event::Completion(done)) => assert_eq!(done.status, DtoStatus::Flushed),
        other => panic!("the receive did not come back: {other:?}"),
    }
    passive.ended(ConnectionEvent::Broken);
    active.ended(ConnectionEvent::Disconnected);
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_queue_pair_that_refuses_a_request_ends_the_connection_over_sockets() {
    let name = "a_queue_pair_that_refuses_a_request_ends_the_connection_over_sockets";
    with_params(name, "v0 0 cm=socket", a_refusal_ends_the_connection);
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_queue_pair_that_refuses_a_request_ends_the_connection_over_rdma_cm() {
    let name = "a_queue_pair_that_refuses_a_request_ends_the_connection_over_rdma_cm";
    with_params(name, "v0 0", a_refusal_ends_the_connection);
}
