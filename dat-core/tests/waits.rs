//! Waits for completions: what is left, thresholds, suppression, solicited messages, CNOs and agents.

mod null;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use dat_core::cno::{Agent, Cno, CnoProxy};
use dat_core::error::{Error, Subtype};
use dat_core::evd::{Evd, Polled};
use dat_core::flags::CompletionFlags;
use dat_core::head::raw;
use null::side::{Side, cookies, side, side_of};
use null::{Events, LONG, Null, before_next_poll, eventually, woken};

const NOW: Option<Duration> = Some(Duration::ZERO);
const SOON: Option<Duration> = Some(Duration::from_millis(50));
const NONE: CompletionFlags = CompletionFlags::empty();

/// Starts a thread that waits for one event, and returns once it waits. The thread returns what is left, and the cookie.
fn waiter<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    evd: &'static Evd<Null>,
) -> thread::ScopedJoinHandle<'scope, (u32, Vec<u64>)> {
    let waiter = scope.spawn(|| {
        let mut sink = Events::default();
        let nmore = evd.wait(LONG, 1, &mut sink).unwrap();
        (nmore, cookies(&sink))
    });
    eventually("the waiter waits", || {
        let second = evd.wait(NOW, 1, &mut Events::default());
        second.unwrap_err().error == Error::state(Subtype::InvalidStateEvdWaiter)
    });
    waiter
}

fn is_waited(evd: &'static Evd<Null>) -> bool {
    let mut sink = Events::default();
    let second = evd.wait(NOW, 20, &mut sink);
    second.unwrap_err().error == Error::state(Subtype::InvalidStateEvdWaiter)
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
fn an_unsignalled_completion_wakes_no_waiter_but_can_be_dequeued() {
    let side = side(NONE, CompletionFlags::UNSIGNALLED);
    assert_eq!(side.evd.info().unwrap().state & 0x30, 0x10);
    let many = side.evd.wait(NOW, 2, &mut Events::default());
    assert_eq!(
        many.unwrap_err().error,
        Error::state(Subtype::InvalidStateEvdConfigNotify)
    );
    thread::scope(|scope| {
        let waiter = waiter(scope, side.evd);
        side.send(1, CompletionFlags::UNSIGNALLED);
        side.qp.finish_requests(1);
        thread::sleep(Duration::from_millis(10));
        assert!(!waiter.is_finished(), "woken by an unsignalled completion");
        side.send(2, NONE);
        side.qp.finish_requests(1);
        assert_eq!(woken(waiter), (1, vec![1]));
    });
    assert_eq!(side.cookies(), [2]);
    // The wait returns the completion when the timeout expires, and not before.
    side.send(3, CompletionFlags::UNSIGNALLED);
    let qp = Arc::clone(&side.qp);
    null::at_park(move || qp.finish_requests(1));
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
        let waiter = waiter(scope, side.evd);
        side.qp.receive(false);
        thread::sleep(Duration::from_millis(10));
        assert!(!waiter.is_finished(), "woken by an unsolicited message");
        side.qp.receive(true);
        assert_eq!(woken(waiter), (1, vec![1]));
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
        assert_eq!(woken(waiter), Ok(2));
    });
    side.close();
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
            assert_eq!(woken(waiter), Ok(raw(side.evd)));
        });
        assert_eq!(side.cookies(), [2 * round + 1, 2 * round + 2]);
        assert_eq!(cno.wait(NOW).unwrap_err().code(), 0x000d_0000);
    }
    side.close();
}

#[test]
fn an_agent_is_called_for_a_completion_without_a_waiter() {
    for (at_creation, before) in [(true, false), (false, false), (true, true)] {
        let side = side(NONE, NONE);
        let (tell, reported) = std::sync::mpsc::channel();
        let agent = Agent {
            call: Box::new(move |evd| tell.send(evd).unwrap()),
            instance_data: 0,
            function: 0,
        };
        let cno = if at_creation {
            Cno::create(side.ia, CnoProxy::Agent(agent)).unwrap()
        } else {
            let cno = Cno::create(side.ia, CnoProxy::None).unwrap();
            cno.modify_agent(Some(agent)).unwrap();
            cno
        };
        side.send(1, NONE);
        if before {
            side.qp.finish_requests(1);
        }
        side.evd.modify_cno(Some(cno)).unwrap();
        if !before {
            side.qp.finish_requests(1);
        }
        assert_eq!(reported.recv_timeout(LONG.unwrap()), Ok(raw(side.evd)));
        side.close();
    }
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
            assert_eq!(woken(waiter), Ok(0));
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
