//! The DAT object model and state machines, and the trait that a transport implements.
//!
//! Core knows what DAT promises (uDAPL 1.2 manual pages, 2.0 headers) and nothing of C layouts, files or
//! sockets: `dat-abi` lays its objects out for C, a [`transport::Transport`] moves the bytes.
//!
//! Objects live in [`arenas`] for ever and are reused, so a `&'static Ep<T>` is always valid memory; whether
//! it is the endpoint that the caller means, its [`head`] tells.
#![forbid(unsafe_code)]

pub mod ah;
pub mod arenas;
pub mod attr;
pub mod cno;
pub mod counters;
pub mod cr;
pub mod environment;
pub mod ep;
pub mod error;
pub mod evd;
pub mod event;
pub mod flags;
pub mod head;
pub mod ia;
pub mod ia_params;
pub mod iov;
pub mod lmr;
pub mod order;
pub mod private_data;
pub mod pz;
pub mod rmr;
pub mod sp;
pub mod srq;
mod sync;
pub mod timer;
pub mod transport;
pub mod upcall;
pub mod use_count;

pub use dat_arena::reserve;
