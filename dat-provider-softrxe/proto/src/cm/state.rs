//! Connection states (IBTA 12.9) as a pure table.
//!
//! States that a connection would leave at once are missing: an RTU answers a REP, and a DREP a DREQ, in the same call. A
//! message that an [`Action`] sends is kept and repeated until the next state.

/// State of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Active: REQ sent.
    ReqSent,
    /// Active: MRA received, the peer needs more time.
    MraReceived,
    /// Passive: REQ received, waits for the consumer's answer.
    ReqReceived,
    /// Passive: REQ received and MRA sent, waits for the consumer's answer.
    MraSent,
    /// Passive: REP sent.
    RepSent,
    /// Connected.
    Established,
    /// DREQ sent, DREP outstanding.
    DreqSent,
    /// Ended; repeats its last message if the peer missed it.
    TimeWait,
    /// Another engine of the process answers the request; what the peer sends for it here is forwarded.
    PassedOn,
}

/// Input of the state table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// A repeated REQ.
    Req,
    /// An MRA.
    Mra,
    /// A REJ.
    Rej,
    /// A REP.
    Rep,
    /// An RTU.
    Rtu,
    /// A valid packet for the queue pair.
    Data,
    /// A DREQ.
    Dreq,
    /// A DREP.
    Drep,
    /// The consumer accepts.
    Accept,
    /// The consumer refuses.
    Reject,
    /// The consumer disconnects.
    Disconnect,
    /// Another engine of the process answers the request.
    PassOn,
    /// The time of the next repetition has come.
    Timeout,
    /// The repetitions are used up, TimeWait is over, or the peer of a request was silent for too long.
    GiveUp,
}

/// Action that a step requires.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Send the last message again.
    Repeat,
    /// Send an MRA.
    SendMra,
    /// Connect the queue pair.
    ConnectQp,
    /// Send the REP.
    SendRep,
    /// Send an RTU.
    SendRtu,
    /// Send a REJ with the reason of the input.
    SendRej,
    /// Send a REJ with reason timeout.
    SendRejTimeout,
    /// Send a DREQ.
    SendDreq,
    /// Send a DREP.
    SendDrep,
    /// Extend the deadline by the service timeout of the MRA.
    ExtendDeadline,
    /// Move the queue pair to Error.
    FailQp,
    /// Raise `Established`.
    Established,
    /// Raise `Rejected`.
    Rejected,
    /// Raise `TimedOut`.
    TimedOut,
    /// Raise `Disconnected`.
    Disconnected,
    /// Raise `Forwarded`.
    Forward,
}

/// Result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The next state; `None` removes the connection.
    pub next: Option<State>,
    /// Actions, in order.
    pub actions: &'static [Action],
}

impl State {
    /// All states.
    pub const ALL: [Self; 9] = [
        Self::ReqSent,
        Self::MraReceived,
        Self::ReqReceived,
        Self::MraSent,
        Self::RepSent,
        Self::Established,
        Self::DreqSent,
        Self::TimeWait,
        Self::PassedOn,
    ];

    /// Returns the step for `input`; `None` if the state ignores it. A call of the consumer is an error then, a message is
    /// dropped.
    #[must_use]
    pub const fn step(self, input: Input) -> Option<Step> {
        use Action as A;
        use Input as I;
        let (next, actions): (Option<Self>, &'static [A]) = match (self, input) {
            (Self::ReqSent | Self::MraReceived, I::Rep) => (
                Some(Self::Established),
                &[A::ConnectQp, A::SendRtu, A::Established],
            ),
            (Self::ReqSent | Self::MraReceived, I::Mra) => {
                (Some(Self::MraReceived), &[A::ExtendDeadline])
            }
            (Self::ReqSent | Self::MraReceived, I::Rej) => (None, &[A::Rejected]),
            // The peer's REP was lost and it ended the connection.
            (Self::ReqSent | Self::MraReceived, I::Dreq) => {
                (Some(Self::TimeWait), &[A::SendDrep, A::Rejected])
            }
            (Self::ReqSent | Self::MraReceived, I::Timeout) => (Some(Self::ReqSent), &[A::Repeat]),
            (Self::ReqSent | Self::MraReceived, I::GiveUp) => {
                (None, &[A::SendRejTimeout, A::TimedOut])
            }
            (Self::ReqSent | Self::MraReceived, I::Disconnect) => {
                (None, &[A::SendRejTimeout, A::Disconnected])
            }

            (Self::ReqReceived | Self::MraSent, I::Req) => (Some(Self::MraSent), &[A::SendMra]),
            (Self::ReqReceived | Self::MraSent, I::Rej) => (None, &[A::Rejected]),
            (Self::ReqReceived | Self::MraSent, I::Accept) => {
                (Some(Self::RepSent), &[A::ConnectQp, A::SendRep])
            }
            (Self::ReqReceived | Self::MraSent, I::Reject | I::Disconnect) => {
                (Some(Self::TimeWait), &[A::SendRej])
            }
            (Self::ReqReceived | Self::MraSent, I::PassOn) => (Some(Self::PassedOn), &[]),
            (Self::ReqReceived | Self::MraSent, I::GiveUp) => (None, &[A::TimedOut]),

            (Self::RepSent, I::Req | I::Timeout) => (Some(Self::RepSent), &[A::Repeat]),
            (Self::RepSent, I::Mra) => (Some(Self::RepSent), &[A::ExtendDeadline]),
            (Self::RepSent, I::Rtu | I::Data) => (Some(Self::Established), &[A::Established]),
            (Self::RepSent, I::Rej) => (None, &[A::FailQp, A::Rejected]),
            // The peer may be connected since the REP, so this side repeats DREQs until the peer confirms.
            (Self::RepSent, I::GiveUp) => {
                (Some(Self::DreqSent), &[A::FailQp, A::SendDreq, A::TimedOut])
            }
            // The peer was connected: its RTU was lost.
            (Self::RepSent, I::Dreq) => (
                Some(Self::TimeWait),
                &[A::Established, A::SendDrep, A::FailQp, A::Disconnected],
            ),

            (Self::Established, I::Rep) => (Some(Self::Established), &[A::SendRtu]),
            (Self::Established, I::Rej) => (None, &[A::FailQp, A::Disconnected]),
            (Self::Established, I::Dreq) => (
                Some(Self::TimeWait),
                &[A::SendDrep, A::FailQp, A::Disconnected],
            ),
            (Self::Established | Self::RepSent, I::Disconnect) => (
                Some(Self::DreqSent),
                &[A::FailQp, A::SendDreq, A::Disconnected],
            ),

            (Self::DreqSent, I::Drep) => (Some(Self::TimeWait), &[]),
            (Self::DreqSent, I::Dreq) => (Some(Self::TimeWait), &[A::SendDrep]),
            (Self::DreqSent, I::Timeout) => (Some(Self::DreqSent), &[A::Repeat]),
            (Self::DreqSent, I::GiveUp | I::Rej) => (None, &[]),

            (Self::TimeWait, I::Req) => (Some(Self::TimeWait), &[A::Repeat]),
            (Self::TimeWait, I::Dreq) => (Some(Self::TimeWait), &[A::SendDrep]),
            (Self::PassedOn, I::Req) => (Some(Self::PassedOn), &[A::Forward]),
            (Self::PassedOn, I::Rej) => (None, &[A::Forward]),
            (Self::TimeWait | Self::PassedOn, I::GiveUp) => (None, &[]),
            _ => return None,
        };
        Some(Step { next, actions })
    }

