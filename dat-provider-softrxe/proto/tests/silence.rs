//! What an attempt to connect comes to when an answer is lost, and no other one follows.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use common::pair::{Packet, Pair};
use softrxe_proto::{CmEventKind, RejectReason, service_id};

const MRA: u16 = 0x11;
const REJ: u16 = 0x12;
const SECOND: Duration = Duration::from_secs(1);

/// The attribute id is after BTH and DETH.
fn is(attribute: u16, packet: &Packet) -> bool {
    packet.bytes.len() == 280 && packet.bytes[20 + 16..20 + 18] == attribute.to_be_bytes()
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
