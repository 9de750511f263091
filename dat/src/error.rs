//! Errors of the API.

use std::time::Duration;

use dat_core::event::{ConnectionEvent, DtoOp, DtoStatus};

pub use dat_core::error::{Error as Code, Kind, Subtype};
pub use dat_registry::registry::LookupError;

use crate::{Streams, words};

/// Result of a call.
///
/// Example: [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A queue of an endpoint or a dispatcher. Example: [`Error`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Queue {
    /// Outstanding sends, writes, reads, atomics and binds of an endpoint.
    Requests,
    /// Posted receives of an endpoint or an SRQ.
    Receives,
    /// Events of a dispatcher.
    Events,
}

impl std::fmt::Display for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Requests => "requests",
            Self::Receives => "receives",
            Self::Events => "events",
        })
    }
}

/// The reason why a call failed. Programs match on the variants:
///
/// ```
/// use udapl::{Error, Queue};
///
/// /// Returns whether to try the post again, after completions were taken.
/// fn is_transient(error: &Error) -> bool {
///     matches!(error, Error::QueueFull { queue: Queue::Requests, .. } | Error::Interrupted { .. })
/// }
/// # let error = udapl::Ia::open("no-such-adapter").unwrap_err();
/// # assert!(!is_transient(&error) && matches!(error, Error::Lookup(_)));
/// ```
///
/// Where a provider refused it, [`Error::code`] has the DAT return code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name cannot be opened: there is no configuration or no such entry, or its library cannot be used. The text says which.
    #[error("{0}")]
    Lookup(#[from] LookupError),
    /// The queue has no event.
    #[error("{call}: no event is queued ({code})")]
    Empty {
        /// Name of the DAT function.
        call: &'static str,
        /// The DAT return code.
        code: Code,
    },
    /// The time limit of a wait expired.
    #[error("{call}: no event arrived in time ({code})")]
    TimedOut {
        /// Name of the DAT function.
        call: &'static str,
        /// The DAT return code.
        code: Code,
    },
    /// A signal, or a call that forbids waiting, ended a wait. Wait again if the program has nothing else to do.
    #[error("{call}: the wait was interrupted ({code})")]
    Interrupted {
        /// Name of the DAT function.
        call: &'static str,
        /// The DAT return code.
        code: Code,
    },
    /// A queue is full. Take completions from its dispatcher first, or make it larger.
    #[error(
        "{call}: the queue of {queue} is full; take completions first, or make it larger ({code})"
    )]
    QueueFull {
        /// Name of the DAT function.
        call: &'static str,
        /// The queue.
        queue: Queue,
        /// The DAT return code.
        code: Code,
    },
    /// The endpoint has no connection: not yet, or not any more. [`Error::is_connection_gone`] tells these apart.
    #[error("{call}: the endpoint is not connected ({code})")]
    NotConnected {
        /// Name of the DAT function.
        call: &'static str,
        /// The DAT return code, whose subtype has the endpoint's state.
        code: Code,
    },
    /// The object's state forbids the operation.
    #[error("{call}: {} ({code})", words::forbidden(call))]
    State {
        /// Name of the DAT function.
        call: &'static str,
        /// The DAT return code, whose subtype has the state.
        code: Code,
    },
    /// Another object uses this one.
    #[error("{call}: the object is in use; drop what uses it first ({code})")]
    InUse {
        /// Name of the DAT function.
        call: &'static str,
        /// The DAT return code, whose subtype has the kind of object.
        code: Code,
    },
    /// A connection qualifier or port is taken.
    #[error("{call}: the address is in use; choose another qualifier or port ({code})")]
    AddressInUse {
        /// Name of the DAT function.
        call: &'static str,
        /// The DAT return code.
        code: Code,
    },
    /// The peer's address cannot be used or reached; in an open, the device that dat.conf names.
    #[error("{call}: {} ({code})", words::no_address(call))]
    Unreachable {
        /// Name of the DAT function.
        call: &'static str,
        /// The DAT return code.
        code: Code,
    },
    /// The provider or the device does not have the operation.
    #[error("{call}: the provider does not support this ({code})")]
    Unsupported {
        /// Name of the DAT function.
        call: &'static str,
        /// The DAT return code.
        code: Code,
    },
    /// Memory, or a resource of the device, is exhausted. In an open: something that the adapter needs cannot be had, such as its device or
    /// port; the provider's message says what.
    #[error("{call}: {} ({code})", words::scarce(call))]
    Resources {
        /// Name of the DAT function.
        call: &'static str,
        /// The DAT return code.
        code: Code,
    },
    /// Another error of the specification.
    #[error("{call}: {code}")]
    Call {
        /// Name of the DAT function.
        call: &'static str,
        /// Type and subtype of the error.
        code: Code,
    },
    /// The operating system refused what the futures need, or a file of memory.
    #[error("cannot {what}: {source}")]
    System {
        /// What was attempted, and what mends it.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// There is no memory of this size.
    #[error("{bytes} bytes cannot be allocated; ask for less")]
    OutOfMemory {
        /// Number of bytes that was asked for.
        bytes: usize,
    },
    /// A length is 0, or larger than the adapter allows.
    #[error(
        "{what} of length {length} is not possible: at most {most} bytes{}",
        if *length == 0 { ", and at least one" } else { "" }
    )]
    Length {
        /// What has the length.
        what: &'static str,
        /// The length.
        length: usize,
        /// The largest length.
        most: usize,
    },
    /// A number is 0, or larger than the adapter allows ([`Attributes`](crate::Attributes)).
    #[error("{given} {what} are not possible; the adapter allows 1 to {most}")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// The number.
        given: u32,
        /// The largest number.
        most: u32,
    },
    /// A dispatcher does not take the events that it would get. It says which when it is created.
    #[error("{call}: the dispatcher must be one of this adapter that takes {}", words::streams(*.needs))]
    WrongStreams {
        /// Name of the DAT function.
        call: &'static str,
        /// What it must take.
        needs: Streams,
    },
    /// A post has more segments than the endpoint allows (`EpBuilder::max_segments`).
    #[error("{call}: {given} segments are more than the {most} that the endpoint was created for")]
    TooManySegments {
        /// Name of the DAT function.
        call: &'static str,
        /// Number of segments.
        given: usize,
        /// The maximum.
        most: usize,
    },
    /// A region belongs to another protection zone or adapter than the endpoint or SRQ.
    #[error(
        "{call}: the region belongs to another protection zone; allocate it from the zone of the endpoint"
    )]
    OtherZone {
        /// Name of the DAT function.
        call: &'static str,
    },
    /// A receive or a read needs a region with [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE).
    #[error("{call}: the region is read-only; allocate it with Access::LOCAL_WRITE")]
    ReadOnly {
        /// Name of the DAT function.
        call: &'static str,
    },
    /// The endpoint has no dispatcher for the completion.
    #[error("{call}: the endpoint has no dispatcher for {queue}; give it one when it is created")]
    NoEvd {
        /// Name of the DAT function.
        call: &'static str,
        /// The queue whose completions the dispatcher would get.
        queue: Queue,
    },
    /// An endpoint with an SRQ takes its receives from there.
    #[error("{call}: the endpoint takes its receives from an SRQ; post them there")]
    HasSrq {
        /// Name of the DAT function.
        call: &'static str,
    },
    /// A time limit is longer than the API can express, or that of a connection attempt is no time. `Duration::MAX` is no limit.
    #[error(
        "{call}: a time limit of {given:?} is not possible: at most {most:?}, at least 1µs to connect, or Duration::MAX for none"
    )]
    TimeLimit {
        /// Name of the DAT function.
        call: &'static str,
        /// The limit that was asked for.
        given: Duration,
        /// The longest one.
        most: Duration,
    },
    /// An operation of a connection is longer than the [`Remote`](crate::Remote) that it was given. It was not posted.
    #[error(
        "{} of {length} bytes leaves the peer's segment of {room}; take a longer slice of the Remote, or fewer bytes",
        words::name(*.op)
    )]
    BeyondRemote {
        /// The operation.
        op: DtoOp,
        /// Number of bytes to write or read.
        length: usize,
        /// Number of bytes of the peer's segment.
        room: u32,
    },
    /// An operation failed after it was posted. The connection ended with it, or before it.
    #[error("{} failed: {}", words::name(*.op), words::result(*.op, *.status))]
    Failed {
        /// The operation.
        op: DtoOp,
        /// What happened.
        status: DtoStatus,
    },
    /// The peer's program rejected the connection request.
    #[error("the peer rejected the connection request, with {} bytes of private data", private_data.len())]
    Rejected {
        /// Private data of the rejection.
        private_data: Vec<u8>,
    },
    /// The connection ended, or could not be established. [`Error::is_refused`] says that nothing listens there.
    #[error("{}", words::end(*.how))]
    Disconnected {
        /// Kind of the end.
        how: ConnectionEvent,
    },
    /// A wait took an event other than the expected one.
    #[error("dat_evd_wait: waited for {wanted}, got {got}")]
    Unexpected {
        /// Description of the expected event.
        wanted: &'static str,
        /// The event that arrived.
        got: String,
    },
}

