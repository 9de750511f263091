//! The helper's plans, and what it hears of channels, with whole engines.

use std::fs::File;
use std::net::UdpSocket;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;

use dat_core::transport::Token;
use softrxe_near::agreement::{Agreed, Bell, Dial, Door, End, Offer};
use softrxe_near::layout::CONTROL;
use softrxe_near::{Channel, LARGE_RING};
use softrxe_proto::{Completion, CqId, Occupancy, SidrRequest, service_id};

use super::*;
use crate::adapter::poll_turns::{AfterPoll, PollTurns};
use crate::adapter::ports::cm_address;
use crate::adaptive::oversubscription::Oversubscription;
use crate::transport::open::test_hub;

/// Decides whether processors are few, whatever the scheduler does to the test.
fn set_crowded(hub: &Hub, crowded: bool) {
    let oversubscription = &mut hub.state.lock().driver.oversubscription;
    *oversubscription = Oversubscription::default();
    if crowded {
        oversubscription.preempted(clock::now() + Duration::from_secs(60));
    }
}

/// What the helper plans after `count` polls of a consumer that found nothing; `helper` as in [`Hub::round`].
fn plan_if_crowded(hub: &Hub, crowded: bool, cq: CqId, count: u32, helper: &mut Helper) -> Plan {
    let turns = PollTurns::new(Occupancy::default());
    for _ in 0..count {
        let (found, _) = hub.poll(cq, &turns, &mut [Completion::default()]);
        assert_eq!(found, 0);
    }
    set_crowded(hub, crowded);
    hub.round(true, helper).plan
}

/// The same on a machine with processors enough.
fn plan_after(hub: &Hub, cq: CqId, count: u32, helper: &mut Helper) -> Plan {
    plan_if_crowded(hub, false, cq, count, helper)
}

fn cq(hub: &Hub, watched: bool) -> CqId {
    let mut state = hub.state.lock();
    let cq = state.engine.create_cq().unwrap();
    state.notices.add_cq(cq, Token(1));
    state.notices.watch(cq, watched);
    cq
}

/// Empty dequeues before poll(2) on a CNO's descriptor: only the helper can wake that consumer.
#[test]
fn the_helper_watches_a_watched_queue_though_its_consumer_polls_before_it_sleeps() {
    let hub = test_hub("127.77.5.3");
    let (cq, mut helper) = (cq(&hub, true), Helper::new());
    for _ in 0..20 {
        let plan = plan_after(&hub, cq, 8, &mut helper);
        assert!(matches!(plan, Plan::Watch(_)), "{plan:?}");
    }
}

#[test]
fn the_helper_sleeps_while_a_consumer_polls_a_watched_queue_in_a_loop_each_time_longer() {
    let hub = test_hub("127.77.5.4");
    let (cq, mut helper) = (cq(&hub, true), Helper::new());
    for sleep in [20, 40, 80, 160, 320, 640, 1000, 1000] {
        let plan = plan_after(&hub, cq, 64, &mut helper);
        assert_eq!(plan, Plan::SleepFor(Duration::from_micros(sleep)));
    }
    let plan = plan_after(&hub, cq, 1, &mut helper);
    assert!(matches!(plan, Plan::Watch(_)), "{plan:?}");
    let plan = plan_after(&hub, cq, 64, &mut helper);
    assert_eq!(plan, Plan::SleepFor(FIRST_WATCHED_SLEEP));
}

#[test]
fn eight_polls_are_a_loop_if_no_queue_is_watched() {
    let hub = test_hub("127.77.5.5");
    let (unwatched, mut helper) = (cq(&hub, false), Helper::new());
    let plan = plan_after(&hub, unwatched, 8, &mut helper);
    assert_eq!(plan, Plan::SleepFor(POLL_SLEEP));
    // A watch that has led to its notification, or whose queue is gone, counts no more.
    let [notified, removed] = [cq(&hub, true), cq(&hub, true)];
    {
        let notices = &mut hub.state.lock().notices;
        assert_eq!(notices.take_watched(notified), Some(Token(1)));
        notices.remove_cq(removed);
    }
    let plan = plan_after(&hub, unwatched, 8, &mut helper);
    assert_eq!(plan, Plan::SleepFor(POLL_SLEEP));
}

