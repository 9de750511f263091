//! One end of a connection that sends and receives messages, for the tests of processes that end.

use std::net::IpAddr;
use std::time::Duration;

use dat::{Access, ConnectionEvent, Ep, Evd, Event, Ia, Pz, Region, Streams};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const RECEIVED: u64 = 1;
pub(crate) const SENT: u64 = 2;
const BYTES: usize = 64;

pub(crate) struct Side {
    pub(crate) ep: Ep,
    pub(crate) done: Evd,
    pub(crate) connections: Evd,
    pub(crate) memory: Region,
}

/// Makes an endpoint with a posted receive.
fn side(ia: &Ia, pz: &Pz) -> Side {
    let done = ia.create_evd(16, Streams::DTO).expect("an EVD");
    let connections = ia.create_evd(16, Streams::CONNECTION).expect("an EVD");
    let builder = ia.endpoint(pz).recv_evd(&done).request_evd(&done);
    let ep = builder.connect_evd(&connections).create().expect("an EP");
    let memory = pz.allocate(2 * BYTES, Access::ALL).expect("memory");
    ep.post_recv(&[memory.slice(0..BYTES)], RECEIVED)
        .expect("posts");
    Side {
        ep,
        done,
        connections,
        memory,
    }
}

impl Side {
    /// Connects to the service `qual` of `to`.
    pub(crate) fn connect(ia: &Ia, pz: &Pz, to: IpAddr, qual: u64) -> Self {
        let side = side(ia, pz);
        let attempt = side.ep.connect(to, qual).timeout(PATIENCE);
        attempt.start().expect("starts");
        side.is_established();
        side
    }

    /// Accepts the next of `requests`.
    pub(crate) fn accept(ia: &Ia, pz: &Pz, requests: &Evd) -> Self {
        let side = side(ia, pz);
        let Ok(Event::Request(request)) = requests.wait(PATIENCE) else {
            panic!("no request");
        };
        request.accept(&side.ep, b"").expect("accepts");
        side.is_established();
        side
    }

    pub(crate) fn is_established(&self) {
        let event = self.connections.wait(PATIENCE);
        assert!(matches!(event, Ok(Event::Established { .. })), "{event:?}");
    }

    pub(crate) fn send(&self) {
        self.ep
            .post_send(&[self.memory.slice(BYTES..2 * BYTES)], SENT)
            .expect("posts");
    }

    /// Waits until the receive or the send has completed, with success.
    pub(crate) fn completed(&self, cookie: u64) {
        let next = || self.done.wait_completion(PATIENCE);
        while next().expect("success").cookie != cookie {}
    }

    /// Returns how the connection ends.
    pub(crate) fn end(&self) -> ConnectionEvent {
        match self.connections.wait(PATIENCE) {
            Ok(Event::Ended { how, .. }) => how,
            other => panic!("{other:?} instead of the end"),
        }
    }
}
