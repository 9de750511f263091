//! How much an endpoint of the user engine may have outstanding, and that its memory follows what it has.

use std::time::Duration;

use dat::{Access, DtoStatus, Ep, Error, Evd, Event, Ia, Pz, Region, Streams};
use dat_core::error::{Error as Code, Kind};

const PATIENCE: Duration = Duration::from_secs(30);
const MOST: u32 = 1 << 20;
/// What NetPIPE asks for.
const MANY: u32 = 20_000;
const MESSAGE: usize = 8;

/// One end.
struct Side {
    ep: Ep,
    done: Evd,
    connections: Evd,
    memory: Region,
    _pz: Pz,
    ia: Ia,
}

impl Side {
    fn open(name: &str, depth: u32) -> Self {
        let ia = Ia::open(name).expect("the IA opens");
        let pz = ia.create_pz().expect("a PZ");
        let done = ia.create_evd(64, Streams::DTO).expect("an EVD");
        let streams = Streams::CR | Streams::CONNECTION;
        let connections = ia.create_evd(16, streams).expect("an EVD");
        let builder = ia.endpoint(&pz).recv_evd(&done).request_evd(&done);
        let builder = builder.connect_evd(&connections).max_recv(depth);
        let ep = builder.max_requests(depth).create().expect("EP");
        let memory = pz
            .allocate(MANY as usize * MESSAGE, Access::ALL)
            .expect("memory");
        Self {
            ep,
            done,
            connections,
            memory,
            _pz: pz,
            ia,
        }
    }

    fn slice(n: usize) -> std::ops::Range<usize> {
        n * MESSAGE..(n + 1) * MESSAGE
    }

    /// The cookies of the next `count` completions, in order.
    fn cookies(&self, count: u32) -> Vec<u64> {
        let next = |_| {
            let done = self.done.wait_completion(PATIENCE).expect("a completion");
            assert_eq!(done.status, DtoStatus::Success);
            done.cookie
        };
        (0..count).map(next).collect()
    }
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("sizes");
    let pages = text.split_whitespace().nth(1).expect("the resident size");
    // SAFETY: sysconf only answers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    pages.parse::<usize>().expect("a number") * page
}

fn kind(error: &Error) -> Option<Kind> {
    error.code().and_then(Code::kind)
}

#[test]
fn an_endpoint_of_a_million_dtos_takes_the_memory_of_those_it_has() {
    let lines = || {
        let library = dat_tests::softrxe();
        let line = |ia: &str, host: u8, more: &str| {
            let params = format!("127.66.20.{host} 0 engine=user{more}");
            dat_tests::line(ia, &library, &params)
        };
        line("a", 1, "") + &line("b", 2, "") + &line("few", 3, " wr_max=32768")
    };
    let name = "an_endpoint_of_a_million_dtos_takes_the_memory_of_those_it_has";
    dat_tests::inside(name, lines, || {
        // A bound that ia_params.md lists.
        drop(Side::open("few", 32 << 10));
        let (a, _warm) = (Side::open("a", MANY), Side::open("b", 16));
        let before = resident();
        let large = Side::open("b", MOST);
        let made = resident().saturating_sub(before);
        assert!(made < 2 << 20, "{made} bytes for an endpoint without DTOs");

        let listener = large.ia.listen(None, &large.connections).expect("a PSP");
        let address = large.ia.attributes().expect("attributes").address;
        let connect = a.ep.connect(address, listener.conn_qual());
        connect.timeout(PATIENCE).start().expect("started");
        let Event::Request(request) = large.connections.wait(PATIENCE).expect("a request") else {
            panic!("the first event is a request");
        };
        request.accept(&large.ep, b"").expect("accepted");
        for side in [&a, &large] {
            let event = side.connections.wait(PATIENCE).expect("an event");
            assert!(matches!(event, Event::Established { .. }), "{event:?}");
        }
        for round in 0..2u64 {
            for n in 0..MANY as usize {
                let bytes = (n as u64 * 3 + round).to_ne_bytes();
                a.memory.write(n * MESSAGE, &bytes);
                let into = [large.memory.slice(Side::slice(n))];
                large.ep.post_recv(&into, n as u64).expect("posted");
            }
            for n in 0..MANY as usize {
                let from = [a.memory.slice(Side::slice(n))];
                a.ep.post_send(&from, n as u64).expect("posted");
            }
            let all: Vec<u64> = (0..u64::from(MANY)).collect();
            assert_eq!(large.cookies(MANY), all);
            assert_eq!(a.cookies(MANY), all);
            for n in 0..MANY as usize {
                let bytes = (n as u64 * 3 + round).to_ne_bytes();
                assert_eq!(large.memory.to_vec(Side::slice(n)), bytes);
            }
        }
        let used = resident().saturating_sub(before);
        assert!(used < 40 << 20, "{used} bytes for {MANY} DTOs each way");

        // The limit that was asked for holds.
        let into = [a.memory.slice(0..MESSAGE)];
        for n in 0..MANY {
            a.ep.post_recv(&into, n.into()).expect("posted");
        }
        let error = a.ep.post_recv(&into, 0).expect_err("one too many");
        assert_eq!(kind(&error), Some(Kind::InsufficientResources));
        let builder = a.ia.endpoint(&a._pz).recv_evd(&a.done).request_evd(&a.done);
        let beyond = builder.max_requests(MOST + 1).create();
        let error = beyond.expect_err("beyond the adapter's limit");
        assert_eq!(kind(&error), Some(Kind::InvalidParameter));
    });
}
