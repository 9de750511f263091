//! The process that has UDP port 4791 of an address: takes members in, and passes on what is for them.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::credentials::{Trust, own_uid, peer_uid};
use crate::fork::CloseOnFork;
use crate::members::{Members, Response};
use crate::message::{Destination, FromHolder};
use crate::names;
use crate::packets::{self, Incoming};
use crate::port_keeper::{PortKeeper, SharedKeptPorts, max_keepers};
use crate::port_share::Takeover;
use crate::registry::{Owner, Quotas, Registry};
use crate::shared_socket::SharedSocket;
use crate::socket::Socket;
use crate::unix_socket::{self, Kind};
use crate::wake::PollSet;

/// How long the holder waits for room where a member is slow to read: its process may just have been woken.
const SEND_WAIT: Duration = Duration::from_millis(1);
/// After waiting in vain the holder waits for no member: a process that is stopped must not slow down the others.
const NO_WAIT_PERIOD: Duration = Duration::from_millis(100);
/// Members of an earlier holder find the next one within this time. A peer repeats its request later than that.
const GRACE: Duration = Duration::from_millis(200);
/// Connections that are taken in, and packets that are read of each member, before other work has its turn.
const ACCEPT_BATCH: usize = 128;
const READ_BATCH: usize = 64;
/// Looks at members that make all of them seen, where more speak at once than one look sees.
const CATCH_UP_ROUNDS: usize = 16;
/// Bytes asked for between the holder and a member; the kernel may give fewer (net.core.wmem_max).
const BUFFER: libc::c_int = 4 << 20;
/// The same where members are of several users: the kernel keeps up to twice as much for each member that does not read.
const BUFFER_ALL_USERS: libc::c_int = 256 << 10;

/// See the module's text.
#[derive(Debug)]
pub struct Holder {
    socket: Arc<Socket>,
    /// `None` where members are of other users.
    shared_socket: Option<Arc<SharedSocket>>,
    listener: CloseOnFork<OwnedFd>,
    /// Readable when there is something to look after.
    bundle: PollSet,
    admits: Trust,
    /// By the member's number.
    connections: HashMap<u64, CloseOnFork<OwnedFd>>,
    /// By descriptor, which is what [`PollSet::ready`] names.
    by_fd: HashMap<RawFd, u64>,
    members: Members,
    kept_ports: SharedKeptPorts,
    /// Keepers at most; each takes a descriptor.
    max_kept: usize,
    /// The own UDP port for data of a process that took the shared port over.
    data_port: u16,
    letter: Vec<u8>,
    no_wait_until: Option<Instant>,
    grace_until: Option<Instant>,
}

impl Holder {
    /// A holder for the processes of the own user. This process has entered the estate.
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

    /// A holder for the processes of all users, which share so much.
    ///
    /// # Errors
    /// As `socket`, `bind`, `epoll_create1`.
    pub fn for_all_users(ip: IpAddr, socket: Arc<Socket>, quotas: Quotas) -> io::Result<Self> {
        let members = Members::for_all_users(quotas);
        let name = names::system_name(ip);
        let mut holder = Self::new(socket, None, &name, Trust::Everyone, members)?;
        // Its members are bounded such that there are descriptors for their keepers.
        holder.max_kept = usize::MAX;
        Ok(holder)
    }

    fn new(
        socket: Arc<Socket>,
        shared_socket: Option<Arc<SharedSocket>>,
        name: &str,
        admits: Trust,
        members: Members,
    ) -> io::Result<Self> {
        let listener = names::listen(Kind::Packets, name)?;
        let bundle = PollSet::new()?;
        bundle.add(listener.as_raw_fd())?;
        Ok(Self {
            socket,
            shared_socket,
            listener,
            bundle,
            admits,
            connections: HashMap::new(),
            by_fd: HashMap::new(),
            members,
            kept_ports: SharedKeptPorts::default(),
            max_kept: max_keepers(),
            data_port: 0,
            letter: Vec::with_capacity(8192),
            no_wait_until: None,
            grace_until: None,
        })
    }

