//! Calls between engines of this host that fail, cross, or come in numbers.

use std::time::{Duration, Instant};

use softrxe_near::LARGE_RING;
use softrxe_near::agreement::Offer;
use softrxe_port::own_user;

use super::*;
use crate::adapter::hub::Hub;
use crate::clock;
use crate::transport::open::test_hub;

/// Calls the engine `peer` from `hub`; `answer` takes the call. Returns the counters that a connection which stays on UDP adds to.
fn refused(hub: &Hub, peer: End, answer: impl FnOnce(Call)) -> Vec<(&'static str, u64)> {
    let mut door = Door::listen(peer).unwrap();
    let mut state = hub.state.lock();
    let (near_dial, mut context) = state.near_parts(clock::now());
    near_dial.start(&mut context, peer).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let call = loop {
        assert!(Instant::now() < end, "no call");
        if let Some(call) = door.take() {
            break call;
        }
    };
    answer(call);
    while !near_dial.agreements.is_empty() {
        assert!(Instant::now() < end, "no answer");
        near_dial.read_answers(&mut context);
    }
    let name = (peer.ip, peer.slot);
    near_dial.fallbacks.count(context.now, name, Fallback::Peer);
    let mut counters = near_dial.counters();
    counters.retain(|(_, value)| *value > 0);
    counters
}

/// Any user can send a request with the slot of a process that is about to start.
#[test]
fn a_failed_call_leaves_the_other_engines_of_that_slot_free() {
    let hub = test_hub("127.77.6.3");
    let ip = "127.77.6.4".parse().unwrap();
    let peer = |slot, guid| End { ip, slot, guid };
    let mut state = hub.state.lock();
    let (near_dial, mut context) = state.near_parts(clock::now());
    near_dial.begin(&mut context, peer(1, 9));
    assert!(!near_dial.may_dial(&context, peer(1, 9)));
    assert!(near_dial.may_dial(&context, peer(1, 10)));
    assert!(near_dial.may_dial(&context, peer(1, ANY_GUID)));
    context.now += RETRY_AFTER;
    assert!(near_dial.may_dial(&context, peer(1, 9)));
    for slot in 0..2 * MAX_FAILED as u16 {
        near_dial.begin(&mut context, peer(slot, 9));
    }
    assert!((1..=MAX_FAILED).contains(&near_dial.failed.len()));
}

/// The peer refused the own call because its own goes first, and then dropped its own: no packet ends that agreement.
#[test]
fn an_agreement_that_takes_too_long_does_not_keep_the_peer_from_being_dialled() {
    let hub = test_hub("127.77.6.8");
    let ip = "127.77.6.7".parse().unwrap();
    let (slot, guid) = (1, 9);
    let peer = End { ip, slot, guid };
    let mut door = Door::listen(peer).unwrap();
    let mut state = hub.state.lock();
    let (near_dial, mut context) = state.near_parts(clock::now());
    near_dial.begin(&mut context, peer);
    let end = Instant::now() + Duration::from_secs(60);
    let call = loop {
        assert!(Instant::now() < end, "no call");
        if let Some(call) = door.take() {
            break call;
        }
    };
    call.refuse(Reason::Crossed);
    let name = (peer.ip, peer.slot);
    while near_dial.agreements[&name].dial.is_some() {
        assert!(Instant::now() < end, "no answer");
        near_dial.read_answers(&mut context);
    }
    assert!(!near_dial.may_dial(&context, peer));
    context.now += ANSWER_WITHIN;
    assert!(!near_dial.may_dial(&context, peer));
    assert!(near_dial.awaited(name).is_none());
    context.now += RETRY_AFTER;
    assert!(near_dial.may_dial(&context, peer));
}

/// The helper of an adapter that closes sleeps until the peers confirm the end of their connections. It would not sleep beside a
/// descriptor that stays readable.
#[test]
fn a_call_is_answered_while_the_adapter_closes() {
    let hub = test_hub("127.77.6.9");
    let mut state = hub.state.lock();
    let peer = End {
        ip: "127.77.6.10".parse().unwrap(),
        slot: 1,
        guid: 9,
    };
    let offer = Offer::new(LARGE_RING, 4791);
    let mut dial = Dial::start(peer, state.near_dial.own, offer).unwrap();
    assert!(hub.descriptors.liveness_changed());
    hub.reap_peers_at_close(&mut state, clock::now());
    assert!(!hub.descriptors.liveness_changed());
    assert!(matches!(dial.poll(), Ok(Some(_))));
}

