//! The safe calls into a table, over the loopback: what they own goes in the right order, whatever is dropped first.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dat_abi::foreign::{Ep, EpParts, Evd, Event, Ia, Lmr, Pz};
use dat_abi::types::{DAT_HANDLE_NULL, DatProviderInfo};
use dat_abi::v2_0::tables::provider_table;
use dat_core::attr::SrqAttr;
use dat_core::error::{Error, Kind, Result};
use dat_core::flags::{Close, CompletionFlags, EvdFlags, MemPriv};
use dat_loopback::Loopback;

const SOON: Option<Duration> = Some(Duration::from_secs(5));
const ESTABLISHED: u32 = 0x4001;
const PEER_REJECTED: u32 = 0x4002;
const DISCONNECTED: u32 = 0x4005;

/// Says when an IA's keep is dropped: after the IA was closed.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn open() -> (Ia, Arc<AtomicBool>) {
    unsafe extern "C" fn add(_table: *const c_void, _info: *const DatProviderInfo) -> u32 {
        0
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let info = DatProviderInfo::new("loop", 2, 0, true);
        // SAFETY: a valid info, a C string, and a function of that type.
        unsafe { dat_abi::export::init::<Loopback>(&info, c"".as_ptr(), Some(add)) };
    });
    let (mut evd, mut ia) = (DAT_HANDLE_NULL, DAT_HANDLE_NULL);
    let slot = provider_table::<Loopback>().ia_open.unwrap();
    // SAFETY: valid pointers.
    let code = unsafe { slot(c"loop".as_ptr(), 8, &mut evd, &mut ia) };
    assert_eq!(code, 0);
    let closed = Arc::new(AtomicBool::new(false));
    // SAFETY: open, ours alone, and its code is part of this program.
    let ia = unsafe { Ia::adopt(ia, Box::new(Flag(closed.clone()))) };
    (ia, closed)
}

struct Side {
    ep: Ep,
    dto: Evd,
    events: Evd,
    memory: Lmr,
}

fn side(ia: &Ia, pz: &Pz) -> Result<Side> {
    let dto = ia.evd(20, EvdFlags::DTO, None)?;
    let events = ia.evd(20, EvdFlags::CONNECTION | EvdFlags::CR, None)?;
    let parts = EpParts {
        pz,
        recv: Some(&dto),
        request: Some(&dto),
        connection: Some(&events),
        srq: None,
    };
    Ok(Side {
        ep: ia.ep(&parts, None)?,
        dto,
        events,
        memory: pz.register(ia, 1000, MemPriv::ALL)?,
    })
}

fn connection(side: &Side, number: u32) -> Vec<u8> {
    match side.events.wait(SOON, 1).unwrap().0 {
        Event::Connection(event) => {
            assert_eq!((event.number, event.ep), (number, side.ep.id()));
            event.private_data
        }
        other => panic!("{other:?}"),
    }
}

fn completion(side: &Side, cookie: u64) -> u32 {
    match side.dto.wait(SOON, 1).unwrap().0 {
        Event::Completion(done) => {
            assert_eq!(
                (done.ep, done.cookie, done.status),
                (side.ep.id(), cookie, 0)
            );
            done.length
        }
        other => panic!("{other:?}"),
    }
}

fn connect(ia: &Ia, active: &Side, passive: &Side) {
    let address = ia.attributes().unwrap().address.unwrap();
    let (psp, qual) = ia.psp(None, &passive.events).unwrap();
    active.ep.connect(address, qual, SOON, b"who").unwrap();
    let Event::Request(request) = passive.events.wait(SOON, 1).unwrap().0 else {
        panic!("no request")
    };
    assert_eq!(request.conn_qual(), qual);
    let asked = request.query().unwrap();
    assert_eq!(
        (asked.remote, &asked.private_data[..3]),
        (Some(address), &b"who"[..])
    );
    request.accept(Some(&passive.ep), b"you").unwrap();
    assert_eq!(connection(active, ESTABLISHED)[..3], *b"you");
    connection(passive, ESTABLISHED);
    // The service point goes, the connection stays.
    drop(psp);
}

