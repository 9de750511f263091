//! The parts and attributes of an endpoint: EVDs that are in use, missing or too short, dat_ep_create and dat_ep_modify.
#![allow(missing_docs, reason = "a test")]

mod pair;

use std::sync::atomic::Ordering;

use dat_core::ep::{Ep, EpChange, EpParts, EpState};
use dat_core::error::{Error, Kind, Subtype};
use dat_core::evd::Evd;
use dat_core::event::{ConnectionEvent as E, DtoStatus};
use dat_core::flags::{Close, CompletionFlags as F, EvdFlags};
use pair::*;

const NONE: F = F::empty();

/// dat_ep_create: DAT_HANDLE_NULL for an EVD says that the consumer is not interested in its events.
#[test]
fn an_endpoint_without_evds_works_without_events() {
    let (client, server) = (Side::open(), Side::open());
    let parts = EpParts {
        recv_evd: None,
        request_evd: None,
        ..client.parts()
    };
    let from = Ep::create(client.ia, parts, Some(&attr(4, 4))).unwrap();
    let to = server.ep();
    join(&client, from, &server, to, 212);
    for n in 0..100 {
        to.post_recv(&[], n, NONE).unwrap();
        from.post_send(&[bytes(3)], 0, NONE).unwrap();
        assert_eq!(dto(wait(server.recv)).cookie, n);
    }
    from.disconnect(Close::Graceful).unwrap();
    assert_eq!(wait(client.conn), connection(E::Disconnected, from));
    from.free().unwrap();
    for evd in [client.recv, client.request, client.conn, client.cr] {
        evd.free().unwrap();
    }
    client.pz.free().unwrap();
    // The EVD for unread completions was freed with its endpoint.
    client.ia.close(Close::Graceful).unwrap();
}

/// dat_pz_free, dat_evd_free, dat_ia_close: INVALID_STATE while an endpoint uses them.
#[test]
fn parts_in_use_cannot_be_freed() {
    let side = Side::open();
    let ep = side.ep();
    let pz = Err(Error::state(Subtype::InvalidStatePzInUse));
    let evd = Err(Error::state(Subtype::InvalidStateEvdInUse));
    assert_eq!(side.pz.free(), pz);
    for used in [side.recv, side.request, side.conn] {
        assert_eq!(used.free(), evd);
    }
    assert_eq!(
        side.ia.close(Close::Graceful),
        Err(Error::state(Subtype::InvalidStateIaInUse))
    );
    ep.free().unwrap();
    for free in [side.recv, side.request, side.conn, side.cr] {
        free.free().unwrap();
    }
    side.pz.free().unwrap();
    let late = Ep::create(side.ia, side.parts(), None).unwrap_err();
    assert_eq!(late, Error::handle(Subtype::InvalidHandlePz));
    side.ia.close(Close::Graceful).unwrap();
}

/// dat_ep_create: INVALID_PARAMETER for impossible attributes, MODEL_NOT_SUPPORTED for a quality of service; the provider fills in its
/// defaults.
#[test]
fn attributes_beyond_the_adapter_are_refused() {
    let side = Side::open();
    let refused = |change: fn(&mut dat_core::attributes::EpAttr)| {
        let mut wrong = attr(4, 4);
        change(&mut wrong);
        Ep::create(side.ia, side.parts(), Some(&wrong)).unwrap_err()
    };
    assert_eq!(refused(|a| a.max_recv_dtos = 1001), Error::arg(6));
    assert_eq!(refused(|a| a.max_request_dtos = u32::MAX), Error::arg(6));
    assert_eq!(refused(|a| a.max_request_iov = 9), Error::arg(6));
    assert_eq!(refused(|a| a.max_message_size = 1 << 21), Error::arg(6));
    assert_eq!(refused(|a| a.max_rdma_read_out = 17), Error::arg(6));
    assert_eq!(refused(|a| a.service_type = 2), Error::arg(6));
    let model = Error::of(Kind::ModelNotSupported);
    assert_eq!(refused(|a| a.qos = 1), model);
    assert_eq!(refused(|a| a.service_type = 1), model);
    let defaults = Ep::create(side.ia, side.parts(), None)
        .unwrap()
        .info()
        .unwrap();
    assert_eq!(
        (defaults.attr.max_recv_dtos, defaults.attr.max_recv_iov),
        (16, 4)
    );
    assert_eq!(defaults.state, EpState::Unconnected);
    assert!(defaults.remote_address.is_none());
}

