//! Completion queues, and the sleep of a waiter ([`park`](dat_core::transport::Transport::park)).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_core::event::DtoStatus;
use dat_core::transport::{Completion, Parked, Token, Transport, WrId};
use dat_core::upcall::{Fault, Upcalls};
use dat_os::permit::Permit;
use parking_lot::Mutex;

use crate::worker::{Upcall, Worker};

/// An entry of a completion queue.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The completion.
    pub completion: Completion,
    /// For a receive, true if its sender requested a notification; `None` for a request.
    pub solicited: Option<bool>,
}

impl Entry {
    /// Creates the entry of a completed request. Core ignores operation, immediate data and endpoint of a request: it stored them
    /// at the post.
    #[must_use]
    pub fn request(id: WrId, status: DtoStatus, length: u32) -> Self {
        let mut completion = Completion::new(id, status);
        completion.length = length;
        Self {
            completion,
            solicited: None,
        }
    }

    /// Returns true if the entry wakes a waiter for solicited completions.
    fn notifies(&self) -> bool {
        self.completion.status != DtoStatus::Success || self.solicited != Some(false)
    }
}

impl Default for Entry {
    fn default() -> Self {
        Self::request(WrId(0), DtoStatus::Success, 0)
    }
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq<T: Transport> {
    token: Token,
    upcalls: Upcalls<T>,
    worker: &'static Worker<T>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    entries: VecDeque<Entry>,
    depth: usize,
    overrun: bool,
    watched: bool,
    solicited_only: bool,
    /// Permits of the threads that sleep on this queue.
    sleepers: Vec<Arc<Permit>>,
}

impl<T: Transport> Cq<T> {
    /// Makes a queue for `depth` completions that reports to the EVD of `token`.
    #[must_use]
    pub fn new(depth: u32, token: Token, upcalls: Upcalls<T>, worker: &'static Worker<T>) -> Self {
        Self {
            token,
            upcalls,
            worker,
            inner: Mutex::new(Inner {
                entries: VecDeque::new(),
                depth: depth.max(1) as usize,
                overrun: false,
                watched: false,
                solicited_only: false,
                sleepers: Vec::new(),
            }),
        }
    }

    /// Sets the room; entries that are queued stay.
    pub fn resize(&self, depth: u32) {
        self.inner.lock().depth = depth.max(1) as usize;
    }

    /// Starts or ends the watch: one report when an entry comes ([`Transport::watch_cq`]).
    pub fn watch(&self, on: bool) {
        self.inner.lock().watched = on;
    }

    /// Sets whether unsolicited receives are silent ([`Transport::solicited_only`]).
    pub fn solicited_only(&self, on: bool) {
        self.inner.lock().solicited_only = on;
    }

    /// Adds a completion and wakes the waiters. If the queue is full, or cannot grow, the completion is lost, and one overflow is
    /// reported to the EVD.
    pub fn push(&self, entry: Entry) {
        let mut inner = self.inner.lock();
        if inner.entries.len() >= inner.depth || inner.entries.try_reserve(1).is_err() {
            if !std::mem::replace(&mut inner.overrun, true) {
                self.worker
                    .enqueue(Upcall::fault(self.upcalls, Fault::CqOverflow(self.token)));
            }
            return;
        }
        inner.entries.push_back(entry);
        if inner.solicited_only && !entry.notifies() {
            return;
        }
        if std::mem::take(&mut inner.watched) {
            self.worker.enqueue(Upcall::ready(self.upcalls, self.token));
        }
        for permit in &inner.sleepers {
            permit.give();
        }
    }

    /// Moves up to `into.len()` entries to `into` and returns their number. Not inlined, because scripts/hotpath-ceilings.sh counts
    /// the instructions of its callers.
    #[inline(never)]
    pub fn poll(&self, into: &mut [Entry]) -> usize {
        let mut inner = self.inner.lock();
        let count = into.len().min(inner.entries.len());
        for (to, from) in into.iter_mut().zip(inner.entries.drain(..count)) {
            *to = from;
        }
        if count != 0 {
            inner.overrun = false;
        }
        count
    }
}

/// The permit that wakes a waiter of an EVD or CNO.
#[derive(Debug, Default)]
pub struct Parker(Arc<Permit>);

impl Parker {
    /// Gives the permit ([`Transport::unpark`]).
    pub fn unpark(&self) {
        self.0.give();
    }

    /// Sleeps until the permit is given, by [`Parker::unpark`] or by a completion in `cq`. It calls `ready` after the permit was
    /// registered with the queue, so that no completion is missed in between.
    pub fn park<T: Transport>(
        &self,
        cq: Option<&Cq<T>>,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Parked {
        let end = timeout.and_then(|t| Instant::now().checked_add(t));
        if let Some(cq) = cq {
            cq.inner.lock().sleepers.push(Arc::clone(&self.0));
        }
        let ended = if ready() {
            Parked::Woken
        } else {
            self.0.wait(end).into()
        };
        if let Some(cq) = cq {
            let mut inner = cq.inner.lock();
            if let Some(at) = inner.sleepers.iter().position(|b| Arc::ptr_eq(b, &self.0)) {
                inner.sleepers.swap_remove(at);
            }
        }
        ended
    }
}
