//! An IA over the loopback with one object of each kind, for the tests.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test file uses its part"
)]

use std::net::IpAddr;
use std::time::Duration;

use dat_core::attributes::EpAttr;
use dat_core::cr::Cr;
use dat_core::ep::{Ep, EpParts};
use dat_core::error::Result;
use dat_core::evd::Evd;
use dat_core::event::{ConnectionEvent, Dto, DtoStatus, Event};
use dat_core::flags::{CompletionFlags, EvdFlags, MemPriv, VaType};
use dat_core::ia::{AsyncEvd, Ia};
use dat_core::ia_params::IaParams;
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::lmr::{Lmr, Source};
use dat_core::pz::Pz;
use dat_core::sp::Sp;
use dat_core::srq::Srq;
use dat_core::transport::Transport;
use dat_loopback::Loopback;

pub const NONE: CompletionFlags = CompletionFlags::empty();

#[derive(Clone, Copy)]
pub struct Side {
    pub ia: &'static Ia<Loopback>,
    pub address: IpAddr,
    pub pz: &'static Pz<Loopback>,
    pub recv: &'static Evd<Loopback>,
    pub request: &'static Evd<Loopback>,
    pub conn: &'static Evd<Loopback>,
    pub cr: &'static Evd<Loopback>,
}

pub fn open(params: &str) -> Result<&'static Ia<Loopback>> {
    let params = IaParams::parse(params).unwrap();
    Ia::open("lo-test", &params, 8, AsyncEvd::New, 0x7ab1e)
}

impl Side {
    /// Opens an IA. `params` begin with the address; each test has its own, so that tests do not interfere.
    pub fn open(params: &str) -> Self {
        let ia = open(params).unwrap();
        let evd = |flags| Evd::create(ia, 64, None, flags).unwrap();
        Self {
            ia,
            address: ia.attributes().unwrap().address,
            pz: Pz::create(ia).unwrap(),
            recv: evd(EvdFlags::DTO),
            request: evd(EvdFlags::DTO | EvdFlags::RMR_BIND),
            conn: evd(EvdFlags::CONNECTION),
            cr: evd(EvdFlags::CR),
        }
    }

    pub fn parts(&self, srq: Option<&'static Srq<Loopback>>) -> EpParts<Loopback> {
        EpParts {
            pz: Some(self.pz),
            recv_evd: Some(self.recv),
            request_evd: Some(self.request),
            connect_evd: Some(self.conn),
            srq,
        }
    }

    pub fn ep(&self) -> &'static Ep<Loopback> {
        self.ep_on(None)
    }

    pub fn ep_on(&self, srq: Option<&'static Srq<Loopback>>) -> &'static Ep<Loopback> {
        Ep::create(self.ia, self.parts(srq), Some(&attr())).unwrap()
    }

    /// Registers `bytes`, which the test leaks.
    pub fn lmr(&self, bytes: &[u8], rights: MemPriv) -> Memory {
        let address = bytes.as_ptr() as usize;
        let length = bytes.len() as u64;
        let source = Source::Virtual(address);
        let lmr = Lmr::create(self.ia, source, length, self.pz, rights, VaType::Va).unwrap();
        Memory {
            lmr,
            address: address as u64,
            length: bytes.len() as u32,
        }
    }
}

#[derive(Clone, Copy)]
pub struct Memory {
    pub lmr: &'static Lmr<Loopback>,
    pub address: u64,
    pub length: u32,
}

impl Memory {
    pub fn piece(&self, offset: u32, length: u32) -> LmrTriplet {
        LmrTriplet {
            virtual_address: self.address + u64::from(offset),
            segment_length: length,
            lmr_context: self.lmr.info().unwrap().lmr_context,
        }
    }

    pub fn remote(&self, offset: u32, length: u32) -> RmrTriplet {
        RmrTriplet {
            virtual_address: self.address + u64::from(offset),
            segment_length: length,
            rmr_context: self.lmr.info().unwrap().rmr_context,
        }
    }
}

/// Returns a leaked copy of `bytes` with the alignment that atomics need.
pub fn leak(bytes: &[u8]) -> &'static mut [u8] {
    let room = vec![0_u8; bytes.len() + 8].leak();
    let skip = room.as_ptr().align_offset(8);
    let cut = &mut room[skip..skip + bytes.len()];
    cut.copy_from_slice(bytes);
    cut
}

pub fn attr() -> EpAttr {
    EpAttr {
        service_type: 0,
        max_message_size: 1 << 16,
        max_rdma_size: 1 << 16,
        qos: 0,
        recv_completion_flags: NONE,
        request_completion_flags: NONE,
        max_recv_dtos: 16,
        max_request_dtos: 16,
        max_recv_iov: 4,
        max_request_iov: 4,
        max_rdma_read_in: 4,
        max_rdma_read_out: 4,
        srq_soft_hw: -1,
        max_rdma_read_iov: 4,
        max_rdma_write_iov: 4,
    }
}

/// Waits up to ten seconds for an event.
pub fn wait(evd: &'static Evd<Loopback>) -> Event {
    let mut got = None;
    evd.wait(Some(Duration::from_secs(10)), 1, &mut got)
        .expect("an event within 10 s");
    got.unwrap()
}

pub fn empty(evd: &'static Evd<Loopback>) -> bool {
    evd.dequeue(None).is_err()
}

pub fn dto(evd: &'static Evd<Loopback>) -> Dto {
    match wait(evd) {
        Event::Dto(dto) => dto,
        other => panic!("{other:?} is not a DTO"),
    }
}

/// Waits for the next completion and returns its cookie and status.
pub fn done(evd: &'static Evd<Loopback>) -> (u64, DtoStatus) {
    let dto = dto(evd);
    (dto.cookie, dto.status)
}

pub fn number(evd: &'static Evd<Loopback>) -> ConnectionEvent {
    match wait(evd) {
        Event::Connection { number, .. } => number,
        other => panic!("{other:?} is not a connection event"),
    }
}

pub fn request(evd: &'static Evd<Loopback>) -> &'static Cr<Loopback> {
    match wait(evd) {
        Event::ConnectionRequest { cr, .. } => Loopback::arenas().cr.from_addr(cr).unwrap(),
        other => panic!("{other:?} is not a connection request"),
    }
}

/// Connects `from` to `to` and removes both events.
pub fn join(client: &Side, from: &'static Ep<Loopback>, server: &Side, to: &'static Ep<Loopback>) {
    let psp = Sp::psp_create(server.ia, None, server.cr, false).unwrap();
    let qual = psp.info().unwrap().conn_qual;
    from.connect(server.address, qual, None, b"hello", 0, 0)
        .unwrap();
    let cr = request(server.cr);
    assert_eq!(cr.private_data().to_vec(), b"hello");
    cr.accept(Some(to), b"welcome").unwrap();
    assert_eq!(number(client.conn), ConnectionEvent::Established);
    assert_eq!(number(server.conn), ConnectionEvent::Established);
    assert_eq!(from.private_data().to_vec(), b"welcome");
    psp.free().unwrap();
}

pub struct Pair {
    pub a: Side,
    pub b: Side,
    pub from: &'static Ep<Loopback>,
    pub to: &'static Ep<Loopback>,
}

/// Returns two connected endpoints; `host` is the last byte of both addresses, `more` has further settings.
pub fn pair(host: u8, more: &str) -> Pair {
    let open = |side: u8| Side::open(&format!("127.0.{side}.{host} 0 {more}"));
    let (a, b) = (open(1), open(2));
    let (from, to) = (a.ep(), b.ep());
    join(&a, from, &b, to);
    Pair { a, b, from, to }
}
