//! The [`Transport`] of verbs: passes each operation to the object that implements it.

use std::sync::Arc;
use std::time::Duration;

use dat_core::arenas::Arenas;
use dat_core::attributes::{AdapterAttr, SrqAttr};
use dat_core::counters::IaCounter;
use dat_core::error::{Error, Kind, Result};
use dat_core::flags::{MemPriv, VaType};
use dat_core::ia_params::IaParams;
use dat_core::iov::LmrTriplet;
use dat_core::rmr::Scope;
use dat_core::transport::{
    Bind, Completion, Connect, Keys, Parked, QpCaps, Request, Token, Transport, WrId,
};
use dat_core::upcall::Upcalls;

use crate::Verbs;
use crate::adapter::Adapter;
use crate::cm::connect;
use crate::cm::listener::Listener;
use crate::cm::request::ConnRequest;
use crate::convert;
use crate::counters;
use crate::park::Parker;
use crate::sys::{Wc, send};
use crate::verbs::ah::AddressHandle;
use crate::verbs::cq::Cq;
use crate::verbs::lmr::Lmr;
use crate::verbs::pd::Pd;
use crate::verbs::qp::Qp;
use crate::verbs::rmr::{BindRequest, Rmr};
use crate::verbs::srq::Srq;

static ARENAS: Arenas<Verbs> = Arenas::new();

impl Transport for Verbs {
    type Adapter = Adapter;
    type Pz = Pd;
    type Lmr = Lmr;
    type Rmr = Rmr;
    type Srq = Srq;
    type Cq = Cq;
    type Qp = Qp;
    type Listener = Listener;
    type ConnRequest = ConnRequest;
    type Parker = Parker;
    type AddressHandle = AddressHandle;
    type RawCompletion = Wc;

    const NAME: &'static str = "CMA";
    // A device executes a bind when the queue gets to it, and the queue may fail before an earlier request is complete.
    const FAILED_BINDS_ARE_IN_DOUBT: bool = true;

