//! EVDs with completions: order, suppression, notification, CNOs, RMR binds.

mod common;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::{Events, Null, Qp, before_next_poll, eventually, open, qp, request};
use dat_core::attr::EpAttr;
use dat_core::cno::{Agent, Cno, CnoProxy};
use dat_core::ep::{Ep, EpParts};
use dat_core::error::{Error, Kind, Subtype};
use dat_core::evd::{Evd, Polled};
use dat_core::event::{AsyncEvent, ConnectionEvent, DtoOp, Event};
use dat_core::flags::{Close, CompletionFlags, EvdFlags, MemPriv, VaType};
use dat_core::head::raw;
use dat_core::ia::Ia;
use dat_core::lmr::{Lmr, Source};
use dat_core::pz::Pz;
use dat_core::rmr::{LmrRange, Rmr};
use dat_core::sp::Sp;

const NOW: Option<Duration> = Some(Duration::ZERO);
const SOON: Option<Duration> = Some(Duration::from_millis(50));
const LONG: Option<Duration> = Some(Duration::from_secs(10));
const NONE: CompletionFlags = CompletionFlags::empty();

/// A connected endpoint; all its streams feed one EVD.
struct Side {
    ia: &'static Ia<Null>,
    pz: &'static Pz<Null>,
    evd: &'static Evd<Null>,
    ep: &'static Ep<Null>,
    qp: Arc<Qp>,
}

fn side(recv_flags: CompletionFlags, request_flags: CompletionFlags) -> Side {
    side_of(recv_flags, request_flags, 16)
}

/// Creates a side whose endpoint has room for `depth` requests.
fn side_of(recv_flags: CompletionFlags, request_flags: CompletionFlags, depth: u32) -> Side {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    let streams = EvdFlags::DTO | EvdFlags::RMR_BIND | EvdFlags::CONNECTION | EvdFlags::SOFTWARE;
    let evd = Evd::create(ia, 20, None, streams).unwrap();
    let parts = EpParts {
        pz: Some(pz),
        recv_evd: Some(evd),
        request_evd: Some(evd),
        connect_evd: Some(evd),
        srq: None,
    };
    let attr = EpAttr {
        service_type: 0,
        max_message_size: 1 << 20,
        max_rdma_size: 1 << 20,
        qos: 0,
        recv_completion_flags: recv_flags,
        request_completion_flags: request_flags,
        max_recv_dtos: 16,
        max_request_dtos: depth,
        max_recv_iov: 1,
        max_request_iov: 1,
        max_rdma_read_in: 1,
        max_rdma_read_out: 1,
        srq_soft_hw: -1,
        max_rdma_read_iov: 1,
        max_rdma_write_iov: 1,
    };
    let ep = Ep::create(ia, parts, Some(&attr)).unwrap();
    let remote = IpAddr::V4(Ipv4Addr::LOCALHOST);
    ep.connect(remote, 1, None, &[], 0, 0).unwrap();
    let qp = qp(ep);
    qp.establish();
    let mut sink = Events::default();
    evd.wait(LONG, 1, &mut sink).unwrap();
    let established = Event::Connection {
        number: ConnectionEvent::Established,
        ep: raw(ep),
    };
    assert_eq!(sink.0, [established]);
    Side {
        ia,
        pz,
        evd,
        ep,
        qp,
    }
}

impl Side {
    fn send(&self, cookie: u64, flags: CompletionFlags) {
        self.ep.post_send(&[], cookie, flags).unwrap();
    }

    /// Dequeues all events and returns their cookies; an event that is not a completion is 0.
    fn cookies(&self) -> Vec<u64> {
        let mut sink = Events::default();
        while self.evd.dequeue(&mut sink).is_ok() {}
        cookies(&sink)
    }

    fn close(self) {
        self.ia.close(Close::Abrupt).unwrap();
    }
}

fn cookies(events: &Events) -> Vec<u64> {
    let cookie = |event: &Event| match event {
        Event::Dto(dto) => dto.cookie,
        _ => 0,
    };
    events.0.iter().map(cookie).collect()
}

fn is_waited(evd: &'static Evd<Null>) -> bool {
    let mut sink = Events::default();
    let second = evd.wait(NOW, 20, &mut sink);
    second.unwrap_err().error == Error::state(Subtype::InvalidStateEvdWaiter)
}

