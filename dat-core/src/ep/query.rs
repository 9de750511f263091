//! Queries and changes of endpoints (dat_ep_query, dat_ep_modify, dat_ep_get_status, dat_ep_recv_query,
//! dat_ep_set_watermark).

use std::net::{IpAddr, SocketAddr};

use super::connect::Connection;
use super::setup::check_attr;
use super::{DEAD, Ep, EpParts, EpState};
use crate::attributes::EpAttr;
use crate::counters::{Counted, EpCounter, EpValues, Which};
use crate::error::{Error, Kind, Result};
use crate::evd::Evd;
use crate::flags::CompletionFlags;
use crate::ia::Ia;
use crate::pz::Pz;
use crate::srq::Srq;
use crate::transport::Transport;

/// Result of dat_ep_query (`DAT_EP_PARAM`).
#[derive(Clone, Debug)]
pub struct EpInfo<T: Transport> {
    /// Adapter.
    pub ia: &'static Ia<T>,
    /// State of the endpoint.
    pub state: EpState,
    /// Local address.
    pub local_address: IpAddr,
    /// Local port: the transport's, or else the qualifier that the peer connected to; 0 before there is one.
    pub local_port: u64,
    /// Address of the peer, once there is one.
    pub remote_address: Option<IpAddr>,
    /// Port or qualifier of the peer, or 0 before there is one.
    pub remote_port: u64,
    /// Protection zone.
    pub pz: Option<&'static Pz<T>>,
    /// EVD for completions of receives.
    pub recv_evd: Option<&'static Evd<T>>,
    /// EVD for completions of requests.
    pub request_evd: Option<&'static Evd<T>>,
    /// EVD for connection events.
    pub connect_evd: Option<&'static Evd<T>>,
    /// Shared receive queue.
    pub srq: Option<&'static Srq<T>>,
    /// Attributes in force.
    pub attr: EpAttr,
}

/// Changes for dat_ep_modify: one field per bit of the mask that can be changed. For handles, the outer `Option` says
/// whether to change, the inner one is a handle or `DAT_HANDLE_NULL`.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields of EpParts and EpAttr")]
pub struct EpChange<T: Transport> {
    pub pz: Option<Option<&'static Pz<T>>>,
    pub recv_evd: Option<Option<&'static Evd<T>>>,
    pub request_evd: Option<Option<&'static Evd<T>>>,
    pub connect_evd: Option<Option<&'static Evd<T>>>,
    pub srq: Option<Option<&'static Srq<T>>>,
    pub service_type: Option<u32>,
    pub max_message_size: Option<u64>,
    pub max_rdma_size: Option<u64>,
    pub qos: Option<u32>,
    pub recv_completion_flags: Option<CompletionFlags>,
    pub request_completion_flags: Option<CompletionFlags>,
    pub max_recv_dtos: Option<u32>,
    pub max_request_dtos: Option<u32>,
    pub max_recv_iov: Option<u32>,
    pub max_request_iov: Option<u32>,
    pub max_rdma_read_in: Option<u32>,
    pub max_rdma_read_out: Option<u32>,
    pub srq_soft_hw: Option<i32>,
    pub max_rdma_read_iov: Option<u32>,
    pub max_rdma_write_iov: Option<u32>,
}

impl<T: Transport> Default for EpChange<T> {
    fn default() -> Self {
        Self {
            pz: None,
            recv_evd: None,
            request_evd: None,
            connect_evd: None,
            srq: None,
            service_type: None,
            max_message_size: None,
            max_rdma_size: None,
            qos: None,
            recv_completion_flags: None,
            request_completion_flags: None,
            max_recv_dtos: None,
            max_request_dtos: None,
            max_recv_iov: None,
            max_request_iov: None,
            max_rdma_read_in: None,
            max_rdma_read_out: None,
            srq_soft_hw: None,
            max_rdma_read_iov: None,
            max_rdma_write_iov: None,
        }
    }
}

