//! A queue pair over an ordered, reliable pipe of messages. The owner carries frames to the peer and back. This
//! module matches sends with receives, and executes RDMA and atomics under the checks of [`keys`](crate::keys). It completes, flushes and
//! reports in the order that core needs.
//!
//! [`Qp`] does no I/O, [`session`] does it for streams of bytes. [`Qp::connected`] gets a channel whose receiver a thread of the owner
//! drains, and [`Qp::received`] gets what the peer sent. A message without a posted receive waits for one, and with it what comes behind
//! it. There are no windows, SRQs or datagrams.
//!
//! Lock order: a queue pair, the keys, a completion queue, the queue of upcalls.

mod frame;
mod serve;
pub mod session;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use dat_core::error::{Error, Kind as ErrorKind, Result};
use dat_core::event::{DtoOp, DtoStatus};
use dat_core::flags::MemPriv;
use dat_core::iov::LmrTriplet;
use dat_core::transport::{Completion, QpCaps, Request, Token, Transport, WrId};
use dat_core::upcall::{ConnOutcome, Upcalls};
pub use parking_lot::Mutex;

use crate::NO_MEMORY;
use crate::cq::{Cq, Entry};
use crate::keys::Keys;
use crate::memory;
use crate::worker::{Upcall, Worker};
use frame::{Frame, Kind};
pub use frame::{MAX_FRAME, MAX_MESSAGE};

/// Where a queue pair of a transport reports to, and the keys of its process.
#[derive(Debug)]
pub struct Context<T: Transport> {
    /// The IA.
    pub upcalls: Upcalls<T>,
    /// The thread that makes the upcalls.
    pub worker: &'static Worker<T>,
    /// The keys of the process.
    pub keys: &'static Mutex<Keys>,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp<T: Transport> {
    context: Context<T>,
    pz: u32,
    caps: QpCaps,
    recv_cq: Arc<Cq<T>>,
    request_cq: Arc<Cq<T>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    link: Link,
    /// Requests that wait for a fence.
    unsent: VecDeque<Work>,
    /// Requests without an answer.
    sent: VecDeque<Work>,
    receives: VecDeque<(WrId, Vec<LmrTriplet>)>,
    /// Requests of the peer; the first one waits for a receive.
    arrived: VecDeque<Frame>,
}

#[derive(Debug, Default)]
enum Link {
    #[default]
    Idle,
    /// A connection is being made.
    Attempt(Token),
    Connected {
        /// The connection, for upcalls.
        token: Token,
        out: Sender<Vec<u8>>,
    },
    /// The connection has ended; every post is flushed.
    Ended,
}

/// A posted request.
#[derive(Debug)]
struct Work {
    id: WrId,
    request: Frame,
    iov: Vec<LmrTriplet>,
    length: u64,
    signaled: bool,
    fence: bool,
    /// What came back, or a status that is known without an answer.
    answer: Option<Frame>,
}

impl<T: Transport> Qp<T> {
    /// Makes a queue pair of the protection zone `pz`, a number of the owner's choice that the keys know, too.
    #[must_use]
    pub fn new(
        context: Context<T>,
        pz: u32,
        caps: QpCaps,
        recv_cq: &Arc<Cq<T>>,
        request_cq: &Arc<Cq<T>>,
    ) -> Self {
        Self {
            context,
            pz,
            caps,
            recv_cq: Arc::clone(recv_cq),
            request_cq: Arc::clone(request_cq),
            state: Mutex::default(),
        }
    }

    /// Begins the attempt `token`: for [`Transport::connect`] and [`Transport::accept`].
    ///
    /// # Errors
    /// `DAT_INTERNAL_ERROR`: there is or was a connection or attempt.
    pub fn begin(&self, token: Token) -> Result<()> {
        let mut state = self.state.lock();
        if !matches!(state.link, Link::Idle) {
            return Err(Error::of(ErrorKind::InternalError));
        }
        state.link = Link::Attempt(token);
        Ok(())
    }

    /// Ends the attempt `token` with the report that it failed, unless the consumer has ended it.
    pub fn failed(&self, token: Token, outcome: ConnOutcome, private_data: &[u8]) {
        let state = self.state.lock();
        if matches!(state.link, Link::Attempt(attempt) if attempt == token) {
            self.report(token, outcome, private_data);
        }
    }

