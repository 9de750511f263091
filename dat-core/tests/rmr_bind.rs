//! RMR binds through an endpoint.

mod null;

use dat_core::cno::{Agent, Cno, CnoProxy};
use dat_core::error::{Error, Kind, Subtype};
use dat_core::event::{DtoOp, Event};
use dat_core::flags::{Close, CompletionFlags, MemPriv, VaType};
use dat_core::head::raw;
use dat_core::lmr::{Lmr, Source};
use dat_core::pz::Pz;
use dat_core::rmr::{LmrRange, Rmr};
use null::side::{Side, side};
use null::{Events, Null};

const NONE: CompletionFlags = CompletionFlags::empty();

/// Registers 100 bytes with all rights.
fn lmr(side: &Side, address: usize) -> &'static Lmr<Null> {
    let source = Source::Virtual(address);
    Lmr::create(side.ia, source, 100, side.pz, MemPriv::ALL, VaType::Va).unwrap()
}

/// Binds to all of an [`lmr`], with cookie 1.
fn bind_all(
    side: &Side,
    rmr: &'static Rmr<Null>,
    lmr: &'static Lmr<Null>,
    flags: CompletionFlags,
) -> Result<u32, Error> {
    let info = lmr.info().unwrap();
    let range = LmrRange {
        lmr_context: info.lmr_context,
        address: info.registered_address,
        length: 100,
    };
    let (rights, va_type) = (MemPriv::ALL, VaType::Va);
    rmr.bind(Some(lmr), range, rights, va_type, side.ep, 1, flags)
}

#[test]
fn a_bound_lmr_is_in_use_until_rebind_unbind_or_free() {
    let side = side(NONE, NONE);
    let rights = MemPriv::ALL;
    let (one, two) = (lmr(&side, 0x1000), lmr(&side, 0x2000));
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
    // Until the second bind is complete the first may be in force.
    assert_eq!((one.free(), two.free()), (in_use, in_use));
    assert_eq!(bind(None, LmrRange::default(), read, 3), Ok(0));
    assert_eq!(rmr.info().unwrap().lmr, 0);
    side.qp.finish_requests(2);
    one.free().unwrap();
    assert_eq!(two.free(), in_use);
    side.qp.finish_requests(1);
    let mut sink = Events::default();
    for cookie in 1..=3 {
        side.evd.dequeue(&mut sink).unwrap();
        let Some(Event::Dto(dto)) = sink.0.pop() else {
            panic!("no completion");
        };
        assert_eq!((dto.op, dto.rmr), (DtoOp::BindMw, raw(rmr)));
        assert_eq!((dto.cookie, dto.ep), (cookie, raw(side.ep)));
    }
    // Arguments that a bind refuses, with 2.0's numbers.
    let dead = range(two, 0, 8);
    assert_eq!(
        bind(Some(two), range(two, 1, 100), read, 0),
        Err(Error::arg(3))
    );
    assert_eq!(bind(None, range(two, 1, 100), read, 0), Err(Error::arg(3)));
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
    assert_eq!(bind(None, dead, read, 0), Err(Error::arg(3)));
    assert_eq!(shy.free(), in_use);
    rmr.free().unwrap();
    shy.free().unwrap();
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
    assert!((20..100).contains(&posted), "{posted}");
    assert_eq!(unbind(), Err(Error::resource(Subtype::ResourceMemory)));
    assert_eq!(side.cookies(), vec![1; posted]);
    unbind().unwrap();
    assert_eq!(side.cookies(), [1]);
    side.close();
}

/// On a disconnected endpoint a bind completes as flushed, which notifies the CNO: its agent may use the RMR.
#[test]
fn a_flushed_bind_leaves_the_earlier_one_and_its_agent_may_use_the_rmr() {
    let side = side(NONE, NONE);
    let rmr = Rmr::create(side.pz).unwrap();
    let [bound, other] = [0x1000, 0x2000].map(|address| lmr(&side, address));
    let bind = |lmr| bind_all(&side, rmr, lmr, NONE);
    let context = bind(bound).unwrap();
    side.qp.finish_requests(1);
    assert_eq!(side.cookies(), [1]);
    side.ep.disconnect(Close::Abrupt).unwrap();
    side.cookies();

    let (tell, told) = std::sync::mpsc::channel();
    let agent = Agent {
        call: Box::new(move |_| tell.send(rmr.info().unwrap()).unwrap()),
        instance_data: 0,
        function: 0,
    };
    let cno = Cno::create(side.ia, CnoProxy::Agent(agent)).unwrap();
    side.evd.modify_cno(Some(cno)).unwrap();
    assert_eq!(bind(other), Ok(0));
    for info in [told.try_recv().unwrap(), rmr.info().unwrap()] {
        assert_eq!((info.lmr, info.rmr_context), (raw(bound), context));
    }
    assert_eq!(side.cookies(), [1]);
    let in_use = Err(Error::state(Subtype::InvalidStateLmrInUse));
    assert_eq!(bound.free(), in_use);
    other.free().unwrap();
    rmr.free().unwrap();
    bound.free().unwrap();
    side.close();
}

#[test]
fn a_bind_that_the_transport_flushes_or_refuses_leaves_the_earlier_one() {
    let side = side(NONE, NONE);
    let rmr = Rmr::create(side.pz).unwrap();
    let [first, second] = [0x1000, 0x2000].map(|address| lmr(&side, address));
    let bind = |lmr, flags| bind_all(&side, rmr, lmr, flags);
    let in_use = Err(Error::state(Subtype::InvalidStateLmrInUse));
    let silent = CompletionFlags::SUPPRESS;
    let context = bind(first, silent).unwrap();
    side.qp.finish_requests(1);
    assert_eq!(side.cookies(), []);

    side.qp.refuse_next_post();
    bind(second, NONE).unwrap_err();
    assert_eq!(rmr.info().unwrap().rmr_context, context);
    second.free().unwrap();

    let third = lmr(&side, 0x3000);
    bind(third, NONE).unwrap();
    side.qp.flush_requests();
    assert_eq!(side.cookies(), [1]);
    let info = rmr.info().unwrap();
    assert_eq!((info.lmr, info.rmr_context), (raw(first), context));
    assert_eq!(first.free(), in_use);
    // A suppressed bind releases it, too, without a poll.
    bind(third, silent).unwrap();
    assert_eq!(first.free(), in_use);
    side.qp.finish_requests(1);
    first.free().unwrap();
    assert_eq!(side.cookies(), []);
    rmr.free().unwrap();
    third.free().unwrap();
    side.close();
}

/// "The operation might cause the loss of any completions" (dat_ep_reset).
#[test]
fn the_lmr_of_a_bind_whose_completion_a_reset_lost_can_be_freed() {
    let side = side(NONE, NONE);
    let rmr = Rmr::create(side.pz).unwrap();
    let [first, second] = [0x1000, 0x2000].map(|address| lmr(&side, address));
    let bind = |lmr| bind_all(&side, rmr, lmr, NONE).unwrap();
    bind(first);
    side.qp.finish_requests(1);
    assert_eq!(side.cookies(), [1]);
    bind(second);
    assert_eq!(
        second.free(),
        Err(Error::state(Subtype::InvalidStateLmrInUse))
    );
    side.ep.disconnect(Close::Abrupt).unwrap();
    side.ep.reset().unwrap();
    second.free().unwrap();
    // Whether the window was bound is not known, so it was replaced.
    assert_eq!(rmr.info().unwrap().lmr, 0);
    first.free().unwrap();
    rmr.free().unwrap();
    side.close();
}
