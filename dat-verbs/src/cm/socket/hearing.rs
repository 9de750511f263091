//! What a connection knows of its peer: the socket, and what came over it so far.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::cm::socket::stage::{Input, Stage};
use crate::cm::socket::stream::{Stream, Taken};
use crate::cm::socket::wire::{Message, Operation, RTU, Reader};

/// How far a connection is, and with what.
pub(super) struct State {
    pub(super) stage: Stage,
    /// Shared with who watches or sends without the lock.
    pub(super) stream: Option<Arc<Stream>>,
    /// The last read filled its room, so that more may be there; of that nothing is announced.
    pub(super) more: bool,
    /// A farewell came with the word before it.
    pub(super) farewell: bool,
    /// The answer as far as it came.
    pub(super) reader: Reader,
    /// RTU as far as it came.
    word: Vec<u8>,
    /// The peer's REQ, REP or REJ.
    pub(super) peer: Option<Message>,
    pub(super) deadline: Option<Instant>,
}

impl State {
    pub(super) fn new(stage: Stage, stream: Option<Stream>, peer: Option<Message>) -> Mutex<Self> {
        Mutex::new(Self {
            stage,
            stream: stream.map(Arc::new),
            more: false,
            farewell: false,
            reader: Reader::default(),
            word: Vec::with_capacity(RTU.len()),
            peer,
            deadline: None,
        })
    }

    /// What the socket says now; `None` if nothing new.
    pub(super) fn look(&mut self) -> Option<Input> {
        let stream = self.stream.as_ref()?;
        match self.stage {
            Stage::Dialing { .. } => stream.dialed().map(|done| match done {
                Ok(()) => Input::Dialed,
                Err(e) => failed_dial(&e),
            }),
            Stage::Requested { .. } => loop {
                match self.reader.message() {
                    Ok(Some(message)) => {
                        let operation = message.operation;
                        self.peer = Some(message);
                        return Some(match operation {
                            Operation::Request => Input::Nonsense,
                            Operation::Reply => Input::Reply,
                            Operation::RejectedByConsumer => Input::Rejected { by_consumer: true },
                            Operation::RejectedByProvider => Input::Rejected { by_consumer: false },
                        });
                    }
                    Ok(None) => match stream.take(self.reader.room()) {
                        // A message never fills the room.
                        Taken::Some(n) => self.reader.filled(n),
                        Taken::None => return None,
                        Taken::End { .. } if !self.reader.is_empty() => {
                            return nonsense("half an answer, then the end");
                        }
                        Taken::End { reset } => return Some(Input::Closed { reset }),
                    },
                    Err(e) => return nonsense(&e.to_string()),
                }
            },
            Stage::Accepted => loop {
                let mut bytes = [0; 64];
                match stream.take(&mut bytes) {
                    Taken::Some(n) => {
                        let (word, rest) = bytes[..n].split_at(n.min(RTU.len() - self.word.len()));
                        self.word.extend_from_slice(word);
                        self.farewell = !rest.is_empty();
                        self.more = n == bytes.len();
                    }
                    Taken::None => return None,
                    Taken::End { reset } => return Some(Input::Closed { reset }),
                }
                if self.word.len() == RTU.len() {
                    // Any version's.
                    let confirmed = self.word[2..] == RTU[2..];
                    let nonsense = || nonsense("no RTU after our REP");
                    return if confirmed {
                        Some(Input::Confirmed)
                    } else {
                        nonsense()
                    };
                }
            },
            Stage::Up if self.farewell => Some(Input::Farewell),
            Stage::Up => match stream.take(&mut [0; 64]) {
                Taken::None => None,
                Taken::Some(_) => Some(Input::Farewell),
                Taken::End { reset } => Some(Input::Closed { reset }),
            },
            Stage::Down => None,
        }
    }
}

fn nonsense(what: &str) -> Option<Input> {
    tracing::warn!("socket connection manager: {what}");
    Some(Input::Nonsense)
}

/// What it means that TCP did not connect.
pub(super) fn failed_dial(error: &io::Error) -> Input {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED | libc::ECONNRESET) => Input::Refused,
        _ => {
            tracing::warn!("connect: {error}");
            Input::NoWay
        }
    }
}
