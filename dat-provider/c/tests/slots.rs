//! A table with every slot: what is passed, in which order objects are freed, and what a wrong return code becomes. The optional slots that
//! `examples/c-transport` leaves NULL are called here.

use std::ffi::{c_char, c_void};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use dat_core::attributes::SrqAttr;
use dat_core::error::{Error, Kind};
use dat_core::flags::{MemPriv, VaType};
use dat_core::ia_params::IaParams;
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::rmr::Scope;
use dat_core::transport::{Bind, Op, QpCaps, Request, Token, Transport, WrId};
use dat_core::upcall::Upcalls;
use dat_transport::CTransport;
use dat_transport::convert::to_c;
use dat_transport::table::{
    Attr, BindPost, Caps, Code, Context, CqPointer, Post, PzView, Table, take,
};

/// What C was called with.
static CALLS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Code that the next posts return.
static ANSWER: AtomicU32 = AtomicU32::new(0);

fn note(call: String) {
    CALLS.lock().unwrap().push(call);
}

fn calls() -> Vec<String> {
    std::mem::take(&mut *CALLS.lock().unwrap())
}

/// Makes the context `value`.
fn make(to: *mut Context, value: usize) -> Code {
    // SAFETY: the caller passes a place for the context.
    unsafe { *to = value as Context };
    0
}

unsafe extern "C" fn open(
    _: *const c_char,
    _: *const c_char,
    port: u32,
    settings: *const *const c_char,
    _: u64,
    to: *mut Context,
) -> Code {
    // SAFETY: a list that NULL ends.
    let none = unsafe { (*settings).is_null() };
    note(format!("open port {port}, settings {}", !none));
    make(to, 1)
}
unsafe extern "C" fn close(at: Context) {
    note(format!("close {}", at as usize));
}
unsafe extern "C" fn free_adapter(at: Context) {
    note(format!("free_adapter {}", at as usize));
}
unsafe extern "C" fn attributes(_: Context, attr: *mut Attr) {
    // SAFETY: the caller passes a structure.
    let attr = unsafe { &mut *attr };
    // A text without an end, which must not be read beyond its field.
    attr.adapter_name = [b'x' as c_char; 64];
    attr.address = to_c((Ipv4Addr::LOCALHOST, 0).into());
    (attr.max_srqs, attr.max_rmrs, attr.atomics) = (3, 4, 7);
}
unsafe extern "C" fn create_pz(_: Context, to: *mut Context) -> Code {
    make(to, 2)
}
unsafe extern "C" fn register_memory(
    pz: *const PzView,
    _: *mut c_void,
    length: u64,
    rights: u32,
    _: u32,
    local: *mut u32,
    remote: *mut u32,
    to: *mut Context,
) -> Code {
    // SAFETY: the caller passes a view and places.
    unsafe {
        note(format!(
            "register pz {} {length} {rights:#x}",
            (*pz).context as usize
        ));
        (*local, *remote) = (11, 12);
    }
    make(to, 3)
}
unsafe extern "C" fn create_rmr(_: *const PzView, of_ep: u32, to: *mut Context) -> Code {
    note(format!("create_rmr of_ep {of_ep}"));
    make(to, 4)
}
unsafe extern "C" fn post_bind(qp: Context, bind: *const BindPost, key: *mut u32) -> Code {
    // SAFETY: the caller passes a bind and a place.
    unsafe {
        let bind = &*bind;
        note(format!(
            "post_bind {} rmr {} lmr {} flags {} bound {}",
            qp as usize, bind.rmr as usize, bind.lmr as usize, bind.flags, bind.bound
        ));
        *key = 13;
    }
    ANSWER.load(Ordering::Relaxed)
}
unsafe extern "C" fn create_srq(
    _: *const PzView,
    max_recv: u32,
    max_iov: u32,
    token: u64,
    to: *mut Context,
) -> Code {
    note(format!("create_srq {max_recv} {max_iov} {token}"));
    make(to, 5)
}
unsafe extern "C" fn resize_srq(at: Context, to: u32) -> Code {
    note(format!("resize_srq {} {to}", at as usize));
    0
}
unsafe extern "C" fn arm_srq_limit(at: Context, low: u32) -> Code {
    note(format!("arm_srq_limit {} {low}", at as usize));
    0
}
unsafe extern "C" fn post_srq_recv(
    at: Context,
    id: u64,
    iov: *const LmrTriplet,
    count: u32,
) -> Code {
    // SAFETY: the caller passes `count` segments.
    let first = unsafe { (*iov).segment_length };
    note(format!(
        "post_srq_recv {} {id} {first} {count}",
        at as usize
    ));
    0
}
unsafe extern "C" fn create_qp(
    _: *const PzView,
    caps: *const Caps,
    recv: CqPointer,
    request: CqPointer,
    srq: Context,
    has: u32,
    token: u64,
    to: *mut Context,
) -> Code {
    // SAFETY: the caller passes the capacity.
    let max = unsafe { (*caps).max_request };
    note(format!(
        "create_qp {max} same queue {} srq {} {has} {token}",
        recv == request,
        srq as usize
    ));
    make(to, 6)
}
unsafe extern "C" fn post_send(_: Context, post: *const Post) -> Code {
    // SAFETY: the caller passes a request.
    let post = unsafe { &*post };
    note(format!(
        "post_send {} op {} flags {} key {} operands {:?}",
        post.id, post.op, post.flags, post.key, post.operands
    ));
    ANSWER.load(Ordering::Relaxed)
}
unsafe extern "C" fn local_port(_: Context) -> u16 {
    7
}

