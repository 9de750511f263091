//! Transfers over the loopback, and their notifications.

mod side;

use dat_core::attributes::SrqAttr;
use dat_core::cno::{Cno, CnoProxy};
use dat_core::error::Error;
use dat_core::evd::Evd;
use dat_core::event::{AsyncEvent, ConnectionEvent, DtoOp, DtoStatus, Event};
use dat_core::flags::{Close, CompletionFlags, EvdFlags, MemPriv, VaType};
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::lmr::{Lmr, Source};
use dat_core::rmr::{LmrRange, Rmr};
use dat_core::srq::Srq;
use side::{NONE, done, dto, empty, leak, number, pair, wait};

#[test]
fn a_message_is_gathered_and_scattered() {
    let p = pair(1, "");
    let (source, target) = (leak(b"abcdefgh"), leak(&[0; 8]));
    let source = p.a.lmr(source, MemPriv::LOCAL_READ);
    let into = p.b.lmr(target, MemPriv::LOCAL_WRITE);
    p.to.post_recv(&[into.piece(6, 2), into.piece(0, 4)], 7, NONE)
        .unwrap();
    p.from
        .post_send(&[source.piece(0, 1), source.piece(4, 4)], 8, NONE)
        .unwrap();
    let got = dto(p.b.recv);
    assert_eq!(
        (got.cookie, got.status, got.length),
        (7, DtoStatus::Success, 5)
    );
    assert_eq!(got.op, DtoOp::Receive);
    assert_eq!(done(p.a.request), (8, DtoStatus::Success));
    assert_eq!(target, b"fgh\0\0\0ae");
}

#[test]
fn a_message_waits_for_its_receive() {
    let p = pair(2, "");
    p.from.post_send(&[], 1, NONE).unwrap();
    assert!(empty(p.a.request));
    p.to.post_recv(&[], 2, NONE).unwrap();
    assert_eq!(done(p.b.recv), (2, DtoStatus::Success));
    assert_eq!(done(p.a.request), (1, DtoStatus::Success));
}

#[test]
fn a_message_without_a_receive_fails_if_so_configured() {
    let p = pair(3, "rnr=fail");
    p.from.post_send(&[], 1, NONE).unwrap();
    assert_eq!(done(p.a.request), (1, DtoStatus::ReceiverNotReady));
    assert_eq!(number(p.a.conn), ConnectionEvent::Broken);
    assert_eq!(number(p.b.conn), ConnectionEvent::Broken);
}

#[test]
fn a_message_too_long_breaks_both_sides() {
    let p = pair(4, "");
    let source = p.a.lmr(leak(&[1; 8]), MemPriv::LOCAL_READ);
    let into = p.b.lmr(leak(&[0; 8]), MemPriv::LOCAL_WRITE);
    p.to.post_recv(&[into.piece(0, 7)], 2, NONE).unwrap();
    p.from.post_send(&[source.piece(0, 8)], 1, NONE).unwrap();
    assert_eq!(done(p.b.recv), (2, DtoStatus::LocalLength));
    assert_eq!(done(p.a.request), (1, DtoStatus::RemoteResponder));
    assert_eq!(number(p.a.conn), ConnectionEvent::Broken);
    assert_eq!(number(p.b.conn), ConnectionEvent::Broken);
}

#[test]
fn remote_memory_is_read_written_and_counted() {
    let p = pair(5, "");
    let own = p.a.lmr(leak(&[9; 16]), MemPriv::ALL);
    let far_bytes = leak(&[1, 0, 0, 0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5]);
    let far = p.b.lmr(far_bytes, MemPriv::ALL | MemPriv::REMOTE_ATOMIC);
    p.from
        .post_rdma_write(&[own.piece(0, 4)], 1, &far.remote(8, 4), NONE)
        .unwrap();
    p.from
        .post_rdma_read(&[own.piece(8, 8)], 2, &far.remote(8, 8), NONE)
        .unwrap();
    p.from
        .fetch_add(2, &own.piece(0, 8), 3, &far.remote(0, 8), NONE)
        .unwrap();
    p.from
        .compare_swap(3, 77, &own.piece(0, 8), 4, &far.remote(0, 8), NONE)
        .unwrap();
    for cookie in 1..=4 {
        assert_eq!(done(p.a.request), (cookie, DtoStatus::Success));
    }
    assert_eq!(far_bytes, [77, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 5, 5, 5, 5]);
    p.to.post_recv(&[], 5, NONE).unwrap();
    p.from
        .post_rdma_write_immediate(&[own.piece(0, 1)], 6, &far.remote(15, 1), 0xfeed, NONE)
        .unwrap();
    let got = dto(p.b.recv);
    assert_eq!(
        (got.op, got.immediate),
        (DtoOp::ReceiveRdmaImmediate, 0xfeed)
    );
    assert_eq!(far_bytes[15], 3, "the old value of the swap");
}