    /// Returns true if the peer may repeat its request: it is not answered, or the peer may not have the answer.
    #[must_use]
    pub const fn is_asked(self) -> bool {
        matches!(
            self,
            Self::ReqReceived | Self::MraSent | Self::RepSent | Self::PassedOn
        )
    }

    /// Returns true if the state repeats its last message until an answer arrives.
    #[must_use]
    pub const fn repeats(self) -> bool {
        matches!(
            self,
            Self::ReqSent | Self::MraReceived | Self::RepSent | Self::DreqSent
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUTS: [Input; 14] = [
        Input::Req,
        Input::Mra,
        Input::Rej,
        Input::Rep,
        Input::Rtu,
        Input::Data,
        Input::Dreq,
        Input::Drep,
        Input::Accept,
        Input::Reject,
        Input::Disconnect,
        Input::PassOn,
        Input::Timeout,
        Input::GiveUp,
    ];

    /// One line per state, one column per input of `INPUTS`: R ReqSent, M MraReceived, Q ReqReceived, N MraSent, P RepSent,
    /// E Established, D DreqSent, W TimeWait, F PassedOn, x removed, - ignored.
    const TABLE: [(State, &str); 9] = [
        (State::ReqSent, "-MxE--W---x-Rx"),
        (State::MraReceived, "-MxE--W---x-Rx"),
        (State::ReqReceived, "N-x-----PWWF-x"),
        (State::MraSent, "N-x-----PWWF-x"),
        (State::RepSent, "PPx-EEW---D-PD"),
        (State::Established, "--xE--W---D---"),
        (State::DreqSent, "--x---WW----Dx"),
        (State::TimeWait, "W-----W------x"),
        (State::PassedOn, "F-x----------x"),
    ];

    fn letter(state: State) -> char {
        match state {
            State::ReqSent => 'R',
            State::MraReceived => 'M',
            State::ReqReceived => 'Q',
            State::MraSent => 'N',
            State::RepSent => 'P',
            State::Established => 'E',
            State::DreqSent => 'D',
            State::TimeWait => 'W',
            State::PassedOn => 'F',
        }
    }

    #[test]
    fn every_state_and_input() {
        for (state, row) in TABLE {
            let got: String = INPUTS
                .iter()
                .map(|input| match state.step(*input) {
                    None => '-',
                    Some(step) => step.next.map_or('x', letter),
                })
                .collect();
            assert_eq!(got, row, "{state:?}");
        }
    }

    #[test]
    fn every_end_of_a_live_id_raises_one_event_unless_the_consumer_ends_a_request() {
        let ends = [Action::Rejected, Action::TimedOut, Action::Disconnected];
        // States in which the consumer has a live id and has not disconnected.
        let open = |state| !matches!(state, State::DreqSent | State::TimeWait | State::PassedOn);
        for state in State::ALL {
            for input in INPUTS {
                let Some(step) = state.step(input) else {
                    continue;
                };
                let raised = step.actions.iter().filter(|a| ends.contains(a)).count();
                let over = open(state) && !step.next.is_some_and(open);
                let refused_by_consumer =
                    step.actions.contains(&Action::SendRej) || input == Input::PassOn;
                assert_eq!(
                    raised,
                    usize::from(over && !refused_by_consumer),
                    "{state:?} x {input:?}"
                );
            }
        }
    }

    #[test]
    fn a_connected_queue_pair_is_broken_before_its_connection_is_over() {
        for state in [State::RepSent, State::Established] {
            for input in INPUTS {
                let Some(step) = state.step(input) else {
                    continue;
                };
                let over = !matches!(step.next, Some(State::RepSent | State::Established));
                assert_eq!(step.actions.contains(&Action::FailQp), over);
            }
        }
    }
}
