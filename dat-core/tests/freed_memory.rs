//! Freed objects keep their slots for a long time, so that stale handles are refused, but not the lists that grew in them.

#[path = "../../examples/loopback/tests/side/mod.rs"]
mod side;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use dat_core::attributes::SrqAttr;
use dat_core::cno::{Cno, CnoProxy};
use dat_core::evd::Evd;
use dat_core::event::DtoStatus;
use dat_core::flags::{EvdFlags, MemPriv, VaType};
use dat_core::rmr::{LmrRange, Rmr};
use dat_core::srq::Srq;
use side::{NONE, Pair, dto, leak, pair};

/// The system's allocator, which counts the bytes in use.
struct Counting;

static IN_USE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: the system's allocator. Its other two functions are made of these by the trait.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static MEMORY: Counting = Counting;

/// Rounds of a measurement.
const ROUNDS: isize = 200;
/// Bytes that each freed object may keep: its index in the list of free slots, whose room doubles.
const KEPT: isize = 16;

/// Makes and frees this number of objects in each round; fails if they keep memory.
fn measure(name: &str, objects: isize, mut round: impl FnMut()) {
    round();
    let before = IN_USE.load(Ordering::Relaxed);
    for _ in 0..ROUNDS {
        round();
    }
    let kept = (IN_USE.load(Ordering::Relaxed) - before) / ROUNDS;
    assert!(kept < KEPT * objects, "{name}: {kept} bytes in each round");
}

fn windows(p: &Pair) {
    let memory = p.b.lmr(leak(&[1; 8]), MemPriv::ALL);
    let range = LmrRange {
        lmr_context: memory.lmr.info().unwrap().lmr_context,
        address: memory.address,
        length: 8,
    };
    measure("RMR", 1, || {
        let rmr = Rmr::create(p.b.pz).unwrap();
        for _ in 0..8 {
            let lmr = Some(memory.lmr);
            rmr.bind(lmr, range, MemPriv::ALL, VaType::Va, p.to, 1, NONE)
                .unwrap();
        }
        for _ in 0..8 {
            assert_eq!(dto(p.b.request).status, DtoStatus::Success);
        }
        rmr.free().unwrap();
    });
}

/// Returns the bytes of memory that this process occupies.
fn resident() -> isize {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: isize = sizes.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// The slots of receives stay allocated, but occupy no memory: 128 KiB each without that.
fn shared_queues(p: &Pair) {
    let attr = SrqAttr {
        max_recv_dtos: 4096,
        max_recv_iov: 1,
        low_watermark: None,
    };
    let round = || {
        let srq = Srq::create(p.b.ia, p.b.pz, &attr).unwrap();
        for cookie in 0..4096 {
            srq.post_recv(&[], cookie).unwrap();
        }
        srq.free().unwrap();
    };
    round();
    let before = resident();
    for _ in 0..ROUNDS {
        round();
    }
    let kept = (resident() - before) / ROUNDS;
    assert!(kept < 48 << 10, "SRQ: {kept} bytes in each round");
}

#[test]
fn freed_objects_keep_no_lists() {
    let p = pair(75, "");
    windows(&p);
    measure("CNO and EVDs", 17, || {
        let cno = Cno::create(p.a.ia, CnoProxy::None).unwrap();
        let evds =
            [(); 16].map(|()| Evd::create(p.a.ia, 4, Some(cno), EvdFlags::SOFTWARE).unwrap());
        for evd in evds {
            evd.post_se(1).unwrap();
        }
        for evd in evds {
            evd.free().unwrap();
        }
        cno.free().unwrap();
    });
    // Miri reads no files, and pages are larger elsewhere.
    if cfg!(all(target_arch = "x86_64", not(miri))) {
        shared_queues(&p);
    }
}
