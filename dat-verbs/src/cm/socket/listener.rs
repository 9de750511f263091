//! A listening service point, and incoming connections until their request is complete.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dat_arena::Mutex;
use dat_core::error::{Result, Subtype};
use dat_core::transport::Token;
use dat_core::upcall::Arrival;
use dat_handshake::scm::{Message, Operation, RELIABLE, Reader};
use dat_os::close_on_fork::CloseOnFork;

use crate::adapter::{EventHandler, EventTarget, Shared};
use crate::cm::addr;
use crate::cm::socket::manager::SocketManager;
use crate::cm::socket::request::{ConnRequest, refuse};
use crate::cm::socket::stream::{Received, Stream, listen};
use crate::cm::socket::{PORT_OFFSET, service};
use crate::convert;

/// Pause before the next accept when no descriptor is left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Connections of a service point that wait for the rest of their REQ. One more ends the oldest: each has a descriptor, and
/// without a limit connections that say nothing would take all of the process's. A peer that is cut off tries again.
const MAX_PARTIAL: usize = 64;

/// A listening socket.
pub(crate) struct ListenSocket {
    listener: CloseOnFork<TcpListener>,
    /// Local address of the socket.
    local: SocketAddr,
    token: Token,
    key: u64,
    /// Connections that wait for the rest of their REQ, oldest first, and some that wait no more.
    partial: Mutex<VecDeque<(u64, Weak<PartialRequest>)>>,
}

/// The listening socket of a service point; dropping it closes the socket.
pub(crate) struct Listener {
    shared: Arc<Shared>,
    socket: Arc<ListenSocket>,
}

/// A TCP connection whose REQ is not complete yet.
pub(crate) struct PartialRequest {
    stream: Mutex<Option<Stream>>,
    reader: Mutex<Reader>,
    remote: SocketAddr,
    local: SocketAddr,
    token: Token,
    deadline: Instant,
}

impl Listener {
    /// Listens on `conn_qual`, or on a port that the kernel chooses; returns the qualifier too.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        conn_qual: Option<u64>,
        token: Token,
    ) -> Result<(Self, u64)> {
        let (ip, scope) = (shared.attr.address, shared.attr.scope_id);
        let at = match conn_qual {
            Some(qual) => service(ip, qual, scope)?,
            None => addr::socket(ip, 0, scope),
        };
        let failed = |e: io::Error| {
            let errno = e.raw_os_error().unwrap_or(0);
            tracing::warn!("{}", convert::tcp_listening_text(at, errno));
            convert::listening(errno)
        };
        let listener = listen(at).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let key = shared.new_key();
        let socket = Arc::new(ListenSocket {
            listener,
            local,
            token,
            key,
            partial: Mutex::default(),
        });
        shared.put(key, EventTarget::object(&socket));
        let listening = Self {
            shared: Arc::clone(shared),
            socket,
        };
        let socket = &listening.socket;
        socket
            .open(shared)
            .map_err(|e| convert::failed("epoll_ctl", e, Subtype::ResourceDevice))?;
        let from_port = || u64::from(local.port()).wrapping_sub(PORT_OFFSET);
        Ok((listening, conn_qual.unwrap_or_else(from_port)))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.remove(self.socket.key);
        self.shared.epoll.remove(self.socket.listener.as_raw_fd());
    }
}

impl ListenSocket {
    /// Watches the socket, level-triggered: events repeat while a connection waits.
    fn open(&self, shared: &Shared) -> std::result::Result<(), i32> {
        shared.epoll.add(self.listener.as_raw_fd(), self.key)
    }

    /// Accepts the next waiting connection.
    fn accept_next(&self, shared: &Arc<Shared>) {
        let Some(manager) = &shared.socket else {
            return;
        };
        match Stream::accept(&self.listener) {
            Ok((stream, remote)) => self.read_request(shared, manager, stream, remote),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => match e.raw_os_error() {
                // The waiting connection was closed.
                Some(libc::ECONNABORTED | libc::EINTR) => {}
                // Its descriptor is free now, and the event repeats.
                Some(libc::EMFILE | libc::ENFILE) if self.end_oldest(shared) => {}
                _ => {
                    tracing::warn!("accept: {e}; trying again");
                    shared.epoll.remove(self.listener.as_raw_fd());
                    manager.timers.set(ACCEPT_RETRY, self.key);
                }
            },
        }
    }

