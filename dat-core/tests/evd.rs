//! Event dispatchers: the `dat_evd_*` pages, with software events.

mod null;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dat_core::error::{Error, Kind, Subtype};
use dat_core::evd::{Evd, WaitError};
use dat_core::flags::{Close, EvdFlags};
use dat_core::ia::Ia;
use null::{Events, LONG, Null, eventually, open, woken};

const SOON: Option<Duration> = Some(Duration::from_millis(20));

fn software(ia: &'static Ia<Null>, qlen: u32) -> &'static Evd<Null> {
    Evd::create(ia, qlen, None, EvdFlags::SOFTWARE).unwrap()
}

/// Returns true if a thread waits. It takes no event, because the queue is never full.
fn waited(evd: &'static Evd<Null>) -> bool {
    let qlen = evd.info().unwrap().qlen;
    let second = evd.wait(Some(Duration::ZERO), qlen, &mut Events::default());
    second.unwrap_err().error == Error::state(Subtype::InvalidStateEvdWaiter)
}

fn code<T: std::fmt::Debug>(result: Result<T, WaitError>) -> u32 {
    result.unwrap_err().error.code()
}

#[test]
fn an_empty_queue_has_two_codes() {
    let ia = open();
    let mut sink = Events::default();
    let plain = software(ia, 4);
    assert_eq!(plain.dequeue(&mut sink).unwrap_err().code(), 0x800d_0000);
    for flags in [
        EvdFlags::DTO,
        EvdFlags::RMR_BIND,
        EvdFlags::DTO | EvdFlags::SOFTWARE,
    ] {
        let evd = Evd::create(ia, 4, None, flags).unwrap();
        assert_eq!(evd.dequeue(&mut sink).unwrap_err().code(), 0x000d_0000);
    }
    assert!(sink.0.is_empty());
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn events_are_dequeued_in_order_and_a_full_queue_refuses() {
    let ia = open();
    let evd = software(ia, 3);
    for pointer in 1..=3 {
        evd.post_se(pointer).unwrap();
    }
    assert_eq!(evd.post_se(4), Err(Error::of(Kind::QueueFull)));
    let mut sink = Events::default();
    assert_eq!(evd.wait(Some(Duration::ZERO), 1, &mut sink), Ok(2));
    evd.dequeue(&mut sink).unwrap();
    evd.dequeue(&mut sink).unwrap();
    assert!(evd.dequeue(&mut sink).is_err());
    assert_eq!(sink.pointers(), [1, 2, 3]);
    // A full queue in dat_evd_post_se is not an overflow.
    assert!(ia.async_evd().unwrap().dequeue(&mut sink).is_err());
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn create_checks_length_and_streams() {
    let ia = open();
    let create =
        |qlen, bits| Evd::create(ia, qlen, None, EvdFlags::from_bits_retain(bits)).map(|_| ());
    assert_eq!(create(0, 1), Err(Error::arg(2)));
    assert_eq!(create(1 << 31, 1), Err(Error::arg(2)));
    assert_eq!(create(1025, 1), Err(Error::resource(Subtype::ResourceTevd)));
    assert_eq!(create(1, 0), Err(Error::arg(4)));
    assert_eq!(create(1, 0x200), Err(Error::arg(4)));
    assert_eq!(create(1024, 0x1f1), Ok(()));
    ia.close(Close::Abrupt).unwrap();
    assert_eq!(create(1, 1), Err(Error::handle(Subtype::InvalidHandleIa)));
}

#[test]
fn an_evd_that_takes_no_software_events_refuses_them() {
    let ia = open();
    let evd = Evd::create(ia, 1, None, EvdFlags::CR).unwrap();
    assert_eq!(evd.post_se(1), Err(Error::arg(1)));
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn a_wait_with_a_threshold_waits_for_that_many_events() {
    let ia = open();
    let evd = software(ia, 8);
    let mut sink = Events::default();
    assert_eq!(code(evd.wait(SOON, 0, &mut sink)), Error::arg(3).code());
    assert_eq!(code(evd.wait(SOON, 9, &mut sink)), Error::arg(3).code());
    evd.post_se(1).unwrap();
    evd.post_se(2).unwrap();
    assert_eq!(
        evd.wait(SOON, 3, &mut sink),
        Err(WaitError {
            error: Error::of(Kind::TimeoutExpired),
            nmore: 2
        })
    );
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut sink = Events::default();
            let nmore = evd.wait(LONG, 4, &mut sink);
            (nmore, sink.pointers())
        });
        eventually("the waiter waits", || waited(evd));
        evd.post_se(3).unwrap();
        assert!(waited(evd), "woken by three of four");
        evd.post_se(4).unwrap();
        assert_eq!(woken(waiter), (Ok(3), vec![1]));
    });
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn one_waiter_at_a_time_and_it_owns_the_evd() {
    let ia = open();
    let evd = software(ia, 8);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| evd.wait(None, 1, &mut Events::default()));
        eventually("the waiter waits", || waited(evd));
        let second = evd.wait(LONG, 1, &mut Events::default());
        assert_eq!(
            code(second),
            Error::state(Subtype::InvalidStateEvdWaiter).code()
        );
        assert_eq!(
            evd.dequeue(&mut Events::default()),
            Err(Error::state(Subtype::InvalidStateEvdWaiter))
        );
        evd.post_se(1).unwrap();
        assert_eq!(woken(waiter), Ok(0));
    });
    assert_eq!(
        evd.dequeue(&mut Events::default()),
        Err(Error::of(Kind::QueueEmpty))
    );
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn a_wait_ends_at_its_timeout_and_zero_returns_at_once() {
    let ia = open();
    let evd = software(ia, 8);
    let expired = Error::of(Kind::TimeoutExpired).code();
    let mut sink = Events::default();
    assert_eq!(code(evd.wait(Some(Duration::ZERO), 1, &mut sink)), expired);
    let begun = Instant::now();
    assert_eq!(code(evd.wait(SOON, 1, &mut sink)), expired);
    assert!(begun.elapsed() >= SOON.unwrap());
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn an_unwaitable_evd_refuses_waiters_but_not_events() {
    let ia = open();
    let evd = software(ia, 8);
    let refused = Error::state(Subtype::InvalidStateEvdUnwaitable).code();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| evd.wait(None, 1, &mut Events::default()));
        eventually("the waiter waits", || waited(evd));
        evd.set_unwaitable().unwrap();
        // The wait ends even if the EVD is waitable again before the waiter looks.
        evd.clear_unwaitable().unwrap();
        assert_eq!(code(woken(waiter)), refused);
    });
    evd.set_unwaitable().unwrap();
    assert_eq!(evd.info().unwrap().state & 0xc, 0x8);
    evd.post_se(7).unwrap();
    let mut sink = Events::default();
    assert_eq!(code(evd.wait(LONG, 1, &mut sink)), refused);
    evd.dequeue(&mut sink).unwrap();
    assert_eq!(sink.pointers(), [7]);
    evd.clear_unwaitable().unwrap();
    evd.post_se(8).unwrap();
    assert_eq!(evd.wait(LONG, 1, &mut sink), Ok(0));
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn resize_keeps_events_and_refuses_to_lose_any() {
    let ia = open();
    let evd = software(ia, 4);
    for pointer in 1..=4 {
        evd.post_se(pointer).unwrap();
    }
    assert_eq!(evd.resize(3), Err(Error::of(Kind::InvalidState)));
    assert_eq!(evd.resize(0), Err(Error::arg(2)));
    assert_eq!(evd.info().unwrap().qlen, 4);
    evd.resize(5).unwrap();
    evd.post_se(5).unwrap();
    assert_eq!(evd.post_se(6), Err(Error::of(Kind::QueueFull)));
    let mut sink = Events::default();
    while evd.dequeue(&mut sink).is_ok() {}
    assert_eq!(sink.pointers(), [1, 2, 3, 4, 5]);
    evd.resize(1).unwrap();
    assert_eq!(evd.info().unwrap().qlen, 1);
    ia.close(Close::Abrupt).unwrap();
}

