//! RoCEv2 without I/O: wire formats, reliable connection, unreliable datagrams, connection manager.
//!
//! An [`Engine`] holds all protocol state of one local address. It takes datagrams, calls and the time, and returns
//! packets, events, completions and the next deadline. It has no socket, clock or thread; [`Memory`] is its only access to
//! memory. The same calls give the same results.
//!
//! The crate imports [`dat_handshake`] and no other crate of the workspace.
//!
//! `docs/design/proto.md` is the guide. Begin with `engine/mod.rs`, then read `engine/input.rs` and `engine/output.rs` (the
//! way of a packet), `qp` (the transport), `cm` (connections) and `wire` (formats).
#![forbid(unsafe_code)]

pub mod cm;
pub use cm::sidr::{SidrReply, SidrRequest};
pub use cm::{Accept, CmError, Connect};

mod completion_ring;

mod config;
pub use config::Config;

mod engine;
pub use engine::{Engine, NearPoster, PassedRequest, QpError};

mod event;
pub use event::{CmEvent, CmEventKind, CmId, ConnectRequest, Event, Forwarded, RejectReason};

mod wrong_keys;

pub mod near;
pub use near::{Link, NearId, NearOut, RecordPart};

pub mod memory;
pub use memory::{Access, AccessError, AtomicOp, Memory, MwBind, Pd, Rights, WindowType};

pub mod opcode;

mod occupancy;
pub use occupancy::Occupancy;

mod outputs;
pub use outputs::Counters;

mod psn;
pub use psn::{Psn, Qpn};

pub mod qp;
pub use qp::{Path, QpInit, QpKind, QpState};

mod secrets;
pub use secrets::{Generator, SecretKey};

mod try_box;

mod time;
pub use time::Time;

mod transmit;
pub use transmit::{Meta, Transmit};

mod work;
pub use work::{
    CompletedOp, Completion, CqId, DatagramPeer, Op, PostError, Remote, SendRequest, Sge, SrqId,
    Status,
};

pub use dat_handshake::{Agreement, Capabilities, Offer};

pub mod wire;
pub use wire::cma::service_id;

/// UDP destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;