    fn read_request(
        &self,
        shared: &Arc<Shared>,
        manager: &SocketManager,
        stream: Stream,
        remote: SocketAddr,
    ) {
        let key = shared.new_key();
        let fd = stream.fd();
        let partial = Arc::new(PartialRequest {
            stream: Mutex::new(Some(stream)),
            reader: Mutex::new(Reader::default()),
            remote,
            local: self.local,
            token: self.token,
            deadline: manager.timers.set(shared.settings.handshake_time(), key),
        });
        let slot = EventTarget::Owned(Arc::<PartialRequest>::clone(&partial));
        shared.put(key, slot);
        if let Err(e) = shared.epoll.add_edge(fd, key, false) {
            tracing::warn!("connection of {remote} refused: {}", convert::text(e));
            shared.remove(key);
            return;
        }
        // The REQ usually arrives together with the connection.
        partial.read_on(shared, key);
        if partial.stream.lock().is_none() {
            return;
        }
        let mut waiting = self.partial.lock();
        waiting.retain(|(_, partial)| partial.strong_count() > 0);
        waiting.push_back((key, Arc::downgrade(&partial)));
        let full = waiting.len() > MAX_PARTIAL;
        drop(waiting);
        if full {
            self.end_oldest(shared);
        }
    }

    /// Ends the oldest connection that waits for the rest of its REQ; returns false if there is none.
    fn end_oldest(&self, shared: &Arc<Shared>) -> bool {
        loop {
            let Some((key, oldest)) = self.partial.lock().pop_front() else {
                return false;
            };
            if let Some(partial) = oldest.upgrade()
                && partial.stop(shared, key).is_some()
            {
                tracing::warn!(
                    "{} connected, but its REQ is not complete; it makes room for a later connection",
                    partial.remote
                );
                return true;
            }
        }
    }
}

impl EventHandler for ListenSocket {
    fn ready(&self, shared: &Arc<Shared>, _key: u64, _ended: bool) {
        self.accept_next(shared);
    }

    fn expired(&self, shared: &Arc<Shared>, _key: u64) {
        if let Err(e) = self.open(shared)
            && let Some(manager) = &shared.socket
        {
            tracing::warn!(
                "cannot watch the listening socket: {}; trying again",
                convert::text(e)
            );
            manager.timers.set(ACCEPT_RETRY, self.key);
        }
    }
}

impl PartialRequest {
    /// Reads available data. A complete REQ is reported to the consumer; any other message ends the connection.
    fn read_on(&self, shared: &Arc<Shared>, key: u64) {
        let Some(message) = self.read() else { return };
        let Some(stream) = self.stop(shared, key) else {
            return;
        };
        let remote = self.remote;
        let message = match message {
            Ok(message) if message.operation == Operation::Request => message,
            Ok(message) => {
                tracing::warn!(
                    "first message of {remote} is {:?}, not REQ",
                    message.operation
                );
                return;
            }
            Err(what) => {
                tracing::warn!("{remote}: {what}");
                return;
            }
        };
        if message.qp.kind != RELIABLE {
            tracing::warn!("{remote} requests a queue pair of type {}", message.qp.kind);
            refuse(&stream, &message, false, &[]);
            return;
        }
        let private_data = message.private_data.clone();
        let request = ConnRequest::new(shared, stream, key, self.local, message);
        shared.upcalls.connect_request(
            self.token,
            crate::cm::request::ConnRequest::of_socket(request),
            &Arrival {
                remote,
                local: self.local.ip(),
                private_data: &private_data,
                datagram: false,
            },
        );
    }

    /// Returns the message or the reason why it is invalid; `None` if more data is needed.
    fn read(&self) -> Option<std::result::Result<Message, String>> {
        let stream = self.stream.lock();
        let stream = stream.as_ref()?;
        let mut reader = self.reader.lock();
        loop {
            match reader.message() {
                Err(e) => return Some(Err(e.to_string())),
                Ok(Some(message)) => return Some(Ok(message)),
                Ok(None) => match stream.receive(reader.spare()) {
                    Received::Bytes(n) => reader.filled(n),
                    Received::Nothing => return None,
                    Received::End { .. } if reader.is_empty() => {
                        return Some(Err("closed without a message".into()));
                    }
                    Received::End { .. } => {
                        return Some(Err("closed after an incomplete REQ".into()));
                    }
                },
            }
        }
    }

    /// Ends the read of the REQ; returns the stream, the first time.
    fn stop(&self, shared: &Shared, key: u64) -> Option<Stream> {
        if let Some(manager) = &shared.socket {
            manager.timers.unset(self.deadline, key);
        }
        shared.remove(key);
        self.stream.lock().take()
    }
}

impl EventHandler for PartialRequest {
    fn ready(&self, shared: &Arc<Shared>, key: u64, _ended: bool) {
        self.read_on(shared, key);
    }

    fn expired(&self, shared: &Arc<Shared>, key: u64) {
        if self.stop(shared, key).is_some() {
            tracing::warn!(
                "{} connected, but its REQ was not complete in time",
                self.remote
            );
        }
    }
}