#[test]
fn completions_come_in_order_across_batches() {
    let side = side(NONE, NONE);
    for round in 0..5_u64 {
        let all: Vec<_> = (round * 16 + 1..=round * 16 + 16).collect();
        for cookie in &all {
            side.send(*cookie, NONE);
        }
        // One poll may find all of them, or a later one the rest.
        let first = 3 * round as usize;
        side.qp.finish_requests(first);
        let mut sink = Events::default();
        for _ in 0..first.min(2) {
            side.evd.dequeue(&mut sink).unwrap();
        }
        side.qp.finish_requests(16 - first);
        let mut seen = cookies(&sink);
        seen.extend(side.cookies());
        assert_eq!(seen, all);
    }
    side.close();
}

#[test]
fn a_wait_returns_how_many_events_are_left() {
    let side = side(NONE, NONE);
    for cookie in 1..=16 {
        side.send(cookie, NONE);
    }
    for cookie in 17..=20 {
        side.ep.post_recv(&[], cookie, NONE).unwrap();
    }
    side.qp.finish_requests(16);
    for _ in 0..4 {
        side.qp.receive(false);
    }
    let mut sink = Events::default();
    assert_eq!(side.evd.wait(NOW, 1, &mut sink), Ok(19));
    assert_eq!(side.evd.wait(NOW, 19, &mut sink), Ok(18));
    assert_eq!(side.evd.wait(NOW, 19, &mut sink).unwrap_err().nmore, 18);
    assert_eq!(cookies(&sink), [1, 2]);
    assert_eq!(side.cookies(), (3..=20).collect::<Vec<_>>());
    side.close();
}

/// On both paths each call returns the completions in order, and a wait returns how many are left. The fast path may not count those
/// that arrived after a batch was taken from the completion queue, except for the last one.
#[test]
fn every_wait_counts_what_is_left() {
    for bursts in [true, false] {
        count_what_is_left(bursts);
    }
}

/// Compares the counts; with `bursts`, completions arrive only when none is left.
fn count_what_is_left(bursts: bool) {
    let side = side_of(NONE, NONE, 64);
    let (mut posted, mut seen, mut ready) = (0_u64, 0_u64, 0_usize);
    let mut waits = 0;
    let mut random = 1_u32;
    let mut next = |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 16) % below
    };
    for _ in 0..3000 {
        let mut sink = Events::default();
        match next(10) {
            0 => {
                // Sometimes more than fit into several batches; the endpoint has room for 64.
                let most = if next(6) == 0 { 64 } else { 5 };
                let room = if bursts && ready != 0 { 0 } else { 64 };
                let more = next(most).min(room.max(ready as u32) - ready as u32);
                for _ in 0..more {
                    posted += 1;
                    side.send(posted, NONE);
                }
                side.qp.finish_requests(more as usize);
                ready += more as usize;
                continue;
            }
            1..=4 => {
                let left = match side.evd.wait_polled(&mut sink, None) {
                    Polled::Taken => Some(0),
                    _ if next(16) == 0 => side.evd.wait_queued(&mut sink),
                    _ => side.evd.wait_batched(&mut sink),
                };
                let Some(left) = left else { continue };
                waits += 1;
                let left = left as usize;
                assert!(left < ready && (left == 0) == (ready == 1));
                assert!(!bursts || left + 1 == ready, "{left} left of {ready}");
            }
            5 if next(20) == 0 => match side.evd.wait(NOW, 1, &mut sink) {
                Ok(left) => assert_eq!(left as usize + 1, ready),
                Err(empty) => {
                    assert_eq!((empty.nmore, ready), (0, 0));
                    continue;
                }
            },
            _ => {
                let taken = side.evd.dequeue_batched(&mut sink)
                    || side.evd.dequeue_polled(&mut sink) == Polled::Taken
                    || side.evd.dequeue(&mut sink).is_ok();
                assert_eq!(taken, ready != 0);
                if !taken {
                    continue;
                }
            }
        }
        seen += 1;
        ready -= 1;
        assert_eq!(cookies(&sink), [seen]);
    }
    assert!(waits > 200, "{waits} waits took the fast path");
    side.close();
}

