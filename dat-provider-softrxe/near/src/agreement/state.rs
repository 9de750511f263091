//! Decides which of two processes calls, and what a call leads to. Pure: the caller acts and reports.
//!
//! What has one outcome in every state is not here. An answer to the own call makes the channel, the end of the peer ends it,
//! and an agreement that takes too long is given up.

use super::End;
use super::hello::Reason;

/// State of the channel to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum State {
    /// The channel does not exist.
    #[default]
    Down,
    /// This process called the peer and waits for the answer.
    Dialling,
    /// Both called, the peer's call goes first, and it is on its way.
    Answering,
    /// The channel exists.
    Up,
}

/// Which call goes on if both processes dial at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precedence {
    /// The call of this process.
    Own,
    /// The call of the peer.
    Peer,
}

impl Precedence {
    /// Returns the precedence between two engines: the one with the smaller address and slot goes first.
    #[must_use]
    pub fn between(own: &End, peer: &End) -> Self {
        if own < peer { Self::Own } else { Self::Peer }
    }
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A connection needs a channel.
    Wanted,
    /// The peer calls.
    Called,
    /// The peer refused the own call, because its own goes first.
    Crossed,
    /// The own call failed.
    Failed,
}

/// What the caller does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Calls the peer.
    Dial,
    /// Drops the own call, if there is one, and answers the peer's.
    Answer,
    /// Refuses the peer's call.
    Refuse(Reason),
    /// Drops the own call, and does without a channel for a while.
    GiveUp,
}

impl State {
    /// Returns the next state, and what to do.
    #[must_use]
    pub const fn step(self, event: Event, precedence: Precedence) -> (Self, Action) {
        match (self, event) {
            (Self::Down, Event::Wanted) => (Self::Dialling, Action::Dial),
            (Self::Down | Self::Answering, Event::Called) => (Self::Up, Action::Answer),
            (Self::Dialling, Event::Called) => match precedence {
                Precedence::Own => (self, Action::Refuse(Reason::Crossed)),
                Precedence::Peer => (Self::Up, Action::Answer),
            },
            (Self::Dialling, Event::Crossed) => match precedence {
                Precedence::Own => (Self::Down, Action::GiveUp),
                Precedence::Peer => (Self::Answering, Action::Nothing),
            },
            (Self::Dialling, Event::Failed) => (Self::Down, Action::GiveUp),
            (Self::Up, Event::Called) => (self, Action::Refuse(Reason::Busy)),
            // Reports on a call that was dropped, or that came too late.
            _ => (self, Action::Nothing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 4] = [Event::Wanted, Event::Called, Event::Crossed, Event::Failed];

    /// Returns the row of a state: what each event leads to.
    fn row(state: State, precedence: Precedence) -> [(State, Action); 4] {
        EVENTS.map(|event| state.step(event, precedence))
    }

    #[test]
    fn the_whole_table() {
        use State::{Answering, Dialling, Down, Up};
        let (nothing, answer, give_up) = (Action::Nothing, Action::Answer, Action::GiveUp);
        let refuse = Action::Refuse;
        for precedence in [Precedence::Own, Precedence::Peer] {
            let none = (Down, nothing);
            assert_eq!(
                row(Down, precedence),
                [(Dialling, Action::Dial), (Up, answer), none, none]
            );
            let wait = (Answering, nothing);
            assert_eq!(row(Answering, precedence), [wait, (Up, answer), wait, wait]);
            let (stay, busy) = ((Up, nothing), (Up, refuse(Reason::Busy)));
            assert_eq!(row(Up, precedence), [stay, busy, stay, stay]);
        }
        let (stay, fail) = ((Dialling, nothing), (Down, give_up));
        let crossed = (Dialling, refuse(Reason::Crossed));
        assert_eq!(row(Dialling, Precedence::Own), [stay, crossed, fail, fail]);
        assert_eq!(
            row(Dialling, Precedence::Peer),
            [stay, (Up, answer), (Answering, nothing), fail]
        );
    }

    #[test]
    fn exactly_one_of_two_engines_goes_first() {
        let end = |ip: &str, slot, guid| End {
            ip: ip.parse().unwrap(),
            slot,
            guid,
        };
        let ends = [
            end("127.0.0.1", 1, 9),
            end("127.0.0.1", 2, 8),
            end("127.0.0.2", 1, 7),
            end("::1", 0, 1),
        ];
        for (index, one) in ends.iter().enumerate() {
            for other in &ends[index + 1..] {
                assert_eq!(Precedence::between(one, other), Precedence::Own);
                assert_eq!(Precedence::between(other, one), Precedence::Peer);
            }
        }
    }

    /// What a process receives: an event, or the answer to its own call.
    type Packet = Option<Event>;

    /// Two processes that both dial, with every order of delivery.
    #[test]
    fn two_calls_at_once_lead_to_one_channel_in_every_order() {
        for order in 0..64_u32 {
            let mut state = [State::Down; 2];
            // Packets on their way to process 0 and 1: calls, answers and refusals, on two connections with an order
            // of their own.
            let mut queue: [Vec<(usize, Packet)>; 2] = Default::default();
            let precedence = [Precedence::Own, Precedence::Peer];
            let mut channels = 0;
            let mut live = [false; 2];
            let mut act = |state: &mut [State; 2],
                           queue: &mut [Vec<(usize, Packet)>; 2],
                           at: usize,
                           packet: Packet| {
                let Some(event) = packet else {
                    state[at] = State::Up;
                    return;
                };
                let (next, action) = state[at].step(event, precedence[at]);
                state[at] = next;
                match action {
                    Action::Dial => {
                        live[at] = true;
                        queue[1 - at].push((at, Some(Event::Called)));
                    }
                    Action::Answer => {
                        live[at] = false;
                        channels += 1;
                        queue[1 - at].push((1 - at, None));
                    }
                    Action::Refuse(Reason::Crossed) => {
                        queue[1 - at].push((1 - at, Some(Event::Crossed)));
                    }
                    Action::Refuse(_) => queue[1 - at].push((1 - at, Some(Event::Failed))),
                    Action::Nothing => {}
                    Action::GiveUp => panic!("{action:?}"),
                }
                // What comes on a call that was dropped does not arrive.
                let dropped = !live[at];
                queue[at].retain(|(call, packet)| {
                    *packet == Some(Event::Called) || *call != at || !dropped
                });
            };
            let mut turn = order;
            let mut wanted = [false; 2];
            for _ in 0..32 {
                let at = (turn & 1) as usize;
                turn = turn.rotate_right(1) ^ u32::from(turn & 1 == 0);
                if !std::mem::replace(&mut wanted[at], true) {
                    act(&mut state, &mut queue, at, Some(Event::Wanted));
                } else if !queue[at].is_empty() {
                    let (_, packet) = queue[at].remove(0);
                    act(&mut state, &mut queue, at, packet);
                }
            }
            for at in [0, 1, 0, 1, 0, 1] {
                while !queue[at].is_empty() {
                    let (_, packet) = queue[at].remove(0);
                    act(&mut state, &mut queue, at, packet);
                }
            }
            assert_eq!((state, channels), ([State::Up; 2], 1), "order {order:#b}");
        }
    }
}
