use std::time::{Duration, Instant};

use super::*;
use crate::fake::{self, FakeContext};
use crate::verbs::cq::Cq;

/// Waits until the device's descriptors were read `count` times, and some time more; returns the number.
fn reads(device: &FakeContext, count: u32) -> u32 {
    let read = || device.reads.load(Ordering::Relaxed);
    let begin = Instant::now();
    while read() < count && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    read()
}

/// A consumer's agent, which deferred work may call, may call functions that defer work: dat_cr_accept of a datagram peer
/// always does.
#[test]
fn deferred_work_may_defer_more() {
    let adapter = fake::adapter("");
    let (done, wait) = std::sync::mpsc::channel();
    adapter.shared.defer(Box::new(move |shared| {
        shared.defer(Box::new(move |_| done.send(()).unwrap()));
    }));
    let got = wait.recv_timeout(Duration::from_secs(20));
    if got.is_err() {
        // The drop would wait for the event thread.
        std::mem::forget(adapter);
    }
    assert_eq!(got, Ok(()));
}

/// The descriptors of a device that is gone have an error for ever.
#[test]
fn a_device_that_is_removed_leaves_the_event_thread_asleep() {
    let adapter = fake::adapter("");
    let device = FakeContext::of(&adapter);
    let queue = Cq::new(&adapter, 16, Token::default()).unwrap();
    device.remove();
    assert_eq!(reads(device, 1), 1);
    queue.notifier.watch().unwrap();
    assert_eq!(reads(device, 2), 2);
    // As core does when it has looked into the queue.
    queue.notifier.watch().unwrap();
    assert_eq!(reads(device, 2), 2);
}

/// `enum ibv_event_type`, in its order.
#[test]
fn each_event_of_a_device_means_what_it_says() {
    let token = Token::default();
    let told = |number| fault(number, token).map(|fault| format!("{fault:?}"));
    let starts = |number, word: &str| {
        let told = told(number).unwrap_or_default();
        assert!(told.starts_with(word), "event {number}: {told}");
    };
    starts(0, "CqOverflow");
    for broken in 1..=3 {
        starts(broken, "Ep");
    }
    starts(8, "Adapter");
    starts(15, "SrqLow");
    starts(16, "LastReceive");
    // COMM_EST, SQ_DRAINED, PATH_MIG, PATH_MIG_ERR, PORT_ACTIVE, PORT_ERR, LID_CHANGE, PKEY_CHANGE, SM_CHANGE,
    // CLIENT_REREGISTER, GID_CHANGE, and a number that is not assigned yet.
    for harmless in [4, 5, 6, 7, 9, 10, 11, 12, 13, 17, 18, 99] {
        assert_eq!(told(harmless), None, "event {harmless}");
    }
}