/// Waits like dat_evd_wait with a timeout of zero, and records whether it took the fast path.
fn wait_now(side: &Side, sink: &mut Events) -> (Option<u32>, bool) {
    let fast = match side.evd.wait_polled(sink, None) {
        Polled::Taken => Some(0),
        Polled::Batched => side.evd.wait_batched(sink),
        Polled::Empty | Polled::Again | Polled::SlowPath => None,
    };
    (fast.or_else(|| side.evd.wait_queued(sink)), fast.is_some())
}

#[test]
fn a_wait_counts_no_suppressed_completion_and_is_fast_again_once_these_are_taken() {
    let side = side(NONE, NONE);
    let mut sink = Events::default();
    // The first request is signaled whatever its flags, the third is not.
    side.send(1, CompletionFlags::SUPPRESS);
    side.send(2, NONE);
    side.send(3, CompletionFlags::SUPPRESS);
    side.send(4, NONE);
    side.qp.finish_requests(4);
    assert_eq!(wait_now(&side, &mut sink), (Some(1), false));
    assert_eq!(wait_now(&side, &mut sink), (Some(0), false));
    assert_eq!(wait_now(&side, &mut sink), (None, false));
    side.send(5, CompletionFlags::SUPPRESS);
    side.send(6, NONE);
    side.qp.finish_requests(2);
    assert_eq!(wait_now(&side, &mut sink), (Some(0), true));
    assert_eq!(cookies(&sink), [2, 4, 6]);
    side.close();
}

/// Another thread posts while a wait has found that all completions give events, and polls for more of them.
#[test]
fn a_wait_counts_no_suppressed_completion_that_comes_while_it_polls() {
    let side = side_of(NONE, NONE, 64);
    let mut sink = Events::default();
    // The first completion makes the next ones fast.
    side.send(1, NONE);
    side.qp.finish_requests(1);
    assert_eq!(wait_now(&side, &mut sink), (Some(0), false));
    // More than a batch, so the wait polls once more.
    for cookie in 2..=19 {
        side.send(cookie, NONE);
    }
    side.qp.finish_requests(18);
    let (ep, qp) = (side.ep, Arc::clone(&side.qp));
    assert_eq!(side.evd.wait_polled(&mut sink, None), Polled::Batched);
    before_next_poll(move || {
        for cookie in 20..=35 {
            // The 33rd request is signaled whatever its flags.
            let flags = if cookie == 33 {
                CompletionFlags::SUPPRESS
            } else {
                NONE
            };
            ep.post_send(&[], cookie, flags).unwrap();
        }
        qp.finish_requests(16);
    });
    assert_eq!(side.evd.wait_batched(&mut sink), Some(32));
    assert_eq!(cookies(&sink), [1, 2]);
    let left: Vec<_> = (3..=35).filter(|cookie| *cookie != 33).collect();
    assert_eq!(side.cookies(), left);
    side.close();
}

#[test]
fn a_refused_suppressed_request_leaves_the_fast_wait() {
    let side = side(NONE, NONE);
    let mut sink = Events::default();
    side.qp.refuse_next_post();
    let refused = side.ep.post_send(&[], 1, CompletionFlags::SUPPRESS);
    assert!(refused.is_err());
    for fast in [false, true] {
        side.send(2, NONE);
        side.qp.finish_requests(1);
        assert_eq!(wait_now(&side, &mut sink), (Some(0), fast));
    }
    side.close();
}

#[test]
fn a_wait_counts_no_completion_of_a_freed_endpoint() {
    let side = side(NONE, NONE);
    let mut sink = Events::default();
    for cookie in 1..=4 {
        side.send(cookie, NONE);
    }
    // The first completion makes the next ones fast.
    side.qp.finish_requests(1);
    assert_eq!(wait_now(&side, &mut sink), (Some(0), false));
    side.qp.finish_requests(3);
    assert_eq!(wait_now(&side, &mut sink), (Some(2), true));
    side.ep.free().unwrap();
    assert_eq!(wait_now(&side, &mut sink), (None, false));
    let empty = side.evd.wait(NOW, 1, &mut sink).unwrap_err();
    assert_eq!(empty.nmore, 0);
    assert_eq!(cookies(&sink), [1, 2]);
    side.close();
}

