//! The one thread of an adapter: waits for connection events, asynchronous events of the device and watched
//! completion queues, and tells core.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use dat_core::transport::Token;
use dat_core::upcall::{Arrival, Fault};

use crate::adapter::{Shared, Slot};
use crate::cm;
use crate::cm::rdma::caller::Caller;
use crate::cm::rdma::conn::Conn;
use crate::cm::rdma::event::{Event, What};
use crate::cm::rdma::request::{ConnRequest, Offer};
use crate::cm::rdma::resolution::{Answer, Resolution};
use crate::cm::rdma::stage::Input;
use crate::cm::report::Report;
use crate::sys;
use crate::verbs::cq::Notifier;

/// What a consumer's call leaves for the event thread, since upcalls come from there only.
pub(crate) enum Later {
    /// An input of a connection.
    Rdma { conn: Arc<Conn>, input: Input },
    /// What core is to be told.
    Report { token: Token, report: Report },
    /// An input of a resolution.
    Resolution(Arc<Resolution>, Input),
    /// The peer of a datagram queue pair.
    Answer(Token, Answer),
}

/// Keys below this are not in the adapter's table.
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
        // SAFETY: `fd` was just made and belongs to nobody else.
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

    /// Watches `fd` until [`Epoll::remove`].
    pub(crate) fn add(&self, fd: RawFd, key: u64) -> Result<(), i32> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, key)
    }

    /// Announces each change of `fd` once, until it is closed: that something can be read, or also written.
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

    /// Watches `fd` for one event; `known` if it was watched before.
    pub(crate) fn once(&self, fd: RawFd, key: u64, known: bool) -> Result<(), i32> {
        let op = if known {
            libc::EPOLL_CTL_MOD
        } else {
            libc::EPOLL_CTL_ADD
        };
        self.control(op, fd, libc::EPOLLIN | libc::EPOLLONESHOT, key)
    }

    /// Watches `fd` no longer.
    pub(crate) fn remove(&self, fd: RawFd) {
        // It fails if it was not watched: that is what was wanted.
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0).ok();
    }

    /// Registers the three descriptors that every adapter has.
    pub(crate) fn add_fixed(&self, wake: RawFd, cm: RawFd, device: RawFd) -> Result<(), i32> {
        self.add(wake, WAKE)?;
        self.add(cm, CM)?;
        self.add(device, ASYNC)
    }

    /// Waits for events; their keys.
    fn wait<'a>(&self, into: &'a mut [libc::epoll_event]) -> &'a [libc::epoll_event] {
        // SAFETY: `into` is valid for its length.
        let n = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), into.as_mut_ptr(), into.len() as i32, -1)
        };
        &into[..usize::try_from(n).unwrap_or(0)]
    }
}

/// Runs until `stopping` is set and `wake` signalled.
pub(crate) fn run(shared: &Arc<Shared>) {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
    while !shared.stopping.load(Ordering::Acquire) {
        for event in shared.epoll.wait(&mut events) {
            match event.u64 {
                WAKE => {
                    shared.wake.clear();
                    for later in std::mem::take(&mut *shared.later.lock()) {
                        match later {
                            Later::Rdma { conn, input } => conn.feed(input, &[]),
                            Later::Report { token, report } => {
                                shared.upcalls.connection(token, report.with(&[]));
                            }
                            Later::Resolution(resolution, input) => {
                                resolution.feed(input, None, &[]);
                            }
                            Later::Answer(token, answer) => answer.tell(shared, token),
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
    match event.what {
        What::Nothing => {}
        What::Conn(input) => {
            if let Some(conn) = shared.conn(event.key, input) {
                conn.feed(input, &private_data);
            }
            if input == Input::Removed {
                handle_removal(shared);
            }
        }
        What::Resolution(input, found) => {
            if let Some(resolution) = shared.resolution(event.key) {
                resolution.feed(input, found.as_ref(), &private_data);
            }
            if input == Input::Removed {
                handle_removal(shared);
            }
        }
        What::Request {
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
                        "refused: a datagram peer that does not say who it is"
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
                // The service point went away while this was on its way.
                _ => drop(request),
            }
        }
    }
}

/// What an asynchronous event of the device means. `None`: nothing that anybody has to hear of; ports that come and
/// go, GIDs and LIDs that change, connections notice by themselves if it hurts.
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

/// Every id is told, listeners too; the adapter goes once.
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

/// What is in the table.
fn handle(shared: &Arc<Shared>, key: u64, events: i32) {
    let ended = events & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) != 0;
    match shared.get(key) {
        Some(Slot::Cq(notifier)) => handle_cq(shared, key, &notifier),
        Some(Slot::Socket(socket)) => socket.ready(shared, key, ended),
        Some(Slot::Pending { .. }) if ended => shared.withdraw(key),
        _ => {}
    }
}

fn handle_timer(shared: &Arc<Shared>) {
    let due = shared.socket.as_ref().map(|manager| manager.timers.due());
    for key in due.unwrap_or_default() {
        if let Some(Slot::Socket(socket)) = shared.get(key) {
            socket.expired(shared, key);
        }
    }
}

fn handle_cq(shared: &Shared, key: u64, notifier: &Weak<Notifier>) {
    let Some(notifier) = notifier.upgrade() else {
        return;
    };
    if !notifier.drain() {
        // A waiter was quicker; it looks at the queue itself, but the announcement is owed all the same.
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
        // CLIENT_REREGISTER, GID_CHANGE, and what is yet to come.
        for harmless in [4, 5, 6, 7, 9, 10, 11, 12, 13, 17, 18, 99] {
            assert_eq!(told(harmless), None, "event {harmless}");
        }
    }
}
