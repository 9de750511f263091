//! The UDP port of an adapter: its socket, its part in the sharing of port 4791 between processes, and its capture.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use dat_core::reserve;
use softrxe_port::liveness::Liveness;
use softrxe_port::message::Destination;
use softrxe_port::port_share::{Policy, PortShare, PortShareError, Service};
use softrxe_port::route::RecentRequests;
use softrxe_port::socket::{Received, Socket, zeros};
use softrxe_proto::{Engine, Meta, ROCE_PORT, Time};

use super::descriptors::Descriptors;
use super::near::Near;
use super::near_dial::{Context, NearDial};
use crate::link::capture::Capture;
use crate::link::mailbox::Mailbox;
use crate::link::udp::Udp;
use crate::link::{self, Arrival, Inbound, Link, Properties};
use crate::memory::regions::Regions;

pub(super) mod takeover;

/// Socket reads before the answers to them are transmitted. Each read is up to 64 KiB, and the sender waits for acknowledgement.
const READS: usize = 4;
/// Packets that are read from the mailbox at a time.
const MAILBOX_READS: usize = 4 * READS;
/// Packets that are read from the mailbox of a holder that has ended, at most.
const LAST_MAILBOX_READS: usize = 1000;
/// Rounds of [`READS`] in which the socket of a holder that has ended is read, at most.
const LAST_SHARED_READS: usize = 128;
/// Bytes requested for each buffer of a socket.
const SOCKET_BUFFER: usize = 4 << 20;
/// Bytes of the buffer that runs are made in.
const RUN_BUFFER: usize = 65_000;

/// The channels of an adapter, which deliver before the messages of the connection manager.
pub(crate) struct Channels<'a> {
    pub(crate) near: &'a mut Near,
    pub(crate) near_dial: &'a mut NearDial,
}

impl Channels<'_> {
    /// Reads what peers sent before the message of the connection manager at hand: answers that bring up a channel, on which an
    /// acceptance may depend, and records, which come before the end of their connection.
    fn catch_up(&mut self, engine: &mut Engine<Regions>, now: Time) {
        let mut context = Context {
            engine,
            near: self.near,
            now,
        };
        self.near_dial.read_answers(&mut context);
        self.near.drain(engine, now);
    }
}

/// The ports of an adapter.
pub(crate) struct Ports {
    local: IpAddr,
    /// Top bits of this engine's queue pair numbers, which no other engine of the address uses.
    slot: u16,
    policy: Policy,
    /// Largest payload for which the netdev's packets have room.
    mtu: u16,
    /// The socket that all packets are sent from: that of port 4791, or one of this process.
    socket: Arc<Socket>,
    share: PortShare,
    /// Requests that passed through the shared port, to route what follows them.
    requests: RecentRequests,
    /// Services of this engine, which are registered with the holder of the port.
    services: HashMap<u64, Service>,
    received: Received,
    mailbox_buffer: Box<[u8]>,
    run_buffer: Box<[u8]>,
    capture: Option<Capture>,
    /// Attempts to take over the port that failed in a row.
    takeover_failures: u32,
    /// What the present share is still to claim, after a takeover.
    unclaimed: Vec<Destination>,
    /// Services that this engine has given up, and the present share is still to release.
    unreleased: Vec<(u64, Service)>,
}

