//! The server's side of one connection.

use std::net::IpAddr;
use std::time::Duration;

use dat::{
    Access, Close, CompletionFlags, ConnRequest, ConnectionEvent, DtoStatus, Ep, Evd, Event, Ia,
    Pz, Region, Streams,
};

use crate::measure::events::{Completions, Idle, Next, described};
use crate::measure::interrupt::Interrupt;
use crate::measure::pattern;
use crate::measure::protocol::{
    Answer, CHECKED, ECHO_BUFFERS, FIRST_WRONG, HEAD, Request, SCRATCH, SCRATCH_BYTES, Task,
    buffers,
};
use crate::measure::session::buffer;

/// Time of polling without a message, after which a connection sleeps until the next one.
const POLLING: Duration = Duration::from_secs(1);
/// Time for a client to confirm its connection.
const CONFIRM: Duration = Duration::from_secs(30);
/// Time for the event that says how a connection ended.
const END: Duration = Duration::from_secs(2);
/// Cookies of requests; a receive has the number of its buffer.
const REQUEST: u64 = 1 << 32;
const NONE: CompletionFlags = CompletionFlags::empty();

/// How a connection went.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) client: IpAddr,
    pub(crate) request: Request,
    /// Messages that this side received.
    pub(crate) messages: u64,
    /// Number of the first message that was damaged, counted from 1.
    pub(crate) damaged: Option<u64>,
    /// Why it ended, unless the client closed it.
    pub(crate) fault: Option<String>,
}

/// A connection to a client.
pub(crate) struct Service {
    request: Request,
    ep: Ep,
    done: Completions,
    connections: Evd,
    memory: Region,
    /// Number of buffers behind the head of the memory.
    count: usize,
    scratch: Vec<u8>,
    messages: u64,
    damaged: Option<u64>,
    _pz: Pz,
}

/// Returns the number of buffers, and of receives that are kept posted.
fn layout(request: &Request, most_posts: u32) -> (usize, usize) {
    let size = usize::try_from(request.size).unwrap_or(usize::MAX);
    match request.task {
        Task::Echo => (ECHO_BUFFERS, ECHO_BUFFERS),
        Task::EchoWrite => (1, 1),
        Task::EchoImmediate => (1, ECHO_BUFFERS),
        Task::Memory => (buffers(size, request.depth, request.validate), 1),
        Task::Sink => {
            let count = buffers(size, request.depth, request.validate);
            // The client does not wait for receives: enough are posted for the time in which this side posts them again.
            let receives = request.depth.saturating_mul(4).min(most_posts).max(1) as usize;
            (count, if request.validate { count } else { receives })
        }
    }
}

/// Returns the bytes of memory that a request needs.
pub(crate) fn memory_of(request: &Request) -> usize {
    let size = usize::try_from(request.size).unwrap_or(usize::MAX);
    layout(request, u32::MAX)
        .0
        .saturating_mul(size)
        .saturating_add(HEAD)
}

impl Service {
    /// Creates the objects for a request. Each connection has a protection zone, so that its client reaches its memory only.
    pub(crate) fn new(
        ia: &Ia,
        request: Request,
        interrupt: &Interrupt,
    ) -> Result<Self, dat::Error> {
        let attributes = ia.attributes()?;
        let (count, receives) = layout(&request, attributes.max_posts.min(8192));
        let pz = ia.create_pz()?;
        let queue = u32::try_from(receives + 16).unwrap_or(u32::MAX);
        let done = ia.create_evd(queue, Streams::DTO)?;
        let connections = ia.create_evd(8, Streams::CONNECTION)?;
        let reads = attributes.max_reads.0.min(attributes.max_reads.1);
        let ep = ia
            .endpoint(&pz)
            .recv_evd(&done)
            .request_evd(&done)
            .connect_evd(&connections)
            .max_recv(receives as u32)
            .max_requests(8)
            .max_reads(reads.clamp(1, 16))
            .create()?;
        let bytes = memory_of(&request);
        let all = Access::ALL | Access::REMOTE_ATOMIC;
        // A device without atomics refuses the right.
        let memory = pz
            .allocate(bytes, all)
            .or_else(|_| pz.allocate(bytes, Access::ALL))?;
        let service = Self {
            scratch: vec![0; usize::try_from(request.size).unwrap_or(0)],
            request,
            ep,
            done: Completions {
                evd: done,
                interrupt: interrupt.clone(),
            },
            connections,
            memory,
            count,
            messages: 0,
            damaged: None,
            _pz: pz,
        };
        if request.task == Task::Memory && request.validate {
            service.fill();
        }
        (0..receives).try_for_each(|slot| service.post_receive(slot))?;
        Ok(service)
    }

