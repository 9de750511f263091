//! The process that has UDP port 4791 of an address. It admits members and forwards their datagrams to them.

mod grace_period;
mod keepers;

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::absent::Absent;
use crate::credentials::{Trust, own_uid, peer_uid};
use crate::discard::discard;
use crate::fork::CloseOnFork;
use crate::listener::{Listener, held};
use crate::members::{Members, Response};
use crate::message::{Destination, FromHolder};
use crate::names;
use crate::packets::{self, Incoming};
use crate::poll_set::PollSet;
use crate::port_keeper::{SharedKeptPorts, max_keepers};
use crate::registry::{Owner, Quotas, Registry};
use crate::shared_socket::SharedSocket;
use crate::socket::Socket;
use crate::unix_socket::Kind;
use dat_os::timerfd::TimerFd;
use grace_period::Early;

/// Longest wait for space in the connection of a slow member, whose process may just have been woken.
const SEND_WAIT: Duration = Duration::from_millis(1);
/// Time without such waits after one was in vain: a stopped process must not slow down the others.
const NO_WAIT_PERIOD: Duration = Duration::from_millis(100);
/// Packets that are read from each member before other work.
const READ_BATCH: usize = 64;
/// The same for members of several users, which may send without an end. Datagrams wait meanwhile.
const READ_BATCH_ALL_USERS: usize = 4;
/// Pause after calls of [`Holder::poll_members`] for claims that may not have been read yet, where that may have left some: any host can name a slot
/// without an owner.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(5);
/// Maximum calls of [`Holder::poll_members`] in `catch_up`; each handles at most 256 descriptors.
const CATCH_UP_ROUNDS: usize = 16;
/// Time after which there are no more of them.
const CATCH_UP_TIME: Duration = Duration::from_millis(20);
/// Requested send buffer for a member in bytes; the kernel may give less (net.core.wmem_max).
const BUFFER: libc::c_int = 4 << 20;
/// The same for members of several users. The kernel keeps up to twice as much for each member that does not read.
const BUFFER_ALL_USERS: libc::c_int = 256 << 10;

/// The holder of the port: its members, with their connections, and the port's socket.
#[derive(Debug)]
pub struct Holder {
    socket: Arc<Socket>,
    /// `None` for a holder for all users.
    shared_socket: Option<Arc<SharedSocket>>,
    listener: Arc<Listener>,
    /// Readable when [`Holder::poll_members`] has work.
    ready: Arc<PollSet>,
    trust: Trust,
    /// Connections by member number.
    connections: HashMap<u64, CloseOnFork<OwnedFd>>,
    /// Member numbers by descriptor, as [`PollSet::ready`] returns them.
    by_fd: HashMap<RawFd, u64>,
    members: Members,
    kept_ports: SharedKeptPorts,
    /// Part of `ready`; expires when the retention of a keeper ends. Created at the first death.
    keeper_timer: Option<TimerFd>,
    /// Maximum number of keepers, each of which takes a descriptor.
    max_kept: usize,
    /// Own UDP port for data if this process was a member before; else 0.
    data_port: u16,
    packet: Vec<u8>,
    no_wait_until: Option<Instant>,
    /// When [`Holder::catch_up`] last left packets unread, or may have.
    left_unread: Option<Instant>,
    grace_until: Option<Instant>,
    /// Datagrams for members of the earlier holder that have not joined yet, in the order of arrival.
    early: Vec<Early>,
    /// Members of an earlier holder that have not joined yet; `None` if all have.
    absent: Option<Absent>,
    /// Connections to be closed together: of members that have ended, and of processes that are not admitted.
    leaving: Vec<CloseOnFork<OwnedFd>>,
}

impl Holder {
    /// Creates a holder for the processes of the own user. This process has the lock of `shared_socket`.
    ///
    /// # Errors
    /// As `socket`, `bind`, `epoll_create1`.
    pub fn for_user(ip: IpAddr, shared_socket: Arc<SharedSocket>) -> io::Result<Self> {
        let socket = Arc::clone(shared_socket.socket());
        let name = names::user_name(ip, "port");
        Self::new(
            socket,
            Some(shared_socket),
            &name,
            Trust::Own,
            Members::default(),
        )
    }

    /// Creates a holder for the processes of all users, with the limits `quotas`.
    ///
    /// # Errors
    /// As `socket`, `bind`, `epoll_create1`.
    pub fn for_all_users(ip: IpAddr, socket: Arc<Socket>, quotas: Quotas) -> io::Result<Self> {
        let members = Members::for_all_users(quotas);
        let name = names::system_name(ip);
        let mut holder = Self::new(socket, None, &name, Trust::Everyone, members)?;
        // The number of members is limited such that there are descriptors for their keepers.
        holder.max_kept = usize::MAX;
        Ok(holder)
    }

