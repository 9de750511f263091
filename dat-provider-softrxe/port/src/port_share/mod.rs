//! A process's share in UDP port 4791 of an address: it is the holder, or a member of the holder.

mod attempt;
mod patience;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use crate::discard::ListeningSocket;
use crate::holder::Holder;
use crate::liveness::{Liveness, engines_have};
use crate::member::Member;
use crate::message::Destination;
use crate::names;
use crate::port_keeper::allow_keepers;
use crate::port_owner::PortOwner;
use crate::slot::SLOTS;
use crate::socket::Socket;

use patience::Patience;

pub use crate::former_share::FormerShare;

/// Pauses between two attempts to get a share.
const PAUSES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_millis(32);

/// The holders that a process accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// Uid of the only accepted holder, which serves all users; this process never becomes the holder. `None` accepts
    /// any holder of the own user, root's holder for all users, and this process itself.
    pub holder: Option<u32>,
}

/// Reason why a process has no share in the port.
#[derive(Debug, thiserror::Error)]
pub enum PortShareError {
    /// An untrusted process has the port.
    #[error(
        "UDP port {} of {} belongs to {}: that process would get what peers send here. Use another address, end that process, \
         or have root run `dat serve-port {}` (security.md of the documentation); if it is the kernel's (`lsmod | grep rdma_rxe`), use engine=kernel",
        .local.port(), .local.ip(),
        .owner.map_or_else(|| "an unknown program".to_owned(), |o| o.to_string()),
        .local.ip()
    )]
    Foreign {
        /// Address and port.
        local: SocketAddr,
        /// User of that process, if the kernel shows it.
        owner: Option<PortOwner>,
    },
    /// The holder for all users that the policy requires is not running.
    #[error(
        "no `dat serve-port {}` of user {uid} holds UDP port {} of {}: have that user run it, or leave holder={uid} out of ia_params",
        .local.ip(), .local.port(), .local.ip()
    )]
    NoHolder {
        /// Address and port.
        local: SocketAddr,
        /// Uid of the holder's user.
        uid: u32,
    },
    /// The lock by which processes share the port cannot be made.
    #[error(
        "cannot make the lock by which processes share UDP port 4791: {0}; {remedy}",
        remedy = lock_remedy(.0)
    )]
    Lock(#[source] io::Error),
    /// Another system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Returns what helps where the lock cannot be made.
fn lock_remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EFBIG) => "it is a file of some pages: raise `ulimit -f`",
        _ => {
            "it takes memfd_create(2) with seals, and /proc/self/fd: permit the one in the seccomp filter, and mount the other"
        }
    }
}

/// The part that this process has in the port.
#[derive(Debug)]
pub enum PortShare {
    /// This process holds the port.
    Holder(Box<Holder>),
    /// Another process holds the port.
    Member(Box<Member>),
}

