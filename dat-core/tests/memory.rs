//! Protection zones, LMRs and RMRs: the `dat_pz_*`, `dat_lmr_*` and `dat_rmr_*` pages, without connections.

mod null;

use std::thread;

use dat_core::error::{Error, Kind, Subtype};
use dat_core::flags::{Close, MemPriv, VaType};
use dat_core::head::raw;
use dat_core::ia::Ia;
use dat_core::iov::LmrTriplet;
use dat_core::lmr::{Lmr, Source};
use dat_core::pz::Pz;
use dat_core::rmr::{LmrRange, Rmr};
use null::{Null, open, regions};

const AT: usize = 0x10_0000;

fn lmr(
    ia: &'static Ia<Null>,
    pz: &'static Pz<Null>,
    source: Source<Null>,
    length: u64,
) -> Result<&'static Lmr<Null>, Error> {
    Lmr::create(ia, source, length, pz, MemPriv::ALL, VaType::Va)
}

#[test]
fn a_query_returns_the_registered_attributes() {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    let lmr = lmr(ia, pz, Source::Virtual(AT), 100).unwrap();
    let info = lmr.info().unwrap();
    assert_eq!((info.ia, info.pz), (raw(ia), raw(pz)));
    assert_eq!((info.length, info.registered_size), (100, 100));
    assert_eq!(info.registered_address, AT as u64);
    assert_eq!(info.rights, MemPriv::ALL);
    assert_ne!(info.lmr_context, 0);
    assert_ne!(info.rmr_context, 0);
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn a_remote_key_exists_only_for_remote_rights() {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    for bits in 0..0x80_u32 {
        let rights = MemPriv::from_bits_retain(bits);
        let made = Lmr::create(ia, Source::Virtual(AT), 8, pz, rights, VaType::Va);
        if bits & !0x73 != 0 {
            assert_eq!(made.map(|_| ()), Err(Error::arg(6)), "{bits:#x}");
            continue;
        }
        let lmr = made.unwrap();
        let remote = lmr.info().unwrap().rmr_context;
        assert_eq!(remote != 0, bits & 0x62 != 0, "{bits:#x}");
        lmr.free().unwrap();
    }
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn invalid_ranges_are_refused() {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    let code = |address, length| lmr(ia, pz, Source::Virtual(address), length).map(|_| ());
    assert_eq!(code(0, 8), Err(Error::arg(3)));
    assert_eq!(code(AT, 0), Err(Error::of(Kind::LengthError)));
    assert_eq!(code(0, 0), Err(Error::of(Kind::LengthError)));
    assert_eq!(code(AT, u64::MAX), Err(Error::arg(4)));
    assert_eq!(code(usize::MAX, 2), Err(Error::arg(4)));
    assert_eq!(
        Lmr::create(
            ia,
            Source::Virtual(AT),
            8,
            pz,
            MemPriv::ALL,
            VaType::ZeroBased
        )
        .map(|_| ()),
        Err(Error::of(Kind::ModelNotSupported))
    );
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn a_pz_is_not_freed_under_lmrs_and_rmrs() {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    let in_use = Err(Error::state(Subtype::InvalidStatePzInUse));
    let lmr = lmr(ia, pz, Source::Virtual(AT), 8).unwrap();
    let rmr = Rmr::create(pz).unwrap();
    assert_eq!(pz.free(), in_use);
    lmr.free().unwrap();
    assert_eq!(pz.free(), in_use);
    rmr.free().unwrap();
    pz.free().unwrap();
    let dead = Err(Error::handle(Subtype::InvalidHandlePz));
    assert_eq!(pz.free(), dead);
    assert_eq!(Rmr::create(pz).map(|_| ()), dead);
    assert_eq!(self::lmr(ia, pz, Source::Virtual(AT), 8).map(|_| ()), dead);
    ia.close(Close::Graceful).unwrap();
}

#[test]
fn a_pz_of_another_ia_is_foreign() {
    let (ia, other) = (open(), open());
    let pz = Pz::create(other).unwrap();
    assert_eq!(
        lmr(ia, pz, Source::Virtual(AT), 8).map(|_| ()),
        Err(Error::handle(Subtype::InvalidHandlePz))
    );
    ia.close(Close::Graceful).unwrap();
    other.close(Close::Abrupt).unwrap();
}

#[test]
fn an_lmr_on_an_lmr_has_its_range_and_keeps_it() {
    let ia = open();
    let (pz, second) = (Pz::create(ia).unwrap(), Pz::create(ia).unwrap());
    let base = lmr(ia, pz, Source::Virtual(AT), 4096).unwrap();
    // An LMR on an LMR ignores the length.
    let top = lmr(ia, second, Source::Lmr(base), 1).unwrap();
    let info = top.info().unwrap();
    assert_eq!(info.registered_address, AT as u64);
    assert_eq!(info.registered_size, 4096);
    assert_ne!(info.lmr_context, base.info().unwrap().lmr_context);
    assert_eq!(
        base.free(),
        Err(Error::state(Subtype::InvalidStateLmrInUse))
    );
    top.free().unwrap();
    base.free().unwrap();
    let dead = Error::handle(Subtype::InvalidHandleLmr);
    assert_eq!(base.free(), Err(dead));
    assert_eq!(base.info().map(|_| ()), Err(dead));
    assert_eq!(lmr(ia, pz, Source::Lmr(base), 1).map(|_| ()), Err(dead));
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn shared_memory_is_known_by_all_forty_bytes_of_its_name() {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    let mut cookie = [0; 40];
    let shared = |cookie, length| {
        lmr(
            ia,
            pz,
            Source::Shared {
                address: AT,
                cookie,
            },
            length,
        )
    };
    let one = shared(cookie, 64).unwrap();
    let two = shared(cookie, 64).unwrap();
    assert_eq!(shared(cookie, 32).map(|_| ()), Err(Error::arg(4)));
    cookie[39] = 1;
    let other = shared(cookie, 32).unwrap();
    let Source::Shared {
        cookie: reported, ..
    } = other.info().unwrap().source
    else {
        panic!("not shared");
    };
    assert_eq!(reported, cookie);
    cookie[39] = 0;
    one.free().unwrap();
    assert_eq!(shared(cookie, 32).map(|_| ()), Err(Error::arg(4)));
    two.free().unwrap();
    shared(cookie, 32).unwrap();
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn syncs_check_their_segments() {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    let lmr = lmr(ia, pz, Source::Virtual(AT), 100).unwrap();
    let context = lmr.info().unwrap().lmr_context;
    let segment = |address: usize, length, lmr_context| LmrTriplet {
        virtual_address: address as u64,
        segment_length: length,
        lmr_context,
    };
    let good = segment(AT + 10, 90, context);
    let wrong = Err(Error::arg(2));
    assert_eq!(
        Lmr::sync_read(ia, [good, segment(0, 0, 77)].map(Ok)),
        Ok(())
    );
    assert_eq!(Lmr::sync_write(ia, [good].map(Ok)), Ok(()));
    assert_eq!(
        Lmr::sync_read(ia, [good, segment(AT + 10, 91, context)].map(Ok)),
        wrong
    );
    assert_eq!(
        Lmr::sync_read(ia, [segment(AT - 1, 1, context)].map(Ok)),
        wrong
    );
    assert_eq!(
        Lmr::sync_read(ia, [segment(usize::MAX, 2, context)].map(Ok)),
        wrong
    );
    assert_eq!(
        Lmr::sync_read(ia, [segment(AT, 1, context ^ 1 << 30)].map(Ok)),
        wrong
    );
    lmr.free().unwrap();
    assert_eq!(Lmr::sync_read(ia, [good].map(Ok)), wrong);
    ia.close(Close::Abrupt).unwrap();
    assert_eq!(
        Lmr::sync_read(ia, [good; 0].map(Ok)),
        Err(Error::handle(Subtype::InvalidHandleIa))
    );
}

/// A region of 1.2 may be named by one segment although it has more than 4 GiB.
#[test]
fn syncs_take_segments_of_more_than_32_bits() {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    let length = 5 << 30;
    let lmr = lmr(ia, pz, Source::Virtual(AT), length).unwrap();
    let whole = LmrRange {
        lmr_context: lmr.info().unwrap().lmr_context,
        address: AT as u64,
        length,
    };
    assert_eq!(Lmr::sync_read(ia, [Ok(whole)]), Ok(()));
    let beyond = LmrRange {
        length: length + 1,
        ..whole
    };
    assert_eq!(Lmr::sync_write(ia, [Ok(beyond)]), Err(Error::arg(2)));
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn an_unbound_rmr_is_reported_as_such_and_freed_once() {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    let rmr = Rmr::create(pz).unwrap();
    let info = rmr.info().unwrap();
    assert_eq!((info.ia, info.pz, info.lmr), (raw(ia), raw(pz), 0));
    assert_eq!(info.range, LmrRange::default());
    assert_eq!(info.rmr_context, 0);
    rmr.free().unwrap();
    let dead = Error::handle(Subtype::InvalidHandleRmr);
    assert_eq!(rmr.free(), Err(dead));
    assert_eq!(rmr.info(), Err(dead));
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn an_abrupt_close_frees_in_order_of_dependency_and_leaks_nothing() {
    // Other tests register regions at the same time: count over many rounds the regions that this test leaves registered.
    let before = regions();
    for _ in 0..200 {
        let ia = open();
        let pz = Pz::create(ia).unwrap();
        let base = lmr(ia, pz, Source::Virtual(AT), 64).unwrap();
        let middle = lmr(ia, pz, Source::Lmr(base), 0).unwrap();
        lmr(ia, pz, Source::Lmr(middle), 0).unwrap();
        Rmr::create(pz).unwrap();
        ia.close(Close::Abrupt).unwrap();
        assert!(base.free().is_err());
        assert!(pz.free().is_err());
    }
    assert!(regions() < before + 200, "regions are left registered");
}

#[test]
fn creates_and_frees_of_several_threads_never_reuse_a_live_handle() {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 1..300_u64 {
                    let lmr = lmr(ia, pz, Source::Virtual(AT), n).unwrap();
                    assert_eq!(lmr.info().unwrap().length, n);
                    let zone = Pz::create(ia).unwrap();
                    let rmr = Rmr::create(zone).unwrap();
                    assert!(zone.free().is_err());
                    assert_eq!(rmr.info().unwrap().pz, raw(zone));
                    lmr.free().unwrap();
                    rmr.free().unwrap();
                    zone.free().unwrap();
                    // Slots are recycled late: no other object uses this one yet.
                    assert!(lmr.free().is_err());
                }
            });
        }
    });
    pz.free().unwrap();
    ia.close(Close::Graceful).unwrap();
}
