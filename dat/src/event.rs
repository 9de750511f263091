//! Events, and their conversion from C structures.

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use dat_abi::types::{DAT_HANDLE_NULL, event_number};
use dat_abi::v2_0::types::DatDtoCompletionEventData;
use dat_abi::v2_0::types::{DAT_IB_DTO_EVENT, DatEvent, DatEventData, DatIbExtensionEventData};
use dat_abi::v2_0::types::{DAT_IB_UD_CONNECTION_REQUEST_EVENT, ib_ext_type};
use dat_core::event::{AsyncEvent, ConnectionEvent, DatagramEvent, DtoOp, DtoStatus};

use crate::error::{Error, Result};
use crate::ia::Ia;
use crate::ids::{self, EpId, Recent};
use crate::memory::copy;
use crate::peer::Peer;
use crate::request::ConnRequest;
use crate::sys::Handle;

/// The completion of a post.
///
/// ```
/// use std::time::Duration;
/// use udapl::{Access, DtoOp, DtoStatus, Event};
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
///
/// # fn main() -> Result<(), udapl::Error> {
/// # let (pz, (client, sent), (server, received)) = pair()?;
/// # let room = pz.allocate(64, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
/// # server.post_recv(&[room.slice(0..64)], 7)?;
/// # client.post_send(&[room.slice(0..5)], 8)?;
/// // `server` has posted a receive with cookie 7, and the peer sends 5 bytes.
/// let Event::Completion(done) = received.wait(Duration::from_secs(60))? else { panic!() };
/// assert_eq!((done.ep, done.cookie, done.length), (server.id(), 7, 5));
/// match done.status {
///     DtoStatus::Success => assert_eq!(done.op, DtoOp::Receive),
///     DtoStatus::Flushed => println!("the connection ended before a message came"),
///     other => println!("the connection broke: {other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// Endpoint ([`Ep::id`](crate::Ep::id)); [`EpId::NONE`] for a bind.
    pub ep: EpId,
    /// Cookie that was passed to the post.
    pub cookie: u64,
    /// Status of the operation.
    pub status: DtoStatus,
    /// Kind of operation.
    pub op: DtoOp,
    /// Number of bytes transferred.
    pub length: u32,
    /// Key of the window that the message invalidated, or 0.
    pub invalidated: u32,
    /// The value that came with the message, or 0 if `op` is not an operation with immediate data.
    pub immediate: u32,
}

impl Completion {
    /// Converts what a provider filled; `ep` is the number of the endpoint.
    #[inline]
    pub(crate) fn of(dto: &DatDtoCompletionEventData, ep: EpId, immediate: u32) -> Self {
        Self {
            ep,
            cookie: dto.user_cookie,
            status: status(dto.status),
            op: operation(dto.operation),
            length: dto.transfered_length,
            invalidated: dto.rmr_context,
            immediate,
        }
    }

    /// Returns the completion if the operation succeeded.
    ///
    /// ```
    /// use udapl::{Error, Event};
    ///
    /// fn take(event: Event) -> Result<(), Error> {
    ///     if let Event::Completion(done) = event {
    ///         let done = done.result()?;
    ///         println!("{} bytes of post {}", done.length, done.cookie);
    ///     }
    ///     Ok(())
    /// }
    /// # take(Event::Software(1)).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Failed`].
    #[inline]
    pub fn result(self) -> Result<Self> {
        let Self { op, status, .. } = self;
        match status {
            DtoStatus::Success => Ok(self),
            _ => Err(Error::Failed { op, status }),
        }
    }
}

/// An event.
///
/// Examples: [`Evd`](crate::Evd), and part 3 of the [`tutorial`](crate::tutorial).
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A post is complete.
    Completion(Completion),
    /// A peer requests a connection, or sends a datagram endpoint's request.
    Request(ConnRequest),
    /// A connection is established.
    Established {
        /// Endpoint ([`Ep::id`](crate::Ep::id)).
        ep: EpId,
        /// Private data of the peer's dat_cr_accept.
        private_data: Vec<u8>,
    },
    /// The peer's program rejected the request.
    PeerRejected {
        /// Endpoint ([`Ep::id`](crate::Ep::id)).
        ep: EpId,
        /// Private data of the peer's dat_cr_reject.
        private_data: Vec<u8>,
    },
    /// A connection ended, or an attempt to connect failed.
    Ended {
        /// Endpoint ([`Ep::id`](crate::Ep::id)).
        ep: EpId,
        /// Kind of the end.
        how: ConnectionEvent,
    },
    /// A datagram endpoint found a peer, or did not.
    Datagram {
        /// Endpoint ([`Ep::id`](crate::Ep::id)).
        ep: EpId,
        /// Result.
        how: DatagramEvent,
        /// The peer, if it was found.
        peer: Option<Peer>,
        /// Private data of the peer's answer.
        private_data: Vec<u8>,
    },
    /// An asynchronous error, of the dispatcher of [`Ia::async_evd`].
    Async {
        /// Kind of the error.
        number: AsyncEvent,
        /// Endpoint of the error; [`EpId::NONE`] if it concerns another object.
        ep: EpId,
        /// Reason code of the specification.
        reason: i32,
    },
    /// A software event of [`Evd::post`](crate::Evd::post).
    Software(usize),
    /// An event of another number.
    Other(u32),
}

