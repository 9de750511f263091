//! What both processes of the demonstration have: an endpoint with its objects, and the messages between them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use dat::{Access, Completion, Ep, Evd, Event, Ia, Region, Remote, Streams};

use crate::Outcome;
use crate::measure::events::described;

/// Time to wait for an event.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Length of the memory that each process opens to the other.
pub(super) const WINDOW: usize = 1 << 20;
/// Length of a message.
pub(super) const MESSAGE: usize = 64;
/// Number of ping-pong rounds.
pub(super) const ROUNDS: usize = 200;
/// Offset of received messages in the message region.
const RECV: usize = 0;
/// Offset of messages to send.
const SEND: usize = MESSAGE;

/// The objects of one process.
pub(super) struct Side {
    pub(super) ep: Ep,
    pub(super) done: Evd,
    pub(super) connections: Evd,
    messages: Region,
    /// Messages that no call has returned yet.
    arrived: RefCell<VecDeque<[u8; MESSAGE]>>,
    pub(super) window: Region,
    pub(super) ia: Ia,
}

impl Side {
    pub(super) fn new(ia: Ia) -> Result<Self, dat::Error> {
        let pz = ia.create_pz()?;
        let done = ia.create_evd(256, Streams::DTO)?;
        let connections = ia.create_evd(16, Streams::CR | Streams::CONNECTION)?;
        let builder = ia
            .endpoint(&pz)
            .recv_evd(&done)
            .request_evd(&done)
            .connect_evd(&connections);
        let ep = builder.max_recv(32).max_requests(64).create()?;
        let messages = pz.allocate(2 * MESSAGE, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
        let window = pz.allocate(WINDOW, Access::ALL)?;
        Ok(Self {
            ep,
            done,
            connections,
            messages,
            arrived: RefCell::default(),
            window,
            ia,
        })
    }

    /// Posts a receive. One is always posted before the peer can send.
    pub(super) fn post_recv(&self) -> Result<(), dat::PostError> {
        self.ep
            .post_recv(&[self.messages.slice(RECV..RECV + MESSAGE)], 1)
    }

    pub(super) fn send(&self, bytes: &[u8]) -> Result<(), dat::PostError> {
        let mut message = [0; MESSAGE];
        message[..bytes.len()].copy_from_slice(bytes);
        self.messages.write(SEND, &message);
        self.ep
            .post_send(&[self.messages.slice(SEND..SEND + MESSAGE)], 2)
    }

    /// Waits for `sends` completions of requests and for one message, and posts the next receive. A message after that one may complete before
    /// our request does: it is the next call's.
    pub(super) fn exchange(&self, sends: usize) -> Result<[u8; MESSAGE], dat::Error> {
        let mut left = sends;
        let mut messages = self.arrived.borrow_mut();
        loop {
            if left == 0
                && let Some(message) = messages.pop_front()
            {
                return Ok(message);
            }
            match self.done.wait_completion(TIMEOUT)? {
                Completion { cookie: 1, .. } => {
                    let mut bytes = [0; MESSAGE];
                    self.messages.read(RECV, &mut bytes);
                    messages.push_back(bytes);
                    self.post_recv()?;
                }
                _ => left -= 1,
            }
        }
    }

    /// Sends the address of our window to the peer and receives the peer's.
    pub(super) fn exchange_windows(&self) -> Result<Remote, dat::Error> {
        self.send(&self.window.remote(0..WINDOW).to_bytes())?;
        let message = self.exchange(1)?;
        let mut bytes = [0; Remote::SIZE];
        bytes.copy_from_slice(&message[..Remote::SIZE]);
        Ok(Remote::from_bytes(bytes))
    }
}

/// Returns bytes that memory does not contain by accident.
pub(super) fn pattern(seed: u8) -> Vec<u8> {
    (0..WINDOW)
        .map(|i| {
            (i as u8)
                .wrapping_mul(31)
                .wrapping_add((i >> 8) as u8)
                .wrapping_add(seed)
        })
        .collect()
}

/// Fails unless `got` begins with `expected`; the error has the offset of the first difference.
pub(super) fn verify(what: &str, got: &[u8], expected: &[u8]) -> Outcome {
    let equal = got.iter().zip(expected).take_while(|(a, b)| a == b).count();
    let Some(byte) = expected.get(equal) else {
        return Ok(());
    };
    let found = got
        .get(equal)
        .map_or_else(|| "missing".to_owned(), |byte| format!("{byte:#04x}"));
    Err(
        format!("{what} differs from what was sent: byte {equal} is {found}, expected {byte:#04x}")
            .into(),
    )
}

/// Returns the error for an event that comes in the place of `awaited`.
pub(super) fn unexpected(awaited: &str, event: &Event) -> Box<dyn std::error::Error> {
    format!("waited for the {awaited}: {}", described(event)).into()
}