/// Value of `DAT_VALUE_UNKNOWN`.
const UNKNOWN: u32 = u32::MAX;

/// Argument number of the values of dat_ep_modify.
const PARAM: u16 = 3;

impl<T: Transport> Ep<T> {
    /// Returns all counts of this endpoint's memory.
    pub(super) fn counted(&'static self, side: &Connection<T>) -> EpValues {
        let mut values = [0; EpCounter::ALL.len()];
        values[EpCounter::Connect as usize] = side.connects;
        values[EpCounter::Disconnect as usize] = side.disconnects;
        self.send.lock().posted.add_into(&mut values);
        let mut recv = self.recv.lock();
        recv.count();
        recv.posted.add_into(&mut values);
        drop(recv);
        for evd in side.parts.recv_evd.into_iter().chain(side.internal_evd.0) {
            // Adds the received messages that the EVD has counted, but the ring has not.
            evd.forget_sources();
        }
        self.recv_ring.received().add_into(&mut values);
        values
    }

    /// Returns the counters (dat_ib_query_counters) and resets those that `reset` names.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if the endpoint was freed meanwhile.
    pub fn counters(&'static self, reset: Option<Which>) -> Result<Counted> {
        let mut side = self.lock_alive()?;
        let now = self.counted(&side);
        let values = std::iter::zip(now, side.counted_before)
            .map(|(now, before)| now.wrapping_sub(before))
            .collect();
        for (n, now) in now.into_iter().enumerate() {
            if reset.is_some_and(|which| which.has(n)) {
                side.counted_before[n] = now;
            }
        }
        Ok(Counted {
            names: EpCounter::ALL.iter().map(|c| c.name()).collect(),
            values,
        })
    }

    /// Sets the peer of the request that waits for an answer with this endpoint, and the qualifier that the request came to, for
    /// dat_ep_query.
    pub(crate) fn set_requester(&'static self, remote: SocketAddr, listened: u64) {
        if let Ok(mut side) = self.lock_alive() {
            side.remote = Some((remote.ip(), remote.port().into()));
            side.listened = listened;
        }
    }

    /// Returns attributes, parts and addresses (dat_ep_query).
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if the endpoint was freed meanwhile.
    pub fn info(&'static self) -> Result<EpInfo<T>> {
        let ia = self.ia();
        let adapter = ia.attributes()?;
        let qp = self.lock_alive()?.qp.clone();
        // Unlocked, because the transport takes its own lock.
        let local_port = qp.map_or(0, |qp| T::local_port(&qp));
        let side = self.lock_alive()?;
        Ok(EpInfo {
            ia,
            state: self.current_state(),
            local_address: adapter.address,
            local_port: match local_port {
                0 => side.listened,
                port => port.into(),
            },
            remote_address: side.remote.map(|(address, _)| address),
            remote_port: side.remote.map_or(0, |(_, port)| port),
            pz: side.parts.pz,
            recv_evd: side.parts.recv_evd,
            request_evd: side.parts.request_evd,
            connect_evd: side.parts.connect_evd,
            srq: side.parts.srq,
            attr: side.attr.clone().ok_or(DEAD)?,
        })
    }