impl Event {
    /// Converts an event that a provider filled.
    #[inline]
    pub(crate) fn of(ia: &Ia, recent: &Recent, event: &DatEvent) -> Self {
        if event.event_number == event_number::DTO_COMPLETION {
            // SAFETY: the number says so.
            let dto = unsafe { event.event_data.dto_completion_event_data };
            return Self::completed(&dto, recent, 0);
        }
        Self::rare(ia, recent, event)
    }

    #[inline]
    fn completed(dto: &DatDtoCompletionEventData, recent: &Recent, immediate: u32) -> Self {
        let ep = recent.complete(dto.ep_handle, dto.operation);
        Self::Completion(Completion::of(dto, ep, immediate))
    }

    #[cold]
    fn rare(ia: &Ia, recent: &Recent, event: &DatEvent) -> Self {
        let number = event.event_number;
        // SAFETY: the number says which member of the union the provider filled; every member is plain data.
        unsafe {
            match number {
                DAT_IB_DTO_EVENT => {
                    let dto = event.event_data.dto_completion_event_data;
                    Self::completed(&dto, recent, extension(event).val)
                }
                event_number::RMR_BIND_COMPLETION => {
                    let bind = event.event_data.rmr_completion_event_data;
                    Self::Completion(Completion {
                        ep: EpId::NONE,
                        cookie: bind.user_cookie,
                        status: status(bind.status),
                        op: DtoOp::BindMw,
                        length: 0,
                        invalidated: 0,
                        immediate: 0,
                    })
                }
                event_number::CONNECTION_REQUEST | DAT_IB_UD_CONNECTION_REQUEST_EVENT => {
                    let cr = event.event_data.cr_arrival_event_data;
                    let datagram = number == DAT_IB_UD_CONNECTION_REQUEST_EVENT;
                    Self::Request(ConnRequest::new(
                        ia,
                        Handle(cr.cr_handle),
                        cr.conn_qual,
                        datagram,
                    ))
                }
                event_number::SOFTWARE => {
                    Self::Software(event.event_data.software_event_data.pointer)
                }
                0x4001..=0x4008 => {
                    let (ep, private_data) = connection_data(event);
                    match connection(number) {
                        ConnectionEvent::Established => Self::Established { ep, private_data },
                        ConnectionEvent::PeerRejected => Self::PeerRejected { ep, private_data },
                        how => Self::Ended { ep, how },
                    }
                }
                0x4_0002..=0x4_0004 => {
                    let (ep, private_data) = connection_data(event);
                    let how = match number {
                        0x4_0002 => DatagramEvent::Established,
                        0x4_0003 => DatagramEvent::Rejected,
                        _ => DatagramEvent::Failed,
                    };
                    let data = extension(event);
                    let found = [ib_ext_type::UD_REMOTE_AH, ib_ext_type::UD_PASSIVE_REMOTE_AH];
                    let found = how == DatagramEvent::Established && found.contains(&data.r#type);
                    Self::Datagram {
                        ep,
                        how,
                        peer: found.then(|| Peer::new(ia, data)),
                        private_data,
                    }
                }
                0x8001..=0x8005 => {
                    let data = event.event_data.asynch_error_event_data;
                    Self::Async {
                        number: asynchronous(number),
                        ep: ids::id(data.dat_handle),
                        reason: data.reason,
                    }
                }
                other => Self::Other(other),
            }
        }
    }

    /// Returns the peer's address of a request, for messages.
    #[must_use]
    pub fn peer(&self) -> Option<IpAddr> {
        match self {
            Self::Request(request) => Some(request.remote()),
            _ => None,
        }
    }
}

/// Room for an event that a provider fills. Not all of it is cleared before, because that takes time.
pub(crate) struct Filled(MaybeUninit<DatEvent>);

impl Filled {
    /// Clears the fields of a completion that uDAPL 2.0 added, which a provider may leave alone.
    #[inline]
    pub(crate) fn clear(&mut self) -> *mut DatEvent {
        let at = self.0.as_mut_ptr();
        // SAFETY: fields of a live value; all of them are plain data.
        unsafe {
            let dto = &raw mut (*at).event_data.dto_completion_event_data;
            (&raw mut (*dto).operation).write(0);
            (&raw mut (*dto).rmr_context).write(0);
        }
        at
    }

    /// Clears all of it, for an event of any number.
    #[inline]
    pub(crate) fn zero(&mut self) -> *mut DatEvent {
        self.0.write(DatEvent::default())
    }

