//! Posts whose completions the program has not taken yet.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use dat_abi::types::{DatContext, DatHandle};

use crate::filter::{Operation, Queue};

/// Posts of a queue that are kept. A program that suppresses all its completions would add more for ever.
const LONGEST: usize = 65_536;

/// Number of locks: endpoints of different locks do not wait for each other.
const SHARDS: usize = 32;

/// A post that the inner provider was given.
#[derive(Clone, Debug)]
pub(crate) struct Outstanding {
    /// Its cookie.
    pub(crate) cookie: DatContext,
    /// Its kind.
    pub(crate) operation: Operation,
    /// The time of the post.
    pub(crate) at: Instant,
    /// Address and length of each local segment, if the filter needs them.
    pub(crate) segments: Vec<(u64, u32)>,
}

/// The outstanding posts of some queues.
#[derive(Debug, Default)]
pub(crate) struct Shard(HashMap<Queue, VecDeque<Outstanding>>);

impl Shard {
    /// Adds the newest post of a queue.
    pub(crate) fn push(&mut self, queue: Queue, post: Outstanding) {
        let posts = self.0.entry(queue).or_default();
        if posts.len() == LONGEST {
            posts.pop_front();
        }
        posts.push_back(post);
    }

    /// Takes the newest post back, because it was refused.
    pub(crate) fn pop(&mut self, queue: Queue) {
        self.0.get_mut(&queue).and_then(VecDeque::pop_back);
    }

    /// Takes the oldest post with this cookie. Earlier requests have completed without an event.
    fn take(&mut self, queue: Queue, cookie: DatContext) -> Option<Outstanding> {
        let posts = self.0.get_mut(&queue)?;
        let at = posts.iter().position(|post| post.cookie == cookie)?;
        if let Queue::Requests(_) = queue {
            posts.drain(..at);
            return posts.pop_front();
        }
        posts.remove(at)
    }
}

/// The outstanding posts of a filter.
#[derive(Debug)]
pub(crate) struct AllOutstanding {
    shards: [Mutex<Shard>; SHARDS],
    /// SRQs of endpoints.
    shared: RwLock<HashMap<DatHandle, DatHandle>>,
}

impl AllOutstanding {
    /// Returns an empty one.
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            shared: RwLock::default(),
        }
    }

    /// Locks the posts of some queues, those of `queue` among them.
    pub(crate) fn of(&self, queue: Queue) -> MutexGuard<'_, Shard> {
        let (Queue::Requests(handle) | Queue::Receives(handle)) = queue;
        // Objects are at least a cache line apart.
        let at = (handle >> 6).wrapping_mul(0x9e37_79b9) >> 8;
        self.shards[at % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the post of a completion.
    pub(crate) fn complete(&self, queue: Queue, cookie: DatContext) -> Option<Outstanding> {
        let queue = match queue {
            Queue::Requests(_) => queue,
            Queue::Receives(ep) => {
                let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
                Queue::Receives(shared.get(&ep).copied().unwrap_or(ep))
            }
        };
        self.of(queue).take(queue, cookie)
    }

    /// Records that the receives of an endpoint are those of an SRQ.
    pub(crate) fn share(&self, ep: DatHandle, srq: DatHandle) {
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        shared.insert(ep, srq);
    }

    /// Forgets the posts of an endpoint.
    pub(crate) fn clear(&self, ep: DatHandle) {
        for queue in [Queue::Requests(ep), Queue::Receives(ep)] {
            self.of(queue).0.remove(&queue);
        }
    }

    /// Forgets the SRQ of an endpoint, whose number the next endpoint may get.
    pub(crate) fn unshare(&self, ep: DatHandle) {
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        shared.remove(&ep);
    }

    /// Forgets everything.
    pub(crate) fn clear_all(&self) {
        for shard in &self.shards {
            shard
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .0
                .clear();
        }
        self.shared
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(all: &AllOutstanding, queue: Queue, cookie: u64, operation: Operation) {
        let at = Instant::now();
        all.of(queue).push(
            queue,
            Outstanding {
                cookie,
                operation,
                at,
                segments: Vec::new(),
            },
        );
    }

    #[test]
    fn a_completion_takes_its_post_and_the_silent_ones_before_it() {
        let all = AllOutstanding::new();
        let (requests, receives) = (Queue::Requests(64), Queue::Receives(64));
        for (cookie, operation) in [
            (1, Operation::Send),
            (2, Operation::Write),
            (3, Operation::Read),
        ] {
            push(&all, requests, cookie, operation);
            push(&all, receives, cookie, Operation::Receive);
        }
        assert_eq!(
            all.complete(requests, 2).map(|p| p.operation),
            Some(Operation::Write)
        );
        assert!(all.complete(requests, 1).is_none(), "it completed before 2");
        assert!(all.complete(receives, 3).is_some());
        assert!(
            all.complete(receives, 1).is_some(),
            "receives are taken one by one"
        );
        all.clear(64);
        assert!(all.complete(requests, 3).is_none());
    }

    #[test]
    fn receives_of_an_endpoint_with_an_srq_are_found_there() {
        let all = AllOutstanding::new();
        push(&all, Queue::Receives(128), 7, Operation::Receive);
        assert!(all.complete(Queue::Receives(64), 7).is_none());
        all.share(64, 128);
        assert!(all.complete(Queue::Receives(64), 7).is_some());
    }

    #[test]
    fn a_refused_post_leaves_nothing_and_a_queue_has_an_end() {
        let all = AllOutstanding::new();
        let queue = Queue::Requests(64);
        push(&all, queue, 1, Operation::Send);
        all.of(queue).pop(queue);
        assert!(all.complete(queue, 1).is_none());
        (0..=LONGEST as u64).for_each(|cookie| push(&all, queue, cookie, Operation::Send));
        assert!(all.complete(queue, 0).is_none() && all.complete(queue, 1).is_some());
    }
}
