//! How several processes share one address and UDP port 4791 without set-up and without privileges.
//!
//! The kernel gives (address, 4791) to one socket. Its owner, the *porter*, hands datagrams that are not for
//! itself to the process they are for. There is no registry: names in the abstract UNIX namespace are the
//! registry. The kernel keeps them unique, scopes them to the network namespace and frees them when a
//! process dies, however it dies.
//!
//! * `roce/<ip>/qpn/<slot>`: mailbox of the engine that owns the queue pair numbers and communication ids
//!   whose top bits are `slot`;
//! * `roce/<ip>/sid/<service id>`: mailbox of the engine that listens on that service; taken means in use;
//! * `roce/<ip>/life/<slot>`: held by the engine of the slot, for those that are connected to it ([`life`]);
//! * `roce/<ip>/porter`: held by the porter. The others stay connected to it, learn of its end by the hang-up,
//!   and one of them takes the port over.
//!
//! A forged datagram in a mailbox is worth what a forged UDP datagram is worth: every check comes after.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use super::child::{NAMES, NotInherited};
use super::life::{self, Life};

/// Bits of a queue pair number (24) and of a communication id (32) that name the engine: its slot.
pub const SLOT_BITS: u32 = 10;
/// Engines of one address.
pub const SLOTS: u16 = 1 << SLOT_BITS;
/// Address, port, and one byte of ECN before each forwarded datagram.
const ENVELOPE: usize = 19;

/// How long the porter waits for room in a full mailbox: it holds a few datagrams only (net.unix.max_dgram_qlen), and its process
/// may just have been woken.
const ROOM: Duration = Duration::from_millis(1);
/// After waiting in vain nobody is waited for: a process that is stopped must not slow down the others.
const IMPATIENCE: Duration = Duration::from_millis(100);

/// Slot of a queue pair number.
#[must_use]
pub const fn slot_of_qpn(qpn: u32) -> u16 {
    (qpn >> (24 - SLOT_BITS)) as u16 & (SLOTS - 1)
}

/// Slot of a communication id.
#[must_use]
pub const fn slot_of_comm_id(id: u32) -> u16 {
    (id >> (32 - SLOT_BITS)) as u16
}

pub(super) fn name(ip: IpAddr, rest: &str) -> io::Result<UnixAddr> {
    UnixAddr::from_abstract_name(format!("{NAMES}{ip}/{rest}"))
}

/// Receives datagrams that the porter passes on.
#[derive(Debug)]
pub struct Mailbox {
    socket: NotInherited<UnixDatagram>,
}

