//! Endpoints on softrxe's user engine: two IAs of one process, connected through shared memory and over UDP.

use std::time::Duration;

use dat::{Access, Ep, Evd, Event, Ia, Pz, Region, Streams};

/// Time limit for an event on a loaded machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Values of the setting `near`: connections within this host use shared memory, or UDP.
pub const LINKS: [&str; 2] = ["auto", "off"];

/// The [`LINKS`] as words of `ia_params`, UDP without a receive ring, and shared memory with several lanes.
const SETTINGS: [&str; 4] = [
    "near=auto",
    "near=off",
    "near=off ring=off",
    "near=auto lanes=3",
];

/// Runs `body` in a process of its own for shared memory, UDP, UDP without a receive ring, and several lanes. The process's dat.conf has
/// the IAs `a` and `b`: the user engine on the addresses 1 and 2 of the /24 `network`, which no other test uses. `name` is the test that
/// calls this.
pub fn with_engine(name: &str, network: &str, body: impl FnOnce()) {
    with_settings(name, network, &SETTINGS, body);
}

/// Does what [`with_engine`] does, with each of `all` as the settings of both IAs.
pub fn with_settings(name: &str, network: &str, all: &[&str], body: impl FnOnce()) {
    if crate::is_inner() {
        return body();
    }
    let library = crate::softrxe();
    for settings in all {
        let line = |ia, host| {
            let params = format!("{network}.{host} 0 engine=user {settings}");
            crate::line(ia, &library, &params)
        };
        let lines = line("a", 1) + &line("b", 2);
        crate::inside(name, || lines, || {});
    }
}

/// Limits of an [`Endpoint`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Outstanding receives.
    pub receives: u32,
    /// Outstanding requests.
    pub requests: u32,
    /// Outstanding RDMA Reads.
    pub reads: u32,
    /// Size of its memory in bytes.
    pub memory: usize,
}

/// An endpoint with its own IA, event dispatchers and memory.
#[derive(Debug)]
pub struct Endpoint {
    /// The endpoint.
    pub ep: Ep,
    /// EVD of its completions.
    pub completions: Evd,
    /// EVD of its connection events and requests.
    pub connections: Evd,
    /// Memory with all access rights.
    pub memory: Region,
    /// Protection zone of endpoint and memory.
    pub pz: Pz,
    /// The IA.
    pub ia: Ia,
}

impl Endpoint {
    /// Opens the IA `name` and creates the endpoint.
    ///
    /// # Panics
    /// If an object cannot be created.
    #[must_use]
    pub fn open(name: &str, limits: Limits) -> Self {
        let ia = Ia::open(name).expect("the IA opens");
        let pz = ia.create_pz().expect("a PZ");
        let completions = ia.create_evd(64, Streams::DTO).expect("an EVD");
        let streams = Streams::CR | Streams::CONNECTION;
        let connections = ia.create_evd(16, streams).expect("an EVD");
        let builder = ia
            .endpoint(&pz)
            .recv_evd(&completions)
            .request_evd(&completions)
            .connect_evd(&connections);
        let ep = builder
            .max_recv(limits.receives)
            .max_requests(limits.requests)
            .max_reads(limits.reads)
            .create()
            .expect("an EP");
        let memory = pz.allocate(limits.memory, Access::ALL).expect("memory");
        Self {
            ep,
            completions,
            connections,
            memory,
            pz,
            ia,
        }
    }

    /// Connects to `other` and dequeues the events of both sides.
    ///
    /// # Panics
    /// If no connection is established.
    pub fn connect(&self, other: &Self) {
        connect(
            (&self.ep, &self.connections),
            (&other.ep, &other.connections),
            &other.ia,
        );
    }
}

/// Connects the endpoint of `active` to that of `passive`, whose IA is `ia`. Each comes with its EVD of connection events, from
/// which the events are dequeued.
///
/// # Panics
/// If no connection is established.
pub fn connect(active: (&Ep, &Evd), passive: (&Ep, &Evd), ia: &Ia) {
    let listener = ia.listen(None, passive.1).expect("a PSP");
    let address = ia.attributes().expect("attributes").address;
    let connect = active.0.connect(address, listener.conn_qual());
    connect.timeout(TIMEOUT).start().expect("started");
    let Event::Request(request) = passive.1.wait(TIMEOUT).expect("a request") else {
        panic!("the first event of the passive side is no connection request");
    };
    request.accept(passive.0, b"").expect("accepted");
    for (_, connections) in [active, passive] {
        let event = connections.wait(TIMEOUT).expect("an event");
        assert!(matches!(event, Event::Established { .. }), "{event:?}");
    }
}