#[test]
fn memory_beyond_rights_or_bounds_is_refused_and_breaks_both_sides() {
    for (host, rights, offset) in [
        (6, MemPriv::LOCAL_WRITE | MemPriv::REMOTE_READ, 0),
        (7, MemPriv::ALL, 4),
    ] {
        let p = pair(host, "");
        let own = p.a.lmr(leak(&[9; 8]), MemPriv::ALL);
        let far_bytes = leak(&[0; 8]);
        let far = p.b.lmr(far_bytes, rights);
        p.to.post_recv(&[], 20, NONE).unwrap();
        p.to.post_recv(&[], 21, NONE).unwrap();
        p.from
            .post_rdma_write(&[own.piece(0, 8)], 1, &far.remote(offset, 8), NONE)
            .unwrap();
        assert_eq!(done(p.a.request), (1, DtoStatus::RemoteAccess));
        assert_eq!(number(p.a.conn), ConnectionEvent::Broken);
        assert_eq!(number(p.b.conn), ConnectionEvent::Broken);
        assert_eq!(done(p.b.recv), (20, DtoStatus::Flushed));
        assert_eq!(done(p.b.recv), (21, DtoStatus::Flushed));
        assert_eq!(far_bytes, [0; 8]);
    }
}

#[test]
fn a_window_opens_closes_and_is_invalidated() {
    let p = pair(8, "");
    let own = p.a.lmr(leak(&[3; 8]), MemPriv::ALL);
    let far_bytes = leak(&[0; 8]);
    let far =
        p.b.lmr(far_bytes, MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE);
    let window = Rmr::create(p.b.pz).unwrap();
    let range = LmrRange {
        lmr_context: far.lmr.info().unwrap().lmr_context,
        address: far.address,
        length: 4,
    };
    let rights = MemPriv::REMOTE_WRITE;
    let key = window
        .bind(Some(far.lmr), range, rights, VaType::Va, p.to, 30, NONE)
        .unwrap();
    assert_eq!(done(p.b.request), (30, DtoStatus::Success));
    let mut there = far.remote(0, 4);
    there.rmr_context = key;
    p.from
        .post_rdma_write(&[own.piece(0, 4)], 1, &there, NONE)
        .unwrap();
    assert_eq!(done(p.a.request), (1, DtoStatus::Success));
    assert_eq!(far_bytes, [3, 3, 3, 3, 0, 0, 0, 0]);
    p.to.post_recv(&[], 31, NONE).unwrap();
    p.from
        .post_send_with_invalidate(&[], 2, NONE, true, key)
        .unwrap();
    let got = dto(p.b.recv);
    assert_eq!(
        (got.op, got.rmr_context),
        (DtoOp::ReceiveWithInvalidate, key)
    );
    assert_eq!(done(p.a.request), (2, DtoStatus::Success));
    p.from
        .post_rdma_write(&[own.piece(0, 4)], 3, &there, NONE)
        .unwrap();
    assert_eq!(done(p.a.request), (3, DtoStatus::RemoteAccess));
}