impl Mailbox {
    /// Takes a free slot of `ip`, trying from `first` on; returns it with the mailbox.
    ///
    /// # Errors
    /// `AddrInUse` when all slots are taken; else as `bind`.
    pub fn slot(ip: IpAddr, first: u16) -> io::Result<(u16, Self)> {
        for step in 0..SLOTS {
            let slot = first.wrapping_add(step) & (SLOTS - 1);
            if slot == 0 {
                continue; // queue pair numbers 0 and 1 are special
            }
            match Self::bind(&name(ip, &format!("qpn/{slot}"))?) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                other => return other.map(|mailbox| (slot, mailbox)),
            }
        }
        Err(ErrorKind::AddrInUse.into())
    }

    /// Takes a service id of `ip`, for this and all other engines of the host.
    ///
    /// # Errors
    /// `AddrInUse` when somebody listens on it; else as `bind`.
    pub fn service(ip: IpAddr, service_id: u64) -> io::Result<Self> {
        Self::bind(&name(ip, &format!("sid/{service_id:016x}"))?)
    }

    fn bind(address: &UnixAddr) -> io::Result<Self> {
        let socket = NotInherited::new(|| UnixDatagram::bind_addr(address))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket })
    }

    /// Takes the next datagram into `buffer` without waiting: who sent it over the network, its ECN bits,
    /// its bytes.
    ///
    /// # Errors
    /// As `recv`, except that an empty mailbox is `None`.
    pub fn receive<'a>(
        &self,
        buffer: &'a mut [u8],
    ) -> io::Result<Option<(SocketAddr, u8, &'a [u8])>> {
        loop {
            // Hot calls come here, with locks: no cancellation point.
            let length = match dat_cancel::defer(|| self.socket.recv(buffer)) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if length >= ENVELOPE {
                let (envelope, datagram) = buffer[..length].split_at(ENVELOPE);
                let mut octets = [0; 16];
                octets.copy_from_slice(&envelope[..16]);
                let ip = Ipv6Addr::from(octets).to_canonical();
                let port = u16::from_be_bytes([envelope[16], envelope[17]]);
                return Ok(Some((SocketAddr::new(ip, port), envelope[18], datagram)));
            }
        }
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Where the porter puts a datagram that is not its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addressee {
    /// The engine of this slot.
    Slot(u16),
    /// The listener on this service id.
    Service(u64),
}

/// The porter's other half: passes datagrams on.
#[derive(Debug)]
pub struct Porter {
    ip: IpAddr,
    outgoing: UnixDatagram,
    /// Waits for room.
    patient: UnixDatagram,
    impatient_until: Option<Instant>,
    /// Held so that the others can wait for our end.
    pub(crate) present: Life,
    letter: Vec<u8>,
}

impl Porter {
    /// Announces this process as the porter of `ip`; it owns the UDP port already.
    ///
    /// # Errors
    /// `AddrInUse` when there is one; else as `bind`.
    pub fn new(ip: IpAddr) -> io::Result<Self> {
        let present = Life::new(ip, "porter")?;
        let outgoing = UnixDatagram::unbound()?;
        outgoing.set_nonblocking(true)?;
        let patient = UnixDatagram::unbound()?;
        patient.set_write_timeout(Some(ROOM))?;
        Ok(Self {
            ip,
            outgoing,
            patient,
            impatient_until: None,
            present,
            letter: Vec::with_capacity(8192),
        })
    }

    /// Passes `datagram` on. `Ok(false)`: nobody has that box (no such queue pair, nobody listens).
    /// A mailbox that is full, and stays so for a millisecond, loses the datagram as a full socket buffer would.
    ///
    /// # Errors
    /// As `sendto`.
    pub fn deliver(
        &mut self,
        to: Addressee,
        from: SocketAddr,
        ecn: u8,
        datagram: &[u8],
    ) -> io::Result<bool> {
        let address = match to {
            Addressee::Slot(slot) => name(self.ip, &format!("qpn/{slot}"))?,
            Addressee::Service(id) => name(self.ip, &format!("sid/{id:016x}"))?,
        };
        let ip = match from.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        self.letter.clear();
        self.letter.extend_from_slice(&ip.octets());
        self.letter.extend_from_slice(&from.port().to_be_bytes());
        self.letter.push(ecn);
        self.letter.extend_from_slice(datagram);
        // As in `receive`.
        let _deferred = dat_cancel::Deferred::new();
        let mut sent = self.outgoing.send_to_addr(&self.letter, &address);
        let full = |sent: &io::Result<usize>| matches!(sent, Err(error) if error.kind() == ErrorKind::WouldBlock);
        if full(&sent) && self.impatient_until.is_none_or(|end| end <= Instant::now()) {
            sent = self.patient.send_to_addr(&self.letter, &address);
            self.impatient_until = full(&sent).then(|| Instant::now() + IMPATIENCE);
        }
        match sent {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Waits for the porter's end: readable (hang-up) when the porter is gone.
///
/// # Errors
/// `ConnectionRefused` when there is none now: try to become it.
pub fn watch_porter(ip: IpAddr) -> io::Result<UnixStream> {
    life::watch(ip, "porter")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn datagrams_reach_the_slot_and_the_service_they_are_for() {
        let ip: IpAddr = "127.77.0.1".parse().unwrap();
        let (slot, mailbox) = Mailbox::slot(ip, 5).unwrap();
        let (other, _held) = Mailbox::slot(ip, 5).unwrap();
        assert_ne!(slot, other);
        let service = Mailbox::service(ip, 7).unwrap();
        assert_eq!(
            Mailbox::service(ip, 7).unwrap_err().kind(),
            ErrorKind::AddrInUse
        );
        let mut porter = Porter::new(ip).unwrap();
        let from: SocketAddr = "10.0.0.9:49152".parse().unwrap();
        assert!(
            porter
                .deliver(Addressee::Slot(slot), from, 3, b"hello")
                .unwrap()
        );
        assert!(
            porter
                .deliver(
                    Addressee::Service(7),
                    "[fd09::1]:5".parse().unwrap(),
                    0,
                    b""
                )
                .unwrap()
        );
        assert!(
            !porter
                .deliver(Addressee::Service(8), from, 0, b"nobody")
                .unwrap()
        );
        let mut buffer = [0; 100];
        assert_eq!(
            mailbox.receive(&mut buffer).unwrap(),
            Some((from, 3, &b"hello"[..]))
        );
        assert_eq!(mailbox.receive(&mut buffer).unwrap(), None);
        let (from, ecn, bytes) = service.receive(&mut buffer).unwrap().unwrap();
        assert_eq!(
            (from.to_string().as_str(), ecn, bytes),
            ("[fd09::1]:5", 0, &b""[..])
        );
    }

    #[test]
    fn a_burst_waits_for_a_reader_and_a_box_that_nobody_reads_stops_nobody() {
        const BURST: u8 = 200;
        let ip: IpAddr = "127.77.0.3".parse().unwrap();
        let (slot, mailbox) = Mailbox::slot(ip, 5).unwrap();
        let (deaf, _unread) = Mailbox::slot(ip, 5).unwrap();
        let mut porter = Porter::new(ip).unwrap();
        let from: SocketAddr = "10.0.0.9:49152".parse().unwrap();
        let reader = std::thread::spawn(move || {
            let (mut buffer, mut got) = ([0; 100], Vec::new());
            let end = Instant::now() + Duration::from_secs(20);
            while got.len() < usize::from(BURST) && Instant::now() < end {
                match mailbox.receive(&mut buffer).unwrap() {
                    Some((_, _, bytes)) => got.push(bytes[0]),
                    None => std::thread::yield_now(),
                }
            }
            got
        });
        for n in 0..BURST {
            // On a busy machine the reader may not run for longer than we wait; what is lost then is no matter here.
            loop {
                porter.impatient_until = None;
                assert!(
                    porter
                        .deliver(Addressee::Slot(slot), from, 0, &[n])
                        .unwrap()
                );
                if porter.impatient_until.is_none() {
                    break;
                }
            }
        }
        assert_eq!(reader.join().unwrap(), (0..BURST).collect::<Vec<_>>());
        for _ in 0..2000 {
            porter
                .deliver(Addressee::Slot(deaf), from, 0, b"x")
                .unwrap();
        }
        assert!(porter.impatient_until.is_some());
    }

    #[test]
    fn the_end_of_the_porter_is_heard_and_its_place_is_free() {
        let ip: IpAddr = "127.77.0.2".parse().unwrap();
        assert_eq!(
            watch_porter(ip).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
        let porter = Porter::new(ip).unwrap();
        assert_eq!(Porter::new(ip).unwrap_err().kind(), ErrorKind::AddrInUse);
        let mut watch = watch_porter(ip).unwrap();
        assert_eq!(
            watch.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        drop(porter);
        match watch.read(&mut [0]) {
            Ok(0) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            Ok(n) => panic!("{n} bytes from a porter that never writes"),
        }
        Porter::new(ip).unwrap();
    }

    #[test]
    fn numbers_name_their_slot() {
        assert_eq!(slot_of_qpn(0x00ff_ffff), 1023);
        assert_eq!(slot_of_qpn(1), 0);
        assert_eq!(slot_of_qpn(5 << 14 | 77), 5);
        assert_eq!(slot_of_comm_id(5 << 22 | 77), 5);
    }
}
