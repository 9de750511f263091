//! Interface adapters: the `dat_ia_*` pages.

mod null;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use dat_core::cno::{Cno, CnoProxy};
use dat_core::error::{Error, Kind, Subtype};
use dat_core::evd::Evd;
use dat_core::flags::{Close, EvdFlags, MemPriv, VaType};
use dat_core::ia::{AsyncEvd, Ia};
use dat_core::ia_params::IaParams;
use dat_core::lmr::{Lmr, Source};
use dat_core::pz::Pz;
use null::{Events, LEAVES, Null, at_park, eventually, open};

fn dead() -> Error {
    Error::handle(Subtype::InvalidHandleIa)
}

fn reopen(name: &str, evd: AsyncEvd<Null>) -> Result<&'static Ia<Null>, Error> {
    Ia::open(name, &IaParams::default(), 8, evd, 1)
}

#[test]
fn one_name_may_be_open_many_times() {
    let all: Vec<_> = (0..30).map(|_| open()).collect();
    for ia in &all {
        assert_eq!(ia.name(), "null0");
        assert_eq!(ia.attributes().unwrap().adapter_name, "null");
        assert_eq!(ia.head.table(), 0x7ab1e);
    }
    for ia in all {
        ia.close(Close::Graceful).unwrap();
        assert_eq!(ia.attributes().unwrap_err(), dead());
    }
}

#[test]
fn a_failed_open_leaves_nothing() {
    let error = reopen("broken", AsyncEvd::New).unwrap_err();
    assert_eq!(error, Error::of(Kind::InsufficientResources));
}

