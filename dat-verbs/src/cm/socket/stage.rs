//! State machine of a connection, as a pure function: (stage, input) -> (stage, action).

use dat_core::upcall::ConnOutcome;

/// Number of new attempts after the peer closed, as in DAPL.
pub(crate) const MAX_CONNECTS: u32 = 4;

/// Stage of a connection, or of the attempt to make one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Active side: TCP connects. `tries` are left; with `pre_v8` the REQ has the layout of versions before 8.
    Connecting { tries: u32, pre_v8: bool },
    /// Active side: REQ is sent.
    Requested { tries: u32, pre_v8: bool },
    /// Passive side: REP is sent.
    Accepted,
    /// Connected.
    Up,
    /// The connection has ended, or the attempt has failed.
    Down,
}

/// Input of the state machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    /// TCP is connected.
    TcpConnected,
    /// The peer does not listen.
    TcpRefused,
    /// The peer is not reachable.
    Unreachable,
    /// REP came.
    Reply,
    /// REJ came.
    Rejected { by_consumer: bool },
    /// RTU came.
    Confirmed,
    /// The peer closed, or its system reset the connection.
    Closed { reset: bool },
    /// The received bytes are no valid message.
    Malformed,
    /// A message arrived on an established connection. Any such message is a disconnect.
    DisconnectMessage,
    /// The deadline of this stage has passed.
    TimedOut,
    /// A local call failed.
    LocalFault,
    /// The consumer disconnects, or core knows that the connection has ended.
    LocalDisconnect,
}

/// Action that the caller of [`step`] performs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Nothing,
    /// Connect TCP again.
    ConnectTcp,
    /// Send REQ.
    Request,
    /// Move the queue pair to RTS, send RTU, report that the connection is established.
    Finish,
    /// Report that the connection is established.
    Ready,
    /// Move the queue pair to ERR, send the disconnect message, close, report.
    Disconnect(ConnOutcome),
    /// Move the queue pair to ERR, close, report nothing.
    Abandon,
    /// Move the queue pair to ERR, close, report.
    Fail(ConnOutcome),
    /// Have the device flush what was posted after it had flushed the queue pair, and before core knew of the end.
    FlushAgain,
}

