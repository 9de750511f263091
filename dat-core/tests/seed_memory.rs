//! dat_lmr_free, dat_rmr_free and dat_rmr_bind, sentence by sentence, over the loopback.

#[path = "../../examples/loopback/tests/side/mod.rs"]
mod side;

use dat_core::error::{Error, Kind, Subtype};
use dat_core::event::{ConnectionEvent, DtoOp, DtoStatus};
use dat_core::flags::{Close, MemPriv, VaType};
use dat_core::iov::RmrTriplet;
use dat_core::lmr::{Lmr, Source};
use dat_core::rmr::{LmrRange, Rmr};
use dat_loopback::Loopback;
use side::{Memory, NONE, Pair, done, dto, leak, number, pair};

fn whole(memory: &Memory) -> LmrRange {
    LmrRange {
        lmr_context: memory.lmr.info().unwrap().lmr_context,
        address: memory.address,
        length: u64::from(memory.length),
    }
}

/// Binds a window of the passive side to all of `memory`, waits for the completion and returns the remote address.
fn bind(p: &Pair, rmr: &'static Rmr<Loopback>, memory: &Memory, rights: MemPriv) -> RmrTriplet {
    let lmr = Some(memory.lmr);
    let key = rmr
        .bind(lmr, whole(memory), rights, VaType::Va, p.to, 90, NONE)
        .unwrap();
    let bound = dto(p.b.request);
    assert_eq!((bound.op, bound.cookie), (DtoOp::BindMw, 90));
    assert_eq!(bound.status, DtoStatus::Success);
    RmrTriplet {
        virtual_address: memory.address,
        segment_length: memory.length,
        rmr_context: key,
    }
}

/// Accesses the closed window `there` from the active side: expects the error, and both connections broken.
fn refused(p: &Pair, there: RmrTriplet, read: bool) {
    let own = p.a.lmr(leak(&[7; 8]), MemPriv::ALL);
    let iov = [own.piece(0, 8)];
    if read {
        p.from.post_rdma_read(&iov, 5, &there, NONE).unwrap();
    } else {
        p.from.post_rdma_write(&iov, 5, &there, NONE).unwrap();
    }
    assert_eq!(done(p.a.request), (5, DtoStatus::RemoteAccess));
    assert_eq!(number(p.a.conn), ConnectionEvent::Broken);
    assert_eq!(number(p.b.conn), ConnectionEvent::Broken);
}

