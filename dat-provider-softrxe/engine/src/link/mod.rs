//! Paths for packets below the reliable connection.
//!
//! A [`Link`] carries the packets of one engine to other engines as datagrams. [`udp`] is the link between hosts. Processes that share UDP
//! port 4791 also receive through a [`mailbox`], which has no sending direction: answers leave through UDP. [`near`] is the path through
//! shared memory between processes of one host. It is no [`Link`]: its records have no ICRC, there is one channel per peer with room of its
//! own, and the payload is copied between ring and registered memory without a buffer (`docs/design/same-host.md`).
//!
//! The contract:
//! * **Packets.** A link carries RoCEv2 packets from base transport header to ICRC. The sender always computes the ICRC; the receiver
//!   checks it if [`Properties::checksummed`]. A link keeps the bounds of packets. A link may lose, repeat and reorder packets, which the
//!   reliable connection repairs. It must not change or truncate a packet unless packets are checksummed.
//! * **Calls.** All methods run under the adapter's lock and never block. [`Inbound::receive`] takes a bounded number of packets, so
//!   that what they cause is transmitted before more are read.
//! * **Room.** The engine makes packets only as long as [`Link::room`] permits: a packet that the engine made counts as sent. A
//!   link without room keeps its descriptor readable, or makes it readable once there is room.
//! * **Payload.** [`Pieces`] may point to registered memory, which the consumer may change or unmap at any time. A link either hands
//!   them to the kernel or copies them with the functions of the module `memory::guard`.
//! * **Sleep.** [`Inbound::descriptor`] is readable while packets wait. A link that would pay for this while no thread sleeps
//!   prepares its descriptor in [`Inbound::arm`], which each thread calls under the lock before it sleeps; the next
//!   [`Inbound::receive`] undoes that.
//!
//! Nothing here names UDP: [`transmit`] drives any link, and the tests drive two engines over a link in memory.

pub(crate) mod capture;
pub(crate) mod mailbox;
pub(crate) mod near;
pub(crate) mod udp;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use softrxe_proto::{Engine, Time, Transmit};

use crate::memory::payload_refs::Pieces;
use crate::memory::regions::Regions;

/// Properties of a link that determine the configuration of its engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Properties {
    /// Largest payload of a packet.
    pub(crate) mtu: u16,
    /// The receiver checks the ICRC, which packets always carry. False for a link that cannot corrupt packets.
    pub(crate) checksummed: bool,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    /// Address that the packet was sent from.
    pub(crate) source: SocketAddr,
    /// Index of the packet in its run, if the link keeps it, else 0. The ICRC of IPv4 packets depends on it.
    pub(crate) index: u16,
    /// Bytes of the packet, in memory that no other process writes.
    pub(crate) packet: &'a [u8],
}

/// The receiving direction of a link.
pub(crate) trait Inbound {
    /// Passes packets that have arrived to `deliver`, those of at most `reads` reads. Logs what fails; nothing is to be done about
    /// it, as lost packets are sent again.
    fn receive(&mut self, reads: usize, deliver: impl FnMut(&Arrival<'_>));

    /// Returns the descriptor that is readable while packets wait.
    fn descriptor(&self) -> RawFd;

    /// Prepares the descriptor for a sleeping thread. Returns `false` if packets wait already.
    fn arm(&mut self) -> bool {
        true
    }
}

/// A link in both directions.
pub(crate) trait Link: Inbound {
    /// Returns the link's properties, which never change.
    fn properties(&self) -> Properties;

    /// Returns how many bytes the next [`send`](Self::send) may carry: 0, or at least the 4,200 that
    /// [`Engine::poll_transmit`] requires.
    fn room(&self) -> usize;

    /// Sends the packets of `run`, whose bytes are `pieces`.
    ///
    /// # Errors
    /// What the operating system reports. The packets count as lost then.
    fn send(&mut self, run: &Transmit, pieces: Pieces<'_>) -> io::Result<()>;
}

/// Transmits over `link` what `engine` has to send, except acknowledgements that may wait if `hold`. `buffer` has room for a
/// run. `observe` gets each run before it is sent, without the payload that it refers to, which [`Regions::copy_payload_into`] adds.
pub(crate) fn transmit(
    engine: &mut Engine<Regions>,
    link: &mut impl Link,
    buffer: &mut [u8],
    now: Time,
    hold: bool,
    mut observe: impl FnMut(&Regions, &Transmit, &mut [u8]),
) {
    loop {
        let room = link.room().min(buffer.len());
        if room == 0 {
            return;
        }
        let run = if hold {
            engine.poll_transmit_data(now, &mut buffer[..room])
        } else {
            engine.poll_transmit(now, &mut buffer[..room])
        };
        let Some(run) = run else { return };
        let regions = engine.memory();
        observe(regions, &run, &mut buffer[..run.length]);
        let sent = regions.gather(&buffer[..run.length], |pieces| link.send(&run, pieces));
        if let Err(error) = sent {
            // The protocol repeats the packets, as if they had been lost on the wire.
            log_unsent(run.destination, &error);
            if goes_to_manager(&buffer[..run.length]) && is_without_route(&error) {
                engine.no_route(now, run.destination.ip());
            }
        }
    }
}

/// Logs why packets cannot be sent. The peer sees nothing of them, so this is the only trace of the cause.
#[cold]
fn log_unsent(to: SocketAddr, error: &io::Error) {
    match error.raw_os_error() {
        // They never fit.
        Some(libc::EMSGSIZE) => tracing::warn!(
            %to,
            "packets are longer than the MTU of the netdev towards this address: set a smaller mtu= in ia_params; if the netdev's MTU was \
             lowered since the IA was opened, raise it, or open the IA again"
        ),
        Some(libc::EPERM) => tracing::warn!(
            %to,
            "a firewall of this host refuses packets to this address: allow outgoing UDP to port {}; `dat doctor` names the rule",
            to.port()
        ),
        _ => tracing::info!(%error, %to, "packets not sent"),
    }
}

/// Returns whether a packet is for the peer's connection manager.
fn goes_to_manager(packet: &[u8]) -> bool {
    packet.get(5..8) == Some(&[0, 0, 1])
}

/// Returns whether no packet from the own address to this destination can leave the host. Either no route exists, or the own address is a
/// loopback address or was removed, or the destination is the address of a whole network.
fn is_without_route(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::EINVAL
                | libc::EADDRNOTAVAIL
                | libc::EACCES
        )
    )
}
