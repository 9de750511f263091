//! DAT object model and state machines, and the trait that a transport implements.
//!
//! This crate implements what the uDAPL 1.2 manual pages and the 2.0 headers promise: IA, PZ, LMR, RMR, EVD, CNO, EP, service
//! points, CR, SRQ. It has no C layouts, files or sockets and no unsafe code: `dat-abi` converts its objects for C, a
//! [`transport::Transport`] moves the bytes and reports through [`upcall::Upcalls`]. It may import `dat-arena` and `dat-os`,
//! and no other crate of this workspace.
//!
//! Objects live in [`arenas`] for ever and are reused, so a `&'static Ep<T>` is always valid memory; its [`head`] says whether
//! it is alive and of which generation.
//!
//! Begin with [`transport`] and [`upcall`], then [`ep::state`] and [`evd::state`] (what each call does in each state), then
//! `ep/fast_path.rs` and `ep/post.rs` (a post on the fast and on the slow path), `ep/completion.rs` and `evd/queue.rs` (its completion).
//! [`lock_order`] has the order of the locks.
#![forbid(unsafe_code)]

pub mod ah;
pub mod arenas;
pub mod attributes;
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
pub mod lock_order;
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