/// A process of the same user that calls faster than it is answered. The lock is free in between, and no call is forgotten.
#[test]
fn many_calls_are_answered_in_turns() {
    const CALLS: usize = 130;
    for silent in [0, 70] {
        let hub = test_hub("127.77.6.11");
        let mut state = hub.state.lock();
        let (near_dial, mut context) = state.near_parts(clock::now());
        let own = near_dial.own;
        let role = format!("near/{}", own.slot);
        let _silent: Vec<_> = (0..silent)
            .map(|_| own_user::connect(own.ip, &role).unwrap())
            .collect();
        let calls = (1..=CALLS as u16).map(|slot| {
            let peer = End {
                ip: "127.77.6.12".parse().unwrap(),
                slot,
                guid: 9,
            };
            Dial::start(peer, own, Offer::new(LARGE_RING, 4791)).unwrap()
        });
        let calls: Vec<_> = calls.collect();
        let mut answered = 0;
        while hub.descriptors.liveness_changed() {
            near_dial.serve(&mut context);
            let now = context.near.count();
            assert!(now - answered <= MAX_ANSWERED, "{now}");
            answered = now;
        }
        assert_eq!(answered, CALLS, "{silent} are silent");
        drop(calls);
    }
}

#[test]
fn a_call_behind_silent_ones_is_not_forgotten() {
    let hub = test_hub("127.77.6.13");
    let mut state = hub.state.lock();
    let (near_dial, mut context) = state.near_parts(clock::now());
    let own = near_dial.own;
    let role = format!("near/{}", own.slot);
    let call = |slot| {
        let peer = End {
            ip: "127.77.6.14".parse().unwrap(),
            slot,
            guid: 9,
        };
        Dial::start(peer, own, Offer::new(LARGE_RING, 4791)).unwrap()
    };
    let mut calls: Vec<_> = (1..=64).map(call).collect();
    let _silent: Vec<_> = (0..128)
        .map(|_| own_user::connect(own.ip, &role).unwrap())
        .collect();
    calls.push(call(65));
    let begin = Instant::now();
    while context.near.count() < 65 && begin.elapsed() < Duration::from_secs(20) {
        if hub.descriptors.liveness_changed() {
            near_dial.serve(&mut context);
        }
    }
    assert_eq!(context.near.count(), 65);
}

/// Peers that take calls and never answer them, for requests that were refused meanwhile.
#[test]
fn calls_without_an_answer_are_few_and_end() {
    let hub = test_hub("127.77.6.5");
    let ip = "127.77.6.6".parse().unwrap();
    let peer = |slot| End { ip, slot, guid: 9 };
    let doors: Vec<_> = (0..=MAX_CALLS as u16)
        .map(|slot| Door::listen(peer(slot)).unwrap())
        .collect();
    let last = MAX_CALLS as u16;
    let mut state = hub.state.lock();
    let (near_dial, mut context) = state.near_parts(clock::now());
    for slot in 0..last {
        near_dial.start(&mut context, peer(slot)).unwrap();
    }
    let refused = near_dial.start(&mut context, peer(last)).unwrap_err();
    assert!(matches!(refused, Refusal::TooManyCalls), "{refused}");
    context.now += ANSWER_WITHIN;
    near_dial.start(&mut context, peer(last)).unwrap();
    assert_eq!(near_dial.agreements.len(), 1);
    drop(doors);
}

#[test]
fn a_peer_of_another_version_is_counted_as_such_and_one_without_room_as_that() {
    let hub = test_hub("127.77.6.1");
    let ip = "127.77.6.2".parse().unwrap();
    let peer = |slot| End { ip, slot, guid: 9 };
    let counters = refused(&hub, peer(1), |call| call.refuse(Reason::Version));
    assert_eq!(counters, [("near_fallback_version", 1)]);
    let counters = refused(&hub, peer(2), |call| call.refuse(Reason::Full));
    let both = [("near_fallback_version", 1), ("near_fallback_resources", 1)];
    assert_eq!(counters, both);
    let counters = refused(&hub, peer(3), drop);
    assert_eq!(counters[2], ("near_fallback_silent", 1));
}
