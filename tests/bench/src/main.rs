//! `make bench`: the user engine beside raw UDP with the same datagrams, UCX, libfabric and iperf3, in one run and one
//! table.
//!
//! Each figure is measured between two processes on two processors. Contestants alternate within a round. The best of
//! all rounds counts, because other work on the machine only makes a figure worse.
//!
//! Two tables: contestants over the network's loopback, where the engine has `near=off`, and contestants through memory of
//! the host, where it has `near=auto`.
//!
//! `ours` measures through an IA of dat.conf, `raw` exchanges the engine's datagrams by bare sockets: the limit. `others` runs the
//! installed tools. `api` compares the Rust API with the table in one process. `pair` starts processes, `table` holds figures and goals.
//! Begin with `ours`. The crate imports `dat`, `dat-abi`, `dat-core` and `softrxe-port`.

mod api;
mod cost;
mod others;
mod ours;
mod pair;
mod raw;
mod table;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Instant;

use ours::Link;
use table::{Contestant, Figure, Table};

/// The reason why a measurement has no figure, for the user.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A measurement of one figure, in the figure's unit.
type Take = Box<dyn Fn() -> Result<f64>>;

const USAGE: &str = "\
usage: dat-bench [--rounds N] [WORD]    measure, print the table; only where WORD is in \"figure, contestant, table\"
       dat-bench cost [WORD]            processor time of a message at each end, also on a busy machine
       dat-bench api                    the Rust API beside the function table, on one connection
DAT_OVERRIDE names a dat.conf with the IAs bench-client and bench-server (scripts/bench.sh writes one).";

fn plan() -> Vec<(Figure, Contestant, Take)> {
    fn take(of: impl Fn() -> Result<f64> + 'static) -> Take {
        Box::new(of)
    }
    use Contestant as W;
    use Figure as F;
    let mut plan = vec![
        (
            F::SendPolled,
            W::Engine,
            take(|| ours::send(Link::Udp, true)),
        ),
        (
            F::SendPolled,
            W::Raw,
            take(|| raw::echo(raw::Wait::Spin, true)),
        ),
        (
            F::SendPolled,
            W::Ucx,
            take(|| others::ucx(others::TCP, "tag_lat", 64, 20_000, others::LATENCY)),
        ),
        (
            F::SendPolled,
            W::FabricTcp,
            take(|| others::fabric("tcp", "msg", 64, 10_000, others::LATENCY)),
        ),
        (
            F::SendPolled,
            W::FabricUdp,
            take(|| others::fabric("udp", "dgram", 64, 10_000, others::LATENCY)),
        ),
        (
            F::DataOnly,
            W::Raw,
            take(|| raw::echo(raw::Wait::Spin, false)),
        ),
        (
            F::SendBlocking,
            W::Engine,
            take(|| ours::send(Link::Udp, false)),
        ),
        (
            F::SendBlocking,
            W::Raw,
            take(|| raw::echo(raw::Wait::Block, true)),
        ),
        (
            F::WritePolled,
            W::Engine,
            take(|| ours::write_latency(Link::Udp)),
        ),
        (
            F::WritePolled,
            W::Ucx,
            take(|| others::ucx(others::TCP, "ucp_put_lat", 64, 20_000, others::LATENCY)),
        ),
        (F::Messages, W::Engine, take(|| ours::messages(Link::Udp))),
        (
            F::Messages,
            W::Raw,
            take(|| Ok(raw::stream(raw::ONLY, 64, ours::DEEP as usize)? / 1e6)),
        ),
        (
            F::Messages,
            W::Ucx,
            take(|| others::ucx(others::TCP, "ucp_put_bw", 64, 500_000, others::RATE)),
        ),
        (F::Crowd, W::Engine, take(ours::crowd)),
        (F::Connections, W::Engine, take(ours::connections)),
    ];
    for (at, size) in table::SIZES.into_iter().enumerate() {
        let deep = table::OUTSTANDING[at];
        plan.push((
            F::Write(at),
            W::Engine,
            take(move || ours::bandwidth(Link::Udp, false, size, deep)),
        ));
        plan.push((
            F::Write(at),
            W::Raw,
            take(move || Ok(raw::stream(raw::MIDDLE, 4096, deep * size / 4096)? * 4096.0 / 1e9)),
        ));
        plan.push((
            F::Write(at),
            W::Ucx,
            take(move || {
                others::ucx(
                    others::TCP,
                    "ucp_put_bw",
                    size,
                    400_000_000 / size,
                    others::BANDWIDTH,
                )
            }),
        ));
        plan.push((
            F::Write(at),
            W::FabricTcp,
            take(move || others::fabric("tcp", "msg", size, 100_000_000 / size, others::BANDWIDTH)),
        ));
        plan.push((
            F::Read(at),
            W::Engine,
            take(move || ours::bandwidth(Link::Udp, true, size, deep)),
        ));
        let count = if size > 100_000 { 400 } else { 4_000 };
        plan.push((
            F::Read(at),
            W::Ucx,
            take(move || others::ucx(others::TCP, "ucp_get", size, count, others::BANDWIDTH)),
        ));
    }
    plan.push((F::Write(2), W::Iperf, take(others::iperf)));
    for (at, count) in table::ENDPOINTS.into_iter().enumerate() {
        plan.push((
            F::Memory(at),
            W::Engine,
            take(move || ours::memory(count, false)),
        ));
        plan.push((
            F::MemoryConnected(at),
            W::Engine,
            take(move || ours::memory(count, true)),
        ));
    }
    plan.extend(same_host());
    plan
}

