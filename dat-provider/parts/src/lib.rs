//! Parts of a DAT provider that moves bytes in software. `dat-provider` re-exports this crate as `parts`.
//!
//! Each part stands alone, and a transport takes those that fit it. It imports `dat-core` and `dat-os`. Begin to read at the part that you
//! need; `examples/pipe` uses all of them but `ports::Ports`, `examples/loopback` all but `pipe`.
//!
//! | part | content |
//! |---|---|
//! | [`address`] | the device field of `ia_params` as the IA's address |
//! | [`cq`] | a completion queue, its bell, and the sleep of a waiter (`park`) |
//! | [`keys`] | regions and windows with their ranges and rights; the check of each access; revocation |
//! | [`memory`] | copies between ranges that `keys` allowed: the only `unsafe` code |
//! | [`pipe`] | a queue pair over an ordered, reliable pipe of messages |
//! | [`ports`] | the choice of a connection qualifier, and a table of the service points of one process |
//! | [`worker`] | the thread that makes all upcalls, in order |

pub mod address;
pub mod cq;
pub mod keys;
pub mod memory;
pub mod pipe;
pub mod ports;
pub mod worker;

use dat_core::error::{Error, Subtype};

/// Error of a table that cannot grow. A push or an insert would abort the process, so each table reserves its room first.
pub const NO_MEMORY: Error = Error::resource(Subtype::ResourceMemory);