#[test]
fn bytes_go_both_ways_and_everything_is_freed_in_the_order_of_the_drops() {
    let (ia, closed) = open();
    let pz = ia.pz().unwrap();
    let (active, passive) = (side(&ia, &pz).unwrap(), side(&ia, &pz).unwrap());
    connect(&ia, &active, &passive);

    active.memory.write(10, b"message").unwrap();
    let into = passive.memory.segment(100..200).unwrap();
    passive.ep.post_recv(&[into], 1).unwrap();
    let from = active.memory.segment(10..17).unwrap();
    let none = CompletionFlags::empty();
    active.ep.post_send(&[from], 2, none).unwrap();
    assert_eq!((completion(&active, 2), completion(&passive, 1)), (7, 7));
    assert_eq!(passive.memory.read(100..107).unwrap(), b"message");

    let there = passive.memory.remote(500..507).unwrap();
    active.ep.post_rdma_write(&[from], 3, &there, none).unwrap();
    assert_eq!(completion(&active, 3), 7);
    assert_eq!(passive.memory.read(500..507).unwrap(), b"message");
    let back = active.memory.segment(900..907).unwrap();
    active.ep.post_rdma_read(&[back], 4, &there, none).unwrap();
    assert_eq!(completion(&active, 4), 7);
    assert_eq!(active.memory.read(900..907).unwrap(), b"message");
    assert_eq!(active.ep.status().unwrap(), (9, true, true));
    assert!(active.dto.dequeue().unwrap().is_none());

    active.ep.disconnect(Close::Abrupt).unwrap();
    connection(&active, DISCONNECTED);
    connection(&passive, DISCONNECTED);
    active.ep.reset().unwrap();
    connect(&ia, &active, &passive_again(&ia, &pz));

    // The IA first, what stands on it last: it is closed when nothing is left.
    let memory = active.memory.clone();
    drop((ia, pz, active, passive));
    assert!(!closed.load(Ordering::SeqCst));
    assert_eq!(memory.read(10..17).unwrap(), b"message");
    drop(memory);
    assert!(closed.load(Ordering::SeqCst));
}

fn passive_again(ia: &Ia, pz: &Pz) -> Side {
    side(ia, pz).unwrap()
}

#[test]
fn a_request_that_nobody_answers_is_rejected_when_it_is_dropped() {
    let (ia, _) = open();
    let pz = ia.pz().unwrap();
    let (active, passive) = (side(&ia, &pz).unwrap(), side(&ia, &pz).unwrap());
    let address = ia.attributes().unwrap().address.unwrap();
    let (_psp, qual) = ia.psp(None, &passive.events).unwrap();
    active.ep.connect(address, qual, SOON, &[]).unwrap();
    let Event::Request(request) = passive.events.wait(SOON, 1).unwrap().0 else {
        panic!("no request")
    };
    drop(request);
    connection(&active, PEER_REJECTED);
    assert!(ia.psp(Some(qual), &passive.events).is_err());
}

#[test]
fn waiting_notification_and_software_events() {
    let (ia, closed) = open();
    let cno = ia.cno().unwrap();
    let evd = ia.evd(4, EvdFlags::SOFTWARE, Some(&cno)).unwrap();
    let short = Some(Duration::from_millis(1));
    assert_eq!(cno.wait(short), Ok(false));
    evd.post_software(77).unwrap();
    assert_eq!(cno.wait(SOON), Ok(true));
    assert!(matches!(evd.dequeue(), Ok(Some(Event::Software(77)))));
    drop(cno);
    let plain = ia.evd(4, EvdFlags::SOFTWARE, None).unwrap();
    let late = plain.wait(short, 1).unwrap_err();
    assert_eq!(late, Error::of(Kind::TimeoutExpired));
    let pz = ia.pz().unwrap();
    let attr = SrqAttr {
        max_recv_dtos: 4,
        max_recv_iov: 1,
        low_watermark: None,
    };
    let srq = pz.srq(&ia, &attr).unwrap();
    let memory = pz.register(&ia, 64, MemPriv::LOCAL_WRITE).unwrap();
    srq.post_recv(&[memory.segment(0..64).unwrap()], 5).unwrap();
    assert_eq!(
        memory.remote(0..8).unwrap_err().kind(),
        Some(Kind::PrivilegesViolation)
    );
    drop((srq, memory, pz, plain, evd, ia));
    assert!(closed.load(Ordering::SeqCst));
}

#[test]
fn memory_has_an_end() {
    let (ia, _) = open();
    let memory = ia.pz().unwrap().register(&ia, 10, MemPriv::ALL).unwrap();
    assert_eq!(memory.len(), 10);
    memory.write(3, &[1; 7]).unwrap();
    let beyond = Error::of(Kind::LengthError);
    assert_eq!(memory.write(4, &[1; 7]), Err(beyond));
    assert_eq!(memory.write(usize::MAX, &[1; 7]), Err(beyond));
    assert_eq!(memory.read(10..11), Err(beyond));
    assert_eq!(memory.segment(5..11).unwrap_err(), beyond);
    assert_eq!(memory.read(2..4), Ok(vec![0, 1]));
    assert!(ia.pz().unwrap().register(&ia, 0, MemPriv::ALL).is_err());
}
