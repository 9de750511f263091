//! The connection manager: executes what the state table of [`crate::cm`] decides.
//!
//! `calls` has the driver's calls, `message` handles received messages, `step` executes the actions of a step. `requests` keeps the requests
//! that wait for the consumer, `retry` sends a refused REQ again, `sidr` resolves service ids. `pass_on` gives a request to another engine,
//! `no_route` ends attempts whose messages cannot be sent, `end_of_process` says to peers that this process ends.

mod calls;
mod end_of_process;
mod message;
mod no_route;
mod pass_on;
mod requests;
mod retry;
mod sidr;
mod step;

pub use pass_on::PassedRequest;
