//! UCX, libfabric and iperf3, measured with their own benchmark programs.

use std::net::TcpListener;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Result;
use crate::pair::Peer;

/// Time limit of a tool, in seconds.
const TIMEOUT: &str = "20";

/// The number to read from a tool's line of output.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    ucx: usize,
    fabric: usize,
    /// Factor to the table's unit.
    scale: f64,
}

/// Microseconds: the median of UCX, the mean of libfabric, which has no other.
pub(crate) const LATENCY: Column = Column {
    ucx: 1,
    fabric: 6,
    scale: 1.0,
};
/// GB/s, from MiB/s of UCX and MB/s of libfabric.
pub(crate) const BANDWIDTH: Column = Column {
    ucx: 5,
    fabric: 5,
    scale: 1e-3,
};
/// Million messages a second.
pub(crate) const RATE: Column = Column {
    ucx: 7,
    fabric: 7,
    scale: 1e-6,
};

/// Returns a TCP port that is free now.
fn free_port() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port()
        .to_string())
}

/// Runs `program` on a processor, with the time limit.
fn on(processor: &str, program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", processor, "timeout", TIMEOUT, program]);
    command
}

fn installed(program: &str) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|dir| dir.join(program).exists()) {
        Ok(())
    } else {
        Err(format!("{program} is not installed (scripts/bootstrap.sh bench)").into())
    }
}

/// Runs a client against a starting server, again until the server answers.
fn client(mut make: impl FnMut() -> Command, line: impl Fn(&str) -> Option<f64>) -> Result<f64> {
    let begin = Instant::now();
    loop {
        let output = make().output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if let Some(value) = text.lines().rev().find_map(&line) {
            return Ok(value);
        }
        if begin.elapsed() > Duration::from_secs(5) {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("no figure in its output: {}{}", text.trim(), said.trim()).into());
        }
        sleep(Duration::from_millis(50));
    }
}

/// Transports of UCX over TCP on the loopback.
pub(crate) const TCP: &str = "tcp";
/// Transports of UCX through shared memory, with and without copies by the kernel from the other process.
pub(crate) const POSIX_CMA: &str = "posix,cma,self";
pub(crate) const POSIX: &str = "posix,self";

/// Runs `ucx_perftest` over `transports`.
pub(crate) fn ucx(
    transports: &'static str,
    test: &'static str,
    size: usize,
    count: usize,
    column: Column,
) -> Result<f64> {
    installed("ucx_perftest")?;
    let port = free_port()?;
    let base = |processor| {
        let mut command = on(processor, "ucx_perftest");
        command.args(["-p", &port]);
        command
            .env("UCX_TLS", transports)
            .env("UCX_NET_DEVICES", "lo")
            .env("UCX_WARN_UNUSED_ENV_VARS", "n");
        command
    };
    let _server = Peer::tool(&mut base("1"))?;
    sleep(Duration::from_millis(200));
    let (size, count) = (size.to_string(), count.max(200).to_string());
    // Converts MiB/s, as printed, to MB/s.
    let mebi = if column.ucx == BANDWIDTH.ucx {
        1.048_576
    } else {
        1.0
    };
    client(
        || {
            let mut command = base("0");
            command.args([
                "-t",
                test,
                "-s",
                &size,
                "-n",
                &count,
                "-w",
                "500",
                "-f",
                "127.0.0.1",
            ]);
            command
        },
        |line| {
            // Columns of the line: iterations, median, average, overall, bandwidth twice, rate twice.
            let numbers: Vec<f64> = line
                .split_whitespace()
                .map(str::parse)
                .collect::<std::result::Result<_, _>>()
                .ok()?;
            (numbers.len() == 8).then(|| numbers[column.ucx] * column.scale * mebi)
        },
    )
}

/// Runs `fi_pingpong`. The sides send in turn, so a bandwidth is that of one message at a time.
pub(crate) fn fabric(
    provider: &'static str,
    endpoint: &'static str,
    size: usize,
    count: usize,
    column: Column,
) -> Result<f64> {
    installed("fi_pingpong")?;
    let port = free_port()?;
    let (size, count) = (size.to_string(), count.max(100).to_string());
    let base = |processor| {
        let mut command = on(processor, "fi_pingpong");
        command.args(["-p", provider, "-e", endpoint, "-I", &count, "-S", &size]);
        command
    };
    let _server = Peer::tool(base("1").args(["-B", &port]))?;
    sleep(Duration::from_millis(200));
    client(
        || {
            let mut command = base("0");
            command.args(["-P", &port, "127.0.0.1"]);
            command
        },
        |line| {
            // Columns: bytes, sent, acknowledged, total, time, MB/s, us each, million/s.
            let words: Vec<&str> = line.split_whitespace().collect();
            (words.len() == 8).then_some(())?;
            Some(words[column.fabric].parse::<f64>().ok()? * column.scale)
        },
    )
}

