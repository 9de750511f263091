//! Number of objects that are created and freed before the address of a freed object is reused; ARCHITECTURE.md has the figures.
#![allow(missing_docs, reason = "a test")]

use dat_arena::Arena;
use dat_core::ep::{Ep, EpParts};
use dat_core::flags::Close;
use dat_core::ia::{AsyncEvd, Ia};
use dat_core::ia_params::IaParams;
use dat_core::transport::Transport;
use dat_loopback::Loopback;

/// Each test counts objects of the whole process, so one runs at a time.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Returns how many other objects of a kind are created and freed, one at a time, before the address of a freed one is reused.
fn others<O: Default + Sync + 'static, const WHOLE: u32>(arena: &'static Arena<O, WHOLE>) -> usize {
    let (first, _) = arena.alloc().unwrap();
    arena.recycle(first);
    let mut others = 0;
    loop {
        let (index, _) = arena.alloc().unwrap();
        arena.recycle(index);
        if index == first {
            return others;
        }
        others += 1;
    }
}

#[test]
fn a_freed_handle_is_reused_as_late_as_the_documentation_says() {
    let _alone = ALONE.lock();
    let all = Loopback::arenas();
    // The figures of ARCHITECTURE.md.
    for (kind, others, figure) in [
        ("IA", others(&all.ia), 4_095),
        ("EP", others(&all.ep), 4_095),
        ("EVD", others(&all.evd), 8_191),
        ("SRQ", others(&all.srq), 32_767),
        ("CR", others(&all.cr), 32_767),
        ("AH", others(&all.ah), 32_767),
        ("SP", others(&all.sp), 65_535),
        ("CNO", others(&all.cno), 65_535),
        ("PZ", others(&all.pz), 65_535),
        ("RMR", others(&all.rmr), 65_535),
        ("LMR", others(&all.lmr), 65_535),
    ] {
        println!("{kind}: {others}");
        assert!(others >= figure, "{kind}: {others} instead of {figure}");
    }
}

#[test]
fn an_endpoints_slot_is_reused_after_the_documented_number_of_others() {
    let _alone = ALONE.lock();
    let params = IaParams::parse("127.0.9.1").unwrap();
    let ia = Ia::<Loopback>::open("late", &params, 8, AsyncEvd::New, 0x7ab1e).unwrap();
    let next = || {
        let ep = Ep::create(ia, EpParts::default(), None).unwrap();
        ep.free().unwrap();
        ep.handle()
    };
    let first = next();
    let others = (0..).take_while(|_| next() != first).count();
    assert!(others >= 4_095, "{others}");
    ia.close(Close::Graceful).unwrap();
}
