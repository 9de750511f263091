//! RoCEv2 without I/O: wire formats, reliable connection, connection manager.
//!
//! Bytes and time in, bytes and events out. `docs/design/proto.md` is the one-page guide; start at the engine, then `qp`
//! for the transport and `cm` for connections.
#![forbid(unsafe_code)]

pub mod cm;
pub use cm::sidr::{SidrReply, SidrRequest};
pub use cm::{Accept, CmError, Connect};

mod config;
pub use config::Config;

mod engine;
pub use engine::{Engine, QpError};

mod event;
pub use event::{CmEvent, CmEventKind, CmId, ConnectRequest, Event, RejectReason};

mod guesses;

pub mod memory;
pub use memory::{Access, AccessError, AtomicOp, Memory, MwBind, Pd, Rights, WindowType};

pub mod opcode;

mod outputs;
pub use outputs::Counters;

mod psn;
pub use psn::{Psn, Qpn};

pub mod qp;
pub use qp::{Path, QpInit, QpKind, QpState};

mod secrets;
pub use secrets::{Generator, SecretKey};

mod scarce;

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