impl PortShare {
    /// Takes the port of `local` if it is free, else joins the process that holds it.
    ///
    /// # Errors
    /// [`PortShareError::Foreign`] and [`PortShareError::NoHolder`] if there is no trusted holder within a second, or within 15 s while
    /// an engine of this user has the address.
    pub fn take(local: SocketAddr, buffer: usize, policy: Policy) -> Result<Self, PortShareError> {
        let first = FormerShare {
            holder: policy.holder,
            ..FormerShare::default()
        };
        let mut patience = Patience::default();
        let mut pause = *PAUSES.start();
        loop {
            let begin = Instant::now();
            let taken = first.attempt(local, buffer);
            if !matches!(
                taken,
                Err(PortShareError::Foreign { .. } | PortShareError::NoHolder { .. })
            ) {
                return taken;
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(*PAUSES.end());
            if !patience.lasts(begin.elapsed(), || engines_have(local.ip())) {
                return taken;
            }
        }
    }

    /// Returns what is needed to replace this share, whose holder has ended.
    #[must_use]
    pub fn former_share(&self, policy: Policy) -> FormerShare {
        match self {
            Self::Member(member) => {
                let mut former = member.former_share();
                former.holder = policy.holder.or(former.holder);
                former
            }
            Self::Holder(_) => FormerShare {
                holder: policy.holder,
                ..FormerShare::default()
            },
        }
    }

    /// Reports the UDP port of `data` to the holder, which keeps it bound for a while when this process dies. No other
    /// user can bind it then and answer this process's peers. Without effect if this process is the holder.
    pub fn report_data_port(&mut self, data: &Socket) {
        if let Self::Member(member) = self {
            match allow_keepers(data) {
                Ok(()) => member.report_data_port(data.local().port()),
                Err(error) => {
                    tracing::debug!(%error, "the UDP port of this process is free when it dies");
                }
            }
        }
    }

    /// Returns true if the port's holder has ended; false in the holder itself.
    #[must_use]
    pub fn holder_is_gone(&self) -> bool {
        match self {
            Self::Holder(_) => false,
            Self::Member(member) => member.holder_is_gone(),
        }
    }

    /// Claims a free slot of `ip`, beginning at `first`, and listens for processes that watch for the end of this one.
    ///
    /// # Errors
    /// `AddrInUse` when all slots are taken; as `socket`, `bind`, `sendmsg`.
    pub fn claim_slot(&mut self, ip: IpAddr, first: u16) -> io::Result<(u16, Liveness)> {
        // There is no slot 0, because queue pair numbers 0 and 1 are special.
        let slots = || {
            let all = (0..SLOTS).map(move |step| first.wrapping_add(step) & (SLOTS - 1));
            all.filter(|slot| *slot != 0)
        };
        for slot in slots() {
            match Liveness::listen(ip, slot) {
                Ok(life) if self.claim_and_wait(Destination::Slot(slot), true)? => {
                    return Ok((slot, life));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        tracing::warn!(%ip, "other programs have the names of all slots: peers notice the end of this process only by an unanswered request or `keepalive=`; end those programs (`ss -lx`)");
        for slot in slots() {
            if self.claim_and_wait(Destination::Slot(slot), false)? {
                return Ok((slot, Liveness::unwatchable()));
            }
        }
        Err(ErrorKind::AddrInUse.into())
    }

    /// Claims `what` and waits for the answer. With `named` this process has the name of `what`, so no other process of
    /// the user claims it. Then a holder that does not answer, because it is stopped, is no obstacle.
    fn claim_and_wait(&mut self, what: Destination, named: bool) -> io::Result<bool> {
        let granted = match self {
            Self::Holder(holder) => Ok(holder.claim(what)),
            Self::Member(member) => member.claim_and_wait(what),
        };
        let granted = match granted {
            Err(error) if named && !self.uses_system_holder() => {
                tracing::debug!(%error, ?what, "the port's holder does not answer");
                true
            }
            other => other?,
        };
        if !granted && let Err(error) = self.release(what) {
            tracing::debug!(%error, ?what, "cannot take back a refused claim");
        }
        Ok(granted)
    }

    fn uses_system_holder(&self) -> bool {
        matches!(self, Self::Member(member) if member.uses_system_holder())
    }

    /// Claims a service id of `ip` among all engines of the address.
    ///
    /// # Errors
    /// `AddrInUse` when another process has it; an error for which [`is_holder_gone`] is true when the holder ends
    /// before it answers, and the next one is to be asked; as `socket`, `bind`, `sendmsg`.
    pub fn claim_service(&mut self, ip: IpAddr, id: u64) -> io::Result<Service> {
        let what = Destination::Service(id);
        let name = names::claim_name(&names::service_name(ip, &names::service_word(id)))?;
        if name.is_some() && !self.uses_system_holder() {
            // No other process of the user has it, or that process has just ended.
            self.claim(what)?;
        } else if !self.claim_and_wait(what, false)? {
            return Err(ErrorKind::AddrInUse.into());
        }
        Ok(Service { _name: name })
    }

    /// Claims `what`, to which this process has a right, and does not wait for the answer. If the holder has ended, the
    /// caller repeats the claim to the next one.
    ///
    /// # Errors
    /// As `sendmsg`.
    pub fn claim(&mut self, what: Destination) -> io::Result<()> {
        match self {
            Self::Holder(holder) => {
                holder.claim(what);
                Ok(())
            }
            Self::Member(member) => unless_gone(member.claim(what)),
        }
    }

    /// Releases what this process claimed. If the holder has ended, the claim has ended with it.
    ///
    /// # Errors
    /// As `sendmsg`: `WouldBlock` if the holder does not read fast enough. It keeps the claim until the call is repeated.
    pub fn release(&mut self, what: Destination) -> io::Result<()> {
        match self {
            Self::Holder(holder) => {
                holder.release(what);
                Ok(())
            }
            Self::Member(member) => unless_gone(member.release(what)),
        }
    }
}

/// Returns `sent`, or success if the holder has ended.
fn unless_gone(sent: io::Result<()>) -> io::Result<()> {
    match sent {
        Err(error) if is_holder_gone(&error) => Ok(()),
        done => done,
    }
}

/// Returns true for an error that a member gets because the holder has ended.
#[must_use]
pub fn is_holder_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected
    )
}

/// A service id that this process listens on. It is dropped after [`PortShare::release`] has succeeded: then other processes may take it.
#[derive(Debug)]
pub struct Service {
    /// The lock against other processes of the user.
    _name: Option<ListeningSocket>,
}

impl AsRawFd for PortShare {
    /// Returns the descriptor that is readable when there is work. Datagrams at a holder's socket do not make it
    /// readable.
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Holder(holder) => holder.as_raw_fd(),
            Self::Member(member) => member.as_raw_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use std::sync::Arc;

    use crate::credentials::own_uid;
    use crate::slot::slot_of_qpn;
    use crate::socket::Received;

    use dat_os::sleep::{Slept, on_readable};

    use super::patience::HANDOVER_TIME;
    use super::*;

    /// Under `ulimit -f` the seccomp filter and /proc are in order.
    #[test]
    fn a_lock_beyond_the_limit_of_files_is_told_with_that_limit() {
        let told = |code| PortShareError::Lock(io::Error::from_raw_os_error(code)).to_string();
        let limit = told(libc::EFBIG);
        assert!(
            limit.contains("ulimit -f") && !limit.contains("seccomp"),
            "{limit}"
        );
        assert!(told(libc::EPERM).contains("seccomp"));
    }

    const PORT: u16 = 47_911;

    fn at(ip: &str) -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), PORT)
    }

    fn take(local: SocketAddr) -> PortShare {
        PortShare::take(local, 1 << 20, Policy::default()).unwrap()
    }

    fn poll_members(share: &mut PortShare) {
        let PortShare::Holder(holder) = share else {
            panic!("{share:?}")
        };
        holder.poll_members();
    }

    /// Returns a queue pair number of `slot`.
    fn qpn(slot: u16) -> u32 {
        (2..1_u32 << 24)
            .find(|qpn| slot_of_qpn(*qpn) == slot)
            .unwrap()
    }

    /// Forwards the datagrams that the holder reads.
    fn forward(share: &mut PortShare) {
        let PortShare::Holder(holder) = share else {
            panic!("{share:?}")
        };
        let mut received = Received::new();
        let socket = Arc::clone(holder.socket());
        while socket.receive(&mut received).unwrap() {
            for (_, datagram) in received.datagrams() {
                let to = crate::route::destination(datagram).unwrap();
                holder.deliver(to, received.from, 0, datagram);
            }
        }
    }

    /// A stopped member has the socket, so no other process can bind the port.
    #[test]
    fn a_share_is_there_when_a_member_without_a_processor_goes_on() {
        let local = at("127.77.1.9");
        let mut first = take(local);
        let PortShare::Member(mut member) = take(local) else {
            panic!("two holders")
        };
        let _liveness = Liveness::listen(local.ip(), 1).unwrap();
        poll_members(&mut first);
        assert!(member.receive(&mut [0; 100]).unwrap().is_none());
        assert!(member.shared_socket().is_some());
        drop(first);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| take(local));
            std::thread::sleep(HANDOVER_TIME + Duration::from_millis(200));
            assert!(!late.is_finished());
            let mut share = member.former_share().attempt(local, 1 << 20).unwrap();
            while !late.is_finished() {
                poll_members(&mut share);
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(matches!(late.join().unwrap(), PortShare::Member(_)));
        });
    }

    #[test]
    fn a_member_becomes_the_holder_when_the_holder_ends() {
        let local = at("127.77.1.1");
        let policy = Policy::default();
        let mut first = take(local);
        assert!(matches!(first, PortShare::Holder(_)) && !first.holder_is_gone());
        let mut members = [(); 2].map(|()| take(local));
        poll_members(&mut first);
        for member in &mut members {
            assert!(matches!(member, PortShare::Member(_)) && !member.holder_is_gone());
            let PortShare::Member(member) = member else {
                unreachable!()
            };
            assert!(member.receive(&mut [0; 100]).unwrap().is_none());
            assert!(member.shared_socket().is_some());
        }
        drop(first);
        for member in &members {
            let ended = on_readable([member.as_raw_fd()], Some(Duration::from_secs(5)));
            assert_eq!(ended, Slept::Woken);
            assert!(member.holder_is_gone());
        }
        // The port is never free in between.
        assert!(UdpSocket::bind(local).is_err());
        let new_holder = members[1]
            .former_share(policy)
            .attempt(local, 1 << 20)
            .unwrap();
        assert!(matches!(new_holder, PortShare::Holder(_)));
        let other = members[0]
            .former_share(policy)
            .attempt(local, 1 << 20)
            .unwrap();
        assert!(matches!(other, PortShare::Member(_)) && !other.holder_is_gone());
    }

    #[test]
    fn no_waiting_datagram_is_lost_when_the_holder_ends() {
        let local = at("127.77.1.3");
        let mut first = take(local);
        let mut members = [(); 2].map(|()| take(local));
        poll_members(&mut first);
        let mut buffer = [0; 100];
        for member in &mut members {
            let PortShare::Member(member) = member else {
                unreachable!()
            };
            assert!(member.receive(&mut buffer).unwrap().is_none());
        }
        let sender = UdpSocket::bind((local.ip(), 0)).unwrap();
        for n in 0..6 {
            let mut datagram = [n; 32];
            datagram[4..8].copy_from_slice(&qpn(5).to_be_bytes());
            sender.send_to(&datagram, local).unwrap();
        }
        drop(first);
        let mut new_holder = members[0]
            .former_share(Policy::default())
            .attempt(local, 1 << 20)
            .unwrap();
        let mut member = members[1]
            .former_share(Policy::default())
            .attempt(local, 1 << 20)
            .unwrap();
        member.claim(Destination::Slot(5)).unwrap();
        forward(&mut new_holder);
        let PortShare::Member(member) = &mut member else {
            unreachable!()
        };
        for n in 0..6 {
            let (from, _, datagram) = member.receive(&mut buffer).unwrap().unwrap();
            assert_eq!(from, sender.local_addr().unwrap());
            assert_eq!((datagram.len(), datagram[0]), (32, n));
        }
    }

    #[test]
    fn a_slot_or_service_has_one_owner() {
        let local = at("127.77.1.4");
        let ip = local.ip();
        let mut holder = take(local);
        let mut member = take(local);
        let (slot, _life) = holder.claim_slot(ip, 7).unwrap();
        assert_eq!(slot, 7);
        let service = holder.claim_service(ip, 5).unwrap();
        // While the member waits the holder reads its packets, as an engine's helper thread does.
        let (other, refused) = std::thread::scope(|scope| {
            let asks = scope.spawn(|| {
                let (slot, life) = member.claim_slot(ip, 7).unwrap();
                let refused = member.claim_service(ip, 5).unwrap_err();
                (((slot, life), &mut member), refused)
            });
            while !asks.is_finished() {
                poll_members(&mut holder);
                std::thread::yield_now();
            }
            asks.join().unwrap()
        });
        let ((slot, _life), member) = other;
        assert_eq!((slot, refused.kind()), (8, ErrorKind::AddrInUse));
        holder.release(Destination::Service(5)).expect("a release");
        drop(service);
        member.claim_service(ip, 5).unwrap();
    }

    #[test]
    fn a_service_stays_with_its_process_when_the_holder_ends() {
        let local = at("127.77.1.5");
        let ip = local.ip();
        let mut first = take(local);
        let mut members = [(); 2].map(|()| take(local));
        poll_members(&mut first);
        for member in &mut members {
            let PortShare::Member(member) = member else {
                unreachable!()
            };
            assert!(member.receive(&mut [0; 100]).unwrap().is_none());
        }
        let _service = members[0].claim_service(ip, 5).unwrap();
        poll_members(&mut first);
        drop(first);
        let mut new_holder = members[1]
            .former_share(Policy::default())
            .attempt(local, 1 << 20)
            .unwrap();
        // The member that has it has not joined the new holder, whose registry is empty.
        let refused = new_holder.claim_service(ip, 5).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        let PortShare::Holder(new_holder) = &mut new_holder else {
            panic!("{new_holder:?}")
        };
        assert!(new_holder.in_grace_period());
        // A datagram for a member that joins later waits for it.
        let from = at("127.0.0.9");
        let to = Destination::Slot(9);
        assert!(!new_holder.deliver(to, from, 0, b"early"));
        assert!(new_holder.keep(to, from, 0, b"early"));
        let joined = members[0].former_share(Policy::default());
        let mut joined = joined.attempt(local, 1 << 20).unwrap();
        new_holder.poll_members();
        joined.claim(to).unwrap();
        new_holder.poll_members();
        let PortShare::Member(joined) = &mut joined else {
            panic!("{joined:?}")
        };
        let mut buffer = [0; 100];
        let arrived = joined.receive(&mut buffer).unwrap();
        assert_eq!(arrived, Some((from, 0, b"early".as_slice())));
    }

    #[test]
    fn a_foreign_socket_on_the_port_is_an_error_that_names_its_user() {
        let local = at("127.77.1.2");
        let _stranger = Socket::bind(local.ip(), PORT, 1 << 16).unwrap();
        let error = PortShare::take(local, 1 << 16, Policy::default()).unwrap_err();
        let own = own_uid();
        assert!(
            matches!(error, PortShareError::Foreign { owner: Some(PortOwner { uid }), .. } if uid == own),
            "{error}"
        );
        let policy = Policy { holder: Some(own) };
        let error = PortShare::take(local, 1 << 16, policy).unwrap_err();
        assert!(matches!(error, PortShareError::NoHolder { .. }), "{error}");
    }
}