    /// Stops looking for processes that want to be taken in, or does so again: where there is no descriptor for them, the
    /// holder would be readable without an end.
    ///
    /// # Errors
    /// As `epoll_ctl`: out of memory.
    pub fn set_accepting(&self, look: bool) -> io::Result<()> {
        let listener = self.listener.as_raw_fd();
        self.bundle.remove(listener);
        if look {
            self.bundle.add(listener)
        } else {
            Ok(())
        }
    }

    /// Notes that members of an earlier holder have still to join this one.
    pub(crate) fn start_grace_period(&mut self, takeover: &Takeover) {
        self.kept_ports = takeover.kept_ports.clone();
        self.data_port = takeover.data_port;
        self.grace_until = Some(Instant::now() + GRACE);
    }

    /// Returns true while members of an earlier holder may not have joined yet. What no member has is to be dropped then, not refused.
    pub fn in_grace_period(&mut self) -> bool {
        self.grace_until.take_if(|end| *end <= Instant::now());
        self.grace_until.is_some()
    }

    /// The socket of the port.
    #[must_use]
    pub fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// The slots and services of the address.
    pub fn registry(&mut self) -> &mut Registry {
        self.members.registry()
    }

    /// Claims `what` for the holder itself. `false`: a member has it.
    pub fn claim(&mut self, what: Destination) -> bool {
        // A claim of a member may wait to be read, and was made before.
        self.catch_up();
        self.registry().claim(what, Owner::Holder, own_uid())
    }

    /// Gives back what the holder itself claimed.
    pub fn release(&mut self, what: Destination) {
        self.registry().release(what, Owner::Holder);
    }

