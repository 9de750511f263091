//! The state of all adapters of the process, under one lock.
//!
//! Lock order: the locks that core holds in a call, the fabric, a completion queue, the queue of upcalls. No upcall is made under
//! any of them; [`crate::worker`] makes all upcalls.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::LazyLock;

use dat_core::transport::Token;
use dat_core::upcall::Upcalls;
use dat_provider_parts::keys::Keys;
use dat_provider_parts::ports::Ports;
use parking_lot::{Mutex, MutexGuard};

use crate::qp::{QueuePair, SharedQueue};
use crate::settings::Settings;
use crate::transport::Loopback;

/// A listening service point.
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
    /// Number of open adapters by address.
    pub(crate) adapters: HashMap<IpAddr, u32>,
    pub(crate) keys: Keys,
    pub(crate) queue_pairs: HashMap<u32, QueuePair>,
    pub(crate) shared_queues: HashMap<u32, SharedQueue>,
    pub(crate) services: Ports<Service>,
    /// All windows by number, each with its rmr_context if it is bound.
    pub(crate) windows: HashMap<u32, Option<u32>>,
}

impl Fabric {
    /// Returns a new number for a PZ, a window, a queue pair or a shared queue.
    pub(crate) fn next_number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }
}

/// Locks the fabric.
pub(crate) fn fabric() -> MutexGuard<'static, Fabric> {
    static FABRIC: LazyLock<Mutex<Fabric>> = LazyLock::new(Mutex::default);
    FABRIC.lock()
}