impl Ports {
    /// Takes port 4791 of `local` if it is free, else another port and a mailbox from the process that holds 4791. Tries slots from
    /// `first_slot` on. With `ring` the socket gets a receive ring where the kernel allows it. Returns the ports and the listener through
    /// which other processes watch this one.
    pub(crate) fn open(
        local: IpAddr,
        mtu: u16,
        policy: Policy,
        first_slot: u16,
        capture: Option<Capture>,
        ring: bool,
    ) -> Result<(Self, Liveness), PortShareError> {
        let mut share = PortShare::take(cm_address(local), SOCKET_BUFFER, policy)?;
        let socket = match &share {
            PortShare::Holder(holder) => Arc::clone(holder.socket()),
            PortShare::Member(_) => Arc::new(Socket::bind(local, 0, SOCKET_BUFFER)?),
        };
        // Before members join, which get the ring's map with the socket.
        if ring {
            match socket.use_ring() {
                Ok(()) => tracing::debug!("short datagrams arrive in a receive ring"),
                Err(error) => {
                    tracing::info!(%error, "no receive ring: all datagrams are read from the socket");
                }
            }
        }
        if let PortShare::Member(_) = &share {
            share.report_data_port(&socket);
        }
        let (slot, liveness) = share.claim_slot(local, first_slot)?;
        let ports = Self {
            local,
            slot,
            policy,
            mtu,
            socket,
            share,
            requests: RecentRequests::default(),
            services: HashMap::new(),
            received: Received::try_new()?,
            mailbox_buffer: zeros(1 << 16)?,
            run_buffer: zeros(RUN_BUFFER)?,
            capture,
            takeover_failures: 0,
            unclaimed: Vec::new(),
            unreleased: Vec::new(),
        };
        Ok((ports, liveness))
    }

    /// Returns the slot of this engine.
    pub(crate) const fn slot(&self) -> u16 {
        self.slot
    }

    /// Returns the socket that packets are sent from.
    pub(crate) const fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Returns the properties of the link.
    pub(crate) fn properties(&mut self) -> Properties {
        self.udp().properties()
    }