/// dat_lmr_create: addresses in a zero-based region are offsets: for peers, in segments, in binds and in dat_lmr_sync_rdma_read.
#[test]
fn all_addresses_in_a_zero_based_region_are_offsets() {
    let p = pair(20, "");
    let own_bytes = leak(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let far = p.b.lmr(leak(&[0; 8]), MemPriv::ALL);
    let source = Source::Virtual(own_bytes.as_ptr() as usize);
    let own = Lmr::create(p.a.ia, source, 8, p.a.pz, MemPriv::ALL, VaType::ZeroBased).unwrap();
    let piece = |offset, length| LmrTriplet {
        virtual_address: offset,
        segment_length: length,
        lmr_context: own.info().unwrap().lmr_context,
    };
    assert_eq!(Lmr::sync_read(p.a.ia, [Ok(piece(0, 8))]), Ok(()));
    let beyond = Lmr::sync_read(p.a.ia, [Ok(piece(1, 8))]);
    assert_eq!(beyond, Err(Error::arg(2)));
    p.from
        .post_rdma_write(&[piece(2, 4)], 1, &far.remote(0, 4), NONE)
        .unwrap();
    assert_eq!(done(p.a.request), (1, DtoStatus::Success));
    let window = Rmr::create(p.a.pz).unwrap();
    for (va_type, first) in [(VaType::Va, 4), (VaType::ZeroBased, 0)] {
        let (range, rights) = (piece(4, 4).into(), MemPriv::REMOTE_READ);
        let key = window.bind(Some(own), range, rights, va_type, p.from, 2, NONE);
        assert_eq!(done(p.a.request), (2, DtoStatus::Success));
        let at = RmrTriplet {
            virtual_address: first,
            segment_length: 4,
            rmr_context: key.unwrap(),
        };
        p.to.post_rdma_read(&[far.piece(4, 4)], 3, &at, NONE)
            .unwrap();
        assert_eq!(done(p.b.request), (3, DtoStatus::Success));
    }
}

#[test]
fn a_shared_queue_reports_its_limit_and_the_last_receive_of_an_endpoint() {
    let p = pair(9, "");
    let attr = SrqAttr {
        max_recv_dtos: 8,
        max_recv_iov: 1,
        low_watermark: None,
    };
    let srq = Srq::create(p.b.ia, p.b.pz, &attr).unwrap();
    let (from, to) = (p.a.ep(), p.b.ep_on(Some(srq)));
    side::join(&p.a, from, &p.b, to);
    from.post_send(&[], 1, NONE).unwrap();
    for cookie in 10..13 {
        srq.post_recv(&[], cookie).unwrap();
    }
    let got = dto(p.b.recv);
    assert_eq!((got.cookie, got.ep), (10, to.handle()));
    srq.set_low_watermark(2).unwrap();
    from.post_send(&[], 2, NONE).unwrap();
    assert_eq!(done(p.b.recv), (11, DtoStatus::Success));
    let reported = wait(p.b.ia.async_evd().unwrap());
    assert!(
        matches!(reported, Event::Async { handle, .. } if handle == srq.handle()),
        "{reported:?}"
    );
    from.disconnect(Close::Abrupt).unwrap();
    assert_eq!(number(p.b.conn), ConnectionEvent::Disconnected);
    let reported = wait(p.b.ia.async_evd().unwrap());
    let drained = matches!(reported, Event::Async { number: AsyncEvent::EpBroken, handle, .. }
        if handle == to.handle());
    assert!(drained, "{reported:?}");
}

#[test]
fn a_disconnect_flushes_in_order_before_its_event() {
    let p = pair(10, "");
    for cookie in 1..4 {
        p.from.post_recv(&[], cookie, NONE).unwrap();
        p.from.post_send(&[], cookie + 10, NONE).unwrap();
    }
    p.from.disconnect(Close::Abrupt).unwrap();
    assert_eq!(number(p.a.conn), ConnectionEvent::Disconnected);
    for cookie in 1..4 {
        assert_eq!(done(p.a.recv), (cookie, DtoStatus::Flushed));
        assert_eq!(done(p.a.request), (cookie + 10, DtoStatus::Flushed));
    }
    assert_eq!(number(p.b.conn), ConnectionEvent::Disconnected);
}

#[test]
fn a_graceful_disconnect_waits_for_the_requests() {
    let p = pair(11, "");
    p.from.post_send(&[], 1, NONE).unwrap();
    p.from.disconnect(Close::Graceful).unwrap();
    p.to.post_recv(&[], 2, NONE).unwrap();
    assert_eq!(done(p.a.request), (1, DtoStatus::Success));
    assert_eq!(number(p.a.conn), ConnectionEvent::Disconnected);
    assert_eq!(done(p.b.recv), (2, DtoStatus::Success));
}

#[test]
fn a_cno_is_notified_of_completions() {
    let p = pair(12, "");
    let cno = Cno::create(p.a.ia, CnoProxy::None).unwrap();
    let evd = Evd::create(p.a.ia, 16, Some(cno), EvdFlags::DTO).unwrap();
    let mut parts = p.a.parts(None);
    parts.request_evd = Some(evd);
    let from = dat_core::ep::Ep::create(p.a.ia, parts, Some(&side::attr())).unwrap();
    let to = p.b.ep();
    side::join(&p.a, from, &p.b, to);
    to.post_recv(&[], 1, NONE).unwrap();
    from.post_send(&[], 2, CompletionFlags::SUPPRESS).unwrap();
    to.post_recv(&[], 3, NONE).unwrap();
    from.post_send(&[], 4, NONE).unwrap();
    let ten_seconds = Some(std::time::Duration::from_secs(10));
    assert_eq!(cno.wait(ten_seconds).unwrap(), dat_core::head::raw(evd));
    assert_eq!(done(evd), (4, DtoStatus::Success));
}
