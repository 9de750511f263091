//! Fuzz bodies for `softrxe-proto`, dat.conf, private data, the messages between the processes of a host, their shared memory, and the messages
//! of DAPL's scm provider. A body takes any bytes and panics when an invariant is violated.
//!
//! Each body of the protocol reads its input as a list of decisions, and acts as the network, the peer and the consumer.
//! After each step it checks the invariants: no byte outside the granted memory is read or written, receives and requests
//! complete once and in order, sent packets are well formed, nothing grows without bound. `docs/fuzzing.md` describes the
//! runs: seeded for seconds in `make test`, coverage-guided for hours by `make fuzz`.
//!
//! Begin with [`BODIES`]. The crate imports `softrxe-proto`, `softrxe-port`, `softrxe-near`, `dat-handshake`, `dat-registry` and `dat-core`.

pub mod captures;
mod cm;
mod conf;
mod input;
mod memory;
pub mod mutate;
mod packets;
mod pair;
mod port;
mod private;
mod rc;
pub mod reached;
mod records;
mod ring;
mod scm;
mod wire;

pub use cm::cm;
pub use conf::conf;
pub use pair::pair;
pub use port::port;
pub use private::private;
pub use rc::{near, requester, responder};
pub use ring::ring;
pub use scm::scm;
pub use wire::wire;

/// A fuzz body: any input is fine, a panic is a finding.
pub type Body = fn(&[u8]);

/// All bodies, with their names.
pub const BODIES: &[(&str, Body)] = &[
    ("wire", wire),
    ("cm", cm),
    ("responder", responder),
    ("requester", requester),
    ("near", near),
    ("pair", pair),
    ("conf", conf),
    ("scm", scm),
    ("port", port),
    ("private", private),
    ("ring", ring),
];

/// Returns the body called `name`.
#[must_use]
pub fn body(name: &str) -> Option<Body> {
    BODIES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, body)| *body)
}
