//! Event dispatchers and their events, consumer notification objects.

use std::mem::MaybeUninit;
use std::time::Duration;

use dat_core::error::{Kind, Result};

use super::{Ep, Request, call, kinds};
use crate::boundary::limit;
use crate::types::{DAT_HANDLE_NULL, DAT_TIMEOUT_INFINITE, DatHandle, event_number};
use crate::v2_0::types::{DAT_IB_DTO_EVENT, DatEvent};

kinds! {
    /// An event dispatcher.
    Evd;
    /// A consumer notification object: a place to wait for several EVDs.
    Cno;
}

/// Names an endpoint in events; equal to [`Ep::id`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EpId(pub(super) DatHandle);

/// A finished DTO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Whose.
    pub ep: EpId,
    /// As posted.
    pub cookie: u64,
    /// `DAT_DTO_COMPLETION_STATUS`: 0 is success.
    pub status: u32,
    /// Bytes, on success.
    pub length: u32,
    /// Immediate data that came with a message, or 0.
    pub immediate: u32,
}

/// What happened to a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionEvent {
    /// `DAT_EVENT_NUMBER`: one of `DAT_CONNECTION_EVENT_*`.
    pub number: u32,
    /// Whose.
    pub ep: EpId,
    /// The peer's, from dat_cr_accept or dat_cr_reject.
    pub private_data: Vec<u8>,
}

/// An event of an EVD.
#[derive(Debug)]
pub enum Event {
    /// A DTO is done.
    Completion(Completion),
    /// A bind of an RMR is done: cookie and status.
    Bind(u64, u32),
    /// A peer wants to connect. Dropping the request rejects it.
    Request(Request),
    /// A connection was made, or ended, or was not made.
    Connection(ConnectionEvent),
    /// `DAT_ASYNC_ERROR_*`: number and reason.
    Async(u32, i32),
    /// dat_evd_post_se's word.
    Software(usize),
    /// An event of an extension that this module does not know.
    Other(u32),
}

/// `DAT_TIMEOUT`; what is longer than it can say is infinite.
pub(super) fn microseconds(timeout: Option<Duration>) -> u32 {
    timeout.map_or(DAT_TIMEOUT_INFINITE, |t| {
        u32::try_from(t.as_micros()).unwrap_or(DAT_TIMEOUT_INFINITE)
    })
}

impl Evd {
    /// dat_evd_wait for `threshold` events; the first of them, and how many are left. `None` waits for ever.
    ///
    /// # Errors
    /// `DAT_TIMEOUT_EXPIRED`, `DAT_INVALID_STATE` (somebody waits already) and the provider's others.
    pub fn wait(&self, timeout: Option<Duration>, threshold: u32) -> Result<(Event, u32)> {
        let (mut event, mut more) = (DatEvent::default(), 0);
        call!(
            self.0,
            evd_wait(
                self.raw(),
                microseconds(timeout),
                limit(threshold),
                &raw mut event,
                &raw mut more,
            )
        )?;
        Ok((self.decode(&event), u32::try_from(more).unwrap_or(0)))
    }

    /// dat_evd_dequeue; `None` if there is no event.
    ///
    /// # Errors
    /// The provider's.
    pub fn dequeue(&self) -> Result<Option<Event>> {
        let mut event = DatEvent::default();
        match call!(self.0, evd_dequeue(self.raw(), &raw mut event)) {
            Ok(()) => Ok(Some(self.decode(&event))),
            Err(error) if error.kind() == Some(Kind::QueueEmpty) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// dat_evd_post_se.
    ///
    /// # Errors
    /// `DAT_QUEUE_FULL` and the provider's others.
    pub fn post_software(&self, word: usize) -> Result<()> {
        let mut event = DatEvent {
            event_number: event_number::SOFTWARE,
            ..DatEvent::default()
        };
        event.event_data.software_event_data.pointer = word;
        call!(self.0, evd_post_se(self.raw(), &raw const event))
    }

    fn decode(&self, event: &DatEvent) -> Event {
        let data = &event.event_data;
        // SAFETY: the number says which field the provider filled; all bits of each are valid.
        unsafe {
            match event.event_number {
                number @ (event_number::DTO_COMPLETION | DAT_IB_DTO_EVENT) => {
                    let done = data.dto_completion_event_data;
                    let immediate = if number == DAT_IB_DTO_EVENT {
                        event.event_extension_data[1] as u32
                    } else {
                        0
                    };
                    Event::Completion(Completion {
                        ep: EpId(done.ep_handle),
                        cookie: done.user_cookie,
                        status: done.status,
                        length: done.transfered_length,
                        immediate,
                    })
                }
                event_number::RMR_BIND_COMPLETION => {
                    let done = data.rmr_completion_event_data;
                    Event::Bind(done.user_cookie, done.status)
                }
                event_number::CONNECTION_REQUEST => {
                    let arrival = data.cr_arrival_event_data;
                    Event::Request(Request::new(arrival.cr_handle, arrival.conn_qual, &self.0))
                }
                number @ 0x4001..=0x4fff => {
                    let change = data.connect_event_data;
                    let size = usize::try_from(change.private_data_size).unwrap_or(0);
                    let private_data = if change.private_data.is_null() || size == 0 {
                        Vec::new()
                    } else {
                        std::slice::from_raw_parts(change.private_data.cast::<u8>(), size).to_vec()
                    };
                    Event::Connection(ConnectionEvent {
                        number,
                        ep: EpId(change.ep_handle),
                        private_data,
                    })
                }
                number @ 0x8001..=0x8fff => {
                    Event::Async(number, data.asynch_error_event_data.reason)
                }
                event_number::SOFTWARE => Event::Software(data.software_event_data.pointer),
                number => Event::Other(number),
            }
        }
    }
}

impl Cno {
    /// dat_cno_wait: whether one of its EVDs has an event before the time is over.
    ///
    /// # Errors
    /// `DAT_INTERRUPTED_CALL` and the provider's others.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        let mut evd = MaybeUninit::new(DAT_HANDLE_NULL);
        match call!(
            self.0,
            cno_wait(self.raw(), microseconds(timeout), evd.as_mut_ptr())
        ) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == Some(Kind::QueueEmpty) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Ep {
    /// Its name in events.
    #[must_use]
    pub fn id(&self) -> EpId {
        EpId(self.raw())
    }
}
