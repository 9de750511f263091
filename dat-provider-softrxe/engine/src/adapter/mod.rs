//! An open adapter: the state behind its lock, and the threads that drive it.
//!
//! `open` makes it, `hub` is the lock, `state` is behind the lock. Data goes one way: packets are received by `ports`, handled by the protocol
//! engine, become events (`pending`), then upcalls (`events`), which run without the lock; posts enter the protocol engine, and `state`
//! transmits.

pub(crate) mod connections;
pub(crate) mod contention;
pub(crate) mod datagram;
pub(crate) mod descriptors;
pub(crate) mod driver;
pub(crate) mod events;
pub(crate) mod hub;
pub(crate) mod lanes;

pub(crate) mod near;
pub(crate) mod near_dial;
pub(crate) mod near_fallback;
mod near_wait;
pub(crate) mod notices;
mod open;
pub(crate) mod own_end;
pub(crate) mod peers;
pub(crate) mod pending;
pub(crate) mod poll_turns;
pub(crate) mod ports;
mod process_ends;
mod services;
pub(crate) mod state;
mod udp_datagrams;
pub(crate) mod upcall;
