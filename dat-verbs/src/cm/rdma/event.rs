//! Events of librdmacm, copied and acknowledged at once. Destroying an id waits until its events are acknowledged, and
//! the destroying thread may hold a lock that the event thread needs.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::cm::rdma::id::{Channel, CmId};
use crate::cm::rdma::stage::Input;
use crate::convert;
use crate::sys::{self, rdma_cm_event_type as kind};

/// Private data is at most 255 bytes long.
type PrivateData = ([u8; 255], usize);

/// A copied event and the key of its target.
pub(crate) struct Event {
    /// Key of the id; for a request that of the listener.
    pub(crate) key: u64,
    pub(crate) kind: EventKind,
    private_data: PrivateData,
}

pub(crate) enum EventKind {
    /// Input to the connection, or to the pending request, with that key.
    Conn(Input),
    /// Input to the resolution with that key, with the queue pair that a positive reply names.
    Resolution(Input, Option<ResolvedQp>),
    /// A new request: its id (with `new_key`) and the peer's offer from this side's view.
    Request {
        id: CmId,
        new_key: u64,
        reads_in: u8,
        reads_out: u8,
        datagram: bool,
    },
    /// An event that needs no action.
    Ignored,
}

/// The datagram queue pair behind a service id.
#[derive(Clone, Copy)]
pub(crate) struct ResolvedQp {
    pub(crate) ah_attr: sys::ibv_ah_attr,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
}

impl Event {
    pub(crate) fn private_data(&self) -> &[u8] {
        &self.private_data.0[..self.private_data.1]
    }

    /// Returns the next event, if there is one. `new_key` makes the key of a request's id.
    pub(crate) fn next(channel: &Arc<Channel>, new_key: impl FnOnce() -> u64) -> Option<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the channel is open and non-blocking, `raw` is valid for the write.
        if unsafe { sys::rdma_get_cm_event(channel.raw(), &raw mut raw) } != 0 {
            return None;
        }
        // SAFETY: the event and its ids are valid until it is acknowledged, below.
        let event = unsafe {
            let event = &*raw;
            Self::read(event, channel, new_key)
        };
        // SAFETY: acknowledged once, and nothing of it is used any more.
        unsafe { sys::rdma_ack_cm_event(raw) };
        Some(event)
    }

    /// # Safety
    /// `event` is not acknowledged yet and belongs to `channel`.
    unsafe fn read(
        event: &sys::rdma_cm_event,
        channel: &Arc<Channel>,
        new_key: impl FnOnce() -> u64,
    ) -> Self {
        let is_request = event.event == kind::RDMA_CM_EVENT_CONNECT_REQUEST;
        let id = if is_request {
            event.listen_id
        } else {
            event.id
        };
        // SAFETY: the caller guarantees that the event is valid; every id of this channel has a key as its context.
        let (key, space) = unsafe { ((*id).context as usize as u64, (*id).ps) };
        let datagram = space == sys::rdma_port_space::RDMA_PS_UDP;
        let (mut reads_in, mut reads_out, mut found) = (0, 0, None);
        // SAFETY: `param` is the `ud` one for ids of the UDP port space, and the `conn` one for the others; private
        // data belongs to the event.
        let private_data = unsafe {
            if datagram {
                let ud = &event.param.ud;
                found = Some(ResolvedQp {
                    ah_attr: ud.ah_attr,
                    qpn: ud.qp_num,
                    qkey: ud.qkey,
                });
                copy(ud.private_data, ud.private_data_len)
            } else {
                let conn = &event.param.conn;
                (reads_in, reads_out) = (conn.responder_resources, conn.initiator_depth);
                copy(conn.private_data, conn.private_data_len)
            }
        };
        let kind = match NonNull::new(event.id) {
            Some(new) if is_request => {
                let new_key = new_key();
                EventKind::Request {
                    // SAFETY: the event is a request of this channel, not acknowledged yet.
                    id: unsafe { CmId::adopt(new, channel, new_key) },
                    new_key,
                    reads_in,
                    reads_out,
                    datagram,
                }
            }
            _ if datagram => answer(event.event, event.status, private_data.0[..4] != [0; 4])
                .map_or(EventKind::Ignored, |input| {
                    EventKind::Resolution(input, found)
                }),
            _ => input(event.event, event.status, private_data.0[..4] != [0; 4])
                .map_or(EventKind::Ignored, EventKind::Conn),
        };
        Self {
            key,
            kind,
            private_data,
        }
    }
}