/// Performs one step.
pub(crate) const fn step(stage: Stage, input: Input) -> (Stage, Act) {
    use Act::{Abandon, ConnectTcp, Disconnect, Fail, Finish, FlushAgain, Nothing, Ready};
    use Stage::{Accepted, Connecting, Down, Requested, Up};
    match (stage, input) {
        (Down, Input::LocalDisconnect) => (Down, FlushAgain),
        (Down, _) => (Down, Nothing),

        (Connecting { tries, pre_v8 }, Input::TcpConnected) => {
            (Requested { tries, pre_v8 }, Act::Request)
        }
        (Connecting { .. }, Input::TcpRefused | Input::Closed { .. }) => {
            (Down, Fail(ConnOutcome::NonPeerRejected))
        }
        (Connecting { .. }, Input::Unreachable | Input::TimedOut | Input::LocalFault) => {
            (Down, Fail(ConnOutcome::Unreachable))
        }

        (Requested { .. }, Input::Reply) => (Up, Finish),
        (Requested { .. }, Input::Rejected { by_consumer: true }) => {
            (Down, Fail(ConnOutcome::PeerRejected))
        }
        (Requested { .. }, Input::Rejected { by_consumer: false }) => {
            (Down, Fail(ConnOutcome::NonPeerRejected))
        }
        // A loaded system resets connections that it has accepted.
        (Requested { tries, pre_v8 }, Input::Closed { reset: true }) if tries > 0 => {
            let tries = tries - 1;
            (Connecting { tries, pre_v8 }, ConnectTcp)
        }
        // A peer before version 8 waits for two more bytes, or answers with another layout.
        (
            Requested {
                tries,
                pre_v8: false,
            },
            Input::Closed { reset: false } | Input::Malformed,
        ) if tries > 0 => {
            let tries = tries - 1;
            (
                Connecting {
                    tries,
                    pre_v8: true,
                },
                ConnectTcp,
            )
        }
        (Requested { .. }, Input::Closed { .. } | Input::Malformed) => {
            (Down, Fail(ConnOutcome::NonPeerRejected))
        }

        (Accepted, Input::Confirmed) => (Up, Ready),
        (
            Accepted,
            Input::Closed { .. } | Input::Malformed | Input::TimedOut | Input::LocalFault,
        ) => (Down, Fail(ConnOutcome::AcceptError)),

        (Up, Input::DisconnectMessage | Input::Closed { .. }) => {
            (Down, Disconnect(ConnOutcome::Disconnected))
        }
        (Up | Requested { .. }, Input::LocalFault) => (Down, Fail(ConnOutcome::Broken)),
        (Up, Input::LocalDisconnect) => (Down, Disconnect(ConnOutcome::Disconnected)),
        (Connecting { .. } | Requested { .. } | Accepted, Input::LocalDisconnect) => {
            (Down, Abandon)
        }

        // An event that came twice, or a timer that fires late.
        (stage, _) => (stage, Nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [Stage; 9] = [
        Stage::Connecting {
            tries: 1,
            pre_v8: false,
        },
        Stage::Connecting {
            tries: 0,
            pre_v8: true,
        },
        Stage::Requested {
            tries: 1,
            pre_v8: false,
        },
        Stage::Requested {
            tries: 1,
            pre_v8: true,
        },
        Stage::Requested {
            tries: 0,
            pre_v8: false,
        },
        Stage::Requested {
            tries: 0,
            pre_v8: true,
        },
        Stage::Accepted,
        Stage::Up,
        Stage::Down,
    ];
    const INPUTS: [Input; 14] = [
        Input::TcpConnected,
        Input::TcpRefused,
        Input::Unreachable,
        Input::Reply,
        Input::Rejected { by_consumer: true },
        Input::Rejected { by_consumer: false },
        Input::Confirmed,
        Input::Closed { reset: true },
        Input::Closed { reset: false },
        Input::Malformed,
        Input::DisconnectMessage,
        Input::TimedOut,
        Input::LocalFault,
        Input::LocalDisconnect,
    ];

    /// Returns one letter for each cell: `.` stays, `d` connects again, `o` connects again to a peer before version 8,
    /// `q` REQ, `f` finish, `u` ready, `x` abandon, `e` flush again; the rest end with a report: `P`eer rejected, `N`on-peer,
    /// un`R`eachable, `A`ccept error, `D`isconnected, `B`roken.
    fn cell(from: Stage, to: Stage, act: Act) -> char {
        let end = |report| {
            assert_eq!(to, Stage::Down);
            match report {
                ConnOutcome::Established => panic!("{from:?}: no stage fails with success"),
                ConnOutcome::PeerRejected => 'P',
                ConnOutcome::NonPeerRejected => 'N',
                ConnOutcome::Unreachable => 'R',
                ConnOutcome::AcceptError => 'A',
                ConnOutcome::Disconnected => 'D',
                ConnOutcome::Broken => 'B',
            }
        };
        let pre_v8 = |stage| {
            matches!(
                stage,
                Stage::Requested { pre_v8: true, .. } | Stage::Connecting { pre_v8: true, .. }
            )
        };
        match act {
            Act::Nothing => {
                assert_eq!(from, to);
                '.'
            }
            Act::ConnectTcp if pre_v8(to) && !pre_v8(from) => 'o',
            Act::ConnectTcp => 'd',
            Act::Request => 'q',
            Act::Finish => 'f',
            Act::Ready => 'u',
            Act::Abandon => 'x',
            Act::FlushAgain => 'e',
            Act::Disconnect(r) | Act::Fail(r) => end(r),
        }
    }

    #[test]
    fn the_whole_table() {
        let expected = [
            "qNR....NN..RRx",
            "qNR....NN..RRx",
            "...fPN.doo..Bx",
            "...fPN.dNN..Bx",
            "...fPN.NNN..Bx",
            "...fPN.NNN..Bx",
            "......uAAA.AAx",
            ".......DD.D.BD",
            ".............e",
        ];
        for (stage, row) in STAGES.iter().zip(expected) {
            let found: String = INPUTS
                .iter()
                .map(|input| {
                    let (to, act) = step(*stage, *input);
                    cell(*stage, to, act)
                })
                .collect();
            assert_eq!(found, row, "{stage:?}");
        }
    }

    #[test]
    fn a_peer_that_always_closes_ends_the_attempt() {
        for closes in [
            Input::Closed { reset: true },
            Input::Closed { reset: false },
            Input::Malformed,
        ] {
            let mut stage = Stage::Connecting {
                tries: MAX_CONNECTS,
                pre_v8: false,
            };
            let mut dials = 0;
            while stage != Stage::Down {
                (stage, _) = step(stage, Input::TcpConnected);
                (stage, _) = step(stage, closes);
                dials += 1;
            }
            let expected = if closes == (Input::Closed { reset: true }) {
                5
            } else {
                2
            };
            assert_eq!(dials, expected, "{closes:?}");
        }
    }
}
