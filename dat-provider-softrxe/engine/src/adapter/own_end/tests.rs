use super::*;
use crate::transport::open::test_hub;

/// Long enough for what needs no other thread, and the time that exit(3) takes where one is stopped.
const MOMENT: Duration = Duration::from_millis(100);

fn leave(hub: &Arc<Hub>) -> u32 {
    let before = UNFINISHED.load(Ordering::Relaxed);
    add(hub);
    leave_all(lanes(), Instant::now() + MOMENT);
    UNFINISHED.load(Ordering::Relaxed) - before
}

#[test]
fn exit_waits_for_no_thread_without_a_bound() {
    let hub = test_hub("127.67.12.1");
    // A thread that is stopped has the lock, which the helper thread waits for.
    let stopped = hub.state.lock();
    let helper = Arc::clone(&hub);
    let thread = std::thread::spawn(move || helper.run());
    assert_eq!(leave(&hub), 1);
    drop(stopped);
    let list = lanes().lock();
    leave_all(lanes(), Instant::now() + MOMENT);
    drop(list);
    hub.end();
    thread.join().unwrap();
    assert_eq!(UNFINISHED.load(Ordering::Relaxed), 0, "it did so later");

    // A thread that polls is interrupted in a poll, and the signal handler calls exit(3).
    dat_arena::permit_owners();
    let hub = test_hub("127.67.12.2");
    for _ in 0..100_000 {
        drop(hub.state.lock());
    }
    let held = hub.state.lock();
    assert_eq!(leave(&hub), 0);
    drop(held);
    hub.end();

    // The consumer's agent calls exit(3), in the helper thread.
    let hub = test_hub("127.67.12.3");
    let here = dat_arena::current_thread();
    hub.helper_thread.store(here, Ordering::Relaxed);
    assert_eq!(leave(&hub), 0);
}