#[test]
fn an_event_follows_the_completions_that_preceded_it() {
    let side = side(NONE, NONE);
    side.send(1, NONE);
    side.send(2, NONE);
    side.send(3, NONE);
    side.qp.finish_requests(2);
    side.evd.post_se(0).unwrap();
    side.qp.finish_requests(1);
    assert_eq!(side.cookies(), [1, 2, 0, 3]);
    side.close();
}

/// A program that binds on an ended connection and takes no event does not use up the memory.
#[test]
fn binds_that_are_flushed_at_once_are_refused_while_the_evd_is_full() {
    let side = side(NONE, NONE);
    let rmr = Rmr::create(side.pz).unwrap();
    let nothing = LmrRange {
        lmr_context: 0,
        address: 0,
        length: 0,
    };
    let unbind = || {
        rmr.bind(
            None,
            nothing,
            MemPriv::empty(),
            VaType::Va,
            side.ep,
            1,
            NONE,
        )
    };
    side.ep.disconnect(Close::Abrupt).unwrap();
    side.cookies();
    let posted = (0..10_000).take_while(|_| unbind().is_ok()).count();
    assert_eq!(posted, 20, "as many as the EVD has room for");
    assert_eq!(unbind(), Err(Error::resource(Subtype::ResourceMemory)));
    assert_eq!(side.cookies(), [1; 20]);
    unbind().unwrap();
    assert_eq!(side.cookies(), [1]);
    side.close();
}

#[test]
fn suppressed_completions_are_skipped() {
    let side = side(NONE, NONE);
    for cookie in 1..=9 {
        let quiet = cookie % 3 != 0;
        let flags = if quiet {
            CompletionFlags::SUPPRESS
        } else {
            NONE
        };
        side.send(cookie, flags);
    }
    side.qp.finish_requests(9);
    assert_eq!(side.cookies(), [3, 6, 9]);
    side.close();
}

#[test]
fn completions_of_a_freed_endpoint_are_dropped() {
    let side = side(NONE, NONE);
    side.send(1, NONE);
    side.send(2, NONE);
    side.qp.finish_requests(1);
    side.ep.free().unwrap();
    side.qp.finish_requests(1);
    assert!(!side.cookies().contains(&2));
    side.evd.free().unwrap();
    side.close();
}

#[test]
fn an_unsignalled_completion_wakes_no_waiter_but_can_be_dequeued() {
    let side = side(NONE, CompletionFlags::UNSIGNALLED);
    assert_eq!(side.evd.info().unwrap().state & 0x30, 0x10);
    let many = side.evd.wait(NOW, 2, &mut Events::default());
    assert_eq!(
        many.unwrap_err().error,
        Error::state(Subtype::InvalidStateEvdConfigNotify)
    );
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut sink = Events::default();
            let nmore = side.evd.wait(LONG, 1, &mut sink).unwrap();
            (nmore, cookies(&sink))
        });
        eventually("the waiter waits", || {
            let second = side.evd.wait(NOW, 1, &mut Events::default());
            second.unwrap_err().error == Error::state(Subtype::InvalidStateEvdWaiter)
        });
        side.send(1, CompletionFlags::UNSIGNALLED);
        side.qp.finish_requests(1);
        thread::sleep(Duration::from_millis(10));
        assert!(!waiter.is_finished(), "woken by an unsignalled completion");
        side.send(2, NONE);
        side.qp.finish_requests(1);
        assert_eq!(waiter.join().unwrap(), (1, vec![1]));
    });
    assert_eq!(side.cookies(), [2]);
    // The wait returns the completion when the timeout expires, and not before.
    side.send(3, CompletionFlags::UNSIGNALLED);
    let qp = Arc::clone(&side.qp);
    common::at_park(move || qp.finish_requests(1));
    let (begun, mut sink) = (Instant::now(), Events::default());
    assert_eq!(side.evd.wait(SOON, 1, &mut sink), Ok(0));
    assert!(begun.elapsed() >= SOON.unwrap());
    assert_eq!(cookies(&sink), [3]);
    side.close();
}

