//! Fuzzing of `softrxe-proto`, of dat.conf, of private data, of the messages between the processes of a host and of those of DAPL's scm
//! provider: bodies that take any bytes and panic when a promise is broken.
//!
//! Each body of the protocol reads its input as a list of decisions, plays the network, the peer and the consumer
//! with it, and checks after each step what must hold whatever arrives: no byte outside what is granted is read or written, receives and
//! requests complete once and in order, what goes out is well formed, nothing grows without bound. `docs/fuzzing.md` says how they are run:
//! seeded for seconds in `make test`, coverage-guided for hours by `make fuzz`.

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
mod scm;
mod wire;

pub use cm::cm;
pub use conf::conf;
pub use pair::pair;
pub use port::port;
pub use private::private;
pub use rc::{requester, responder};
pub use scm::scm;
pub use wire::wire;

/// A fuzz body: any input is fine, a panic is a finding.
pub type Body = fn(&[u8]);

/// All bodies with their names.
pub const BODIES: &[(&str, Body)] = &[
    ("wire", wire),
    ("cm", cm),
    ("responder", responder),
    ("requester", requester),
    ("pair", pair),
    ("conf", conf),
    ("scm", scm),
    ("port", port),
    ("private", private),
];

/// The body called `name`.
#[must_use]
pub fn body(name: &str) -> Option<Body> {
    BODIES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, body)| *body)
}