macro_rules! freed {
    ($($name:ident)*) => {$(
        unsafe extern "C" fn $name(at: Context) {
            note(format!("{} {}", stringify!($name), at as usize));
        }
    )*};
}
freed! { free_pz deregister free_rmr free_srq free_qp free_listener free_request disconnect message_received }

unsafe extern "C" fn reset_qp(_: Context) -> Code {
    0
}
unsafe extern "C" fn post_recv(_: Context, _: u64, _: *const LmrTriplet, _: u32) -> Code {
    0
}
unsafe extern "C" fn listen(_: Context, qual: *mut u64, _: u64, to: *mut Context) -> Code {
    // SAFETY: the caller passes a place.
    unsafe { *qual += 50_000 };
    make(to, 8)
}
unsafe extern "C" fn connect(
    _: Context,
    _: Context,
    _: *const dat_transport::table::ConnectTo,
) -> Code {
    0
}
unsafe extern "C" fn accept(_: Context, _: Context, _: u64, _: *const c_void, _: u32) -> Code {
    0
}
unsafe extern "C" fn reject(_: Context, _: *const c_void, _: u32) -> Code {
    0
}

fn table() -> Table {
    let mut table = Table::EMPTY;
    table.name = c"test".as_ptr();
    table.open = Some(open);
    table.close = Some(close);
    table.free_adapter = Some(free_adapter);
    table.attributes = Some(attributes);
    table.create_pz = Some(create_pz);
    table.free_pz = Some(free_pz);
    table.register_memory = Some(register_memory);
    table.deregister = Some(deregister);
    table.create_rmr = Some(create_rmr);
    table.free_rmr = Some(free_rmr);
    table.post_bind = Some(post_bind);
    table.create_srq = Some(create_srq);
    table.free_srq = Some(free_srq);
    table.resize_srq = Some(resize_srq);
    table.arm_srq_limit = Some(arm_srq_limit);
    table.post_srq_recv = Some(post_srq_recv);
    table.create_qp = Some(create_qp);
    table.free_qp = Some(free_qp);
    table.reset_qp = Some(reset_qp);
    table.post_send = Some(post_send);
    table.post_recv = Some(post_recv);
    table.listen = Some(listen);
    table.free_listener = Some(free_listener);
    table.connect = Some(connect);
    table.accept = Some(accept);
    table.reject = Some(reject);
    table.free_request = Some(free_request);
    table.disconnect = Some(disconnect);
    table.message_received = Some(message_received);
    table.local_port = Some(local_port);
    table
}

