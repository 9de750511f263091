//! What a context knows of its operations and connections, and how events change it. No calls of a provider are made here.

use std::any::Any;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Weak;
use std::task::Waker;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::pool::Buffer;
use super::watchers::{Ticket, Watchers};
use crate::{
    AsyncEvent, Completion, ConnRequest, ConnectionEvent, DatagramEvent, DtoOp, DtoStatus, EpId,
    Event, Peer,
};

/// Most asynchronous errors that are kept for a program that does not look.
const ERRORS: usize = 64;

/// An operation under way. Its slot's index and generation are the cookie of the post.
#[derive(Debug)]
enum Slot {
    Free,
    /// A future waits.
    Pending(Option<Waker>),
    /// Its future was dropped; the buffer stays until the completion.
    Detached(Box<dyn Any + Send>),
    Done(Completion),
    /// A receive that was posted ahead.
    Receive(Buffer),
    /// A receive of the shared queue with this number.
    Shared(u64, Buffer),
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    link: EpId,
    slot: Slot,
}

/// State of a connection.
#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    Connecting,
    Connected,
    Rejected(Vec<u8>),
    Ended(ConnectionEvent),
}

/// A message that arrived: its buffer, immediate data, and the length of the write with which that came.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) buffer: Buffer,
    pub(super) immediate: Option<u32>,
    pub(super) written: u32,
}

impl Arrived {
    fn new(mut buffer: Buffer, done: Completion) -> Self {
        use DtoOp::{ReceiveMessageImmediate, ReceiveRdmaImmediate};
        // The bytes of a write are not in the buffer.
        let is_write = done.op == ReceiveRdmaImmediate;
        buffer.set_len(if is_write { 0 } else { done.length as usize });
        let has_immediate = is_write || done.op == ReceiveMessageImmediate;
        Self {
            buffer,
            immediate: has_immediate.then_some(done.immediate),
            written: if is_write { done.length } else { 0 },
        }
    }
}

/// What a shared queue received.
#[derive(Debug)]
pub(super) enum Arrival {
    Message(EpId, Arrived),
    Failed(EpId, DtoStatus),
    Ended(EpId, ConnectionEvent),
}

/// A shared receive queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) arrivals: VecDeque<Arrival>,
    /// Buffers of receives that failed.
    pub(super) spent: Vec<Buffer>,
    pub(super) watchers: Watchers,
}

/// The attempt of a datagram endpoint to find a peer, or to accept one. There is one at a time.
#[derive(Debug, Default)]
pub(super) enum Attempt {
    #[default]
    None,
    Pending,
    /// Its future was dropped.
    Abandoned,
    Done(DatagramEvent, Option<Peer>, Vec<u8>),
    /// Its future has the result, or there is none, and ends its turn next.
    Over,
}

/// A connection, or a datagram endpoint.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) phase: Phase,
    /// The connection was established, also if it has ended since.
    pub(super) was_established: bool,
    pub(super) private_data: Vec<u8>,
    /// Address of the peer of a connection.
    pub(super) remote: Option<IpAddr>,
    /// What a receive of the connection failed with: it says more than the end that follows.
    pub(super) fault: Option<DtoStatus>,
    pub(super) arrived: VecDeque<Arrived>,
    /// Requests that can be posted.
    pub(super) credits: u32,
    /// Tasks that wait for a message or the end.
    pub(super) watchers: Watchers,
    /// Tasks that wait for a credit.
    pub(super) posters: Watchers,
    /// The shared queue of its receives.
    pub(super) queue: Option<u64>,
    pub(super) attempt: Attempt,
    /// The connection itself, a [`super::link::Inner`].
    pub(super) owner: Option<Weak<dyn Any + Send + Sync>>,
}

/// The requests at a service point.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) queue: VecDeque<ConnRequest>,
    pub(super) watchers: Watchers,
}

/// State of a context.
#[derive(Debug, Default)]
pub(super) struct State {
    entries: Vec<Entry>,
    free: Vec<u32>,
    pub(super) links: FxHashMap<EpId, Link>,
    pub(super) listeners: FxHashMap<u64, Requests>,
    pub(super) queues: FxHashMap<u64, Queue>,
    queues_made: u64,
    pub(super) errors: VecDeque<Event>,
    pub(super) error_watchers: Watchers,
    /// Tasks that wait for events of other dispatchers.
    pub(super) event_watchers: Watchers,
}

