//! Safe code must not have memory that something else uses too, or that is freed.
#![cfg(feature = "softrxe")]

mod common;

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{PATIENCE, Side, side};
use udapl::{Access, ConnRequest, EpState, Event, Ia, IaCounter, Region, ReservedListener};

const LOCAL: Access = Access::LOCAL_READ.union(Access::LOCAL_WRITE);

/// Returns a client that connects, the reserved service point of a server, and memory into which the server's endpoint receives.
fn reserved() -> (Side, Side, ReservedListener, Region) {
    let (client, server) = (side(), side());
    let address = server.ia.attributes().expect("attributes").address;
    let room = server.pz.allocate(64, LOCAL).expect("memory");
    let posted = server.ep.post_recv(&[room.slice(0..64)], 1);
    posted.expect("posted");
    // The tests may run at the same time.
    static NEXT: AtomicU64 = AtomicU64::new(0x7711);
    let qualifier = NEXT.fetch_add(1, Ordering::Relaxed);
    let service = server
        .ia
        .listen_reserved(qualifier, &server.ep, &server.connections);
    let service = service.expect("reserved");
    let attempt = client.ep.connect(address, qualifier).timeout(PATIENCE);
    attempt.start().expect("starts");
    (client, server, service, room)
}

fn request(server: &Side) -> ConnRequest {
    match server.connections.wait(PATIENCE) {
        Ok(Event::Request(request)) => request,
        other => panic!("no request: {other:?}"),
    }
}

/// The provider does not free an endpoint whose request waits for an answer.
#[test]
fn memory_belongs_to_the_receive_of_a_dropped_endpoint_that_may_still_be_accepted() {
    let (client, server, service, mut room) = reserved();
    let request = request(&server);
    drop(service);
    drop(server.ep);
    assert!(
        room.get_mut().is_none(),
        "a message may be received into it"
    );
    request.accept_reserved(b"").expect("accepted");
    // No value refers to the endpoint, so it is freed now.
    assert!(room.get_mut().is_some(), "its receive has ended");
    let ended = |event: &Event| matches!(event, Event::Ended { .. });
    while !ended(&client.connections.wait(PATIENCE).expect("an event")) {}
}

/// Returns all orders of `count` numbers.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else {
        return vec![Vec::new()];
    };
    let place = |order: Vec<usize>| {
        (0..count).map(move |at| {
            let mut order = order.clone();
            order.insert(at, last);
            order
        })
    };
    orders(last).into_iter().flat_map(place).collect()
}

/// Asserts that all objects of the adapter are freed.
fn assert_freed(ia: &Ia, what: &str) {
    use IaCounter as C;
    let counters = ia.counters().expect("counters");
    let pairs = [
        (C::EpCreate, C::EpFree),
        (C::EvdCreate, C::EvdFree),
        (C::PzCreate, C::PzFree),
        (C::LmrCreate, C::LmrFree),
        (C::RspCreate, C::RspFree),
    ];
    for (made, freed) in pairs {
        // The dispatcher of asynchronous events is the adapter's own.
        let own = u64::from(made == C::EvdCreate);
        let left = counters.get(made) - own - counters.get(freed);
        assert_eq!(left, 0, "{made:?} after {what}");
    }
}

#[test]
fn what_a_request_keeps_is_freed_after_it_whatever_the_order() {
    const NAMES: [&str; 4] = ["service point", "endpoint", "others", "request"];
    for order in orders(NAMES.len()) {
        let (_client, server, service, room) = reserved();
        let request = request(&server);
        let Side {
            ep,
            done,
            connections,
            pz,
            ia,
        } = server;
        let mut values: [Option<Box<dyn Any>>; 4] = [
            Some(Box::new(service)),
            Some(Box::new(ep)),
            Some(Box::new((done, connections, room, pz))),
            Some(Box::new(request)),
        ];
        for at in &order {
            values[*at] = None;
        }
        let names: Vec<_> = order.iter().map(|at| NAMES[*at]).collect();
        assert_freed(&ia, &names.join(", "));
    }
}

#[test]
fn a_request_that_nobody_takes_keeps_no_endpoint() {
    let (client, server, service, room) = reserved();
    while server.ep.state().expect("a state") == EpState::Reserved {
        std::thread::yield_now();
    }
    let ia = server.ia.clone();
    drop((service, server, room));
    assert_freed(&ia, "the last dispatcher");
    let event = client.connections.wait(PATIENCE);
    assert!(matches!(event, Ok(Event::PeerRejected { .. })), "{event:?}");
}
