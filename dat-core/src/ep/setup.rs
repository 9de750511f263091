//! Setup of endpoints: checks attributes, claims parts, makes queue pair and rings (dat_ep_create,
//! dat_ep_create_with_srq), and makes them again (dat_ep_modify, dat_ep_reset).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::connect::{Connection, InternalEvd};
use super::ring::{QueueKind, Ring, id_base};
use super::state::Input;
use super::{Ep, EpParts};
use crate::attributes::{AdapterAttr, EpAttr};
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::evd::Evd;
use crate::flags::{CompletionFlags, EvdFlags};
use crate::ia::{Ia, Kind};
use crate::srq::Srq;
use crate::transport::{QpCaps, Token, Transport};

/// Argument number of `DAT_EP_ATTR`: of dat_ep_create and of dat_ep_create_with_srq.
const ATTR: [u16; 2] = [6, 7];

/// Value of `DAT_IB_SERVICE_TYPE_UD`.
const UD: u32 = 1;

/// Returns the default attributes of dat_ep_create.
fn default_attr(adapter: &AdapterAttr) -> EpAttr {
    EpAttr {
        service_type: 0,
        max_message_size: adapter.max_message_size,
        max_rdma_size: adapter.max_rdma_size,
        qos: 0,
        recv_completion_flags: CompletionFlags::EVD_THRESHOLD,
        request_completion_flags: CompletionFlags::EVD_THRESHOLD,
        max_recv_dtos: 16,
        max_request_dtos: 16,
        max_recv_iov: adapter.max_iov.min(4),
        max_request_iov: adapter.max_iov.min(4),
        max_rdma_read_in: adapter.max_rdma_read_per_ep_in.min(4),
        max_rdma_read_out: adapter.max_rdma_read_per_ep_out.min(4),
        srq_soft_hw: -1,
        max_rdma_read_iov: adapter.max_iov_rdma_read.min(4),
        max_rdma_write_iov: adapter.max_iov_rdma_write.min(4),
    }
}

/// Returns the number of requests that a queue pair has room for.
fn max_requests(attr: &EpAttr, adapter: &AdapterAttr) -> u32 {
    // One more for the request that ends a graceful disconnect.
    (attr.max_request_dtos + 1).min(adapter.max_dto_per_ep.max(1))
}

/// Returns the numbers of requests and of receives whose completions may be there at once.
fn outstanding<T: Transport>(
    attr: &EpAttr,
    srq: Option<&'static Srq<T>>,
    adapter: &AdapterAttr,
) -> (u32, u32) {
    let receives = srq.map_or(attr.max_recv_dtos, Srq::depth);
    (max_requests(attr, adapter), receives)
}

/// Checks that the adapter supports `attr`.
pub(super) fn check_attr(attr: &EpAttr, adapter: &AdapterAttr, on_srq: bool) -> Result<()> {
    let argument = ATTR[usize::from(on_srq)];
    if attr.qos != 0 || (attr.service_type == UD && adapter.max_datagram == 0) {
        return Err(Error::of(ErrorKind::ModelNotSupported));
    }
    let recv_flags = CompletionFlags::UNSIGNALLED
        | CompletionFlags::SOLICITED_WAIT
        | CompletionFlags::EVD_THRESHOLD;
    let possible = attr.service_type <= UD
        && attr.max_message_size <= adapter.max_message_size
        && attr.max_rdma_size <= adapter.max_rdma_size
        && attr.max_request_dtos <= adapter.max_dto_per_ep.min(Ring::MAX)
        && attr.max_request_iov <= adapter.max_iov
        && (on_srq
            || (attr.max_recv_dtos <= adapter.max_dto_per_ep.min(Ring::MAX)
                && attr.max_recv_iov <= adapter.max_iov))
        && attr.max_rdma_read_in <= adapter.max_rdma_read_per_ep_in
        && attr.max_rdma_read_out <= adapter.max_rdma_read_per_ep_out
        && recv_flags.contains(attr.recv_completion_flags)
        && (CompletionFlags::all() - CompletionFlags::LMR_INVALIDATE_FENCE)
            .contains(attr.request_completion_flags);
    if possible {
        Ok(())
    } else {
        tracing::debug!(?attr, "endpoint attributes beyond the adapter's");
        Err(Error::arg(argument))
    }
}

