//! Errors of posts.

use std::fmt;

use dat_core::error::{Error as Code, Kind};

use crate::error::{Error, Queue, is_not_connected};

/// The call that refused a post. Example: [`PostError`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum PostCall {
    /// dat_ep_post_send.
    Send,
    /// dat_ep_post_send_with_invalidate.
    SendWithInvalidate,
    /// dat_ep_post_recv.
    Receive,
    /// dat_srq_post_recv.
    SharedReceive,
    /// dat_ep_post_rdma_write.
    RdmaWrite,
    /// dat_ep_post_rdma_read.
    RdmaRead,
    /// dat_ep_post_rdma_read_to_rmr.
    RdmaReadToRmr,
    /// dat_ib_post_rdma_write_immed.
    RdmaWriteImmediate,
    /// dat_ib_post_fetch_and_add.
    FetchAdd,
    /// dat_ib_post_cmp_and_swap.
    CompareSwap,
    /// dat_ib_post_send_ud.
    Datagram,
}

impl PostCall {
    /// Returns the name of the DAT function.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "dat_ep_post_send",
            Self::SendWithInvalidate => "dat_ep_post_send_with_invalidate",
            Self::Receive => "dat_ep_post_recv",
            Self::SharedReceive => "dat_srq_post_recv",
            Self::RdmaWrite => "dat_ep_post_rdma_write",
            Self::RdmaRead => "dat_ep_post_rdma_read",
            Self::RdmaReadToRmr => "dat_ep_post_rdma_read_to_rmr",
            Self::RdmaWriteImmediate => "dat_ib_post_rdma_write_immed",
            Self::FetchAdd => "dat_ib_post_fetch_and_add",
            Self::CompareSwap => "dat_ib_post_cmp_and_swap",
            Self::Datagram => "dat_ib_post_send_ud",
        }
    }

    /// Returns the queue of the post.
    #[must_use]
    pub const fn queue(self) -> Queue {
        match self {
            Self::Receive | Self::SharedReceive => Queue::Receives,
            _ => Queue::Requests,
        }
    }
}

impl fmt::Display for PostCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The reason why a post was refused. Nothing was posted. It is small and `Copy`, unlike [`Error`], because every post returns one or
/// none; `?` makes an [`Error`] of it.
///
/// ```
/// use udapl::{Ep, PostError, Slice};
///
/// /// Posts a message; returns false if completions must be taken first.
/// fn try_send(ep: &Ep, message: Slice<'_>) -> Result<bool, udapl::Error> {
///     match ep.post_send(&[message], 7) {
///         Ok(()) => Ok(true),
///         Err(PostError::QueueFull { .. }) => Ok(false),
///         Err(other) => Err(other.into()),
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PostError {
    /// The queue is full. Take completions from its dispatcher first, or make it larger.
    QueueFull {
        /// The call.
        call: PostCall,
        /// The DAT return code.
        code: Code,
    },
    /// The endpoint has no connection: not yet, or not any more. [`PostError::is_connection_gone`] tells these apart.
    NotConnected {
        /// The call.
        call: PostCall,
        /// The DAT return code, whose subtype has the endpoint's state.
        code: Code,
    },
    /// A post has more segments than the endpoint allows (`EpBuilder::max_segments`).
    TooManySegments {
        /// The call.
        call: PostCall,
        /// The maximum.
        most: u8,
        /// Number of segments.
        given: u32,
    },
    /// A region belongs to another protection zone or adapter than the endpoint or SRQ.
    OtherZone {
        /// The call.
        call: PostCall,
    },
    /// A receive or a read needs a region with [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE).
    ReadOnly {
        /// The call.
        call: PostCall,
    },
    /// The endpoint has no dispatcher for the completion.
    NoEvd {
        /// The call.
        call: PostCall,
    },
    /// An endpoint with an SRQ takes its receives from there.
    HasSrq {
        /// The call.
        call: PostCall,
    },
    /// Another error of the provider.
    Refused {
        /// The call.
        call: PostCall,
        /// The DAT return code.
        code: Code,
    },
}

