//! Shares UDP port 4791 of an address between processes.
//!
//! The kernel gives (address, 4791) to one socket. The process that has this socket, the *port holder*, forwards
//! datagrams to the other processes, its *members*. Each member registers with the holder, over a UNIX socket, its
//! *slot* (the top bits of its queue pair numbers) and the services that it listens on.
//!
//! * Processes of one user trust each other. The first one holds the port and the others join it. When it ends, another one continues with
//!   the same socket, of which it has a descriptor ([`shared_socket`]).
//! * Processes of several users share an address only through `dat serve-port`, a holder that all of them trust ([`serve`]).
//!
//! Each side of each connection asks the kernel for the user of the other side (`SO_PEERCRED`) before it sends or reads
//! a byte ([`credentials`], [`names`]). `docs/security.md`, "Processes of one host", describes the design.
//!
//! The crate imports `dat-os` and libraries of others, and no other crate of this project. Begin with
//! [`port_share`], then read [`holder`], [`member`] and [`message`].

mod absent;
pub mod address;
pub mod credentials;
pub mod discard;
pub mod fork;
mod former_share;
pub mod holder;
mod limits;
pub mod listener;
pub mod liveness;
mod lock_memory;
pub mod member;
pub mod members;
pub mod message;
pub mod names;
pub mod own_user;
pub mod packets;
pub mod poll_set;
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

/// UDP port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;
