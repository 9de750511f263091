//! The engines of an adapter that has several, its lanes. Each has a lock, a helper thread, a slot, a socket and channels of its own, so threads
//! whose endpoints are in different lanes do not wait for each other.
//!
//! A queue pair is in one lane. Service points are in the first; a request passes to the lane of the endpoint that accepts it. What any queue
//! pair may use is in all lanes: regions under one key, windows. A completion queue is in the lanes of its queue pairs.
//!
//! A thread holds the lock of one lane at a time. The exception is a [bind](Lanes::order_binds), and binds are serialised.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::hub::Hub;

/// The lanes of an adapter, at least one.
pub(crate) struct Lanes {
    hubs: Box<[Arc<Hub>]>,
    /// Endpoints that were placed.
    placed: AtomicUsize,
    binds: Mutex<()>,
}

impl Lanes {
    /// Makes the lanes of an adapter. `hubs` has at least one element.
    pub(crate) fn new(hubs: Box<[Arc<Hub>]>) -> Self {
        Self {
            hubs,
            placed: AtomicUsize::new(0),
            binds: Mutex::new(()),
        }
    }

    /// Returns the first lane, which has the service points.
    #[inline]
    pub(crate) fn first(&self) -> &Arc<Hub> {
        &self.hubs[0]
    }

    /// Returns all lanes.
    pub(crate) fn all(&self) -> &[Arc<Hub>] {
        &self.hubs
    }

    /// Returns the only lane, if there is one.
    #[inline]
    pub(crate) fn only(&self) -> Option<&Arc<Hub>> {
        match &*self.hubs {
            [hub] => Some(hub),
            _ => None,
        }
    }

    /// Chooses the lane of an endpoint or a shared receive queue that no other object determines: each one in turn.
    pub(crate) fn place(&self) -> usize {
        self.placed.fetch_add(1, Ordering::Relaxed) % self.hubs.len()
    }

    /// Lets one thread at a time bind a window in several lanes, which takes their locks together.
    pub(crate) fn order_binds(&self) -> MutexGuard<'_, ()> {
        self.binds.lock()
    }
}
