//! Channels: shared memory to the other engines of this user and host, and to this engine itself.
//!
//! This file uses the channels that are up; [`near_dial`](super::near_dial) makes them.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use softrxe_near::agreement::{Bell, Offer, ring_size};
use softrxe_near::{Channel, Violation, prefers_wide_rings};
use softrxe_port::liveness::LocalPeer;
use softrxe_port::poll_set::PollSet;
use softrxe_proto::{Engine, NearId, NearPoster, PostError, Qpn, SendRequest, Time};

use super::udp_datagrams::UdpDatagrams;
use crate::adaptive::socket_cadence::SocketCadence;
use crate::link::near::{Look, NearLink, Posted};
use crate::memory::regions::{MIN_LONG, Regions};

/// Looks at the records of this engine to itself in one call. The helper goes on with what is left, so that other threads get the lock.
const LOOPED_LOOKS: usize = 2;

/// A channel that is up.
#[derive(Debug)]
struct Up {
    peer: LocalPeer,
    link: NearLink,
    /// Wakes the peer, and shows its end. `None` for this engine itself.
    bell: Option<Bell>,
    /// A datagram for the peer took UDP: before the channel came, for lack of room, or behind others of its queue pair. All later ones follow it
    /// there, as they would overtake it here.
    datagrams_take_udp: bool,
}

/// The channels of an adapter that are up.
#[derive(Debug)]
pub(crate) struct Near {
    /// By [`NearId`].
    channels: Vec<Option<Up>>,
    by_peer: HashMap<LocalPeer, usize>,
    /// Descriptors of the channels.
    bells: PollSet,
    /// A thread prepared the rings for its sleep.
    armed: bool,
    /// A thread prepares its sleep or sleeps, also where there was no ring to prepare.
    sleeper: bool,
    /// A channel came since then, whose ring is not prepared.
    came_late: bool,
    /// Since the last [`hear`](Self::hear) a thread slept, so the connections may have wake-ups.
    unheard: bool,
    /// When looks read the UDP socket.
    cadence: SocketCadence,
    /// Peers that closed their connection.
    hung_up: Vec<LocalPeer>,
    /// One of the channels is that of this engine to itself.
    looped: bool,
    /// The last transmission left more to send, or records of that channel.
    unfinished: bool,
    /// Posts made records that are not published.
    unpublished: bool,
    /// A channel ended, and the engine has events of it. No thread sleeps before it has collected them.
    ended: bool,
    /// Long messages are copied once where the kernel allows it.
    lends: bool,
    /// UDP port that this engine sends from.
    port: u16,
    /// Wake-ups of sleeping peers.
    wakes: u64,
    /// Datagrams that were sent over channels.
    datagrams: u64,
    /// Datagrams for peers without a channel.
    udp_datagrams: UdpDatagrams,
}

impl Near {
    /// Starts without channels. `lends`: long messages are copied once where the kernel allows it.
    ///
    /// # Errors
    /// As `epoll_create1`.
    pub(crate) fn new(lends: bool, port: u16) -> io::Result<Self> {
        Ok(Self {
            channels: Vec::new(),
            by_peer: HashMap::new(),
            bells: PollSet::new()?,
            armed: false,
            sleeper: false,
            came_late: false,
            unheard: false,
            cadence: SocketCadence::default(),
            hung_up: Vec::new(),
            looped: false,
            unfinished: false,
            unpublished: false,
            ended: false,
            lends,
            port,
            wakes: 0,
            datagrams: 0,
            udp_datagrams: UdpDatagrams::default(),
        })
    }

