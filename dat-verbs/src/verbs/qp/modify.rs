//! State changes of a queue pair (`ibv_modify_qp`): to INIT, along a path to RTR and RTS, to ERR, and back to RESET.

use std::sync::atomic::Ordering;

use dat_core::error::{Error, Kind, Result, Subtype};

use super::Qp;
use crate::convert;
use crate::sys::{self, ibv_qp_state as state, qp_mask};

/// Limits that the connection sets when a queue pair moves to RTR and RTS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathLimits {
    /// Maximum number of incoming RDMA Reads and atomics in progress.
    pub(crate) reads_in: u8,
    /// Maximum number of outgoing RDMA Reads and atomics in progress.
    pub(crate) reads_out: u8,
}

/// A path negotiated by both ends without the kernel's connection manager.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// MTU as `ibv_mtu` code.
    pub(crate) mtu: u8,
    pub(crate) dest_qpn: u32,
    pub(crate) dest_lid: u16,
    /// Index in our GID table.
    pub(crate) sgid_index: u8,
    /// The peer's GID.
    pub(crate) dgid: [u8; 16],
}

impl Path {
    /// First packet number in both directions.
    const PSN: u32 = 1;
    /// Hop limit of the GRH.
    const HOP_LIMIT: u8 = 255;
    /// ACK timeout code: 4.096 us * 2^n, about a second.
    const ACK_TIMER: u8 = 18;
}

impl Qp {
    fn modify(&self, what: &str, attr: &mut sys::ibv_qp_attr, mask: i32) -> Result<()> {
        // SAFETY: the queue pair is alive, `attr` is valid.
        match unsafe { sys::ibv_modify_qp(self.raw(), attr, mask) } {
            0 => Ok(()),
            e => Err(convert::failed(
                &format!("ibv_modify_qp to {what}"),
                e,
                Subtype::ResourceTep,
            )),
        }
    }

    /// Moves from RESET to INIT, where receives can be posted; a datagram queue pair to RTS.
    pub(super) fn initialize(&self) -> Result<()> {
        if self.caps.datagram {
            self.to_rts_datagram()
        } else {
            self.to_init()
        }
    }

    fn to_rts_datagram(&self) -> Result<()> {
        let mut attr = zeroed_attr(state::IBV_QPS_INIT);
        attr.port_num = self.pd.adapter.shared.port;
        attr.qkey = sys::DATAGRAM_QKEY;
        let mask = qp_mask::STATE | qp_mask::PKEY_INDEX | qp_mask::PORT | qp_mask::QKEY;
        self.modify("INIT", &mut attr, mask)?;
        self.modify("RTR", &mut zeroed_attr(state::IBV_QPS_RTR), qp_mask::STATE)?;
        let mask = qp_mask::STATE | qp_mask::SQ_PSN;
        self.modify("RTS", &mut zeroed_attr(state::IBV_QPS_RTS), mask)
    }

    fn to_init(&self) -> Result<()> {
        let mut attr = zeroed_attr(state::IBV_QPS_INIT);
        attr.port_num = self.pd.adapter.shared.port;
        attr.qp_access_flags = sys::access::REMOTE_WRITE | sys::access::REMOTE_READ;
        if self.pd.adapter.shared.attr.atomics {
            attr.qp_access_flags |= sys::access::REMOTE_ATOMIC;
        }
        let mask = qp_mask::STATE | qp_mask::PKEY_INDEX | qp_mask::PORT | qp_mask::ACCESS_FLAGS;
        self.modify("INIT", &mut attr, mask)
    }

    /// Moves to RTR and RTS with the connection manager's path. `attr_for` is `rdma_init_qp_attr`.
    pub(crate) fn to_rts(
        &self,
        limits: PathLimits,
        attr_for: impl Fn(&mut sys::ibv_qp_attr) -> Result<i32>,
    ) -> Result<()> {
        let shared = &self.pd.adapter.shared;
        let settings = &shared.settings;
        let foreign = if shared.roce { 0 } else { qp_mask::ROCE_ONLY };

        if !shared.roce {
            self.to_partition(&attr_for)?;
        }
        let mut attr = zeroed_attr(state::IBV_QPS_RTR);
        let mut mask = attr_for(&mut attr)? & !foreign;
        if mask & qp_mask::MIN_RNR_TIMER != 0 {
            // The kernel sets 0, which is 655 ms between two tries of a sender whose receive was not posted.
            attr.min_rnr_timer = settings.rnr_timer;
        }
        if mask & qp_mask::MAX_DEST_RD_ATOMIC != 0 {
            attr.max_dest_rd_atomic = attr.max_dest_rd_atomic.min(limits.reads_in);
        }
        if mask & qp_mask::PATH_MTU != 0
            && let Some(mtu) = settings.mtu
        {
            attr.path_mtu = attr.path_mtu.min(mtu);
        }
        self.modify("RTR", &mut attr, mask)?;

        attr = zeroed_attr(state::IBV_QPS_RTS);
        mask = attr_for(&mut attr)?;
        if mask & qp_mask::MAX_RD_ATOMIC != 0 {
            attr.max_rd_atomic = attr.max_rd_atomic.min(limits.reads_out);
            self.record_reads(attr.max_rd_atomic);
        }
        if mask & qp_mask::TIMEOUT != 0
            && let Some(timeout) = settings.ack_timer
        {
            attr.timeout = timeout;
        }
        if mask & qp_mask::RETRY_CNT != 0 {
            attr.retry_cnt = settings.retry;
        }
        if mask & qp_mask::RNR_RETRY != 0 {
            attr.rnr_retry = settings.rnr_retry;
        }
        self.modify("RTS", &mut attr, mask)
    }

