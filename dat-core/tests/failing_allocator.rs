//! Operations of core while allocations fail, over the loopback: each succeeds or returns `DAT_INSUFFICIENT_RESOURCES`, none aborts the
//! process, and a call that was refused succeeds when it is repeated with memory.
//!
//! Each scenario runs once for every n with its n-th allocation failing, and once for every n with that one and all later ones
//! failing, in whichever thread they are made. As in the shared objects of this project, the reserve stands behind the allocator.

#[path = "../../examples/loopback/tests/side/mod.rs"]
mod side;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dat_core::ah::{Ah, Half};
use dat_core::attributes::{EpAttr, SrqAttr};
use dat_core::cno::{Agent, Cno, CnoProxy};
use dat_core::counters::Which;
use dat_core::ep::{Ep, EpParts};
use dat_core::error::{Kind, Result};
use dat_core::evd::Evd;
use dat_core::event::{ConnectionEvent, DatagramEvent, DtoStatus, Event};
use dat_core::flags::{Close, EvdFlags, MemPriv, VaType};
use dat_core::lmr::{Lmr, Source};
use dat_core::pz::Pz;
use dat_core::reserve::Backed;
use dat_core::rmr::{LmrRange, Rmr};
use dat_core::sp::Sp;
use dat_core::srq::Srq;
use dat_core::transport::Transport;
use dat_loopback::Loopback;
use side::{NONE, Pair, Side, attr, done, empty, leak, number, pair, request, wait};

/// The system's allocator, of which the allocations numbered [`FIRST`] to [`LAST`] fail.
struct Failing;

static FIRST: AtomicUsize = AtomicUsize::new(usize::MAX);
static LAST: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Number of allocations since [`Armed::new`].
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Size from which on allocations fail while armed.
static SMALLEST: AtomicUsize = AtomicUsize::new(0);

fn fails(size: usize) -> bool {
    let first = FIRST.load(Ordering::Relaxed);
    if first == usize::MAX || size < SMALLEST.load(Ordering::Relaxed) {
        return false;
    }
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    (first..=LAST.load(Ordering::Relaxed)).contains(&number)
}

