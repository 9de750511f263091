//! Two endpoints of this process on the user engine that is built in.
#![allow(dead_code, reason = "each test uses a part")]

use std::time::Duration;

use udapl::{Ep, Evd, Event, Ia, Pz, Streams};

/// Time limit for an event on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An endpoint with its own adapter and dispatchers.
pub(crate) struct Side {
    pub(crate) ep: Ep,
    pub(crate) done: Evd,
    pub(crate) connections: Evd,
    pub(crate) pz: Pz,
    pub(crate) ia: Ia,
}

/// Makes an unconnected endpoint.
pub(crate) fn side() -> Side {
    let ia = Ia::open("softrxe-lo").expect("the adapter is built in");
    let pz = ia.create_pz().expect("a PZ");
    let done = ia
        .create_evd(256, Streams::DTO | Streams::RMR_BIND)
        .expect("an EVD");
    let connections = ia
        .create_evd(16, Streams::CR | Streams::CONNECTION)
        .expect("an EVD");
    let builder = ia
        .endpoint(&pz)
        .recv_evd(&done)
        .request_evd(&done)
        .connect_evd(&connections);
    let ep = builder
        .max_recv(8)
        .max_requests(8)
        .max_segments(2)
        .create()
        .expect("an EP");
    Side {
        ep,
        done,
        connections,
        pz,
        ia,
    }
}

/// Returns two connected endpoints; the active one first.
pub(crate) fn pair() -> (Side, Side) {
    let (active, passive) = (side(), side());
    connect(&active, &passive);
    (active, passive)
}

/// Connects two endpoints.
pub(crate) fn connect(active: &Side, passive: &Side) {
    let listener = passive.ia.listen(None, &passive.connections);
    let listener = listener.expect("listens");
    let address = passive.ia.attributes().expect("attributes").address;
    let attempt = active.ep.connect(address, listener.conn_qual());
    attempt.timeout(PATIENCE).start().expect("starts");
    let Ok(Event::Request(request)) = passive.connections.wait(PATIENCE) else {
        panic!("no request")
    };
    request.accept(&passive.ep, b"").expect("accepts");
    for side in [active, passive] {
        match side.connections.wait(PATIENCE) {
            Ok(Event::Established { ep, .. }) => assert_eq!(ep, side.ep.id()),
            other => panic!("not established: {other:?}"),
        }
    }
}
