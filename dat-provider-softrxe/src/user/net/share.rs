//! A process's share in UDP port 4791 of an address: it holds the port and passes on what is for others, or
//! it waits for the end of the one who does, and then tries to take the port over.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::child::NotInherited;
use super::door::{Porter, watch_porter};
use super::life::is_over;
use super::route::addressee;
use super::socket::{Received, Socket};

/// How long the port may be taken while nobody says that he holds it: the moment of a change.
const CHANGE: Duration = Duration::from_secs(1);
/// Reads before the port is given up, at most: more than its buffer holds.
const REST: usize = 10_000;

/// See the module's text.
#[derive(Debug)]
pub(crate) enum Share {
    /// This process holds the port.
    Porter(Arc<Socket>, Porter),
    /// Another one does.
    Guest(NotInherited<UnixStream>),
}

impl Share {
    /// Takes the port of `ip` if it is free, else finds who holds it.
    ///
    /// # Errors
    /// `AddrInUse` when the port is taken and its holder is no engine of ours, or does not answer; else as `bind`.
    pub(crate) fn take(ip: IpAddr, port: u16, buffer: usize) -> io::Result<Self> {
        let begin = Instant::now();
        loop {
            match Socket::bind(ip, port, buffer) {
                // Whoever had the port before may still be on its way out with the name.
                Ok(socket) => match Porter::new(ip) {
                    Ok(porter) => return Ok(Self::Porter(Arc::new(socket), porter)),
                    Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                    Err(error) => return Err(error),
                },
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    match NotInherited::new(|| watch_porter(ip)) {
                        Ok(watch) => return Ok(Self::Guest(watch)),
                        // Who takes nobody in is busy, or stopped.
                        Err(error)
                            if matches!(
                                error.kind(),
                                ErrorKind::ConnectionRefused | ErrorKind::WouldBlock
                            ) => {}
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
            if begin.elapsed() > CHANGE {
                return Err(ErrorKind::AddrInUse.into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the port's holder is gone. Its own holder says no.
    #[must_use]
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Porter(..) => false,
            Self::Guest(watch) => is_over(watch),
        }
    }

    /// What still lies in the port's socket goes to those whom it is for; to be called before the port is given up, as
    /// what its holder itself sent to others of its address waits there too. Datagrams are not repeated.
    pub(crate) fn pass_on_rest(&mut self, received: &mut Received) {
        let Self::Porter(socket, porter) = self else {
            return;
        };
        for _ in 0..REST {
            if !matches!(socket.receive(received), Ok(true)) {
                break;
            }
            for (_, datagram) in received.datagrams() {
                if let Some(to) = addressee(datagram)
                    && let Err(error) = porter.deliver(to, received.from, 0, datagram)
                {
                    tracing::debug!(%error, "a datagram is not passed on");
                }
            }
        }
    }
}

impl AsRawFd for Share {
    /// Readable when there is something to do: datagrams, or the holder's end.
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Porter(socket, _) => socket.as_raw_fd(),
            Self::Guest(watch) => watch.as_raw_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::super::door::{Mailbox, slot_of_qpn};
    use dat_cancel::Slept;

    use super::super::wake::sleep;
    use super::*;

    const PORT: u16 = 47_911;

    #[test]
    fn the_port_changes_hands_when_its_holder_ends() {
        let ip: IpAddr = "127.77.1.1".parse().unwrap();
        let first = Share::take(ip, PORT, 1 << 16).unwrap();
        assert!(matches!(first, Share::Porter(..)) && !first.is_over());
        let guests = [(); 2].map(|()| Share::take(ip, PORT, 1 << 16).unwrap());
        for guest in &guests {
            assert!(matches!(guest, Share::Guest(_)) && !guest.is_over());
        }
        drop(first);
        let mut porters = 0;
        let mut heirs = Vec::new();
        for guest in guests {
            let ended = sleep([guest.as_raw_fd()], Some(Duration::from_secs(5)));
            assert_eq!(ended, Slept::Woken);
            assert!(guest.is_over());
            let heir = Share::take(ip, PORT, 1 << 16).unwrap();
            porters += u32::from(matches!(heir, Share::Porter(..)));
            heirs.push(heir);
        }
        assert_eq!(porters, 1);
    }

    #[test]
    fn who_gives_the_port_up_passes_on_what_came_for_others() {
        let ip: IpAddr = "127.77.1.3".parse().unwrap();
        let mut share = Share::take(ip, PORT, 1 << 20).unwrap();
        let (slot, mailbox) = Mailbox::slot(ip, 5).unwrap();
        let qpn = (2..1_u32 << 24).find(|qpn| slot_of_qpn(*qpn) == slot);
        let sender = UdpSocket::bind((ip, 0)).unwrap();
        for n in 0..6 {
            let mut datagram = [n; 32];
            datagram[4..8].copy_from_slice(&qpn.unwrap().to_be_bytes());
            sender.send_to(&datagram, (ip, PORT)).unwrap();
        }
        share.pass_on_rest(&mut Received::new());
        drop(share);
        let mut buffer = [0; 100];
        for n in 0..6 {
            let (_, _, datagram) = mailbox.receive(&mut buffer).unwrap().unwrap();
            assert_eq!((datagram.len(), datagram[0]), (32, n));
        }
    }

    #[test]
    fn a_stranger_on_the_port_is_an_error() {
        let ip: IpAddr = "127.77.1.2".parse().unwrap();
        let _stranger = Socket::bind(ip, PORT, 1 << 16).unwrap();
        let error = Share::take(ip, PORT, 1 << 16).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    }
}