// SAFETY: the system's allocator, which may be out of memory at any time.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails(layout.size()) {
            return null_mut();
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if fails(layout.size()) {
            return null_mut();
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if fails(size) {
            return null_mut();
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static MEMORY: Backed<Failing> = Backed(Failing);

/// While it lives, allocations fail; one test at a time.
struct Armed;

impl Armed {
    fn new(first: usize, last: usize) -> Self {
        COUNT.store(0, Ordering::Relaxed);
        SMALLEST.store(0, Ordering::Relaxed);
        LAST.store(last, Ordering::Relaxed);
        FIRST.store(first, Ordering::Relaxed);
        Self
    }

    /// All allocations fail that are too large for the reserve.
    fn large() -> Self {
        let armed = Self::new(0, usize::MAX - 1);
        SMALLEST.store((16 << 10) + 1, Ordering::Relaxed);
        armed
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        disarm();
    }
}

fn disarm() {
    FIRST.store(usize::MAX, Ordering::Relaxed);
}

/// Tests of this file run one after the other: the allocator is that of the process.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls that were refused in the present scenario.
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Makes a call. If it is refused for want of memory, repeats it without failures, which must succeed.
fn call<R>(mut call: impl FnMut() -> Result<R>) -> R {
    match call() {
        Ok(result) => result,
        Err(error) => {
            disarm();
            assert_eq!(error.kind(), Some(Kind::InsufficientResources), "{error:?}");
            REFUSED.fetch_add(1, Ordering::Relaxed);
            call().expect("a repeated call succeeds")
        }
    }
}

/// Runs `scenario` with every one of its allocations failing, and with every one and all that follow it; returns the number of calls
/// that were refused.
fn exhaust(name: &str, mut scenario: impl FnMut()) -> usize {
    // What a first call allocates for good, such as a thread, is no part of it.
    scenario();
    REFUSED.store(0, Ordering::Relaxed);
    for all in [false, true] {
        for n in 0.. {
            assert!(n < 5000, "{name} does not end");
            let armed = Armed::new(n, if all { usize::MAX - 1 } else { n });
            scenario();
            let reached = COUNT.load(Ordering::Relaxed) > n;
            drop(armed);
            if !reached {
                break;
            }
        }
    }
    REFUSED.load(Ordering::Relaxed)
}

/// The same for a scenario in which at least one call needs more than the reserve gives.
fn exhaust_with_refusals(name: &str, scenario: impl FnMut()) {
    assert!(exhaust(name, scenario) > 0, "{name} was never refused");
}

/// Frees need no memory: none of them may fail.
fn freed(result: Result<()>) {
    result.expect("a free succeeds without memory");
}

const LONG: Option<Duration> = Some(Duration::from_secs(10));

#[test]
fn objects_are_created_and_freed() {
    let _alone = alone();
    let s = Side::open("127.0.1.150");
    let (ia, pz) = (s.ia, s.pz);
    exhaust("ia_open", || {
        freed(call(|| side::open("127.0.1.151")).close(Close::Abrupt));
    });
    exhaust("pz", || freed(call(|| Pz::create(ia)).free()));
    let bytes = leak(&[0; 64]);
    let base = s.lmr(bytes, MemPriv::ALL);
    for source in [
        Source::Virtual(bytes.as_ptr() as usize),
        Source::Lmr(base.lmr),
        Source::Shared {
            address: bytes.as_ptr() as usize,
            cookie: [7; 40],
        },
    ] {
        exhaust("lmr", || {
            let create = || Lmr::create(ia, source, 64, pz, MemPriv::ALL, VaType::Va);
            let lmr = call(create);
            call(|| lmr.info());
            freed(lmr.free());
        });
    }
    exhaust("rmr", || {
        let rmr = call(|| Rmr::create(pz));
        call(|| rmr.info());
        freed(rmr.free());
    });
    exhaust("cno", || {
        for fd in [false, true] {
            let proxy = || if fd { CnoProxy::Fd } else { CnoProxy::None };
            let cno = call(|| Cno::create(ia, proxy()));
            call(|| cno.info());
            freed(cno.free());
        }
    });
    exhaust("evd", || {
        let evd = call(|| Evd::create(ia, 16, None, EvdFlags::CONNECTION));
        call(|| evd.info());
        call(|| evd.counters(Some(Which::All)));
        freed(evd.free());
    });
    let length = std::cell::Cell::new(2000);
    exhaust_with_refusals("evd with a large queue", || {
        let evd = call(|| Evd::create(ia, length.get(), None, EvdFlags::SOFTWARE));
        call(|| evd.resize(length.get() * 2));
        freed(evd.free());
    });
    exhaust("sp", || {
        for qual in [None, Some(4711)] {
            let sp = call(|| Sp::psp_create(ia, qual, s.cr, false));
            call(|| sp.info());
            freed(sp.free());
        }
    });
    exhaust_with_refusals("srq", || {
        let wanted = SrqAttr {
            max_recv_dtos: 2000,
            max_recv_iov: 4,
            low_watermark: None,
        };
        let srq = call(|| Srq::create(ia, pz, &wanted));
        call(|| srq.resize(4000));
        call(|| srq.set_low_watermark(3));
        call(|| srq.info());
        freed(srq.free());
    });
    exhaust("ep", || {
        let ep = call(|| Ep::create(ia, s.parts(None), Some(&attr())));
        call(|| ep.info());
        call(|| ep.counters(Some(Which::All)));
        call(|| ep.recv_query());
        call(|| ep.reset());
        freed(ep.free());
    });
    exhaust("ep without parts", || {
        freed(call(|| Ep::create(ia, EpParts::default(), None)).free());
    });
    exhaust("ia queries", || {
        call(|| ia.attributes());
        call(|| ia.counters(Some(Which::All)));
        assert_eq!(ia.name(), "lo-test");
        assert!(ia.async_evd().is_some());
    });
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn software_events_are_posted_and_delivered() {
    let _alone = alone();
    let s = Side::open("127.0.1.152");
    let cno = Cno::create(s.ia, CnoProxy::Fd).unwrap();
    let evd = Evd::create(s.ia, 100, Some(cno), EvdFlags::SOFTWARE).unwrap();
    exhaust("events through a CNO", || {
        for n in 0..50 {
            call(|| evd.post_se(n));
        }
        assert_ne!(call(|| cno.wait(LONG)), 0);
        for _ in 0..50 {
            wait(evd);
        }
        assert!(empty(evd));
        call(|| evd.modify_cno(None));
        call(|| evd.modify_cno(Some(cno)));
    });
    let agent_cno = Cno::create(s.ia, CnoProxy::None).unwrap();
    let watched = Evd::create(s.ia, 8, Some(agent_cno), EvdFlags::SOFTWARE).unwrap();
    exhaust("events through an agent", || {
        let agent = Agent {
            call: Box::new(|_| {}),
            instance_data: 0,
            function: 0,
        };
        agent_cno.modify_agent(Some(agent)).unwrap();
        call(|| watched.post_se(1));
        wait(watched);
        // The pending notification.
        let _ = agent_cno.trigger();
    });
    s.ia.close(Close::Abrupt).unwrap();
}

/// Connects two new endpoints, with a time limit, and returns them.
fn connect(a: &Side, b: &Side) -> (&'static Ep<Loopback>, &'static Ep<Loopback>) {
    let create = |side: &Side| call(|| Ep::create(side.ia, side.parts(None), Some(&attr())));
    let (from, to) = (create(a), create(b));
    let psp = call(|| Sp::psp_create(b.ia, None, b.cr, false));
    let qual = call(|| psp.info()).conn_qual;
    call(|| from.connect(b.address, qual, LONG, b"hello", 0, 0));
    let cr = request(b.cr);
    call(|| cr.info());
    call(|| cr.accept(Some(to), b"welcome"));
    assert_eq!(number(a.conn), ConnectionEvent::Established);
    assert_eq!(number(b.conn), ConnectionEvent::Established);
    assert_eq!(cr.private_data().to_vec(), b"hello");
    freed(psp.free());
    (from, to)
}

#[test]
fn connections_are_made_refused_and_ended() {
    let _alone = alone();
    let (a, b) = (Side::open("127.0.1.153"), Side::open("127.0.2.153"));
    for how in [Close::Abrupt, Close::Graceful] {
        exhaust("connect and disconnect", || {
            let (from, to) = connect(&a, &b);
            call(|| from.info());
            call(|| from.disconnect(how));
            assert_eq!(number(a.conn), ConnectionEvent::Disconnected);
            assert_eq!(number(b.conn), ConnectionEvent::Disconnected);
            call(|| from.reset());
            freed(from.free());
            freed(to.free());
        });
    }
    let psp = Sp::psp_create(b.ia, Some(77), b.cr, false).unwrap();
    exhaust("reject", || {
        let from = call(|| Ep::create(a.ia, a.parts(None), Some(&attr())));
        call(|| from.connect(b.address, 77, LONG, b"hello", 0, 0));
        let cr = request(b.cr);
        call(|| cr.reject(b"no"));
        assert_eq!(number(a.conn), ConnectionEvent::PeerRejected);
        freed(from.free());
    });
    psp.free().unwrap();
    a.ia.close(Close::Abrupt).unwrap();
    b.ia.close(Close::Abrupt).unwrap();
}

fn success(evd: &'static Evd<Loopback>) {
    assert_eq!(done(evd).1, DtoStatus::Success);
}

#[test]
fn requests_are_posted_and_complete() {
    let _alone = alone();
    let p: Pair = pair(154, "");
    let near = p.a.lmr(leak(&[1; 64]), MemPriv::ALL | MemPriv::REMOTE);
    let far = p.b.lmr(leak(&[2; 64]), MemPriv::ALL | MemPriv::REMOTE);
    let (local, remote) = ([near.piece(0, 8)], far.remote(0, 8));
    let receive = |cookie| call(|| p.to.post_recv(&[far.piece(8, 8)], cookie, NONE));
    exhaust("send", || {
        receive(1);
        call(|| p.from.post_send(&local, 2, NONE));
        success(p.a.request);
        success(p.b.recv);
    });
    exhaust("RDMA and atomics", || {
        call(|| p.from.post_rdma_write(&local, 3, &remote, NONE));
        success(p.a.request);
        call(|| p.from.post_rdma_read(&local, 4, &remote, NONE));
        success(p.a.request);
        receive(5);
        let write = || {
            p.from
                .post_rdma_write_immediate(&local, 6, &remote, 9, NONE)
        };
        call(write);
        success(p.a.request);
        success(p.b.recv);
        call(|| p.from.compare_swap(1, 2, &local[0], 7, &remote, NONE));
        success(p.a.request);
        call(|| p.from.fetch_add(1, &local[0], 8, &remote, NONE));
        success(p.a.request);
    });
    let rmr = Rmr::create(p.b.pz).unwrap();
    exhaust("bind and invalidate", || {
        let range = LmrRange {
            lmr_context: far.lmr.info().unwrap().lmr_context,
            address: far.address,
            length: 64,
        };
        let rights = MemPriv::REMOTE_WRITE;
        let bind = || rmr.bind(Some(far.lmr), range, rights, VaType::Va, p.to, 10, NONE);
        let key = call(bind);
        success(p.b.request);
        receive(11);
        call(|| {
            p.from
                .post_send_with_invalidate(&local, 12, NONE, false, key)
        });
        success(p.a.request);
        success(p.b.recv);
    });
    exhaust("dequeue of an empty EVD", || {
        assert!(empty(p.a.request) && empty(p.b.recv));
        call(|| p.from.counters(Some(Which::All)));
    });
    p.a.ia.close(Close::Abrupt).unwrap();
    p.b.ia.close(Close::Abrupt).unwrap();
}

/// Returns the address handle of the next datagram event, which must report success.
fn resolved(side: &Side) -> &'static Ah<Loopback> {
    match wait(side.conn) {
        Event::Datagram {
            number: DatagramEvent::Established,
            ah,
            ..
        } => Loopback::arenas().ah.from_addr(ah).unwrap(),
        other => panic!("{other:?} instead of a resolved peer"),
    }
}

#[test]
fn datagram_peers_are_resolved_and_sent_to() {
    let _alone = alone();
    let (a, b) = (Side::open("127.0.1.157"), Side::open("127.0.2.157"));
    let datagrams = EpAttr {
        service_type: 1,
        ..attr()
    };
    let psp = Sp::psp_create(b.ia, Some(78), b.cr, false).unwrap();
    let text = a.lmr(leak(&[1; 8]), MemPriv::ALL);
    let room = b.lmr(leak(&[0; 64]), MemPriv::ALL);
    exhaust("datagrams", || {
        let create = |side: &Side| call(|| Ep::create(side.ia, side.parts(None), Some(&datagrams)));
        let (from, to) = (create(&a), create(&b));
        call(|| from.connect(b.address, 78, LONG, b"hello", 0, 0));
        let cr = match wait(b.cr) {
            Event::ConnectionRequest { cr, .. } => Loopback::arenas().cr.from_addr(cr).unwrap(),
            other => panic!("{other:?} is not a connection request"),
        };
        call(|| cr.accept(Some(to), b"welcome"));
        let (there, back) = (resolved(&a), resolved(&b));
        call(|| to.post_recv(&[room.piece(0, 64)], 1, NONE));
        let qpn = there.info().unwrap().peer.unwrap().0;
        call(|| from.post_send_ud(&[text.piece(0, 8)], there, qpn, 2, NONE));
        success(a.request);
        success(b.recv);
        freed(there.release(from, Half::Context));
        freed(there.release(from, Half::Handle));
        freed(back.release(to, Half::Context));
        freed(back.release(to, Half::Handle));
        freed(from.free());
        freed(to.free());
    });
    psp.free().unwrap();
    a.ia.close(Close::Abrupt).unwrap();
    b.ia.close(Close::Abrupt).unwrap();
}

/// Repeats `make` up to `limit` times without large allocations, until it is refused; the next call with memory must succeed.
fn until_refused<R>(what: &str, limit: u32, mut make: impl FnMut(u32) -> Result<R>) -> u32 {
    let armed = Armed::large();
    let mut made = 0;
    while made < limit {
        match make(made) {
            Ok(_) => made += 1,
            Err(error) => {
                let kind = error.kind();
                assert_eq!(kind, Some(Kind::InsufficientResources), "{what}: {error:?}");
                break;
            }
        }
    }
    drop(armed);
    assert!(
        0 < made && made < limit,
        "{what}: {made} without large allocations"
    );
    make(made).expect("a repeated call succeeds");
    made + 1
}

#[test]
fn deep_queues_refuse_posts_and_flush_those_that_they_took() {
    const DEPTH: u32 = 4000;
    let _alone = alone();
    let s = Side::open("127.0.1.155");
    let evd = Evd::create(s.ia, 2 * DEPTH, None, EvdFlags::DTO).unwrap();
    let deep = EpAttr {
        max_recv_dtos: DEPTH,
        max_request_dtos: DEPTH,
        ..attr()
    };
    let parts = EpParts {
        recv_evd: Some(evd),
        ..s.parts(None)
    };
    let memory = s.lmr(leak(&[0; 64]), MemPriv::ALL);
    let shared = SrqAttr {
        max_recv_dtos: DEPTH,
        max_recv_iov: 4,
        low_watermark: None,
    };
    let srq = Srq::create(s.ia, s.pz, &shared).unwrap();
    let to = Side::open("127.0.2.155");
    let (ep, peer) = (Ep::create(s.ia, parts, Some(&deep)).unwrap(), to.ep());
    side::join(&s, ep, &to, peer);
    let iov = [memory.piece(0, 8)];
    until_refused("srq", DEPTH, |n| srq.post_recv(&iov, n.into()));
    let received = until_refused("receive", DEPTH, |n| ep.post_recv(&iov, n.into(), NONE));
    // The peer has posted no receive, so the sends wait.
    let sent = until_refused("send", DEPTH, |n| ep.post_send(&iov, n.into(), NONE));
    ep.disconnect(Close::Abrupt).unwrap();
    for (evd, count) in [(evd, received), (s.request, sent.min(64))] {
        for cookie in 0..u64::from(count) {
            assert_eq!(done(evd), (cookie, DtoStatus::Flushed));
        }
    }
    s.ia.close(Close::Abrupt).unwrap();
    to.ia.close(Close::Abrupt).unwrap();
}

#[test]
fn tables_refuse_objects() {
    const MANY: u32 = 20_000;
    let _alone = alone();
    let s = Side::open("127.0.1.156");
    let bytes = leak(&[0; 64]);
    let address = bytes.as_ptr() as usize;
    until_refused("lmr", MANY, |_| {
        let source = Source::Virtual(address);
        Lmr::create(s.ia, source, 64, s.pz, MemPriv::ALL, VaType::Va)
    });
    until_refused("shared memory", MANY, |n| {
        let mut cookie = [0; 40];
        cookie[..4].copy_from_slice(&n.to_ne_bytes());
        let source = Source::Shared { address, cookie };
        Lmr::create(s.ia, source, 64, s.pz, MemPriv::ALL, VaType::Va)
    });
    until_refused("rmr", MANY, |_| Rmr::create(s.pz));
    until_refused("psp", MANY, |_| Sp::psp_create(s.ia, None, s.cr, false));
    until_refused("ep", MANY, |_| {
        Ep::create(s.ia, s.parts(None), Some(&attr()))
    });
    s.ia.close(Close::Abrupt).unwrap();
}