    fn new(
        socket: Arc<Socket>,
        shared_socket: Option<Arc<SharedSocket>>,
        name: &str,
        trust: Trust,
        members: Members,
    ) -> io::Result<Self> {
        let socket_at_name = names::listen(Kind::Packets, name)?;
        let ready = Arc::new(PollSet::new()?);
        let listener = Listener::new(socket_at_name, trust, Arc::clone(&ready))?;
        Ok(Self {
            socket,
            shared_socket,
            listener: Arc::new(listener),
            ready,
            trust,
            connections: HashMap::new(),
            by_fd: HashMap::new(),
            members,
            kept_ports: SharedKeptPorts::default(),
            keeper_timer: None,
            max_kept: max_keepers(),
            data_port: 0,
            packet: Vec::with_capacity(8192),
            no_wait_until: None,
            left_unread: None,
            grace_until: None,
            early: Vec::new(),
            absent: None,
            leaving: Vec::new(),
        })
    }

    /// Returns the socket of the port.
    #[must_use]
    pub fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Returns the slots and services of the address.
    pub fn registry(&mut self) -> &mut Registry {
        self.members.registry()
    }

    /// Claims `what` for this process itself. Returns false if a member has it.
    pub fn claim(&mut self, what: Destination) -> bool {
        // An earlier claim of a member may not have been read yet.
        self.catch_up();
        self.registry().claim(what, Owner::Holder, own_uid())
    }

    /// Releases what this process claimed for itself.
    pub fn release(&mut self, what: Destination) {
        self.registry().release(what, Owner::Holder);
    }

    /// Returns the listener, whose [`Listener::accept`] needs no access to the holder.
    #[must_use]
    pub fn listener(&self) -> &Arc<Listener> {
        &self.listener
    }

    /// Admits processes that have connected, reads the members' packets, removes members whose process ended, and closes
    /// expired keepers.
    pub fn poll_members(&mut self) {
        // Members that ended come first: their descriptors are free for new ones.
        for fd in self.ready.ready() {
            if let Some(member) = self.by_fd.get(&fd) {
                self.read(*member);
            } else if self
                .keeper_timer
                .as_ref()
                .is_some_and(|timer| timer.as_raw_fd() == fd)
            {
                self.close_expired_keepers(Instant::now());
            }
        }
        self.close_leaving();
        self.listener.accept();
        while let Some(connection) = self.listener.take() {
            self.admit(connection);
        }
        self.close_leaving();
        self.deliver_early();
    }

    /// Reads all packets that members sent before this call. Members of several users wait for the answers to their claims, so this is
    /// not needed for them, except for a moment after a restart of the holder. Members may also send without an end: a call that follows at once
    /// reads nothing then.
    fn catch_up(&mut self) {
        let begin = Instant::now();
        if self
            .left_unread
            .is_some_and(|last| begin < last + CATCH_UP_PAUSE)
        {
            return;
        }
        let rounds = if self.trust == Trust::Everyone {
            1
        } else {
            CATCH_UP_ROUNDS
        };
        for _ in 0..rounds {
            if !self.ready.is_readable() {
                self.left_unread = None;
                return;
            }
            self.poll_members();
            if begin.elapsed() >= CATCH_UP_TIME {
                break;
            }
        }
        self.left_unread = Some(Instant::now());
    }

    fn admit(&mut self, connection: CloseOnFork<OwnedFd>) {
        let Ok(uid) = peer_uid(connection.as_fd()) else {
            return self.leave(connection);
        };
        let Some(member) = self.members.admit(uid) else {
            let members = self.connections.len();
            tracing::warn!(
                uid,
                members,
                "a process is not admitted to the port: its user has its full share of the members; end some of them"
            );
            return self.leave(connection);
        };
        let room = if self.trust == Trust::Own {
            BUFFER
        } else {
            BUFFER_ALL_USERS
        };
        set_send_buffer(connection.as_raw_fd(), room);
        if let Err(error) = self.ready.add(connection.as_raw_fd()) {
            tracing::debug!(%error, "a process is not admitted: its connection cannot be watched");
            self.members.forget(member);
            return self.leave(connection);
        }
        self.by_fd.insert(connection.as_raw_fd(), member);
        self.connections.insert(member, connection);
        self.read(member);
    }

