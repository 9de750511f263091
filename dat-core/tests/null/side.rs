//! A connected endpoint of the transport without data.

use super::{Events, Null, Qp, open, qp};
use dat_core::attributes::EpAttr;
use dat_core::ep::{Ep, EpParts};
use dat_core::evd::Evd;
use dat_core::event::{ConnectionEvent, Event};
use dat_core::flags::{Close, CompletionFlags, EvdFlags};
use dat_core::head::raw;
use dat_core::ia::Ia;
use dat_core::pz::Pz;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

const LONG: Option<Duration> = Some(Duration::from_secs(10));

/// A connected endpoint; all its streams feed one EVD.
pub(crate) struct Side {
    pub(crate) ia: &'static Ia<Null>,
    pub(crate) pz: &'static Pz<Null>,
    pub(crate) evd: &'static Evd<Null>,
    pub(crate) ep: &'static Ep<Null>,
    pub(crate) qp: Arc<Qp>,
}

pub(crate) fn side(recv_flags: CompletionFlags, request_flags: CompletionFlags) -> Side {
    side_of(recv_flags, request_flags, 16)
}

/// Creates a side whose endpoint has room for `depth` requests.
pub(crate) fn side_of(
    recv_flags: CompletionFlags,
    request_flags: CompletionFlags,
    depth: u32,
) -> Side {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    let streams = EvdFlags::DTO | EvdFlags::RMR_BIND | EvdFlags::CONNECTION | EvdFlags::SOFTWARE;
    let evd = Evd::create(ia, 20, None, streams).unwrap();
    let parts = EpParts {
        pz: Some(pz),
        recv_evd: Some(evd),
        request_evd: Some(evd),
        connect_evd: Some(evd),
        srq: None,
    };
    let attr = EpAttr {
        service_type: 0,
        max_message_size: 1 << 20,
        max_rdma_size: 1 << 20,
        qos: 0,
        recv_completion_flags: recv_flags,
        request_completion_flags: request_flags,
        max_recv_dtos: 16,
        max_request_dtos: depth,
        max_recv_iov: 1,
        max_request_iov: 1,
        max_rdma_read_in: 1,
        max_rdma_read_out: 1,
        srq_soft_hw: -1,
        max_rdma_read_iov: 1,
        max_rdma_write_iov: 1,
    };
    let ep = Ep::create(ia, parts, Some(&attr)).unwrap();
    let remote = IpAddr::V4(Ipv4Addr::LOCALHOST);
    ep.connect(remote, 1, None, &[], 0, 0).unwrap();
    let qp = qp(ep);
    qp.establish();
    let mut sink = Events::default();
    evd.wait(LONG, 1, &mut sink).unwrap();
    let established = Event::Connection {
        number: ConnectionEvent::Established,
        ep: raw(ep),
    };
    assert_eq!(sink.0, [established]);
    Side {
        ia,
        pz,
        evd,
        ep,
        qp,
    }
}

impl Side {
    pub(crate) fn send(&self, cookie: u64, flags: CompletionFlags) {
        self.ep.post_send(&[], cookie, flags).unwrap();
    }

    /// Dequeues all events and returns their cookies; an event that is not a completion is 0.
    pub(crate) fn cookies(&self) -> Vec<u64> {
        let mut sink = Events::default();
        while self.evd.dequeue(&mut sink).is_ok() {}
        cookies(&sink)
    }

    pub(crate) fn close(self) {
        self.ia.close(Close::Abrupt).unwrap();
    }
}

pub(crate) fn cookies(events: &Events) -> Vec<u64> {
    let cookie = |event: &Event| match event {
        Event::Dto(dto) => dto.cookie,
        _ => 0,
    };
    events.0.iter().map(cookie).collect()
}