#[test]
fn a_solicited_wait_ends_with_a_solicited_message() {
    let side = side(CompletionFlags::SOLICITED_WAIT, NONE);
    assert_eq!(side.evd.info().unwrap().state & 0x30, 0x20);
    for cookie in 1..=2 {
        side.ep.post_recv(&[], cookie, NONE).unwrap();
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut sink = Events::default();
            let nmore = side.evd.wait(LONG, 1, &mut sink).unwrap();
            (nmore, cookies(&sink))
        });
        eventually("the waiter waits", || {
            let second = side.evd.wait(NOW, 1, &mut Events::default());
            second.unwrap_err().error == Error::state(Subtype::InvalidStateEvdWaiter)
        });
        side.qp.receive(false);
        thread::sleep(Duration::from_millis(10));
        assert!(!waiter.is_finished(), "woken by an unsolicited message");
        side.qp.receive(true);
        assert_eq!(waiter.join().unwrap(), (1, vec![1]));
    });
    side.ep.free().unwrap();
    assert_eq!(side.evd.info().unwrap().state & 0x30, 0x30);
    side.close();
}

#[test]
fn a_waiter_sees_completions_up_to_its_threshold() {
    let side = side(NONE, NONE);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| side.evd.wait(LONG, 3, &mut Events::default()));
        eventually("the waiter waits", || is_waited(side.evd));
        for cookie in 1..=3 {
            side.send(cookie, NONE);
        }
        side.qp.finish_requests(3);
        assert_eq!(waiter.join().unwrap(), Ok(2));
    });
    side.close();
}

#[test]
fn no_completion_is_lost_when_there_are_more_than_the_queue_holds() {
    let side = side(NONE, NONE);
    side.evd.resize(2).unwrap();
    for cookie in 1..=16 {
        side.send(cookie, NONE);
    }
    side.qp.finish_requests(16);
    assert_eq!(side.evd.post_se(0), Err(Error::of(Kind::QueueFull)));
    assert_eq!(side.evd.resize(15), Err(Error::of(Kind::InvalidState)));
    assert_eq!(side.cookies(), (1..=16).collect::<Vec<_>>());
    side.close();
}