    /// Returns the descriptor that is readable when a peer woke this process, or ended.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.bells.as_raw_fd()
    }

    /// Returns the number of channels.
    pub(crate) fn count(&self) -> usize {
        self.by_peer.len()
    }

    /// Returns the offer for another channel of a process with `channels` of them; `None` if it has too many. A peer cannot make a process wait
    /// that does not copy from its memory.
    pub(crate) fn offer(&self, channels: usize) -> Option<Offer> {
        let ring = ring_size(channels, prefers_wide_rings())?;
        Some(Offer {
            events: self.lends,
            ..Offer::new(ring, self.port)
        })
    }

    /// Returns how often this process woke a peer that slept.
    pub(crate) const fn wakes(&self) -> u64 {
        self.wakes
    }

    /// Returns whether there is a channel to `peer`.
    pub(crate) fn is_up(&self, peer: LocalPeer) -> bool {
        self.by_peer.contains_key(&peer)
    }

    /// Prepares for the wake-ups of a channel that is to be [added](Self::add).
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub(crate) fn watch(&self, bell: &Bell) -> io::Result<()> {
        bell.watch(&self.bells)
    }

    /// Adds the channel to `peer`, whose CA GUID is `guid` and which sends from UDP port `port`. `bell` is [watched](Self::watch), and `None` for
    /// this engine itself.
    ///
    /// # Errors
    /// There is no room for one more channel.
    pub(crate) fn add(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        peer: LocalPeer,
        (guid, port): (u64, u16),
        channel: Channel,
        bell: Option<Bell>,
    ) -> io::Result<()> {
        let looped = bell.is_none();
        let free = self.channels.iter().position(Option::is_none);
        let index = free.unwrap_or(self.channels.len());
        let id = NearId(index as u16);
        let mut link = NearLink::new(id, channel, looped);
        let source = SocketAddr::new(peer.0, port);
        let added = engine.near_up(id, source, guid, link.mtu() as u16);
        if let Err(error) = added {
            // The peer has the descriptor too, so the set would keep it.
            if let Some(bell) = &bell {
                bell.unwatch(&self.bells);
            }
            return Err(io::Error::other(error));
        }
        if self.lends
            && let Some(bell) = &bell
        {
            lend(engine, &mut link, bell);
        }
        let up = Up {
            peer,
            link,
            bell,
            datagrams_take_udp: self.udp_datagrams.may_be_under_way(now, peer),
        };
        match self.channels.get_mut(index) {
            Some(slot) => *slot = Some(up),
            None => self.channels.push(Some(up)),
        }
        self.by_peer.insert(peer, index);
        self.looped |= looped;
        self.came_late |= self.sleeper;
        Ok(())
    }

    /// Ends the channel to `peer`, if there is one, and the connections that use it.
    pub(crate) fn remove(&mut self, engine: &mut Engine<Regions>, now: Time, peer: LocalPeer) {
        let Some(index) = self.by_peer.remove(&peer) else {
            return;
        };
        // The next channel to this slot is another one.
        self.hung_up.retain(|other| *other != peer);
        let id = NearId(index as u16);
        engine.near_down(now, id);
        engine.memory().loans().borrow_mut().close(id);
        if let Some(up) = self.channels[index].take()
            && let Some(bell) = &up.bell
        {
            bell.unwatch(&self.bells);
        }
    }

    /// Calls `act` for each channel; one whose peer broke the protocol ends. Wakes the peers for which `act` returns true.
    #[inline(always)]
    fn for_each(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        mut act: impl FnMut(&mut NearLink, &mut Engine<Regions>) -> Result<bool, Violation>,
    ) {
        let mut broken = None;
        for up in self.channels.iter_mut().flatten() {
            match act(&mut up.link, engine) {
                Ok(false) => {}
                Ok(true) => {
                    self.wakes += 1;
                    up.wake();
                }
                Err(violation) => broken = Some((up.peer, violation)),
            }
        }
        if let Some((peer, violation)) = broken {
            self.end_broken(engine, now, peer, &violation);
        }
    }

    /// Ends the channel to `peer`, which broke its protocol.
    #[cold]
    #[inline(never)]
    fn end_broken(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        peer: LocalPeer,
        violation: &Violation,
    ) {
        tracing::warn!(?peer, %violation, "a process of this user broke the protocol of its shared memory");
        self.remove(engine, now, peer);
        self.ended = true;
    }

    /// Receives records, up to a bound.
    pub(crate) fn receive(&mut self, engine: &mut Engine<Regions>, now: Time) -> bool {
        self.receive_with(engine, now, NearLink::receive)
    }

    /// Receives all records that are there at the time of the call.
    pub(crate) fn drain(&mut self, engine: &mut Engine<Regions>, now: Time) {
        self.receive_with(engine, now, NearLink::drain);
    }

    #[inline(always)]
    fn receive_with(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        receive: impl Fn(&mut NearLink, &mut Engine<Regions>, Time) -> Result<Look, Violation>,
    ) -> bool {
        if self.by_peer.is_empty() {
            return false;
        }
        let mut records = 0;
        self.for_each(engine, now, |link, engine| {
            let look = receive(link, engine, now)?;
            records += look.records;
            Ok(look.wake)
        });
        if records > 0 {
            self.cadence.record_arrived(now);
        }
        records > 0
    }

    #[cfg(test)]
    pub(crate) fn rest_until(&mut self, end: Time) {
        let links = self.channels.iter_mut().flatten();
        links.for_each(|up| up.link.rest_until(end));
    }

    /// Returns when looks read the UDP socket.
    pub(crate) const fn cadence(&mut self) -> &mut SocketCadence {
        &mut self.cadence
    }

    /// Reports to `engine` what the peers have consumed, on which its timeouts depend.
    pub(crate) fn report_progress(&mut self, engine: &mut Engine<Regions>, now: Time) {
        self.for_each(engine, now, |link, engine| {
            link.report_progress(engine)?;
            Ok(false)
        });
    }

    /// Transmits what `engine` has to send on the channels, except acknowledgements that may wait if `hold`.
    pub(crate) fn transmit(&mut self, engine: &mut Engine<Regions>, now: Time, hold: bool) {
        if self.by_peer.is_empty() {
            return;
        }
        self.unpublished = false;
        let mut unfinished = self.transmit_once(engine, now, hold);
        if self.looped {
            // What this engine sends to itself arrives at once.
            let mut looks = 0;
            while self.receive(engine, now) {
                unfinished |= self.transmit_once(engine, now, hold);
                looks += 1;
                if looks == LOOPED_LOOKS {
                    unfinished = true;
                    break;
                }
            }
        }
        self.unfinished = unfinished;
    }

    /// Transmits on each channel once. Returns whether there is more to send.
    fn transmit_once(&mut self, engine: &mut Engine<Regions>, now: Time, hold: bool) -> bool {
        let mut unfinished = false;
        self.for_each(engine, now, |link, engine| {
            let sent = link.transmit(engine, now, hold)?;
            unfinished |= sent.unfinished;
            Ok(sent.wake)
        });
        unfinished
    }

    /// Posts a request whose record may be made at once; without `publish` the next [`transmit`](Self::transmit) publishes it. `None`: this is
    /// for the general path, and nothing was posted.
    #[inline]
    pub(crate) fn post(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        poster: NearPoster,
        request: &SendRequest<'_>,
        publish: bool,
    ) -> Option<Result<(), PostError>> {
        let index = usize::from(poster.channel.0);
        let up = self.channels.get_mut(index)?.as_mut()?;
        // What this engine sends to itself arrives in the same call.
        let bell = up.bell.as_ref()?;
        // The general path finds a violation again, and ends the channel.
        let is_long = matches!(request.sges, [sge] if sge.length as usize >= MIN_LONG);
        let posted = if is_long {
            up.link.post_long(engine, now, poster, request, publish)
        } else {
            up.link.post(engine, now, poster, request, publish)
        };
        let posted = posted.ok()?;
        Some(posted.map(|posted| match posted {
            Posted::Waits => {}
            Posted::Sent { wake } => {
                if wake {
                    self.wakes += 1;
                    bell.ring();
                }
                self.unpublished |= !publish;
            }
        }))
    }

    /// Posts a datagram to a queue pair of `peer` over the channel to it. Returns whether it takes the channel; if not, it was posted for
    /// UDP. `None`: there is no channel, and nothing was posted.
    pub(crate) fn post_datagram(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        qpn: Qpn,
        peer: LocalPeer,
        request: &SendRequest<'_>,
    ) -> Option<Result<bool, PostError>> {
        let Some(index) = self.by_peer.get(&peer) else {
            self.udp_datagrams.add(now, peer);
            return None;
        };
        let up = self.channels[*index].as_mut()?;
        if up.datagrams_take_udp {
            return None;
        }
        // A violation is found again where records are received or sent, which ends the channel.
        let posted = up.link.post_datagram(engine, now, qpn, request).ok()?;
        Some(posted.map(|posted| match posted {
            Posted::Waits => {
                up.datagrams_take_udp = true;
                tracing::debug!(
                    ?peer,
                    "a datagram did not take its channel: those for this peer take UDP from now on"
                );
                false
            }
            Posted::Sent { wake } => {
                self.datagrams += 1;
                match &up.bell {
                    Some(bell) if wake => {
                        self.wakes += 1;
                        bell.ring();
                    }
                    Some(_) => {}
                    // The next transmission receives it.
                    None => self.unpublished = true,
                }
                true
            }
        }))
    }

    /// Returns the number of datagrams that were sent over channels.
    pub(crate) const fn datagrams(&self) -> u64 {
        self.datagrams
    }

    /// Returns whether posts made records that are not published.
    pub(crate) const fn has_unpublished(&self) -> bool {
        self.unpublished
    }

    /// Returns whether the last transmission left something to do.
    pub(crate) const fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Returns, once, whether the last transmission left something to do: the watcher has to be woken to go on. A watcher that is about
    /// to sleep learns of it by [`arm`](Self::arm).
    pub(crate) const fn take_unfinished(&mut self) -> bool {
        std::mem::replace(&mut self.unfinished, false)
    }

    /// Returns, once, whether a channel came while a thread slept. Records on it wake no thread, so the watcher has to be woken to prepare its
    /// ring.
    pub(crate) const fn take_came_late(&mut self) -> bool {
        std::mem::replace(&mut self.came_late, false)
    }

    /// Prepares the rings for a sleeping thread. Returns `false` if it must not sleep.
    pub(crate) fn arm(&mut self, engine: &mut Engine<Regions>, now: Time) -> bool {
        let mut sleeps = true;
        (self.sleeper, self.came_late) = (true, false);
        if !self.by_peer.is_empty() {
            self.armed = true;
            self.for_each(engine, now, |link, _| {
                sleeps &= link.arm()?;
                Ok(link.flush())
            });
        }
        sleeps && !std::mem::take(&mut self.ended)
    }

    /// Ends the preparation for a sleep, without a system call. Called by a thread that watches, or pauses while none watches. Wake-ups stay on the
    /// connections, which end the next sleep unless [`hear`](Self::hear) comes first.
    pub(crate) fn disarm(&mut self) {
        (self.sleeper, self.came_late) = (false, false);
        if std::mem::take(&mut self.armed) {
            self.unheard = true;
            for up in self.channels.iter().flatten() {
                up.link.disarm();
            }
        }
    }

    /// Takes the wake-ups of the sleeps since the last call. Returns whether a peer has hung up since then.
    pub(crate) fn hear(&mut self) -> bool {
        if !std::mem::take(&mut self.unheard) {
            return false;
        }
        let before = self.hung_up.len();
        let Self {
            channels,
            bells,
            hung_up,
            ..
        } = self;
        bells.for_some_ready(|fd| {
            let rings = |up: &&Up| up.bell.as_ref().is_some_and(|bell| bell.has(fd));
            let up = channels.iter().flatten().find(rings);
            if up.is_none_or(|up| up.has_hung_up(fd)) {
                bells.remove(fd);
                hung_up.extend(up.map(|up| up.peer));
            }
        });
        self.hung_up.len() > before
    }

    /// Returns whether a peer has hung up since the last [`take_hung_up`](Self::take_hung_up).
    pub(crate) const fn any_hung_up(&self) -> bool {
        !self.hung_up.is_empty()
    }

    /// Returns the peers that have hung up since the last call.
    pub(crate) fn take_hung_up(&mut self) -> Vec<LocalPeer> {
        std::mem::take(&mut self.hung_up)
    }
}

/// Begins to lend over a new channel. Without, everything is copied twice.
fn lend(engine: &Engine<Regions>, link: &mut NearLink, bell: &Bell) {
    let done = match bell.peer_pid() {
        Ok(Some(pid)) => link.lend(engine, pid),
        Ok(None) => Err(io::Error::other("the peer is in another PID namespace")),
        Err(error) => Err(error),
    };
    if let Err(error) = done {
        tracing::info!(%error, "long messages of a process of this host are copied twice");
    }
}

impl Up {
    /// Wakes the peer.
    fn wake(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// Takes the wake-ups of a descriptor. Returns whether the peer has closed the connection.
    fn has_hung_up(&self, fd: RawFd) -> bool {
        let bell = self.bell.as_ref();
        bell.is_some_and(|bell| !bell.clear(fd).unwrap_or(false))
    }
}
