//! Waits on a dispatcher that begin with a look at its queue.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use udapl::{Access, Error, Evd, Event, Ia, IaCounter, Streams};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_wait_that_is_refused_takes_no_event() {
    let ia = Ia::open("softrxe-lo").expect("opens");
    let evd = ia.create_evd(16, Streams::SOFTWARE).expect("a dispatcher");
    let software = |event: &Event, value| {
        assert!(
            matches!(event, Event::Software(v) if *v == value),
            "{event:?}"
        );
    };
    evd.set_waitable(false).expect("unwaitable");
    evd.post(1).expect("an event");
    let refused = evd.wait(PATIENCE).expect_err("waits are forbidden");
    assert!(matches!(refused, Error::State { .. }), "{refused}");
    software(&evd.poll().expect("a poll").expect("the event"), 1);
    evd.set_waitable(true).expect("waitable");

    let waiter = evd.clone();
    let waiter = thread::spawn(move || {
        loop {
            // Refused if the other thread's wait has begun just before.
            match waiter.wait_for(3, PATIENCE) {
                Err(Error::State { .. }) => {}
                ended => break ended,
            }
        }
    });
    // Until the thread waits, a wait takes the event; then it is refused.
    let refused = loop {
        evd.post(2).expect("an event");
        match evd.wait(PATIENCE) {
            Ok(event) => software(&event, 2),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::State { .. }), "{refused}");
    let again = evd.wait(PATIENCE).expect_err("the thread still waits");
    assert!(matches!(again, Error::State { .. }), "{again}");
    evd.post(3).expect("an event");
    evd.post(4).expect("an event");
    let (first, more) = waiter.join().expect("no panic").expect("three events");
    software(&first, 2);
    assert_eq!(more, 2);
    software(&evd.wait(PATIENCE).expect("a wait after it"), 3);
}

/// Creates and drops this many endpoints, each with a receive that may have had an event; `look` looks at their queue after each. Returns
/// how many the adapter has created. All tests of this process share its handles. A handle that is used again before another test has
/// looked at its queue costs a further creation. So one test at a time creates endpoints.
fn creations(rounds: u64, look: impl Fn(&Evd)) -> u64 {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ia = Ia::open("softrxe-lo").expect("opens");
    let pz = ia.create_pz().expect("a PZ");
    let streams = Streams::DTO | Streams::CONNECTION | Streams::SOFTWARE;
    let events = ia.create_evd(16, streams).expect("a dispatcher");
    let memory = pz.allocate(64, Access::LOCAL_WRITE).expect("memory");
    for _ in 0..rounds {
        let builder = ia.endpoint(&pz).recv_evd(&events).request_evd(&events);
        let ep = builder.connect_evd(&events).create().expect("an endpoint");
        ep.post_recv(&[memory.slice(0..64)], 1).expect("a receive");
        drop(ep);
        look(&events);
    }
    ia.counters().expect("counters").get(IaCounter::EpCreate)
}

/// More than the provider creates before it uses a handle again.
const ENDPOINTS: u64 = 5000;

/// A program that takes its events with waits only: each of them sees whether the queue is empty.
#[test]
fn a_wait_that_finds_no_event_frees_the_handles_of_dropped_endpoints() {
    let waits = |events: &Evd| {
        assert!(matches!(
            events.wait(Duration::ZERO),
            Err(Error::TimedOut { .. })
        ));
    };
    assert_eq!(creations(ENDPOINTS, waits), ENDPOINTS);
}

/// A busy server, whose queue always has the next event.
#[test]
fn endpoints_are_created_without_many_attempts_where_the_queue_is_never_empty() {
    let takes_one_of_two = |events: &Evd| {
        events.post(1).expect("an event");
        events.post(2).expect("an event");
        while !matches!(events.wait(PATIENCE), Ok(Event::Software(1))) {}
        let left = events.wait_for(1, PATIENCE);
        assert!(matches!(left, Ok((Event::Software(2), 0))), "{left:?}");
    };
    let made = creations(ENDPOINTS, takes_one_of_two);
    assert!(
        made < ENDPOINTS * 3,
        "{made} creations of {ENDPOINTS} endpoints"
    );
}
