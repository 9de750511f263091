//! A process that receives its datagrams of UDP port 4791 from the port's holder.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::credentials::{SYSTEM_UID, Trust, own_uid};
use crate::fork::{self, CloseOnFork};
use crate::former_share::FormerShare;
use crate::message::{Destination, FromHolder, FromMember};
use crate::names;
use crate::packets::{self, Incoming};
use crate::port_keeper::{PortKeeper, SharedKeptPorts};
use crate::shared_socket::SharedSocket;
use crate::socket::zeros;
use crate::unix_socket::{self, Kind};

/// Longest wait for a holder's answer to a claim.
const ANSWER: Duration = Duration::from_secs(1);
/// Time after which a claim is repeated: a connection that is full of datagrams has no room for the answer.
const REPEAT: Duration = Duration::from_millis(100);
/// Bytes of datagrams that are kept during that wait. Further ones are lost, as with a full socket.
const MAX_BACKLOG: usize = 1 << 20;
/// Member number of the holder's own port in [`SharedKeptPorts`].
const HOLDER: u64 = u64::MAX;

/// The connection of this process to the port's holder.
#[derive(Debug)]
pub struct Member {
    connection: CloseOnFork<OwnedFd>,
    local: SocketAddr,
    trust: Trust,
    /// Received from a holder of the own user when it admitted this process.
    shared_socket: Option<Arc<SharedSocket>>,
    /// Own UDP port for data; 0 if none was reported.
    data_port: u16,
    /// The holder has admitted this process and understands [`FromMember::DataPort`].
    keeps_data_port: bool,
    kept_ports: SharedKeptPorts,
    /// Claims that a caller waits for, and their answers.
    pending: HashMap<Destination, Option<bool>>,
    /// Packets that arrived while a caller waited for an answer.
    backlog: VecDeque<Vec<u8>>,
    backlog_bytes: usize,
}

impl Member {
    /// Joins the holder of `local` (an address and the port) that belongs to the own user, or with [`Trust::User`]
    /// the holder for all users that this user runs. `former` is what the earlier share in the port leaves.
    ///
    /// # Errors
    /// As connect(2), `setsockopt` and `sendmsg`.
    pub fn join(local: SocketAddr, trust: Trust, former: &FormerShare) -> io::Result<Self> {
        let ip: IpAddr = local.ip();
        let name = match trust {
            Trust::Own => names::user_name(ip, "port"),
            Trust::User(_) | Trust::Everyone => names::system_name(ip),
        };
        let connection = names::connect(Kind::Packets, &name, trust)?;
        // `connect` has verified the holder's user. A holder for all users sends no descriptors.
        if trust == Trust::Own {
            unix_socket::allow_descriptors(connection.as_fd())?;
        }
        packets::send(connection.as_fd(), &FromMember::Hello.encode(), &[])?;
        Ok(Self {
            connection,
            local,
            trust,
            shared_socket: former.shared_socket.clone(),
            data_port: former.data_port,
            keeps_data_port: false,
            kept_ports: former.kept_ports.clone(),
            pending: HashMap::new(),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
        })
    }

    /// Returns the address and the port that are shared.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns true if the holder serves all users.
    #[must_use]
    pub fn uses_system_holder(&self) -> bool {
        self.trust != Trust::Own
    }

    /// Returns the socket of the port that the holder shares with its members.
    #[must_use]
    pub fn shared_socket(&self) -> Option<&Arc<SharedSocket>> {
        self.shared_socket.as_ref()
    }

    /// Returns true if the holder has ended. Datagrams that it forwarded before may still wait.
    #[must_use]
    pub fn holder_is_gone(&self) -> bool {
        packets::is_closed(self.connection.as_fd())
    }

    /// Claims `what` and does not wait for the answer.
    ///
    /// # Errors
    /// As `sendmsg`.
    pub fn claim(&self, what: Destination) -> io::Result<()> {
        let claim = FromMember::Claim(what).encode();
        packets::send(self.connection.as_fd(), &claim, &[])
    }

