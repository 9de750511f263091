//! Endpoints over a transport that makes upcalls from its own thread: several threads connect, use, end in every way and reconnect the
//! same endpoints at the same time.
#![allow(missing_docs, reason = "a test")]

mod loopback;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dat_core::ep::{Ep, EpParts, EpState};
use dat_core::evd::Evd;
use dat_core::event::{ConnectionEvent as E, DtoStatus, Event};
use dat_core::flags::{Close, CompletionFlags as F, EvdFlags, MemPriv, VaType};
use dat_core::ia::{AsyncEvd, Ia};
use dat_core::ia_params::IaParams;
use dat_core::iov::LmrTriplet;
use dat_core::lmr::{Lmr, Source};
use dat_core::pz::Pz;
use dat_core::sp::Sp;
use dat_core::transport::Transport;
use dat_loopback::Loopback;
use loopback::{WAIT, wait};

const NONE: F = F::empty();

fn number(event: Event) -> E {
    match event {
        Event::Connection { number, .. } => number,
        other => panic!("{other:?} is not a connection event"),
    }
}

/// One endpoint with EVDs of its own, and a buffer.
struct End {
    ep: &'static Ep<Loopback>,
    recv: &'static Evd<Loopback>,
    request: &'static Evd<Loopback>,
    conn: &'static Evd<Loopback>,
    buffer: LmrTriplet,
}

impl End {
    fn new(ia: &'static Ia<Loopback>, pz: &'static Pz<Loopback>) -> Self {
        let evd = |flags| Evd::create(ia, 16, None, flags).unwrap();
        let bytes = vec![0x5a_u8; 64].leak();
        let address = bytes.as_ptr() as usize;
        let lmr = Lmr::create(
            ia,
            Source::Virtual(address),
            64,
            pz,
            MemPriv::ALL,
            VaType::Va,
        );
        let (recv, request) = (evd(EvdFlags::DTO), evd(EvdFlags::DTO));
        let conn = evd(EvdFlags::CONNECTION);
        let parts = EpParts {
            pz: Some(pz),
            recv_evd: Some(recv),
            request_evd: Some(request),
            connect_evd: Some(conn),
            srq: None,
        };
        Self {
            ep: Ep::create(ia, parts, None).unwrap(),
            recv,
            request,
            conn,
            buffer: LmrTriplet {
                virtual_address: address as u64,
                segment_length: 64,
                lmr_context: lmr.unwrap().info().unwrap().lmr_context,
            },
        }
    }

    /// Removes the remaining events of the old connection, and resets the endpoint.
    fn reset(&self) {
        self.ep.reset().unwrap();
        assert_eq!(self.ep.status(), (EpState::Unconnected, true, true));
        while self.recv.dequeue(None).is_ok() || self.request.dequeue(None).is_ok() {}
    }
}

fn open(address: &str) -> (&'static Ia<Loopback>, &'static Pz<Loopback>) {
    let params = IaParams::parse(address).unwrap();
    let ia = Ia::open("churn", &params, 8, AsyncEvd::New, 0x7ab1e).unwrap();
    (ia, Pz::create(ia).unwrap())
}

#[test]
fn endpoints_connect_and_disconnect_repeatedly() {
    const ROUNDS: u64 = 60;
    std::thread::scope(|scope| {
        for pair in 0..3u64 {
            scope.spawn(move || {
                let (ia, pz) = open("127.0.7.1");
                let (client, server) = (End::new(ia, pz), End::new(ia, pz));
                let requests = Evd::create(ia, 4, None, EvdFlags::CR).unwrap();
                let remote = ia.attributes().unwrap().address;
                for round in 0..ROUNDS {
                    let psp = Sp::psp_create(ia, Some(700 + pair), requests, false).unwrap();
                    server.ep.post_recv(&[server.buffer], round, NONE).unwrap();
                    client
                        .ep
                        .connect(remote, 700 + pair, WAIT, b"", 0, 0)
                        .unwrap();
                    let Event::ConnectionRequest { cr, .. } = wait(requests) else {
                        panic!("no request");
                    };
                    let cr = Loopback::arenas().cr.from_addr(cr).unwrap();
                    cr.accept(Some(server.ep), &round.to_be_bytes()).unwrap();
                    assert_eq!(number(wait(client.conn)), E::Established);
                    assert_eq!(number(wait(server.conn)), E::Established);
                    let reported = client.ep.private_data().to_vec();
                    assert_eq!(reported[..8], round.to_be_bytes());
                    psp.free().unwrap();
                    for _ in 0..5 {
                        client
                            .ep
                            .post_send(&[client.buffer], 1, F::SUPPRESS)
                            .unwrap();
                        let Event::Dto(got) = wait(server.recv) else {
                            panic!("no message");
                        };
                        assert_eq!((got.cookie, got.status), (round, DtoStatus::Success));
                        assert_eq!(got.length, 64);
                        server.ep.post_recv(&[server.buffer], round, NONE).unwrap();
                    }
                    // One side disconnects, the other, or both at once, abruptly or gracefully.
                    let how = [Close::Abrupt, Close::Graceful][(round / 3 % 2) as usize];
                    if round % 3 != 1 {
                        client.ep.disconnect(how).unwrap();
                    }
                    if round % 3 != 0 {
                        let _ = server.ep.disconnect(how);
                    }
                    assert_eq!(number(wait(client.conn)), E::Disconnected);
                    assert_eq!(number(wait(server.conn)), E::Disconnected);
                    client.reset();
                    server.reset();
                }
                ia.close(Close::Abrupt).unwrap();
            });
        }
    });
}

