//! State machine of a connection, as a pure function: (stage, input) -> (stage, action).

use dat_core::upcall::ConnOutcome;

/// Stage of a connection, or of the attempt to make one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Active side: the peer's address is being resolved; the number of tries left.
    Address(u32),
    /// Active side: the route is being resolved; the number of tries left.
    Route(u32),
    /// Active side: REQ is sent.
    Requested,
    /// Passive side: REP is sent.
    Accepted,
    /// Connected.
    Up,
    /// DREQ is sent.
    Disconnecting,
    /// The connection has ended, or the attempt has failed.
    Down,
}

/// Input of the state machine.
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
    /// RTU came (or an event that counts as RTU).
    Established,
    /// REJ came.
    Rejected {
        by_consumer: bool,
    },
    /// No reply, or an invalid one.
    Failed,
    /// DREQ or DREP came.
    Disconnected,
    /// The device is going away.
    Removed,
    /// A local call failed.
    LocalFault,
    /// The consumer disconnects, or core knows that the connection has ended.
    LocalDisconnect,
}

/// Action that the caller of [`step`] performs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Nothing,
    ResolveAddress,
    ResolveRoute,
    /// Send REQ.
    Request,
    /// Move the queue pair to RTS, send RTU, report that the connection is established.
    Finish,
    /// Report that the connection is established.
    Ready,
    /// Move the queue pair to ERR, send DREQ.
    Disconnect,
    /// Move the queue pair to ERR, release the id, report nothing.
    Abandon,
    /// Move the queue pair to ERR, release the id, report.
    Fail(ConnOutcome),
    /// Like [`Act::Fail`], after a reply to the peer's DREQ.
    ReplyDisconnect(ConnOutcome),
    /// Have the device flush what was posted after it had flushed the queue pair, and before core knew of the end.
    FlushAgain,
}

/// Returns the input for the errno of a request that was not sent. Over iWARP the call makes the connection of TCP, so it
/// says what became of that.
pub(crate) const fn not_requested(errno: i32) -> Input {
    match errno {
        libc::ECONNREFUSED | libc::ECONNRESET => Input::Rejected { by_consumer: false },
        libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN => Input::Failed,
        _ => Input::LocalFault,
    }
}

/// Performs one step.
pub(crate) const fn step(stage: Stage, input: Input) -> (Stage, Act) {
    use Act::{
        Abandon, Disconnect, Fail, Finish, FlushAgain, Nothing, Ready, ReplyDisconnect,
        ResolveAddress, ResolveRoute,
    };
    use Stage::{Accepted, Address, Disconnecting, Down, Requested, Route, Up};
    match (stage, input) {
        (Down, Input::LocalDisconnect) => (Down, FlushAgain),
        (Down, _) => (Down, Nothing),

        // Resolving.
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
        ) => (Down, Fail(ConnOutcome::Unreachable)),

        // Connecting.
        (Requested, Input::Response) => (Up, Finish),
        (Requested | Accepted, Input::Established) => (Up, Ready),
        (Requested, Input::Rejected { by_consumer: true }) => {
            (Down, Fail(ConnOutcome::PeerRejected))
        }
        (Requested, Input::Rejected { by_consumer: false }) => {
            (Down, Fail(ConnOutcome::NonPeerRejected))
        }
        (Requested, Input::Failed) => (Down, Fail(ConnOutcome::Unreachable)),
        (Requested, Input::Disconnected) => (Down, ReplyDisconnect(ConnOutcome::NonPeerRejected)),
        (Accepted, Input::Rejected { .. } | Input::Failed | Input::LocalFault) => {
            (Down, Fail(ConnOutcome::AcceptError))
        }
        (Accepted, Input::Disconnected) => (Down, ReplyDisconnect(ConnOutcome::AcceptError)),

        // Disconnecting.
        (Up | Disconnecting, Input::Disconnected) => {
            (Down, ReplyDisconnect(ConnOutcome::Disconnected))
        }
        (Disconnecting, Input::Rejected { .. } | Input::Failed | Input::LocalFault) => {
            (Down, Fail(ConnOutcome::Disconnected))
        }
        (Up, Input::Rejected { .. } | Input::Failed) | (Up | Requested, Input::LocalFault) => {
            (Down, Fail(ConnOutcome::Broken))
        }
        (Up, Input::LocalDisconnect) => (Disconnecting, Disconnect),
        (Address(_) | Route(_) | Requested | Accepted, Input::LocalDisconnect) => (Down, Abandon),
        (_, Input::Removed) => (Down, Fail(ConnOutcome::Broken)),

        // An event that overtook another, or that came twice.
        (stage, _) => (stage, Nothing),
    }
}

