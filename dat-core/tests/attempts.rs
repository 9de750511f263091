//! What an endpoint reports of an attempt to connect: the private data and the peer of this attempt, not of another one.
#![allow(missing_docs, reason = "a test")]

mod pair;

use std::time::Duration;

use dat_core::ep::{Ep, EpState};
use dat_core::error::{Error, Kind};
use dat_core::event::ConnectionEvent as E;
use dat_core::flags::Close;
use dat_core::sp::Sp;
use pair::*;

/// The event of an endpoint names no bytes itself: they are read from the endpoint when the event is taken.
#[test]
fn an_attempt_does_not_report_the_private_data_of_an_earlier_connection() {
    let (client, server) = (Side::open(), Side::open());
    let (from, to) = (client.ep(), server.ep());
    let psp = Sp::psp_create(server.ia, Some(931), server.cr, false).unwrap();
    let own = Sp::psp_create(client.ia, Some(932), client.cr, false).unwrap();
    let connected = || {
        from.connect(PEER, 931, None, b"question", 0, 0).unwrap();
        request(wait(server.cr))
            .accept(Some(to), b"answer")
            .unwrap();
        assert_eq!(wait(client.conn), connection(E::Established, from));
        assert_eq!(wait(server.conn), connection(E::Established, to));
        assert_eq!(from.private_data().to_vec(), b"answer");
        from.disconnect(Close::Abrupt).unwrap();
        assert_eq!(wait(client.conn), connection(E::Disconnected, from));
        assert_eq!(wait(server.conn), connection(E::Disconnected, to));
        assert_eq!(from.private_data().to_vec(), b"answer");
        from.reset().unwrap();
        to.reset().unwrap();
    };

    connected();
    from.connect(PEER, 939, None, b"question", 0, 0).unwrap();
    assert_eq!(wait(client.conn), connection(E::NonPeerRejected, from));
    assert!(from.private_data().is_empty());
    from.reset().unwrap();

    connected();
    let short = Some(Duration::from_millis(10));
    from.connect(PEER, 931, short, b"question", 0, 0).unwrap();
    assert_eq!(wait(client.conn), connection(E::TimedOut, from));
    assert!(from.private_data().is_empty());
    request(wait(server.cr)).reject(b"").unwrap();
    from.reset().unwrap();

    // The passive side has none, also before the transport says that the connection is established: a message may imply that.
    connected();
    to.connect(PEER, 932, None, b"question", 0, 0).unwrap();
    request(wait(client.cr)).accept(Some(from), b"").unwrap();
    assert!(from.private_data().is_empty());
    assert_eq!(wait(client.conn), connection(E::Established, from));
    assert!(from.private_data().is_empty());
    psp.free().unwrap();
    own.free().unwrap();
}

/// dat_ep_query: the peer's address and port are valid in Passive and in Tentative Connection Pending too.
#[test]
fn an_endpoint_whose_request_waits_for_an_answer_names_the_peer() {
    let (client, server) = (Side::open(), Side::open());
    let peers = |ep: &'static Ep<Fake>| {
        let info = ep.info().unwrap();
        (info.state, info.remote_address, info.remote_port)
    };
    let none = (EpState::Unconnected, None, 0);

    let (from, to) = (client.ep(), server.ep());
    let rsp = Sp::rsp_create(server.ia, 941, to, server.cr).unwrap();
    from.connect(PEER, 941, None, b"", 0, 0).unwrap();
    let cr = request(wait(server.cr));
    let remote = cr.info().unwrap().remote;
    let peer = |state| (state, Some(remote.ip()), u64::from(remote.port()));
    assert_eq!(peers(to), peer(EpState::PassiveConnectionPending));
    assert_eq!(to.info().unwrap().local_port, 941);
    cr.reject(b"").unwrap();
    assert_eq!(peers(to), none);
    assert_eq!(to.info().unwrap().local_port, 0);
    rsp.free().unwrap();

    let psp = Sp::psp_create(server.ia, Some(942), server.cr, true).unwrap();
    client.ep().connect(PEER, 942, None, b"", 0, 0).unwrap();
    let cr = request(wait(server.cr));
    let offered = cr.info().unwrap().local_ep.unwrap();
    let remote = cr.info().unwrap().remote;
    let peer = |state| (state, Some(remote.ip()), u64::from(remote.port()));
    assert_eq!(peers(offered), peer(EpState::TentativeConnectionPending));
    cr.reject(b"").unwrap();
    psp.free().unwrap();
}

/// The transport may refuse an address, as one of another family. No request goes to it then.
#[test]
fn an_endpoint_names_no_peer_that_dat_ep_connect_refused() {
    let side = Side::open();
    let ep = side.ep();
    let refused = ep.connect(PEER, NO_ROUTE, None, b"", 0, 0);
    assert_eq!(refused, Err(Error::of(Kind::InvalidAddress)));
    let info = ep.info().unwrap();
    let named = (info.state, info.remote_address, info.remote_port);
    assert_eq!(named, (EpState::Unconnected, None, 0));
}
