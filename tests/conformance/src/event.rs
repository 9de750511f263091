//! Events as a C consumer receives them, in a form that can be compared.

use dat_abi::types::event_number;
use dat_abi::v2_0::types::DatEvent;
use dat_core::event::DtoStatus;

use crate::names::{EventNumber, Status};

/// An event dequeued from an EVD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// `DAT_DTO_COMPLETION_EVENT`.
    Dto {
        /// The endpoint.
        ep: usize,
        /// Cookie of the post.
        cookie: u64,
        /// `DAT_DTO_COMPLETION_STATUS`.
        status: Status,
        /// Transferred length in bytes.
        length: u32,
    },
    /// `DAT_RMR_BIND_COMPLETION_EVENT`.
    Bind {
        /// The window.
        rmr: usize,
        /// Cookie of the post.
        cookie: u64,
        /// `DAT_RMR_BIND_COMPLETION_STATUS`.
        status: Status,
    },
    /// `DAT_CONNECTION_REQUEST_EVENT`.
    Request {
        /// The service point.
        sp: usize,
        /// The request.
        cr: usize,
        /// Qualifier of the service point.
        conn_qual: u64,
    },
    /// `DAT_CONNECTION_EVENT_*`.
    Connection {
        /// Event number.
        number: EventNumber,
        /// The endpoint.
        ep: usize,
    },
    /// `DAT_SOFTWARE_EVENT`.
    Software(usize),
    /// Any other event, by number.
    Other(EventNumber),
}

impl Seen {
    pub(crate) fn of(event: &DatEvent) -> Self {
        let data = event.event_data;
        match event.event_number {
            event_number::DTO_COMPLETION => {
                // SAFETY: the event number selects the field; all fields are plain words.
                let d = unsafe { data.dto_completion_event_data };
                Self::Dto {
                    ep: d.ep_handle,
                    cookie: d.user_cookie,
                    status: Status(d.status),
                    length: d.transfered_length,
                }
            }
            event_number::RMR_BIND_COMPLETION => {
                // SAFETY: as above.
                let d = unsafe { data.rmr_completion_event_data };
                Self::Bind {
                    rmr: d.rmr_handle,
                    cookie: d.user_cookie,
                    status: Status(d.status),
                }
            }
            event_number::CONNECTION_REQUEST => {
                // SAFETY: as above.
                let d = unsafe { data.cr_arrival_event_data };
                Self::Request {
                    sp: d.sp_handle,
                    cr: d.cr_handle,
                    conn_qual: d.conn_qual,
                }
            }
            number @ 0x4001..=0x4fff => {
                // SAFETY: as above.
                let d = unsafe { data.connect_event_data };
                Self::Connection {
                    number: EventNumber(number),
                    ep: d.ep_handle,
                }
            }
            event_number::SOFTWARE => {
                // SAFETY: as above.
                Self::Software(unsafe { data.software_event_data.pointer })
            }
            number => Self::Other(EventNumber(number)),
        }
    }

    /// Returns cookie and status of a completion.
    pub(crate) fn completion(self) -> Option<(u64, Status)> {
        match self {
            Self::Dto { cookie, status, .. } | Self::Bind { cookie, status, .. } => {
                Some((cookie, status))
            }
            _ => None,
        }
    }
}

pub(crate) const SUCCESS: Status = Status(DtoStatus::Success as u32);
pub(crate) const FLUSHED: Status = Status(DtoStatus::Flushed as u32);
pub(crate) const REMOTE_ACCESS: Status = Status(DtoStatus::RemoteAccess as u32);
pub(crate) const LOCAL_PROTECTION: Status = Status(DtoStatus::LocalProtection as u32);