impl PostError {
    /// Makes the error for a code that `call` returned.
    #[cold]
    pub(crate) fn of(call: PostCall, code: Code) -> Self {
        match code.kind() {
            Some(Kind::InsufficientResources) => Self::QueueFull { call, code },
            Some(Kind::InvalidState) if is_not_connected(code.subtype()) => {
                Self::NotConnected { call, code }
            }
            _ => Self::Refused { call, code },
        }
    }

    /// Returns the DAT return code, if the provider refused the post.
    #[must_use]
    pub fn code(self) -> Option<Code> {
        Error::from(self).code()
    }

    /// Returns true if there is no connection any more, and another attempt to connect may help ([`Error::is_connection_gone`]).
    #[must_use]
    pub fn is_connection_gone(self) -> bool {
        Error::from(self).is_connection_gone()
    }
}

impl From<PostError> for Error {
    #[cold]
    fn from(error: PostError) -> Self {
        type E = PostError;
        let queue = |call: PostCall| (call.name(), call.queue());
        match error {
            E::QueueFull { call, code } => {
                let (call, queue) = queue(call);
                Self::QueueFull { call, queue, code }
            }
            E::NotConnected { call, code } => Self::NotConnected {
                call: call.name(),
                code,
            },
            E::TooManySegments { call, most, given } => Self::TooManySegments {
                call: call.name(),
                given: given as usize,
                most: most.into(),
            },
            E::OtherZone { call } => Self::OtherZone { call: call.name() },
            E::ReadOnly { call } => Self::ReadOnly { call: call.name() },
            E::NoEvd { call } => {
                let (call, queue) = queue(call);
                Self::NoEvd { call, queue }
            }
            E::HasSrq { call } => Self::HasSrq { call: call.name() },
            E::Refused { call, code } => Self::of(call.name(), code),
        }
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Error::from(*self).fmt(f)
    }
}

impl std::error::Error for PostError {}

/// The reason why [`Evd::poll_completion`](crate::Evd::poll_completion) has no answer. It is small and `Copy`; `?` makes an [`Error`] of
/// it. Example: [`Evd::poll_completion`](crate::Evd::poll_completion).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PollError {
    /// The event is the end of a connection, or a failed attempt to connect.
    Disconnected {
        /// Kind of the end.
        how: dat_core::event::ConnectionEvent,
    },
    /// The dispatcher took another event, which is lost: [`Evd::poll`](crate::Evd::poll) is for such a dispatcher.
    Unexpected {
        /// `DAT_EVENT_NUMBER`.
        number: u32,
    },
    /// The provider refused the call.
    Refused {
        /// The DAT return code.
        code: Code,
    },
}

impl From<PollError> for Error {
    #[cold]
    fn from(error: PollError) -> Self {
        match error {
            PollError::Disconnected { how } => Self::Disconnected { how },
            PollError::Unexpected { number } => Self::Unexpected {
                wanted: "a completion",
                got: format!("event {number:#x}"),
            },
            PollError::Refused { code } => Self::of("dat_evd_dequeue", code),
        }
    }
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Error::from(*self).fmt(f)
    }
}

impl std::error::Error for PollError {}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_core::error::Subtype;

    #[test]
    fn an_error_fits_a_register() {
        assert!(size_of::<Result<(), PostError>>() <= 8);
        assert!(size_of::<PollError>() <= 8);
    }

    #[test]
    fn codes_become_errors_that_a_program_matches_on() {
        let full = PostError::of(PostCall::Receive, Code::resource(Subtype::ResourceMemory));
        assert!(matches!(full, PostError::QueueFull { .. }));
        assert!(
            full.to_string().contains("queue of receives is full"),
            "{full}"
        );
        let state = |subtype| PostError::of(PostCall::Send, Code::state(subtype));
        let ended = state(Subtype::InvalidStateEpDisconnected);
        assert!(matches!(ended, PostError::NotConnected { .. }) && ended.is_connection_gone());
        assert!(!state(Subtype::InvalidStateEpUnconnected).is_connection_gone());
        let other = PostError::of(PostCall::RdmaWrite, Code::of(Kind::NotImplemented));
        assert!(
            matches!(Error::from(other), Error::Unsupported { .. }),
            "{other}"
        );
        assert_eq!(other.code(), Some(Code::of(Kind::NotImplemented)));
    }
}