#[test]
fn objects_inherit_the_function_table_of_their_ia() {
    let ia = open();
    assert_eq!(Pz::create(ia).unwrap().head.table(), 0x7ab1e);
    assert_eq!(ia.async_evd().unwrap().head.table(), 0x7ab1e);
    ia.close(Close::Abrupt).unwrap();
    let ia = reopen("null0", AsyncEvd::OutOfScope).unwrap();
    assert_eq!(Pz::create(ia).unwrap().head.table(), 1);
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn a_graceful_close_is_refused_while_objects_are_left() {
    let ia = open();
    let in_use = Err(Error::state(Subtype::InvalidStateIaInUse));
    let evd = Evd::create(ia, 1, None, EvdFlags::CR).unwrap();
    assert_eq!(ia.close(Close::Graceful), in_use);
    evd.free().unwrap();
    let cno = Cno::create(ia, CnoProxy::None).unwrap();
    assert_eq!(ia.close(Close::Graceful), in_use);
    cno.free().unwrap();
    let pz = Pz::create(ia).unwrap();
    let lmr = Lmr::create(ia, Source::Virtual(0x1000), 8, pz, MemPriv::ALL, VaType::Va).unwrap();
    assert_eq!(ia.close(Close::Graceful), in_use);
    lmr.free().unwrap();
    assert_eq!(ia.close(Close::Graceful), in_use);
    pz.free().unwrap();
    ia.close(Close::Graceful).unwrap();
    assert_eq!(ia.close(Close::Graceful), Err(dead()));
    assert_eq!(ia.close(Close::Abrupt), Err(dead()));
}

#[test]
fn an_abrupt_close_wakes_waiters_and_ends_every_handle() {
    let ia = open();
    let evd = Evd::create(ia, 4, None, EvdFlags::SOFTWARE).unwrap();
    let cno = Cno::create(ia, CnoProxy::None).unwrap();
    thread::scope(|scope| {
        let on_evd = scope.spawn(|| evd.wait(None, 1, &mut Events::default()));
        let on_async = scope.spawn(|| {
            ia.async_evd()
                .unwrap()
                .wait(None, 1, &mut Events::default())
        });
        let on_cno = scope.spawn(|| cno.wait(None));
        let asynchronous = ia.async_evd().unwrap();
        for evd in [evd, asynchronous] {
            eventually("the waiter waits", || {
                let qlen = evd.info().unwrap().qlen;
                let second = evd.wait(Some(Duration::ZERO), qlen, &mut Events::default());
                second.unwrap_err().error == Error::state(Subtype::InvalidStateEvdWaiter)
            });
        }
        eventually("the waiter waits", || cno.info().unwrap().waiters == 1);
        ia.close(Close::Abrupt).unwrap();
        let abort = Error::of(Kind::Abort);
        assert_eq!(on_evd.join().unwrap().unwrap_err().error, abort);
        assert_eq!(on_async.join().unwrap().unwrap_err().error, abort);
        assert_eq!(on_cno.join().unwrap(), Ok(0));
    });
    assert!(!evd.head.alive() && !cno.head.alive() && !ia.head.alive());
    assert_eq!(Pz::create(ia).map(|_| ()), Err(dead()));
    assert!(ia.async_evd().is_none());
}

#[test]
fn an_asynchronous_evd_may_serve_several_opens() {
    let first = open();
    let shared = first.async_evd().unwrap();
    let second = reopen("null0", AsyncEvd::Existing(shared)).unwrap();
    assert!(std::ptr::eq(second.async_evd().unwrap(), shared));
    // This open did not create the EVD: the close does not free it, and it is not an object of the IA.
    second.close(Close::Graceful).unwrap();
    assert!(shared.head.alive());
    let third = reopen("null0", AsyncEvd::Existing(shared)).unwrap();
    let in_use = Err(Error::state(Subtype::InvalidStateIaInUse));
    assert_eq!(first.close(Close::Graceful), in_use);
    assert!(std::ptr::eq(third.async_evd().unwrap(), shared));
    first.close(Close::Abrupt).unwrap();
    assert!(!shared.head.alive());
    assert!(third.async_evd().is_none());
    third.close(Close::Graceful).unwrap();
    let wrong = Evd::create(open(), 1, None, EvdFlags::CR).unwrap();
    assert_eq!(
        reopen("null0", AsyncEvd::Existing(wrong)).map(|_| ()),
        Err(Error::handle(Subtype::InvalidHandleEvdAsync))
    );
    let none = reopen("null0", AsyncEvd::OutOfScope).unwrap();
    assert!(none.async_evd().is_none());
    none.close(Close::Graceful).unwrap();
}

/// The close notifies the transport even while another thread still holds the adapter.
#[test]
fn a_close_of_the_ia_closes_the_adapter() {
    let ia = open();
    let evd = Evd::create(ia, 8, None, EvdFlags::DTO).unwrap();
    let (parked, is_parked) = channel();
    let waiter = thread::spawn(move || {
        at_park(move || parked.send(()).unwrap());
        assert!(evd.wait(None, 1, &mut Events::default()).is_err());
        LEAVES.get()
    });
    is_parked.recv().unwrap();
    ia.close(Close::Abrupt).unwrap();
    assert_eq!(LEAVES.get(), 1);
    assert_eq!(waiter.join().unwrap(), 0);
    assert!(ia.close(Close::Abrupt).is_err() && reopen("broken", AsyncEvd::New).is_err());
    assert_eq!(LEAVES.get(), 1);
}

#[test]
fn of_two_closes_one_wins_while_others_create_and_free() {
    for _ in 0..30 {
        let ia = open();
        let won = AtomicU32::new(0);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let Ok(pz) = Pz::create(ia) else { break };
                        let evd = Evd::create(ia, 2, None, EvdFlags::SOFTWARE | EvdFlags::DTO);
                        let _ = pz.free();
                        if let Ok(evd) = evd {
                            let _ = evd.post_se(1);
                        }
                    }
                });
                scope.spawn(|| {
                    thread::yield_now();
                    if ia.close(Close::Abrupt).is_ok() {
                        won.fetch_add(1, Ordering::SeqCst);
                    }
                    stop.store(true, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(won.into_inner(), 1);
        assert_eq!(ia.close(Close::Abrupt), Err(dead()));
    }
}
