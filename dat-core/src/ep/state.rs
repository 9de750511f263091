//! State machine of an endpoint: the effect of each call and each report of the transport in each state, after the
//! 1.2 manual pages (dat_ep_disconnect, dat_ep_free and dat_cr_accept above all).
//!
//! Only [`step`] decides a next state. A report of the transport that does not fit the state is ignored: no
//! transition, no event.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result, Subtype};
use crate::event::ConnectionEvent;
use crate::upcall::ConnOutcome;

/// `DAT_EP_STATE` with its numbers. The states of unconfigured endpoints and of multipathing do not occur.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u32)]
pub enum EpState {
    /// No connection and no attempt.
    #[default]
    Unconnected = 0,
    /// The endpoint belongs to a reserved service point.
    Reserved = 2,
    /// A request arrived at the endpoint's reserved service point.
    PassiveConnectionPending = 4,
    /// dat_ep_connect was called.
    ActiveConnectionPending = 6,
    /// The provider made the endpoint for a request at a public service point.
    TentativeConnectionPending = 7,
    /// The connection is established.
    Connected = 9,
    /// The connection ends gracefully once its requests are complete.
    DisconnectPending = 10,
    /// The connection, or the attempt, has ended.
    Disconnected = 11,
    /// dat_cr_accept was called.
    CompletionPending = 12,
}

use EpState::{
    ActiveConnectionPending, CompletionPending, Connected, DisconnectPending, Disconnected,
    PassiveConnectionPending, Reserved, TentativeConnectionPending, Unconnected,
};

impl EpState {
    /// Every state.
    pub const ALL: [Self; 9] = [
        Unconnected,
        Reserved,
        PassiveConnectionPending,
        ActiveConnectionPending,
        TentativeConnectionPending,
        Connected,
        DisconnectPending,
        Disconnected,
        CompletionPending,
    ];

    /// Returns the state with that number, if there is one.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Unconnected,
            2 => Reserved,
            4 => PassiveConnectionPending,
            6 => ActiveConnectionPending,
            7 => TentativeConnectionPending,
            9 => Connected,
            10 => DisconnectPending,
            11 => Disconnected,
            12 => CompletionPending,
            _ => return None,
        })
    }

    /// Returns true during an attempt to connect, active or in answer to a request.
    #[must_use]
    pub const fn is_attempt(self) -> bool {
        matches!(self, ActiveConnectionPending | CompletionPending)
    }

    /// Returns the specification's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Unconnected => "DAT_EP_STATE_UNCONNECTED",
            Reserved => "DAT_EP_STATE_RESERVED",
            PassiveConnectionPending => "DAT_EP_STATE_PASSIVE_CONNECTION_PENDING",
            ActiveConnectionPending => "DAT_EP_STATE_ACTIVE_CONNECTION_PENDING",
            TentativeConnectionPending => "DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING",
            Connected => "DAT_EP_STATE_CONNECTED",
            DisconnectPending => "DAT_EP_STATE_DISCONNECT_PENDING",
            Disconnected => "DAT_EP_STATE_DISCONNECTED",
            CompletionPending => "DAT_EP_STATE_COMPLETION_PENDING",
        }
    }

    /// Returns `DAT_INVALID_STATE` with this state's subtype.
    #[must_use]
    pub const fn refuse(self) -> Error {
        Error::state(match self {
            Unconnected => Subtype::InvalidStateEpUnconnected,
            Reserved => Subtype::InvalidStateEpReserved,
            PassiveConnectionPending => Subtype::InvalidStateEpPassconnpending,
            ActiveConnectionPending => Subtype::InvalidStateEpActconnpending,
            TentativeConnectionPending => Subtype::InvalidStateEpTentconnpending,
            Connected => Subtype::InvalidStateEpConnected,
            DisconnectPending => Subtype::InvalidStateEpDiscpending,
            Disconnected => Subtype::InvalidStateEpDisconnected,
            CompletionPending => Subtype::InvalidStateEpComplpending,
        })
    }
}

