//! `dat serve-port`: a holder of UDP port 4791 for the processes of all users.
//!
//! It has no engine. It records the slots and services of its members, and forwards each datagram to one member. After
//! a restart its members join again by themselves. Until then a file reserves slots and services for the users that had
//! them.

mod state_file;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dat_os::sleep::on_readable;

use crate::ROCE_PORT;
use crate::holder::Holder;
use crate::limits::raise_descriptor_limit;
use crate::poll_set::PollSet;
use crate::port_keeper::MAX_KEPT;
use crate::registry::Quotas;
use crate::route::RecentRequests;
use crate::socket::{Received, Socket};

/// Requested receive buffer of a port in bytes.
const BUFFER: usize = 4 << 20;
/// Reads of a port before other ports and the members are served.
const READS: usize = 64;
/// Time for which slots and services are reserved for their users after a restart.
const RESERVED_FOR: Duration = Duration::from_secs(10);
/// Delay between a change and the write of the file, which contains all changes until then.
const WRITE_DELAY: Duration = Duration::from_millis(50);
/// Delay before a failed write of the file is repeated.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Descriptors that are not for members: a number for the process, and one for each port.
const SPARE: usize = 32;
const SPARE_OF_PORT: usize = 8;
/// First descriptor that systemd passes to a service.
const FIRST_FROM_SYSTEMD: RawFd = 3;

/// Reason why a port cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No address and no socket was given.
    #[error("name the addresses whose UDP port 4791 is to be served; systemd gave no socket")]
    NoAddress,
    /// Another process has the port.
    #[error("cannot hold UDP port {} of {}: {error}; end the process that has it (`ss -lunp`)", .local.port(), .local.ip())]
    Port {
        /// Address and port.
        local: SocketAddr,
        /// Error of the system call.
        error: io::Error,
    },
    /// A socket from systemd is not bound to port 4791 of one address.
    #[error("systemd gave a socket of {local}, which is not UDP port 4791 of one address")]
    WrongSocket {
        /// Address of the socket.
        local: SocketAddr,
    },
    /// The state folder cannot be used.
    #[error("cannot keep the registry in {}: {error}", .folder.display())]
    State {
        /// Path of the folder.
        folder: PathBuf,
        /// Error of the system call.
        error: io::Error,
    },
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The file with the users' slots and services of an address.
#[derive(Debug)]
struct Record {
    path: PathBuf,
    due: Option<Instant>,
}

#[derive(Debug)]
struct Port {
    local: SocketAddr,
    holder: Holder,
    requests: RecentRequests,
    record: Option<Record>,
}

/// Holds UDP port 4791 of some addresses for all users.
#[derive(Debug)]
pub struct Server {
    ports: Vec<Port>,
    poll_set: PollSet,
    received: Received,
    /// End of the reservations.
    reserved_until: Option<Instant>,
}

impl Server {
    /// Binds the port of each address, and takes each socket from systemd. `state` is a folder of the own user that
    /// outlives a restart. Without it another user may take a service while the server is down.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn new(addresses: &[IpAddr], state: Option<&Path>) -> Result<Self, ServeError> {
        let mut sockets = sockets_from_systemd()?;
        for ip in addresses {
            let local = SocketAddr::new(*ip, ROCE_PORT);
            if !sockets.iter().any(|socket| socket.local() == local) {
                let bound = Socket::bind(*ip, ROCE_PORT, BUFFER);
                sockets.push(bound.map_err(|error| ServeError::Port { local, error })?);
            }
        }
        if sockets.is_empty() {
            return Err(ServeError::NoAddress);
        }
        if let Some(folder) = state {
            state_file::prepare_folder(folder).map_err(|error| ServeError::State {
                folder: folder.to_owned(),
                error,
            })?;
        }
        let poll_set = PollSet::new()?;
        let quotas = Quotas {
            members_total: members_total(raise_descriptor_limit(), sockets.len()),
            ..Quotas::default()
        };
        let mut ports = Vec::new();
        for socket in sockets {
            let local = socket.local();
            poll_set.add(socket.as_raw_fd())?;
            let mut holder = Holder::for_all_users(local.ip(), socket.into(), quotas)?;
            poll_set.add(holder.as_raw_fd())?;
            let record = state.map(|folder| Record {
                path: folder.join(local.ip().to_string()),
                due: None,
            });
            if let Some(record) = &record {
                for (what, uid) in state_file::read(&record.path) {
                    holder.registry().reserve(what, uid);
                }
            }
            ports.push(Port {
                local,
                holder,
                requests: RecentRequests::default(),
                record,
            });
        }
        Ok(Self {
            ports,
            poll_set,
            received: Received::new(),
            reserved_until: Some(Instant::now() + RESERVED_FOR),
        })
    }

    /// Returns the addresses and port that are served.
    pub fn locals(&self) -> impl Iterator<Item = SocketAddr> {
        self.ports.iter().map(|port| port.local)
    }

    /// Serves until the process ends.
    pub fn run(mut self) -> ! {
        loop {
            let limit = self
                .next()
                .map(|at| at.saturating_duration_since(Instant::now()));
            let _ = on_readable([self.poll_set.as_raw_fd()], limit);
            self.step(Instant::now());
        }
    }

    /// Returns the time of the next step that no descriptor triggers.
    fn next(&self) -> Option<Instant> {
        let due = self
            .ports
            .iter()
            .filter_map(|port| port.record.as_ref()?.due);
        due.chain(self.reserved_until).min()
    }

    /// Handles what is ready at `now`.
    fn step(&mut self, now: Instant) {
        let opens = self.reserved_until.is_some_and(|end| end <= now);
        if opens {
            self.reserved_until = None;
        }
        let ready = self.poll_set.ready();
        for port in &mut self.ports {
            if opens {
                port.holder.registry().clear_reservations();
            }
            if ready.contains(&port.holder.as_raw_fd()) {
                port.holder.poll_members();
            }
            if ready.contains(&port.holder.socket().as_raw_fd()) {
                port.forward(&mut self.received);
            }
            port.write(now);
        }
    }
}

