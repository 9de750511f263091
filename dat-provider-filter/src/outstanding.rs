//! Posts whose completions the program has not taken yet.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use dat_abi::types::{DatContext, DatHandle};
use dat_abi::v2_0::types::DatDtoCompletionEventData;
use dat_os::mutex::lock;
use tracing::Span;

use crate::filter::{Endpoint, Operation, Post, Queue, RECEIVES};

/// Posts of a queue that are kept. A program that suppresses all its completions would add more for ever.
const LONGEST: usize = 65_536;

/// Number of locks: endpoints of different locks do not wait for each other.
const SHARDS: usize = 32;

/// A post that the inner provider is given or was given.
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
    /// Span from the post to its completion; a disabled one if the filter makes none.
    pub(crate) span: Span,
}

impl Outstanding {
    /// Returns a post that is about to be made.
    pub(crate) fn new(post: &Post, span: Span) -> Self {
        Self {
            cookie: post.cookie,
            operation: post.operation,
            at: Instant::now(),
            segments: Vec::new(),
            span,
        }
    }
}

/// The outstanding posts of some queues, each with its number.
#[derive(Debug, Default)]
struct Shard {
    queues: HashMap<Queue, VecDeque<(Number, Outstanding)>>,
    next: u64,
}

/// Names a post among those of its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number(u64);

impl Shard {
    fn push(&mut self, queue: Queue, post: Outstanding) -> Number {
        let number = Number(self.next);
        self.next += 1;
        let posts = self.queues.entry(queue).or_default();
        if posts.len() == LONGEST {
            posts.pop_front();
        }
        posts.push_back((number, post));
        number
    }

    fn get(&mut self, queue: Queue, number: Number) -> Option<&mut Outstanding> {
        let posts = self.queues.get_mut(&queue)?;
        // Posts that are in progress are the newest.
        let found = posts.iter_mut().rev().find(|(other, _)| *other == number);
        found.map(|(_, post)| post)
    }

    fn remove(&mut self, queue: Queue, number: Number) {
        if let Some(posts) = self.queues.get_mut(&queue)
            && let Some(at) = posts.iter().rposition(|(other, _)| *other == number)
        {
            posts.remove(at);
        }
    }

    fn has(&self, queue: Queue, cookie: DatContext) -> bool {
        let posts = self.queues.get(&queue);
        posts.is_some_and(|posts| posts.iter().any(|(_, post)| post.cookie == cookie))
    }

    /// Takes the oldest post with this cookie. Earlier requests have completed without an event.
    fn take(&mut self, queue: Queue, cookie: DatContext) -> Option<Outstanding> {
        let posts = self.queues.get_mut(&queue)?;
        let at = posts.iter().position(|(_, post)| post.cookie == cookie)?;
        if let Queue::Requests(_) = queue {
            posts.drain(..at);
            return posts.pop_front().map(|(_, post)| post);
        }
        posts.remove(at).map(|(_, post)| post)
    }
}

/// The outstanding posts of a filter.
#[derive(Debug)]
pub(crate) struct AllOutstanding {
    shards: [Mutex<Shard>; SHARDS],
    endpoints: RwLock<HashMap<DatHandle, Endpoint>>,
}