#[test]
fn a_connection_event_without_room_is_an_asynchronous_error() {
    let ia = open();
    let evd = Evd::create(ia, 1, None, EvdFlags::CONNECTION).unwrap();
    let requests = Evd::create(ia, 4, None, EvdFlags::DTO).unwrap();
    let parts = EpParts {
        pz: Some(Pz::create(ia).unwrap()),
        recv_evd: Some(requests),
        request_evd: Some(requests),
        connect_evd: Some(evd),
        srq: None,
    };
    for _ in 0..2 {
        let ep = Ep::create(ia, parts, None).unwrap();
        ep.connect(IpAddr::V4(Ipv4Addr::LOCALHOST), 1, None, &[], 0, 0)
            .unwrap();
        qp(ep).establish();
    }
    let mut sink = Events::default();
    ia.async_evd().unwrap().wait(LONG, 1, &mut sink).unwrap();
    assert_eq!(
        sink.0,
        [Event::Async {
            number: AsyncEvent::EvdOverflow,
            handle: raw(evd),
            reason: 0
        }]
    );
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn connection_events_may_go_to_another_open_of_the_adapter() {
    let (ia, other) = (open(), open());
    let evd = Evd::create(other, 4, None, EvdFlags::CONNECTION).unwrap();
    let requests = Evd::create(ia, 4, None, EvdFlags::DTO).unwrap();
    let parts = EpParts {
        pz: Some(Pz::create(ia).unwrap()),
        recv_evd: Some(requests),
        request_evd: Some(requests),
        connect_evd: Some(evd),
        srq: None,
    };
    let connected = || {
        let ep = Ep::create(ia, parts, None).unwrap();
        let to = IpAddr::V4(Ipv4Addr::LOCALHOST);
        ep.connect(to, 1, None, &[], 0, 0).unwrap();
        ep
    };
    let (first, second) = (connected(), connected());
    qp(first).establish();
    let mut sink = Events::default();
    evd.dequeue(&mut sink).unwrap();
    assert_eq!(evd.free(), Err(Error::state(Subtype::InvalidStateEvdInUse)));
    // The owner of the EVD may close its IA at once; the endpoints then drop their events.
    let begun = std::time::Instant::now();
    other.close(Close::Abrupt).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    qp(second).establish();
    assert!(!evd.head.alive());
    first.free().unwrap();
    second.free().unwrap();
    // Completions cannot go to an EVD of another IA.
    let third = open();
    let foreign = Evd::create(third, 4, None, EvdFlags::DTO).unwrap();
    let wrong = EpParts {
        recv_evd: Some(foreign),
        connect_evd: None,
        ..parts
    };
    assert_eq!(
        Ep::create(ia, wrong, None).map(|_| ()),
        Err(Error::handle(Subtype::InvalidHandleEvdRecv))
    );
    third.close(Close::Abrupt).unwrap();
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn a_connection_request_without_room_is_refused() {
    let ia = open();
    let evd = Evd::create(ia, 1, None, EvdFlags::CR).unwrap();
    Sp::psp_create(ia, Some(4711), evd, false).unwrap();
    let first = request(4711);
    let second = request(4711);
    assert_eq!(Arc::strong_count(&first), 2, "waits for its answer");
    assert_eq!(Arc::strong_count(&second), 1, "is refused");
    let mut sink = Events::default();
    evd.dequeue(&mut sink).unwrap();
    assert!(evd.dequeue(&mut sink).is_err());
    let asynchronous = ia.async_evd().unwrap();
    asynchronous.dequeue(&mut sink).unwrap();
    let overflow = Event::Async {
        number: AsyncEvent::EvdOverflow,
        handle: raw(evd),
        reason: 0,
    };
    assert_eq!(sink.0[1], overflow);
    ia.close(Close::Abrupt).unwrap();
    assert_eq!(Arc::strong_count(&first), 1, "refused by the close");
}

/// Requests of a peer must not fill the asynchronous EVD.
#[test]
fn a_burst_of_lost_requests_is_one_asynchronous_error_each_time_that_the_evd_is_full() {
    let ia = open();
    let evd = Evd::create(ia, 1, None, EvdFlags::CR).unwrap();
    Sp::psp_create(ia, Some(4712), evd, false).unwrap();
    let overflow = Event::Async {
        number: AsyncEvent::EvdOverflow,
        handle: raw(evd),
        reason: 0,
    };
    let reported = || {
        let mut sink = Events::default();
        while ia.async_evd().unwrap().dequeue(&mut sink).is_ok() {}
        sink.0
    };
    for _ in 0..2 {
        for _ in 0..20 {
            request(4712);
        }
        assert_eq!(reported(), [overflow]);
        evd.dequeue(&mut Events::default()).unwrap();
    }
    // A report that finds no room is made with the next loss.
    let others = Evd::create(ia, 1, None, EvdFlags::CONNECTION).unwrap();
    let requests = Evd::create(ia, 4, None, EvdFlags::DTO).unwrap();
    let parts = EpParts {
        pz: Some(Pz::create(ia).unwrap()),
        recv_evd: Some(requests),
        request_evd: Some(requests),
        connect_evd: Some(others),
        srq: None,
    };
    let ep = Ep::create(ia, parts, None).unwrap();
    let room = ia.async_evd().unwrap().info().unwrap().qlen as usize;
    for _ in 0..room {
        ep.connect(IpAddr::V4(Ipv4Addr::LOCALHOST), 1, None, &[], 0, 0)
            .unwrap();
        qp(ep).establish();
        ep.disconnect(Close::Abrupt).unwrap();
        ep.reset().unwrap();
        while others.dequeue(&mut Events::default()).is_ok() {}
    }
    request(4712);
    request(4712);
    assert_eq!(reported().len(), room);
    request(4712);
    assert_eq!(reported(), [overflow]);
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn a_cno_is_notified_of_completions_only_while_it_listens_and_misses_none() {
    let side = side(NONE, NONE);
    let cno = Cno::create(side.ia, CnoProxy::None).unwrap();
    side.evd.modify_cno(Some(cno)).unwrap();
    for round in 0..20_u64 {
        // Before the wait, between two waits, and during one.
        side.send(2 * round + 1, NONE);
        side.qp.finish_requests(1);
        assert_eq!(cno.wait(LONG), Ok(raw(side.evd)));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| cno.wait(LONG));
            eventually("the waiter waits", || {
                waiter.is_finished() || cno.info().unwrap().waiters == 1
            });
            side.send(2 * round + 2, NONE);
            side.qp.finish_requests(1);
            assert_eq!(waiter.join().unwrap(), Ok(raw(side.evd)));
        });
        assert_eq!(side.cookies(), [2 * round + 1, 2 * round + 2]);
        assert_eq!(cno.wait(NOW).unwrap_err().code(), 0x000d_0000);
    }
    side.close();
}