/// Where processors are few, a consumer that goes on polling is left alone for longer each time.
#[test]
fn the_helpers_sleeps_grow_beside_a_consumer_that_polls_on_a_crowded_machine() {
    let hub = test_hub("127.77.5.14");
    let (cq, mut helper) = (cq(&hub, false), Helper::new());
    let mut plan_after = |count| plan_if_crowded(&hub, true, cq, count, &mut helper);
    for _ in 0..2 {
        for micros in [100, 200, 400, 800, 1000, 1000] {
            let sleep = Plan::SleepFor(Duration::from_micros(micros));
            assert_eq!(plan_after(8), sleep);
        }
        assert!(matches!(plan_after(0), Plan::Watch(_)));
    }
}

/// The scheduler takes the processor from a consumer in the middle of its loop.
#[test]
fn the_helper_receives_for_a_consumer_that_polled_and_is_away() {
    let hub = test_hub("127.77.5.15");
    let (cq, mut helper) = (cq(&hub, false), Helper::new());
    let turns = PollTurns::new(Occupancy::default());
    for _ in 0..8 {
        hub.poll(cq, &turns, &mut [Completion::default()]);
    }
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.send_to(b"no packet", ("127.77.5.15", 4791)).unwrap();
    std::thread::sleep(2 * PREEMPTED);
    set_crowded(&hub, false);
    let plan = hub.round(true, &mut helper).plan;
    assert_eq!(plan, Plan::SleepFor(POLL_SLEEP));
    assert_eq!(hub.state.lock().engine.counters().malformed, 1);
}

/// Programs of one-sided communication poll for their own completions, and then read the memory that a peer writes to.
#[test]
fn the_helper_watches_soon_after_a_consumer_that_reads_its_memory_has_left_its_loop() {
    let hub = test_hub("127.77.5.16");
    let (cq, mut helper) = (cq(&hub, false), Helper::new());
    assert_eq!(
        plan_after(&hub, cq, 8, &mut helper),
        Plan::SleepFor(POLL_SLEEP)
    );
    hub.state.lock().driver.loop_exit.left_alone();
    hub.state.lock().driver.loop_exit.left_alone();
    let turns = PollTurns::new(Occupancy::default());
    for _ in 0..8 {
        hub.poll(cq, &turns, &mut [Completion::default()]);
    }
    std::thread::sleep(PREEMPTED);
    let plan = hub.round(true, &mut helper).plan;
    assert!(matches!(plan, Plan::Watch(_)), "{plan:?}");
    assert_eq!(hub.state.lock().driver.roles.watcher, Watcher::Helper);
}

/// A waiter polls before it sleeps, and a consumer may compute between its polls.
#[test]
fn time_without_a_yield_shows_no_thread_that_computes() {
    let hub = test_hub("127.77.5.12");
    let (cq, turns) = (cq(&hub, false), PollTurns::new(Occupancy::default()));
    let poll = || hub.poll(cq, &turns, &mut [Completion::default()]).1;
    for _ in 0..3 {
        let mut state = hub.state.lock();
        state.driver.oversubscription.preempted(clock::now());
        drop(state);
        // It does not do what it is told after each.
        let told = [(); 128].map(|()| poll());
        assert!(!told.contains(&AfterPoll::Pause));
        let _ = (0..4).any(|_| poll() == AfterPoll::GiveWay);
        std::thread::sleep(Duration::from_millis(15));
    }
}

/// The consumer has yielded to threads that compute for many slices.
#[test]
fn the_helper_takes_over_from_a_consumer_that_does_not_come_back_from_a_yield() {
    let hub = test_hub("127.77.5.13");
    let (cq, mut helper) = (cq(&hub, true), Helper::new());
    hub.give_way.store(1, Ordering::Relaxed);
    plan_after(&hub, cq, 64, &mut helper);
    std::thread::sleep(Duration::from_millis(2));
    let plan = plan_after(&hub, cq, 0, &mut helper);
    assert!(matches!(plan, Plan::Watch(_)), "{plan:?}");
}

fn round(hub: &Hub) -> Round {
    hub.round(true, &mut Helper::new())
}

/// Adds a channel to the engine in `slot` of `ip`.
fn add(hub: &Hub, peer: End, channel: Channel, bell: Option<Bell>) {
    let State { engine, near, .. } = &mut *hub.state.lock();
    let name = (peer.ip, peer.slot);
    let now = clock::now();
    bell.iter().for_each(|bell| near.watch(bell).unwrap());
    near.add(engine, now, name, (peer.guid, 4791), channel, bell)
        .unwrap();
}

fn end(address: &str, slot: u16) -> End {
    let ip = address.parse().unwrap();
    End {
        ip,
        slot,
        guid: slot.into(),
    }
}