impl fmt::Display for EpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Call or report that may change the state of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// dat_ep_connect, dat_ep_dup_connect.
    Connect,
    /// dat_rsp_create with this endpoint.
    Reserve,
    /// dat_rsp_free.
    Unreserve,
    /// A request arrived at the endpoint's reserved service point.
    RequestArrived,
    /// The request that arrived cannot be announced, and is refused.
    Unannounced,
    /// The provider made the endpoint for a request at a public service point.
    Offer,
    /// dat_cr_accept with this endpoint, which the consumer gives.
    Accept,
    /// dat_cr_accept of the request that this endpoint belongs to.
    AcceptOwn,
    /// dat_cr_reject of the request that this endpoint belongs to, or withdrawal of that request.
    Reject,
    /// The transport refused at once to connect or to accept: the call fails without an effect.
    Refused,
    /// dat_ep_disconnect, `DAT_CLOSE_ABRUPT_FLAG`.
    DisconnectAbrupt,
    /// dat_ep_disconnect, `DAT_CLOSE_GRACEFUL_FLAG`.
    DisconnectGraceful,
    /// Every outstanding request is complete.
    Drained,
    /// dat_ep_reset.
    Reset,
    /// dat_ep_free.
    Free,
    /// Abrupt close of the IA: frees the endpoint in any state.
    Destroy,
    /// Outcome that the transport reports for the connection.
    Transport(ConnOutcome),
    /// The timeout of dat_ep_connect expired.
    TimedOut,
    /// A message of the peer was received during an attempt.
    MessageReceived,
    /// dat_ep_connect of a datagram endpoint; several lookups may run at a time.
    Resolve,
    /// dat_cr_accept of a datagram request, with an endpoint that the consumer gives.
    AcceptDatagram,
    /// dat_cr_accept of the datagram request that this endpoint belongs to.
    AcceptOwnDatagram,
    /// Report of the transport that a peer of a datagram endpoint is found.
    Resolved,
}

impl Input {
    /// Every input.
    pub const ALL: [Self; 29] = [
        Self::Connect,
        Self::Reserve,
        Self::Unreserve,
        Self::RequestArrived,
        Self::Unannounced,
        Self::Offer,
        Self::Accept,
        Self::AcceptOwn,
        Self::Reject,
        Self::Refused,
        Self::DisconnectAbrupt,
        Self::DisconnectGraceful,
        Self::Drained,
        Self::Reset,
        Self::Free,
        Self::Destroy,
        Self::Transport(ConnOutcome::Established),
        Self::Transport(ConnOutcome::PeerRejected),
        Self::Transport(ConnOutcome::NonPeerRejected),
        Self::Transport(ConnOutcome::Unreachable),
        Self::TimedOut,
        Self::MessageReceived,
        Self::Transport(ConnOutcome::AcceptError),
        Self::Transport(ConnOutcome::Disconnected),
        Self::Transport(ConnOutcome::Broken),
        Self::Resolve,
        Self::AcceptDatagram,
        Self::AcceptOwnDatagram,
        Self::Resolved,
    ];
}

/// Action that the caller of [`step`] must take after it stored the new state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Effect {
    /// No action.
    #[default]
    None,
    /// Have the transport end the connection or the attempt, so that outstanding work is flushed.
    Teardown,
    /// Wait until the outstanding requests are complete, then apply [`Input::Drained`].
    AwaitLastRequest,
    /// Reset the queue pair.
    ResetQueuePair,
}

/// Transition of the state machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// State after the transition.
    pub next: EpState,
    /// Event for the endpoint's connect EVD.
    pub event: Option<ConnectionEvent>,
    /// Action that the caller must take.
    pub effect: Effect,
}

const fn to(next: EpState) -> Step {
    Step {
        next,
        event: None,
        effect: Effect::None,
    }
}

const fn end(event: ConnectionEvent) -> Step {
    Step {
        next: Disconnected,
        event: Some(event),
        effect: Effect::Teardown,
    }
}

