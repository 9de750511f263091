//! Consumer notification objects: the `dat_cno_*` pages.

mod null;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use dat_core::cno::{Agent, Cno, CnoProxy, ProxyInfo};
use dat_core::error::{Error, Kind, Subtype};
use dat_core::evd::Evd;
use dat_core::flags::{Close, EvdFlags};
use dat_core::head::raw;
use dat_core::ia::Ia;
use dat_os::sleep::{Slept, on_readable};
use null::{Events, LONG, Null, eventually, open, woken};

const NOW: Option<Duration> = Some(Duration::ZERO);
const EMPTY: u32 = 0x000d_0000;

fn cno(ia: &'static Ia<Null>) -> &'static Cno<Null> {
    Cno::create(ia, CnoProxy::None).unwrap()
}

fn evd(ia: &'static Ia<Null>, cno: &'static Cno<Null>) -> &'static Evd<Null> {
    Evd::create(ia, 8, Some(cno), EvdFlags::SOFTWARE).unwrap()
}

fn in_use() -> Error {
    Error::state(Subtype::InvalidStateCnoInUse)
}

/// An agent that counts its calls and keeps the last handle.
fn agent() -> (Agent, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let last = Arc::new(AtomicUsize::new(usize::MAX));
    let (c, l) = (calls.clone(), last.clone());
    let agent = Agent {
        call: Box::new(move |evd| {
            l.store(evd, Ordering::SeqCst);
            c.fetch_add(1, Ordering::SeqCst);
        }),
        instance_data: 0x11,
        function: 0x22,
    };
    (agent, calls, last)
}

#[test]
fn an_evd_with_an_event_is_handed_out_once() {
    let ia = open();
    let cno = cno(ia);
    let (one, two) = (evd(ia, cno), evd(ia, cno));
    assert_eq!(cno.wait(NOW).unwrap_err().code(), EMPTY);
    assert_eq!(
        cno.wait(Some(Duration::from_millis(5))).unwrap_err().code(),
        EMPTY
    );
    two.post_se(1).unwrap();
    one.post_se(2).unwrap();
    two.post_se(3).unwrap();
    assert_eq!(cno.wait(LONG), Ok(raw(two)));
    assert_eq!(cno.wait(LONG), Ok(raw(one)));
    assert_eq!(cno.wait(NOW).unwrap_err().code(), EMPTY);
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn a_waiter_is_woken_and_each_of_many_gets_one_evd() {
    let ia = open();
    let cno = cno(ia);
    let evds = [evd(ia, cno), evd(ia, cno), evd(ia, cno)];
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| cno.wait(LONG).unwrap()))
            .collect();
        for evd in evds {
            evd.post_se(1).unwrap();
        }
        let mut woken: Vec<_> = waiters.into_iter().map(woken).collect();
        woken.sort_unstable();
        let mut all = evds.map(raw);
        all.sort_unstable();
        assert_eq!(woken, all);
    });
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn disabled_and_waited_evds_do_not_trigger() {
    let ia = open();
    let cno = cno(ia);
    let evd = evd(ia, cno);
    evd.disable().unwrap();
    assert_eq!(evd.info().unwrap().state & 3, 2);
    evd.post_se(1).unwrap();
    assert_eq!(cno.wait(NOW).unwrap_err().code(), EMPTY);
    evd.enable().unwrap();
    evd.post_se(2).unwrap();
    assert_eq!(cno.wait(NOW), Ok(raw(evd)));
    let mut sink = Events::default();
    assert_eq!(evd.wait(NOW, 2, &mut sink), Ok(1));
    evd.dequeue(&mut sink).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| evd.wait(LONG, 1, &mut Events::default()));
        eventually("the waiter waits", || {
            let second = evd.wait(NOW, 8, &mut Events::default());
            second.unwrap_err().error == Error::state(Subtype::InvalidStateEvdWaiter)
        });
        evd.post_se(3).unwrap();
        woken(waiter).unwrap();
    });
    assert_eq!(cno.wait(NOW).unwrap_err().code(), EMPTY);
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn modify_cno_moves_the_notifications() {
    let ia = open();
    let (old, new) = (cno(ia), cno(ia));
    let evd = evd(ia, old);
    assert_eq!(evd.info().unwrap().cno, raw(old));
    evd.modify_cno(Some(new)).unwrap();
    assert_eq!(evd.info().unwrap().cno, raw(new));
    evd.post_se(1).unwrap();
    assert_eq!(old.wait(NOW).unwrap_err().code(), EMPTY);
    assert_eq!(new.wait(NOW), Ok(raw(evd)));
    old.free().unwrap();
    assert_eq!(
        evd.modify_cno(Some(old)),
        Err(Error::handle(Subtype::InvalidHandleCno))
    );
    assert_eq!(new.free(), Err(in_use()));
    evd.modify_cno(None).unwrap();
    evd.post_se(2).unwrap();
    assert_eq!(new.wait(NOW).unwrap_err().code(), EMPTY);
    new.free().unwrap();
    assert_eq!(new.free(), Err(Error::handle(Subtype::InvalidHandleCno)));
    assert_eq!(new.wait(NOW), Err(Error::handle(Subtype::InvalidHandleCno)));
    assert_eq!(new.info(), Err(Error::handle(Subtype::InvalidHandleCno)));
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn a_cno_is_not_freed_while_a_thread_waits() {
    let ia = open();
    let cno = cno(ia);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| cno.wait(LONG));
        eventually("the waiter waits", || waits(cno));
        assert_eq!(cno.free(), Err(in_use()));
        // The manual page's way to end the wait.
        let lure = Evd::create(ia, 1, None, EvdFlags::SOFTWARE).unwrap();
        lure.modify_cno(Some(cno)).unwrap();
        lure.post_se(0).unwrap();
        assert_eq!(woken(waiter), Ok(raw(lure)));
        lure.free().unwrap();
    });
    cno.free().unwrap();
    ia.close(Close::Graceful).unwrap();
}