#[test]
fn endpoints_are_freed_during_calls() {
    let (ia, pz) = open("127.0.7.2");
    // Room for all 180 requests: core refuses a request without room, which is not tested here.
    let requests = Evd::create(ia, 256, None, EvdFlags::CR).unwrap();
    let psp = Sp::psp_create(ia, Some(710), requests, true).unwrap();
    let remote = ia.attributes().unwrap().address;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let mut got = None;
                let span = Some(Duration::from_millis(5));
                if requests.wait(span, 1, &mut got).is_err() {
                    continue;
                }
                if let Some(Event::ConnectionRequest { cr, .. }) = got {
                    let cr = Loopback::arenas().cr.from_addr(cr).unwrap();
                    let _ = cr.reject(b"busy");
                }
            }
        });
        let workers: Vec<_> = (0..3u32)
            .map(|n| {
                scope.spawn(move || {
                    for round in 0..60 {
                        let end = End::new(ia, pz);
                        end.ep.post_recv(&[end.buffer], 1, NONE).unwrap();
                        let span = Some(Duration::from_micros(u64::from(1 + 50 * (round % 7))));
                        end.ep.connect(remote, 710, span, b"", 0, 0).unwrap();
                        if (n + round) % 2 == 0 {
                            let event = number(wait(end.conn));
                            assert!(matches!(event, E::PeerRejected | E::TimedOut), "{event:?}");
                        }
                        end.ep.free().unwrap();
                        for evd in [end.recv, end.request, end.conn] {
                            evd.free().unwrap();
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    psp.free().unwrap();
    ia.close(Close::Abrupt).unwrap();
}

/// A completion queue is as long as the endpoints that exist need it.
#[test]
fn ended_endpoints_leave_the_completion_queue_of_an_evd_that_nobody_polls() {
    const RECEIVES: u64 = 16;
    let (ia, pz) = open("127.0.7.3");
    let (client, server) = (End::new(ia, pz), End::new(ia, pz));
    let requests = Evd::create(ia, 4, None, EvdFlags::CR).unwrap();
    let psp = Sp::psp_create(ia, Some(720), requests, false).unwrap();
    let remote = ia.attributes().unwrap().address;
    let parts = EpParts {
        pz: Some(pz),
        recv_evd: Some(server.recv),
        request_evd: Some(server.request),
        connect_evd: Some(server.conn),
        srq: None,
    };
    for round in 0..80 {
        let to = Ep::create(ia, parts, None).unwrap();
        for cookie in 0..RECEIVES {
            to.post_recv(&[server.buffer], cookie, NONE).unwrap();
        }
        client.ep.connect(remote, 720, WAIT, b"", 0, 0).unwrap();
        let Event::ConnectionRequest { cr, .. } = wait(requests) else {
            panic!("no request");
        };
        let cr = Loopback::arenas().cr.from_addr(cr).unwrap();
        cr.accept(Some(to), b"").unwrap();
        assert_eq!(number(wait(client.conn)), E::Established);
        assert_eq!(number(wait(server.conn)), E::Established);
        to.disconnect(Close::Abrupt).unwrap();
        assert_eq!(number(wait(client.conn)), E::Disconnected);
        assert_eq!(number(wait(server.conn)), E::Disconnected);
        if round % 2 == 0 {
            to.reset().unwrap();
        }
        to.free().unwrap();
        client.reset();
    }
    let mut got = None;
    let errors = ia.async_evd().unwrap();
    assert!(errors.dequeue(&mut got).is_err(), "{got:?}");
    psp.free().unwrap();
    ia.close(Close::Abrupt).unwrap();
}