/// Runs the example `ring_bench` of softrxe-near beside this program; `line` begins the figure's line.
pub(crate) fn ring(line: &'static str, scale: f64) -> Result<f64> {
    let program = std::env::current_exe()?.with_file_name("examples/ring_bench");
    if !program.exists() {
        return Err(format!(
            "{} is not installed: cargo build --release -p softrxe-near --example ring_bench",
            program.display()
        )
        .into());
    }
    let output = Command::new("timeout")
        .arg(TIMEOUT)
        .arg(program)
        .args(["20", line])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = text.lines().find_map(|text| {
        let words: Vec<&str> = text.strip_prefix(line)?.split_whitespace().collect();
        words.first()?.parse::<f64>().ok()
    });
    value
        .map(|value| value * scale)
        .ok_or_else(|| format!("no figure in its output: {}", text.trim()).into())
}

/// Runs the program `tests/bench/near.c`, which scripts/bench.sh builds beside this one, for the figure that `arguments` name.
pub(crate) fn near_c(arguments: &str) -> Result<f64> {
    let program = std::env::current_exe()?.with_file_name("near-c");
    if !program.exists() {
        return Err(format!("{} is not installed: scripts/bench.sh", program.display()).into());
    }
    let mut command = Command::new("timeout");
    command.arg(TIMEOUT).arg(program);
    let output = command.args(arguments.split(' ')).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.trim().parse().map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        format!("near-c {arguments}: no figure in its output: {text}{said}").into()
    })
}

/// Runs the example `tokio_echo` of udapl, which echoes over RDMA (`line` is `rdma`) and over a TcpStream (`tcp`); returns half
/// the median round trip in us.
pub(crate) fn tokio_echo(line: &str) -> Result<f64> {
    const COUNT: &str = "20000";
    let program = std::env::current_exe()?.with_file_name("examples/tokio_echo");
    if !program.exists() {
        return Err(format!("{} is not installed: scripts/bench.sh", program.display()).into());
    }
    let program = program.to_string_lossy();
    // Without a time limit: taskset becomes the server, which ends with its `Peer`.
    let mut server = Command::new("taskset");
    server.args(["-c", "1", &program, "server", "near-server"]);
    let (_server, listens) = Peer::speaking(&mut server)?;
    let mut client = on("0", &program);
    client.args(["client", "near-client"]);
    let output = client
        .args(listens.split_whitespace().skip(1))
        .arg(COUNT)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let each = text.lines().find_map(|text| {
        let mut figures = text.strip_prefix(line)?.split(", ");
        figures.find_map(|figure| micros(figure.strip_suffix(" median")?))
    });
    each.map(|each| each / 2.0).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        format!("tokio_echo: no figure in its output: {text}{said}").into()
    })
}

/// Reads a `Duration` in its own notation; returns microseconds.
fn micros(text: &str) -> Option<f64> {
    let units = [("ns", 1e-3), ("µs", 1.0), ("ms", 1e3), ("s", 1e6)];
    let read = |(unit, scale): (&str, f64)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * scale)
    };
    units.into_iter().find_map(read)
}

/// Runs `iperf3` over one TCP connection; returns GB/s.
pub(crate) fn iperf() -> Result<f64> {
    installed("iperf3")?;
    let port = free_port()?;
    let _server = Peer::tool(on("1", "iperf3").args(["-s", "-1", "-p", &port]))?;
    sleep(Duration::from_millis(300));
    client(
        || {
            let mut command = on("0", "iperf3");
            command.args(["-c", "127.0.0.1", "-p", &port, "-t", "1", "-f", "m"]);
            command
        },
        |line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().position(|word| *word == "Mbits/sec")?;
            let megabits: f64 = words[at.checked_sub(1)?].parse().ok()?;
            line.contains("receiver").then_some(megabits / 8e3)
        },
    )
}
