//! The event thread of an adapter: waits for connection events, asynchronous events of the device and watched
//! completion queues, and makes the upcalls to core.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_core::transport::Token;
use dat_core::upcall::{Arrival, Fault};
use dat_handshake::Caller;
use dat_os::poll_set;

use crate::adapter::Shared;
use crate::cm::rdma::event::{Event, EventKind};
use crate::cm::rdma::request::{ConnRequest, Offer};
use crate::cm::rdma::stage::Input;
use crate::cm::request;
use crate::epoll::{ASYNC, CM, TIMER, WAKE};

/// Runs until `stopping` is set and `wake` is signalled.
pub(crate) fn run(shared: &Arc<Shared>) {
    let mut events = [poll_set::Event::EMPTY; 32];
    while !shared.stopping.load(Ordering::Acquire) {
        for event in shared.epoll.wait(&mut events) {
            match event.key() {
                WAKE => {
                    shared.wake.clear();
                    // A statement of its own: the head of the loop would hold the lock while work is done.
                    let deferred = std::mem::take(&mut *shared.deferred.lock());
                    for work in deferred {
                        work(shared);
                    }
                }
                CM => {
                    while let Some(event) = Event::next(&shared.channel, || shared.new_key()) {
                        handle_cm(shared, event);
                    }
                }
                ASYNC => {
                    while let Some((number, context)) = shared.device.next_event() {
                        handle_async(shared, number, Token(context));
                    }
                    if event.has_ended() {
                        // The device is gone, and its last event is read. The error would be reported for ever.
                        shared.epoll.remove(shared.device.async_fd());
                    }
                }
                TIMER => handle_timer(shared),
                key => handle(shared, key, event.has_ended()),
            }
        }
    }
}

fn handle_cm(shared: &Arc<Shared>, event: Event) {
    tracing::trace!(key = event.key, "connection event");
    let private_data = event.private_data().to_vec();
    match event.kind {
        EventKind::Ignored => {}
        EventKind::Conn(input) => {
            // A pending request can only end.
            if let Some(conn) = shared.handler_of_event(event.key, true) {
                conn.cm_event(input, None, &private_data);
            }
            if input == Input::Removed {
                handle_removal(shared);
            }
        }
        EventKind::Resolution(input, found) => {
            if let Some(resolution) = shared.handler_of_event(event.key, false) {
                resolution.cm_event(input, found.as_ref(), &private_data);
            }
            if input == Input::Removed {
                handle_removal(shared);
            }
        }
        EventKind::Request {
            id,
            new_key,
            reads_in,
            reads_out,
            datagram,
        } => {
            let (local, remote) = id.ends();
            let offer = Offer {
                reads_in,
                reads_out,
            };
            let (caller, private_data) = match (datagram, Caller::read(&private_data)) {
                (false, _) => (None, &private_data[..]),
                (true, Some((caller, data))) => (Some(caller), data),
                (true, None) => {
                    tracing::debug!(
                        ?remote,
                        "refused: a datagram peer without the header of its queue pair"
                    );
                    id.refuse();
                    return;
                }
            };
            let request = ConnRequest::new(shared, id, new_key, offer, caller);
            match (shared.listener(event.key), remote) {
                (Some(token), Some(remote)) => shared.upcalls.connect_request(
                    token,
                    request::ConnRequest::of_rdma(request),
                    &Arrival {
                        remote,
                        local: local.map_or(shared.attr.address, |l| l.ip()),
                        private_data,
                        datagram,
                    },
                ),
                // The service point was closed while the event was queued.
                _ => drop(request),
            }
        }
    }
}

/// Maps an asynchronous event of the device to a fault. `None`: the event needs no report. After a change of port, GID
/// or LID, connections detect by themselves if the change breaks them.
fn fault(number: i32, token: Token) -> Option<Fault> {
    use crate::sys::event as e;
    match number {
        e::CQ_ERR => Some(Fault::CqOverflow(token)),
        e::QP_FATAL | e::QP_REQ_ERR | e::QP_ACCESS_ERR => Some(Fault::Ep(token)),
        e::QP_LAST_WQE_REACHED => Some(Fault::LastReceive(token)),
        e::SRQ_LIMIT_REACHED => Some(Fault::SrqLow(token)),
        e::DEVICE_FATAL => Some(Fault::Adapter),
        _ => None,
    }
}

/// Reports removal of the device once. librdmacm sends the event to every id, listeners included.
fn handle_removal(shared: &Shared) {
    if !shared.removed.swap(true, Ordering::AcqRel) {
        tracing::error!(
            "device {} is being removed: its connections end; close the IA",
            shared.device.name()
        );
        shared.upcalls.fault(Fault::Adapter);
    }
}

fn handle_async(shared: &Shared, number: i32, token: Token) {
    let Some(fault) = fault(number, token) else {
        tracing::info!(device = shared.device.name(), number, "asynchronous event");
        return;
    };
    let device = shared.device.name();
    if matches!(fault, Fault::LastReceive(_) | Fault::SrqLow(_)) {
        // The usual course of things: an endpoint leaves its SRQ, and a watermark is reached.
        tracing::debug!(device, number, ?fault, "asynchronous event");
    } else {
        tracing::warn!(
            device,
            number,
            ?fault,
            "asynchronous error (number: enum ibv_event_type)"
        );
    }
    shared.upcalls.fault(fault);
}

/// Handles an event of an object in the table.
fn handle(shared: &Arc<Shared>, key: u64, ended: bool) {
    if let Some(object) = shared.handler_of_event(key, ended) {
        object.ready(shared, key, ended);
    }
}

fn handle_timer(shared: &Arc<Shared>) {
    let due = shared.socket.as_ref().map(|manager| manager.timers.due());
    for key in due.unwrap_or_default() {
        if let Some(object) = shared.handler_of_event(key, false) {
            object.expired(shared, key);
        }
    }
}

#[cfg(test)]
mod tests;