/// Contestants through memory of the host. UCX's figures are those of tagged messages: its writes go to memory of its own,
/// where DAT's consumers bring theirs.
fn same_host() -> Vec<(Figure, Contestant, Take)> {
    fn take(of: impl Fn() -> Result<f64> + 'static) -> Take {
        Box::new(of)
    }
    use Contestant as W;
    use Figure as F;
    let ucx = [(W::UcxCma, others::POSIX_CMA), (W::UcxPosix, others::POSIX)];
    let near = Link::Near;
    let c = |arguments: &'static str| take(move || others::near_c(arguments));
    // Whose ratio is a goal follow each other: for seconds at a time a virtual machine takes twice as long for all of them.
    let mut plan = vec![
        (F::SendPolled, W::NearC, c("send")),
        (F::SendPolled, W::Near, take(move || ours::send(near, true))),
        (F::SendBlocking, W::NearC, c("wait")),
        (
            F::SendBlocking,
            W::Near,
            take(move || ours::send(near, false)),
        ),
        (F::Tokio, W::Near, take(|| others::tokio_echo("rdma"))),
        (F::WritePolled, W::NearC, c("write")),
        (
            F::WritePolled,
            W::Near,
            take(move || ours::write_latency(near)),
        ),
        (F::Messages, W::NearC, c("rate")),
        (F::Messages, W::Near, take(move || ours::messages(near))),
        (F::WritesWaited, W::NearC, c("waited")),
        (F::Stream, W::NearC, c("messages")),
        (
            F::SendPolled,
            W::Ring,
            take(|| others::ring("64 B after 28 B, half round trip", 1e-3)),
        ),
        (
            F::SendPolled,
            W::FabricShm,
            take(|| others::fabric("shm", "rdm", 64, 10_000, others::LATENCY)),
        ),
        (
            F::Messages,
            W::Ring,
            take(|| others::ring("64 B after 28 B, one way", 1.0)),
        ),
        (F::SendAsleep, W::NearC, c("asleep")),
        (F::SendAsleep, W::Futex, c("futex")),
        (F::Tokio, W::Tcp, take(|| others::tokio_echo("tcp"))),
    ];
    for (who, transports) in ucx {
        plan.push((
            F::SendPolled,
            who,
            take(move || others::ucx(transports, "tag_lat", 64, 50_000, others::LATENCY)),
        ));
        plan.push((
            F::Stream,
            who,
            take(move || others::ucx(transports, "tag_bw", 64, 2_000_000, others::RATE)),
        ));
    }
    let ring = [
        ("4 KiB one way", ""),
        ("64 KiB one way", "64 KiB, one at a time"),
        ("1024 KiB one way", "1024 KiB, one at a time"),
    ];
    for (at, size) in table::SIZES.into_iter().enumerate() {
        let deep = table::OUTSTANDING[at];
        let (one_way, alone) = ring[at];
        plan.push((
            F::Write(at),
            W::Near,
            take(move || ours::bandwidth(near, false, size, deep)),
        ));
        plan.push((
            F::Read(at),
            W::Near,
            take(move || ours::bandwidth(near, true, size, deep)),
        ));
        for (figure, kind) in [(F::Write(at), "put"), (F::Read(at), "get")] {
            let arguments = format!("{kind} {size} {deep}");
            plan.push((figure, W::NearC, take(move || others::near_c(&arguments))));
        }
        plan.push((
            F::Write(at),
            W::Ring,
            take(move || others::ring(one_way, 1.0)),
        ));
        let count = 2_000_000_000 / size;
        for (who, transports) in ucx {
            plan.push((
                F::Write(at),
                who,
                take(move || others::ucx(transports, "tag_bw", size, count, others::BANDWIDTH)),
            ));
        }
        plan.push((
            F::Write(at),
            W::FabricShm,
            take(move || others::fabric("shm", "rdm", size, 200_000_000 / size, others::BANDWIDTH)),
        ));
        if alone.is_empty() {
            continue;
        }
        let arguments = format!("put {size} 1");
        let alone_c = move || Ok(size as f64 / 1e3 / others::near_c(&arguments)?);
        plan.push((F::Alone(at), W::NearC, take(alone_c)));
        plan.push((F::Alone(at), W::Near, take(move || ours::alone(near, size))));
        plan.push((
            F::Alone(at),
            W::Ring,
            take(move || others::ring(alone, 1.0)),
        ));
        for (who, transports) in ucx {
            plan.push((
                F::Alone(at),
                who,
                take(move || others::ucx(transports, "tag_lat", size, 2_000, others::LATENCY)),
            ));
        }
        plan.push((
            F::Alone(at),
            W::FabricShm,
            take(move || others::fabric("shm", "rdm", size, 2_000, others::LATENCY)),
        ));
    }
    plan
}

