//! A connection that comes when the process has no memory for its place in a channel.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;
use std::time::Duration;

use common::pair::Pair;
use softrxe_proto::{Accept, Capabilities, CmEventKind, QpState, RejectReason, service_id};

const SERVICE: u64 = service_id::tcp(7);
const LIMIT: Duration = Duration::from_millis(100);

/// The lists of a channel begin with room for four slots.
const FOUR_SLOTS: Layout = Layout::new::<[u32; 4]>();

/// Refuses memory for the lists of a channel while a test says so.
struct Scarce;

thread_local! {
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: the calls go to the system allocator unchanged, or return null, which says that there is no memory.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout == FOUR_SLOTS && REFUSES.get() {
            return null_mut();
        }
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static SCARCE: Scarce = Scarce;

/// Calls `act` without memory for lists of slots.
fn without_memory<R>(act: impl FnOnce() -> R) -> R {
    REFUSES.set(true);
    let result = act();
    REFUSES.set(false);
    result
}

fn pair(name: &str) -> Pair {
    let mut pair = Pair::with(name, 1, |config| {
        config.offer = config.offer.with(Capabilities::NEAR);
    });
    pair.open_channels(1024);
    pair.sides[1].engine.listen(SERVICE).unwrap();
    pair
}

#[test]
fn a_request_that_is_accepted_without_memory_for_the_channel_takes_the_wire() {
    let mut pair = pair("accept_without_memory");
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    let client = pair.call(qpns[0], SERVICE);
    assert!(pair.run_until(LIMIT, |pair| !pair.sides[1].events.is_empty()));
    let request = pair.sides[1].cm_event().id;
    let (now, engine) = (pair.now, &mut pair.sides[1].engine);
    let accept = Accept::new(&[]);
    without_memory(|| engine.accept(now, request, qpns[1], &accept)).unwrap();
    pair.run_until(LIMIT, |_| false);
    for (side, id) in [client, request].into_iter().enumerate() {
        let event = pair.sides[side].cm_event().kind;
        assert!(matches!(event, CmEventKind::Established(_)), "{event:?}");
        let engine = &pair.sides[side].engine;
        assert_eq!(engine.qp_state(qpns[side]), Some(QpState::ReadyToSend));
        assert_eq!(engine.near_of(id), None);
    }
}

/// The accepting side has chosen the channel, so there is no other link.
#[test]
fn a_connection_that_is_answered_without_memory_for_the_channel_is_refused() {
    let mut pair = pair("answer_without_memory");
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    pair.call(qpns[0], SERVICE);
    pair.answer(qpns[1]);
    without_memory(|| pair.run_until(LIMIT, |_| false));
    let event = pair.sides[0].cm_event().kind;
    let CmEventKind::Rejected { reason, .. } = event else {
        panic!("{event:?}");
    };
    assert_eq!(reason, RejectReason::UNSUPPORTED);
    let event = pair.sides[1].cm_event().kind;
    assert!(matches!(event, CmEventKind::Rejected { .. }), "{event:?}");
}