    /// Claims `what` and waits for the answer.
    ///
    /// # Errors
    /// `OutOfMemory`; `TimedOut` when the holder is stopped or too busy; as `sendmsg` and `recvmsg`.
    pub fn claim_and_wait(&mut self, what: Destination) -> io::Result<bool> {
        let mut buffer = zeros(1 << 16)?;
        self.pending.insert(what, None);
        let answer = self
            .claim(what)
            .and_then(|()| self.answer(what, &mut buffer));
        self.pending.remove(&what);
        answer
    }

    fn answer(&mut self, what: Destination, buffer: &mut [u8]) -> io::Result<bool> {
        let begin = Instant::now();
        let (end, mut repeat) = (begin + ANSWER, begin + REPEAT);
        loop {
            // Datagrams may arrive without an end.
            let now = Instant::now();
            if end <= now {
                return Err(ErrorKind::TimedOut.into());
            }
            if repeat <= now {
                repeat = now + REPEAT;
                match self.claim(what) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    done => done?,
                }
            }
            match self.take(buffer)? {
                Some(length) => {
                    if !self.handle_control(&buffer[..length]) {
                        self.keep(&buffer[..length])?;
                    }
                }
                None => {
                    if self.holder_is_gone() {
                        return Err(ErrorKind::ConnectionReset.into());
                    }
                    let left = end.min(repeat).saturating_duration_since(now);
                    packets::wait(self.connection.as_fd(), libc::POLLIN, left);
                }
            }
            if let Some(Some(granted)) = self.pending.get(&what) {
                return Ok(*granted);
            }
        }
    }

    /// Keeps a datagram for the next call of [`receive`](Self::receive), or drops it if there are too many.
    fn keep(&mut self, datagram: &[u8]) -> io::Result<()> {
        if self.backlog_bytes + datagram.len() > MAX_BACKLOG {
            return Ok(());
        }
        let mut packet = Vec::new();
        packet.try_reserve_exact(datagram.len())?;
        packet.extend_from_slice(datagram);
        self.backlog_bytes += packet.len();
        self.backlog.push_back(packet);
        Ok(())
    }

    /// Releases `what`.
    ///
    /// # Errors
    /// As `sendmsg`.
    pub fn release(&self, what: Destination) -> io::Result<()> {
        let release = FromMember::Release(what).encode();
        packets::send(self.connection.as_fd(), &release, &[])
    }

    /// Takes the next datagram into `buffer` without waiting: its sender, its ECN bits, its bytes.
    ///
    /// # Errors
    /// As `recvmsg`. The end of the holder is no error: it makes this return `None` forever.
    pub fn receive<'a>(
        &mut self,
        buffer: &'a mut [u8],
    ) -> io::Result<Option<(SocketAddr, u8, &'a [u8])>> {
        let length = loop {
            if let Some(packet) = self.backlog.pop_front() {
                self.backlog_bytes -= packet.len();
                let room = buffer.get_mut(..packet.len());
                let room = room.ok_or(ErrorKind::InvalidInput)?;
                room.copy_from_slice(&packet);
                break packet.len();
            }
            match self.take(buffer)? {
                None => return Ok(None),
                Some(length) if self.handle_control(&buffer[..length]) => {}
                Some(length) => break length,
            }
        };
        Ok(match FromHolder::decode(&buffer[..length]) {
            Some(FromHolder::Datagram {
                from,
                ecn,
                datagram,
            }) => Some((from, ecn, datagram)),
            _ => None,
        })
    }

    /// Takes a packet, and the shared socket if its descriptors come with it.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let wants = self.trust == Trust::Own;
        let connection = self.connection.as_fd();
        let shared = self.shared_socket.as_ref();
        let (length, shared_socket) = fork::while_changing_descriptors(|| {
            let (length, mut with) = match packets::receive(connection, buffer, wants)? {
                Incoming::Empty | Incoming::Closed => return Ok((None, None)),
                Incoming::Packet(length, with) => (length, with),
            };
            let packet = FromHolder::decode(&buffer[..length]);
            let shared_socket = match packet {
                _ if with.is_empty() => None,
                Some(FromHolder::Welcome(_)) => {
                    Some(SharedSocket::from_descriptors(with, self.local))
                }
                Some(FromHolder::Ring) => {
                    let map = with.swap_remove(0);
                    if let Some(shared) = shared {
                        shared.keep_ring(CloseOnFork::new(|| Ok(map))?);
                    }
                    None
                }
                // Descriptors that a later release sends with other packets are closed.
                _ => None,
            };
            Ok::<_, io::Error>((Some(length), shared_socket))
        })?;
        match shared_socket {
            Some(Ok(shared_socket)) => self.shared_socket = Some(Arc::new(shared_socket)),
            Some(Err(error)) => {
                tracing::warn!(%error, "this process cannot take over UDP port 4791 when its holder ends");
            }
            None => {}
        }
        Ok(length)
    }

    /// Handles a packet that is no datagram. Returns false for a datagram.
    fn handle_control(&mut self, packet: &[u8]) -> bool {
        match FromHolder::decode(packet) {
            Some(FromHolder::Datagram { .. }) => false,
            Some(FromHolder::Answer(what, granted)) => {
                match self.pending.get_mut(&what) {
                    Some(answer) => *answer = Some(granted),
                    None if granted => {}
                    None => tracing::warn!(
                        ?what,
                        local = %self.local,
                        "another process still has what this one registered at the port and receives its datagrams; end one of them"
                    ),
                }
                true
            }
            Some(FromHolder::Welcome(holder_port)) => {
                self.admitted(holder_port);
                true
            }
            Some(FromHolder::Ring) | None => true,
        }
    }
}