/// One test, because a process has one table.
#[test]
fn every_slot_gets_what_core_passes_and_each_object_is_freed_once() {
    // SAFETY: a whole table.
    unsafe { take(&table()) }.expect("a table without fault");
    let params = IaParams::parse("dev 3").expect("parameters");
    let adapter =
        Arc::new(CTransport::open("test0", &params, Upcalls::new(Token(0))).expect("an adapter"));
    assert_eq!(calls(), ["open port 3, settings false"]);

    let attr = CTransport::attributes(&adapter);
    assert_eq!(attr.adapter_name, "x".repeat(63));
    assert_eq!(attr.address, IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert_eq!(
        (attr.max_srqs, attr.max_rmrs, attr.windows, attr.atomics),
        (3, 4, true, true)
    );

    let pz = Arc::new(CTransport::create_pz(&adapter).expect("a zone"));
    let rights = MemPriv::LOCAL_WRITE | MemPriv::REMOTE_READ;
    let (lmr, keys) = CTransport::register(&pz, 0x1000, 64, rights, VaType::Va).expect("a region");
    assert_eq!((keys.lmr_context, keys.rmr_context), (11, 12));
    let rmr = CTransport::create_rmr(&pz, Scope::Endpoint).expect("a window");
    let srq_attr = SrqAttr {
        max_recv_dtos: 9,
        max_recv_iov: 2,
        low_watermark: None,
    };
    let srq = Arc::new(CTransport::create_srq(&pz, &srq_attr, Token(21)).expect("a shared queue"));
    CTransport::resize_srq(&srq, 18).expect("a longer one");
    CTransport::arm_srq_limit(&srq, 4).expect("armed");
    let segment = LmrTriplet {
        virtual_address: 0x1000,
        segment_length: 5,
        lmr_context: 11,
    };
    CTransport::post_srq_recv(&srq, WrId(31), &[segment]).expect("posted");
    let cq = Arc::new(CTransport::create_cq(&adapter, 4, Token(22)).expect("a completion queue"));
    let caps = QpCaps {
        max_request: 6,
        ..QpCaps::default()
    };
    let qp = Arc::new(
        CTransport::create_qp(&pz, &caps, &cq, &cq, Some(&srq), Token(23)).expect("a queue pair"),
    );
    assert_eq!(
        calls(),
        [
            "register pz 2 64 0x12",
            "create_rmr of_ep 1",
            "create_srq 9 2 21",
            "resize_srq 5 18",
            "arm_srq_limit 5 4",
            "post_srq_recv 5 31 5 1",
            "create_qp 6 same queue true srq 5 1 23",
        ]
    );
    let datagrams = QpCaps {
        datagram: true,
        ..caps
    };
    let refused = CTransport::create_qp(&pz, &datagrams, &cq, &cq, None, Token(24)).err();
    assert_eq!(refused, Some(Error::of(Kind::ModelNotSupported)));

    let remote = RmrTriplet {
        virtual_address: 8,
        segment_length: 8,
        rmr_context: 12,
    };
    let op = Op::CompareSwap {
        remote,
        compare: 1,
        swap: 2,
    };
    let request = Request {
        id: WrId(32),
        op,
        iov: &[segment],
        length: 8,
        signaled: true,
        solicited: false,
        fence: true,
    };
    CTransport::post_send(&qp, &request).expect("posted");
    let bind = Bind {
        id: WrId(33),
        rmr: &rmr,
        lmr: Some(&lmr),
        address: 0x1000,
        length: 8,
        rights,
        va_type: VaType::Va,
        signaled: true,
        fence: false,
    };
    assert_eq!(CTransport::post_bind(&qp, &bind), Ok(13));
    // A number that is no return code.
    ANSWER.store(5, Ordering::Relaxed);
    let internal = Error::of(Kind::InternalError);
    assert_eq!(CTransport::post_send(&qp, &request), Err(internal));
    assert_eq!(CTransport::post_bind(&qp, &bind), Err(internal));
    CTransport::message_received(&qp);
    CTransport::disconnect(&qp);
    assert_eq!(CTransport::local_port(&qp), 7);
    let post = "post_send 32 op 6 flags 5 key 12 operands [1, 2]";
    let bound = "post_bind 6 rmr 4 lmr 3 flags 1 bound 1";
    assert_eq!(
        calls(),
        [
            post,
            bound,
            post,
            bound,
            "message_received 6",
            "disconnect 6"
        ]
    );

    let (listener, qual) = CTransport::listen(&adapter, None, Token(25)).expect("a listener");
    assert_eq!(qual, 50_000);
    drop(listener);
    // The queue pair keeps what it uses.
    drop((rmr, lmr, pz, srq, cq));
    assert_eq!(calls(), ["free_listener 8", "free_rmr 4", "deregister 3"]);
    drop(qp);
    assert_eq!(calls(), ["free_qp 6", "free_srq 5", "free_pz 2"]);
    CTransport::close(&adapter);
    drop(adapter);
    assert_eq!(calls(), ["close 1", "free_adapter 1"]);
}