/// Returns the transition that `input` causes in `state`.
///
/// # Errors
/// `DAT_INVALID_STATE` with the state's subtype for a call that the state forbids. Reports of the transport never
/// fail.
pub const fn step(state: EpState, input: Input) -> Result<Step> {
    use ConnOutcome as O;
    use ConnectionEvent as E;
    Ok(match (input, state) {
        (Input::Connect, Unconnected) => to(ActiveConnectionPending),
        (Input::Reserve, Unconnected) => to(Reserved),
        (Input::Offer, Unconnected) => to(TentativeConnectionPending),
        (Input::Accept, Unconnected)
        | (Input::AcceptOwn, PassiveConnectionPending | TentativeConnectionPending) => {
            to(CompletionPending)
        }
        (Input::Resolve | Input::AcceptDatagram, Unconnected | Connected) => to(state),
        (Input::AcceptOwnDatagram, PassiveConnectionPending | TentativeConnectionPending) => {
            to(Unconnected)
        }
        (Input::DisconnectAbrupt, Connected | DisconnectPending)
        | (
            Input::DisconnectAbrupt | Input::DisconnectGraceful,
            ActiveConnectionPending | CompletionPending,
        ) => end(E::Disconnected),
        (Input::DisconnectGraceful, Connected) => Step {
            next: DisconnectPending,
            event: None,
            effect: Effect::AwaitLastRequest,
        },
        (Input::DisconnectGraceful, DisconnectPending)
        | (Input::DisconnectAbrupt | Input::DisconnectGraceful, Disconnected)
        | (Input::Reset, Unconnected) => to(state),
        (Input::Reset, Disconnected) => Step {
            next: Unconnected,
            event: None,
            effect: Effect::ResetQueuePair,
        },
        (Input::Free, Unconnected | Disconnected) => to(Unconnected),
        (
            Input::Free,
            ActiveConnectionPending | CompletionPending | Connected | DisconnectPending,
        )
        | (Input::Destroy, _) => Step {
            next: Unconnected,
            event: None,
            effect: Effect::Teardown,
        },
        (
            Input::Connect
            | Input::Reserve
            | Input::Offer
            | Input::Accept
            | Input::AcceptOwn
            | Input::DisconnectAbrupt
            | Input::DisconnectGraceful
            | Input::Reset
            | Input::Free
            | Input::Resolve
            | Input::AcceptDatagram
            | Input::AcceptOwnDatagram,
            _,
        ) => return Err(state.refuse()),

        (Input::Unreserve, Reserved)
        | (Input::Reject, PassiveConnectionPending | TentativeConnectionPending)
        | (Input::Refused, ActiveConnectionPending | CompletionPending) => to(Unconnected),
        (Input::RequestArrived, Reserved) => to(PassiveConnectionPending),
        (Input::Unannounced, PassiveConnectionPending) => to(Reserved),
        (Input::Drained, DisconnectPending) => end(E::Disconnected),

        // Only a connected peer sends.
        (Input::Transport(O::Established), ActiveConnectionPending | CompletionPending)
        | (Input::MessageReceived, CompletionPending) => Step {
            next: Connected,
            event: Some(E::Established),
            effect: Effect::None,
        },
        (Input::Resolved, Unconnected) => to(Connected),
        (Input::Transport(O::PeerRejected), ActiveConnectionPending) => end(E::PeerRejected),
        (Input::Transport(O::Unreachable), ActiveConnectionPending) => end(E::Unreachable),
        (Input::TimedOut, ActiveConnectionPending) => end(E::TimedOut),
        // "All reasons of not establishing the connection, except timeout, remote host not reachable,
        // and remote peer reject" (dat_ep_connect).
        (
            Input::Transport(O::NonPeerRejected | O::AcceptError | O::Disconnected | O::Broken),
            ActiveConnectionPending,
        ) => end(E::NonPeerRejected),
        // "Active side timeout expiration, transport error, or any other reason" (dat_cr_accept).
        (
            Input::TimedOut
            | Input::Transport(
                O::PeerRejected
                | O::NonPeerRejected
                | O::Unreachable
                | O::AcceptError
                | O::Disconnected
                | O::Broken,
            ),
            CompletionPending,
        ) => end(E::AcceptCompletionError),
        // "All outstanding and in-progress request DTOs and RMR Binds must try to be completed successfully first" (dat_ep_disconnect):
        // one that fails has tried. Programs for DAPL wait for DISCONNECTED alone once they have asked for it.
        (Input::Transport(O::Disconnected), Connected | DisconnectPending)
        | (Input::Transport(O::Broken | O::AcceptError), DisconnectPending) => end(E::Disconnected),
        // The accept may fail after a message has implied the connection.
        (Input::Transport(O::Broken | O::AcceptError), Connected) => end(E::Broken),
        _ => to(state),
    })
}

/// State of an endpoint, stored as its number. [`StateCell::apply`] is the only writer, and stores only what [`step`]
/// returns.
#[derive(Debug, Default)]
pub(super) struct StateCell(AtomicU32);

impl StateCell {
    /// Returns the state.
    #[inline(always)]
    pub(super) fn get(&self) -> EpState {
        EpState::from_number(self.0.load(Ordering::Acquire)).unwrap_or_default()
    }

    /// Returns true if the endpoint is in `state`.
    #[inline(always)]
    pub(super) fn is(&self, state: EpState) -> bool {
        self.0.load(Ordering::Acquire) == state as u32
    }

    /// Returns what [`StateCell::apply`] would do, and changes nothing.
    ///
    /// # Errors
    /// Those of [`step`].
    pub(super) fn preview(&self, input: Input) -> Result<Step> {
        step(self.get(), input)
    }

    /// Takes the transition that `input` makes. The caller holds the lock of the connection side.
    ///
    /// # Errors
    /// Those of [`step`]; the state does not change then.
    pub(super) fn apply(&self, input: Input) -> Result<Step> {
        let step = self.preview(input)?;
        self.0.swap(step.next as u32, Ordering::AcqRel);
        Ok(step)
    }
}

#[cfg(test)]
mod tests;