#[test]
fn an_agent_is_called_for_a_completion_without_a_waiter() {
    let side = side(NONE, NONE);
    let (tell, reported) = std::sync::mpsc::channel();
    let cno = Cno::create(side.ia, CnoProxy::None).unwrap();
    side.evd.modify_cno(Some(cno)).unwrap();
    cno.modify_agent(Some(Agent {
        call: Box::new(move |evd| tell.send(evd).unwrap()),
        instance_data: 0,
        function: 0,
    }))
    .unwrap();
    side.send(1, NONE);
    side.qp.finish_requests(1);
    assert_eq!(reported.recv_timeout(LONG.unwrap()), Ok(raw(side.evd)));
    side.close();
}

#[test]
fn notifications_return_to_the_cno_after_a_wait() {
    let side = side(NONE, NONE);
    let cno = Cno::create(side.ia, CnoProxy::None).unwrap();
    side.evd.modify_cno(Some(cno)).unwrap();
    for round in 0..5 {
        let (tell, reported) = std::sync::mpsc::channel();
        cno.modify_agent(Some(Agent {
            call: Box::new(move |evd| tell.send(evd).unwrap()),
            instance_data: 0,
            function: 0,
        }))
        .unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| side.evd.wait(LONG, 1, &mut Events::default()));
            eventually("the waiter waits", || is_waited(side.evd));
            side.send(2 * round + 1, NONE);
            side.qp.finish_requests(1);
            assert_eq!(waiter.join().unwrap(), Ok(0));
        });
        assert!(reported.try_recv().is_err(), "the waiter owned the EVD");
        side.send(2 * round + 2, NONE);
        side.qp.finish_requests(1);
        assert_eq!(reported.recv_timeout(LONG.unwrap()), Ok(raw(side.evd)));
        assert_eq!(side.cookies(), [2 * round + 2]);
        assert_eq!(cno.wait(NOW), Ok(raw(side.evd)));
    }
    side.close();
}

#[test]
fn a_bound_lmr_is_in_use_until_rebind_unbind_or_free() {
    let side = side(NONE, NONE);
    let rights = MemPriv::ALL;
    let at = |address: usize| {
        Lmr::create(
            side.ia,
            Source::Virtual(address),
            100,
            side.pz,
            rights,
            VaType::Va,
        )
        .unwrap()
    };
    let (one, two) = (at(0x1000), at(0x2000));
    let rmr = Rmr::create(side.pz).unwrap();
    let range = |lmr: &'static Lmr<Null>, offset: u64, length| {
        let info = lmr.info().unwrap();
        LmrRange {
            lmr_context: info.lmr_context,
            address: info.registered_address.wrapping_add(offset),
            length,
        }
    };
    let bind = |lmr, range, rights, cookie| {
        rmr.bind(lmr, range, rights, VaType::Va, side.ep, cookie, NONE)
    };
    let read = MemPriv::REMOTE_READ;
    // 2.0 passes the LMR, 1.2 only its context.
    let first = bind(Some(one), range(one, 10, 90), read, 1).unwrap();
    let in_use = Err(Error::state(Subtype::InvalidStateLmrInUse));
    assert_eq!(one.free(), in_use);
    let info = rmr.info().unwrap();
    assert_eq!((info.lmr, info.rmr_context), (raw(one), first));
    assert_eq!((info.range, info.rights), (range(one, 10, 90), read));
    let second = bind(None, range(two, 0, 100), read, 2).unwrap();
    assert_ne!(first, second);
    assert_eq!(two.free(), in_use);
    one.free().unwrap();
    assert_eq!(bind(None, LmrRange::default(), read, 3), Ok(0));
    assert_eq!(rmr.info().unwrap().lmr, 0);
    side.qp.finish_requests(3);
    let mut sink = Events::default();
    for cookie in 1..=3 {
        side.evd.dequeue(&mut sink).unwrap();
        let Some(Event::Dto(dto)) = sink.0.pop() else {
            panic!("no completion");
        };
        assert_eq!((dto.op, dto.rmr), (DtoOp::BindMw, raw(rmr)));
        assert_eq!((dto.cookie, dto.ep), (cookie, raw(side.ep)));
    }
    // Arguments that a bind refuses, numbered as in its version of the API.
    let dead = range(two, 0, 8);
    assert_eq!(
        bind(Some(two), range(two, 1, 100), read, 0),
        Err(Error::arg(3))
    );
    assert_eq!(bind(None, range(two, 1, 100), read, 0), Err(Error::arg(2)));
    assert_eq!(
        bind(Some(two), range(two, u64::MAX, 8), read, 0),
        Err(Error::arg(3))
    );
    let odd = MemPriv::from_bits_retain(0x100);
    assert_eq!(bind(Some(two), dead, odd, 0), Err(Error::arg(4)));
    let shy = Lmr::create(
        side.ia,
        Source::Virtual(0x3000),
        8,
        side.pz,
        MemPriv::LOCAL_READ,
        VaType::Va,
    )
    .unwrap();
    let write = MemPriv::REMOTE_WRITE;
    let violation = |kind| Err(Error::of(kind));
    assert_eq!(
        bind(Some(shy), range(shy, 0, 8), write, 0),
        violation(Kind::PrivilegesViolation)
    );
    assert!(bind(Some(shy), range(shy, 0, 8), read, 0).is_ok());
    let other = Pz::create(side.ia).unwrap();
    let foreign = Lmr::create(
        side.ia,
        Source::Virtual(0x4000),
        8,
        other,
        rights,
        VaType::Va,
    )
    .unwrap();
    assert_eq!(
        bind(Some(foreign), range(foreign, 0, 8), read, 0),
        violation(Kind::ProtectionViolation)
    );
    let elsewhere = Rmr::create(other).unwrap();
    assert_eq!(
        elsewhere.bind(None, range(two, 0, 8), read, VaType::Va, side.ep, 0, NONE),
        violation(Kind::ProtectionViolation)
    );
    two.free().unwrap();
    assert_eq!(
        bind(Some(two), dead, read, 0),
        Err(Error::handle(Subtype::InvalidHandleLmr))
    );
    assert_eq!(bind(None, dead, read, 0), Err(Error::arg(2)));
    assert_eq!(shy.free(), in_use);
    rmr.free().unwrap();
    shy.free().unwrap();
    side.close();
}

