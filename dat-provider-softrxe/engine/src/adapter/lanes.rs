//! The engines of an adapter that has several, its lanes. Each has a lock, a helper thread, a slot, a socket and channels of its own, so threads
//! whose endpoints are in different lanes do not wait for each other.
//!
//! A queue pair is in one lane. Service points are in the first; a request passes to the lane of the endpoint that accepts it. What any queue
//! pair may use is in all lanes: regions under one key, windows. A completion queue is in the lanes of its queue pairs.
//!
//! A thread holds the lock of one lane at a time. A [bind](Lanes::order_binds) is the exception, and binds are serialised.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use dat_arena::{Mutex, MutexGuard};
use softrxe_proto::CmId;

use super::hub::Hub;

/// Requests that are remembered after they passed to another lane. A peer repeats a REQ within seconds.
const MAX_PASSED: usize = 1024;

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

/// Where requests of the first lane have passed to.
#[derive(Default)]
pub(crate) struct Passed {
    /// The id in the first lane, the lane, and the id there; the newest last.
    recent: Mutex<VecDeque<(CmId, Weak<Hub>, CmId)>>,
}

impl Passed {
    /// Records that the request `id` is `there` in `lane` now.
    pub(crate) fn add(&self, id: CmId, lane: &Arc<Hub>, there: CmId) {
        let mut recent = self.recent.lock();
        if recent.len() == MAX_PASSED {
            recent.pop_front();
        }
        recent.push_back((id, Arc::downgrade(lane), there));
    }

    /// Returns the lane of the request that was `id`, and its id there.
    pub(crate) fn find(&self, id: CmId) -> Option<(Arc<Hub>, CmId)> {
        let recent = self.recent.lock();
        let (_, lane, there) = recent.iter().rev().find(|(known, ..)| *known == id)?;
        Some((lane.upgrade()?, *there))
    }
}
