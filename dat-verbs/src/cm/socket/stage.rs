//! How far a connection is, as a pure function: (stage, input) -> (stage, what to do).

use crate::cm::report::Report;

/// How often an attempt may begin again because the peer closed on it, as DAPL's.
pub(crate) const TRIES: u32 = 4;

/// How far a connection, or the attempt to make one, is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Active side: TCP connects; so many tries are left, and whether REQ will be an old peer's.
    Dialing { tries: u32, old: bool },
    /// Active side: REQ is sent.
    Requested { tries: u32, old: bool },
    /// Passive side: REP is sent.
    Accepted,
    /// Connected.
    Up,
    /// Over, or come to nothing.
    Down,
}

/// What may happen to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    /// TCP is connected.
    Dialed,
    /// Nobody listens.
    Refused,
    /// No way to the peer.
    NoWay,
    /// REP came.
    Reply,
    /// REJ came.
    Rejected { by_consumer: bool },
    /// RTU came.
    Confirmed,
    /// The peer closed, or its system reset the connection.
    Closed { reset: bool },
    /// What came is none of the peer's messages.
    Nonsense,
    /// Something came on a connection that is up: the peer's farewell, whatever it says.
    Farewell,
    /// The time for this stage is over.
    Expired,
    /// A call of ours failed.
    LocalFault,
    /// The consumer wants the end.
    Leave,
}

/// What has to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Nothing,
    /// Connect TCP anew.
    Dial,
    /// Send REQ.
    Request,
    /// Queue pair to RTS, send RTU, report that it is established.
    Finish,
    /// Report that it is established.
    Ready,
    /// Queue pair to ERR, say farewell, close, report.
    HangUp(Report),
    /// Queue pair to ERR, close, tell nobody.
    Abandon,
    /// Queue pair to ERR, close, report.
    Fail(Report),
}

/// One step.
pub(crate) const fn step(stage: Stage, input: Input) -> (Stage, Act) {
    use Act::{Abandon, Dial, Fail, Finish, HangUp, Nothing, Ready};
    use Stage::{Accepted, Dialing, Down, Requested, Up};
    match (stage, input) {
        (Down, _) => (Down, Nothing),

        (Dialing { tries, old }, Input::Dialed) => (Requested { tries, old }, Act::Request),
        (Dialing { .. }, Input::Refused | Input::Closed { .. }) => {
            (Down, Fail(Report::NonPeerRejected))
        }
        (Dialing { .. }, Input::NoWay | Input::Expired | Input::LocalFault) => {
            (Down, Fail(Report::Unreachable))
        }

        (Requested { .. }, Input::Reply) => (Up, Finish),
        (Requested { .. }, Input::Rejected { by_consumer: true }) => {
            (Down, Fail(Report::PeerRejected))
        }
        (Requested { .. }, Input::Rejected { by_consumer: false }) => {
            (Down, Fail(Report::NonPeerRejected))
        }
        // A system under load resets what it accepted.
        (Requested { tries, old }, Input::Closed { reset: true }) if tries > 0 => {
            let tries = tries - 1;
            (Dialing { tries, old }, Dial)
        }
        // A peer before version 8 waits for two bytes more, or answers in its own way.
        (Requested { tries, old: false }, Input::Closed { reset: false } | Input::Nonsense)
            if tries > 0 =>
        {
            let tries = tries - 1;
            (Dialing { tries, old: true }, Dial)
        }
        (Requested { .. }, Input::Closed { .. } | Input::Nonsense) => {
            (Down, Fail(Report::NonPeerRejected))
        }

        (Accepted, Input::Confirmed) => (Up, Ready),
        (Accepted, Input::Closed { .. } | Input::Nonsense | Input::Expired | Input::LocalFault) => {
            (Down, Fail(Report::AcceptError))
        }

        (Up, Input::Farewell | Input::Closed { .. }) => (Down, HangUp(Report::Disconnected)),
        (Up | Requested { .. }, Input::LocalFault) => (Down, Fail(Report::Broken)),
        (Up, Input::Leave) => (Down, HangUp(Report::Disconnected)),
        (Dialing { .. } | Requested { .. } | Accepted, Input::Leave) => (Down, Abandon),

        // An event that came twice, or a timer that fires late.
        (stage, _) => (stage, Nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [Stage; 9] = [
        Stage::Dialing {
            tries: 1,
            old: false,
        },
        Stage::Dialing {
            tries: 0,
            old: true,
        },
        Stage::Requested {
            tries: 1,
            old: false,
        },
        Stage::Requested {
            tries: 1,
            old: true,
        },
        Stage::Requested {
            tries: 0,
            old: false,
        },
        Stage::Requested {
            tries: 0,
            old: true,
        },
        Stage::Accepted,
        Stage::Up,
        Stage::Down,
    ];
    const INPUTS: [Input; 14] = [
        Input::Dialed,
        Input::Refused,
        Input::NoWay,
        Input::Reply,
        Input::Rejected { by_consumer: true },
        Input::Rejected { by_consumer: false },
        Input::Confirmed,
        Input::Closed { reset: true },
        Input::Closed { reset: false },
        Input::Nonsense,
        Input::Farewell,
        Input::Expired,
        Input::LocalFault,
        Input::Leave,
    ];

    /// One letter for each cell: `.` stays, `d` dials anew, `o` dials anew for an old peer, `q` REQ, `f` finish,
    /// `u` ready, `x` abandon; the rest end with a report: `P`eer rejected, `N`on-peer, un`R`eachable, `A`ccept
    /// error, `D`isconnected, `B`roken.
    fn letter(from: Stage, to: Stage, act: Act) -> char {
        let end = |report| {
            assert_eq!(to, Stage::Down);
            match report {
                Report::Established => panic!("{from:?}: no stage fails with success"),
                Report::PeerRejected => 'P',
                Report::NonPeerRejected => 'N',
                Report::Unreachable => 'R',
                Report::AcceptError => 'A',
                Report::Disconnected => 'D',
                Report::Broken => 'B',
            }
        };
        let old = |stage| {
            matches!(
                stage,
                Stage::Requested { old: true, .. } | Stage::Dialing { old: true, .. }
            )
        };
        match act {
            Act::Nothing => {
                assert_eq!(from, to);
                '.'
            }
            Act::Dial if old(to) && !old(from) => 'o',
            Act::Dial => 'd',
            Act::Request => 'q',
            Act::Finish => 'f',
            Act::Ready => 'u',
            Act::Abandon => 'x',
            Act::HangUp(r) | Act::Fail(r) => end(r),
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
            "..............",
        ];
        for (stage, row) in STAGES.iter().zip(expected) {
            let found: String = INPUTS
                .iter()
                .map(|input| {
                    let (to, act) = step(*stage, *input);
                    letter(*stage, to, act)
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
            Input::Nonsense,
        ] {
            let mut stage = Stage::Dialing {
                tries: TRIES,
                old: false,
            };
            let mut dials = 0;
            while stage != Stage::Down {
                (stage, _) = step(stage, Input::Dialed);
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
