//! A Rust program that links the engine and opens adapters through dat-core, without a provider's shared object.

use std::time::Duration;

use dat_core::attributes::EpAttr;
use dat_core::ep::{Ep, EpParts};
use dat_core::evd::Evd;
use dat_core::event::{ConnectionEvent, DtoStatus, Event};
use dat_core::flags::{Close, CompletionFlags, EvdFlags, MemPriv, VaType};
use dat_core::ia::{AsyncEvd, Ia};
use dat_core::ia_params::IaParams;
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::lmr::{Lmr, Source};
use dat_core::pz::Pz;
use dat_core::sp::Sp;
use dat_core::transport::Transport;
use softrxe_engine::{KEYS, UserEngine, default_address};

const NONE: CompletionFlags = CompletionFlags::empty();
const LENGTH: usize = 3 * 4096 + 17;

/// An adapter with its queues and a registered buffer.
struct Side {
    ia: &'static Ia<UserEngine>,
    dto: &'static Evd<UserEngine>,
    conn: &'static Evd<UserEngine>,
    cr: &'static Evd<UserEngine>,
    ep: &'static Ep<UserEngine>,
    memory: &'static mut [u8],
    local: LmrTriplet,
    remote: RmrTriplet,
}

impl Side {
    fn open(address: &str, settings: &str, fill: u8) -> Self {
        let params = IaParams::parse(&format!("{address} 0 {settings}")).unwrap();
        // The table is what C programs call; nothing reads it here.
        let ia = Ia::open("static", &params, 8, AsyncEvd::New, 0x7ab1e).unwrap();
        let evd = |flags| Evd::create(ia, 16, None, flags).unwrap();
        let (dto, conn, cr) = (
            evd(EvdFlags::DTO),
            evd(EvdFlags::CONNECTION),
            evd(EvdFlags::CR),
        );
        let pz = Pz::create(ia).unwrap();
        let parts = EpParts {
            pz: Some(pz),
            recv_evd: Some(dto),
            request_evd: Some(dto),
            connect_evd: Some(conn),
            srq: None,
        };
        let ep = Ep::create(ia, parts, Some(&attr())).unwrap();
        let memory = vec![fill; LENGTH].leak();
        let start = memory.as_ptr() as usize;
        let source = Source::Virtual(start);
        let length = memory.len() as u64;
        let lmr = Lmr::create(ia, source, length, pz, MemPriv::ALL, VaType::Va).unwrap();
        let info = lmr.info().unwrap();
        Self {
            ia,
            dto,
            conn,
            cr,
            ep,
            memory,
            local: LmrTriplet {
                virtual_address: start as u64,
                segment_length: LENGTH as u32,
                lmr_context: info.lmr_context,
            },
            remote: RmrTriplet {
                virtual_address: start as u64,
                segment_length: LENGTH as u32,
                rmr_context: info.rmr_context,
            },
        }
    }
}

fn attr() -> EpAttr {
    EpAttr {
        service_type: 0,
        max_message_size: 1 << 16,
        max_rdma_size: 1 << 16,
        qos: 0,
        recv_completion_flags: NONE,
        request_completion_flags: NONE,
        max_recv_dtos: 4,
        max_request_dtos: 4,
        max_recv_iov: 1,
        max_request_iov: 1,
        max_rdma_read_in: 1,
        max_rdma_read_out: 1,
        srq_soft_hw: -1,
        max_rdma_read_iov: 1,
        max_rdma_write_iov: 1,
    }
}

fn wait(evd: &'static Evd<UserEngine>) -> Event {
    let mut got = None;
    evd.wait(Some(Duration::from_secs(10)), 1, &mut got)
        .expect("an event within 10 s");
    got.unwrap()
}

#[track_caller]
fn completed(evd: &'static Evd<UserEngine>, cookie: u64) {
    let event = wait(evd);
    let Event::Dto(dto) = event else {
        panic!("{event:?} is no DTO completion");
    };
    assert_eq!((dto.cookie, dto.status), (cookie, DtoStatus::Success));
}

#[track_caller]
fn established(evd: &'static Evd<UserEngine>) {
    let event = wait(evd);
    let is_established = matches!(
        event,
        Event::Connection {
            number: ConnectionEvent::Established,
            ..
        }
    );
    assert!(is_established, "{event:?}");
}

fn accept(server: &Side) {
    let event = wait(server.cr);
    let Event::ConnectionRequest { cr, .. } = event else {
        panic!("{event:?} is no connection request");
    };
    let cr = UserEngine::arenas().cr.from_addr(cr).unwrap();
    cr.accept(Some(server.ep), b"").unwrap();
    established(server.conn);
}

#[test]
fn two_adapters_of_a_program_move_bytes() {
    assert!(KEYS.contains(&"pcap"));
    assert!(default_address().is_none_or(|ip| !ip.is_unspecified()));
    let (client, server) = (
        Side::open("127.77.9.1", "", 1),
        Side::open("127.77.9.2", "", 2),
    );

    let psp = Sp::psp_create(server.ia, None, server.cr, false).unwrap();
    let qual = psp.info().unwrap().conn_qual;
    let address = server.ia.attributes().unwrap().address;
    client
        .ep
        .connect(address, qual, None, b"hello", 0, 0)
        .unwrap();
    accept(&server);
    established(client.conn);

    server.ep.post_recv(&[server.local], 10, NONE).unwrap();
    client.ep.post_send(&[client.local], 11, NONE).unwrap();
    completed(server.dto, 10);
    completed(client.dto, 11);
    assert!(server.memory.iter().all(|byte| *byte == 1));

    server.memory.fill(3);
    client
        .ep
        .post_rdma_read(&[client.local], 12, &server.remote, NONE)
        .unwrap();
    completed(client.dto, 12);
    assert!(client.memory.iter().all(|byte| *byte == 3));

    client.memory.fill(4);
    client
        .ep
        .post_rdma_write(&[client.local], 13, &server.remote, NONE)
        .unwrap();
    completed(client.dto, 13);
    assert!(server.memory.iter().all(|byte| *byte == 4));

    for side in [client, server] {
        side.ia.close(Close::Abrupt).unwrap();
    }
}

/// A peer of the same host notices the end of a process by itself, as a broken connection.
#[test]
fn a_program_that_exits_disconnects() {
    const QUAL: &str = "DAT_TEST_QUAL";
    const NAME: &str = "a_program_that_exits_disconnects";
    if let Ok(qual) = std::env::var(QUAL) {
        let client = Side::open("127.77.9.3", "near=off", 1);
        let server = "127.77.9.4".parse().unwrap();
        client
            .ep
            .connect(server, qual.parse().unwrap(), None, b"", 0, 0)
            .unwrap();
        established(client.conn);
        std::process::exit(0);
    }
    let server = Side::open("127.77.9.4", "near=off", 2);
    let psp = Sp::psp_create(server.ia, None, server.cr, false).unwrap();
    let qual = psp.info().unwrap().conn_qual.to_string();
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    let mut client = program
        .args(["--exact", NAME])
        .env(QUAL, qual)
        .spawn()
        .unwrap();
    accept(&server);
    let event = wait(server.conn);
    let is_disconnected = matches!(
        event,
        Event::Connection {
            number: ConnectionEvent::Disconnected,
            ..
        }
    );
    assert!(is_disconnected, "{event:?}");
    client.wait().unwrap();
    server.ia.close(Close::Abrupt).unwrap();
}
