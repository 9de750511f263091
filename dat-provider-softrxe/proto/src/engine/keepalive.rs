//! The keepalive interval of all connected queue pairs. What a probe is, and when a peer counts as dead, is in `qp::keepalive`.

use super::Engine;
use super::timers::Owner;
use crate::memory::Memory;
use crate::qp::{QpKind, QpState};
use crate::time::Time;

impl<M: Memory> Engine<M> {
    /// Arms the keepalive timer if it is not armed.
    pub(super) fn arm_keepalive(&mut self, now: Time) {
        if let Some(every) = self.config.keepalive
            && !std::mem::replace(&mut self.keepalive_armed, true)
        {
            self.timers.add(now + every, Owner::KeepAlive);
        }
    }

    /// Ends a keepalive interval: probes the peers that were silent in it.
    pub(super) fn keepalive_tick(&mut self, now: Time) {
        self.keepalive_armed = false;
        for slot in 0..self.qps.len() as u32 {
            let connected = self.qps[slot as usize]
                .as_ref()
                .is_some_and(|qp| qp.init.kind == QpKind::Rc && qp.state() == QpState::ReadyToSend);
            if !connected {
                continue;
            }
            self.arm_keepalive(now);
            // The connection manager probes a peer that has not shown yet that it is connected.
            let asks = self.with_qp(now, slot, |qp, cx| {
                !qp.awaits_data() && qp.keepalive_tick(cx)
            });
            if asks == Some(true) {
                self.enqueue(slot);
                self.arm(now, slot);
            }
        }
    }
}
