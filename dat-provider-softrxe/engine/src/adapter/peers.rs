//! Liveness: the engines of this host that this one is connected to, and back-off where the process is out of descriptors.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use softrxe_port::liveness::{Liveness, LocalPeer, LocalPeers};
use softrxe_port::slot::slot_of_qpn;
use softrxe_proto::{CmId, Engine, Qpn, Time};

use super::descriptors::Descriptors;
use super::ports::Ports;
use crate::memory::regions::Regions;

/// How long an adapter ignores connecting and ending processes that it cannot serve.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Engines of this host.
pub(crate) struct Peers {
    /// Address and slot of this engine.
    own: LocalPeer,
    /// Listener through which other engines watch this one.
    liveness: Liveness,
    local_peers: LocalPeers,
    /// End of the present back-off. Meanwhile no thread waits for descriptors that are readable but cannot be served: a process without
    /// free descriptors would not sleep.
    back_off_until: Option<Instant>,
}

impl Peers {
    /// Starts without peers. `ip` and `slot` are those of this engine.
    pub(crate) fn new(ip: IpAddr, slot: u16, liveness: Liveness) -> Self {
        Self {
            own: (ip, slot),
            liveness,
            local_peers: LocalPeers::default(),
            back_off_until: None,
        }
    }

    /// Returns the end of the present back-off.
    pub(crate) const fn back_off_until(&self) -> Option<Instant> {
        self.back_off_until
    }

    /// Ignores connecting and ending processes for a while.
    pub(crate) fn back_off(&mut self, ports: &mut Ports, descriptors: &Descriptors) {
        if self.back_off_until.is_none() {
            descriptors.suspend_liveness();
            ports.suspend_mailbox(descriptors);
        }
        self.back_off_until = Some(Instant::now() + BACK_OFF);
    }

    /// Ends an expired back-off. Returns true if none is in progress afterwards.
    pub(crate) fn end_back_off(&mut self, ports: &mut Ports, descriptors: &Descriptors) -> bool {
        let Some(end) = self.back_off_until else {
            return true;
        };
        if Instant::now() < end {
            return false;
        }
        self.back_off_until = None;
        let resumed = descriptors.resume_liveness();
        let resumed = resumed.and(ports.resume_mailbox(descriptors));
        if resumed.is_err() {
            self.back_off(ports, descriptors);
        }
        resumed.is_ok()
    }

    /// Serves processes that connected to this one, and returns engines that have ended: some of them where there are very many.
    pub(crate) fn collect_gone(
        &mut self,
        ports: &mut Ports,
        descriptors: &Descriptors,
    ) -> Vec<LocalPeer> {
        let mut gone = Vec::new();
        let liveness = descriptors.liveness();
        for fd in liveness.ready() {
            self.liveness.handle_ready(fd, liveness);
            gone.extend(self.local_peers.take_closed(fd, liveness));
        }
        self.liveness.admit(liveness);
        ports.serve_members();
        gone
    }

    /// Watches the peer of `id` if it is an engine of this host. Returns its name if it is watched.
    pub(crate) fn watch_peer(
        &mut self,
        engine: &Engine<Regions>,
        descriptors: &Descriptors,
        id: CmId,
    ) -> Option<LocalPeer> {
        let (ip, qpn, true) = engine.peer(id)? else {
            return None;
        };
        let peer = (ip, slot_of_qpn(qpn.value()));
        // No watch on this engine itself.
        let other = peer != self.own;
        (other && self.local_peers.watch(peer, descriptors.liveness())).then_some(peer)
    }
}

/// Drops what `engine` keeps for peers that are `gone`: they will not confirm the end of a connection.
pub(crate) fn forget_gone(engine: &mut Engine<Regions>, now: Time, gone: &[LocalPeer]) {
    let of_gone = |ip, qpn: Qpn| gone.contains(&(ip, slot_of_qpn(qpn.value())));
    engine.forget_gone(now, of_gone);
}
