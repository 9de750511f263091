//! A DAT transport between endpoints of one process.
//!
//! It is the example for authors of providers. A provider consists of one type, [`Loopback`], that implements
//! [`Transport`](dat_core::transport::Transport) (in `transport.rs`, a list of short functions), and of the code behind it that moves
//! the bytes. It is also the transport of core's tests and of the tests of the C tables: it implements everything that the
//! specification requires of a reliable connection, and [fails on request](settings::Settings).
//!
//! It imports `dat-core` and `dat-provider-parts`, which has its completion queues, keys, copies and the thread for upcalls. Begin to read
//! at `transport.rs`, with the documentation of `Transport` beside it. The modules, from the lowest to the highest:
//!
//! | module | content |
//! |---|---|
//! | `qp` | queue pairs and shared receive queues with their outstanding work |
//! | `fabric` | the state of all adapters, under one lock |
//! | `execute` | execution of requests |
//! | `connect` | service points, connection requests, and the begin and end of connections |
//! | `faults` | faults that the proof of the conformance suite plants (feature `faults`) |
//! | `worker` | the thread that makes all upcalls |
//!
//! One lock for the whole fabric is simple, but not fast. A transport for production has a lock for each queue pair, or hardware.
#![forbid(unsafe_code)]

mod connect;
mod execute;
mod fabric;
pub mod faults;
mod qp;
pub mod settings;
mod transport;
mod worker;

pub use transport::Loopback;