    /// Ends the attempt `token` with a connection, and reports `Established` with the peer's private data. Each element that is sent
    /// to `out` is a frame; the channel is closed when the connection has ended, behind the last frame. Returns false if the
    /// consumer has ended the attempt: nothing is reported then.
    pub fn connected(&self, token: Token, out: Sender<Vec<u8>>, private_data: &[u8]) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.link, Link::Attempt(attempt) if attempt == token) {
            return false;
        }
        state.link = Link::Connected { token, out };
        self.report(token, ConnOutcome::Established, private_data);
        self.transmit(&mut state);
        true
    }

    /// Takes a frame that came on the connection `token`. A frame that is none breaks the connection.
    pub fn received(&self, token: Token, frame: &[u8]) {
        let mut state = self.state.lock();
        if !state.is_connected(token) {
            return;
        }
        let broken = Some(Kind::Broken);
        let Some(frame) = Frame::decode(frame) else {
            return self.end(&mut state, ConnOutcome::Broken, broken);
        };
        match frame.kind {
            Kind::Goodbye => self.end(&mut state, ConnOutcome::Disconnected, None),
            Kind::Broken => self.end(&mut state, ConnOutcome::Broken, None),
            Kind::Answer => {
                match state.sent.iter_mut().find(|work| work.answer.is_none()) {
                    Some(work) => work.answer = Some(frame),
                    None => self.end(&mut state, ConnOutcome::Broken, broken),
                }
                self.transmit(&mut state);
            }
            _ => {
                state.arrived.push_back(frame);
                self.serve(&mut state);
            }
        }
    }

    /// Takes the end of the pipe of the connection `token`. Without a goodbye the peer was killed: a disconnect, as other devices report it.
    pub fn closed(&self, token: Token) {
        let mut state = self.state.lock();
        if state.is_connected(token) {
            self.end(&mut state, ConnOutcome::Disconnected, None);
        }
    }

    /// Ends the connection or the attempt to make one ([`Transport::disconnect`]).
    pub fn disconnect(&self) {
        let mut state = self.state.lock();
        if !matches!(state.link, Link::Idle) {
            self.end(&mut state, ConnOutcome::Disconnected, Some(Kind::Goodbye));
        }
    }

    /// Returns the queue pair to its first state ([`Transport::reset_qp`]).
    pub fn reset(&self) {
        self.disconnect();
        *self.state.lock() = State::default();
    }

    /// Posts a request ([`Transport::post_send`]).
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`: the queue is full. `DAT_NOT_IMPLEMENTED`: a pipe does not have the operation.
    pub fn post_send(&self, request: &Request<'_, T>) -> Result<()> {
        let frame = Frame::request(request.op).ok_or(Error::of(ErrorKind::NotImplemented))?;
        let mut state = self.state.lock();
        if state.unsent.len() + state.sent.len() >= self.caps.max_request as usize {
            return Err(Error::of(ErrorKind::InsufficientResources));
        }
        state.unsent.try_reserve(1).map_err(|_| NO_MEMORY)?;
        state.unsent.push_back(Work {
            id: request.id,
            request: Frame {
                solicited: request.solicited,
                ..frame
            },
            iov: request.iov.to_vec(),
            length: request.length,
            signaled: request.signaled,
            fence: request.fence,
            answer: None,
        });
        self.transmit(&mut state);
        Ok(())
    }

    /// Posts a receive ([`Transport::post_recv`]).
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`: the queue is full.
    pub fn post_recv(&self, id: WrId, iov: &[LmrTriplet]) -> Result<()> {
        let mut state = self.state.lock();
        if state.receives.len() >= self.caps.max_recv as usize {
            return Err(Error::of(ErrorKind::InsufficientResources));
        }
        state.receives.try_reserve(1).map_err(|_| NO_MEMORY)?;
        state.receives.push_back((id, iov.to_vec()));
        match state.link {
            Link::Ended => self.flush(&mut state),
            _ => self.serve(&mut state),
        }
        Ok(())
    }

    fn report(&self, token: Token, outcome: ConnOutcome, private_data: &[u8]) {
        let upcall = Upcall::connection(self.context.upcalls, token, outcome, private_data);
        self.context.worker.enqueue(upcall);
    }

    /// Sends what may be sent, and completes what has an answer, in the order of the posts.
    fn transmit(&self, state: &mut State) {
        loop {
            self.complete_answered(state);
            match &state.link {
                Link::Idle | Link::Attempt(_) => return,
                Link::Ended => return self.flush(state),
                Link::Connected { .. } => {}
            }
            let fenced = state.sent.iter().any(|work| work.request.reads());
            let failed = state.sent.iter().any(|work| work.answer.is_some());
            match state.unsent.front() {
                Some(work) if !(failed || work.fence && fenced) => {}
                _ => return,
            }
            if let Some(mut work) = state.unsent.pop_front() {
                match self.gather(&mut work) {
                    Ok(()) => state.send(&work.request),
                    Err(status) => work.answer = Some(Frame::answer(status, Vec::new())),
                }
                work.request.data = Vec::new();
                state.sent.push_back(work);
            }
        }
    }

    /// Copies the request's bytes into its frame, or checks the memory that its answer goes to.
    fn gather(&self, work: &mut Work) -> Result<(), DtoStatus> {
        let keys = self.context.keys.lock();
        if work.length > MAX_MESSAGE as u64 {
            return Err(DtoStatus::LocalLength);
        }
        if work.request.reads() {
            keys.segments(self.pz, &work.iov, MemPriv::LOCAL_WRITE)?;
            work.request.length = work.length;
        } else {
            let from = keys.segments(self.pz, &work.iov, MemPriv::LOCAL_READ)?;
            memory::read(&from, &mut work.request.data).map_err(|_| DtoStatus::LocalEp)?;
        }
        Ok(())
    }

    /// Completes the first requests as far as they have answers. A failure ends the connection.
    fn complete_answered(&self, state: &mut State) {
        while let Some(answer) = state.sent.front_mut().and_then(|work| work.answer.take()) {
            let Some(work) = state.sent.pop_front() else {
                return;
            };
            let status = match answer.status {
                DtoStatus::Success if work.request.reads() => self.scatter(&work, &answer.data),
                status => status,
            };
            self.complete(&work, status);
            if status != DtoStatus::Success {
                self.end(state, ConnOutcome::Broken, Some(Kind::Broken));
            }
        }
    }

    /// Writes the bytes of an answer to local memory.
    fn scatter(&self, work: &Work, data: &[u8]) -> DtoStatus {
        let keys = self.context.keys.lock();
        match keys.segments(self.pz, &work.iov, MemPriv::LOCAL_WRITE) {
            Ok(to) if memory::write(data, &to) as u64 == work.length => DtoStatus::Success,
            Ok(_) => DtoStatus::LocalLength,
            Err(status) => status,
        }
    }

    fn complete(&self, work: &Work, status: DtoStatus) {
        if work.signaled || status != DtoStatus::Success {
            let entry = Entry::request(work.id, status, work.length as u32);
            self.request_cq.push(entry);
        }
    }

    fn complete_receive(&self, id: WrId, status: DtoStatus, message: Option<&Frame>) {
        let mut completion = Completion::new(id, status);
        completion.op = DtoOp::Receive;
        if let Some(message) = message {
            completion.length = message.data.len() as u32;
            completion.immediate = message.immediate;
            completion.op = match message.kind {
                Kind::SendImmediate => DtoOp::ReceiveMessageImmediate,
                Kind::WriteImmediate => DtoOp::ReceiveRdmaImmediate,
                _ => DtoOp::Receive,
            };
        }
        self.recv_cq.push(Entry {
            completion,
            solicited: Some(message.is_some_and(|message| message.solicited)),
        });
    }

    /// Ends the connection, if there is one: sends `last`, flushes, and reports the end behind all completions.
    fn end(&self, state: &mut State, how: ConnOutcome, last: Option<Kind>) {
        if let Some(last) = last {
            state.send(&Frame::of(last));
        }
        let link = std::mem::replace(&mut state.link, Link::Ended);
        state.arrived.clear();
        self.flush(state);
        if let Link::Connected { token, .. } = link {
            self.report(token, how, &[]);
        }
    }

    /// Completes all outstanding work as flushed, requests and receives each in the order of their posts.
    fn flush(&self, state: &mut State) {
        let unsent = std::mem::take(&mut state.unsent);
        for work in std::mem::take(&mut state.sent).into_iter().chain(unsent) {
            self.complete(&work, DtoStatus::Flushed);
        }
        for (id, _) in std::mem::take(&mut state.receives) {
            self.complete_receive(id, DtoStatus::Flushed, None);
        }
    }
}

impl State {
    fn is_connected(&self, to: Token) -> bool {
        matches!(self.link, Link::Connected { token, .. } if token == to)
    }

    /// Sends a frame if there is a connection. If the owner has dropped its receiver, the end of the pipe comes by `closed`.
    fn send(&self, frame: &Frame) {
        if let Link::Connected { out, .. } = &self.link {
            let _ = out.send(frame.encode());
        }
    }
}