impl<T: Transport> Ep<T> {
    /// Creates an endpoint in the state Unconnected (dat_ep_create, dat_ep_create_with_srq). `None` as `attr` selects
    /// the defaults. Without a protection zone it can only be queried, modified and freed.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` for an attribute that the adapter does not support and for a PZ other than that of the shared receive
    /// queue, `DAT_MODEL_NOT_SUPPORTED`, `DAT_INSUFFICIENT_RESOURCES`, and `DAT_INVALID_HANDLE` of a part that was freed meanwhile, or
    /// belongs to another IA.
    pub fn create(
        ia: &'static Ia<T>,
        parts: EpParts<T>,
        attr: Option<&EpAttr>,
    ) -> Result<&'static Self> {
        let adapter = ia.attributes()?;
        let attr = match attr {
            None => default_attr(&adapter),
            Some(attr) => {
                check_attr(attr, &adapter, parts.srq.is_some())?;
                attr.clone()
            }
        };
        if !parts.has_pz_of_srq() {
            return Err(Error::arg(2));
        }
        let arena = &T::arenas().ep;
        let (index, ep) = arena.alloc().ok_or(Error::resource(Subtype::ResourceTep))?;
        let made = ep.make(ia, index, parts, attr);
        if made.is_err() {
            ep.close_queues();
            *ep.connection.lock() = Connection::default();
            arena.recycle(index);
        }
        made.map(|()| ep)
    }

    /// Creates an endpoint for a request at a public service point whose provider makes the endpoints. It has no
    /// parts; `datagram` selects the service type.
    pub(crate) fn offer(ia: &'static Ia<T>, datagram: bool) -> Result<&'static Self> {
        let mut attr = default_attr(&*ia.attributes()?);
        if datagram {
            attr.service_type = UD;
        }
        let ep = Self::create(ia, EpParts::default(), Some(&attr))?;
        ep.service_input(Input::Offer)?;
        Ok(ep)
    }

    fn make(
        &'static self,
        ia: &'static Ia<T>,
        index: u32,
        parts: EpParts<T>,
        attr: EpAttr,
    ) -> Result<()> {
        let mut side = self.connection.lock();
        side.attr = Some(attr);
        side.counted_before = self.counted(&side);
        // The queue pair's token has the generation that `add_member` begins below.
        let generation = self.head.generation.load(Ordering::Acquire).wrapping_add(1);
        side.generation = generation;
        self.join(ia, &mut side, parts)?;
        self.build(ia, &mut side, Token::new(index, generation))?;
        ia.add_member(Kind::Ep, index, &self.head, 0)
    }

    /// Claims `parts` and replaces those of `side`.
    pub(super) fn join(
        &'static self,
        ia: &'static Ia<T>,
        side: &mut Connection<T>,
        parts: EpParts<T>,
    ) -> Result<()> {
        let attr = side.attr.clone().ok_or(super::DEAD)?;
        let belongs = |to: &'static Ia<T>, subtype| {
            if std::ptr::eq(to, ia) {
                Ok(())
            } else {
                Err(Error::handle(subtype))
            }
        };
        let mut claims = Vec::new();
        if let Some(pz) = parts.pz {
            belongs(pz.ia(), Subtype::InvalidHandlePz)?;
            claims.push(pz.head.claim(Subtype::InvalidHandlePz)?);
        }
        if let Some(srq) = parts.srq {
            belongs(srq.ia(), Subtype::InvalidHandleSrq)?;
            claims.push(srq.head.claim(Subtype::InvalidHandleSrq)?);
        }
        // The feeds of the old parts must not count while the new ones are made.
        side.recv_feed = None;
        side.request_feed = None;
        side.connect_feed = None;
        let feed = |evd: Option<&'static Evd<T>>, stream, completion, subtype| {
            evd.map(|evd| {
                // Connection events may go to an EVD of another open of the adapter (dapltest -T L does that);
                // completions need a completion queue of the same one.
                if stream != EvdFlags::CONNECTION {
                    belongs(Ia::of(&evd.head), subtype)?;
                }
                evd.feed(stream, completion, subtype)
            })
            .transpose()
        };
        side.recv_feed = feed(
            parts.recv_evd,
            EvdFlags::DTO,
            attr.recv_completion_flags,
            Subtype::InvalidHandleEvdRecv,
        )?;
        side.request_feed = feed(
            parts.request_evd,
            EvdFlags::DTO,
            attr.request_completion_flags,
            Subtype::InvalidHandleEvdRequest,
        )?;
        side.connect_feed = feed(
            parts.connect_evd,
            EvdFlags::CONNECTION,
            CompletionFlags::empty(),
            Subtype::InvalidHandleEvdConn,
        )?;
        let heard = parts.request_evd.is_some() && parts.recv_evd.is_some();
        if parts.pz.is_some() && !heard && side.internal_evd.0.is_none() {
            let (requests, receives) = outstanding(&attr, parts.srq, &*ia.attributes()?);
            let depth = requests.saturating_add(receives);
            side.internal_evd = InternalEvd(Some(Evd::create_internal(ia, depth)?));
        }
        self.set_datagram(attr.service_type == UD, side.generation);
        side.claims = claims;
        side.parts = parts;
        Ok(())
    }

    /// Makes the queue pair, if there is a protection zone, and opens the queues on it.
    pub(super) fn build(
        &'static self,
        ia: &'static Ia<T>,
        side: &mut Connection<T>,
        token: Token,
    ) -> Result<()> {
        let Some(pz) = side.parts.pz else {
            return Ok(());
        };
        let attr = side.attr.clone().ok_or(super::DEAD)?;
        let adapter = ia.attributes()?;
        let cq_of = |evd: Option<&'static Evd<T>>, subtype| {
            evd.or(side.internal_evd.0)
                .and_then(Evd::cq)
                .ok_or(Error::handle(subtype))
        };
        let request_cq = cq_of(side.parts.request_evd, Subtype::InvalidHandleEvdRequest)?;
        let recv_cq = cq_of(side.parts.recv_evd, Subtype::InvalidHandleEvdRecv)?;
        let srq = side.parts.srq.map(Srq::queue).transpose()?;
        let caps = QpCaps {
            max_request: max_requests(&attr, &adapter),
            max_recv: if srq.is_some() { 0 } else { attr.max_recv_dtos },
            max_request_iov: attr.max_request_iov,
            max_recv_iov: if srq.is_some() { 0 } else { attr.max_recv_iov },
            rdma_read_in: attr.max_rdma_read_in,
            rdma_read_out: attr.max_rdma_read_out,
            datagram: attr.service_type == UD,
        };
        Self::reserve_completions(side, &adapter)?;
        if let (Some(srq), None) = (side.parts.srq, side.parts.recv_evd) {
            srq.expect_unheard();
        }
        let qp = Arc::new(T::create_qp(
            &pz.zone()?,
            &caps,
            &recv_cq,
            &request_cq,
            srq.as_ref(),
            token,
        )?);
        self.qp_token.store(token.0, Ordering::Release);
        side.replace(qp.clone());
        self.open_queues(ia, side, &adapter, &attr, &qp)
    }

    /// Reserves room for the completions that the queue pair may have at once in the completion queues of the EVDs. These are often
    /// smaller than the number of outstanding work requests of their endpoints; completion queues must not be.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES` if a queue cannot grow.
    pub(super) fn reserve_completions(
        side: &mut Connection<T>,
        adapter: &AdapterAttr,
    ) -> Result<()> {
        let (Some(_), Some(attr)) = (side.parts.pz, &side.attr) else {
            return Ok(());
        };
        let (requests, receives) = outstanding(attr, side.parts.srq, adapter);
        Self::reserve(side, requests, receives)
    }

    /// Reserves room in the completion queues of all endpoints on `srq` for `receives` of it. The caller holds no lock.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES` if a queue cannot grow.
    pub(crate) fn reserve_receives_of(srq: &'static Srq<T>, receives: u32) -> Result<()> {
        let adapter = srq.ia().attributes()?;
        let mut reserved = Ok(());
        T::arenas().ep.for_each(|_, ep| {
            let mut side = ep.connection.lock();
            let of = side.parts.srq.is_some_and(|own| std::ptr::eq(own, srq));
            if let (true, Some(attr), Ok(())) = (of && side.qp.is_some(), &side.attr, reserved) {
                let requests = max_requests(attr, &adapter);
                reserved = Self::reserve(&mut side, requests, receives);
            }
        });
        reserved
    }

    /// Reserves room for these numbers of completions.
    fn reserve(side: &mut Connection<T>, requests: u32, receives: u32) -> Result<()> {
        let mut unheard = 0_u32;
        match &mut side.request_feed {
            Some(feed) => feed.reserve(requests)?,
            None => unheard = requests,
        }
        match &mut side.recv_feed {
            Some(feed) => feed.reserve(receives)?,
            None => unheard = unheard.saturating_add(receives),
        }
        match side.internal_evd.0 {
            Some(evd) => evd.hold_completions(unheard),
            None => Ok(()),
        }
    }

    fn open_queues(
        &'static self,
        ia: &'static Ia<T>,
        side: &Connection<T>,
        adapter: &AdapterAttr,
        attr: &EpAttr,
        qp: &Arc<T::Qp>,
    ) -> Result<()> {
        let index = self.index();
        let mut send = self.send.lock();
        let mut recv = self.recv.lock();
        let generation = self.next_generation();
        let requests = self.request_ring.open(attr.max_request_dtos + 1)?;
        let receives = match side.parts.srq {
            None => Some(self.recv_ring.open(attr.max_recv_dtos)?),
            Some(_) => None,
        };
        let recv_iov = if side.parts.srq.is_none() {
            attr.max_recv_iov
        } else {
            0
        };
        for (max, now) in self
            .max_segments
            .iter()
            .zip([attr.max_request_iov, recv_iov])
        {
            max.store(now, Ordering::Relaxed);
        }
        send.open(
            requests,
            id_base(index, generation, QueueKind::Request),
            qp.clone(),
            attr,
            adapter,
            ia.strict_lengths(),
            side.parts.request_evd,
            side.internal_evd.0,
        );
        if let Some(receives) = receives {
            recv.open(
                receives,
                id_base(index, generation, QueueKind::Receive),
                qp.clone(),
                attr,
                side.parts.recv_evd,
                side.internal_evd.0,
            );
        } else {
            recv.completion_evd = side.parts.recv_evd.or(side.internal_evd.0);
        }
        Ok(())
    }

    /// Begins the next generation, in which completions of older work requests are dropped. The caller holds the
    /// locks of both queues.
    fn next_generation(&self) -> u32 {
        let generation = self.request_ring.generation().wrapping_add(1);
        self.request_ring.begin(generation);
        self.recv_ring.begin(generation);
        generation
    }

    /// Closes both queues: posts find no queue pair, and completions that still arrive are dropped.
    pub(super) fn close_queues(&'static self) {
        let mut send = self.send.lock();
        let mut recv = self.recv.lock();
        self.next_generation();
        let parts = (send.close(&self.request_ring), recv.close(&self.recv_ring));
        drop(recv);
        drop(send);
        drop(parts);
    }

    /// Opens the queues again: on the same queue pair if it was reset, else on a new one. Returns the old one, to be
    /// dropped without locks.
    pub(super) fn renew(
        &'static self,
        side: &mut Connection<T>,
        was_reset: bool,
    ) -> Result<Option<Arc<T::Qp>>> {
        let ia = self.ia();
        let Some(qp) = side.qp.clone() else {
            return Ok(None);
        };
        self.close_queues();
        if was_reset {
            let adapter = ia.attributes()?;
            let attr = side.attr.clone().ok_or(super::DEAD)?;
            self.open_queues(ia, side, &adapter, &attr, &qp)?;
            return Ok(None);
        }
        self.build(ia, side, self.head.token(self.index()))?;
        Ok(Some(qp))
    }
}
