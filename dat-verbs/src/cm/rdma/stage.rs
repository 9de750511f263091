//! How far a connection is, as a pure function: (stage, input) -> (stage, what to do).

use crate::cm::report::Report;

/// How far a connection, or the attempt to make one, is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Active side: the peer's address is being resolved; so many tries are left.
    Address(u32),
    /// Active side: the route is being resolved; so many tries are left.
    Route(u32),
    /// Active side: REQ is sent.
    Requested,
    /// Passive side: REP is sent.
    Accepted,
    /// Connected.
    Up,
    /// We asked for the end.
    Leaving,
    /// Over, or come to nothing.
    Down,
}

/// What may happen to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    AddressResolved,
    AddressFailed {
        timed_out: bool,
    },
    RouteResolved,
    RouteFailed {
        timed_out: bool,
    },
    /// REP came.
    Response,
    /// RTU came (or what counts as one).
    Established,
    /// REJ came.
    Rejected {
        by_consumer: bool,
    },
    /// No answer, or one that made no sense.
    Failed,
    /// DREQ or DREP came.
    Disconnected,
    /// The device is going away.
    Removed,
    /// A call of ours failed.
    LocalFault,
    /// The consumer wants the end.
    Leave,
}

/// What has to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Nothing,
    ResolveAddress,
    ResolveRoute,
    /// Send REQ.
    Request,
    /// Queue pair to RTS, send RTU, report that it is established.
    Finish,
    /// Report that it is established.
    Ready,
    /// Queue pair to ERR, send DREQ.
    HangUp,
    /// Queue pair to ERR, let the id go, tell nobody.
    Abandon,
    /// Queue pair to ERR, let the id go, report.
    Fail(Report),
    /// The same, but answer the peer first.
    Farewell(Report),
}