    /// Takes in processes that have connected, reads what members say, and forgets those that are gone. `false`: a
    /// process waits to be taken in, and there is no descriptor for it.
    pub fn poll_members(&mut self) -> bool {
        let listener = self.listener.as_raw_fd();
        let mut waits = false;
        // Members that are gone come first: their descriptors are free for those that come.
        for fd in self.bundle.ready() {
            waits |= fd == listener;
            if let Some(member) = self.by_fd.get(&fd) {
                self.read(*member);
            }
        }
        if !waits {
            return true;
        }
        for _ in 0..ACCEPT_BATCH {
            match CloseOnFork::new(|| unix_socket::accept(self.listener.as_fd())) {
                Ok(connection) => self.admit(connection),
                Err(error) => {
                    return matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::ConnectionAborted
                    );
                }
            }
        }
        true
    }

    /// Reads what members said before this moment.
    fn catch_up(&mut self) {
        for _ in 0..CATCH_UP_ROUNDS {
            if !self.bundle.is_readable() || !self.poll_members() {
                return;
            }
        }
    }

    fn admit(&mut self, connection: CloseOnFork<OwnedFd>) {
        let (true, Ok(uid)) = (
            self.admits.accepts(connection.as_fd()),
            peer_uid(connection.as_fd()),
        ) else {
            tracing::debug!("a process of another user is not taken in");
            return;
        };
        let Some(member) = self.members.admit(uid) else {
            tracing::warn!(uid, "the user has too many processes at the port");
            return;
        };
        let room = if self.admits == Trust::Own {
            BUFFER
        } else {
            BUFFER_ALL_USERS
        };
        set_send_buffer(connection.as_raw_fd(), room);
        if let Err(error) = self.bundle.add(connection.as_raw_fd()) {
            tracing::debug!(%error, "a process is not taken in");
            self.members.forget(member);
            return;
        }
        self.by_fd.insert(connection.as_raw_fd(), member);
        self.connections.insert(member, connection);
        self.read(member);
    }

    /// Reads what a member says.
    fn read(&mut self, member: u64) {
        let mut buffer = [0; 64];
        for _ in 0..READ_BATCH {
            let Some(connection) = self.connections.get(&member) else {
                return;
            };
            let connection = connection.as_fd();
            match packets::receive(connection, &mut buffer, false) {
                Ok(Incoming::Empty) => return,
                Ok(Incoming::Packet(length, _)) => {
                    match self.members.handle(member, &buffer[..length]) {
                        Response::Answer(what, granted) => {
                            FromHolder::Answer(what, granted).encode(&mut self.letter);
                            // One that does not read its answers waits in vain.
                            let _ = packets::send(connection, &self.letter, &[]);
                        }
                        Response::Welcome => {
                            FromHolder::Welcome(Some(self.data_port)).encode(&mut self.letter);
                            let shared_socket = self
                                .shared_socket
                                .as_ref()
                                .map(|shared_socket| shared_socket.descriptors());
                            let with = shared_socket.as_ref().map_or(&[][..], |fds| &fds[..]);
                            if let Err(error) = packets::send(connection, &self.letter, with) {
                                tracing::debug!(%error, "a process is not taken in");
                                return self.forget(member);
                            }
                        }
                        Response::KeepPort(port) => self.keep_port(member, port),
                        Response::Nothing => {}
                        Response::Invalid => return self.forget(member),
                    }
                }
                Ok(Incoming::Closed) | Err(_) => return self.forget(member),
            }
        }
    }

    /// Binds a second socket to the UDP port of a member, which stays bound when the member dies.
    fn keep_port(&mut self, member: u64, port: u16) {
        let (Some(uid), mut kept) = (self.members.uid(member), self.kept_ports.lock()) else {
            return;
        };
        if kept.has(member) || kept.len() >= self.max_kept {
            tracing::debug!(
                uid,
                port,
                "a member's UDP port is not kept for when it dies"
            );
            return;
        }
        let local = SocketAddr::new(self.socket.local().ip(), port);
        match PortKeeper::bind(local, uid) {
            Ok(keeper) => kept.insert(member, uid, keeper),
            Err(error) => {
                tracing::debug!(%error, uid, port, "a member's UDP port is not kept for when it dies");
            }
        }
    }

    fn forget(&mut self, member: u64) {
        self.kept_ports.lock().member_died(member, Instant::now());
        self.members.forget(member);
        if let Some(connection) = self.connections.remove(&member) {
            let fd = connection.as_raw_fd();
            self.by_fd.remove(&fd);
            self.bundle.remove(fd);
        }
    }

    /// Passes `datagram` on. `false`: no member has `to`. A member that has too much to read, and still has a
    /// millisecond later, loses the datagram, as a full socket loses it.
    pub fn deliver(&mut self, to: Destination, from: SocketAddr, ecn: u8, datagram: &[u8]) -> bool {
        // What a member said before its peer sent this may wait to be read.
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
        let letter = FromHolder::Datagram {
            from,
            ecn,
            datagram,
        };
        letter.encode(&mut self.letter);
        let connection = connection.as_fd();
        let full = |sent: &io::Result<()>| matches!(sent, Err(error) if error.kind() == ErrorKind::WouldBlock);
        let mut sent = packets::send(connection, &self.letter, &[]);
        // Members of other users are never waited for.
        let may_wait =
            self.admits == Trust::Own && self.no_wait_until.is_none_or(|end| end <= Instant::now());
        if full(&sent) && may_wait {
            packets::wait(connection, libc::POLLOUT, SEND_WAIT);
            sent = packets::send(connection, &self.letter, &[]);
            self.no_wait_until = full(&sent).then(|| Instant::now() + NO_WAIT_PERIOD);
        }
        if let Err(error) = &sent
            && !full(&sent)
        {
            tracing::debug!(%error, "a member is gone");
            self.forget(member);
            return false;
        }
        true
    }
}

impl AsRawFd for Holder {
    /// Readable when there is something to look after; not when datagrams arrive.
    fn as_raw_fd(&self) -> RawFd {
        self.bundle.as_raw_fd()
    }
}

/// Asks for room for datagrams on the way to a member. With less than that, more are lost.
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
