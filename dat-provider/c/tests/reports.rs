//! Reports that a transport makes under its lock.

use std::ffi::{c_char, c_void};
use std::net::Ipv4Addr;
use std::ptr::null;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, OnceLock, mpsc::Sender};
use std::time::Duration;

use dat_core::ia_params::IaParams;
use dat_core::transport::{Token, Transport};
use dat_core::upcall::Upcalls;
use dat_transport::CTransport;
use dat_transport::convert::to_c;
use dat_transport::report::dat_transport_connect_request;
use dat_transport::table::{
    Arrived, Attr, Caps, Code, ConnectTo, Context, CqPointer, Post, PzView, Table, take,
};

/// The lock of the transport.
static LOCK: Mutex<()> = Mutex::new(());
/// Takes the number of each request that is freed.
static FREED: OnceLock<Mutex<Sender<usize>>> = OnceLock::new();

unsafe extern "C" fn free_request(request: Context) {
    let _lock = LOCK.lock().expect("no panic");
    let freed = FREED.get().expect("set").lock().expect("no panic");
    freed.send(request as usize).expect("a receiver");
}

unsafe extern "C" fn open(
    _: *const c_char,
    _: *const c_char,
    _: u32,
    _: *const *const c_char,
    _: u64,
    _: *mut Context,
) -> Code {
    0
}
unsafe extern "C" fn attributes(_: Context, _: *mut Attr) {}
unsafe extern "C" fn nothing(_: Context) {}
unsafe extern "C" fn create_qp(
    _: *const PzView,
    _: *const Caps,
    _: CqPointer,
    _: CqPointer,
    _: Context,
    _: u32,
    _: u64,
    _: *mut Context,
) -> Code {
    0
}
unsafe extern "C" fn reset_qp(_: Context) -> Code {
    0
}
unsafe extern "C" fn post_send(_: Context, _: *const Post) -> Code {
    0
}
unsafe extern "C" fn post_recv(
    _: Context,
    _: u64,
    _: *const dat_core::iov::LmrTriplet,
    _: u32,
) -> Code {
    0
}
unsafe extern "C" fn listen(_: Context, _: *mut u64, _: u64, _: *mut Context) -> Code {
    0
}
unsafe extern "C" fn connect(_: Context, _: Context, _: *const ConnectTo) -> Code {
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
    table.attributes = Some(attributes);
    table.create_qp = Some(create_qp);
    table.free_qp = Some(nothing);
    table.reset_qp = Some(reset_qp);
    table.post_send = Some(post_send);
    table.post_recv = Some(post_recv);
    table.listen = Some(listen);
    table.free_listener = Some(nothing);
    table.connect = Some(connect);
    table.accept = Some(accept);
    table.reject = Some(reject);
    table.free_request = Some(free_request);
    table.disconnect = Some(nothing);
    table
}

/// Returns the IA and the arrival of a report that is wrong: of an IA that is closed, without arrival, with an address of another family,
/// and with private data at NULL.
fn wrong(number: usize) -> (u64, Option<Arrived>) {
    let local = to_c((Ipv4Addr::LOCALHOST, 7).into());
    let mut arrival = Arrived {
        remote: local,
        local,
        private_data: null(),
        private_data_size: 0,
        reserved: 0,
    };
    match number {
        0 => return (999, Some(arrival)),
        1 => return (1, None),
        2 => arrival.remote.ss_family = libc::AF_UNIX as libc::sa_family_t,
        _ => arrival.private_data_size = 5,
    }
    (1, Some(arrival))
}

#[test]
fn a_request_that_cannot_be_reported_is_freed_without_the_lock_of_its_report() {
    // SAFETY: a whole table.
    unsafe { take(&table()) }.expect("a table without fault");
    let (sender, freed) = channel();
    FREED.set(Mutex::new(sender)).expect("set once");
    let params = IaParams::parse("dev 0").expect("parameters");
    let _adapter = CTransport::open("test0", &params, Upcalls::new(Token(0))).expect("an adapter");
    for number in 0..4 {
        let (sender, returned) = channel();
        std::thread::spawn(move || {
            let (ia, arrival) = wrong(number);
            let lock = LOCK.lock().expect("no panic");
            let arrival = arrival.as_ref().map_or(null(), std::ptr::from_ref);
            // SAFETY: the arrival is valid, or wrong in a way that the header names.
            unsafe { dat_transport_connect_request(ia, 1, number as Context, arrival) };
            drop(lock);
            sender.send(()).expect("a receiver");
        });
        let limit = Duration::from_secs(10);
        assert_eq!(
            returned.recv_timeout(limit),
            Ok(()),
            "report {number} does not return"
        );
        assert_eq!(freed.recv_timeout(limit), Ok(number));
    }
    let once = freed.recv_timeout(Duration::from_millis(50));
    assert_eq!(once, Err(RecvTimeoutError::Timeout));
}