#[test]
fn the_completion_queue_grows_with_the_endpoints_on_it() {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    let evd = Evd::create(ia, 2, None, EvdFlags::DTO).unwrap();
    let parts = EpParts {
        pz: Some(pz),
        recv_evd: Some(evd),
        request_evd: Some(evd),
        connect_evd: None,
        srq: None,
    };
    let mut expected = 0;
    for _ in 0..20 {
        let ep = Ep::create(ia, parts, None).unwrap();
        expected += 32;
        let depth = qp(ep)
            .request_cq
            .depth
            .load(std::sync::atomic::Ordering::SeqCst);
        assert!(depth >= expected, "{depth} < {expected}");
    }
    ia.close(Close::Abrupt).unwrap();
}

/// A reset may bring a new queue pair (over rdma_cm it always does); the old one's room becomes the new one's. A device
/// whose queues cannot grow would refuse the endpoint after some resets.
#[test]
fn the_completion_queue_does_not_grow_with_resets() {
    use std::sync::atomic::Ordering::SeqCst;
    let ia = open();
    let evd = Evd::create(ia, 2, None, EvdFlags::DTO).unwrap();
    let parts = EpParts {
        pz: Some(Pz::create(ia).unwrap()),
        recv_evd: Some(evd),
        request_evd: Some(evd),
        connect_evd: None,
        srq: None,
    };
    let ep = Ep::create(ia, parts, None).unwrap();
    let depth = qp(ep).request_cq.depth.load(SeqCst);
    for _ in 0..100 {
        let old = qp(ep);
        old.single_use.store(true, SeqCst);
        ep.connect(IpAddr::V4(Ipv4Addr::LOCALHOST), 1, None, &[], 0, 0)
            .unwrap();
        old.establish();
        ep.post_recv(&[], 7, NONE).unwrap();
        ep.disconnect(Close::Abrupt).unwrap();
        ep.reset().unwrap();
        assert!(!Arc::ptr_eq(&qp(ep), &old), "a new queue pair");
        assert_eq!(qp(ep).request_cq.depth.load(SeqCst), depth);
    }
    ia.close(Close::Abrupt).unwrap();
}