/// dat_ep_modify: INVALID_STATE where the state does not allow the change, INVALID_PARAMETER for values that
/// are not possible.
#[test]
fn modify_follows_the_states_and_keeps_what_it_cannot_change() {
    let p = connected(214);
    let mut more = EpChange::<Fake> {
        max_recv_dtos: Some(20),
        ..Default::default()
    };
    let connected = Err(Error::state(Subtype::InvalidStateEpConnected));
    assert_eq!(p.from.modify(&more), connected);
    let ep = p.client.ep();
    ep.modify(&more).unwrap();
    for n in 0..20 {
        ep.post_recv(&[], n, NONE).unwrap();
    }
    more.max_recv_dtos = Some(30);
    let busy = Err(Error::state(Subtype::InvalidStateEpUnconnected));
    assert_eq!(ep.modify(&more), busy, "receives would be lost");
    let wrong = EpChange::<Fake> {
        max_recv_iov: Some(1000),
        ..Default::default()
    };
    assert_eq!(p.client.ep().modify(&wrong), Err(Error::arg(3)));
    let srq = EpChange::<Fake> {
        srq: Some(None),
        ..Default::default()
    };
    assert_eq!(ep.modify(&srq), Err(Error::arg(3)));
    // A freed part: nothing changes.
    let gone = Evd::create(p.client.ia, 4, None, EvdFlags::DTO).unwrap();
    gone.free().unwrap();
    let other = p.client.ep();
    let to_gone = EpChange::<Fake> {
        recv_evd: Some(Some(gone)),
        ..Default::default()
    };
    assert_eq!(
        other.modify(&to_gone),
        Err(Error::handle(Subtype::InvalidHandleEvdRecv))
    );
    let info = other.info().unwrap();
    assert!(
        info.recv_evd
            .is_some_and(|e| std::ptr::eq(e, p.client.recv))
    );
    other.post_recv(&[], 1, NONE).unwrap();
}

/// dat_ep_create: without an EVD for receives "the Consumer is not interested in events for completions of receives". So no call
/// polls for them but the next post.
#[test]
fn receives_without_an_evd_make_room_for_the_next_ones() {
    let (client, server) = (Side::open(), Side::open());
    let parts = EpParts {
        recv_evd: None,
        ..server.parts()
    };
    let to = Ep::create(server.ia, parts, Some(&attr(4, 4))).unwrap();
    let from = client.ep();
    join(&client, from, &server, to, 321);
    for n in 0..20 {
        to.post_recv(&[], n, NONE).unwrap();
        from.post_send(&[], n, NONE).unwrap();
        assert_eq!(
            dto(next(client.request).unwrap()).status,
            DtoStatus::Success
        );
    }
    for n in 0..4 {
        to.post_recv(&[], n, NONE).unwrap();
    }
    let full = Err(Error::resource(Subtype::ResourceMemory));
    assert_eq!(to.post_recv(&[], 4, NONE), full);
    assert_eq!(all(server.request), []);
}

/// dat_ep_get_status: idle means that nothing is outstanding or in progress.
#[test]
fn an_endpoint_without_evds_is_idle_when_its_work_is_done() {
    let (client, server) = (Side::open(), Side::open());
    let parts = EpParts {
        recv_evd: None,
        request_evd: None,
        ..server.parts()
    };
    let to = Ep::create(server.ia, parts, Some(&attr(4, 4))).unwrap();
    let from = client.ep();
    join(&client, from, &server, to, 322);
    to.post_recv(&[], 1, NONE).unwrap();
    from.post_recv(&[], 2, NONE).unwrap();
    assert_eq!(to.status(), (EpState::Connected, false, true));
    server.hold(true);
    to.post_send(&[], 3, NONE).unwrap();
    assert_eq!(to.status(), (EpState::Connected, false, false));
    server.hold(false);
    from.post_send(&[], 4, NONE).unwrap();
    assert_eq!(to.status(), (EpState::Connected, true, true));
    to.post_recv(&[], 5, NONE).unwrap();
    from.post_send(&[], 6, NONE).unwrap();
    assert_eq!(to.recv_query().unwrap().0, 0);
}

/// Each resize is a call of the device, and one beyond its limit fails.
#[test]
fn a_completion_queue_grows_in_few_steps_up_to_the_adapters_limit() {
    let side = Side::open();
    let parts = EpParts {
        recv_evd: Some(side.request),
        ..side.parts()
    };
    let mut count = 0;
    while Ep::create(side.ia, parts, Some(&attr(16, 16))).is_ok() {
        count += 1;
    }
    assert!((48..=64).contains(&count), "{count} endpoints");
    let resizes = side.adapter().resizes.load(Ordering::Relaxed);
    assert!(resizes <= 8, "{resizes} resizes for {count} endpoints");
}
