//! An IA with its objects, connected to another one, and its events.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dat_core::attributes::EpAttr;
use dat_core::cr::Cr;
use dat_core::ep::{Ep, EpParts, EpState};
use dat_core::evd::Evd;
use dat_core::event::{ConnectionEvent, Dto, Event};
use dat_core::flags::{CompletionFlags, EvdFlags};
use dat_core::ia::{AsyncEvd, Ia};
use dat_core::ia_params::IaParams;
use dat_core::pz::Pz;
use dat_core::sp::Sp;
use dat_core::transport::Transport;

use super::{ADAPTERS, Adapter, Fake};

/// Returns the next event, or `None` if the EVD is empty.
pub fn next(evd: &'static Evd<Fake>) -> Option<Event> {
    let mut got = None;
    evd.dequeue(&mut got).ok()?;
    got
}

/// Removes and returns all events of the EVD.
pub fn all(evd: &'static Evd<Fake>) -> Vec<Event> {
    std::iter::from_fn(|| next(evd)).collect()
}

/// Waits up to ten seconds for an event.
pub fn wait(evd: &'static Evd<Fake>) -> Event {
    let mut got = None;
    evd.wait(Some(Duration::from_secs(10)), 1, &mut got)
        .expect("an event within 10 s");
    got.unwrap()
}

pub fn dto(event: Event) -> Dto {
    match event {
        Event::Dto(dto) => dto,
        other => panic!("{other:?} is not a DTO"),
    }
}

pub fn connection(number: ConnectionEvent, ep: &'static Ep<Fake>) -> Event {
    Event::Connection {
        number,
        ep: ep.handle(),
    }
}

/// An IA with a PZ and an EVD for each purpose.
#[derive(Clone, Copy)]
pub struct Side {
    pub ia: &'static Ia<Fake>,
    pub pz: &'static Pz<Fake>,
    pub recv: &'static Evd<Fake>,
    pub request: &'static Evd<Fake>,
    pub conn: &'static Evd<Fake>,
    pub cr: &'static Evd<Fake>,
}

pub fn attr(recv: u32, request: u32) -> EpAttr {
    EpAttr {
        service_type: 0,
        max_message_size: 1 << 16,
        max_rdma_size: 1 << 16,
        qos: 0,
        recv_completion_flags: CompletionFlags::empty(),
        request_completion_flags: CompletionFlags::empty(),
        max_recv_dtos: recv,
        max_request_dtos: request,
        max_recv_iov: 4,
        max_request_iov: 4,
        max_rdma_read_in: 4,
        max_rdma_read_out: 4,
        srq_soft_hw: -1,
        max_rdma_read_iov: 4,
        max_rdma_write_iov: 4,
    }
}

impl Side {
    pub fn open() -> Self {
        Self::open_with("")
    }

    /// Opens an IA with `ia_params`.
    pub fn open_with(params: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fake{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let params = IaParams::parse(params).unwrap();
        let ia = Ia::<Fake>::open(&name, &params, 8, AsyncEvd::New, 0x7ab1e).unwrap();
        let pz = Pz::create(ia).unwrap();
        let evd = |flags| Evd::create(ia, 64, None, flags).unwrap();
        Self {
            ia,
            pz,
            recv: evd(EvdFlags::DTO),
            request: evd(EvdFlags::DTO),
            conn: evd(EvdFlags::CONNECTION),
            cr: evd(EvdFlags::CR),
        }
    }

    /// Returns the transport's adapter.
    pub fn adapter(&self) -> Arc<Adapter> {
        let name = self.ia.name();
        let adapters = ADAPTERS.lock();
        adapters.iter().find(|a| a.name == name).unwrap().clone()
    }

    /// Holds requests back from now on, or releases all that are held.
    pub fn hold(&self, on: bool) {
        let adapter = self.adapter();
        adapter.hold.store(on, Ordering::Relaxed);
        let qps: Vec<_> = adapter
            .qps
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for qp in qps.iter().filter(|_| !on) {
            qp.run(usize::MAX);
        }
    }

    pub fn parts(&self) -> EpParts<Fake> {
        EpParts {
            pz: Some(self.pz),
            recv_evd: Some(self.recv),
            request_evd: Some(self.request),
            connect_evd: Some(self.conn),
            srq: None,
        }
    }

    pub fn ep(&self) -> &'static Ep<Fake> {
        Ep::create(self.ia, self.parts(), Some(&attr(16, 16))).unwrap()
    }
}

pub const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Waits until `ep` is in `state`.
pub fn reach(ep: &'static Ep<Fake>, state: EpState) {
    let end = Instant::now() + Duration::from_secs(10);
    while ep.status().0 != state {
        assert!(Instant::now() < end, "still {}", ep.status().0);
        std::thread::yield_now();
    }
}

/// Connects an endpoint of `client` to one of `server` through a PSP at `qual`, and removes both events.
pub fn join(
    client: &Side,
    from: &'static Ep<Fake>,
    server: &Side,
    to: &'static Ep<Fake>,
    qual: u64,
) {
    let psp = Sp::psp_create(server.ia, Some(qual), server.cr, false).unwrap();
    from.connect(PEER, qual, None, b"hello", 0, 0).unwrap();
    let cr = request(wait(server.cr));
    cr.accept(Some(to), b"welcome").unwrap();
    assert_eq!(
        wait(client.conn),
        connection(ConnectionEvent::Established, from)
    );
    assert_eq!(
        wait(server.conn),
        connection(ConnectionEvent::Established, to)
    );
    psp.free().unwrap();
}

/// Returns the CR of a connection request event.
pub fn request(event: Event) -> &'static Cr<Fake> {
    match event {
        Event::ConnectionRequest { cr, .. } => Fake::arenas().cr.from_addr(cr).unwrap(),
        other => panic!("{other:?} is not a connection request"),
    }
}
