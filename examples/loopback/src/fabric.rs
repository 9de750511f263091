//! Everything that several queue pairs share, under one lock.
//!
//! Lock order: the locks core holds in a call > fabric > completion queue > bell. No upcall is made under any of
//! them: they go to [`crate::worker`].

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::LazyLock;

use dat_core::transport::Token;
use dat_core::upcall::Upcalls;
use parking_lot::{Mutex, MutexGuard};

use crate::keys::Keys;
use crate::qp::{QueuePair, SharedQueue};
use crate::settings::Settings;
use crate::transport::Loopback;

/// A service point that listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    pub(crate) token: Token,
    pub(crate) upcalls: Upcalls<Loopback>,
    pub(crate) settings: Settings,
}

/// The state of all adapters of the process.
#[derive(Debug, Default)]
pub(crate) struct Fabric {
    last_number: u32,
    /// Open adapters at an address.
    pub(crate) adapters: HashMap<IpAddr, u32>,
    pub(crate) keys: Keys,
    pub(crate) queue_pairs: HashMap<u32, QueuePair>,
    pub(crate) shared_queues: HashMap<u32, SharedQueue>,
    pub(crate) services: HashMap<(IpAddr, u64), Service>,
    /// The windows that exist, each with its rmr_context if it is bound.
    pub(crate) windows: HashMap<u32, Option<u32>>,
}

impl Fabric {
    /// A number that was not used before: of a PZ, a window, a queue pair, a shared queue.
    pub(crate) fn number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }
}

/// The fabric, locked.
pub(crate) fn fabric() -> MutexGuard<'static, Fabric> {
    static FABRIC: LazyLock<Mutex<Fabric>> = LazyLock::new(Mutex::default);
    FABRIC.lock()
}
