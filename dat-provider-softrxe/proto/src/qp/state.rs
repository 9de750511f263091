//! Queue pair states (IBTA 10.3.1) as a pure table.

/// State of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum QpState {
    /// New or reset: accepts receives only, and ignores packets (IBTA's Reset and Init in one).
    #[default]
    Init,
    /// Has a path: receives and answers, but does not send yet.
    ReadyToReceive,
    /// Fully connected.
    ReadyToSend,
    /// Failed or closed: every request is flushed, packets are ignored.
    Error,
}

/// Input that changes the state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpInput {
    /// The path to the peer is set.
    Receive,
    /// The peer is ready.
    Send,
    /// A protocol error, a local error, a disconnect, or a call of the consumer.
    Fail,
    /// A reset.
    Reset,
}

impl QpState {
    /// All states.
    pub const ALL: [Self; 4] = [
        Self::Init,
        Self::ReadyToReceive,
        Self::ReadyToSend,
        Self::Error,
    ];

    /// Returns the state after `input`, or `None` where the input is not legal.
    #[must_use]
    pub const fn step(self, input: QpInput) -> Option<Self> {
        match (self, input) {
            (Self::Init, QpInput::Receive) => Some(Self::ReadyToReceive),
            (Self::ReadyToReceive, QpInput::Send) => Some(Self::ReadyToSend),
            (_, QpInput::Fail) => Some(Self::Error),
            (_, QpInput::Reset) => Some(Self::Init),
            (_, QpInput::Receive | QpInput::Send) => None,
        }
    }

    /// Returns true if the queue pair handles packets.
    #[must_use]
    pub const fn receives(self) -> bool {
        matches!(self, Self::ReadyToReceive | Self::ReadyToSend)
    }

    /// Returns true if the queue pair sends requests.
    #[must_use]
    pub const fn sends(self) -> bool {
        matches!(self, Self::ReadyToSend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_and_input() {
        use QpInput::{Fail, Receive, Reset, Send};
        use QpState::{Error, Init, ReadyToReceive, ReadyToSend};
        let table = [
            (Init, Receive, Some(ReadyToReceive)),
            (Init, Send, None),
            (Init, Fail, Some(Error)),
            (Init, Reset, Some(Init)),
            (ReadyToReceive, Receive, None),
            (ReadyToReceive, Send, Some(ReadyToSend)),
            (ReadyToReceive, Fail, Some(Error)),
            (ReadyToReceive, Reset, Some(Init)),
            (ReadyToSend, Receive, None),
            (ReadyToSend, Send, None),
            (ReadyToSend, Fail, Some(Error)),
            (ReadyToSend, Reset, Some(Init)),
            (Error, Receive, None),
            (Error, Send, None),
            (Error, Fail, Some(Error)),
            (Error, Reset, Some(Init)),
        ];
        for (state, input, want) in table {
            assert_eq!(state.step(input), want, "{state:?} x {input:?}");
        }
        assert_eq!(table.len(), QpState::ALL.len() * 4);
    }
}