/// dat_evd_wait: a threshold above the length of the queue is refused, because that many events cannot come.
#[test]
fn resize_refuses_a_length_below_the_threshold_of_a_waiter() {
    let ia = open();
    let evd = software(ia, 10);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| evd.wait(LONG, 8, &mut Events::default()));
        eventually("the waiter waits", || waited(evd));
        let refused = Error::state(Subtype::InvalidStateEvdWaiter);
        assert_eq!(evd.resize(7), Err(refused));
        assert_eq!(evd.info().unwrap().qlen, 10);
        evd.resize(8).unwrap();
        for pointer in 1..=8 {
            evd.post_se(pointer).unwrap();
        }
        assert_eq!(woken(waiter), Ok(7));
    });
    evd.resize(7).unwrap();
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn free_aborts_the_waiter_and_the_handle_is_dead() {
    let ia = open();
    let evd = software(ia, 4);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| evd.wait(None, 1, &mut Events::default()));
        eventually("the waiter waits", || waited(evd));
        evd.free().unwrap();
        assert_eq!(code(woken(waiter)), Error::of(Kind::Abort).code());
    });
    let dead = Error::of(Kind::InvalidHandle);
    let dead_argument = Error::handle(Subtype::InvalidHandle1);
    let mut sink = Events::default();
    assert_eq!(evd.free(), Err(dead));
    assert_eq!(evd.dequeue(&mut sink), Err(dead_argument));
    assert_eq!(code(evd.wait(LONG, 1, &mut sink)), dead.code());
    assert_eq!(evd.post_se(1), Err(dead));
    assert_eq!(evd.resize(2), Err(dead));
    assert_eq!(evd.enable(), Err(dead));
    assert_eq!(evd.disable(), Err(dead));
    assert_eq!(evd.set_unwaitable(), Err(dead));
    assert_eq!(evd.clear_unwaitable(), Err(dead));
    assert_eq!(evd.modify_cno(None), Err(dead));
    assert_eq!(evd.info(), Err(dead));
    ia.close(Close::Graceful).unwrap();
}