#[test]
fn waiters_get_a_null_handle_when_the_last_evd_is_freed() {
    let ia = open();
    let cno = cno(ia);
    let evd = evd(ia, cno);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| cno.wait(LONG));
        eventually("the waiter waits", || waits(cno));
        evd.free().unwrap();
        assert_eq!(woken(waiter), Ok(0));
    });
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn waiters_and_agents_get_a_null_handle_when_the_ia_closes() {
    let ia = open();
    let (agent, calls, last) = agent();
    let idle = Cno::create(ia, CnoProxy::Agent(agent)).unwrap();
    let cno = cno(ia);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| cno.wait(LONG));
        eventually("the waiter waits", || waits(cno));
        ia.close(Close::Abrupt).unwrap();
        assert_eq!(woken(waiter), Ok(0));
    });
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(last.load(Ordering::SeqCst), 0);
    assert_eq!(
        idle.wait(NOW),
        Err(Error::handle(Subtype::InvalidHandleCno))
    );
}

/// Returns true if a thread waits.
fn waits(cno: &'static Cno<Null>) -> bool {
    cno.info().unwrap().waiters == 1
}

#[test]
fn an_agent_is_called_once_in_addition_to_the_waiter() {
    let ia = open();
    let (first, calls, last) = agent();
    let cno = Cno::create(ia, CnoProxy::Agent(first)).unwrap();
    let evd = evd(ia, cno);
    let proxy = ProxyInfo::Agent {
        instance_data: 0x11,
        function: 0x22,
    };
    assert_eq!(cno.info().unwrap().proxy, proxy);
    evd.post_se(1).unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(last.load(Ordering::SeqCst), raw(evd));
    assert_eq!(cno.info().unwrap().proxy, ProxyInfo::None);
    assert_eq!(cno.wait(NOW), Ok(raw(evd)));
    evd.post_se(2).unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    let (second, again, _) = agent();
    cno.modify_agent(Some(second)).unwrap();
    assert_eq!(again.load(Ordering::SeqCst), 1, "for the second event");
    evd.post_se(3).unwrap();
    assert_eq!(again.load(Ordering::SeqCst), 1);
    let mut sink = Events::default();
    while evd.dequeue(&mut sink).is_ok() {}
    let (third, never, _) = agent();
    cno.modify_agent(Some(third)).unwrap();
    cno.modify_agent(None).unwrap();
    evd.post_se(4).unwrap();
    assert_eq!(never.load(Ordering::SeqCst), 0);
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn an_agent_may_call_back() {
    let ia = open();
    let cno = cno(ia);
    let evd = evd(ia, cno);
    let taken = Arc::new(AtomicUsize::new(0));
    let t = taken.clone();
    let agent = Agent {
        call: Box::new(move |_| {
            let mut sink = Events::default();
            evd.dequeue(&mut sink).unwrap();
            cno.wait(NOW).unwrap();
            evd.post_se(9).unwrap();
            t.store(sink.pointers()[0], Ordering::SeqCst);
        }),
        instance_data: 0,
        function: 0,
    };
    cno.modify_agent(Some(agent)).unwrap();
    evd.post_se(5).unwrap();
    assert_eq!(taken.load(Ordering::SeqCst), 5);
    assert_eq!(cno.wait(NOW), Ok(raw(evd)));
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn an_agent_may_free_its_evd_and_cno_and_close_the_ia() {
    for close in [false, true] {
        let ia = open();
        let cno = cno(ia);
        let evd = evd(ia, cno);
        let agent = Agent {
            call: Box::new(move |_| {
                evd.free().unwrap();
                cno.free().unwrap();
                if close {
                    ia.close(Close::Graceful).unwrap();
                }
            }),
            instance_data: 0,
            function: 0,
        };
        cno.modify_agent(Some(agent)).unwrap();
        evd.post_se(5).unwrap();
        assert!(!evd.head.alive() && !cno.head.alive());
        assert_eq!(ia.close(Close::Graceful).is_ok(), !close);
    }
}

#[test]
fn a_descriptor_is_readable_while_an_evd_is_pending() {
    let ia = open();
    let cno = Cno::create(ia, CnoProxy::Fd).unwrap();
    let evd = evd(ia, cno);
    let fd = cno.fd().unwrap();
    assert_eq!(cno.info().unwrap().proxy, ProxyInfo::Fd(fd));
    let readable = || on_readable([fd], Some(Duration::ZERO)) == Slept::Woken;
    assert!(!readable());
    evd.post_se(1).unwrap();
    evd.post_se(2).unwrap();
    assert!(readable());
    assert_eq!(cno.trigger(), Ok(raw(evd)));
    assert!(!readable());
    assert_eq!(cno.trigger().unwrap_err().code(), EMPTY);
    let (agent, ..) = agent();
    assert_eq!(cno.modify_agent(Some(agent)), Err(Error::arg(2)));
    assert_eq!(self::cno(ia).fd(), Err(Error::arg(1)));
    evd.free().unwrap();
    cno.free().unwrap();
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn a_full_queue_of_software_events_is_not_an_overflow() {
    let ia = open();
    let cno = cno(ia);
    let evd = evd(ia, cno);
    for n in 0..8 {
        evd.post_se(n).unwrap();
    }
    assert_eq!(evd.post_se(8), Err(Error::of(Kind::QueueFull)));
    ia.close(Close::Abrupt).unwrap();
}

/// The consumer that follows the manual page looks at the old CNO and waits on the new one.
#[test]
fn a_notification_moves_to_the_new_cno_with_its_evd() {
    let ia = open();
    let (old, new) = (cno(ia), cno(ia));
    let evd = evd(ia, old);
    evd.post_se(1).unwrap();
    evd.modify_cno(Some(new)).unwrap();
    assert_eq!(old.wait(NOW).unwrap_err().code(), EMPTY);
    assert_eq!(new.wait(NOW), Ok(raw(evd)));
    assert_eq!(new.wait(NOW).unwrap_err().code(), EMPTY);
    // Without a notification there is nothing to move.
    evd.modify_cno(Some(old)).unwrap();
    assert_eq!(old.wait(NOW).unwrap_err().code(), EMPTY);
    ia.close(Close::Abrupt).unwrap();
}

/// Man dat_cno_wait: the agent is a waiter.
#[test]
fn the_free_of_the_last_evd_calls_the_agent_with_a_null_handle() {
    let ia = open();
    let (agent, calls, last) = agent();
    let cno = Cno::create(ia, CnoProxy::Agent(agent)).unwrap();
    let (one, two) = (evd(ia, cno), evd(ia, cno));
    one.free().unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    two.free().unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(last.load(Ordering::SeqCst), 0);
    ia.close(Close::Abrupt).unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1, "an agent is called once");
}

/// The program frees what it has made as soon as it learns that it may.
#[test]
fn an_agent_that_gets_a_null_handle_may_free_the_cno_and_close_the_ia() {
    let ia = open();
    let cno = cno(ia);
    let evd = evd(ia, cno);
    let ended = Arc::new(AtomicUsize::new(0));
    let e = ended.clone();
    let agent = Agent {
        call: Box::new(move |handle| {
            assert_eq!(handle, 0);
            cno.free().unwrap();
            ia.close(Close::Graceful).unwrap();
            e.fetch_add(1, Ordering::SeqCst);
        }),
        instance_data: 0,
        function: 0,
    };
    cno.modify_agent(Some(agent)).unwrap();
    evd.free().unwrap();
    assert_eq!(ended.load(Ordering::SeqCst), 1);
}

#[test]
fn a_waiter_that_gets_a_null_handle_may_free_the_cno_and_close_the_ia() {
    for _ in 0..2000 {
        let ia = open();
        let cno = cno(ia);
        let evd = evd(ia, cno);
        thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                assert_eq!(cno.wait(LONG), Ok(0));
                cno.free().unwrap();
                ia.close(Close::Graceful).unwrap();
            });
            eventually("the waiter waits", || waits(cno));
            evd.free().unwrap();
            woken(waiter);
        });
    }
}