/// A program without the header of datagram endpoints, such as udaddy, asks for one. No upcall follows, after which the helper would
/// send the answer.
#[test]
fn a_lookup_that_is_refused_without_an_upcall_is_answered_at_once() {
    let [asker, hub] = ["127.77.5.18", "127.77.5.19"].map(test_hub);
    let service_id = service_id::udp(7);
    hub.state.lock().engine.listen(service_id).unwrap();
    asker.with(|state, now| {
        let query = SidrRequest {
            remote: cm_address(hub.address()),
            service_id,
            source_port: 0,
            private_data: &[],
            timeout: None,
        };
        state.engine.sidr_request(now, &query).unwrap();
    });
    let heard = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        let round = round(&hub);
        assert!(round.upcalls.is_empty());
        round.busy
    });
    assert!(heard);
    assert!(!hub.state.lock().engine.has_datagrams());
}

/// A close that comes while the helper begins a round. The helper would sleep for ever if it took the wake-up first.
#[test]
fn the_helper_ends_whenever_it_is_told_to() {
    for round in 0..1500 {
        let hub = test_hub("127.77.5.9");
        let helper = Arc::clone(&hub);
        let thread = std::thread::spawn(move || helper.run());
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_nanos(round * 100) {
            std::hint::spin_loop();
        }
        hub.end();
        thread.join().unwrap();
    }
}

/// Returns how many sleeps there were besides the first one.
fn further_sleeps(hub: &Hub, limit: Duration) -> u64 {
    let before = hub.helper_runs.load(Ordering::Relaxed);
    hub.sleep_beside_polls(limit);
    hub.helper_runs.load(Ordering::Relaxed) - before
}

#[test]
fn the_helper_leaves_a_consumer_that_polls_in_a_loop_alone() {
    let hub = test_hub("127.77.5.25");
    assert_eq!(further_sleeps(&hub, POLL_SLEEP), 0, "no consumer polls");
    let end = AtomicBool::new(false);
    let [left_alone, short, woken] = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                let _state = hub.state.lock();
                hub.state.poll_receives();
            }
        });
        // The thread may have no processor for some sleeps.
        let most = u64::from(MAX_SKIPPED_ROUNDS);
        let mut all = (0..10_000).map(|_| further_sleeps(&hub, POLL_SLEEP));
        let left_alone = all.find(|sleeps| *sleeps == most);
        let short = further_sleeps(&hub, POLL_SLEEP / 2);
        hub.wakers.helper.signal();
        let woken = further_sleeps(&hub, POLL_SLEEP);
        end.store(true, Ordering::Relaxed);
        [left_alone, Some(short), Some(woken)]
    });
    assert!(left_alone.is_some());
    assert_eq!((short, woken), (Some(0), Some(0)));
}

/// The channel ends while a thread prepares its sleep. The engine then has events, of which no descriptor tells.
#[test]
fn no_thread_sleeps_beside_the_end_of_a_channel_that_breaks_the_protocol() {
    let hub = test_hub("127.77.5.6");
    let (channel, memory) = Channel::create(LARGE_RING).unwrap();
    add(&hub, end("127.77.5.6", 1), channel, None);
    assert!(round(&hub).may_sleep);
    let memory = File::from(memory);
    let secret_of_the_second_ring = (CONTROL + LARGE_RING) as u64;
    let mut secret = [0; 8];
    memory
        .read_exact_at(&mut secret, secret_of_the_second_ring)
        .unwrap();
    // A record of no length: its seal is the secret with the last bit set.
    let seal = u64::from_ne_bytes(secret) | 1;
    let data = secret_of_the_second_ring + CONTROL as u64;
    memory.write_all_at(&seal.to_ne_bytes(), data).unwrap();
    let mut state = hub.state.lock();
    let now = clock::now();
    assert!(!state.arm(now), "a record is there");
    state.receive(now, false);
    assert_eq!(state.near.count(), 0);
    assert!(!state.arm(now), "the channel has ended");
    assert!(state.arm(now), "once");
}