/// # Safety
/// `from` is NULL or belongs to an event that is not acknowledged yet.
unsafe fn copy(from: *const libc::c_void, length: u8) -> PrivateData {
    let mut data = [0; 255];
    let length = usize::from(length);
    if from.is_null() || length == 0 {
        return (data, 0);
    }
    // SAFETY: the caller guarantees that this many bytes exist; a u8 never exceeds the array.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) };
    data[..length].copy_from_slice(bytes);
    (data, length)
}

/// Maps an event to the input of a connection. A consumer's refusal has a version word before its data. The kernel
/// refuses on behalf of a dead process with the same reason, but without the word. iWARP has no reasons: the status of
/// a refusal is an errno.
fn input(event: u32, status: i32, has_version: bool) -> Option<Input> {
    let timed_out = status == -libc::ETIMEDOUT;
    Some(match event {
        kind::RDMA_CM_EVENT_ADDR_RESOLVED => Input::AddressResolved,
        kind::RDMA_CM_EVENT_ADDR_ERROR => Input::AddressFailed { timed_out },
        kind::RDMA_CM_EVENT_ROUTE_RESOLVED => Input::RouteResolved,
        kind::RDMA_CM_EVENT_ROUTE_ERROR => Input::RouteFailed { timed_out },
        kind::RDMA_CM_EVENT_CONNECT_RESPONSE => Input::Response,
        kind::RDMA_CM_EVENT_ESTABLISHED => Input::Established,
        kind::RDMA_CM_EVENT_REJECTED => Input::Rejected {
            by_consumer: has_version && convert::may_be_consumers(status),
        },
        kind::RDMA_CM_EVENT_UNREACHABLE | kind::RDMA_CM_EVENT_CONNECT_ERROR => Input::Failed,
        kind::RDMA_CM_EVENT_DISCONNECTED => Input::Disconnected,
        kind::RDMA_CM_EVENT_DEVICE_REMOVAL => Input::Removed,
        // ADDR_CHANGE, TIMEWAIT_EXIT, multicast.
        _ => return None,
    })
}

/// Maps an event to the input of a resolution. A refusal arrives as "unreachable", with the status of the reply.
fn answer(event: u32, status: i32, has_version: bool) -> Option<Input> {
    match (event, status) {
        (kind::RDMA_CM_EVENT_UNREACHABLE, convert::SIDR_NO_SERVICE) => {
            Some(Input::Rejected { by_consumer: false })
        }
        (kind::RDMA_CM_EVENT_UNREACHABLE, convert::SIDR_REJECT) if has_version => {
            Some(Input::Rejected { by_consumer: true })
        }
        _ => input(event, status, has_version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolution_is_refused_by_the_answers_status() {
        let unreachable = kind::RDMA_CM_EVENT_UNREACHABLE;
        for (status, has_version, expected) in [
            (2, true, Input::Rejected { by_consumer: true }),
            // Refused by the provider, refused without a reason, and no reply.
            (2, false, Input::Failed),
            (1, false, Input::Rejected { by_consumer: false }),
            (-libc::ETIMEDOUT, false, Input::Failed),
        ] {
            assert_eq!(answer(unreachable, status, has_version), Some(expected));
        }
        let established = kind::RDMA_CM_EVENT_ESTABLISHED;
        assert_eq!(answer(established, 0, false), Some(Input::Established));
    }

    #[test]
    fn a_refusal_is_the_consumers_only_with_its_reason_and_version() {
        for (status, has_version, by_consumer) in [
            (28, true, true),
            (28, false, false),
            (8, true, false),
            (35, true, false),
            // iWARP.
            (-libc::ECONNRESET, true, true),
            (-libc::ECONNREFUSED, true, true),
            (-libc::ECONNRESET, false, false),
        ] {
            assert_eq!(
                input(kind::RDMA_CM_EVENT_REJECTED, status, has_version),
                Some(Input::Rejected { by_consumer })
            );
        }
    }

    #[test]
    fn only_time_outs_are_worth_another_try() {
        for (status, timed_out) in [(-libc::ETIMEDOUT, true), (-libc::EHOSTUNREACH, false)] {
            assert_eq!(
                input(kind::RDMA_CM_EVENT_ADDR_ERROR, status, false),
                Some(Input::AddressFailed { timed_out })
            );
            assert_eq!(
                input(kind::RDMA_CM_EVENT_ROUTE_ERROR, status, false),
                Some(Input::RouteFailed { timed_out })
            );
        }
        assert_eq!(input(kind::RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, false), None);
        assert_eq!(input(99, 0, false), None);
    }
}
