//! A time limit is forgotten when what it limits has ended: a program that connects again and again does not grow.
#![allow(missing_docs, reason = "a test")]

#[path = "../../examples/loopback/tests/side/mod.rs"]
mod side;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Duration;

use dat_core::ah::Half;
use dat_core::attributes::EpAttr;
use dat_core::ep::Ep;
use dat_core::event::{ConnectionEvent, DatagramEvent, Event};
use dat_core::flags::Close;
use dat_core::sp::Sp;
use dat_core::transport::Transport;
use dat_loopback::Loopback;
use side::{Side, attr, number, request, wait};

/// The system's allocator, which counts allocations that are not freed.
struct Counting;

static ALIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: as the system's allocator, which it calls.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const ROUNDS: isize = 500;
const HOUR: Option<Duration> = Some(Duration::from_secs(3600));

/// Calls `round`, and returns how many allocations more than before there are after [`ROUNDS`] further calls.
fn growth(mut round: impl FnMut()) -> isize {
    for _ in 0..50 {
        round();
    }
    let before = ALIVE.load(Ordering::Relaxed);
    for _ in 0..ROUNDS {
        round();
    }
    ALIVE.load(Ordering::Relaxed) - before
}

/// Other tests would allocate memory at the same time, so this is the only one.
#[test]
fn attempts_that_have_ended_leave_no_timeouts() {
    let (a, b) = (Side::open("127.0.1.1"), Side::open("127.0.2.1"));
    let psp = Sp::psp_create(b.ia, Some(7), b.cr, false).unwrap();

    let ep = a.ep();
    let refused = growth(|| {
        ep.connect(b.address, 8, HOUR, b"", 0, 0).unwrap();
        assert_eq!(number(a.conn), ConnectionEvent::NonPeerRejected);
        ep.reset().unwrap();
    });
    // A new endpoint has memory of its own, which its slot keeps.
    let [lasting, freed] = [None, HOUR].map(|timeout| {
        growth(|| {
            let ep = a.ep();
            ep.connect(b.address, 7, timeout, b"", 0, 0).unwrap();
            ep.free().unwrap();
            request(b.cr).reject(b"").unwrap();
        })
    });
    let freed = freed - lasting;

    let datagrams = EpAttr {
        service_type: 1,
        ..attr()
    };
    let of = |side: &Side| Ep::create(side.ia, side.parts(None), Some(&datagrams)).unwrap();
    let (from, to) = (of(&a), of(&b));
    let met = |side: &Side, ep: &'static Ep<Loopback>| match wait(side.conn) {
        Event::Datagram { number, ah, .. } => {
            assert_eq!(number, DatagramEvent::Established);
            let ah = Loopback::arenas().ah.from_addr(ah).unwrap();
            ah.release(ep, Half::Handle).unwrap();
            ah.release(ep, Half::Context).unwrap();
        }
        other => panic!("{other:?} is not a datagram event"),
    };
    let looked_up = growth(|| {
        from.connect(b.address, 7, HOUR, b"", 0, 0).unwrap();
        request(b.cr).accept(Some(to), b"").unwrap();
        met(&a, from);
        met(&b, to);
    });

    // Queues and lists may have grown a little.
    let few = ROUNDS / 10;
    assert!(
        refused < few && freed < few && looked_up < few,
        "{ROUNDS} attempts left {refused}, {freed} and {looked_up} allocations"
    );
    psp.free().unwrap();
    for side in [a, b] {
        side.ia.close(Close::Abrupt).unwrap();
    }
}