/// A thread sleeps as the leader while another one accepts a request for datagrams. The new channel's peer finds the flag of a thread
/// that is awake, so its datagrams would wake no thread.
#[test]
fn a_channel_that_comes_while_a_leader_sleeps_wakes_it() {
    let hub = test_hub("127.77.5.10");
    let peer = end("127.77.5.11", 1);
    let name = (peer.ip, peer.slot);
    let mut door = Door::listen(peer).unwrap();
    {
        let mut state = hub.state.lock();
        let now = clock::now();
        assert!(state.driver.roles.take_lead(None, &hub.wakers));
        assert!(state.arm(now));
        let (near_dial, mut context) = state.near_parts(now);
        near_dial.dial_for_datagrams(&mut context, name);
    }
    let answered = door
        .take()
        .unwrap()
        .answer(Offer::new(LARGE_RING, 4791), |_| Ok(()))
        .unwrap();
    hub.await_channel_for_datagrams(name);
    assert_eq!(hub.state.lock().near.count(), 1);
    let mut sender = answered.channel.sender;
    sender.space().unwrap();
    sender.commit(&[1], 24, 0);
    let leader = hub.wakers.leader.as_raw_fd();
    let wakes = on_readable([leader], Some(Duration::ZERO)) == Slept::Woken;
    assert!(sender.publish() || wakes);
}

/// No thread sleeps on the descriptors. Datagrams for the peer would go to a ring without a reader.
#[test]
fn the_helper_hears_of_the_end_of_a_channel_while_a_consumer_polls_in_a_loop() {
    let hub = test_hub("127.77.5.16");
    let ends = [1, 2].map(|slot| end("127.77.5.17", slot));
    let offer = Offer::new(LARGE_RING, 4791);
    let mut door = Door::listen(ends[0]).unwrap();
    let mut dial = Dial::start(ends[1], ends[0], offer).unwrap();
    let answered = door.take().unwrap().answer(offer, |_| Ok(())).unwrap();
    let Agreed { channel, bell, .. } = dial.poll().unwrap().unwrap();
    add(&hub, ends[0], channel, Some(bell));
    let (cq, mut helper) = (cq(&hub, false), Helper::new());
    let turns = PollTurns::new(Occupancy::default());
    let mut hears = || {
        for _ in 0..8 {
            hub.poll(cq, &turns, &mut [Completion::default()]);
        }
        let round = hub.round(true, &mut helper);
        assert!(matches!(round.plan, Plan::SleepFor(_)), "{:?}", round.plan);
        round.hung_up
    };
    assert!(!hears());
    drop(answered);
    let heard = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        hears()
    });
    assert!(heard);
    hub.reap_peers();
    assert_eq!(hub.state.lock().near.count(), 0);
}

/// A leader hears of the end of a process while the helper breaks the connections to it. The next process with that slot calls before the
/// helper takes what the leader has heard.
#[test]
fn the_end_of_a_channel_is_not_taken_for_that_of_the_next_one_to_its_slot() {
    let hub = test_hub("127.77.5.23");
    let ends = [1, 2].map(|slot| end("127.77.5.24", slot));
    let offer = Offer::new(LARGE_RING, 4791);
    let mut door = Door::listen(ends[0]).unwrap();
    let mut connect = || {
        let mut dial = Dial::start(ends[1], ends[0], offer).unwrap();
        let answered = door.take().unwrap().answer(offer, |_| Ok(())).unwrap();
        let Agreed { channel, bell, .. } = dial.poll().unwrap().unwrap();
        add(&hub, ends[0], channel, Some(bell));
        answered
    };
    drop(connect());
    let heard = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        round(&hub).hung_up
    });
    assert!(heard);
    {
        let State { engine, near, .. } = &mut *hub.state.lock();
        near.remove(engine, clock::now(), (ends[0].ip, ends[0].slot));
    }
    let _next = connect();
    hub.reap_peers();
    assert_eq!(hub.state.lock().near.count(), 1);
}

#[test]
fn the_helper_reaps_a_peer_whose_channel_alone_ends_before_it_sleeps() {
    let hub = test_hub("127.77.5.7");
    let ends = [1, 2].map(|slot| end("127.77.5.8", slot));
    let mut door = Door::listen(ends[0]).unwrap();
    let mut dial = Dial::start(ends[1], ends[0], Offer::new(LARGE_RING, 4791)).unwrap();
    let answered = door
        .take()
        .unwrap()
        .answer(Offer::new(LARGE_RING, 4791), |_| Ok(()))
        .unwrap();
    let Agreed { channel, bell, .. } = dial.poll().unwrap().unwrap();
    add(&hub, ends[0], channel, Some(bell));
    let first = round(&hub);
    assert!(first.may_sleep && !first.hung_up);
    drop(answered);
    // A test beside this one may fork. The child then holds the other end until it exits.
    let heard = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        round(&hub).hung_up
    });
    assert!(heard);
    hub.reap_peers();
    assert_eq!(hub.state.lock().near.count(), 0);
    assert!(!round(&hub).hung_up);
}