/// Subtypes of `DAT_INVALID_STATE` that say that something uses the object.
fn is_in_use(subtype: Option<Subtype>) -> bool {
    use Subtype as S;
    matches!(
        subtype,
        Some(
            S::InvalidStateCnoInUse
                | S::InvalidStateEvdInUse
                | S::InvalidStateIaInUse
                | S::InvalidStateLmrInUse
                | S::InvalidStatePzInUse
                | S::InvalidStateSrqInUse
        )
    )
}

/// Subtypes of `DAT_INVALID_STATE` that say that an endpoint is not connected.
pub(crate) fn is_not_connected(subtype: Option<Subtype>) -> bool {
    use Subtype as S;
    matches!(
        subtype,
        Some(
            S::InvalidStateEpUnconnected
                | S::InvalidStateEpActconnpending
                | S::InvalidStateEpPassconnpending
                | S::InvalidStateEpTentconnpending
                | S::InvalidStateEpDisconnected
                | S::InvalidStateEpReserved
                | S::InvalidStateEpComplpending
                | S::InvalidStateEpDiscpending
        )
    )
}

/// Streams that a dispatcher lacks, by the subtype of `DAT_INVALID_HANDLE`.
fn streams_of(subtype: Option<Subtype>) -> Option<Streams> {
    match subtype? {
        Subtype::InvalidHandleEvdCr => Some(Streams::CR),
        Subtype::InvalidHandleEvdConn => Some(Streams::CONNECTION),
        Subtype::InvalidHandleEvdRecv | Subtype::InvalidHandleEvdRequest => Some(Streams::DTO),
        _ => None,
    }
}

