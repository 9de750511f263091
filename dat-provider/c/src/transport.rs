//! [`Transport`] over the table: each method is the call of a slot.

use std::ffi::{CString, c_char, c_void};
use std::net::SocketAddr;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dat_core::arenas::Arenas;
use dat_core::attributes::{AdapterAttr, SrqAttr};
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::event::{DtoOp, DtoStatus};
use dat_core::flags::{MemPriv, VaType};
use dat_core::ia_params::{IaParams, IaParamsError};
use dat_core::iov::LmrTriplet;
use dat_core::rmr::Scope;
use dat_core::transport::{
    Bind, Completion, Connect, Keys, Parked, QpCaps, Request, Token, Transport, WrId,
};
use dat_core::upcall::Upcalls;
use dat_provider_parts::cq::{Cq, Entry, Parker};

use crate::CTransport;
use crate::attributes;
use crate::context::Object;
use crate::convert::{result, to_c};
use crate::object::{Adapter, Listener, Lmr, Pz, Qp, Rmr, Srq};
use crate::post;
use crate::report::{self, WORKER};
use crate::table::{BindPost, Caps, ConnectTo, Context, CqPointer, PzView, settings, table};

/// Calls a slot, or returns `DAT_NOT_IMPLEMENTED` from the function.
macro_rules! slot {
    ($name:ident) => {
        table().$name.ok_or(Error::of(Kind::NotImplemented))?
    };
}

/// Returns pointer and length of private data.
fn bytes(data: &[u8]) -> (*const c_void, u32) {
    (data.as_ptr().cast(), data.len() as u32)
}

/// Opens the adapter by the table.
fn open(ia_name: &str, params: &IaParams, ia: u64) -> Result<Object> {
    let known = settings();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let wrong = |error: IaParamsError| {
        tracing::error!(ia = ia_name, %error, "correct the ia_params of this dat.conf entry");
        Error::of(Kind::InvalidParameter)
    };
    params.known(&known).map_err(wrong)?;
    let c = |text: &str| CString::new(text).map_err(|_| Error::of(Kind::InvalidParameter));
    let (name, device) = (c(ia_name)?, c(&params.device)?);
    let mut strings = Vec::new();
    for (key, value) in params
        .settings
        .iter()
        .filter(|(key, _)| known.contains(&key.as_str()))
    {
        strings.extend([c(key)?, c(value)?]);
    }
    let mut list: Vec<*const c_char> = strings.iter().map(|text| text.as_ptr()).collect();
    list.push(null());
    let open = slot!(open);
    let (name, device) = (name.as_ptr(), device.as_ptr());
    Object::made("open", table().free_adapter, |adapter| {
        // SAFETY: strings and list live until the call returns.
        unsafe { open(name, device, params.port, list.as_ptr(), ia, adapter) }
    })
}

impl Transport for CTransport {
    type Adapter = Adapter;
    type Pz = Pz;
    type Lmr = Lmr;
    type Rmr = Rmr;
    type Srq = Srq;
    type Cq = Cq<Self>;
    type Qp = Qp;
    type Listener = Listener;
    type ConnRequest = Object;
    type Parker = Parker;
    type AddressHandle = ();
    type RawCompletion = Entry;

    const NAME: &'static str = "c";

