//! Waits for the agreement on a channel before a request of its peer is accepted.

use std::time::{Duration, Instant};

use dat_os::sleep::on_readable;
use softrxe_port::liveness::LocalPeer;
use softrxe_proto::CmId;

use super::hub::Hub;
use super::near_dial;
use crate::clock;

/// How long a peer may take to agree on a channel. It was alive when it sent its request, but it may run on a busy processor.
const DIAL_TIME: Duration = Duration::from_millis(100);

/// How often a thread that waits for an agreement looks whether another one has read it.
const DIAL_CHECK: Duration = Duration::from_millis(1);

impl Hub {
    /// Waits until the channel to the peer of the request `id` is up or refused, for at most [`DIAL_TIME`].
    pub(crate) fn await_channel_of(&self, id: CmId) {
        let peer = {
            let mut state = self.state.lock();
            let (near_dial, mut context) = state.near_parts(clock::now());
            if !near_dial.dials_at_requests() {
                near_dial.dial(&mut context, id);
            }
            near_dial::offering(context.engine, id)
        };
        if let Some(peer) = peer {
            self.await_channel(peer);
        }
    }

    /// Does what [`await_channel_of`](Self::await_channel_of) does, for the `peer` of a request for datagrams.
    pub(crate) fn await_channel_for_datagrams(&self, peer: LocalPeer) {
        {
            let mut state = self.state.lock();
            let (near_dial, mut context) = state.near_parts(clock::now());
            if !near_dial.dials_at_requests() {
                near_dial.dial_for_datagrams(&mut context, peer);
            }
        }
        self.await_channel(peer);
    }

    fn await_channel(&self, peer: LocalPeer) {
        let end = Instant::now() + DIAL_TIME;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let dial = {
                let mut state = self.state.lock();
                if state.near_dial.awaited(peer).is_none() {
                    return;
                }
                let (near_dial, mut context) = state.near_parts(clock::now());
                near_dial.serve(&mut context);
                self.wake(&mut state);
                let Some(dial) = state.near_dial.awaited(peer) else {
                    return;
                };
                if left.is_zero() {
                    let (near_dial, mut context) = state.near_parts(clock::now());
                    near_dial.give_up(&mut context, peer);
                    return;
                }
                dial
            };
            // Another thread may read the answer and close the descriptor.
            let _ = on_readable([dial], Some(left.min(DIAL_CHECK)));
        }
    }
}