impl Error {
    /// Makes the error for a code that `call` returned.
    #[cold]
    pub(crate) fn of(call: &'static str, code: Code) -> Self {
        if let Some(needs) = streams_of(code.subtype()) {
            return Self::WrongStreams { call, needs };
        }
        match code.kind() {
            Some(Kind::QueueEmpty) => Self::Empty { call, code },
            Some(Kind::TimeoutExpired) => Self::TimedOut { call, code },
            Some(Kind::InterruptedCall) => Self::Interrupted { call, code },
            Some(Kind::QueueFull) => Self::QueueFull {
                call,
                queue: Queue::Events,
                code,
            },
            Some(Kind::InvalidState) if is_in_use(code.subtype()) => Self::InUse { call, code },
            Some(Kind::InvalidState) if is_not_connected(code.subtype()) => {
                Self::NotConnected { call, code }
            }
            Some(Kind::InvalidState) => Self::State { call, code },
            Some(Kind::ConnQualInUse | Kind::ConnQualUnavailable | Kind::PortInUse) => {
                Self::AddressInUse { call, code }
            }
            Some(Kind::InvalidAddress) => Self::Unreachable { call, code },
            Some(Kind::NotImplemented | Kind::ModelNotSupported | Kind::CommNotSupported) => {
                Self::Unsupported { call, code }
            }
            Some(Kind::InsufficientResources) => Self::Resources { call, code },
            _ => Self::Call { call, code },
        }
    }

