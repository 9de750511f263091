//! Event dispatchers and events.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_abi::types::{DAT_HANDLE_NULL, event_number};
use dat_abi::v2_0::types::DatEvent;
use dat_core::event::{AsyncEvent, ConnectionEvent, DtoOp, DtoStatus};

use crate::error::Result;
use crate::ia::Ia;
use crate::request::ConnRequest;
use crate::serial;
use crate::sys::{Handle, call, free};
use crate::{Error, Streams};

/// An event dispatcher: a queue of events. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct Evd {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    handle: Handle,
    ia: Ia,
}

impl Drop for Inner {
    fn drop(&mut self) {
        free!(self.handle, evd_free());
    }
}

/// The completion of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Endpoint ([`Ep::id`](crate::Ep::id)); 0 for a bind.
    pub ep: usize,
    /// Cookie that was passed to the post.
    pub cookie: u64,
    /// Status of the operation.
    pub status: DtoStatus,
    /// Kind of operation.
    pub op: DtoOp,
    /// Number of bytes transferred.
    pub length: u32,
}

/// An event.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A post is complete.
    Completion(Completion),
    /// A peer requests a connection.
    Request(ConnRequest),
    /// A connection is established.
    Established {
        /// Endpoint ([`Ep::id`](crate::Ep::id)).
        ep: usize,
        /// Private data of the peer's dat_cr_accept.
        private_data: Vec<u8>,
    },
    /// The peer's program rejected the request.
    PeerRejected {
        /// Endpoint ([`Ep::id`](crate::Ep::id)).
        ep: usize,
        /// Private data of the peer's dat_cr_reject.
        private_data: Vec<u8>,
    },
    /// A connection ended, or an attempt to connect failed.
    Ended {
        /// Endpoint ([`Ep::id`](crate::Ep::id)).
        ep: usize,
        /// Kind of the end.
        how: ConnectionEvent,
    },
    /// An asynchronous error.
    Async {
        /// Kind of the error.
        number: AsyncEvent,
        /// Reason code of the specification.
        reason: i32,
    },
    /// A software event of [`Evd::post`].
    Software(usize),
    /// An event of another number.
    Other(u32),
}

