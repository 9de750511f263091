//! The type that stands for this transport. Its implementation of `Transport` is in the module `transport`.

/// The transport over RoCEv2 in this process.
#[derive(Debug)]
pub struct UserEngine;