impl Member {
    /// Returns what this process needs to replace a holder that has ended.
    pub(crate) fn former_share(&self) -> FormerShare {
        self.kept_ports.lock().member_died(HOLDER, Instant::now());
        FormerShare {
            // If this process took the port of a holder for all users, the other users could not use it.
            holder: self.uses_system_holder().then_some(SYSTEM_UID),
            shared_socket: self.shared_socket.clone(),
            data_port: self.data_port,
            kept_ports: self.kept_ports.clone(),
        }
    }

    /// Reports this process's own UDP port for data, as soon as the holder has admitted the process.
    pub(crate) fn report_data_port(&mut self, port: u16) {
        self.data_port = port;
        if self.keeps_data_port && port != 0 {
            let report = FromMember::DataPort(port).encode();
            // If the holder has ended, the next one gets the report.
            if let Err(error) = packets::send(self.connection.as_fd(), &report, &[]) {
                tracing::debug!(%error, "the UDP port of this process is not reported to the holder");
            }
        }
    }

    /// Handles the admission by a holder that receives data at `holder_port`, 0 for the shared port.
    fn admitted(&mut self, holder_port: Option<u16>) {
        self.keeps_data_port = holder_port.is_some();
        self.report_data_port(self.data_port);
        let port = holder_port.unwrap_or(0);
        if self.trust == Trust::Own && port != 0 {
            let local = SocketAddr::new(self.local.ip(), port);
            match PortKeeper::bind(local, own_uid()) {
                Ok(keeper) => self.kept_ports.lock().insert(HOLDER, own_uid(), keeper),
                Err(error) => tracing::debug!(%error, "the holder's UDP port is free when it dies"),
            }
        }
    }
}

