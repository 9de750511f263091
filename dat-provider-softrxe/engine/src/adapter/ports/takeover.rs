//! What the ports do when the process that held port 4791 is gone: they take the port over, or join the process that did.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use softrxe_port::message::Destination;
use softrxe_port::port_share::{FormerShare, PortShare, PortShareError};

use super::{Ports, SOCKET_BUFFER, cm_address};
use crate::adapter::descriptors::Descriptors;

/// The failed attempt to take over a port that is logged. The first ones fail where another process takes it over at the same time.
const LOGGED_FAILURE: u32 = 4;

impl Ports {
    /// Returns whether the process that held the shared port is gone.
    pub(crate) fn holder_is_gone(&self) -> bool {
        self.share.holder_is_gone()
    }

    /// Returns what is left of the share of a holder that is gone, for [`attempt_takeover`].
    pub(crate) fn former_share(&self) -> FormerShare {
        self.share.former_share(self.policy)
    }

    /// Replaces the share of a holder that is gone by the result of an [`attempt_takeover`]. [`send_pending`](Self::send_pending) then
    /// registers this engine's slot and services with it.
    ///
    /// # Errors
    /// That of the attempt; `OutOfMemory`; as `epoll_ctl`. The old share stays, and the attempt is to be repeated. Only one failure in a
    /// row is logged.
    pub(crate) fn finish_takeover(
        &mut self,
        share: Result<PortShare, PortShareError>,
        descriptors: &Descriptors,
    ) -> Result<(), PortShareError> {
        let local = cm_address(self.local);
        let result = share.and_then(|share| self.replace_share(share, descriptors));
        match &result {
            Ok(()) => {
                tracing::info!(%local, "the process that held the port is gone");
                self.takeover_failures = 0;
            }
            Err(error) => {
                self.takeover_failures = self.takeover_failures.saturating_add(1);
                if self.takeover_failures == LOGGED_FAILURE {
                    tracing::error!(%error, "cannot take over UDP port 4791 of {}; trying again", local.ip());
                }
            }
        }
        result
    }

    fn replace_share(
        &mut self,
        share: PortShare,
        descriptors: &Descriptors,
    ) -> Result<(), PortShareError> {
        let mut unclaimed = Vec::new();
        unclaimed
            .try_reserve(self.services.len() + 1)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        match &share {
            PortShare::Holder(holder) => {
                descriptors.add(holder.socket().as_raw_fd())?;
                descriptors.liveness().add(holder.as_raw_fd())?;
                descriptors.add_listener(holder.listener());
            }
            PortShare::Member(member) => descriptors.add(member.as_raw_fd())?,
        }
        descriptors.remove(self.share.as_raw_fd());
        self.share = share;
        unclaimed.extend(self.services.keys().map(|id| Destination::Service(*id)));
        // The last is claimed first. Without the slot no message for a connection arrives.
        unclaimed.push(Destination::Slot(self.slot));
        self.unclaimed = unclaimed;
        self.unreleased.clear();
        Ok(())
    }

    /// Sends the port's holder the releases and claims that it does not have yet.
    ///
    /// # Errors
    /// As `sendmsg`: `WouldBlock` if the holder does not read fast enough. The call is to be repeated.
    pub(crate) fn send_pending(&mut self) -> io::Result<()> {
        self.send_releases()?;
        while let Some(what) = self.unclaimed.last() {
            self.share.claim(*what)?;
            self.unclaimed.pop();
        }
        Ok(())
    }
}

/// Makes one attempt to replace the share `former` in the port of `ip`. The caller does not hold the hub's lock, as other users can delay this.
///
/// # Errors
/// As [`FormerShare::attempt`].
pub(crate) fn attempt_takeover(
    former: &FormerShare,
    ip: IpAddr,
) -> Result<PortShare, PortShareError> {
    former.attempt(cm_address(ip), SOCKET_BUFFER)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use softrxe_port::holder::Holder;
    use softrxe_port::port_share::Policy;

    use super::*;

    const SERVICES: u64 = 64;
    const MTU: u16 = 1024;

    fn take(ip: &str) -> PortShare {
        let at = cm_address(ip.parse().expect("an address"));
        PortShare::take(at, SOCKET_BUFFER, Policy::default()).expect("a share")
    }

    /// Sets the smallest send buffer that the kernel has.
    fn shorten_send_buffer(socket: &impl AsRawFd) {
        let least: libc::c_int = 1;
        // SAFETY: the option's value is an int, which lives until the return.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_SNDBUF,
                (&raw const least).cast(),
                size_of_val(&least) as libc::socklen_t,
            )
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }

    fn open(ip: &str) -> Ports {
        let ip = ip.parse().expect("an address");
        let (mut ports, _liveness) =
            Ports::open(ip, MTU, Policy::default(), 0, None, false).expect("ports");
        for id in 0..SERVICES {
            assert!(ports.claim_service(id).expect("a claim"));
        }
        ports
    }

    /// Returns the holder of the port of `ip`, and a member with a short send buffer.
    fn share(ip: &str) -> (Box<Holder>, PortShare) {
        let PortShare::Holder(holder) = take(ip) else {
            panic!("the port of {ip} is in use");
        };
        let member = take(ip);
        shorten_send_buffer(&member);
        (holder, member)
    }

    /// The new holder reads nothing at first, and the connection to it has room for some claims only.
    #[test]
    fn what_a_slow_holder_did_not_take_is_claimed_later() {
        let mut ports = open("127.77.7.1");
        let (mut holder, member) = share("127.77.7.2");
        let descriptors = Descriptors::new(Arc::clone(ports.socket())).expect("descriptors");

        let replaced = ports.finish_takeover(Ok(member), &descriptors);
        assert!(replaced.is_ok(), "{replaced:?}");
        assert!(ports.send_pending().is_err(), "all claims had room");
        assert!(!ports.holder_is_gone());
        // The last that would be claimed.
        let Some(&Destination::Service(released)) = ports.unclaimed.first() else {
            panic!("no claim is left");
        };
        assert!(!ports.release_service(released), "a release had room");
        for _ in 0..SERVICES {
            holder.poll_members();
            if ports.send_pending().is_ok() {
                break;
            }
        }
        holder.poll_members();
        assert_eq!(ports.unclaimed, []);
        let slot = Destination::Slot(ports.slot());
        assert!(!holder.claim(slot), "no claim of the slot");
        for id in 0..SERVICES {
            let is_free = holder.claim(Destination::Service(id));
            assert_eq!(is_free, id == released, "service {id}");
        }
    }

    /// The holder reads nothing while services are given up. Each stays this engine's until its release is sent.
    #[test]
    fn what_a_slow_holder_did_not_take_is_released_later() {
        let mut ports = open("127.77.7.3");
        let (mut holder, member) = share("127.77.7.4");
        let descriptors = Descriptors::new(Arc::clone(ports.socket())).expect("descriptors");
        ports
            .finish_takeover(Ok(member), &descriptors)
            .expect("a new share");
        while ports.send_pending().is_err() {
            holder.poll_members();
        }
        holder.poll_members();
        let sent = (0..SERVICES)
            .filter(|id| ports.release_service(*id))
            .count();
        assert!(sent < SERVICES as usize, "all releases had room");
        let (kept, _) = ports.unreleased[0];
        assert!(ports.claim_service(kept).expect("a claim"));
        while ports.send_pending().is_err() {
            holder.poll_members();
        }
        holder.poll_members();
        for id in 0..SERVICES {
            let is_free = holder.claim(Destination::Service(id));
            assert_eq!(is_free, id != kept, "service {id}");
        }
    }
}
