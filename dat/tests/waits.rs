//! Waits on a dispatcher that begin with a look at its queue.

use std::thread;
use std::time::Duration;

use udapl::{Error, Event, Ia, Streams};

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