fn measure(rounds: usize, word: &str) -> ExitCode {
    let begin = Instant::now();
    let mut table = Table::default();
    for round in 1..=rounds {
        for (figure, contestant, take) in plan() {
            // Constant figures are measured once, and so are tools that are not installed.
            let again = round == 1 || figure.varies() && !table.absent(figure, contestant);
            let (name, part) = (contestant.name(), contestant.part());
            let whose = format!("{}, {name}, {part}", figure.name());
            if !again || !whose.contains(word) {
                continue;
            }
            if std::io::stderr().is_terminal() {
                eprint!("\r\x1b[Kround {round} of {rounds}: {whose}");
            }
            table.note(figure, contestant, take());
        }
    }
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    table.print();
    println!("best of {rounds} rounds, {} s", begin.elapsed().as_secs());
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        [] => return measure(3, ""),
        ["--rounds", rounds] => return measure(rounds.parse().unwrap_or(3), ""),
        ["--rounds", rounds, word] => return measure(rounds.parse().unwrap_or(3), word),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        ["cost"] => cost::print(""),
        ["cost", word] => cost::print(word),
        // The other process of a measurement.
        ["serve-ours", name, mode] => ours::serve(name, mode),
        ["put-beside"] => ours::put_beside(),
        ["api"] => api::print(),
        ["serve-raw", mode] => raw::serve(mode),
        ["memory", count] => ours::print_memory(count),
        ["memory-connected", count] => ours::print_memory_connected(count),
        [word] => return measure(3, word),
        _ => Err(USAGE.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dat-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
