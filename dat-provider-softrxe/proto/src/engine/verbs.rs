//! The verbs: completion queues, shared receive queues, queue pairs, posts.

use std::collections::TryReserveError;

use dat_handshake::Capabilities;

use super::{Engine, QpError};
use crate::memory::Memory;
use crate::near::Link;
use crate::occupancy::Occupancy;
use crate::psn::Qpn;
use crate::qp::{Path, Qp, QpInit, QpKind, QpState};
use crate::time::Time;
use crate::try_box::TryBox;
use crate::work::{Completion, CqId, PostError, SendRequest, Sge, SrqId};

/// Window towards peers without `WIDE_WINDOW`; rxe limits itself to it, too.
const FOREIGN_WINDOW: u32 = 128;
/// Free slots below which a new slot is preferred to a used one.
const MIN_FREE_SLOTS: usize = 1024;

impl<M: Memory> Engine<M> {
    /// Creates a completion queue. It never overflows: each post reserves room for its completion.
    ///
    /// # Errors
    /// `NoMemory`.
    pub fn create_cq(&mut self) -> Result<CqId, QpError> {
        Ok(self.out.create_cq()?)
    }

    /// Returns what tells other threads whether `cq` may have completions.
    #[must_use]
    pub fn occupancy(&self, cq: CqId) -> Option<Occupancy> {
        self.out.occupancy(cq).cloned()
    }

    /// Destroys a completion queue with its completions.
    pub fn destroy_cq(&mut self, cq: CqId) {
        self.out.destroy_cq(cq);
    }

    /// Arms the queue: the next completion raises [`Event::CqReady`](crate::Event::CqReady) once. Completions that are queued already raise
    /// nothing, so poll after arming.
    pub fn arm_cq(&mut self, cq: CqId) {
        self.out.arm_cq(cq);
    }

    /// Takes completions in order. Returns their number.
    #[inline]
    pub fn poll_cq(&mut self, cq: CqId, into: &mut [Completion]) -> usize {
        self.out.poll_cq(cq, into)
    }

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// `NoMemory`.
    pub fn create_srq(&mut self, depth: usize, max_sge: usize) -> Result<SrqId, QpError> {
        Ok(self.out.create_srq(depth, max_sge)?)
    }

    /// Destroys a shared receive queue; its receives do not complete.
    pub fn destroy_srq(&mut self, srq: SrqId) {
        self.out.destroy_srq(srq);
    }

    /// Raises the depth of a shared receive queue. A smaller number changes nothing.
    pub fn grow_srq(&mut self, srq: SrqId, depth: usize) {
        if let Some(ring) = self.out.srq_ring(srq) {
            ring.raise_depth(depth);
        }
    }

    /// Arms the limit: [`Event::SrqLimit`](crate::Event::SrqLimit) is raised once when fewer than `limit` receives are left. 0 disarms it.
    pub fn set_srq_limit(&mut self, srq: SrqId, limit: u32) {
        self.out.set_srq_limit(srq, limit);
    }

