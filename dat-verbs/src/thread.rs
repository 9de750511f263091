//! The event thread of an adapter: waits for connection events, asynchronous events of the device and watched
//! completion queues, and makes the upcalls to core.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use dat_core::transport::Token;
use dat_core::upcall::{Arrival, ConnOutcome, DatagramOutcome, Fault};

use crate::adapter::{EventTarget, Shared};
use crate::cm;
use crate::cm::rdma::caller::Caller;
use crate::cm::rdma::conn::Conn;
use crate::cm::rdma::event::{Event, EventKind};
use crate::cm::rdma::request::{ConnRequest, Offer};
use crate::cm::rdma::resolution::Resolution;
use crate::cm::rdma::stage::Input;
use crate::sys;
use crate::transport::Verbs;
use crate::verbs::cq::Notifier;

/// Work that a consumer's call defers to the event thread, since only that thread makes upcalls.
pub(crate) enum Deferred {
    /// An input to a connection.
    Rdma { conn: Arc<Conn>, input: Input },
    /// A report to core.
    Report { token: Token, report: ConnOutcome },
    /// An input to a resolution.
    Resolution(Arc<Resolution>, Input),
    /// The result of a datagram queue pair's resolution.
    Resolved(Token, DatagramOutcome<Verbs>),
}

/// Keys below this are reserved for the fixed descriptors and not in the adapter's table.
pub(crate) const FIRST_KEY: u64 = 16;
const WAKE: u64 = 0;
const CM: u64 = 1;
const ASYNC: u64 = 2;
const TIMER: u64 = 3;

/// An epoll descriptor.
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> Result<Self, i32> {
        // SAFETY: no pointers are involved.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(sys::errno());
        }
        // SAFETY: `fd` was just created and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn control(&self, op: i32, fd: RawFd, events: i32, key: u64) -> Result<(), i32> {
        let mut event = libc::epoll_event {
            events: events.cast_unsigned(),
            u64: key,
        };
        // SAFETY: `event` is valid for the call.
        match unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(sys::errno()),
        }
    }

    /// Watches `fd` for input until [`Epoll::remove`].
    pub(crate) fn add(&self, fd: RawFd, key: u64) -> Result<(), i32> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, key)
    }

    /// Reports each change of `fd` once (edge-triggered) until it is closed: readable, and with `write` also writable.
    pub(crate) fn add_edge(&self, fd: RawFd, key: u64, write: bool) -> Result<(), i32> {
        let mut events = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET;
        if write {
            events |= libc::EPOLLOUT;
        }
        self.control(libc::EPOLL_CTL_ADD, fd, events, key)
    }

    /// Registers the adapter's timer.
    pub(crate) fn add_timer(&self, fd: RawFd) -> Result<(), i32> {
        self.add(fd, TIMER)
    }

    /// Watches `fd` for one event; `known` is true if it was watched before.
    pub(crate) fn once(&self, fd: RawFd, key: u64, known: bool) -> Result<(), i32> {
        let op = if known {
            libc::EPOLL_CTL_MOD
        } else {
            libc::EPOLL_CTL_ADD
        };
        self.control(op, fd, libc::EPOLLIN | libc::EPOLLONESHOT, key)
    }

    /// Stops watching `fd`.
    pub(crate) fn remove(&self, fd: RawFd) {
        // It fails if the descriptor was not watched, which is the wanted state.
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0).ok();
    }

    /// Registers the three descriptors that every adapter has.
    pub(crate) fn add_fixed(&self, wake: RawFd, cm: RawFd, device: RawFd) -> Result<(), i32> {
        self.add(wake, WAKE)?;
        self.add(cm, CM)?;
        self.add(device, ASYNC)
    }

    /// Waits for events and returns them.
    fn wait<'a>(&self, into: &'a mut [libc::epoll_event]) -> &'a [libc::epoll_event] {
        // SAFETY: `into` is valid for its length.
        let n = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), into.as_mut_ptr(), into.len() as i32, -1)
        };
        &into[..usize::try_from(n).unwrap_or(0)]
    }
}