    /// Reads and answers the packets of a member.
    fn read(&mut self, member: u64) {
        let mut buffer = [0; 64];
        let batch = match self.trust {
            Trust::Everyone => READ_BATCH_ALL_USERS,
            Trust::Own | Trust::User(_) => READ_BATCH,
        };
        for _ in 0..batch {
            let Some(connection) = self.connections.get(&member) else {
                return;
            };
            let connection = connection.as_fd();
            let received = match self.trust {
                Trust::Everyone => packets::receive_refusing(connection, &mut buffer),
                Trust::Own | Trust::User(_) => packets::receive(connection, &mut buffer, false),
            };
            match received {
                Ok(Incoming::Empty) => return,
                Ok(Incoming::Packet(length, _)) => {
                    match self.members.handle(member, &buffer[..length]) {
                        Response::Answer(what, granted) => {
                            FromHolder::Answer(what, granted).encode(&mut self.packet);
                            // A member that does not read its answers gets none.
                            let _ = packets::send(connection, &self.packet, &[]);
                        }
                        Response::Welcome => {
                            FromHolder::Welcome(Some(self.data_port)).encode(&mut self.packet);
                            let shared_socket = self
                                .shared_socket
                                .as_ref()
                                .map(|shared_socket| shared_socket.descriptors());
                            let with = shared_socket.as_ref().map_or(&[][..], |fds| &fds[..]);
                            let mut sent = packets::send(connection, &self.packet, with);
                            let shared_socket = self.shared_socket.as_ref();
                            if let (Ok(()), Some(ring)) =
                                (&sent, shared_socket.and_then(|shared| shared.ring()))
                            {
                                FromHolder::Ring.encode(&mut self.packet);
                                sent = packets::send(connection, &self.packet, &[ring]);
                            }
                            if let Err(error) = sent {
                                tracing::debug!(%error, "a process is not admitted: it cannot be welcomed");
                                return self.forget(member);
                            }
                        }
                        Response::KeepPort(port) => self.keep_port(member, port),
                        Response::Nothing => {}
                        Response::NoMember => return self.forget(member),
                    }
                }
                Ok(Incoming::Closed) => return self.forget(member),
                Err(error) => {
                    // A process of another user that sends descriptors is one of these.
                    tracing::debug!(%error, "the connection of a member ends");
                    return self.forget(member);
                }
            }
        }
    }

    fn forget(&mut self, member: u64) {
        let now = Instant::now();
        self.kept_ports.lock().member_died(member, now);
        self.close_expired_keepers(now);
        self.members.forget(member);
        if let Some(connection) = self.connections.remove(&member) {
            let fd = connection.as_raw_fd();
            self.by_fd.remove(&fd);
            self.ready.remove(fd);
            if self.trust == Trust::Everyone {
                self.leave(connection);
            }
        }
    }

    /// Closes a connection in which descriptors may wait, at the next [`close_leaving`](Self::close_leaving).
    fn leave(&mut self, connection: CloseOnFork<OwnedFd>) {
        self.leaving.push(connection);
        if self.leaving.len() == held() {
            self.close_leaving();
        }
    }

    fn close_leaving(&mut self) {
        discard(std::mem::take(&mut self.leaving));
    }

    /// Forwards `datagram` to the member that has `to`. Returns false if there is none. A member whose connection is
    /// still full after a millisecond loses the datagram, as with a full socket.
    pub fn deliver(&mut self, to: Destination, from: SocketAddr, ecn: u8, datagram: &[u8]) -> bool {
        // The claim of `to` may not have been read yet.
        let mut owner = self.members.owner(to);
        if owner.is_none() {
            self.catch_up();
            owner = self.members.owner(to);
        }
        let Some(Owner::Member(member)) = owner else {
            return false;
        };
        let Some(connection) = self.connections.get(&member) else {
            return false;
        };
        let packet = FromHolder::Datagram {
            from,
            ecn,
            datagram,
        };
        packet.encode(&mut self.packet);
        let connection = connection.as_fd();
        let full = |sent: &io::Result<()>| matches!(sent, Err(error) if error.kind() == ErrorKind::WouldBlock);
        let mut sent = packets::send(connection, &self.packet, &[]);
        // The holder never waits for members of other users.
        let may_wait =
            self.trust == Trust::Own && self.no_wait_until.is_none_or(|end| end <= Instant::now());
        if full(&sent) && may_wait {
            packets::wait(connection, libc::POLLOUT, SEND_WAIT);
            sent = packets::send(connection, &self.packet, &[]);
            self.no_wait_until = full(&sent).then(|| Instant::now() + NO_WAIT_PERIOD);
        }
        if let Err(error) = &sent
            && !full(&sent)
        {
            tracing::debug!(%error, "a member is gone");
            self.forget(member);
            self.close_leaving();
            return false;
        }
        true
    }
}

#[cfg(test)]
impl Holder {
    /// Returns whether no member of the earlier holder is missed any more.
    pub(crate) fn all_have_joined(&self) -> bool {
        self.absent.is_none()
    }

    /// Replaces the retention of the ports of processes that die from now on.
    pub(crate) fn set_retention(&self, retention: Duration) {
        self.kept_ports.lock().retention = retention;
    }
}

impl AsRawFd for Holder {
    /// Returns the descriptor that is readable when [`Holder::poll_members`] has work, and not for datagrams.
    fn as_raw_fd(&self) -> RawFd {
        self.ready.as_raw_fd()
    }
}

/// Requests a send buffer for datagrams to a member. A smaller one loses more of them.
fn set_send_buffer(connection: RawFd, bytes: libc::c_int) {
    // SAFETY: the option is read for its own size.
    let _ = unsafe {
        libc::setsockopt(
            connection,
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

#[cfg(test)]
mod tests;
