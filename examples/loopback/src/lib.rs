//! A DAT transport between endpoints of one process.
//!
//! It shows what an author of a provider writes: one type, [`Loopback`], one `impl`
//! [`Transport`](dat_core::transport::Transport) (in `transport.rs`, a list of short answers), and behind it
//! whatever moves the bytes. It also is the test bench of core and of the C tables, because it does everything that
//! the specification asks of a reliable connection, and [fails on request](settings::Settings).
//!
//! How it is built, from below:
//!
//! | module | what it is |
//! |---|---|
//! | `memory` | copies between registered ranges: the only `unsafe` code |
//! | `keys` | registered regions and windows, and who may touch which bytes |
//! | `cq` | completion queues, and where `park` sleeps |
//! | `qp` | queue pairs and shared receive queues: what waits on them |
//! | `fabric` | everything that several queue pairs share, under one lock |
//! | `carry` | carries requests out |
//! | `connect` | service points, connection requests, and the ends of connections |
//! | `worker` | the thread that makes all upcalls |
//!
//! One lock over the whole fabric is not fast, but easy to see through; a transport for production has one a queue
//! pair, or hardware.

mod carry;
mod connect;
mod cq;
mod fabric;
mod keys;
mod memory;
mod qp;
pub mod settings;
mod transport;
mod worker;

pub use transport::Loopback;
