//! A client that sends as soon as it is connected, and a server that answers the first message. Each side has one EVD for
//! completions and connection events.

use std::net::IpAddr;
use std::time::Duration;

use dat::{Access, Close, ConnectionEvent, DtoStatus, Ep, Evd, Event, Ia, Pz, Region, Streams};

const PATIENCE: Duration = Duration::from_secs(60);
const QUAL: u64 = 7340;
const RECEIVED: u64 = 1;
const SENT: u64 = 2;
const DISCONNECTED: ConnectionEvent = ConnectionEvent::Disconnected;

struct Side {
    events: Evd,
    memory: Region,
    pz: Pz,
    ia: Ia,
}

impl Side {
    fn open(name: &str) -> Self {
        let ia = Ia::open(name).expect("the IA opens");
        let pz = ia.create_pz().expect("a PZ");
        let streams = Streams::DTO | Streams::CONNECTION;
        Self {
            events: ia.create_evd(16, streams).expect("an EVD"),
            memory: pz.allocate(128, Access::ALL).expect("memory"),
            pz,
            ia,
        }
    }

    /// Creates an endpoint with one receive.
    fn ep(&self) -> Ep {
        let builder = self.ia.endpoint(&self.pz).recv_evd(&self.events);
        let builder = builder.request_evd(&self.events);
        let ep = builder.connect_evd(&self.events).create();
        let ep = ep.expect("an endpoint");
        ep.post_recv(&[self.memory.slice(0..64)], RECEIVED)
            .expect("posts a receive");
        ep
    }

    fn next(&self) -> Event {
        self.events.wait(PATIENCE).expect("an event")
    }

    fn is_connected(&self) {
        match self.next() {
            Event::Established { .. } => {}
            other => panic!("the first event is {other:?}"),
        }
    }

    /// Posts a send, which must be accepted.
    fn send(&self, ep: &Ep) {
        ep.post_send(&[self.memory.slice(64..128)], SENT)
            .expect("the endpoint is connected");
    }

    /// Waits for the receive; returns false if the connection ends without it.
    fn receives(&self) -> bool {
        loop {
            match self.next() {
                Event::Completion(done) if done.cookie == RECEIVED => {
                    return done.status == DtoStatus::Success;
                }
                Event::Completion(_) => {}
                Event::Ended {
                    how: DISCONNECTED, ..
                } => return false,
                other => panic!("{other:?} before the message"),
            }
        }
    }

    fn is_disconnected(&self) {
        loop {
            match self.next() {
                Event::Ended {
                    how: DISCONNECTED, ..
                } => return,
                Event::Completion(_) => {}
                other => panic!("{other:?} instead of the end"),
            }
        }
    }
}

/// Serves `count` connections of the IA `name`; prints `listening` and at the end `served`. From a client that ends the connection
/// without a message it expects both events.
///
/// # Panics
/// If an event is out of order, or an answer is refused.
pub fn serve(name: &str, count: u32) {
    let side = Side::open(name);
    let requests = side.ia.create_evd(16, Streams::CR).expect("an EVD");
    let listener = side.ia.listen(Some(QUAL), &requests).expect("listens");
    println!("\nlistening");
    for _ in 0..count {
        let ep = side.ep();
        let Ok(Event::Request(request)) = requests.wait(PATIENCE) else {
            panic!("no request")
        };
        let speaks = request.private_data().starts_with(b"speaks");
        request.accept(&ep, b"").expect("accepts");
        side.is_connected();
        if speaks {
            assert!(side.receives(), "the message");
            side.send(&ep);
        }
        side.is_disconnected();
        drop(ep);
        while let Ok(Some(_)) = side.events.poll() {}
    }
    drop(listener);
    println!("\nserved");
}

/// Makes `count` connections to the server at `to`, and ends each. If it `speaks`, it sends a message before and waits for the answer.
///
/// # Panics
/// If an event is out of order, or there is no answer.
pub fn call(name: &str, to: IpAddr, count: u32, speaks: bool) {
    let side = Side::open(name);
    for _ in 0..count {
        let ep = side.ep();
        let data: &[u8] = if speaks { b"speaks" } else { b"is silent" };
        let attempt = ep.connect(to, QUAL).private_data(data).timeout(PATIENCE);
        attempt.start().expect("starts");
        side.is_connected();
        if speaks {
            side.send(&ep);
            assert!(side.receives(), "the answer");
        }
        ep.disconnect(Close::Abrupt).expect("disconnects");
        side.is_disconnected();
        drop(ep);
        while let Ok(Some(_)) = side.events.poll() {}
    }
    println!("\ncalled");
}