#[test]
fn lmr_free_is_refused_while_an_rmr_uses_it_and_leaves_the_memory_alone() {
    let p = pair(60, "");
    let bytes = leak(&[1; 8]);
    let memory = p.b.lmr(bytes, MemPriv::ALL);
    let rmr = Rmr::create(p.b.pz).unwrap();
    bind(&p, rmr, &memory, MemPriv::REMOTE_WRITE);
    let in_use = Err(Error::state(Subtype::InvalidStateLmrInUse));
    assert_eq!(memory.lmr.free(), in_use);
    rmr.free().unwrap();
    assert_eq!(memory.lmr.free(), Ok(()));
    bytes[0] = 2;
    assert_eq!(bytes, [2, 1, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn the_handle_of_a_freed_lmr_fails_everywhere() {
    let p = pair(61, "");
    let memory = p.b.lmr(leak(&[1; 8]), MemPriv::ALL);
    let range = whole(&memory);
    memory.lmr.free().unwrap();
    let dead = Error::handle(Subtype::InvalidHandleLmr);
    assert_eq!(memory.lmr.free(), Err(dead));
    assert_eq!(memory.lmr.info().map(|_| ()), Err(dead));
    let on_it = Lmr::create(
        p.b.ia,
        Source::Lmr(memory.lmr),
        8,
        p.b.pz,
        MemPriv::ALL,
        VaType::Va,
    );
    assert_eq!(on_it.map(|_| ()), Err(dead));
    let rmr = Rmr::create(p.b.pz).unwrap();
    let read = MemPriv::REMOTE_READ;
    let bound = rmr.bind(Some(memory.lmr), range, read, VaType::Va, p.to, 1, NONE);
    assert_eq!(bound, Err(dead));
}

#[test]
fn a_dto_on_a_freed_lmr_reports_a_protection_violation() {
    let p = pair(62, "");
    let memory = p.a.lmr(leak(&[1; 8]), MemPriv::ALL);
    let piece = memory.piece(0, 8);
    p.to.post_recv(&[], 2, NONE).unwrap();
    memory.lmr.free().unwrap();
    p.from.post_send(&[piece], 1, NONE).unwrap();
    assert_eq!(done(p.a.request), (1, DtoStatus::LocalProtection));
    assert_eq!(number(p.a.conn), ConnectionEvent::Broken);
}

#[test]
fn a_peer_cannot_use_the_key_of_a_freed_lmr() {
    for (host, read) in [(63, true), (64, false)] {
        let p = pair(host, "");
        let bytes = leak(&[1; 8]);
        let memory = p.b.lmr(bytes, MemPriv::ALL);
        let there = memory.remote(0, 8);
        memory.lmr.free().unwrap();
        refused(&p, there, read);
        assert_eq!(bytes, [1; 8]);
    }
}

#[test]
fn an_rmr_is_freed_bound_or_not_and_its_key_is_refused_then() {
    for (host, read) in [(65, true), (66, false)] {
        let p = pair(host, "");
        let unbound = Rmr::create(p.b.pz).unwrap();
        assert_eq!(unbound.free(), Ok(()));
        let bytes = leak(&[1; 8]);
        let memory = p.b.lmr(bytes, MemPriv::ALL);
        let rmr = Rmr::create(p.b.pz).unwrap();
        let rights = MemPriv::REMOTE_READ | MemPriv::REMOTE_WRITE;
        let there = bind(&p, rmr, &memory, rights);
        assert_eq!(rmr.free(), Ok(()));
        let dead = Error::handle(Subtype::InvalidHandleRmr);
        assert_eq!(rmr.free(), Err(dead));
        assert_eq!(rmr.info(), Err(dead));
        let again = rmr.bind(
            Some(memory.lmr),
            whole(&memory),
            rights,
            VaType::Va,
            p.to,
            1,
            NONE,
        );
        assert_eq!(again, Err(dead));
        refused(&p, there, read);
        assert_eq!(bytes, [1; 8]);
        assert_eq!(memory.lmr.free(), Ok(()), "free unbinds");
    }
}

#[test]
fn an_old_key_is_refused_after_a_rebind_and_after_an_unbind() {
    for (host, unbind) in [(67, true), (68, false)] {
        let p = pair(host, "");
        let memory = p.b.lmr(leak(&[1; 8]), MemPriv::ALL);
        let other = p.b.lmr(leak(&[2; 8]), MemPriv::ALL);
        let rmr = Rmr::create(p.b.pz).unwrap();
        let old = bind(&p, rmr, &memory, MemPriv::REMOTE_READ);
        if unbind {
            let none = LmrRange::default();
            let rights = MemPriv::empty();
            rmr.bind(Some(memory.lmr), none, rights, VaType::Va, p.to, 91, NONE)
                .unwrap();
            assert_eq!(done(p.b.request), (91, DtoStatus::Success));
            assert_eq!(rmr.info().unwrap().lmr, 0);
        } else {
            let new = bind(&p, rmr, &other, MemPriv::REMOTE_READ);
            assert_ne!(new.rmr_context, old.rmr_context);
        }
        memory.lmr.free().unwrap();
        refused(&p, old, true);
    }
}

#[test]
fn a_window_gives_only_the_rights_it_was_bound_with() {
    let p = pair(69, "");
    let bytes = leak(&[1; 8]);
    let memory = p.b.lmr(bytes, MemPriv::ALL);
    let rmr = Rmr::create(p.b.pz).unwrap();
    let there = bind(&p, rmr, &memory, MemPriv::REMOTE_READ);
    let own_bytes = leak(&[0; 8]);
    let own = p.a.lmr(own_bytes, MemPriv::ALL);
    p.from
        .post_rdma_read(&[own.piece(0, 8)], 1, &there, NONE)
        .unwrap();
    assert_eq!(done(p.a.request), (1, DtoStatus::Success));
    assert_eq!(own_bytes, [1; 8]);
    refused(&p, there, false);
    assert_eq!(bytes, [1; 8]);
}

#[test]
fn a_bind_needs_a_connection_and_is_flushed_after_one() {
    let p = pair(70, "");
    let memory = p.b.lmr(leak(&[1; 8]), MemPriv::ALL);
    let rmr = Rmr::create(p.b.pz).unwrap();
    let on = |ep| {
        let read = MemPriv::REMOTE_READ;
        rmr.bind(
            Some(memory.lmr),
            whole(&memory),
            read,
            VaType::Va,
            ep,
            3,
            NONE,
        )
    };
    let refused = on(p.b.ep()).unwrap_err();
    assert_eq!(refused.kind(), Some(Kind::InvalidState));
    assert_eq!(memory.lmr.free(), Ok(()), "a refused bind binds nothing");
    let memory = p.b.lmr(leak(&[1; 8]), MemPriv::ALL);
    p.to.disconnect(Close::Abrupt).unwrap();
    assert_eq!(number(p.b.conn), ConnectionEvent::Disconnected);
    let read = MemPriv::REMOTE_READ;
    rmr.bind(
        Some(memory.lmr),
        whole(&memory),
        read,
        VaType::Va,
        p.to,
        4,
        NONE,
    )
    .unwrap();
    let flushed = dto(p.b.request);
    assert_eq!((flushed.cookie, flushed.op), (4, DtoOp::BindMw));
    assert_eq!(flushed.status, DtoStatus::Flushed);
}
