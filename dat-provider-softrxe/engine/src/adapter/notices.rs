//! Completion queues and shared receive queues: what core and sleeping threads are to be notified of.

use std::collections::HashMap;
use std::sync::Arc;

use dat_core::transport::Token;
use softrxe_proto::{CqId, SrqId};

use crate::wait::Permit;

/// Notifications of one completion queue.
#[derive(Debug)]
struct CqNotice {
    token: Token,
    /// Core is to be notified of the next completion.
    watched: bool,
    /// Threads that wait for a completion.
    sleepers: Vec<Arc<Permit>>,
}

/// Notifications of the queues of an adapter.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    cqs: HashMap<CqId, CqNotice>,
    /// Number of watched completion queues.
    watched: usize,
    srqs: HashMap<SrqId, Token>,
}

impl Notices {
    /// Adds a completion queue, which `token` names in core.
    pub(crate) fn add_cq(&mut self, id: CqId, token: Token) {
        let notice = CqNotice {
            token,
            watched: false,
            sleepers: Vec::new(),
        };
        self.cqs.insert(id, notice);
    }

    /// Removes a completion queue.
    pub(crate) fn remove_cq(&mut self, id: CqId) {
        self.watch(id, false);
        self.cqs.remove(&id);
    }

    /// Starts or stops notifying core of the next completion of `id`.
    pub(crate) fn watch(&mut self, id: CqId, on: bool) {
        if let Some(notice) = self.cqs.get_mut(&id) {
            self.watched -= usize::from(std::mem::replace(&mut notice.watched, on));
            self.watched += usize::from(on);
        }
    }

    /// Returns whether core is to be notified of a completion: then a consumer may sleep where the engine cannot see it, in
    /// poll(2) on a CNO's descriptor.
    pub(crate) const fn any_watched(&self) -> bool {
        self.watched != 0
    }

    /// Adds a thread that waits for a completion of `id`.
    pub(crate) fn add_sleeper(&mut self, id: CqId, permit: &Arc<Permit>) {
        if let Some(notice) = self.cqs.get_mut(&id) {
            notice.sleepers.push(Arc::clone(permit));
        }
    }

    /// Removes a thread that [`add_sleeper`](Self::add_sleeper) added, if it is still there.
    pub(crate) fn remove_sleeper(&mut self, id: CqId, permit: &Arc<Permit>) {
        if let Some(notice) = self.cqs.get_mut(&id) {
            notice.sleepers.retain(|other| !Arc::ptr_eq(other, permit));
        }
    }

    /// Wakes the threads that wait for a completion of `id`. Returns whether the event is to be kept for an upcall: also where
    /// the queue is unknown.
    pub(crate) fn completed(&mut self, id: CqId) -> bool {
        let Some(notice) = self.cqs.get_mut(&id) else {
            return true;
        };
        for permit in notice.sleepers.drain(..) {
            permit.give();
        }
        notice.watched
    }

    /// Returns the token of `id` if core is to be notified. Each [`watch`](Self::watch) leads to one notification.
    pub(crate) fn take_watched(&mut self, id: CqId) -> Option<Token> {
        let (token, watched) = self.cqs.get(&id).map(|cq| (cq.token, cq.watched))?;
        self.watch(id, false);
        watched.then_some(token)
    }

    /// Adds a shared receive queue, which `token` names in core.
    pub(crate) fn add_srq(&mut self, id: SrqId, token: Token) {
        self.srqs.insert(id, token);
    }

    /// Removes a shared receive queue.
    pub(crate) fn remove_srq(&mut self, id: SrqId) {
        self.srqs.remove(&id);
    }

    /// Returns the token of a shared receive queue.
    pub(crate) fn srq(&self, id: SrqId) -> Option<Token> {
        self.srqs.get(&id).copied()
    }
}