    /// Fills the buffers for reads: buffer `n`, counted from 1, has message `n`.
    fn fill(&self) {
        let mut bytes = self.scratch.clone();
        for index in 0..self.count {
            pattern::fill(&mut bytes, index as u64 + 1);
            let range = buffer(HEAD, bytes.len(), index);
            self.memory.write(range.start, &bytes);
        }
    }

    fn post_receive(&self, slot: usize) -> Result<(), dat::PostError> {
        let range = match self.request.task {
            Task::Echo | Task::Sink => buffer(HEAD, self.scratch.len(), slot % self.count),
            _ => SCRATCH..SCRATCH + SCRATCH_BYTES,
        };
        self.ep.post_recv(&[self.memory.slice(range)], slot as u64)
    }

    /// Accepts, and serves until the connection ends.
    pub(crate) fn run(mut self, asked: ConnRequest) -> Visit {
        let client = asked.remote();
        let fault = self.serve(asked).err();
        if fault.is_some() {
            // The end is not waited for: the peer may be dead.
            let _ = self.ep.disconnect(Close::Abrupt);
        }
        Visit {
            client,
            request: self.request,
            messages: self.messages,
            damaged: self.damaged,
            fault,
        }
    }

    fn serve(&mut self, asked: ConnRequest) -> Result<(), String> {
        let words = |error: dat::Error| error.to_string();
        let memory = self.memory.remote(0..self.memory.len());
        let answer = Answer::Accepted(memory).to_bytes();
        asked.accept(&self.ep, &answer).map_err(words)?;
        match self.connections.wait(CONFIRM).map_err(words)? {
            Event::Established { .. } => {}
            other => {
                return Err(format!(
                    "the client did not confirm the connection: {}",
                    described(&other)
                ));
            }
        }
        match self.request.task {
            Task::EchoWrite => self.echo_writes(),
            _ => self.messages(),
        }
    }

    /// Serves messages and completions.
    fn messages(&mut self) -> Result<(), String> {
        // No event tells a lender of memory that it is used: a poll would only take the processor from the transport's thread.
        let sleeps = self.request.wait || self.request.task == Task::Memory;
        let mut wait = sleeps;
        loop {
            let limit = if wait { Duration::MAX } else { POLLING };
            let done = match self.done.next(wait, limit) {
                Ok(Next::Completion(done)) => done,
                Ok(Next::Nothing) => {
                    wait = true;
                    continue;
                }
                Ok(Next::Interrupted) => return Err("interrupted".into()),
                Err(error) => return Err(error.to_string()),
            };
            wait = sleeps;
            if done.status != DtoStatus::Success {
                return self.ended(done.op, done.status);
            }
            if let Err(error) = self.completed(done.cookie) {
                return self.refused(error);
            }
        }
    }