#[test]
fn the_asynchronous_evd_belongs_to_its_ia() {
    let ia = open();
    let evd = ia.async_evd().unwrap();
    assert_eq!(evd.free(), Err(Error::state(Subtype::InvalidStateEvdInUse)));
    // dtestsrq requests a length of 8 too, and ends 100 endpoints at once, each of which causes an event.
    assert!(evd.info().unwrap().qlen >= 100);
    assert_eq!(evd.info().unwrap().state, 0x35);
    ia.close(Close::Graceful).unwrap();
    assert_eq!(evd.free(), Err(Error::of(Kind::InvalidHandle)));
}

#[test]
fn many_threads_get_every_event_once() {
    let ia = open();
    let evd = software(ia, 1000);
    let taken = AtomicUsize::new(0);
    let mut all = thread::scope(|scope| {
        for producer in 0..2 {
            scope.spawn(move || {
                for n in 0..500 {
                    evd.post_se(producer * 500 + n).unwrap();
                }
            });
        }
        let consumers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut sink = Events::default();
                    eventually("all events are taken", || {
                        if evd.dequeue(&mut sink).is_ok() {
                            taken.fetch_add(1, Ordering::SeqCst);
                        }
                        taken.load(Ordering::SeqCst) == 1000
                    });
                    sink.pointers()
                })
            })
            .collect();
        consumers
            .into_iter()
            .flat_map(|c| c.join().unwrap())
            .collect::<Vec<_>>()
    });
    all.sort_unstable();
    assert_eq!(all, (0..1000).collect::<Vec<_>>());
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn frees_race_with_every_other_call() {
    let ia = open();
    for _ in 0..50 {
        let evd = software(ia, 4);
        let freed = thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..20 {
                    let _ = evd.post_se(n);
                }
            });
            scope.spawn(|| {
                let mut sink = Events::default();
                for _ in 0..20 {
                    let _ = evd.wait(Some(Duration::from_micros(10)), 1, &mut sink);
                }
            });
            let frees: Vec<_> = (0..2).map(|_| scope.spawn(|| evd.free().is_ok())).collect();
            frees
                .into_iter()
                .map(|f| f.join().unwrap())
                .filter(|ok| *ok)
                .count()
        });
        assert_eq!(freed, 1);
    }
    ia.close(Close::Graceful).unwrap();
}