    /// Returns the DAT return code, if a provider or the registry refused the call.
    ///
    /// ```
    /// use udapl::{Ia, Kind};
    ///
    /// let error = Ia::open("no-such-adapter").expect_err("it does not exist");
    /// let code = error.code().expect("the registry refused it");
    /// assert_eq!(code.kind(), Some(Kind::ProviderNotFound));
    /// println!("{code}"); // as C programs know it
    /// ```
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Call { code, .. }
            | Self::Empty { code, .. }
            | Self::TimedOut { code, .. }
            | Self::Interrupted { code, .. }
            | Self::QueueFull { code, .. }
            | Self::NotConnected { code, .. }
            | Self::State { code, .. }
            | Self::InUse { code, .. }
            | Self::AddressInUse { code, .. }
            | Self::Unreachable { code, .. }
            | Self::Unsupported { code, .. }
            | Self::Resources { code, .. } => Some(*code),
            Self::Lookup(error) => Some(error.code()),
            _ => None,
        }
    }

    /// Returns true if the error says that there is no event: an empty queue, or a time-out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty { .. } | Self::TimedOut { .. })
    }

    /// Returns true if there is no connection any more, or none could be established, and another attempt may help: the peer closed
    /// it, went away or does not answer. An operation that failed for a fault of the program, such as a wrong key, is not among these;
    /// its connection ended too.
    ///
    /// ```
    /// use udapl::{DtoStatus, Error};
    ///
    /// fn what_to_do(error: &Error) -> &'static str {
    ///     match error {
    ///         Error::Failed { status: DtoStatus::RemoteAccess, .. } => "mend the key, then connect again",
    ///         Error::Rejected { .. } => "the server does not want this client",
    ///         error if error.is_connection_gone() => "connect again",
    ///         _ => "give up",
    ///     }
    /// }
    /// # let nothing = udapl::Ia::open("no-such-adapter").unwrap_err();
    /// # assert_eq!(what_to_do(&nothing), "give up");
    /// ```
    #[must_use]
    pub fn is_connection_gone(&self) -> bool {
        let subtype = self.code().and_then(Code::subtype);
        if let Self::Disconnected { .. }
        | Self::Failed {
            status: DtoStatus::Flushed | DtoStatus::Transport,
            ..
        } = self
        {
            return true;
        }
        matches!(self, Self::NotConnected { .. })
            && matches!(
                subtype,
                Some(Subtype::InvalidStateEpDisconnected | Subtype::InvalidStateEpDiscpending)
            )
    }

    /// Returns true if an attempt to connect found nothing that listens: not yet, not any more, or at another qualifier. The user
    /// engine knows that after 0.3 s, as it asks again for so long.
    ///
    /// ```
    /// use udapl::aio::{Context, Options, block_on};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// let context = Context::open("softrxe-lo")?;
    /// let attempt = block_on(context.connect(context.address(), 31_996, &Options::default()));
    /// assert!(attempt.is_err_and(|error| error.is_refused()));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_refused(&self) -> bool {
        let how = ConnectionEvent::NonPeerRejected;
        matches!(self, Self::Disconnected { how: end } if *end == how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_failed_is_described_in_words() {
        let failed = Error::Failed {
            op: DtoOp::RdmaWrite,
            status: DtoStatus::RemoteAccess,
        };
        let text = failed.to_string();
        assert!(text.starts_with("an RDMA Write failed: the peer's key"));
        assert!(text.contains("must live"), "{text}");
        // What is asked for depends on the operation too.
        let text = |op, status| Error::Failed { op, status }.to_string();
        let atomic = text(DtoOp::FetchAdd, DtoStatus::RemoteAccess);
        assert!(atomic.contains("Access::REMOTE_ATOMIC"), "{atomic}");
        let odd = text(DtoOp::CompareSwap, DtoStatus::RemoteResponder);
        assert!(odd.contains("multiple of 8"), "{odd}");
        let long = text(DtoOp::Send, DtoStatus::RemoteResponder);
        assert!(long.contains("too long"), "{long}");
    }

    #[test]
    fn the_address_of_an_open_is_that_of_its_device() {
        let code = Code::new(Kind::InvalidAddress, Subtype::InvalidAddressMalformed);
        let text = |call| Error::of(call, code).to_string();
        let opened = text("dat_ia_open");
        assert!(opened.contains("no such device"), "{opened}");
        assert!(!opened.contains("be reached"), "{opened}");
        assert!(text("dat_ep_connect").contains("the address cannot be reached"));
    }

    #[test]
    fn codes_become_errors_that_a_program_matches_on() {
        let state = |subtype| Error::of("call", Code::state(subtype));
        assert!(matches!(
            state(Subtype::InvalidStatePzInUse),
            Error::InUse { .. }
        ));
        let ended = state(Subtype::InvalidStateEpDisconnected);
        assert!(ended.is_connection_gone(), "{ended}");
        let early = state(Subtype::InvalidStateEpUnconnected);
        assert!(matches!(early, Error::NotConnected { .. }) && !early.is_connection_gone());
        let failed = |status| Error::Failed {
            op: DtoOp::Send,
            status,
        };
        assert!(failed(DtoStatus::Transport).is_connection_gone());
        assert!(!failed(DtoStatus::RemoteAccess).is_connection_gone());
        assert!(Error::of("call", Code::of(Kind::QueueEmpty)).is_empty());
    }
}
