//! A DAT provider over UNIX sockets between processes of one host, made of the parts that `dat-provider` has. It has reliable connections with
//! messages, RDMA and atomics; it has no windows, shared receive queues or datagrams, which are optional.
//!
//! It imports `dat-provider`. This file is the transport; `socket.rs` names and opens the sockets.

mod socket;

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use dat_provider::parts::cq::{Cq, Entry, Parker};
use dat_provider::parts::pipe::session;
use dat_provider::parts::pipe::{Context, MAX_MESSAGE, Mutex, Qp};
use dat_provider::parts::worker::Worker;
use dat_provider::parts::{address, keys, ports};
use dat_provider::prelude::*;
use socket::Door;

dat_provider::export_provider!(Pipe);

static WORKER: Worker<Pipe> = Worker::new("dat-pipe");
static KEYS: LazyLock<Mutex<keys::Keys>> = LazyLock::new(Mutex::default);
/// The last number of a protection zone or of the active side of a connection.
static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// The transport.
#[derive(Debug)]
pub struct Pipe;

/// An open adapter.
#[derive(Debug)]
pub struct Adapter {
    address: IpAddr,
    upcalls: Upcalls<Pipe>,
}

/// A protection zone.
#[derive(Debug)]
pub struct Pz {
    number: u32,
    adapter: Arc<Adapter>,
}

/// A registered region, by its key.
#[derive(Debug)]
pub struct Lmr(u32);

impl Drop for Lmr {
    fn drop(&mut self) {
        KEYS.lock().deregister(self.0);
    }
}

/// A queue pair. The threads of its connection share the content.
#[derive(Debug)]
pub struct Endpoint(Arc<Qp<Pipe>>);

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.0.disconnect();
    }
}

impl Transport for Pipe {
    type Adapter = Adapter;
    type Pz = Pz;
    type Lmr = Lmr;
    type Rmr = ();
    type Srq = ();
    type Cq = Cq<Self>;
    type Qp = Endpoint;
    type Listener = session::Listener<Door>;
    type ConnRequest = session::Request<UnixStream>;
    type Parker = Parker;
    type AddressHandle = ();
    type RawCompletion = Entry;

    const NAME: &'static str = "pipe";

    fn arenas() -> &'static Arenas<Self> {
        static ARENAS: Arenas<Pipe> = Arenas::new();
        &ARENAS
    }

    fn open(ia_name: &str, params: &IaParams, upcalls: Upcalls<Self>) -> Result<Adapter> {
        let localhost = Ipv4Addr::LOCALHOST.into();
        let address = params
            .known(&[])
            .and_then(|()| address::of(params, localhost, IpAddr::is_loopback))
            .map_err(|error| {
                tracing::error!(ia = ia_name, %error, "pipe: correct the ia_params of this dat.conf entry");
                Error::of(Kind::InvalidParameter)
            })?;
        WORKER.start().map_err(|error| {
            tracing::error!(ia = ia_name, %error, "pipe: cannot start a thread; raise the limit of memory or threads");
            Error::resource(Subtype::ResourceMemory)
        })?;
        Ok(Adapter { address, upcalls })
    }

    fn attributes(adapter: &Adapter) -> AdapterAttr {
        let mut attr = AdapterAttr::default();
        attr.adapter_name = "pipe".into();
        attr.vendor_name = "dat-pipe".into();
        attr.address = adapter.address;
        attr.max_message_size = MAX_MESSAGE as u64;
        attr.max_rdma_size = MAX_MESSAGE as u64;
        attr.zero_based = true;
        attr.atomics = true;
        attr.immediate_data = true;
        attr
    }

    fn create_pz(adapter: &Arc<Adapter>) -> Result<Pz> {
        Ok(Pz {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            adapter: Arc::clone(adapter),
        })
    }

    fn register(
        pz: &Arc<Pz>,
        address: usize,
        length: u64,
        rights: MemPriv,
        va_type: VaType,
    ) -> Result<(Lmr, Keys)> {
        let keys = KEYS
            .lock()
            .register(pz.number, address as u64, length, rights, va_type)?;
        Ok((Lmr(keys.lmr_context), keys))
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
        let done = &raw.completion;
        (done.id, done.status == DtoStatus::Success)
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

    fn create_qp(
        pz: &Arc<Pz>,
        caps: &QpCaps,
        recv_cq: &Arc<Cq<Self>>,
        request_cq: &Arc<Cq<Self>>,
        _srq: Option<&Arc<()>>,
        _token: Token,
    ) -> Result<Endpoint> {
        let context = Context {
            upcalls: pz.adapter.upcalls,
            worker: &WORKER,
            keys: &KEYS,
        };
        let qp = Qp::new(context, pz.number, *caps, recv_cq, request_cq);
        Ok(Endpoint(Arc::new(qp)))
    }

    fn reset_qp(qp: &Endpoint) -> Result<()> {
        qp.0.reset();
        Ok(())
    }

    fn post_send(qp: &Endpoint, request: &Request<'_, Self>) -> Result<()> {
        qp.0.post_send(request)
    }

    fn post_recv(qp: &Endpoint, id: WrId, iov: &[LmrTriplet]) -> Result<()> {
        qp.0.post_recv(id, iov)
    }

    fn listen(
        adapter: &Arc<Adapter>,
        conn_qual: Option<u64>,
        token: Token,
    ) -> Result<(Self::Listener, u64)> {
        let at = adapter.address;
        let (door, qual) = ports::choose(conn_qual, |qual| Door::open(at, qual))?;
        let listener = session::listen(door, (at, qual), (adapter.upcalls, token), &WORKER)?;
        Ok((listener, qual))
    }

    fn connect(adapter: &Arc<Adapter>, qp: &Arc<Endpoint>, to: &Connect<'_>) -> Result<()> {
        qp.0.begin(to.token)?;
        // A socket of a UNIX path has no port, so `local_port` keeps its default.
        let own = (adapter.address, 0).into();
        let (remote, qual) = (to.remote, to.conn_qual);
        let dial = move || socket::dial(remote, qual);
        session::connect(Arc::clone(&qp.0), to.token, own, to.private_data, dial)
    }

    fn accept(
        request: Self::ConnRequest,
        qp: &Arc<Endpoint>,
        token: Token,
        private_data: &[u8],
    ) -> Result<()> {
        qp.0.begin(token)?;
        request.accept(Arc::clone(&qp.0), token, private_data)
    }

    fn reject(request: Self::ConnRequest, private_data: &[u8]) -> Result<()> {
        request.reject(private_data);
        Ok(())
    }

    fn disconnect(qp: &Endpoint) {
        qp.0.disconnect();
    }
}