impl Port {
    fn forward(&mut self, received: &mut Received) {
        let socket = std::sync::Arc::clone(self.holder.socket());
        for _ in 0..READS {
            match socket.receive(received) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(%error, local = %self.local, "cannot read the port; datagrams wait and may be lost");
                    return;
                }
            }
            let from = received.from;
            for (_, datagram) in received.datagrams() {
                if let Some(to) = self.requests.destination(from.ip(), datagram) {
                    self.holder.deliver(to, from, 0, datagram);
                }
            }
        }
    }

    /// Writes the file if a write is due.
    fn write(&mut self, now: Instant) {
        let Some(record) = &mut self.record else {
            return;
        };
        match record.due {
            None if self.holder.registry().has_changed() => record.due = Some(now + WRITE_DELAY),
            Some(due) if due <= now => {
                record.due = None;
                let all = self.holder.registry().changes().unwrap_or_default();
                if let Err(error) = state_file::write(&record.path, &all) {
                    tracing::error!(%error, path = %record.path.display(), "the registry is not kept; trying again");
                    self.holder.registry().mark_changed();
                    record.due = Some(now + RETRY_DELAY);
                }
            }
            _ => {}
        }
    }
}

/// Takes the sockets from systemd (sd_listen_fds(3)).
fn sockets_from_systemd() -> Result<Vec<Socket>, ServeError> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS").unwrap_or(0);
    let mut sockets = Vec::new();
    for index in 0..count.min(64) {
        // SAFETY: systemd opened these descriptors for this process, as LISTEN_PID says. `dat serve-port` is the only code here that takes
        // them, once.
        let socket = unsafe { Socket::inherit(FIRST_FROM_SYSTEMD + index.cast_signed(), BUFFER)? };
        let local = socket.local();
        if local.port() != ROCE_PORT || local.ip().is_unspecified() {
            return Err(ServeError::WrongSocket { local });
        }
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Returns the number of members for which each port has descriptors: two for each member, one of them for its keeper.
fn members_total(descriptors: usize, ports: usize) -> usize {
    (descriptors.saturating_sub(SPARE) / ports.max(1)).saturating_sub(SPARE_OF_PORT + MAX_KEPT) / 2
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use crate::credentials::own_uid;
    use crate::message::Destination;

    use super::*;

    fn server(address: &str, state: Option<&Path>) -> Server {
        Server::new(&[address.parse().unwrap()], state).unwrap()
    }

    #[test]
    fn a_write_that_failed_is_repeated() {
        // The server makes the folder; that of `tempdir` may be open to a group.
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("state");
        let address = "127.61.9.1";
        let mut server = server(address, Some(&folder));
        let blocked = folder.join(format!("{address}.next"));
        std::fs::create_dir(&blocked).unwrap();
        let what = Destination::Slot(5);
        let holder = &mut server.ports[0].holder;
        assert!(holder.claim(what));
        let now = Instant::now();
        server.step(now);
        server.step(now + WRITE_DELAY);
        let path = folder.join(address);
        assert_eq!(state_file::read(&path), []);
        std::fs::remove_dir(&blocked).unwrap();
        let next = server.ports[0].record.as_ref().unwrap().due.unwrap();
        assert_eq!(next, now + WRITE_DELAY + RETRY_DELAY);
        server.step(next);
        assert_eq!(state_file::read(&path), [(what, own_uid())]);
        assert_eq!(server.ports[0].record.as_ref().unwrap().due, None);
    }

    /// Any host can send datagrams for slots without an owner, and any user can join and send claims without an end.
    #[test]
    fn datagrams_for_nobody_do_not_read_all_that_members_send() {
        let address = "127.61.9.4";
        let mut server = server(address, None);
        let name = crate::names::system_name(address.parse().unwrap());
        let trust = crate::credentials::Trust::Own;
        let kind = crate::unix_socket::Kind::Packets;
        let member = crate::names::connect_exact(kind, &name, trust).unwrap();
        let service = Destination::Service;
        for id in 0..100 {
            let claim = crate::message::FromMember::Claim(service(id)).encode();
            crate::packets::send(member.as_fd(), &claim, &[]).unwrap();
        }
        let holder = &mut server.ports[0].holder;
        let from = "10.9.0.9:4791".parse().unwrap();
        for _ in 0..64 {
            assert!(!holder.deliver(Destination::Slot(900), from, 0, &[0; 64]));
        }
        let read = (0..100).filter(|id| holder.registry().owner(service(*id)).is_some());
        let read = read.count();
        assert!((1..100).contains(&read), "{read}");
        // The claim of a destination may still have to be read: some steps later it has been.
        (0..100).for_each(|_| server.step(Instant::now()));
        let holder = &mut server.ports[0].holder;
        assert!(holder.deliver(service(99), from, 0, &[0; 64]));
    }

    #[test]
    fn the_kernel_keeps_half_a_megabyte_for_a_member_that_does_not_read() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::SocketAddr;
        const DATAGRAM: [u8; 4000] = [7; 4000];
        let address = "127.61.9.3";
        let mut server = server(address, None);
        let name = crate::names::system_name(address.parse().unwrap());
        let name = SocketAddr::from_abstract_name(name).unwrap();
        let process =
            crate::unix_socket::connect(crate::unix_socket::Kind::Packets, &name).unwrap();
        let what = Destination::Slot(5);
        let claim = crate::message::FromMember::Claim(what).encode();
        server.step(Instant::now());
        crate::packets::send(process.as_fd(), &claim, &[]).unwrap();
        server.step(Instant::now());
        let holder = &mut server.ports[0].holder;
        let from = "127.61.9.4:4791".parse().unwrap();
        // Far more than any limit: 40 MB.
        for _ in 0..10_000 {
            assert!(holder.deliver(what, from, 0, &DATAGRAM));
        }
        let (mut kept, mut buffer) = (0, [0; 5000]);
        while let crate::packets::Incoming::Packet(length, _) =
            crate::packets::receive(process.as_fd(), &mut buffer, false).unwrap()
        {
            kept += length;
        }
        assert!(kept > 16 * DATAGRAM.len(), "{kept} bytes: nearly nothing");
        assert!(kept <= (512 << 10) + DATAGRAM.len(), "{kept} bytes");
    }

    #[test]
    fn the_port_of_a_dead_process_is_free_when_the_retention_ends() {
        use std::net::UdpSocket;
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::SocketAddr;

        use crate::message::FromMember;

        let address = "127.61.9.5";
        let ip = address.parse().unwrap();
        let mut server = server(address, None);
        let holder = &mut server.ports[0].holder;
        holder.set_retention(Duration::from_millis(300));
        let name = SocketAddr::from_abstract_name(crate::names::system_name(ip)).unwrap();
        let process =
            crate::unix_socket::connect(crate::unix_socket::Kind::Packets, &name).unwrap();
        let socket = Socket::bind(ip, 0, 1 << 16).unwrap();
        crate::port_keeper::allow_keepers(&socket).unwrap();
        let local = socket.local();
        let data_port = FromMember::DataPort(local.port()).encode();
        for packet in [FromMember::Hello.encode(), data_port] {
            crate::packets::send(process.as_fd(), &packet, &[]).unwrap();
        }
        holder.poll_members();
        drop((process, socket));
        let died = Instant::now();
        holder.poll_members();
        // No other process dies or connects: only the timer makes the holder readable.
        while UdpSocket::bind(local).is_err() {
            assert!(died.elapsed() < Duration::from_secs(10), "still bound");
            let left = Some(Duration::from_secs(10));
            assert_eq!(
                on_readable([holder.as_raw_fd()], left),
                dat_os::sleep::Slept::Woken
            );
            holder.poll_members();
        }
        assert!(died.elapsed() >= Duration::from_millis(300));
    }

    #[test]
    fn descriptors_are_for_members_but_for_some() {
        for (descriptors, ports, each) in [
            (1024, 1, 428),
            (1024, 4, 56),
            (16, 1, 0),
            (usize::MAX, 1, (usize::MAX - 168) / 2),
        ] {
            assert_eq!(members_total(descriptors, ports), each);
        }
        let limit = raise_descriptor_limit();
        assert_eq!(raise_descriptor_limit(), limit);
    }
}
