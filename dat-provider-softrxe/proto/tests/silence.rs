//! What an attempt to connect comes to when an answer is lost, and no other one follows.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use common::pair::{Packet, Pair};
use common::stranger;
use softrxe_proto::wire::cm::{Answered, CmMessage, Mra};
use softrxe_proto::{Accept, CmEventKind, Qpn, RejectReason, Time, service_id};

const MRA: u16 = 0x11;
const REJ: u16 = 0x12;
const SECOND: Duration = Duration::from_secs(1);

/// The attribute id is after BTH and DETH.
fn is(attribute: u16, packet: &Packet) -> bool {
    packet.bytes.len() == 280 && packet.bytes[20 + 16..20 + 18] == attribute.to_be_bytes()
}

/// Returns the service timeout of 2.4 hours.
fn longest_mra(message: Answered, local_id: u32, remote_id: u32) -> CmMessage {
    CmMessage::Mra(Mra {
        local_id,
        remote_id,
        message,
        service_timeout: 31,
        private_data: [0; Mra::PRIVATE_DATA],
    })
}

/// After an MRA the client is silent for more than a minute. Until then the server knows the answer that was lost.
#[test]
fn a_refusal_that_is_lost_after_an_mra_is_given_again() {
    let mut pair = Pair::new("lost_refusal");
    let service = service_id::tcp(21);
    pair.sides[1].engine.listen(service).unwrap();
    let asked_for_time = Rc::new(Cell::new(false));
    let mut lost = false;
    let mra = asked_for_time.clone();
    pair.filter = Box::new(move |packet| {
        mra.set(mra.get() || is(MRA, packet));
        !is(REJ, packet) || std::mem::replace(&mut lost, true)
    });
    let qpn = pair.sides[0].qp();
    pair.call(qpn, service);
    pair.run_until(SECOND, |_| false);
    assert!(asked_for_time.get());
    let request = pair.sides[1].cm_event();
    let now = pair.now;
    pair.sides[1]
        .engine
        .reject(now, request.id, RejectReason::CONSUMER, b"no")
        .unwrap();
    pair.run();
    assert_eq!(pair.sides[1].cm_events(), [], "the request came once");
    let CmEventKind::Rejected { private_data, .. } = pair.sides[0].cm_event().kind else {
        panic!("not rejected");
    };
    assert_eq!(private_data[..2], *b"no");
    for side in &pair.sides {
        assert_eq!(side.engine.connections(), 0);
    }
}

/// The peer asks for 2.4 hours, and dies.
#[test]
fn an_mra_of_hours_keeps_no_attempt_for_hours() {
    let mut pair = Pair::new("long_mra");
    let remote = pair.sides[1].address;
    let qpn = pair.sides[0].qp();
    let id = pair.call(qpn, service_id::tcp(21));
    let begin = pair.now;
    let client = &mut pair.sides[0].engine;
    let (_, req) = stranger::sent(client, begin).remove(0);
    let transaction = u64::from_be_bytes(req[28..36].try_into().unwrap());
    let mra = longest_mra(Answered::Req, 7, id.number());
    stranger::inject(client, begin, remote, transaction, &mra);
    pair.faults.loss = 1000;
    pair.run();
    assert_eq!(pair.sides[0].cm_event().kind, CmEventKind::TimedOut);
    assert!(pair.now - begin > 60 * SECOND, "{:?}", pair.now - begin);
    assert!(pair.now - begin < 120 * SECOND, "{:?}", pair.now - begin);
}

/// The same of a client whose request was accepted.
#[test]
fn an_mra_of_hours_keeps_no_accepted_request_for_hours() {
    let mut pair = Pair::new("long_mra_of_client");
    let (client, to) = (pair.sides[0].address, pair.sides[1].address.ip());
    let service = service_id::tcp(21);
    let ids = (stranger::FOREIGN, 7, Qpn::new(40));
    let req = CmMessage::Req(stranger::req(client.ip(), to, service, ids));
    let qpn = pair.sides[1].qp();
    let begin = pair.now;
    let server = &mut pair.sides[1].engine;
    server.listen(service).unwrap();
    stranger::inject(server, begin, client, 5, &req);
    pair.run_until(SECOND, |p| !p.sides[1].events.is_empty());
    let request = pair.sides[1].cm_event();
    let now = pair.now;
    let server = &mut pair.sides[1].engine;
    server
        .accept(now, request.id, qpn, &Accept::new(b""))
        .unwrap();
    let mra = longest_mra(Answered::Rep, 7, request.id.number());
    stranger::inject(server, now, client, 5, &mra);
    pair.faults.loss = 1000;
    let ended = |p: &mut Pair| !p.sides[1].events.is_empty();
    assert!(pair.run_until(120 * SECOND, ended));
    assert_eq!(pair.sides[1].cm_event().kind, CmEventKind::TimedOut);
}

/// The address has no route, so nothing leaves this host. A moment later it may have one.
#[test]
fn an_attempt_ends_when_its_address_still_has_no_route_after_a_moment() {
    let mut pair = Pair::new("no_route");
    let begin = pair.now;
    let qpn = pair.sides[0].qp();
    let attempt = pair.call(qpn, service_id::tcp(21));
    let ask = pair.ask(service_id::udp(21));
    let client = &mut pair.sides[0].engine;
    let lookup = client.sidr_request(begin, &ask).unwrap();
    let unsent = |now: Time, client: &mut softrxe_proto::Engine<_>| {
        let sent = stranger::sent(client, now);
        for (to, _) in &sent {
            client.no_route(now, to.ip());
        }
        sent.len()
    };
    assert_eq!(unsent(begin, client), 2);
    let at = client.poll_timeout().unwrap();
    assert!(at - begin > SECOND / 10, "it is tried again");
    let mut now = begin;
    while let Some(at) = client.poll_timeout().filter(|at| *at - begin < SECOND) {
        now = at;
        client.handle_timeout(now);
        unsent(now, client);
    }
    pair.now = now;
    pair.run_until(Duration::ZERO, |_| false);
    let mut ended: Vec<_> = pair.sides[0].cm_events();
    ended.sort_by_key(|event| event.id != attempt);
    let of: Vec<_> = ended.iter().map(|e| (e.id, e.kind.clone())).collect();
    let both = [attempt, lookup].map(|id| (id, CmEventKind::TimedOut));
    assert_eq!(of, both);
}

/// A connection that exists, and an attempt that the peer has answered, are not affected.
#[test]
fn a_connection_waits_for_its_route() {
    let mut pair = Pair::new("route_lost");
    let service = service_id::tcp(21);
    pair.connect_by_cm(service);
    let qpn = pair.sides[0].qp();
    pair.call(qpn, service);
    pair.run_until(SECOND, |p| p.sides[1].events.len() > 1);
    pair.run_until(SECOND, |_| false);
    let ip = pair.sides[1].address.ip();
    pair.sides.iter_mut().for_each(|side| side.events.clear());
    for _ in 0..5 {
        let now = pair.now;
        pair.sides[0].engine.no_route(now, ip);
        pair.run_until(SECOND, |_| false);
    }
    assert_eq!(pair.sides[0].cm_events(), []);
}