    #[inline]
    pub(crate) const fn uninit() -> Self {
        Self(MaybeUninit::uninit())
    }

    #[inline]
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: a provider that returns an event fills its number.
        unsafe { (&raw const (*self.0.as_ptr()).event_number).read() }
    }

    #[inline]
    fn data(&self) -> DatEventData {
        // SAFETY: a union, which may have bytes without a value.
        unsafe { (&raw const (*self.0.as_ptr()).event_data).read() }
    }

    fn extension(&self) -> [u64; 8] {
        if EXTENSION.contains(&self.number()) {
            // SAFETY: the provider fills the data of an event of this number.
            unsafe { (&raw const (*self.0.as_ptr()).event_extension_data).read() }
        } else {
            [0; 8]
        }
    }

    /// Returns the data of an endpoint's completion.
    #[inline]
    pub(crate) fn completion(&self) -> DatDtoCompletionEventData {
        // SAFETY: the provider filled the fields, or they were cleared.
        unsafe { self.data().dto_completion_event_data }
    }

    /// Makes a bind's completion one of an endpoint, and returns the immediate data; `None` for an event that is no completion.
    pub(crate) fn make_completion(&mut self) -> Option<u32> {
        match self.number() {
            event_number::RMR_BIND_COMPLETION => {
                // SAFETY: as the number says.
                let bind = unsafe { self.data().rmr_completion_event_data };
                let dto_completion_event_data = DatDtoCompletionEventData {
                    ep_handle: DAT_HANDLE_NULL,
                    user_cookie: bind.user_cookie,
                    status: bind.status,
                    transfered_length: 0,
                    operation: DtoOp::BindMw as u32,
                    rmr_context: 0,
                };
                let data = DatEventData {
                    dto_completion_event_data,
                };
                // SAFETY: a field of a live value.
                unsafe { (&raw mut (*self.0.as_mut_ptr()).event_data).write(data) };
                Some(0)
            }
            DAT_IB_DTO_EVENT => Some(extension(&self.whole()).val),
            _ => None,
        }
    }

    /// Returns the event, of any number.
    #[cold]
    #[inline(never)]
    pub(crate) fn whole(&self) -> DatEvent {
        DatEvent {
            event_number: self.number(),
            event_data: self.data(),
            event_extension_data: self.extension(),
            ..DatEvent::default()
        }
    }
}

/// Numbers of the events of extensions.
const EXTENSION: RangeInclusive<u32> = 0x4_0000..=0x4_ffff;

/// # Safety
/// The provider filled the member for connections, whose private data it keeps until the endpoint is reset or freed.
unsafe fn connection_data(event: &DatEvent) -> (EpId, Vec<u8>) {
    // SAFETY: the caller's promise.
    unsafe {
        let data = event.event_data.connect_event_data;
        let private_data = match usize::try_from(data.private_data_size) {
            Ok(size) if size > 0 && !data.private_data.is_null() => {
                let mut bytes = vec![0; size];
                // They lie in the endpoint, whose next connection may replace them now: another thread may reset and connect it.
                copy::read(data.private_data.cast::<u8>(), &mut bytes);
                bytes
            }
            _ => Vec::new(),
        };
        (ids::id(data.ep_handle), private_data)
    }
}

/// Returns the data that the IB extension adds to an event.
fn extension(event: &DatEvent) -> DatIbExtensionEventData {
    // SAFETY: 64 aligned bytes, which are plain data of any value.
    unsafe {
        event
            .event_extension_data
            .as_ptr()
            .cast::<DatIbExtensionEventData>()
            .read()
    }
}

#[inline]
fn status(number: u32) -> DtoStatus {
    use DtoStatus as S;
    // Not a table: a comparison with one of them is one with its number.
    match number {
        0 => S::Success,
        1 => S::Flushed,
        2 => S::LocalLength,
        3 => S::LocalEp,
        4 => S::LocalProtection,
        6 => S::RemoteAccess,
        7 => S::RemoteResponder,
        8 => S::Transport,
        9 => S::ReceiverNotReady,
        10 => S::PartialPacket,
        11 => S::RmrOperationFailed,
        _ => S::BadResponse,
    }
}

#[inline]
fn operation(number: u32) -> DtoOp {
    use DtoOp as O;
    const ALL: [DtoOp; 15] = [
        O::Send,
        O::RdmaWrite,
        O::RdmaRead,
        O::Receive,
        O::ReceiveWithInvalidate,
        O::BindMw,
        O::Send,
        O::LmrInvalidate,
        O::RdmaWriteImmediate,
        O::ReceiveRdmaImmediate,
        O::FetchAdd,
        O::CompareSwap,
        O::ReceiveMessageImmediate,
        O::SendUd,
        O::ReceiveUd,
    ];
    ALL.get(number as usize).copied().unwrap_or(O::Send)
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
