//! The reports that C makes. They are passed on by a thread of this library, so C may make them under its locks.

use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Mutex, PoisonError};

use dat_core::transport::Token;
use dat_core::upcall::{Arrival, Upcalls};
use dat_provider_parts::cq::Cq;
use dat_provider_parts::worker::{Upcall, Worker};

use crate::CTransport;
use crate::context::Object;
use crate::convert;
use crate::table::{Arrived, Context, CqPointer, Done, text};

pub(crate) static WORKER: Worker<CTransport> = Worker::new("dat-c-upcalls");

/// The IAs that are open, by the number that C has. A report may come after the end of its IA.
#[derive(Default)]
struct Open {
    last: u64,
    all: HashMap<u64, Upcalls<CTransport>>,
}

static OPEN: LazyLock<Mutex<Open>> = LazyLock::new(Mutex::default);

fn with_open<R>(body: impl FnOnce(&mut Open) -> R) -> R {
    body(&mut OPEN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the number of an IA that opens.
pub(crate) fn remember(upcalls: Upcalls<CTransport>) -> u64 {
    with_open(|open| {
        open.last += 1;
        open.all.insert(open.last, upcalls);
        open.last
    })
}

pub(crate) fn forget(ia: u64) {
    with_open(|open| open.all.remove(&ia));
}

fn upcalls(ia: u64) -> Option<Upcalls<CTransport>> {
    let found = with_open(|open| open.all.get(&ia).copied());
    if found.is_none() {
        tracing::debug!(ia, "the transport in C reported for an IA that is not open");
    }
    found
}

/// Runs a report. A panic ends it and not the process.
pub(crate) fn caught<R>(body: impl FnOnce() -> R) -> Option<R> {
    let done = catch_unwind(AssertUnwindSafe(body));
    done.map_err(|_| tracing::error!("a report of a transport in C panicked; this is a bug of dat-provider-c, please report it"))
        .ok()
}

/// Returns the bytes of C; `None`, and a line of the log, for NULL with a length.
///
/// # Safety
/// `at` is NULL or has `size` bytes.
unsafe fn data<'a>(at: *const c_void, size: u32) -> Option<&'a [u8]> {
    match (at.is_null(), size) {
        (_, 0) => Some(&[]),
        (true, _) => {
            tracing::error!(size, "the transport in C reported private data at NULL");
            None
        }
        // SAFETY: the caller's promise.
        (false, _) => Some(unsafe { std::slice::from_raw_parts(at.cast(), size as usize) }),
    }
}

/// `dat_transport_complete`.
///
/// # Safety
/// `cq` is NULL or a completion queue that lives, `done` NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_transport_complete(cq: CqPointer, done: *const Done) {
    caught(|| {
        if cq.is_null() || done.is_null() {
            tracing::error!("the transport in C reported a completion with a NULL pointer");
            return;
        }
        // SAFETY: the caller's promise; the pointer is one that `create_qp` passed.
        let (cq, done) = unsafe { (&*cq.cast::<Cq<CTransport>>(), &*done) };
        cq.push(convert::entry(done));
    });
}

/// `dat_transport_connect_request`.
///
/// # Safety
/// `arrival` is NULL or valid; `request` is a context that is not answered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_transport_connect_request(
    ia: u64,
    listener: u64,
    request: Context,
    arrival: *const Arrived,
) {
    caught(|| {
        let request = Object::request(request);
        // SAFETY: the caller's promise.
        let Some((upcalls, remote, local, private_data)) = (unsafe { arrived(ia, arrival) }) else {
            return refuse(request);
        };
        let arrival = arrival_of(remote, local, private_data);
        WORKER.enqueue(Upcall::request(upcalls, Token(listener), request, &arrival));
    });
}

/// Returns what a connection request says: the IA that it is for, the addresses and the private data. `None`, and a line of the log, if it
/// cannot be reported.
///
/// # Safety
/// `arrival` is NULL or valid, with its private data.
unsafe fn arrived<'a>(
    ia: u64,
    arrival: *const Arrived,
) -> Option<(Upcalls<CTransport>, SocketAddr, SocketAddr, &'a [u8])> {
    // SAFETY: the caller's promise.
    let Some(arrival) = (unsafe { arrival.as_ref() }) else {
        tracing::error!("the transport in C reported a connection request without its arrival");
        return None;
    };
    let (Some(remote), Some(local)) = (
        convert::from_c(&arrival.remote),
        convert::from_c(&arrival.local),
    ) else {
        tracing::error!(
            "the transport in C reported a connection request with an address that is neither IPv4 nor IPv6"
        );
        return None;
    };
    // SAFETY: the caller's promise.
    let private_data = unsafe { data(arrival.private_data, arrival.private_data_size) }?;
    Some((upcalls(ia)?, remote, local, private_data))
}

/// Refuses a request that is not reported. The thread of the reports frees it: the caller may hold a lock that `free_request` takes.
fn refuse(request: Object) {
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    // No object has this token, so core drops the request.
    let (upcalls, none) = (Upcalls::new(Token(u64::MAX)), Token(u64::MAX));
    WORKER.enqueue(Upcall::request(
        upcalls,
        none,
        request,
        &arrival_of(nowhere, nowhere, &[]),
    ));
}

fn arrival_of(remote: SocketAddr, local: SocketAddr, private_data: &[u8]) -> Arrival<'_> {
    Arrival {
        remote,
        local: local.ip(),
        private_data,
        datagram: false,
    }
}

/// `dat_transport_connection`.
///
/// # Safety
/// `private_data` is NULL or has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_transport_connection(
    ia: u64,
    token: u64,
    outcome: u32,
    private_data: *const c_void,
    size: u32,
) {
    caught(|| {
        // SAFETY: the caller's promise.
        let private_data = unsafe { data(private_data, size) }.unwrap_or(&[]);
        if let Some(upcalls) = upcalls(ia) {
            let outcome = convert::outcome(outcome);
            WORKER.enqueue(Upcall::connection(
                upcalls,
                Token(token),
                outcome,
                private_data,
            ));
        }
    });
}

/// `dat_transport_fault`.
#[unsafe(no_mangle)]
pub extern "C" fn dat_transport_fault(ia: u64, fault: u32, token: u64) {
    caught(|| {
        if let (Some(upcalls), Some(fault)) = (upcalls(ia), convert::fault(fault, Token(token))) {
            WORKER.enqueue(Upcall::fault(upcalls, fault));
        }
    });
}

/// `dat_transport_log`.
///
/// # Safety
/// `line` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_transport_log(line: *const c_char) {
    // SAFETY: the caller's promise.
    caught(|| tracing::error!(name: dat_abi::log::UNLIMITED, "{}", unsafe { text(line) }));
}