    #[inline(always)]
    fn arenas() -> &'static Arenas<Self> {
        &ARENAS
    }

    fn open(ia_name: &str, params: &IaParams, upcalls: Upcalls<Self>) -> Result<Adapter> {
        Adapter::open(ia_name, params, upcalls)
    }

    fn attributes(adapter: &Adapter) -> AdapterAttr {
        adapter.shared.attr.clone()
    }

    fn device_counters(adapter: &Adapter) -> Vec<(IaCounter, u64)> {
        counters::of_device(adapter.shared.device.name(), adapter.shared.port)
    }

    fn create_pz(adapter: &Arc<Adapter>) -> Result<Pd> {
        Pd::new(adapter)
    }

    fn register(
        pz: &Arc<Pd>,
        address: usize,
        length: u64,
        rights: MemPriv,
        va_type: VaType,
    ) -> Result<(Lmr, Keys)> {
        let windows = pz.adapter.shared.attr.windows;
        let lmr = Lmr::register(
            pz,
            address,
            length,
            &convert::region_access(rights, windows),
            va_type == VaType::ZeroBased,
        )?;
        let keys = Keys {
            lmr_context: lmr.mr.lkey(),
            rmr_context: if rights.intersects(MemPriv::REMOTE) {
                lmr.mr.rkey()
            } else {
                0
            },
        };
        Ok((lmr, keys))
    }

    fn create_rmr(pz: &Arc<Pd>, scope: Scope) -> Result<Rmr> {
        Rmr::new(pz, scope)
    }

    fn post_bind(qp: &Qp, bind: &Bind<'_, Self>) -> Result<u32> {
        if bind.va_type == VaType::ZeroBased && bind.length != 0 {
            // Windows are addressed by virtual address only.
            return Err(Error::of(Kind::ModelNotSupported));
        }
        let mut send_flags = 0;
        if bind.signaled {
            send_flags |= send::SIGNALED;
        }
        if bind.fence {
            send_flags |= send::FENCE;
        }
        let region = bind.lmr.filter(|_| bind.length != 0);
        bind.rmr.bind(
            qp,
            &BindRequest {
                wr_id: bind.id.0,
                send_flags,
                region: region.map(|lmr| (&lmr.mr, bind.address, bind.length)),
                access: if region.is_some() {
                    convert::remote_access(bind.rights)
                } else {
                    0
                },
            },
        )
    }

    fn create_cq(adapter: &Arc<Adapter>, depth: u32, token: Token) -> Result<Cq> {
        Cq::new(adapter, depth, token)
    }

    fn resize_cq(cq: &Cq, depth: u32) -> Result<()> {
        cq.resize(depth)
    }

    #[inline(always)]
    fn poll_cq(cq: &Cq, into: &mut [Wc]) -> usize {
        cq.poll(into)
    }

    #[inline(always)]
    fn outcome(raw: &Wc) -> (WrId, bool) {
        (WrId(raw.wr_id), raw.succeeded())
    }

    #[inline(always)]
    fn data_only_receive(raw: &Wc) -> Option<u32> {
        raw.is_data_only_receive().then_some(raw.byte_len)
    }

    #[inline(always)]
    fn decode(cq: &Cq, raw: &Wc) -> Completion {
        cq.decode(raw)
    }

    fn watch_cq(cq: &Cq, on: bool) -> Result<()> {
        if on {
            cq.notifier.watch()
        } else {
            cq.notifier.unwatch();
            Ok(())
        }
    }

    fn park(
        _adapter: &Adapter,
        cq: Option<&Cq>,
        parker: &Parker,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Parked {
        parker.park(cq, timeout, ready)
    }

    fn unpark(parker: &Parker) {
        parker.unpark();
    }

    fn create_srq(pz: &Arc<Pd>, attr: &SrqAttr, token: Token) -> Result<Srq> {
        Srq::new(pz, attr, token)
    }

    fn resize_srq(srq: &Srq, max_recv: u32) -> Result<()> {
        srq.resize(max_recv)
    }

    fn arm_srq_limit(srq: &Srq, low: u32) -> Result<()> {
        srq.arm_limit(low)
    }

    #[inline]
    fn post_srq_recv(srq: &Srq, id: WrId, iov: &[LmrTriplet]) -> Result<()> {
        srq.post_recv(id.0, iov)
    }

    fn create_qp(
        pz: &Arc<Pd>,
        caps: &QpCaps,
        recv_cq: &Arc<Cq>,
        request_cq: &Arc<Cq>,
        srq: Option<&Arc<Srq>>,
        token: Token,
    ) -> Result<Qp> {
        Qp::new(pz, caps, recv_cq, request_cq, srq, token)
    }

    fn reset_qp(qp: &Qp) -> Result<()> {
        qp.reset()
    }

    #[inline(always)]
    fn post_send(qp: &Qp, request: &Request<'_, Self>) -> Result<()> {
        qp.post_send(request)
    }

    #[inline(always)]
    fn post_recv(qp: &Qp, id: WrId, iov: &[LmrTriplet]) -> Result<()> {
        qp.post_recv(id.0, iov)
    }

    fn listen(
        adapter: &Arc<Adapter>,
        conn_qual: Option<u64>,
        token: Token,
    ) -> Result<(Listener, u64)> {
        Listener::new(&adapter.shared, conn_qual, token)
    }

    fn connect(_adapter: &Arc<Adapter>, qp: &Arc<Qp>, connect: &Connect<'_>) -> Result<()> {
        connect::connect(qp, connect)
    }

    fn accept(request: ConnRequest, qp: &Arc<Qp>, token: Token, private_data: &[u8]) -> Result<()> {
        connect::accept(request, qp, token, private_data)
    }

    fn reject(request: ConnRequest, private_data: &[u8]) -> Result<()> {
        request.reject(private_data)
    }

    fn disconnect(qp: &Qp) {
        if qp.caps.datagram {
            // No peer needs a message. Pending resolutions are cancelled.
            let resolutions = std::mem::take(&mut *qp.resolutions.lock());
            drop(resolutions);
            qp.to_error();
            return;
        }
        let conn = qp.conn.lock().clone();
        if let Some(conn) = conn {
            conn.disconnect(qp);
        }
    }

    fn flush(qp: &Qp) {
        qp.flush_again();
    }

    fn message_received(qp: &Qp) {
        let conn = qp.conn.lock().clone();
        if let Some(conn) = conn {
            conn.message_received(qp);
        }
    }

    fn local_port(qp: &Qp) -> u16 {
        let conn = qp.conn.lock().clone();
        conn.map_or(0, |conn| conn.local_port())
    }
}