    /// Makes all changes or none (dat_ep_modify). Nearly everything can be changed in Unconnected, Reserved and in
    /// Passive and Tentative Connection Pending, the protection zone not in Reserved and Passive.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` if the state does not allow one of the changes, or while receives or datagrams are posted that a new
    /// queue pair would lose; `DAT_INVALID_PARAMETER` (third argument) for an impossible value, and for an SRQ
    /// (dat_ep_create_with_srq: it cannot be replaced); `DAT_INSUFFICIENT_RESOURCES`.
    pub fn modify(&'static self, change: &EpChange<T>) -> Result<()> {
        let ia = self.ia();
        let adapter = ia.attributes()?;
        let mut side = self.lock_alive()?;
        let state = self.current_state();
        let quiescent = matches!(
            state,
            EpState::Unconnected | EpState::TentativeConnectionPending
        );
        let early =
            quiescent || matches!(state, EpState::Reserved | EpState::PassiveConnectionPending);
        if !early || (change.pz.is_some() && !quiescent) {
            return Err(state.refuse());
        }
        if change.srq.is_some() {
            return Err(Error::arg(PARAM));
        }
        let old_parts = side.parts;
        let old_attr = side.attr.clone().ok_or(DEAD)?;
        let parts = EpParts {
            pz: change.pz.unwrap_or(old_parts.pz),
            recv_evd: change.recv_evd.unwrap_or(old_parts.recv_evd),
            request_evd: change.request_evd.unwrap_or(old_parts.request_evd),
            connect_evd: change.connect_evd.unwrap_or(old_parts.connect_evd),
            srq: old_parts.srq,
        };
        if !parts.has_pz_of_srq() {
            return Err(Error::arg(PARAM));
        }
        let attr = change.over(&old_attr);
        check_attr(&attr, &adapter, parts.srq.is_some()).map_err(|_| Error::arg(PARAM))?;
        let same_queues = same(parts.pz, old_parts.pz)
            && same(parts.recv_evd, old_parts.recv_evd)
            && same(parts.request_evd, old_parts.request_evd)
            && attr == old_attr;
        // A datagram endpoint sends in Unconnected too.
        if !same_queues && (self.receives_outstanding(), self.requests_outstanding()) != (0, 0) {
            return Err(state.refuse());
        }
        side.attr = Some(attr);
        let mut replaced = None;
        let changed = self.join(ia, &mut side, parts).and_then(|()| {
            if same_queues {
                // `join` made new feeds, which have reserved nothing.
                return Self::reserve_completions(&mut side, &adapter);
            }
            self.close_queues();
            replaced = side.qp.take();
            self.build(ia, &mut side, self.head.token(self.index()))
        });
        let changed = changed.or_else(|error| {
            // Restores the old parts and the old queue pair, which still exist.
            side.attr = Some(old_attr);
            self.join(ia, &mut side, old_parts)?;
            // The queues had this room before; only endpoints of other threads can have taken it since.
            if let Err(error) = Self::reserve_completions(&mut side, &adapter) {
                tracing::warn!(ep = self.index(), %error, "no room for the completions of an endpoint after a failed dat_ep_modify");
            }
            if let Some(old) = replaced.take() {
                side.qp = Some(old);
            }
            if !same_queues {
                self.renew(&mut side, true)?;
            }
            Err(error)
        });
        // The old queue pair is dropped unlocked, because the transport may wait for upcalls.
        drop(side);
        drop(replaced);
        changed
    }

    /// Returns the state, whether all receives are complete, and whether all requests are (dat_ep_get_status).
    pub fn status(&'static self) -> (EpState, bool, bool) {
        let mut outstanding = (self.receives_outstanding(), self.requests_outstanding());
        if outstanding != (0, 0) && self.take_unheard() {
            outstanding = (self.receives_outstanding(), self.requests_outstanding());
        }
        (self.current_state(), outstanding.0 == 0, outstanding.1 == 0)
    }

    /// Takes the completions for which the consumer gave no EVD, because no call of the consumer polls for them. Returns false if
    /// there is an EVD for all.
    #[cold]
    fn take_unheard(&'static self) -> bool {
        let evd = self.connection.lock().internal_evd.0;
        if let Some(evd) = evd {
            evd.drain();
        }
        evd.is_some()
    }

    /// Takes the receives of `srq` for which its endpoints gave no EVD. The caller holds no lock.
    #[cold]
    pub(crate) fn take_unheard_of(srq: &'static Srq<T>) {
        T::arenas().ep.for_each(|_, ep| {
            let evd = {
                let side = ep.connection.lock();
                let takes = same(side.parts.srq, Some(srq)) && side.parts.recv_evd.is_none();
                side.internal_evd.0.filter(|_| takes)
            };
            if let Some(evd) = evd {
                evd.drain();
            }
        });
    }