/// Returns the input that must have preceded `input`, if the stage lacks it. A peer that disconnects was connected: its RTU was
/// lost, or the kernel, which handles the messages of one connection on several processors, handled DREQ first and then
/// dropped RTU.
pub(crate) const fn implied(stage: Stage, input: Input) -> Option<Input> {
    match (stage, input) {
        (Stage::Accepted, Input::Disconnected) => Some(Input::Established),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_refused_at_once_ends_like_one_that_is_refused_later() {
        for (errno, outcome) in [
            (libc::ECONNREFUSED, ConnOutcome::NonPeerRejected),
            (libc::ETIMEDOUT, ConnOutcome::Unreachable),
            (libc::EHOSTUNREACH, ConnOutcome::Unreachable),
            (libc::ENOMEM, ConnOutcome::Broken),
        ] {
            let (_, act) = step(Stage::Requested, not_requested(errno));
            assert_eq!(act, Act::Fail(outcome), "{errno}");
        }
    }

    #[test]
    fn a_disconnect_of_the_peer_implies_that_it_was_connected() {
        for stage in STAGES {
            for input in INPUTS {
                let expected = (stage == Stage::Accepted && input == Input::Disconnected)
                    .then_some(Input::Established);
                assert_eq!(implied(stage, input), expected, "{stage:?} {input:?}");
            }
        }
        let (up, act) = step(Stage::Accepted, Input::Established);
        assert_eq!((up, act), (Stage::Up, Act::Ready));
        let end = Act::ReplyDisconnect(ConnOutcome::Disconnected);
        assert_eq!(step(up, Input::Disconnected), (Stage::Down, end));
    }

    const STAGES: [Stage; 9] = [
        Stage::Address(1),
        Stage::Address(0),
        Stage::Route(1),
        Stage::Route(0),
        Stage::Requested,
        Stage::Accepted,
        Stage::Up,
        Stage::Disconnecting,
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
        Input::LocalDisconnect,
    ];

    /// Returns one letter for each cell: `.` stays, `a` `r` try again, `q` REQ, `f` finish, `u` ready, `h` disconnect,
    /// `x` abandon, `e` flush again; the rest end with a report: `P`eer rejected, `N`on-peer, un`R`eachable, `A`ccept error,
    /// `D`isconnected, `B`roken.
    fn cell((from, to, act): (Stage, Stage, Act)) -> char {
        let report = |r| match r {
            ConnOutcome::Established => panic!("{from:?}: no stage fails with success"),
            ConnOutcome::PeerRejected => 'P',
            ConnOutcome::NonPeerRejected => 'N',
            ConnOutcome::Unreachable => 'R',
            ConnOutcome::AcceptError => 'A',
            ConnOutcome::Disconnected => 'D',
            ConnOutcome::Broken => 'B',
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
            Act::Disconnect => 'h',
            Act::Abandon => 'x',
            Act::FlushAgain => 'e',
            Act::Fail(r) | Act::ReplyDisconnect(r) => {
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
            "..............e",
        ];
        for (stage, row) in STAGES.iter().zip(expected) {
            let found: String = INPUTS
                .iter()
                .map(|input| {
                    let (to, act) = step(*stage, *input);
                    cell((*stage, to, act))
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
                let ends = matches!(act, Act::Fail(_) | Act::ReplyDisconnect(_) | Act::Abandon);
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