impl AllOutstanding {
    /// Returns an empty one.
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            endpoints: RwLock::default(),
        }
    }

    /// Adds a post that is about to be made, as another thread may take its completion before the post returns. No lock is held during the
    /// post, which may run a consumer's agent.
    pub(crate) fn begin(&self, queue: Queue, post: Outstanding) -> Number {
        self.of(queue).push(queue, post)
    }

    /// Adds the local memory of a post that the inner provider accepted, unless its completion was taken already.
    pub(crate) fn accepted(&self, queue: Queue, number: Number, segments: Vec<(u64, u32)>) {
        if let Some(post) = self.of(queue).get(queue, number) {
            post.segments = segments;
        }
    }

    /// Takes back a post that was refused.
    pub(crate) fn refused(&self, queue: Queue, number: Number) {
        self.of(queue).remove(queue, number);
    }

    /// Locks the posts of some queues, those of `queue` among them.
    fn of(&self, queue: Queue) -> MutexGuard<'_, Shard> {
        let (Queue::Requests(handle) | Queue::Receives(handle)) = queue;
        // Objects are at least a cache line apart.
        let at = (handle >> 6).wrapping_mul(0x9e37_79b9) >> 8;
        self.shards[at % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the queue of the post that a completion of `evd` is of. An endpoint whose receives and requests complete in one EVD is
    /// judged by the operation, and where that queue has no such post, by the other queue: events of DAPL do not name receives.
    pub(crate) fn queue_of(&self, evd: DatHandle, dto: &DatDtoCompletionEventData) -> Queue {
        let ep = dto.ep_handle;
        let endpoints = self
            .endpoints
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let known = endpoints.get(&ep).copied();
        drop(endpoints);
        let receives = Queue::Receives(known.and_then(|known| known.srq).unwrap_or(ep));
        let requests = Queue::Requests(ep);
        match known.map(|known| (known.recv_evd == evd, known.request_evd == evd)) {
            Some((true, false)) => return receives,
            Some((false, true)) => return requests,
            _ => {}
        }
        let (likely, other) = match RECEIVES.contains(&dto.operation) {
            true => (receives, requests),
            false => (requests, receives),
        };
        let has = |queue| self.of(queue).has(queue, dto.user_cookie);
        if !has(likely) && has(other) {
            other
        } else {
            likely
        }
    }

    /// Takes the post of a completion.
    pub(crate) fn complete(&self, queue: Queue, cookie: DatContext) -> Option<Outstanding> {
        self.of(queue).take(queue, cookie)
    }

    /// Records an endpoint that was created.
    pub(crate) fn add(&self, ep: DatHandle, endpoint: Endpoint) {
        let mut endpoints = self
            .endpoints
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        endpoints.insert(ep, endpoint);
    }

    /// Forgets the posts of an endpoint.
    pub(crate) fn clear(&self, ep: DatHandle) {
        for queue in [Queue::Requests(ep), Queue::Receives(ep)] {
            self.of(queue).queues.remove(&queue);
        }
    }

    /// Forgets an endpoint, whose number the next one may get.
    pub(crate) fn remove(&self, ep: DatHandle) {
        self.clear(ep);
        let mut endpoints = self
            .endpoints
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        endpoints.remove(&ep);
    }

    /// Forgets everything.
    pub(crate) fn clear_all(&self) {
        for shard in &self.shards {
            lock(shard).queues.clear();
        }
        self.endpoints
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(all: &AllOutstanding, queue: Queue, cookie: u64, operation: Operation) -> Number {
        let at = Instant::now();
        all.begin(
            queue,
            Outstanding {
                cookie,
                operation,
                at,
                segments: Vec::new(),
                span: Span::none(),
            },
        )
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

    /// Completion of endpoint 64 with cookie 7.
    fn completion(operation: u32) -> DatDtoCompletionEventData {
        DatDtoCompletionEventData {
            ep_handle: 64,
            user_cookie: 7,
            status: 0,
            transfered_length: 0,
            operation,
            rmr_context: 0,
        }
    }

    #[test]
    fn the_evd_tells_receives_from_requests_and_else_the_operation_or_the_cookie() {
        const SEND: u32 = 0;
        const RECEIVE: u32 = 3;
        let all = AllOutstanding::new();
        let (requests, receives) = (Queue::Requests(64), Queue::Receives(64));
        assert_eq!(all.queue_of(1, &completion(SEND)), requests);
        assert_eq!(all.queue_of(1, &completion(RECEIVE)), receives);
        push(&all, receives, 7, Operation::Receive);
        assert_eq!(
            all.queue_of(1, &completion(SEND)),
            receives,
            "it has the cookie"
        );
        let (recv_evd, request_evd, srq) = (1, 2, None);
        all.add(
            64,
            Endpoint {
                recv_evd,
                request_evd,
                srq,
            },
        );
        assert_eq!(all.queue_of(1, &completion(SEND)), receives);
        assert_eq!(all.queue_of(2, &completion(RECEIVE)), requests);
        let srq = Some(128);
        all.add(
            64,
            Endpoint {
                recv_evd,
                request_evd,
                srq,
            },
        );
        assert_eq!(all.queue_of(1, &completion(SEND)), Queue::Receives(128));
        all.remove(64);
        assert_eq!(all.queue_of(1, &completion(RECEIVE)), receives);
    }

    #[test]
    fn a_refused_post_leaves_nothing_and_a_queue_has_an_end() {
        let all = AllOutstanding::new();
        let queue = Queue::Requests(64);
        let refused = push(&all, queue, 1, Operation::Send);
        // Another thread posts meanwhile.
        push(&all, queue, 2, Operation::Send);
        all.refused(queue, refused);
        assert!(all.complete(queue, 1).is_none());
        assert!(all.complete(queue, 2).is_some());
        for cookie in 0..=LONGEST as u64 {
            push(&all, queue, cookie, Operation::Send);
        }
        assert!(all.complete(queue, 0).is_none() && all.complete(queue, 1).is_some());
    }
}
