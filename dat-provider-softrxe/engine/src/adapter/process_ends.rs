//! Reactions to the end of other processes: takeover from the port's holder, and broken connections to peers.

use std::time::{Duration, Instant};

use softrxe_port::liveness::LocalPeer;
use softrxe_proto::Time;

use super::hub::Hub;
use super::peers::forget_gone;
use super::ports::Channels;
use super::ports::takeover::attempt_takeover;
use super::state::State;
use crate::clock;

/// How long the last packets of a process may take to arrive after its end, and reads until they have, at most.
const FINAL_PACKETS: Duration = Duration::from_millis(20);
const MAX_FINAL_READS: usize = 1000;
/// Time after which these reads end, and reads before that: other processes may send without an end, and the adapter is locked meanwhile.
const FINAL_READS_TIME: Duration = Duration::from_millis(100);
const MIN_FINAL_READS: usize = 16;

impl Hub {
    /// Takes over port 4791 if its holder is gone, or joins the process that took it over.
    pub(crate) fn take_over_port(&self) {
        let former = {
            let mut state = self.state.lock();
            let State { ports, peers, .. } = &mut *state;
            if !peers.end_back_off(ports, &self.descriptors) {
                return;
            }
            if !ports.holder_is_gone() {
                if ports.send_pending().is_err() {
                    peers.back_off(ports, &self.descriptors);
                }
                return;
            }
            ports.former_share()
        };
        let share = attempt_takeover(&former, self.address());
        let mut state = self.state.lock();
        let State {
            engine,
            ports,
            near,
            near_dial,
            peers,
            ..
        } = &mut *state;
        // Reads what the holder passed on before it ended.
        let channels = Channels { near, near_dial };
        let now = clock::now();
        engine.memory().prepare(now);
        ports.drain_mailbox(engine, channels, now);
        let replaced = ports.finish_takeover(share, &self.descriptors).is_ok();
        if !replaced || ports.send_pending().is_err() {
            peers.back_off(ports, &self.descriptors);
        }
        // A receive ring of the former holder wakes no thread.
        let channels = Channels { near, near_dial };
        ports.drain_shared(engine, channels, now);
        state.transmit(now, false);
        self.wake(&mut state);
    }

    /// Serves connecting processes of this host, and breaks the connections to those that have ended.
    pub(crate) fn reap_peers(&self) {
        let hung_up = self.state.lock().near.any_hung_up();
        if !hung_up && !self.descriptors.liveness_changed() {
            return;
        }
        let came = self.descriptors.accept();
        // There is nothing more to do if only processes of other users connected.
        if !hung_up && !came && !self.descriptors.liveness_changed() {
            return;
        }
        let (gone, hung_up) = {
            let mut state = self.state.lock();
            if state.peers.back_off_until().is_some() {
                return;
            }
            let (near_dial, mut context) = state.near_parts(clock::now());
            near_dial.serve(&mut context);
            self.wake(&mut state);
            let State {
                engine,
                ports,
                near,
                peers,
                connections,
                ..
            } = &mut *state;
            let gone = peers.collect_gone(ports, &self.descriptors);
            let hung_up = near.take_hung_up();
            if gone.is_empty() && hung_up.is_empty() {
                return;
            }
            connections.end_requests(engine, clock::now(), &gone);
            if !self.drain_final(&mut state, &gone) && hung_up.is_empty() {
                state.forget(clock::now(), &gone);
                return;
            }
            (gone, hung_up)
        };
        // A process that disconnected before it ended sent a DREQ, which may arrive a little later on a busy machine.
        std::thread::sleep(FINAL_PACKETS);
        let mut state = self.state.lock();
        let connected = self.drain_final(&mut state, &gone);
        let now = clock::now();
        if connected {
            let State {
                engine,
                connections,
                pending,
                ..
            } = &mut *state;
            let upcalls = connections.break_connections(engine, now, &gone);
            pending.upcalls.extend(upcalls);
        }
        for peer in hung_up {
            let State { engine, near, .. } = &mut *state;
            near.remove(engine, now, peer);
        }
        state.forget(now, &gone);
        state.transmit(now, false);
    }

    /// Does what [`reap_peers`](Self::reap_peers) does, while the adapter closes: reads the descriptors, makes no upcalls.
    pub(crate) fn reap_peers_at_close(&self, state: &mut State, now: Time) {
        if self.descriptors.liveness_changed() {
            // A call that waits for its answer would keep this thread from sleeping.
            let (near_dial, mut context) = state.near_parts(now);
            near_dial.serve(&mut context);
            let gone = state
                .peers
                .collect_gone(&mut state.ports, &self.descriptors);
            state.forget(now, &gone);
        }
    }

    /// Receives the last packets of peers that are `gone`. Returns whether there are still connections to them.
    fn drain_final(&self, state: &mut State, gone: &[LocalPeer]) -> bool {
        let (begin, now) = (Instant::now(), clock::now());
        state.drain_rings(now);
        state.transmit(now, false);
        for reads in 0..MAX_FINAL_READS {
            let late = reads >= MIN_FINAL_READS && begin.elapsed() >= FINAL_READS_TIME;
            if late || !state.receive(now, true) {
                break;
            }
            state.transmit(now, false);
        }
        state.collect_events();
        state.convert_events(&self.descriptors, now);
        // A message of the connection manager may have led to a channel.
        self.wake(state);
        state.connections.any_to(gone)
    }
}

impl State {
    /// Drops what is kept for processes that are `gone`, and the channels to them.
    fn forget(&mut self, now: Time, gone: &[LocalPeer]) {
        for peer in gone {
            self.near_dial.forget(*peer);
            self.near.remove(&mut self.engine, now, *peer);
        }
        forget_gone(&mut self.engine, now, gone);
    }
}

#[cfg(test)]
mod tests;
