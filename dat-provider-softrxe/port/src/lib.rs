//! UDP port 4791 of an address, shared by several processes.
//!
//! The kernel gives (address, 4791) to one socket. The process that has it, the *port holder*, passes on what is for
//! the others, its *members*. Each member has queue pair numbers of its own (a *slot*: their top bits) and services
//! that it listens on, and registers both with the holder over a connection of the UNIX domain.
//!
//! * Processes of one user trust each other. The first one holds the port; the others join it; when it ends, one of
//!   them goes on with the same socket, which it has a descriptor of ([`shared_socket`]).
//! * Processes of several users share an address only through a holder that all of them agree to: `dat serve-port`
//!   ([`serve`]).
//!
//! Each side of each connection asks the kernel for the user of the other side (`SO_PEERCRED`) before it says or reads a
//! byte. A name of the abstract namespace protects nothing: any user can take any name first. Where that happened, a
//! process goes by an unguessable name instead, which the others find in the list of names ([`names`]).
//!
//! The design stands in `docs/security.md`, "Processes of one host".

pub mod address;
pub mod credentials;
pub mod fork;
pub mod holder;
mod limits;
pub mod liveness;
pub mod member;
pub mod members;
pub mod message;
pub mod names;
pub mod packets;
mod port_keeper;
pub mod port_owner;
pub mod port_share;
pub mod registry;
pub mod route;
pub mod serve;
pub mod shared_socket;
pub mod slot;
pub mod socket;
mod unix_socket;
pub mod wake;

/// UDP port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;