    fn arenas() -> &'static Arenas<Self> {
        static ARENAS: Arenas<CTransport> = Arenas::new();
        &ARENAS
    }

    fn open(ia_name: &str, params: &IaParams, upcalls: Upcalls<Self>) -> Result<Adapter> {
        WORKER.start().map_err(|error| {
            tracing::error!(ia = ia_name, %error, "cannot start a thread; raise the limit of memory or threads");
            Error::resource(Subtype::ResourceMemory)
        })?;
        let ia = report::remember(upcalls);
        match open(ia_name, params, ia) {
            Ok(object) => Ok(Adapter {
                object,
                ia,
                upcalls,
            }),
            Err(error) => {
                report::forget(ia);
                Err(error)
            }
        }
    }

    fn close(adapter: &Adapter) {
        if let Some(close) = table().close {
            // SAFETY: a context of `open`.
            unsafe { close(adapter.object.context) }
        }
    }

    fn attributes(adapter: &Adapter) -> AdapterAttr {
        attributes::of(adapter)
    }

    fn create_pz(adapter: &Arc<Adapter>) -> Result<Pz> {
        static NUMBERS: AtomicU32 = AtomicU32::new(1);
        let object = match table().create_pz {
            // SAFETY: a context of `open`.
            Some(create) => Some(Object::made("create_pz", table().free_pz, |pz| unsafe {
                create(adapter.object.context, pz)
            })?),
            None => None,
        };
        let view = PzView {
            adapter: adapter.object.context,
            context: object.as_ref().map_or(null_mut(), |object| object.context),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            reserved: 0,
        };
        Ok(Pz {
            view,
            _object: object,
            _adapter: Arc::clone(adapter),
        })
    }

    fn register(
        pz: &Arc<Pz>,
        address: usize,
        length: u64,
        rights: MemPriv,
        va_type: VaType,
    ) -> Result<(Lmr, Keys)> {
        let Some(register) = table().register_memory else {
            let number = pz.view.number;
            let keys = crate::memory::KEYS.lock().register(
                number,
                address as u64,
                length,
                rights,
                va_type,
            )?;
            return Ok((Lmr::Ours(keys.lmr_context), keys));
        };
        let (mut local, mut remote) = (0, 0);
        let object = Object::made("register_memory", table().deregister, |lmr| {
            let (at, rights, va_type) = (address as *mut c_void, rights.bits(), va_type as u32);
            // SAFETY: the view of a live zone, and places for the results.
            unsafe {
                register(
                    &pz.view,
                    at,
                    length,
                    rights,
                    va_type,
                    &raw mut local,
                    &raw mut remote,
                    lmr,
                )
            }
        })?;
        let keys = Keys {
            lmr_context: local,
            rmr_context: remote,
        };
        Ok((Lmr::Theirs(object), keys))
    }

    fn create_rmr(pz: &Arc<Pz>, scope: Scope) -> Result<Rmr> {
        let create = slot!(create_rmr);
        let of_ep = u32::from(scope == Scope::Endpoint);
        // SAFETY: the view of a live zone.
        let object = Object::made("create_rmr", table().free_rmr, |rmr| unsafe {
            create(&pz.view, of_ep, rmr)
        })?;
        Ok(Rmr {
            object,
            _pz: Arc::clone(pz),
        })
    }

    fn post_bind(qp: &Qp, bind: &Bind<'_, Self>) -> Result<u32> {
        let post_bind = slot!(post_bind);
        let lmr = match bind.lmr {
            Some(Lmr::Theirs(object)) => object.context,
            // The transport leaves keys to this library, so it gets the key in the place of a context.
            Some(Lmr::Ours(key)) => *key as usize as Context,
            None => null_mut(),
        };
        let c = BindPost {
            id: bind.id.0,
            rmr: bind.rmr.object.context,
            lmr,
            address: bind.address,
            length: bind.length,
            rights: bind.rights.bits(),
            va_type: bind.va_type as u32,
            flags: post::flags(bind.signaled, false, bind.fence),
            bound: u32::from(bind.lmr.is_some()),
        };
        let mut key = 0;
        // SAFETY: contexts of live objects, and a structure that lives until the call returns.
        let code = unsafe { post_bind(qp.object.context, &raw const c, &raw mut key) };
        result(code, "post_bind")?;
        Ok(key)
    }

    fn create_cq(adapter: &Arc<Adapter>, depth: u32, token: Token) -> Result<Cq<Self>> {
        Ok(Cq::new(depth, token, adapter.upcalls, &WORKER))
    }

    fn resize_cq(cq: &Cq<Self>, depth: u32) -> Result<()> {
        cq.resize(depth);
        Ok(())
    }

    fn poll_cq(cq: &Cq<Self>, into: &mut [Entry]) -> usize {
        cq.poll(into)
    }

    fn outcome(raw: &Entry) -> (WrId, bool) {
        (
            raw.completion.id,
            raw.completion.status == DtoStatus::Success,
        )
    }

    fn data_only_receive(raw: &Entry) -> Option<u32> {
        (raw.completion.op == DtoOp::Receive).then_some(raw.completion.length)
    }

    fn decode(_cq: &Cq<Self>, raw: &Entry) -> Completion {
        raw.completion
    }

    fn watch_cq(cq: &Cq<Self>, on: bool) -> Result<()> {
        cq.watch(on);
        Ok(())
    }

    fn solicited_only(cq: &Cq<Self>, on: bool) {
        cq.solicited_only(on);
    }

    fn solicited(_cq: &Cq<Self>, raw: &Entry) -> Option<bool> {
        raw.solicited
    }

    fn park(
        _adapter: &Adapter,
        cq: Option<&Cq<Self>>,
        parker: &Parker,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Parked {
        parker.park(cq, timeout, ready)
    }

    fn unpark(parker: &Parker) {
        parker.unpark();
    }

    fn create_srq(pz: &Arc<Pz>, attr: &SrqAttr, token: Token) -> Result<Srq> {
        let create = slot!(create_srq);
        let object = Object::made("create_srq", table().free_srq, |srq| {
            // SAFETY: the view of a live zone.
            unsafe {
                create(
                    &pz.view,
                    attr.max_recv_dtos,
                    attr.max_recv_iov,
                    token.0,
                    srq,
                )
            }
        })?;
        Ok(Srq {
            object,
            _pz: Arc::clone(pz),
        })
    }

    fn resize_srq(srq: &Srq, max_recv: u32) -> Result<()> {
        let resize = slot!(resize_srq);
        // SAFETY: the context of a live queue.
        result(
            unsafe { resize(srq.object.context, max_recv) },
            "resize_srq",
        )
    }

    fn arm_srq_limit(srq: &Srq, low: u32) -> Result<()> {
        let arm = slot!(arm_srq_limit);
        // SAFETY: the context of a live queue.
        result(unsafe { arm(srq.object.context, low) }, "arm_srq_limit")
    }

    fn post_srq_recv(srq: &Srq, id: WrId, iov: &[LmrTriplet]) -> Result<()> {
        let (post, (at, count)) = (slot!(post_srq_recv), post::segments(iov));
        // SAFETY: the context of a live queue, and segments that live until the call returns.
        result(
            unsafe { post(srq.object.context, id.0, at, count) },
            "post_srq_recv",
        )
    }

    fn create_qp(
        pz: &Arc<Pz>,
        caps: &QpCaps,
        recv_cq: &Arc<Cq<Self>>,
        request_cq: &Arc<Cq<Self>>,
        srq: Option<&Arc<Srq>>,
        token: Token,
    ) -> Result<Qp> {
        if caps.datagram {
            return Err(Error::of(Kind::ModelNotSupported));
        }
        let create = slot!(create_qp);
        let c = Caps {
            max_request: caps.max_request,
            max_recv: caps.max_recv,
            max_request_iov: caps.max_request_iov,
            max_recv_iov: caps.max_recv_iov,
            rdma_read_in: caps.rdma_read_in,
            rdma_read_out: caps.rdma_read_out,
        };
        let (recv, request): (CqPointer, CqPointer) =
            (Arc::as_ptr(recv_cq).cast(), Arc::as_ptr(request_cq).cast());
        let shared = srq.map_or(null_mut(), |srq| srq.object.context);
        let has_srq = u32::from(srq.is_some());
        let object = Object::made("create_qp", table().free_qp, |qp| {
            // SAFETY: views and contexts of live objects, which the queue pair keeps alive.
            unsafe {
                create(
                    &pz.view,
                    &raw const c,
                    recv,
                    request,
                    shared,
                    has_srq,
                    token.0,
                    qp,
                )
            }
        })?;
        Ok(Qp {
            object,
            _srq: srq.map(Arc::clone),
            _cqs: [Arc::clone(recv_cq), Arc::clone(request_cq)],
            _pz: Arc::clone(pz),
        })
    }

    fn reset_qp(qp: &Qp) -> Result<()> {
        let reset = slot!(reset_qp);
        // SAFETY: the context of a live queue pair.
        result(unsafe { reset(qp.object.context) }, "reset_qp")
    }

    fn post_send(qp: &Qp, request: &Request<'_, Self>) -> Result<()> {
        let post_send = slot!(post_send);
        let c = post::request(request).ok_or(Error::of(Kind::NotImplemented))?;
        // SAFETY: the context of a live queue pair, and a structure that lives until the call returns.
        result(
            unsafe { post_send(qp.object.context, &raw const c) },
            "post_send",
        )
    }

    fn post_recv(qp: &Qp, id: WrId, iov: &[LmrTriplet]) -> Result<()> {
        let (post_recv, (at, count)) = (slot!(post_recv), post::segments(iov));
        // SAFETY: as for `post_send`.
        result(
            unsafe { post_recv(qp.object.context, id.0, at, count) },
            "post_recv",
        )
    }

    fn listen(
        adapter: &Arc<Adapter>,
        conn_qual: Option<u64>,
        token: Token,
    ) -> Result<(Listener, u64)> {
        let listen = slot!(listen);
        let mut qual = conn_qual.unwrap_or(0);
        let object = Object::made("listen", table().free_listener, |listener| {
            // SAFETY: a context of `open`, and places for the results.
            unsafe { listen(adapter.object.context, &raw mut qual, token.0, listener) }
        })?;
        let listener = Listener {
            _object: object,
            _adapter: Arc::clone(adapter),
        };
        Ok((listener, qual))
    }

    fn connect(adapter: &Arc<Adapter>, qp: &Arc<Qp>, to: &Connect<'_>) -> Result<()> {
        let connect = slot!(connect);
        let (private_data, private_data_size) = bytes(to.private_data);
        let c = ConnectTo {
            token: to.token.0,
            conn_qual: to.conn_qual,
            remote: to_c(SocketAddr::from((to.remote, 0))),
            private_data,
            private_data_size,
            reserved: 0,
            timeout: to.timeout.map_or(u64::MAX, |time| time.as_micros() as u64),
        };
        // SAFETY: contexts of live objects, and a structure that lives until the call returns.
        result(
            unsafe { connect(adapter.object.context, qp.object.context, &raw const c) },
            "connect",
        )
    }

    fn accept(request: Object, qp: &Arc<Qp>, token: Token, private_data: &[u8]) -> Result<()> {
        let (accept, (data, size)) = (slot!(accept), bytes(private_data));
        // SAFETY: the context of a request that was not answered, which the call takes.
        result(
            unsafe { accept(request.taken(), qp.object.context, token.0, data, size) },
            "accept",
        )
    }

    fn reject(request: Object, private_data: &[u8]) -> Result<()> {
        let (reject, (data, size)) = (slot!(reject), bytes(private_data));
        // SAFETY: as for `accept`.
        result(unsafe { reject(request.taken(), data, size) }, "reject")
    }

    fn disconnect(qp: &Qp) {
        if let Some(disconnect) = table().disconnect {
            // SAFETY: the context of a live queue pair.
            unsafe { disconnect(qp.object.context) }
        }
    }

    fn message_received(qp: &Qp) {
        if let Some(received) = table().message_received {
            // SAFETY: the context of a live queue pair.
            unsafe { received(qp.object.context) }
        }
    }

    fn local_port(qp: &Qp) -> u16 {
        // SAFETY: the context of a live queue pair.
        table()
            .local_port
            .map_or(0, |port| unsafe { port(qp.object.context) })
    }
}