    /// Returns the link over this process's socket.
    fn udp(&mut self) -> Udp<'_> {
        Udp {
            socket: &self.socket,
            received: &mut self.received,
            mtu: self.mtu,
        }
    }

    /// Returns the mailbox, unless this process holds the port.
    fn mailbox(&mut self) -> Option<Mailbox<'_>> {
        match &mut self.share {
            PortShare::Holder(_) => None,
            PortShare::Member(member) => Some(Mailbox {
                member,
                buffer: &mut self.mailbox_buffer,
            }),
        }
    }

    /// Adds the descriptors of the shared port to `descriptors`.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub(crate) fn watch(&mut self, descriptors: &Descriptors) -> io::Result<()> {
        match &self.share {
            PortShare::Holder(holder) => {
                descriptors.add_listener(holder.listener());
                descriptors.liveness().add(holder.as_raw_fd())
            }
            PortShare::Member(_) => self.resume_mailbox(descriptors),
        }
    }

    /// Adds the mailbox, if there is one, to `descriptors`.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub(crate) fn resume_mailbox(&mut self, descriptors: &Descriptors) -> io::Result<()> {
        let mailbox = self.mailbox();
        mailbox.map_or(Ok(()), |mailbox| descriptors.add(mailbox.descriptor()))
    }

    /// Removes the mailbox, if there is one, from `descriptors`.
    pub(crate) fn suspend_mailbox(&mut self, descriptors: &Descriptors) {
        if let Some(mailbox) = self.mailbox() {
            descriptors.remove(mailbox.descriptor());
        }
    }

    /// Serves members of the shared port that connected or ended.
    pub(crate) fn serve_members(&mut self) {
        if let PortShare::Holder(holder) = &mut self.share {
            holder.poll_members();
        }
    }

    /// Registers the service `id` of this address. Returns `false` if it is in use, here or in another process.
    ///
    /// # Errors
    /// As [`PortShare::claim_service`].
    pub(crate) fn claim_service(&mut self, id: u64) -> io::Result<bool> {
        if self.services.contains_key(&id) {
            return Ok(false);
        }
        if let Some(index) = self.unreleased.iter().position(|(other, _)| *other == id) {
            let (_, service) = self.unreleased.swap_remove(index);
            self.services.insert(id, service);
            // A new holder may not have it.
            self.unclaimed.push(Destination::Service(id));
            return Ok(true);
        }
        match self.share.claim_service(self.local, id) {
            Ok(service) => {
                self.services.insert(id, service);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives back a service that [`claim_service`](Self::claim_service) registered. Returns false if the port's holder does not read fast
    /// enough: [`send_pending`](Self::send_pending) is to be called later.
    pub(crate) fn release_service(&mut self, id: u64) -> bool {
        self.unclaimed
            .retain(|other| *other != Destination::Service(id));
        self.unreleased
            .extend(self.services.remove(&id).map(|service| (id, service)));
        self.send_releases().is_ok()
    }

    fn send_releases(&mut self) -> io::Result<()> {
        // A service is dropped after its release: other processes may take its name as soon as it is dropped.
        while let Some((id, _)) = self.unreleased.last() {
            self.share.release(Destination::Service(*id))?;
            self.unreleased.pop();
        }
        Ok(())
    }

    /// Reads what has arrived, up to a bound, and passes it to `engine`: messages of the connection manager after what arrived in
    /// `channels` before them. Reads the mailbox only if `mailbox`.
    pub(crate) fn receive(
        &mut self,
        engine: &mut Engine<Regions>,
        mut channels: Channels<'_>,
        now: Time,
        mailbox: bool,
    ) {
        // After a takeover peers go on using the port of this process, which they were connected with.
        let shared = self.shared_socket().map(Arc::clone);
        let holds = matches!(self.share, PortShare::Holder(_)) && shared.is_none();
        self.read_socket(engine, &mut channels, now, None, holds);
        if let Some(shared) = shared {
            self.read_socket(engine, &mut channels, now, Some(&shared), true);
        }
        if mailbox {
            self.read_mailbox(engine, &mut channels, now, MAILBOX_READS);
        }
    }

    /// Reads all that the port's holder has passed on, up to a bound.
    pub(crate) fn drain_mailbox(
        &mut self,
        engine: &mut Engine<Regions>,
        mut channels: Channels<'_>,
        now: Time,
    ) {
        self.read_mailbox(engine, &mut channels, now, LAST_MAILBOX_READS);
    }

    fn read_mailbox(
        &mut self,
        engine: &mut Engine<Regions>,
        channels: &mut Channels<'_>,
        now: Time,
        reads: usize,
    ) {
        let Self {
            local,
            share,
            mailbox_buffer: buffer,
            capture,
            ..
        } = self;
        let PortShare::Member(member) = share else {
            return;
        };
        let to = cm_address(*local);
        Mailbox { member, buffer }.receive(reads, |arrival| {
            if let Some(capture) = capture {
                capture.received(arrival.source, to, arrival.index, arrival.packet);
            }
            handle(engine, channels, now, arrival);
        });
    }

    /// Reads `other`, or this process's socket. `shared` says that the socket is that of port 4791, where packets for other
    /// processes arrive as well: these are passed on.
    fn read_socket(
        &mut self,
        engine: &mut Engine<Regions>,
        channels: &mut Channels<'_>,
        now: Time,
        other: Option<&Arc<Socket>>,
        shared: bool,
    ) {
        let Self {
            slot,
            mtu,
            socket,
            share,
            requests,
            services,
            received,
            capture,
            ..
        } = self;
        let socket: &Socket = other.unwrap_or(socket);
        let mut udp = Udp {
            socket,
            received,
            mtu: *mtu,
        };
        udp.receive(READS, |arrival| {
            let (source, packet) = (arrival.source, arrival.packet);
            if shared && let PortShare::Holder(holder) = share {
                let passed = match requests.destination(source.ip(), packet) {
                    Some(Destination::Slot(to)) if to == *slot => false,
                    Some(Destination::Service(id)) if services.contains_key(&id) => false,
                    Some(to) => {
                        holder.deliver(to, source, 0, packet) || holder.keep(to, source, 0, packet)
                    }
                    None => false,
                };
                if passed {
                    return;
                }
            }
            if let Some(capture) = capture {
                capture.received(source, socket.local(), arrival.index, packet);
            }
            handle(engine, channels, now, arrival);
        });
    }

    /// Prepares all descriptors for a sleeping thread. Returns `false` if packets wait already.
    pub(crate) fn arm(&mut self) -> bool {
        let udp = self.udp().arm();
        let shared = self.shared_socket().is_none_or(|shared| shared.arm());
        self.mailbox().is_none_or(|mut mailbox| mailbox.arm()) && udp && shared
    }

    /// Ends the preparation for a sleep.
    pub(crate) fn disarm(&self) {
        self.socket.disarm();
    }

    /// Returns the socket of port 4791 if it was taken over from a former holder.
    fn shared_socket(&self) -> Option<&Arc<Socket>> {
        match &self.share {
            PortShare::Holder(holder) => {
                let shared = holder.socket();
                (shared.as_raw_fd() != self.socket.as_raw_fd()).then_some(shared)
            }
            PortShare::Member(_) => None,
        }
    }

    /// Reads all that a former holder of the port has left, up to a bound.
    pub(crate) fn drain_shared(
        &mut self,
        engine: &mut Engine<Regions>,
        mut channels: Channels<'_>,
        now: Time,
    ) {
        let Some(shared) = self.shared_socket().map(Arc::clone) else {
            return;
        };
        for _ in 0..LAST_SHARED_READS {
            self.read_socket(engine, &mut channels, now, Some(&shared), true);
        }
    }

    /// Transmits what `engine` has to send, except acknowledgements that may wait if `hold`.
    pub(crate) fn transmit(&mut self, engine: &mut Engine<Regions>, now: Time, hold: bool) {
        let Self {
            mtu,
            socket,
            received,
            run_buffer,
            capture,
            ..
        } = self;
        let mut udp = Udp {
            socket,
            received,
            mtu: *mtu,
        };
        link::transmit(
            engine,
            &mut udp,
            run_buffer,
            now,
            hold,
            |regions, run, bytes| {
                if let Some(capture) = capture {
                    regions.copy_payload_into(bytes);
                    capture.sent(socket.local(), run.destination, run.segment, bytes);
                }
            },
        );
        self.save_capture();
    }

    /// Returns whether there is a capture, which is written after each transmission.
    pub(crate) const fn captures(&self) -> bool {
        self.capture.is_some()
    }

    /// Writes the capture to its file, so that it is whole if the process is killed the next moment.
    fn save_capture(&mut self) {
        if let Some(capture) = &mut self.capture
            && let Err(error) = capture.flush()
        {
            tracing::error!(%error, "cannot write; capture {} ends", capture.path().display());
            self.capture = None;
        }
    }
}

/// Passes a packet to `engine`. A packet for the connection manager creates objects. Without memory for them it counts as lost on the wire,
/// and the peer repeats it.
fn handle(
    engine: &mut Engine<Regions>,
    channels: &mut Channels<'_>,
    now: Time,
    arrival: &Arrival<'_>,
) {
    let for_manager = arrival.packet.get(5..8) == Some(&[0, 0, 1]);
    if for_manager && !reserve::pool_is_half_free() {
        return;
    }
    if for_manager {
        channels.catch_up(engine, now);
    } else if is_of_datagram_pair(arrival.packet) {
        // A peer whose channel was full has sent it after the records that are there.
        channels.near.drain(engine, now);
    }
    let meta = Meta {
        source: arrival.source,
        ip_id: arrival.index,
    };
    engine.handle_datagram(now, &meta, arrival.packet);
}

/// Returns whether the packet is for a queue pair of datagrams: its opcode is one of UD's.
fn is_of_datagram_pair(packet: &[u8]) -> bool {
    packet.first().is_some_and(|opcode| opcode >> 5 == 3)
}

/// Returns the address of the connection manager of `ip`.
pub(crate) const fn cm_address(ip: IpAddr) -> SocketAddr {
    SocketAddr::new(ip, ROCE_PORT)
}
