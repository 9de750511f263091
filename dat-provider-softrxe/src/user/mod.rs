//! The user-space engine: RoCEv2 in this process, over UDP, without privileges or kernel modules.

pub mod memory;
pub mod net;
