use std::sync::mpsc::channel;
use std::thread;

use super::*;
use crate::{Event, Ia, Streams};

#[test]
fn an_agent_of_such_a_provider_may_call_it() {
    let ia = Ia::open("softrxe-lo").expect("opens");
    serialise(ia.handle().table_address());
    let cno = ia.create_cno().expect("a CNO");
    let evd = ia.create_evd_on(&cno, 16, Streams::SOFTWARE);
    let evd = evd.expect("an EVD");
    let of_agent = evd.clone();
    let (seen, event) = channel();
    let agent = move || {
        let event = of_agent.poll();
        seen.send(event).expect("the test waits");
    };
    cno.set_agent(Some(Box::new(agent))).expect("sets");
    // The agent is called inside this call.
    thread::spawn(move || evd.post(7).expect("posts"));
    let event = event.recv_timeout(Duration::from_secs(20));
    let event = event.expect("a thread waits for a lock that it holds");
    assert!(matches!(event, Ok(Some(Event::Software(7)))), "{event:?}");
}