impl Evd {
    pub(crate) fn create(ia: &Ia, qlen: u32, streams: Streams) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        let qlen = i32::try_from(qlen).unwrap_or(i32::MAX);
        call!(
            ia.handle(),
            evd_create(qlen, DAT_HANDLE_NULL, streams.bits(), &raw mut handle)
        )?;
        Ok(Self {
            inner: Arc::new(Inner {
                handle: Handle(handle),
                ia: ia.clone(),
            }),
        })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.inner.handle
    }

    /// Takes the next event, if there is one (dat_evd_dequeue).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call). An empty queue is `Ok(None)`.
    pub fn poll(&self) -> Result<Option<Event>> {
        let mut event = DatEvent::default();
        match call!(self.handle(), evd_dequeue(&raw mut event)) {
            Ok(()) => Ok(Some(self.convert(&event))),
            Err(error) if error.is_empty() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for the next event (dat_evd_wait). Only one thread may wait at a time.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call), `DAT_TIMEOUT_EXPIRED` among others.
    pub fn wait(&self, timeout: Duration) -> Result<Event> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // 32 bits of microseconds are more than an hour; a longer wait is split.
            let mut piece = u32::try_from(left.as_micros())
                .unwrap_or(u32::MAX - 1)
                .min(u32::MAX - 1);
            let polls = serial::is_serialised(self.handle().table_address());
            if polls {
                piece = 0;
            }
            let (mut event, mut more) = (DatEvent::default(), 0);
            // `pthread_cancel` would unwind frames that own values, so a cancellation is deferred.
            let waited = dat_os::cancel::defer(|| {
                call!(
                    self.handle(),
                    evd_wait(piece, 1, &raw mut event, &raw mut more)
                )
            });
            match waited {
                Ok(()) => return Ok(self.convert(&event)),
                Err(error) if error.is_empty() && Instant::now() < deadline => {
                    if polls {
                        std::thread::sleep(serial::PAUSE.min(left));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for a successful completion.
    ///
    /// # Errors
    /// [`Error::Unexpected`](crate::Error::Unexpected) for any other event; the errors of [`Evd::wait`].
    pub fn wait_completion(&self, timeout: Duration) -> Result<Completion> {
        match self.wait(timeout)? {
            Event::Completion(done) if done.status == DtoStatus::Success => Ok(done),
            other => Err(Error::Unexpected {
                wanted: "a successful completion",
                got: format!("{other:?}"),
            }),
        }
    }

    /// Posts a software event (dat_evd_post_se).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call) if the queue is full, or the dispatcher does not accept `Streams::SOFTWARE`.
    pub fn post(&self, value: usize) -> Result<()> {
        let mut event = DatEvent {
            event_number: event_number::SOFTWARE,
            ..DatEvent::default()
        };
        event.event_data.software_event_data.pointer = value;
        call!(self.handle(), evd_post_se(&raw const event))
    }

    fn convert(&self, event: &DatEvent) -> Event {
        let number = event.event_number;
        // SAFETY: the number says which member of the union the provider filled; every member is plain data.
        unsafe {
            match number {
                event_number::DTO_COMPLETION | 0x4_0000 => {
                    let dto = event.event_data.dto_completion_event_data;
                    Event::Completion(Completion {
                        ep: dto.ep_handle,
                        cookie: dto.user_cookie,
                        status: status(dto.status),
                        op: operation(dto.operation),
                        length: dto.transfered_length,
                    })
                }
                event_number::RMR_BIND_COMPLETION => {
                    let bind = event.event_data.rmr_completion_event_data;
                    let (cookie, status) = (bind.user_cookie, status(bind.status));
                    Event::Completion(Completion {
                        ep: 0,
                        cookie,
                        status,
                        op: DtoOp::BindMw,
                        length: 0,
                    })
                }
                event_number::CONNECTION_REQUEST => {
                    let cr = event.event_data.cr_arrival_event_data.cr_handle;
                    Event::Request(ConnRequest::new(&self.inner.ia, Handle(cr)))
                }
                event_number::SOFTWARE => {
                    Event::Software(event.event_data.software_event_data.pointer)
                }
                0x4001..=0x4008 => {
                    let data = event.event_data.connect_event_data;
                    let size = usize::try_from(data.private_data_size).unwrap_or(0);
                    let private_data = match size {
                        0 => Vec::new(),
                        _ if data.private_data.is_null() => Vec::new(),
                        _ => std::slice::from_raw_parts(data.private_data.cast::<u8>(), size)
                            .to_vec(),
                    };
                    let ep = data.ep_handle;
                    match connection(number) {
                        ConnectionEvent::Established => Event::Established { ep, private_data },
                        ConnectionEvent::PeerRejected => Event::PeerRejected { ep, private_data },
                        how => Event::Ended { ep, how },
                    }
                }
                0x8001..=0x8005 => {
                    let reason = event.event_data.asynch_error_event_data.reason;
                    Event::Async {
                        number: asynchronous(number),
                        reason,
                    }
                }
                other => Event::Other(other),
            }
        }
    }
}

impl Event {
    /// Returns the peer's address of a request, for messages.
    #[must_use]
    pub fn peer(&self) -> Option<IpAddr> {
        match self {
            Self::Request(request) => Some(request.remote()),
            _ => None,
        }
    }
}

impl Ia {
    /// Creates an event dispatcher for at least `qlen` events of `streams` (dat_evd_create).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn create_evd(&self, qlen: u32, streams: Streams) -> Result<Evd> {
        Evd::create(self, qlen, streams)
    }
}

fn status(number: u32) -> DtoStatus {
    use DtoStatus as S;
    const ALL: [DtoStatus; 12] = [
        S::Success,
        S::Flushed,
        S::LocalLength,
        S::LocalEp,
        S::LocalProtection,
        S::BadResponse,
        S::RemoteAccess,
        S::RemoteResponder,
        S::Transport,
        S::ReceiverNotReady,
        S::PartialPacket,
        S::RmrOperationFailed,
    ];
    ALL.get(number as usize).copied().unwrap_or(S::BadResponse)
}

fn operation(number: u32) -> DtoOp {
    use DtoOp as O;
    const ALL: [DtoOp; 14] = [
        O::Send,
        O::RdmaWrite,
        O::RdmaRead,
        O::Receive,
        O::ReceiveWithInvalidate,
        O::BindMw,
        O::LmrInvalidate,
        O::RdmaWriteImmediate,
        O::ReceiveRdmaImmediate,
        O::FetchAdd,
        O::CompareSwap,
        O::ReceiveMessageImmediate,
        O::SendUd,
        O::ReceiveUd,
    ];
    ALL.into_iter()
        .find(|op| *op as u32 == number)
        .unwrap_or(O::Send)
}

fn connection(number: u32) -> ConnectionEvent {
    use ConnectionEvent as C;
    match number {
        0x4001 => C::Established,
        0x4002 => C::PeerRejected,
        0x4003 => C::NonPeerRejected,
        0x4004 => C::AcceptCompletionError,
        0x4005 => C::Disconnected,
        0x4007 => C::TimedOut,
        0x4008 => C::Unreachable,
        _ => C::Broken,
    }
}

fn asynchronous(number: u32) -> AsyncEvent {
    use AsyncEvent as A;
    match number {
        0x8001 => A::EvdOverflow,
        0x8002 => A::IaCatastrophic,
        0x8003 => A::EpBroken,
        0x8004 => A::TimedOut,
        _ => A::ProviderInternalError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_convert_to_the_values_of_the_same_number() {
        for number in 0..12 {
            assert_eq!(status(number) as u32, number);
        }
        for number in [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14] {
            assert_eq!(operation(number) as u32, number);
        }
        for number in 0x4001..=0x4008 {
            assert_eq!(connection(number) as u32, number);
        }
        for number in 0x8001..=0x8005 {
            assert_eq!(asynchronous(number) as u32, number);
        }
        assert_eq!(status(99), DtoStatus::BadResponse);
    }
}