/// Runs until `stopping` is set and `wake` is signalled.
pub(crate) fn run(shared: &Arc<Shared>) {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
    while !shared.stopping.load(Ordering::Acquire) {
        for event in shared.epoll.wait(&mut events) {
            match event.u64 {
                WAKE => {
                    shared.wake.clear();
                    for work in std::mem::take(&mut *shared.deferred.lock()) {
                        match work {
                            Deferred::Rdma { conn, input } => conn.feed(input, &[]),
                            Deferred::Report { token, report } => {
                                shared.upcalls.connection(token, report, &[]);
                            }
                            Deferred::Resolution(resolution, input) => {
                                resolution.feed(input, None, &[]);
                            }
                            Deferred::Resolved(token, outcome) => {
                                shared.upcalls.datagram(token, outcome)
                            }
                        }
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
                }
                TIMER => handle_timer(shared),
                key => handle(shared, key, event.events.cast_signed()),
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
            if let Some(conn) = shared.conn(event.key, input) {
                conn.feed(input, &private_data);
            }
            if input == Input::Removed {
                handle_removal(shared);
            }
        }
        EventKind::Resolution(input, found) => {
            if let Some(resolution) = shared.resolution(event.key) {
                resolution.feed(input, found.as_ref(), &private_data);
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
                    cm::ConnRequest::of_rdma(request),
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
        tracing::error!("device {} is being removed", shared.device.name());
        shared.upcalls.fault(Fault::Adapter);
    }
}

fn handle_async(shared: &Shared, number: i32, token: Token) {
    let Some(fault) = fault(number, token) else {
        tracing::info!(device = shared.device.name(), number, "asynchronous event");
        return;
    };
    tracing::warn!(
        device = shared.device.name(),
        number,
        ?fault,
        "asynchronous error"
    );
    shared.upcalls.fault(fault);
}

/// Handles an event of an object in the table.
fn handle(shared: &Arc<Shared>, key: u64, events: i32) {
    let ended = events & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) != 0;
    match shared.get(key) {
        Some(EventTarget::Cq(notifier)) => handle_cq(shared, key, &notifier),
        Some(EventTarget::Socket(socket)) => socket.ready(shared, key, ended),
        Some(EventTarget::Pending { .. }) if ended => shared.withdraw(key),
        _ => {}
    }
}

fn handle_timer(shared: &Arc<Shared>) {
    let due = shared.socket.as_ref().map(|manager| manager.timers.due());
    for key in due.unwrap_or_default() {
        if let Some(EventTarget::Socket(socket)) = shared.get(key) {
            socket.expired(shared, key);
        }
    }
}

fn handle_cq(shared: &Shared, key: u64, notifier: &Weak<Notifier>) {
    let Some(notifier) = notifier.upgrade() else {
        return;
    };
    if !notifier.drain() {
        // A waiter read the event first. It polls the queue itself, but core requested this upcall too.
        tracing::trace!(key, "completion event already taken");
    }
    if let Some(sleeper) = &*notifier.sleeper.lock() {
        sleeper.signal();
    }
    shared.upcalls.cq_ready(notifier.token);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `enum ibv_event_type`, in its order.
    #[test]
    fn each_event_of_a_device_means_what_it_says() {
        let token = Token::default();
        let told = |number| fault(number, token).map(|fault| format!("{fault:?}"));
        let starts = |number, word: &str| {
            let told = told(number).unwrap_or_default();
            assert!(told.starts_with(word), "event {number}: {told}");
        };
        starts(0, "CqOverflow");
        for broken in 1..=3 {
            starts(broken, "Ep");
        }
        starts(8, "Adapter");
        starts(15, "SrqLow");
        starts(16, "LastReceive");
        // COMM_EST, SQ_DRAINED, PATH_MIG, PATH_MIG_ERR, PORT_ACTIVE, PORT_ERR, LID_CHANGE, PKEY_CHANGE, SM_CHANGE,
        // CLIENT_REREGISTER, GID_CHANGE, and a number that is not assigned yet.
        for harmless in [4, 5, 6, 7, 9, 10, 11, 12, 13, 17, 18, 99] {
            assert_eq!(told(harmless), None, "event {harmless}");
        }
    }
}