    fn completed(&mut self, cookie: u64) -> Result<(), dat::PostError> {
        let size = self.scratch.len();
        match self.request.task {
            Task::Echo if cookie >= REQUEST => self.post_receive((cookie - REQUEST) as usize),
            Task::Echo => {
                self.messages += 1;
                let range = buffer(HEAD, size, cookie as usize);
                self.ep
                    .post_send(&[self.memory.slice(range)], REQUEST + cookie)
            }
            Task::Sink => {
                self.messages += 1;
                if self.request.validate {
                    self.check(cookie as usize);
                }
                self.post_receive(cookie as usize)?;
                // After the post: the client sends the next messages when it has seen the number.
                self.memory.store_u64(CHECKED, self.messages.to_be());
                Ok(())
            }
            Task::EchoImmediate if cookie < REQUEST => {
                self.messages += 1;
                self.post_receive(cookie as usize)?;
                let local = self.memory.slice(HEAD..HEAD + size);
                let value = self.messages as u32;
                self.ep.post_rdma_write_immediate(
                    &[local],
                    self.request.memory,
                    value,
                    REQUEST,
                    NONE,
                )
            }
            Task::EchoImmediate | Task::Memory | Task::EchoWrite => Ok(()),
        }
    }

    /// Compares a received message with the one that is expected.
    fn check(&mut self, slot: usize) {
        let range = buffer(HEAD, self.scratch.len(), slot % self.count);
        self.memory.read(range.start, &mut self.scratch);
        let is_whole = pattern::difference(&self.scratch, self.messages).is_none();
        if !is_whole && self.damaged.is_none() {
            self.damaged = Some(self.messages);
            self.memory.store_u64(FIRST_WRONG, self.messages.to_be());
        }
    }

    /// Writes the buffer back each time its last byte changes.
    fn echo_writes(&mut self) -> Result<(), String> {
        let size = self.scratch.len();
        let (mut idle, mut sleeps) = (Idle::default(), false);
        loop {
            if self.memory.load(HEAD + size - 1) == (self.messages + 1) as u8 {
                self.messages += 1;
                (idle, sleeps) = (Idle::default(), false);
                let local = self.memory.slice(HEAD..HEAD + size);
                let posted = self
                    .ep
                    .post_rdma_write(&[local], self.request.memory, REQUEST, NONE);
                if let Err(error) = posted {
                    return self.refused(error);
                }
            }
            // A sleep of a millisecond, as no event tells of an RDMA Write.
            let limit = Duration::from_millis(1);
            let next = if sleeps {
                self.done.next(true, limit)
            } else {
                self.done.poll().map(|done| match done {
                    Some(done) => Next::Completion(done),
                    None => Next::Nothing,
                })
            };
            match next.map_err(|error| error.to_string())? {
                Next::Completion(done) if done.status != DtoStatus::Success => {
                    return self.ended(done.op, done.status);
                }
                Next::Completion(_) => {}
                Next::Interrupted => return Err("interrupted".into()),
                Next::Nothing => match idle.after_empty_poll(&self.done.interrupt, POLLING) {
                    None => {}
                    Some(Next::Interrupted) => return Err("interrupted".into()),
                    Some(_) => sleeps = true,
                },
            }
        }
    }

    /// A post failed: the connection has ended, or something is wrong.
    fn refused(&self, error: dat::PostError) -> Result<(), String> {
        match error {
            dat::PostError::NotConnected { .. } => self.ended(dat::DtoOp::Send, DtoStatus::Flushed),
            error => Err(error.to_string()),
        }
    }

    /// An operation failed; returns how the connection ended.
    fn ended(&self, op: dat::DtoOp, status: DtoStatus) -> Result<(), String> {
        let how = match self.connections.wait(END) {
            Ok(Event::Ended { how, .. }) => Some(how),
            _ => None,
        };
        match how {
            Some(ConnectionEvent::Disconnected) if status == DtoStatus::Flushed => Ok(()),
            Some(how) if status == DtoStatus::Flushed => {
                Err(dat::Error::Disconnected { how }.to_string())
            }
            _ => Err(dat::Error::Failed { op, status }.to_string()),
        }
    }
}