impl AsRawFd for Member {
    /// Returns the descriptor that is readable when a datagram arrived or the holder ended.
    fn as_raw_fd(&self) -> RawFd {
        self.connection.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use crate::discard::ListeningSocket;
    use crate::unix_socket::accept;

    use super::*;

    /// A member of a holder that the test plays.
    fn joined(ip: &str) -> (Member, OwnedFd, ListeningSocket) {
        let local: SocketAddr = (ip.parse::<IpAddr>().unwrap(), 4791).into();
        let name = names::user_name(local.ip(), "port");
        let listener = names::listen_exact(Kind::Packets, &name).unwrap();
        let member = Member::join(local, Trust::Own, &FormerShare::default()).unwrap();
        let holder = accept(listener.as_fd()).unwrap();
        (member, holder, listener)
    }

    /// What a holder of this release sends is taken, whatever comes before, behind or within it.
    #[test]
    fn a_member_of_a_later_holder_takes_what_it_knows() {
        use crate::socket::Socket;

        let (mut member, holder, _listener) = joined("127.77.11.3");
        let socket = Socket::bind(member.local().ip(), 4791, 1 << 16).unwrap();
        let shared = SharedSocket::new(Arc::new(socket)).unwrap();
        let [port, lock] = shared.descriptors();
        let null = std::fs::File::open("/dev/null").unwrap();
        let null = null.as_raw_fd();
        let send = |packet: &[u8], with: &[RawFd]| {
            packets::send(holder.as_fd(), packet, with).unwrap();
        };
        let mut packet = Vec::new();
        let mut longer = |packet_of: FromHolder<'_>| {
            packet_of.encode(&mut packet);
            [&packet[..], &[9; 30]].concat()
        };
        send(&[200; 40], &[null]);
        send(&longer(FromHolder::Welcome(Some(0))), &[port, lock, null]);
        let what = Destination::Slot(7);
        member.pending.insert(what, None);
        send(&longer(FromHolder::Answer(what, true)), &[null]);
        send(&longer(FromHolder::Ring), &[null, null]);
        let passed_on = FromHolder::Datagram {
            from: "10.9.0.1:4791".parse().unwrap(),
            ecn: 0,
            datagram: &[7; 60],
        };
        passed_on.encode(&mut packet);
        // Descriptors like the port's own are not taken with an unknown packet.
        send(&[201], &[port, lock]);
        send(&packet, &[]);
        let mut buffer = [0; 1024];
        let (_, _, datagram) = member.receive(&mut buffer).unwrap().unwrap();
        assert_eq!(datagram, [7; 60]);
        assert!(member.keeps_data_port);
        assert_eq!(member.pending[&what], Some(true));
        let taken = member.shared_socket().unwrap();
        assert_eq!(taken.socket().local(), member.local());
    }

    /// Plays the holder until `done`: passes on as many datagrams as the connection takes, and grants the claim that comes as the number
    /// `answers`.
    fn flood(holder: &OwnedFd, answers: u32, done: &std::sync::atomic::AtomicBool) {
        let (mut packet, mut claims) = (Vec::new(), 0);
        let datagram = FromHolder::Datagram {
            from: "10.9.0.1:4791".parse().unwrap(),
            ecn: 0,
            datagram: &[7; 4000],
        };
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            datagram.encode(&mut packet);
            while packets::send(holder.as_fd(), &packet, &[]).is_ok() {}
            let mut bytes = [0; 64];
            let received = packets::receive(holder.as_fd(), &mut bytes, false).unwrap();
            if let Incoming::Packet(length, _) = received
                && let Some(FromMember::Claim(what)) = FromMember::decode(&bytes[..length])
            {
                claims += 1;
                if claims == answers {
                    FromHolder::Answer(what, true).encode(&mut packet);
                    while packets::send(holder.as_fd(), &packet, &[]).is_err() {}
                }
            }
        }
    }

    /// Any host can send datagrams, and a connection that is full of them has no room for the holder's answer.
    #[test]
    fn a_claim_beside_a_flood_of_datagrams_is_repeated_and_ends() {
        for (ip, answers) in [("127.77.11.1", 2), ("127.77.11.2", u32::MAX)] {
            let (mut member, holder, _listener) = joined(ip);
            let done = std::sync::atomic::AtomicBool::new(false);
            let granted = std::thread::scope(|scope| {
                scope.spawn(|| flood(&holder, answers, &done));
                let granted = member.claim_and_wait(Destination::Service(7));
                done.store(true, std::sync::atomic::Ordering::Relaxed);
                granted
            });
            match answers {
                2 => assert!(granted.unwrap()),
                _ => assert_eq!(granted.unwrap_err().kind(), ErrorKind::TimedOut),
            }
            let kept: usize = member.backlog.iter().map(Vec::len).sum();
            assert_eq!(kept, member.backlog_bytes);
            assert!((1..=MAX_BACKLOG).contains(&kept), "{kept} bytes");
            let mut buffer = vec![0; 1 << 16];
            assert!(member.receive(&mut buffer).unwrap().is_some());
            assert!(member.backlog_bytes < kept);
        }
    }
}