    /// Posts a receive to a shared queue.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_srq_recv(&mut self, srq: SrqId, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let ring = self.out.srq_ring(srq).ok_or(PostError::UnknownQueue)?;
        let length = ring.admit(sges)?;
        ring.post(wr_id, length, sges);
        Ok(())
    }

    /// Creates a queue pair. An RC queue pair is unconnected, a UD queue pair is ready.
    ///
    /// # Errors
    /// `Exhausted`, `Invalid` or `NoMemory`.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<Qpn, QpError> {
        if init.send_depth > 1 << 20 || init.recv_depth > 1 << 20 || init.max_sge > 256 {
            return Err(QpError::Invalid("depths up to 2^20, SGEs up to 256"));
        }
        self.reserve_slot()?;
        // Slots 0 and 1 stay unused: with salt 0 they would have the reserved QPNs.
        if self.qps.len() < 2 {
            self.qps.resize_with(2, || None);
        }
        let limit = 1usize << self.config.qp_bits;
        // With the maximum of slot and prefix bits no salt is left, so slots are reused as late as possible: no late packet of
        // the old connection reaches the new one.
        let reusable = self.free.len() >= MIN_FREE_SLOTS || self.qps.len() >= limit;
        let reusable = reusable.then(|| self.free.pop_front()).flatten();
        let slot = reusable.unwrap_or(self.qps.len() as u32);
        if slot as usize >= limit {
            return Err(QpError::Exhausted(limit - 2));
        }
        if slot as usize == self.qps.len() {
            self.qps.push(None);
        }
        let qpn = self.number(slot);
        let of_srq = init.srq.and_then(|srq| self.out.srq_sges(srq));
        let made = Qp::new(qpn, *init, of_srq.unwrap_or(init.max_sge)).and_then(TryBox::new);
        match made {
            Ok(qp) => {
                self.wire_users += usize::from(qp.init.kind == QpKind::Ud);
                self.qps[slot as usize] = Some(qp);
            }
            Err(_) => {
                self.free.push_back(slot);
                return Err(QpError::NoMemory);
            }
        }
        Ok(qpn)
    }

    /// Reserves room for one more slot in all lists of slots, so that later calls need no memory for them.
    fn reserve_slot(&mut self) -> Result<(), TryReserveError> {
        let slots = self.qps.len() + 3;
        self.qps.try_reserve(3)?;
        self.free
            .try_reserve(slots.saturating_sub(self.free.len()))?;
        // A list may still contain the slot's previous queue pair.
        let twice = 2 * slots;
        self.ready
            .try_reserve(twice.saturating_sub(self.ready.len()))?;
        self.held.try_reserve(twice.saturating_sub(self.held.len()))
    }

    /// Returns the QPN of a slot: prefix, salt, slot. The salt prevents early reuse of a number.
    fn number(&mut self, slot: u32) -> Qpn {
        let (slot_bits, prefix_bits) = (
            u32::from(self.config.qp_bits),
            u32::from(self.config.qpn_prefix_bits),
        );
        let salt_bits = 24u32.saturating_sub(slot_bits + prefix_bits);
        let prefix = self
            .config
            .qpn_prefix
            .checked_shl(24 - prefix_bits)
            .unwrap_or(0);
        let salt = self.random.u32() & ((1 << salt_bits) - 1);
        let qpn = prefix | salt << slot_bits | slot;
        // 0xffffff is the multicast QPN.
        Qpn::new(if qpn == 0xff_ffff {
            qpn & !(1 << slot_bits)
        } else {
            qpn
        })
    }

    /// Destroys a queue pair. Outstanding requests do not complete, and its connection ends in the background.
    ///
    /// Poll transmits first: the acknowledgements that it owes are lost with it.
    pub fn destroy_qp(&mut self, now: Time, qpn: Qpn) {
        self.abandon_connection(now, qpn);
        self.leave_link(qpn);
        self.memory.recall(qpn);
        if let Some(slot) = self.slot(qpn) {
            if let Some(qp) = self.qps[slot as usize].take() {
                self.wire_users -= usize::from(qp.init.kind == QpKind::Ud);
                qp.forget(&mut self.out);
            }
            self.free.push_back(slot);
        }
    }

    /// Moves a queue pair to Error: all outstanding requests complete as flushed, and its connection ends.
    pub fn fail_qp(&mut self, now: Time, qpn: Qpn) {
        self.abandon_connection(now, qpn);
        self.break_qp(now, qpn);
    }

    /// Moves a queue pair back to unconnected. Outstanding requests do not complete, and its connection ends in the
    /// background.
    pub fn reset_qp(&mut self, now: Time, qpn: Qpn) {
        self.abandon_connection(now, qpn);
        self.leave_link(qpn);
        self.memory.recall(qpn);
        if let Some(slot) = self.slot(qpn)
            && let Some(qp) = &mut self.qps[slot as usize]
        {
            qp.reset(&mut self.out);
        }
    }

    /// Connects a queue pair without the connection manager.
    ///
    /// # Errors
    /// `Unknown`, `State`, `NoMemory`, or `Invalid` for a path MTU that does not exist, and for a channel that is not up or has
    /// another MTU.
    pub fn connect_qp(&mut self, qpn: Qpn, path: &Path) -> Result<(), QpError> {
        let on_wire = path.mtu.is_power_of_two() && (256..=4096).contains(&path.mtu);
        if path.link == Link::Wire && !on_wire {
            return Err(QpError::Invalid("path MTU 256, 512, 1024, 2048 or 4096"));
        }
        let window = self.config.max_window;
        // What READs fetch has to fit this end's buffer. The size of a foreign peer's buffer is not known, and rdma_rxe has none that overflows.
        let (max_window, max_reads) = if path.agreement.has(Capabilities::WIDE_WINDOW) {
            (window, window)
        } else if path.agreement.is_own() {
            (window.min(FOREIGN_WINDOW), window)
        } else {
            (FOREIGN_WINDOW, window)
        };
        let (slot, qp) = self.qp_mut(qpn).ok_or(QpError::Unknown(qpn))?;
        if qp.state() != QpState::Init {
            return Err(QpError::State(qp.state()));
        }
        qp.reserve(path.initiator_depth, path.responder_resources)?;
        match path.link {
            Link::Wire => self.wire_users += 1,
            Link::Near(id) => self.join_channel(id, path.mtu)?,
            Link::Down => return Err(QpError::Invalid("a link that is up")),
        }
        if let Some(Some(qp)) = self.qps.get_mut(slot as usize) {
            qp.connect(*path, max_window, max_reads);
        }
        Ok(())
    }

    /// Posts a request.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was posted then.
    pub fn post_send(
        &mut self,
        now: Time,
        qpn: Qpn,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        let slot = self.slot(qpn).ok_or(PostError::UnknownQueue)?;
        let posted = self.with_qp(now, slot, |qp, cx| {
            (qp.post_send(cx, request), qp.link() != Link::Wire)
        });
        let (result, near) = posted.unwrap_or((Err(PostError::UnknownQueue), false));
        self.enqueue(slot);
        if near {
            // The request's timer runs from now on, also while there is no room for it.
            self.arm(now, slot);
        }
        result
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was posted then.
    #[inline(always)]
    pub fn post_recv(&mut self, qpn: Qpn, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let slot = self.slot(qpn).ok_or(PostError::UnknownQueue)?;
        let qp = self.qps[slot as usize].as_mut();
        let qp = qp.ok_or(PostError::UnknownQueue)?;
        qp.post_recv(&mut self.out, wr_id, sges)?;
        if qp.state() == QpState::Error {
            self.with_qp(Time::ZERO, slot, Qp::flush_receives);
        }
        Ok(())
    }
}