    /// Takes the receives of `srq` that have completed into the event queues. The caller holds no lock.
    #[cold]
    pub(crate) fn gather_receives_of(srq: &'static Srq<T>) {
        T::arenas().ep.for_each(|_, ep| {
            let evd = {
                let side = ep.connection.lock();
                let takes = same(side.parts.srq, Some(srq));
                side.parts
                    .recv_evd
                    .or(side.internal_evd.0)
                    .filter(|_| takes)
            };
            if let Some(evd) = evd {
                evd.gather();
            }
        });
    }

    /// Returns the receives posted to the endpoint and not complete, and the buffers that arriving messages span
    /// (dat_ep_recv_query). `u32::MAX` is `DAT_VALUE_UNKNOWN`: always for the second, on an SRQ for the first too,
    /// since no transport reports them.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if the endpoint was freed meanwhile.
    pub fn recv_query(&'static self) -> Result<(u32, u32)> {
        let on_srq = self.lock_alive()?.parts.srq.is_some();
        if on_srq {
            return Ok((UNKNOWN, UNKNOWN));
        }
        self.take_unheard();
        Ok((self.receives_outstanding(), UNKNOWN))
    }

    /// Sets limits for the receives that the endpoint has taken from its SRQ (dat_ep_set_watermark). Only `None`,
    /// which is `DAT_WATERMARK_INFINITE`, is possible: no transport reports how many there are.
    ///
    /// # Errors
    /// `DAT_MODEL_NOT_SUPPORTED`, `DAT_INVALID_HANDLE`.
    pub fn set_watermark(&'static self, soft: Option<u32>, hard: Option<u32>) -> Result<()> {
        drop(self.lock_alive()?);
        if soft.is_some() || hard.is_some() {
            return Err(Error::of(Kind::ModelNotSupported));
        }
        Ok(())
    }
}

fn same<O>(one: Option<&'static O>, other: Option<&'static O>) -> bool {
    one.map(std::ptr::from_ref) == other.map(std::ptr::from_ref)
}

impl<T: Transport> EpChange<T> {
    /// Returns `attr` with the changes.
    fn over(&self, attr: &EpAttr) -> EpAttr {
        EpAttr {
            service_type: self.service_type.unwrap_or(attr.service_type),
            max_message_size: self.max_message_size.unwrap_or(attr.max_message_size),
            max_rdma_size: self.max_rdma_size.unwrap_or(attr.max_rdma_size),
            qos: self.qos.unwrap_or(attr.qos),
            recv_completion_flags: self
                .recv_completion_flags
                .unwrap_or(attr.recv_completion_flags),
            request_completion_flags: self
                .request_completion_flags
                .unwrap_or(attr.request_completion_flags),
            max_recv_dtos: self.max_recv_dtos.unwrap_or(attr.max_recv_dtos),
            max_request_dtos: self.max_request_dtos.unwrap_or(attr.max_request_dtos),
            max_recv_iov: self.max_recv_iov.unwrap_or(attr.max_recv_iov),
            max_request_iov: self.max_request_iov.unwrap_or(attr.max_request_iov),
            max_rdma_read_in: self.max_rdma_read_in.unwrap_or(attr.max_rdma_read_in),
            max_rdma_read_out: self.max_rdma_read_out.unwrap_or(attr.max_rdma_read_out),
            srq_soft_hw: self.srq_soft_hw.unwrap_or(attr.srq_soft_hw),
            max_rdma_read_iov: self.max_rdma_read_iov.unwrap_or(attr.max_rdma_read_iov),
            max_rdma_write_iov: self.max_rdma_write_iov.unwrap_or(attr.max_rdma_write_iov),
        }
    }
}
