//! What two DAT peers agree on when they connect, beyond the transport's own protocol.
//!
//! The crate reads and writes bytes and does nothing else: no I/O, no clock, no allocation besides headers and messages. `dat-verbs` and the
//! Soft-RoCE engine use it, so that both send the same. It imports no other crate of the workspace.
//! `docs/design/handshake.md` has the formats and the rules for changing them. Begin with [`offer`].
//!
//! * [`rdma_cm`]: sizes of private data, the version word of a refusal, the port of a connection qualifier. Every peer.
//! * [`datagram`]: the header in front of a datagram endpoint's request. Every peer.
//! * [`scm`]: the messages of DAPL's scm provider, which `cm=socket` sends over TCP. Its peers.
//! * [`guid`]: recognizes another Soft-RoCE user engine (an *own* engine) by its CA GUID.
//! * [`offer`]: the version and the capabilities that engines of this project negotiate.
//! * [`final_psn`]: what an engine of this project adds to its disconnection request.
#![forbid(unsafe_code)]

pub mod datagram;
pub mod final_psn;
pub mod guid;
pub mod offer;
pub mod rdma_cm;
pub mod scm;

pub use datagram::Caller;
pub use offer::{Agreement, Capabilities, Offer};
