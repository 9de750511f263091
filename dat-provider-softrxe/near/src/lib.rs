//! A channel between two processes of one host and one user: a ring in shared memory for each direction.
//!
//! A ring carries *records*: a short header and a payload, of which this crate knows the lengths only. It does not know RoCE. One process
//! creates the memory ([`Channel::create`]) and gives its descriptor to the other one, which adopts it ([`Channel::adopt`]); [`agreement`]
//! is how they find each other. Each process has the [`Sender`] of one ring and the [`Receiver`] of the other.
//!
//! A peer that writes anything into the shared memory at any time harms its own channel only: every value that is read
//! there is checked ([`Violation`]), and no Rust reference leads there except those to atomics.
//! `docs/design/same-host.md` describes the design.
//!
//! A long payload may stay in the sender's memory ([`Lender`]): the receiver copies it from there, once ([`Puller`]).
//!
//! Read [`layout`], `ring` (the protocol of seals, index and flags), `map` (the memory), then [`Sender`], [`Receiver`] and
//! [`agreement`].

mod access;
pub mod agreement;
mod channel;
pub mod layout;
mod lender;
mod map;
mod pull;
mod random;
mod receiver;
mod ring;
mod sender;
mod sync;
mod violation;

pub use channel::{Channel, LARGE_RING, SMALL_RING, WIDE_RING, mtu, prefers_wide_rings};
pub use lender::Lender;
pub use map::MapError;
pub use pull::{Lent, PullError, Puller};
pub use receiver::{Receiver, Record};
pub use sender::{Sender, Space};
pub use violation::Violation;
