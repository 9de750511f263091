//! Numbers of events and statuses, as `dat.h` names them in what the suite prints.

use std::fmt;

use dat_core::event::ConnectionEvent;

/// `DAT_DTO_COMPLETION_STATUS`, or `DAT_RMR_BIND_COMPLETION_STATUS`, which has the same first numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

/// In the order of their numbers.
const STATUSES: [&str; 12] = [
    "DAT_DTO_SUCCESS",
    "DAT_DTO_ERR_FLUSHED",
    "DAT_DTO_ERR_LOCAL_LENGTH",
    "DAT_DTO_ERR_LOCAL_EP",
    "DAT_DTO_ERR_LOCAL_PROTECTION",
    "DAT_DTO_ERR_BAD_RESPONSE",
    "DAT_DTO_ERR_REMOTE_ACCESS",
    "DAT_DTO_ERR_REMOTE_RESPONDER",
    "DAT_DTO_ERR_TRANSPORT",
    "DAT_DTO_ERR_RECEIVER_NOT_READY",
    "DAT_DTO_ERR_PARTIAL_PACKET",
    "DAT_RMR_OPERATION_FAILED",
];

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        named(f, STATUSES.get(self.0 as usize).copied(), self.0)
    }
}

/// `DAT_EVENT_NUMBER`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EventNumber(pub u32);

impl From<ConnectionEvent> for EventNumber {
    fn from(event: ConnectionEvent) -> Self {
        Self(event as u32)
    }
}

impl fmt::Debug for EventNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            0x0001 => "DAT_DTO_COMPLETION_EVENT",
            0x1001 => "DAT_RMR_BIND_COMPLETION_EVENT",
            0x2001 => "DAT_CONNECTION_REQUEST_EVENT",
            0x4001 => "DAT_CONNECTION_EVENT_ESTABLISHED",
            0x4002 => "DAT_CONNECTION_EVENT_PEER_REJECTED",
            0x4003 => "DAT_CONNECTION_EVENT_NON_PEER_REJECTED",
            0x4004 => "DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR",
            0x4005 => "DAT_CONNECTION_EVENT_DISCONNECTED",
            0x4006 => "DAT_CONNECTION_EVENT_BROKEN",
            0x4007 => "DAT_CONNECTION_EVENT_TIMED_OUT",
            0x4008 => "DAT_CONNECTION_EVENT_UNREACHABLE",
            0x8001 => "DAT_ASYNC_ERROR_EVD_OVERFLOW",
            0x8002 => "DAT_ASYNC_ERROR_IA_CATASTROPHIC",
            0x8003 => "DAT_ASYNC_ERROR_EP_BROKEN",
            0x8004 => "DAT_ASYNC_ERROR_TIMED_OUT",
            0x8005 => "DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR",
            _ => return named(f, None, self.0),
        };
        named(f, Some(name), self.0)
    }
}

fn named(f: &mut fmt::Formatter<'_>, name: Option<&str>, number: u32) -> fmt::Result {
    match name {
        Some(name) => f.write_str(name),
        None => write!(f, "{number:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use dat_abi::types::event_number;
    use dat_core::event::{AsyncEvent, DtoStatus};

    use super::*;

    #[test]
    fn names_are_those_of_the_numbers() {
        let status = |status: DtoStatus| format!("{:?}", Status(status as u32));
        assert_eq!(status(DtoStatus::Success), "DAT_DTO_SUCCESS");
        assert_eq!(status(DtoStatus::Flushed), "DAT_DTO_ERR_FLUSHED");
        assert_eq!(status(DtoStatus::RemoteAccess), "DAT_DTO_ERR_REMOTE_ACCESS");
        assert_eq!(format!("{:?}", Status(77)), "0x4d");
        for (number, name) in [
            (event_number::DTO_COMPLETION, "DAT_DTO_COMPLETION_EVENT"),
            (
                event_number::RMR_BIND_COMPLETION,
                "DAT_RMR_BIND_COMPLETION_EVENT",
            ),
            (
                event_number::CONNECTION_REQUEST,
                "DAT_CONNECTION_REQUEST_EVENT",
            ),
            (
                ConnectionEvent::Broken as u32,
                "DAT_CONNECTION_EVENT_BROKEN",
            ),
            (AsyncEvent::EpBroken as u32, "DAT_ASYNC_ERROR_EP_BROKEN"),
            (0x4_0002, "0x40002"),
        ] {
            assert_eq!(format!("{:?}", EventNumber(number)), name);
        }
    }
}