/// One step.
pub(crate) const fn step(stage: Stage, input: Input) -> (Stage, Act) {
    use Act::{
        Abandon, Fail, Farewell, Finish, HangUp, Nothing, Ready, ResolveAddress, ResolveRoute,
    };
    use Stage::{Accepted, Address, Down, Leaving, Requested, Route, Up};
    match (stage, input) {
        (Down, _) => (Down, Nothing),

        // Finding the way.
        (Address(tries), Input::AddressResolved) => (Route(tries), ResolveRoute),
        (Address(tries), Input::AddressFailed { timed_out: true }) if tries > 0 => {
            (Address(tries - 1), ResolveAddress)
        }
        (Route(_), Input::RouteResolved) => (Requested, Act::Request),
        (Route(tries), Input::RouteFailed { timed_out: true }) if tries > 0 => {
            (Route(tries - 1), ResolveRoute)
        }
        (
            Address(_) | Route(_),
            Input::AddressFailed { .. }
            | Input::RouteFailed { .. }
            | Input::Failed
            | Input::Rejected { .. }
            | Input::LocalFault,
        ) => (Down, Fail(Report::Unreachable)),

        // Coming up.
        (Requested, Input::Response) => (Up, Finish),
        (Requested | Accepted, Input::Established) => (Up, Ready),
        (Requested, Input::Rejected { by_consumer: true }) => (Down, Fail(Report::PeerRejected)),
        (Requested, Input::Rejected { by_consumer: false }) => {
            (Down, Fail(Report::NonPeerRejected))
        }
        (Requested, Input::Failed) => (Down, Fail(Report::Unreachable)),
        (Requested, Input::Disconnected) => (Down, Farewell(Report::NonPeerRejected)),
        (Accepted, Input::Rejected { .. } | Input::Failed | Input::LocalFault) => {
            (Down, Fail(Report::AcceptError))
        }
        (Accepted, Input::Disconnected) => (Down, Farewell(Report::AcceptError)),

        // Going down.
        (Up | Leaving, Input::Disconnected) => (Down, Farewell(Report::Disconnected)),
        (Leaving, Input::Rejected { .. } | Input::Failed | Input::LocalFault) => {
            (Down, Fail(Report::Disconnected))
        }
        (Up, Input::Rejected { .. } | Input::Failed) | (Up | Requested, Input::LocalFault) => {
            (Down, Fail(Report::Broken))
        }
        (Up, Input::Leave) => (Leaving, HangUp),
        (Address(_) | Route(_) | Requested | Accepted, Input::Leave) => (Down, Abandon),
        (_, Input::Removed) => (Down, Fail(Report::Broken)),

        // An event that overtook another, or that came twice.
        (stage, _) => (stage, Nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [Stage; 9] = [
        Stage::Address(1),
        Stage::Address(0),
        Stage::Route(1),
        Stage::Route(0),
        Stage::Requested,
        Stage::Accepted,
        Stage::Up,
        Stage::Leaving,
        Stage::Down,
    ];
    const INPUTS: [Input; 15] = [
        Input::AddressResolved,
        Input::AddressFailed { timed_out: true },
        Input::AddressFailed { timed_out: false },
        Input::RouteResolved,
        Input::RouteFailed { timed_out: true },
        Input::RouteFailed { timed_out: false },
        Input::Response,
        Input::Established,
        Input::Rejected { by_consumer: true },
        Input::Rejected { by_consumer: false },
        Input::Failed,
        Input::Disconnected,
        Input::Removed,
        Input::LocalFault,
        Input::Leave,
    ];

    /// One letter for each cell: `.` stays, `a` `r` try again, `q` REQ, `f` finish, `u` ready, `h` hang up,
    /// `x` abandon; the rest end with a report: `P`eer rejected, `N`on-peer, un`R`eachable, `A`ccept error,
    /// `D`isconnected, `B`roken.
    fn letter((from, to, act): (Stage, Stage, Act)) -> char {
        let report = |r| match r {
            Report::Established => panic!("{from:?}: no stage fails with success"),
            Report::PeerRejected => 'P',
            Report::NonPeerRejected => 'N',
            Report::Unreachable => 'R',
            Report::AcceptError => 'A',
            Report::Disconnected => 'D',
            Report::Broken => 'B',
        };
        match act {
            Act::Nothing => {
                assert_eq!(from, to);
                '.'
            }
            Act::ResolveAddress => 'a',
            Act::ResolveRoute => 'r',
            Act::Request => 'q',
            Act::Finish => 'f',
            Act::Ready => 'u',
            Act::HangUp => 'h',
            Act::Abandon => 'x',
            Act::Fail(r) | Act::Farewell(r) => {
                assert_eq!(to, Stage::Down);
                report(r)
            }
        }
    }

    #[test]
    fn the_whole_table() {
        let expected = [
            "raR.RR..RRR.BRx",
            "rRR.RR..RRR.BRx",
            ".RRqrR..RRR.BRx",
            ".RRqRR..RRR.BRx",
            "......fuPNRNBBx",
            ".......uAAAABAx",
            "........BBBDBBh",
            "........DDDDBD.",
            "...............",
        ];
        for (stage, row) in STAGES.iter().zip(expected) {
            let found: String = INPUTS
                .iter()
                .map(|input| {
                    let (to, act) = step(*stage, *input);
                    letter((*stage, to, act))
                })
                .collect();
            assert_eq!(found, row, "{stage:?}");
        }
    }

    #[test]
    fn every_walk_reports_at_most_one_end_and_then_is_down() {
        for a in STAGES {
            for i in INPUTS {
                let (b, act) = step(a, i);
                let ends = matches!(act, Act::Fail(_) | Act::Farewell(_) | Act::Abandon);
                assert_eq!(ends, a != Stage::Down && b == Stage::Down, "{a:?} {i:?}");
            }
        }
    }

    #[test]
    fn tries_run_out() {
        let (mut stage, mut tries) = (Stage::Address(15), 0);
        while stage != Stage::Down {
            (stage, _) = step(stage, Input::AddressFailed { timed_out: true });
            tries += 1;
        }
        assert_eq!(tries, 16);
    }
}
