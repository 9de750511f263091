//! The process that has UDP port 4791 of an address: takes members in, and passes on what is for them.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::child::NotInherited;
use crate::credentials::{Trust, own_uid, peer_uid};
use crate::dial::{self, Kind};
use crate::estate::Estate;
use crate::letter::{Addressee, FromHolder};
use crate::life::stirs;
use crate::members::{Heard, Members};
use crate::names;
use crate::packets::{self, Got};
use crate::registry::{Most, Owner, Registry};
use crate::socket::Socket;
use crate::wake::Bundle;

/// How long the holder waits for room where a member is slow to read: its process may just have been woken.
const ROOM: Duration = Duration::from_millis(1);
/// After waiting in vain the holder waits for no member: a process that is stopped must not slow down the others.
const IMPATIENCE: Duration = Duration::from_millis(100);
/// Members of an earlier holder find the next one within this time. A peer repeats its request later than that.
const SETTLING: Duration = Duration::from_millis(200);
/// Connections that are taken in, and packets that are read of each member, before other work has its turn.
const ACCEPTED: usize = 128;
const READ: usize = 64;
/// Looks at members that make all of them seen, where more speak at once than one look sees.
const LOOKS: usize = 16;
/// Bytes asked for between the holder and a member; the kernel may give fewer (net.core.wmem_max).
const BUFFER: libc::c_int = 4 << 20;
/// The same where members are of several users: the kernel keeps up to twice as much for each member that does not read.
const BUFFER_OF_EVERYONE: libc::c_int = 256 << 10;

/// See the module's text.
#[derive(Debug)]
pub struct Holder {
    socket: Arc<Socket>,
    /// `None` where members are of other users.
    estate: Option<Arc<Estate>>,
    listener: NotInherited<OwnedFd>,
    /// Readable when there is something to look after.
    bundle: Bundle,
    admits: Trust,
    /// By the member's number.
    connections: HashMap<u64, NotInherited<OwnedFd>>,
    /// By descriptor, which is what [`Bundle::ready`] names.
    by_fd: HashMap<RawFd, u64>,
    members: Members,
    letter: Vec<u8>,
    impatient_until: Option<Instant>,
    settling_until: Option<Instant>,
}

impl Holder {
    /// A holder for the processes of the own user. This process has entered the estate.
    ///
    /// # Errors
    /// As `socket`, `bind`, `epoll_create1`.
    pub fn for_user(ip: IpAddr, estate: Arc<Estate>) -> io::Result<Self> {
        let socket = Arc::clone(estate.socket());
        let name = names::of_user(ip, "port");
        Self::new(socket, Some(estate), &name, Trust::Own, Members::default())
    }

    /// A holder for the processes of all users, which share so much.
    ///
    /// # Errors
    /// As `socket`, `bind`, `epoll_create1`.
    pub fn for_everyone(ip: IpAddr, socket: Arc<Socket>, most: Most) -> io::Result<Self> {
        let members = Members::of_everyone(most);
        let name = names::of_system(ip);
        Self::new(socket, None, &name, Trust::Everyone, members)
    }

    fn new(
        socket: Arc<Socket>,
        estate: Option<Arc<Estate>>,
        name: &str,
        admits: Trust,
        members: Members,
    ) -> io::Result<Self> {
        let listener = names::listen(Kind::Packets, name)?;
        let bundle = Bundle::new()?;
        bundle.add(listener.as_raw_fd())?;
        Ok(Self {
            socket,
            estate,
            listener,
            bundle,
            admits,
            connections: HashMap::new(),
            by_fd: HashMap::new(),
            members,
            letter: Vec::with_capacity(8192),
            impatient_until: None,
            settling_until: None,
        })
    }

    /// Stops looking for processes that want to be taken in, or does so again: where there is no descriptor for them, the
    /// holder would be readable without an end.
    ///
    /// # Errors
    /// As `epoll_ctl`: out of memory.
    pub fn look_for_processes(&self, look: bool) -> io::Result<()> {
        let listener = self.listener.as_raw_fd();
        self.bundle.remove(listener);
        if look {
            self.bundle.add(listener)
        } else {
            Ok(())
        }
    }

