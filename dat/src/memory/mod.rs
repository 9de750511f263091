//! Registered memory: regions, their segments, and the copies in and out of them.

pub(crate) mod copy;
pub(crate) mod limbo;
pub(crate) mod lmr;
pub(crate) mod region;
pub(crate) mod remote;
pub(crate) mod source;
#[cfg(feature = "bytemuck")]
mod typed;
mod words;
