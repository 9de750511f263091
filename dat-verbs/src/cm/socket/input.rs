//! The state of a connection under its lock, and its next input for [`stage`](super::stage), read from the socket.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use dat_arena::Mutex;
use dat_handshake::scm::{Message, Operation, RTU, Reader};

use crate::cm::socket::stage::{Input, Stage};
use crate::cm::socket::stream::{Received, Stream};

/// State of a connection under its lock.
pub(super) struct State {
    pub(super) stage: Stage,
    /// Shared with code that watches or sends without the lock.
    pub(super) stream: Option<Arc<Stream>>,
    /// True if the last read filled its buffer: more data may be there, and no event will report it.
    pub(super) more: bool,
    /// True if a disconnect message came together with RTU.
    pub(super) disconnect_received: bool,
    /// Receives the answer.
    pub(super) reader: Reader,
    /// The bytes of RTU received so far.
    rtu: Vec<u8>,
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
            disconnect_received: false,
            reader: Reader::default(),
            rtu: Vec::with_capacity(RTU.len()),
            peer,
            deadline: None,
        })
    }

    /// Reads the socket and returns the next input; `None` if there is none. `to` is the peer's address on the active side.
    pub(super) fn next_input(&mut self, to: Option<SocketAddr>) -> Option<Input> {
        let stream = self.stream.as_ref()?;
        match self.stage {
            Stage::Connecting { .. } => stream.connect_result().map(|done| match done {
                Ok(()) => Input::TcpConnected,
                Err(e) => connect_failure(to, &e),
            }),
            Stage::Requested { .. } => loop {
                match self.reader.message() {
                    Ok(Some(message)) => {
                        let operation = message.operation;
                        self.peer = Some(message);
                        return Some(match operation {
                            Operation::Request => Input::Malformed,
                            Operation::Reply => Input::Reply,
                            Operation::RejectedByConsumer => Input::Rejected { by_consumer: true },
                            Operation::RejectedByProvider => Input::Rejected { by_consumer: false },
                        });
                    }
                    Ok(None) => match stream.receive(self.reader.spare()) {
                        // A message never fills the buffer.
                        Received::Bytes(n) => self.reader.filled(n),
                        Received::Nothing => return None,
                        Received::End { .. } if !self.reader.is_empty() => {
                            return malformed(
                                stream,
                                "connection closed after an incomplete answer",
                            );
                        }
                        Received::End { reset } => return Some(Input::Closed { reset }),
                    },
                    Err(e) => return malformed(stream, &e.to_string()),
                }
            },
            Stage::Accepted => loop {
                let mut bytes = [0; 64];
                match stream.receive(&mut bytes) {
                    Received::Bytes(n) => {
                        let (rtu, rest) = bytes[..n].split_at(n.min(RTU.len() - self.rtu.len()));
                        self.rtu.extend_from_slice(rtu);
                        self.disconnect_received = !rest.is_empty();
                        self.more = n == bytes.len();
                    }
                    Received::Nothing => return None,
                    Received::End { reset } => return Some(Input::Closed { reset }),
                }
                if self.rtu.len() == RTU.len() {
                    // The version may be any.
                    let confirmed = self.rtu[2..] == RTU[2..];
                    return if confirmed {
                        Some(Input::Confirmed)
                    } else {
                        malformed(stream, "no RTU after our REP")
                    };
                }
            },
            Stage::Up if self.disconnect_received => Some(Input::DisconnectMessage),
            Stage::Up => match stream.receive(&mut [0; 64]) {
                Received::Nothing => None,
                Received::Bytes(_) => Some(Input::DisconnectMessage),
                Received::End { reset } => Some(Input::Closed { reset }),
            },
            Stage::Down => None,
        }
    }
}

fn malformed(stream: &Stream, what: &str) -> Option<Input> {
    tracing::warn!(peer = ?stream.remote(), "a connection fails, the peer broke the protocol: {what}");
    Some(Input::Malformed)
}

/// Maps a failed TCP connection to an input.
pub(super) fn connect_failure(to: Option<SocketAddr>, error: &io::Error) -> Input {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED | libc::ECONNRESET) => Input::TcpRefused,
        number => {
            tracing::warn!(peer = ?to, "cannot connect to the peer: {error}");
            match number {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    Input::LocalFault
                }
                _ => Input::Unreachable,
            }
        }
    }
}