    /// Notes that members of an earlier holder have still to join this one.
    pub(crate) fn settle(&mut self) {
        self.settling_until = Some(Instant::now() + SETTLING);
    }

    /// Returns true while members of an earlier holder may not have joined yet. What no member has is to be dropped then, not refused.
    pub fn is_settling(&mut self) -> bool {
        self.settling_until.take_if(|end| *end <= Instant::now());
        self.settling_until.is_some()
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
    pub fn claim(&mut self, what: Addressee) -> bool {
        // A claim of a member may wait to be read, and was made before.
        self.catch_up();
        self.registry().claim(what, Owner::Holder, own_uid())
    }

    /// Gives back what the holder itself claimed.
    pub fn release(&mut self, what: Addressee) {
        self.registry().release(what, Owner::Holder);
    }

    /// Takes in processes that have connected, reads what members say, and forgets those that are gone. `false`: a
    /// process waits to be taken in, and there is no descriptor for it.
    pub fn look_after(&mut self) -> bool {
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
        for _ in 0..ACCEPTED {
            match NotInherited::new(|| dial::accept(self.listener.as_fd())) {
                Ok(connection) => self.take_in(connection),
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
        for _ in 0..LOOKS {
            if !stirs(&self.bundle) || !self.look_after() {
                return;
            }
        }
    }

    fn take_in(&mut self, connection: NotInherited<OwnedFd>) {
        let (true, Ok(uid)) = (
            self.admits.covers(connection.as_fd()),
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
            BUFFER_OF_EVERYONE
        };
        ask_for_room(connection.as_raw_fd(), room);
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
        for _ in 0..READ {
            let Some(connection) = self.connections.get(&member) else {
                return;
            };
            let connection = connection.as_fd();
            match packets::receive(connection, &mut buffer, false) {
                Ok(Got::Nothing) => return,
                Ok(Got::Packet(length, _)) => match self.members.hear(member, &buffer[..length]) {
                    Heard::Answer(what, granted) => {
                        FromHolder::Answer(what, granted).encode(&mut self.letter);
                        // One that does not read its answers waits in vain.
                        let _ = packets::send(connection, &self.letter, &[]);
                    }
                    Heard::Welcome => {
                        FromHolder::Welcome.encode(&mut self.letter);
                        let estate = self.estate.as_ref().map(|estate| estate.descriptors());
                        let with = estate.as_ref().map_or(&[][..], |fds| &fds[..]);
                        if let Err(error) = packets::send(connection, &self.letter, with) {
                            tracing::debug!(%error, "a process is not taken in");
                            return self.forget(member);
                        }
                    }
                    Heard::Silence => {}
                    Heard::Nonsense => return self.forget(member),
                },
                Ok(Got::End) | Err(_) => return self.forget(member),
            }
        }
    }

    fn forget(&mut self, member: u64) {
        self.members.forget(member);
        if let Some(connection) = self.connections.remove(&member) {
            let fd = connection.as_raw_fd();
            self.by_fd.remove(&fd);
            self.bundle.remove(fd);
        }
    }

    /// Passes `datagram` on. `false`: no member has `to`. A member that has too much to read, and still has a
    /// millisecond later, loses the datagram, as a full socket loses it.
    pub fn deliver(&mut self, to: Addressee, from: SocketAddr, ecn: u8, datagram: &[u8]) -> bool {
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
        let patient = self.admits == Trust::Own
            && self.impatient_until.is_none_or(|end| end <= Instant::now());
        if full(&sent) && patient {
            packets::wait(connection, libc::POLLOUT, ROOM);
            sent = packets::send(connection, &self.letter, &[]);
            self.impatient_until = full(&sent).then(|| Instant::now() + IMPATIENCE);
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
fn ask_for_room(connection: RawFd, bytes: libc::c_int) {
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