/// What an event leaves to do without the lock: tasks to wake, and values whose drop may call the provider.
#[derive(Debug, Default)]
pub(super) struct Todo {
    pub(super) wake: SmallVec<[Waker; 4]>,
    pub(super) drop: SmallVec<[Box<dyn Any + Send>; 1]>,
}

impl Todo {
    /// Wakes all tasks that wait.
    fn wake_all(&mut self, watchers: &mut Watchers) {
        // A future that polls is none of them, so most often there are none.
        if !watchers.is_empty() {
            self.wake.extend(watchers.drain());
        }
    }

    /// Returns true if nothing is left to do.
    pub(super) fn is_empty(&self) -> bool {
        self.wake.is_empty() && self.drop.is_empty()
    }
}

impl State {
    fn add(&mut self, link: EpId, slot: Slot) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                generation: 0,
                link,
                slot: Slot::Free,
            });
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[index as usize];
        (entry.link, entry.slot) = (link, slot);
        u64::from(entry.generation) << 32 | u64::from(index)
    }

    fn entry(&mut self, cookie: u64) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(cookie as u32 as usize)?;
        (u64::from(entry.generation) == cookie >> 32).then_some(entry)
    }

    /// Frees the slot of `cookie` and returns what it had.
    fn take(&mut self, cookie: u64) -> Slot {
        let Some(entry) = self.entry(cookie) else {
            return Slot::Free;
        };
        entry.generation = entry.generation.wrapping_add(1);
        let slot = std::mem::replace(&mut entry.slot, Slot::Free);
        self.free.push(cookie as u32);
        slot
    }

    /// Takes a credit of a connection for a request, and returns its cookie. Otherwise `waker` is woken when there is one. `former` gets the
    /// waker before it, as in [`State::poll`].
    pub(super) fn begin(
        &mut self,
        id: EpId,
        ticket: &mut Ticket,
        waker: &Waker,
        former: &mut Option<Waker>,
    ) -> Option<u64> {
        let link = self.links.get_mut(&id)?;
        if link.credits == 0 {
            *former = link.posters.watch(ticket, waker);
            return None;
        }
        link.credits -= 1;
        *former = link.posters.leave(&std::mem::take(ticket));
        Some(self.add(id, Slot::Pending(Some(waker.clone()))))
    }

    /// Takes back an operation whose post was refused. Its credit is for those that found none meanwhile.
    pub(super) fn abandon(&mut self, id: EpId, cookie: u64) -> Todo {
        let mut todo = Todo::default();
        todo.drop.push(Box::new(self.take(cookie)));
        if let Some(link) = self.links.get_mut(&id) {
            link.credits += 1;
            todo.wake_all(&mut link.posters);
        }
        todo
    }

    /// Adds a receive that is posted next.
    pub(super) fn add_receive(&mut self, id: EpId, buffer: Buffer) -> u64 {
        self.add(id, Slot::Receive(buffer))
    }

    /// Adds a receive of a shared queue that is posted next.
    pub(super) fn add_shared_receive(&mut self, queue: u64, buffer: Buffer) -> u64 {
        self.add(EpId::NONE, Slot::Shared(queue, buffer))
    }

    /// Adds a shared queue.
    pub(super) fn add_queue(&mut self) -> u64 {
        self.queues_made += 1;
        self.queues.insert(self.queues_made, Queue::default());
        self.queues_made
    }

    /// Removes a shared queue, which was freed, with its receives.
    pub(super) fn remove_queue(&mut self, id: u64) -> Todo {
        let mut todo = Todo::default();
        self.remove_slots(
            |entry| matches!(entry.slot, Slot::Shared(of, _) if of == id),
            &mut todo,
        );
        if let Some(queue) = self.queues.remove(&id) {
            todo.drop.push(Box::new((queue.arrivals, queue.spent)));
        }
        todo
    }

    /// Returns the buffer of a receive, for the post.
    pub(super) fn receive(&self, cookie: u64) -> Option<&Buffer> {
        match &self.entries.get(cookie as u32 as usize)?.slot {
            Slot::Receive(buffer) | Slot::Shared(_, buffer) => Some(buffer),
            _ => None,
        }
    }

    /// Removes a receive whose post was refused.
    pub(super) fn remove_receive(&mut self, cookie: u64) -> Option<Buffer> {
        match self.take(cookie) {
            Slot::Receive(buffer) | Slot::Shared(_, buffer) => Some(buffer),
            _ => None,
        }
    }

    /// Takes the completion of an operation, if it is there.
    pub(super) fn completed(&mut self, cookie: u64) -> Option<Completion> {
        let entry = self.entry(cookie)?;
        let Slot::Done(done) = entry.slot else {
            return None;
        };
        self.take(cookie);
        Some(done)
    }

    /// Returns the completion of an operation; otherwise `waker` is woken with it. `former` gets the waker before it, which the caller drops
    /// without the lock: the drop of a waker may be that of a task, and of its operations.
    pub(super) fn poll(
        &mut self,
        cookie: u64,
        waker: &Waker,
        former: &mut Option<Waker>,
    ) -> Option<Completion> {
        if let Slot::Pending(waiting) = &mut self.entry(cookie)?.slot {
            if !waiting.as_ref().is_some_and(|w| w.will_wake(waker)) {
                *former = waiting.replace(waker.clone());
            }
            return None;
        }
        self.completed(cookie)
    }

    /// The future of an operation is dropped: keeps its buffer if the operation goes on. Returns what the caller drops without the lock.
    pub(super) fn detach(
        &mut self,
        cookie: u64,
        keep: Box<dyn Any + Send>,
    ) -> (Option<Box<dyn Any + Send>>, Option<Waker>) {
        match self.entry(cookie).map(|entry| &mut entry.slot) {
            Some(slot @ Slot::Pending(_)) => match std::mem::replace(slot, Slot::Detached(keep)) {
                Slot::Pending(waker) => (None, waker),
                _ => (None, None),
            },
            Some(_) => {
                self.take(cookie);
                (Some(keep), None)
            }
            None => (Some(keep), None),
        }
    }

    /// Removes a connection, whose endpoint was freed, with its operations.
    pub(super) fn remove_link(&mut self, id: EpId) -> Todo {
        let mut todo = Todo::default();
        self.remove_slots(
            |entry| entry.link == id && !matches!(entry.slot, Slot::Free | Slot::Shared(..)),
            &mut todo,
        );
        if let Some(mut link) = self.links.remove(&id) {
            todo.wake_all(&mut link.watchers);
            todo.wake_all(&mut link.posters);
            todo.drop.push(Box::new(link.arrived));
        }
        todo
    }

    fn remove_slots(&mut self, is_gone: impl Fn(&Entry) -> bool, todo: &mut Todo) {
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            if !is_gone(entry) {
                continue;
            }
            let cookie = u64::from(entry.generation) << 32 | index as u64;
            match self.take(cookie) {
                Slot::Pending(waker) => todo.wake.extend(waker),
                other => todo.drop.push(Box::new(other)),
            }
        }
    }

    /// Changes the state by an event.
    pub(super) fn event(&mut self, event: Event, todo: &mut Todo) {
        match event {
            Event::Completion(done) => self.complete(done, todo),
            Event::Request(request) => match self.listeners.get_mut(&request.conn_qual()) {
                Some(requests) => {
                    requests.queue.push_back(request);
                    todo.wake_all(&mut requests.watchers);
                }
                // The listener was dropped: it is rejected.
                None => todo.drop.push(Box::new(request)),
            },
            Event::Established { ep, private_data } => {
                if let Some(link) = self.links.get_mut(&ep) {
                    link.was_established = true;
                }
                self.change(ep, Phase::Connected, Some(private_data), todo);
            }
            Event::PeerRejected { ep, private_data } => {
                self.change(ep, Phase::Rejected(private_data), None, todo);
            }
            Event::Ended { ep, how } => {
                self.change(ep, Phase::Ended(how), None, todo);
                self.arrive(ep, Arrival::Ended(ep, how), todo);
            }
            Event::Datagram {
                ep,
                how,
                peer,
                private_data,
            } => self.attempted(ep, Attempt::Done(how, peer, private_data), todo),
            Event::Async {
                number: AsyncEvent::EpBroken,
                ep,
                ..
            } if self.is_on_queue(ep) => {
                tracing::debug!(%ep, "the endpoint takes no more receives of its shared queue");
            }
            error @ Event::Async { .. } => {
                tracing::warn!(?error, "an asynchronous error of the adapter");
                if self.errors.len() < ERRORS {
                    self.errors.push_back(error);
                }
                todo.wake_all(&mut self.error_watchers);
            }
            _ => {}
        }
    }

    /// Returns whether an endpoint has its receives from a shared queue, as far as that is known: a connection that was dropped is not.
    /// The provider reports each of their ends, which is no error.
    fn is_on_queue(&self, id: EpId) -> bool {
        match self.links.get(&id) {
            Some(link) => link.queue.is_some(),
            None => self.queues_made > 0,
        }
    }

    fn change(&mut self, id: EpId, phase: Phase, data: Option<Vec<u8>>, todo: &mut Todo) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.phase = phase;
        if let Some(data) = data {
            link.private_data = data;
        }
        todo.wake_all(&mut link.watchers);
    }

    /// Gives the shared queue of an endpoint what arrived.
    fn arrive(&mut self, id: EpId, arrival: Arrival, todo: &mut Todo) {
        let queue = self.links.get(&id).and_then(|link| link.queue);
        if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(&queue)) {
            queue.arrivals.push_back(arrival);
            todo.wake_all(&mut queue.watchers);
        }
    }

    fn attempted(&mut self, id: EpId, done: Attempt, todo: &mut Todo) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let done = match link.attempt {
            Attempt::Pending => std::mem::replace(&mut link.attempt, done),
            Attempt::Abandoned => {
                link.attempt = Attempt::None;
                done
            }
            _ => done,
        };
        todo.drop.push(Box::new(done));
        todo.wake_all(&mut link.watchers);
    }

    fn complete(&mut self, done: Completion, todo: &mut Todo) {
        let Some(entry) = self.entry(done.cookie) else {
            return;
        };
        let id = entry.link;
        match &mut entry.slot {
            Slot::Receive(_) => {
                let received = self.take(done.cookie);
                self.receive_done(id, done, received, todo);
                return;
            }
            Slot::Shared(queue, _) => {
                let queue = *queue;
                let received = self.take(done.cookie);
                self.shared_receive_done(queue, done, received, todo);
                return;
            }
            Slot::Pending(waker) => {
                todo.wake.extend(waker.take());
                entry.slot = Slot::Done(done);
            }
            _ => {
                if let Slot::Detached(buffer) = self.take(done.cookie) {
                    todo.drop.push(buffer);
                }
            }
        }
        if let Some(link) = self.links.get_mut(&id) {
            link.credits += 1;
            // All of them: the first may have been cancelled.
            todo.wake_all(&mut link.posters);
        }
    }

    fn receive_done(&mut self, id: EpId, done: Completion, slot: Slot, todo: &mut Todo) {
        let Slot::Receive(buffer) = slot else {
            return;
        };
        match self.links.get_mut(&id) {
            Some(link) if done.status == DtoStatus::Success => {
                link.arrived.push_back(Arrived::new(buffer, done));
                todo.wake_all(&mut link.watchers);
            }
            link => {
                if let Some(link) = link
                    && done.status != DtoStatus::Flushed
                {
                    link.fault = Some(done.status);
                }
                todo.drop.push(Box::new(buffer));
            }
        }
    }

    fn shared_receive_done(&mut self, queue: u64, done: Completion, slot: Slot, todo: &mut Todo) {
        let Slot::Shared(_, buffer) = slot else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&queue) else {
            todo.drop.push(Box::new(buffer));
            return;
        };
        if done.status == DtoStatus::Success {
            let arrived = Arrived::new(buffer, done);
            queue.arrivals.push_back(Arrival::Message(done.ep, arrived));
        } else {
            queue.spent.push(buffer);
            if done.status != DtoStatus::Flushed {
                let failed = Arrival::Failed(done.ep, done.status);
                queue.arrivals.push_back(failed);
            }
        }
        todo.wake_all(&mut queue.watchers);
    }

    /// Returns the number of slots, for tests of growth.
    pub(super) fn slots(&self) -> usize {
        self.entries.len()
    }
}