    /// Moves the queue pair, which is in INIT and uses the first partition key of its port, to the partition of the connection
    /// manager's path: that of an IPoIB interface such as ib0.8001.
    fn to_partition(&self, attr_for: &impl Fn(&mut sys::ibv_qp_attr) -> Result<i32>) -> Result<()> {
        let mut attr = zeroed_attr(state::IBV_QPS_INIT);
        let mask = attr_for(&mut attr)?;
        if mask & qp_mask::PKEY_INDEX == 0 || attr.pkey_index == 0 {
            return Ok(());
        }
        let mask = qp_mask::STATE | qp_mask::PKEY_INDEX;
        self.modify("INIT in its partition", &mut attr, mask)
    }

    /// Moves to RTR and RTS along `path`.
    pub(crate) fn to_rts_along(&self, limits: PathLimits, path: &Path) -> Result<()> {
        let shared = &self.pd.adapter.shared;
        let settings = &shared.settings;
        let mut attr = zeroed_attr(state::IBV_QPS_RTR);
        attr.path_mtu = path.mtu.into();
        attr.dest_qp_num = path.dest_qpn;
        attr.rq_psn = Path::PSN;
        attr.max_dest_rd_atomic = limits.reads_in;
        attr.min_rnr_timer = settings.rnr_timer;
        attr.ah_attr.dlid = path.dest_lid;
        attr.ah_attr.port_num = shared.port;
        if shared.roce {
            attr.ah_attr.is_global = 1;
            attr.ah_attr.grh.dgid = sys::ibv_gid { raw: path.dgid };
            attr.ah_attr.grh.sgid_index = path.sgid_index;
            attr.ah_attr.grh.hop_limit = Path::HOP_LIMIT;
            attr.ah_attr.grh.traffic_class = settings.tos.unwrap_or(0);
        }
        let mask = qp_mask::STATE
            | qp_mask::AV
            | qp_mask::PATH_MTU
            | qp_mask::DEST_QPN
            | qp_mask::RQ_PSN
            | qp_mask::MAX_DEST_RD_ATOMIC
            | qp_mask::MIN_RNR_TIMER;
        self.modify("RTR", &mut attr, mask)?;

        attr = zeroed_attr(state::IBV_QPS_RTS);
        attr.sq_psn = Path::PSN;
        attr.max_rd_atomic = limits.reads_out;
        self.record_reads(limits.reads_out);
        attr.timeout = settings.ack_timer.unwrap_or(Path::ACK_TIMER);
        attr.retry_cnt = settings.retry;
        attr.rnr_retry = settings.rnr_retry;
        let mask = qp_mask::STATE
            | qp_mask::SQ_PSN
            | qp_mask::MAX_RD_ATOMIC
            | qp_mask::TIMEOUT
            | qp_mask::RETRY_CNT
            | qp_mask::RNR_RETRY;
        self.modify("RTS", &mut attr, mask)
    }

    /// Records how many RDMA Reads and atomics may be outstanding. The store may be relaxed: no request is posted before the report that
    /// the connection is established.
    fn record_reads(&self, at_a_time: u8) {
        self.reads.store(at_a_time != 0, Ordering::Relaxed);
    }

    /// Moves to ERR: outstanding work completes as flushed.
    pub(crate) fn to_error(&self) {
        let mut attr = zeroed_attr(state::IBV_QPS_ERR);
        // A failure is logged. A device that is gone flushes nothing.
        self.modify("ERR", &mut attr, qp_mask::STATE).ok();
    }

    /// Completes as flushed the receives that were posted since [`to_error`](Self::to_error). Those of rdma_rxe are in memory shared with the
    /// kernel, which looks at them when the state is set, and not when a receive is posted.
    pub(crate) fn flush_again(&self) {
        if self.srq.is_none() {
            self.to_error();
        }
    }

    /// Resets the queue pair: receives and requests are discarded. Fails for a queue pair that tried to connect. The
    /// peer's connection manager may still hold the old connection under its number and would refuse the new attempt
    /// as stale; core creates a new queue pair then.
    pub(crate) fn reset(&self) -> Result<()> {
        let used = self.conn.lock().take().is_some();
        if used {
            return Err(Error::of(Kind::InternalError));
        }
        let mut attr = zeroed_attr(state::IBV_QPS_RESET);
        self.modify("RESET", &mut attr, qp_mask::STATE)
            .and_then(|()| self.initialize())
            .map_err(|_| Error::of(Kind::InternalError))
    }
}

/// Returns attributes for a change to `to`, with all other fields 0.
fn zeroed_attr(to: u32) -> sys::ibv_qp_attr {
    // SAFETY: all-zero is a valid value of this plain C struct.
    let mut attr: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
    attr.qp_state = to;
    attr
}
