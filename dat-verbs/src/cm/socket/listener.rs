//! A service point that listens, and what arrives there until it is a request.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_core::error::{Result, Subtype};
use dat_core::transport::Token;
use dat_core::upcall::Arrival;
use parking_lot::Mutex;

use crate::adapter::{Shared, Slot};
use crate::cm::addr;
use crate::cm::socket::request::{Incoming, refuse};
use crate::cm::socket::stream::{Stream, Taken, prepare};
use crate::cm::socket::wire::{Message, Operation, RELIABLE, Reader};
use crate::cm::socket::{Manager, PORT_OFFSET, Watched, service};
use crate::map;

/// When to look again if no descriptor is left to accept with.
const SHORT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// A listening socket.
pub(crate) struct Door {
    listener: TcpListener,
    /// Where it listens.
    local: SocketAddr,
    token: Token,
    key: u64,
}

/// A service point's door; dropping it closes it.
pub(crate) struct Listening {
    shared: Arc<Shared>,
    door: Arc<Door>,
}

/// A TCP connection whose REQ is not whole yet.
pub(crate) struct Arriving {
    stream: Mutex<Option<Stream>>,
    reader: Mutex<Reader>,
    remote: SocketAddr,
    local: SocketAddr,
    token: Token,
    deadline: Instant,
}

impl Listening {
    /// Listens on `conn_qual`, or on what the kernel chooses; the qualifier.
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
            tracing::warn!("cannot listen on {at}: {e}");
            map::listening(e.raw_os_error().unwrap_or(0))
        };
        let listener = TcpListener::bind(at).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        prepare(listener.as_raw_fd());
        let local = listener.local_addr().map_err(failed)?;
        let key = shared.new_key();
        let door = Arc::new(Door {
            listener,
            local,
            token,
            key,
        });
        shared.put(key, Slot::Socket(Watched::Door(Arc::downgrade(&door))));
        let listening = Self {
            shared: Arc::clone(shared),
            door,
        };
        let door = &listening.door;
        door.open(shared)
            .map_err(|e| map::failed("epoll_ctl", e, Subtype::ResourceDevice))?;
        let usual = || u64::from(local.port()).wrapping_sub(PORT_OFFSET);
        Ok((listening, conn_qual.unwrap_or_else(usual)))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.shared.remove(self.door.key);
        self.shared.epoll.remove(self.door.listener.as_raw_fd());
    }
}

impl Door {
    /// Says that somebody waits outside as long as somebody does.
    fn open(&self, shared: &Shared) -> std::result::Result<(), i32> {
        shared.epoll.add(self.listener.as_raw_fd(), self.key)
    }

    /// Takes in the next one who waits outside.
    pub(crate) fn ready(&self, shared: &Arc<Shared>) {
        let Some(manager) = &shared.socket else {
            return;
        };
        match Stream::accept(&self.listener) {
            Ok((stream, remote)) => self.take_in(shared, manager, stream, remote),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => match e.raw_os_error() {
                // The one that waited has gone.
                Some(libc::ECONNABORTED | libc::EINTR) => {}
                _ => {
                    tracing::warn!("accept: {e}; trying again");
                    shared.epoll.remove(self.listener.as_raw_fd());
                    manager.timers.set(SHORT_OF_DESCRIPTORS, self.key);
                }
            },
        }
    }

    fn take_in(&self, shared: &Arc<Shared>, manager: &Manager, stream: Stream, remote: SocketAddr) {
        let key = shared.new_key();
        let fd = stream.fd();
        let arriving = Arc::new(Arriving {
            stream: Mutex::new(Some(stream)),
            reader: Mutex::new(Reader::default()),
            remote,
            local: self.local,
            token: self.token,
            deadline: manager.timers.set(shared.settings.handshake_time(), key),
        });
        let slot = Slot::Socket(Watched::Arriving(Arc::clone(&arriving)));
        shared.put(key, slot);
        if let Err(e) = shared.epoll.add_edge(fd, key, false) {
            tracing::warn!("{remote} is turned away: {}", map::text(e));
            shared.remove(key);
            return;
        }
        // It comes with the connection as a rule.
        arriving.ready(shared, key);
    }

    /// The time to try again has come.
    pub(crate) fn expired(&self, shared: &Arc<Shared>) {
        if let Err(e) = self.open(shared)
            && let Some(manager) = &shared.socket
        {
            tracing::warn!("nobody is let in: {}; trying again", map::text(e));
            manager.timers.set(SHORT_OF_DESCRIPTORS, self.key);
        }
    }
}

impl Arriving {
    /// Reads on. A whole REQ goes to the consumer, anything else ends it.
    pub(crate) fn ready(&self, shared: &Arc<Shared>, key: u64) {
        let Some(message) = self.read() else { return };
        let Some(stream) = self.stop(shared, key) else {
            return;
        };
        let remote = self.remote;
        let message = match message {
            Ok(message) if message.operation == Operation::Request => message,
            Ok(message) => {
                tracing::warn!("{remote} says {:?} first, not REQ", message.operation);
                return;
            }
            Err(what) => {
                tracing::warn!("{remote}: {what}");
                return;
            }
        };
        if message.qp.kind != RELIABLE {
            tracing::warn!("{remote} asks for a queue pair of type {}", message.qp.kind);
            refuse(&stream, &message, false, &[]);
            return;
        }
        let private_data = message.private_data.clone();
        let request = Incoming::new(shared, stream, key, self.local, message);
        shared.upcalls.connect_request(
            self.token,
            crate::cm::ConnRequest::of_socket(request),
            &Arrival {
                remote,
                local: self.local.ip(),
                private_data: &private_data,
                datagram: false,
            },
        );
    }

    /// The message or why there is none; nothing if more is to come.
    fn read(&self) -> Option<std::result::Result<Message, String>> {
        let stream = self.stream.lock();
        let stream = stream.as_ref()?;
        let mut reader = self.reader.lock();
        loop {
            match reader.message() {
                Err(e) => return Some(Err(e.to_string())),
                Ok(Some(message)) => return Some(Ok(message)),
                Ok(None) => match stream.take(reader.room()) {
                    Taken::Some(n) => reader.filled(n),
                    Taken::None => return None,
                    Taken::End { .. } if reader.is_empty() => {
                        return Some(Err("closed without a word".into()));
                    }
                    Taken::End { .. } => return Some(Err("half a REQ, then the end".into())),
                },
            }
        }
    }

    /// No longer arriving; the stream, the first time.
    fn stop(&self, shared: &Shared, key: u64) -> Option<Stream> {
        if let Some(manager) = &shared.socket {
            manager.timers.unset(self.deadline, key);
        }
        shared.remove(key);
        self.stream.lock().take()
    }

    /// The time for a whole REQ is over.
    pub(crate) fn expired(&self, shared: &Arc<Shared>, key: u64) {
        if self.stop(shared, key).is_some() {
            tracing::warn!("{} connected and sent no whole REQ in time", self.remote);
        }
    }
}
