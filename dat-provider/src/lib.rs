//! The one crate that the author of a DAT provider imports.
//!
//! A provider is an implementation of [`Transport`](transport::Transport) and one [`export_provider!`]. The guide is
//! `docs/writing-a-provider.md`. What changes in which version is said in `docs/stability.md`; items of `dat-core`, `dat-abi`
//! and `dat-os` that are not re-exported here may change in any version.
//!
//! [`parts`] has what every transport in software needs, and a queue pair over a pipe of messages: `examples/pipe` is a provider of under
//! 300 lines of code.
//!
//! It imports `dat-core`, `dat-abi`, `dat-os` and `dat-provider-parts`. It does not import `dat-registry`: a provider is loaded by a
//! registry and contains none.
//!
//! ```
//! use dat_provider::prelude::*;
//!
//! /// Fills in what differs from a transport in software without optional operations.
//! fn attributes() -> AdapterAttr {
//!     let mut attr = AdapterAttr::default();
//!     attr.adapter_name = "mydev0".into();
//!     attr.max_private_data_size = 56;
//!     attr
//! }
//!
//! /// Reports a receive of 5 bytes.
//! fn received(id: WrId) -> Completion {
//!     let mut completion = Completion::new(id, DtoStatus::Success);
//!     completion.op = DtoOp::Receive;
//!     completion.length = 5;
//!     completion
//! }
//! assert!(!attributes().atomics);
//! assert_eq!(received(WrId(1)).length, 5);
//! ```
#![forbid(unsafe_code)]

pub use dat_abi::export::{INTERFACE, OpenRequest, OpenedIa, Provider};
pub use dat_abi::export_provider;
pub use dat_core::{
    arenas, attributes, counters, error, event, flags, ia_params, iov, reserve, rmr, transport,
    upcall,
};
pub use dat_os::{cancel, permit, sleep};
pub use dat_provider_parts as parts;

/// The names that an implementation of `Transport` mentions.
pub mod prelude {
    pub use dat_core::arenas::Arenas;
    pub use dat_core::attributes::{AdapterAttr, SrqAttr};
    pub use dat_core::error::{Error, Kind, Result, Subtype};
    pub use dat_core::event::{DtoOp, DtoStatus};
    pub use dat_core::flags::{MemPriv, VaType};
    pub use dat_core::ia_params::{IaParams, IaParamsError};
    pub use dat_core::iov::{LmrTriplet, RmrTriplet};
    pub use dat_core::rmr::Scope;
    pub use dat_core::transport::{
        Bind, Completion, Connect, Keys, Op, Parked, QpCaps, Request, Token, Transport, WrId,
    };
    pub use dat_core::upcall::{Arrival, ConnOutcome, DatagramOutcome, Fault, Upcalls};
}
