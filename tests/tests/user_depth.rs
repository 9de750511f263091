//! Maximum of outstanding operations on the user engine: an endpoint's memory grows with its operations, not with its
//! limits.

use dat::{DtoStatus, Error};
use dat_core::error::{Error as Code, Kind};
use dat_tests::engine::{Endpoint, Limits, TIMEOUT};

const MOST: u32 = 1 << 20;
/// The number that NetPIPE requests.
const MANY: u32 = 20_000;
const MESSAGE: usize = 8;

fn open(name: &str, depth: u32) -> Endpoint {
    let limits = Limits {
        receives: depth,
        requests: depth,
        reads: 4,
        memory: MANY as usize * MESSAGE,
    };
    Endpoint::open(name, limits)
}

/// Returns the range of message `n`.
fn message(n: usize) -> std::ops::Range<usize> {
    n * MESSAGE..(n + 1) * MESSAGE
}

/// Returns the cookies of the next `count` completions, in order.
fn cookies(endpoint: &Endpoint, count: u32) -> Vec<u64> {
    let next = |_| {
        let done = endpoint
            .completions
            .wait_completion(TIMEOUT)
            .expect("a completion");
        assert_eq!(done.status, DtoStatus::Success);
        done.cookie
    };
    (0..count).map(next).collect()
}

/// Returns the resident memory of this process in bytes.
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
        // A limit that ia_params.md lists.
        drop(open("few", 32 << 10));
        let (a, _warm) = (open("a", MANY), open("b", 16));
        let before = resident();
        let large = open("b", MOST);
        let made = resident().saturating_sub(before);
        assert!(made < 2 << 20, "{made} bytes for an endpoint without DTOs");

        a.connect(&large);
        for round in 0..2u64 {
            for n in 0..MANY as usize {
                let bytes = (n as u64 * 3 + round).to_ne_bytes();
                a.memory.write(n * MESSAGE, &bytes);
                let into = [large.memory.slice(message(n))];
                large.ep.post_recv(&into, n as u64).expect("posted");
            }
            for n in 0..MANY as usize {
                let from = [a.memory.slice(message(n))];
                a.ep.post_send(&from, n as u64).expect("posted");
            }
            let all: Vec<u64> = (0..u64::from(MANY)).collect();
            assert_eq!(cookies(&large, MANY), all);
            assert_eq!(cookies(&a, MANY), all);
            for n in 0..MANY as usize {
                let bytes = (n as u64 * 3 + round).to_ne_bytes();
                assert_eq!(large.memory.to_vec(message(n)), bytes);
            }
        }
        let used = resident().saturating_sub(before);
        assert!(used < 40 << 20, "{used} bytes for {MANY} DTOs each way");

        // The requested limit holds.
        let into = [a.memory.slice(0..MESSAGE)];
        for n in 0..MANY {
            a.ep.post_recv(&into, n.into()).expect("posted");
        }
        let error = a.ep.post_recv(&into, 0).expect_err("one too many");
        assert_eq!(kind(&error.into()), Some(Kind::InsufficientResources));
        let builder =
            a.ia.endpoint(&a.pz)
                .recv_evd(&a.completions)
                .request_evd(&a.completions);
        let beyond = builder.max_requests(MOST + 1).create();
        let error = beyond.expect_err("beyond the adapter's limit");
        assert!(
            matches!(error, Error::Limit { given, most, .. } if given == MOST + 1 && most == MOST),
            "{error}"
        );
    });
}
