//! Reactions to the end of other processes: takeover from the port's holder, and broken connections to peers.

use std::time::Duration;

use softrxe_port::liveness::LocalPeer;
use softrxe_proto::Time;

use super::hub::{Hub, State};
use super::peers::forget_gone;
use super::ports::attempt_takeover;
use crate::clock;

/// How long the last packets of a process may take to arrive after its end, and reads until they have, at most.
const FINAL_PACKETS: Duration = Duration::from_millis(20);
const MAX_FINAL_READS: usize = 1000;

impl Hub {
    /// Takes over port 4791 if its holder is gone, or joins the process that took it over.
    pub(crate) fn take_over_port(&self) {
        let takeover = {
            let mut state = self.state.lock();
            let State { ports, peers, .. } = &mut *state;
            if !peers.end_back_off(ports, &self.descriptors) || !ports.holder_is_gone() {
                return;
            }
            ports.takeover()
        };
        let share = attempt_takeover(&takeover, self.address());
        let mut state = self.state.lock();
        let State {
            engine,
            ports,
            peers,
            ..
        } = &mut *state;
        // Reads what the holder passed on before it ended.
        ports.drain_mailbox(engine, clock::now());
        if ports.finish_takeover(share, &self.descriptors).is_err() {
            peers.back_off(ports, &self.descriptors);
        }
    }

    /// Serves connecting processes of this host, and breaks the connections to those that have ended.
    pub(crate) fn reap_peers(&self) {
        if !self.descriptors.liveness_changed() {
            return;
        }
        let came = self.descriptors.accept();
        // There is nothing more to do if only processes of other users connected.
        if !came && !self.descriptors.liveness_changed() {
            return;
        }
        let gone = {
            let mut state = self.state.lock();
            if state.peers.back_off_until().is_some() {
                return;
            }
            let State {
                engine,
                ports,
                peers,
                connections,
                ..
            } = &mut *state;
            let gone = peers.collect_gone(ports, &self.descriptors);
            if gone.is_empty() {
                return;
            }
            connections.end_requests(engine, clock::now(), &gone);
            if !self.drain_final(&mut state, &gone) {
                forget_gone(&mut state.engine, clock::now(), &gone);
                return;
            }
            gone
        };
        // A process that disconnected before it ended sent a DREQ, which may arrive a little later on a busy machine.
        std::thread::sleep(FINAL_PACKETS);
        let mut state = self.state.lock();
        if self.drain_final(&mut state, &gone) {
            let now = clock::now();
            let State {
                engine,
                connections,
                pending,
                ..
            } = &mut *state;
            let upcalls = connections.break_connections(engine, now, &gone);
            pending.upcalls.extend(upcalls);
            state.transmit(now, false);
        }
        forget_gone(&mut state.engine, clock::now(), &gone);
    }

    /// Does what [`reap_peers`](Self::reap_peers) does, while the adapter closes: reads the descriptors, makes no upcalls.
    pub(crate) fn reap_peers_at_close(&self, state: &mut State, now: Time) {
        if self.descriptors.liveness_changed() {
            let gone = state
                .peers
                .collect_gone(&mut state.ports, &self.descriptors);
            forget_gone(&mut state.engine, now, &gone);
        }
    }

    /// Receives the last packets of peers that are `gone`. Returns whether there are still connections to them.
    fn drain_final(&self, state: &mut State, gone: &[LocalPeer]) -> bool {
        let now = clock::now();
        for _ in 0..MAX_FINAL_READS {
            if !state.receive(now, true) {
                break;
            }
            state.transmit(now, false);
        }
        state.collect_events();
        state.convert_events(&self.descriptors, now);
        state.connections.any_to(gone)
    }
}
