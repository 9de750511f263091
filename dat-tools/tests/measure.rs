//! `dat serve`, `dat ping` and `dat perf` as a user runs them, over the user engine.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use dat::{Event, Ia, Streams};
use serde_json::Value;

/// Time limit on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// No other test uses it. Each test here has two addresses of it.
const NETWORK: &str = "127.88.7";

/// Runs `body` in a process whose dat.conf has the IAs `server` and `client`, at the addresses `host` and `host` + 1. `name` is the
/// test that calls this.
fn with_ias(name: &str, host: u8, body: impl FnOnce(&str)) {
    let address = format!("{NETWORK}.{host}");
    if dat_tests::is_inner() {
        return body(&address);
    }
    let library = dat_tests::softrxe();
    let line = |ia, host| {
        let params = format!("{NETWORK}.{host} 0 engine=user");
        dat_tests::line(ia, &library, &params)
    };
    let lines = line("server", host) + &line("client", host + 1);
    dat_tests::inside(name, || lines, || {});
}

fn command(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    command.args(words.split_whitespace()).stdin(Stdio::null());
    command
}

fn run(words: &str) -> Output {
    command(words).output().expect("dat runs")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the standard output of a command that succeeds.
fn text(words: &str) -> String {
    let output = run(words);
    assert!(output.status.success(), "{words}: {}", err(&output));
    out(&output)
}

fn json(words: &str) -> Value {
    let text = text(words);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words}: {error}: {text}"))
}

/// A process that runs beside the test; dropping it kills it.
struct Running {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(words: &str) -> Self {
        let mut command = command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("dat runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, lines }
    }

    /// Reads lines until one contains `part`.
    fn until(&mut self, part: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            let count = self.lines.read_line(&mut line).expect("text");
            assert!(count > 0, "no line contains {part:?}: {all}");
            if line.contains(part) {
                return line;
            }
            all += &line;
        }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let mut kill = Command::new("kill");
        let sent = kill.args(["-s", name, &id]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Waits for the end, and returns the status and standard error.
    fn end(mut self) -> (Option<i32>, String) {
        let mut stderr = self.child.stderr.take().expect("a pipe");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut text).expect("text");
        (self.child.wait().expect("it ends").code(), text)
    }
}

fn serve() -> Running {
    let mut server = Running::start("serve server");
    server.until("connection qualifier 18516");
    server
}

#[test]
fn every_operation_is_validated_for_two_clients_at_once() {
    with_ias(
        "every_operation_is_validated_for_two_clients_at_once",
        1,
        |host| {
            let _server = serve();
            let words = format!(
                "perf client {host} --op all -s 1,5000 -n 40 -w 5 -q 2 -t 16 --validate --json"
            );
            std::thread::scope(|scope| {
                for mode in ["", " --wait"] {
                    let words = words.clone() + mode;
                    scope.spawn(move || every_operation_is_there(&json(&words)));
                }
            });
        },
    );
}

fn every_operation_is_there(report: &Value) {
    let results = report["results"].as_array().expect("results");
    // Three operations have two sizes and two measures, the two atomics one size.
    assert_eq!(results.len(), 3 * 2 * 2 + 2 * 2, "{report}");
    for result in results {
        assert_eq!(
            result["iterations"], 80,
            "two connections, 40 each: {result}"
        );
        let number = |value: &Value| value.as_f64().expect("a number");
        if result["measure"] == "latency" {
            let figures = &result["latency_us"];
            let rising = ["min", "p50", "p90", "p99", "p99.9", "max"].map(|k| number(&figures[k]));
            assert!(rising[0] > 0.0 && rising.is_sorted(), "{result}");
        } else {
            let figures = &result["bandwidth"];
            let average = number(&figures["average_mib_per_second"]);
            assert!(
                average > 0.0 && number(&figures["peak_mib_per_second"]) >= average,
                "{result}"
            );
        }
    }
    let of = |op: &str| results.iter().filter(|r| r["operation"] == *op).count();
    assert_eq!(
        ["send", "write", "read", "fetch-add", "compare-swap"].map(of),
        [4, 4, 4, 2, 2]
    );
}

#[test]
fn unvalidated_streams_have_all_their_iterations() {
    with_ias("unvalidated_streams_have_all_their_iterations", 3, |host| {
        let _server = serve();
        let words = format!("perf client {host} --op all -n 500 -q 3 -t 32 --csv");
        let text = text(&words);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(rows.len(), 1 + 5 * 2, "{text}");
        for row in &rows[1..] {
            assert_eq!((row.len(), row[4]), (rows[0].len(), "1500"), "{text}");
        }
        // A time instead of a number, on memory that each connection uses again and again.
        let timed = json(&format!(
            "perf client {host} -D 0.05 -s 64K --op send,write --json"
        ));
        let results = timed["results"].as_array().expect("results");
        assert_eq!(results.len(), 4);
        assert!(
            results
                .iter()
                .all(|r| r["iterations"].as_u64().is_some_and(|n| n > 0))
        );
    });
}

#[test]
fn plots_and_tables_are_written_whole_or_not_at_all() {
    with_ias(
        "plots_and_tables_are_written_whole_or_not_at_all",
        5,
        |host| {
            let _server = serve();
            let dir = tempfile::tempdir().expect("a folder");
            let plot = dir.path().join("plot.svg");
            let words = format!(
                "perf client {host} -s 1,64,4K -n 20 --graph --plot {}",
                plot.display()
            );
            let text = text(&words);
            assert!(
                text.contains("99.9% percentile[usec]") && text.contains("      4K |"),
                "{text}"
            );
            let picture = fs::read_to_string(&plot).expect("the plot");
            assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
            assert_eq!(picture.matches("<circle").count(), 6);
            let again = run(&words);
            assert!(err(&again).contains("exists; --force"), "{}", err(&again));
            let nowhere = run(&format!("perf client {host} --plot /no/such/folder/x.svg"));
            assert!(
                err(&nowhere).contains("there is no folder /no/such/folder"),
                "{}",
                err(&nowhere)
            );
            assert_eq!(out(&nowhere), "", "nothing is measured before");

            let full = File::options()
                .write(true)
                .open("/dev/full")
                .expect("/dev/full");
            let new = dir.path().join("new.svg");
            let words = format!("perf client {host} -n 5 --plot {}", new.display());
            let done = command(&words).stdout(full).output().expect("dat runs");
            assert_eq!(done.status.code(), Some(1));
            assert!(err(&done).contains("No space left"), "{}", err(&done));
            let mut child = command(&words)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("dat runs");
            drop(child.stdout.take());
            let done = child.wait_with_output().expect("dat ends");
            assert_eq!((done.status.code(), err(&done).as_str()), (Some(141), ""));
            assert_eq!(dir.path().read_dir().expect("a folder").count(), 1);
        },
    );
}

#[test]
fn a_ping_compares_what_comes_back() {
    with_ias("a_ping_compares_what_comes_back", 7, |host| {
        let mut server = serve();
        let text = text(&format!("ping client {host} -c 3 -i 0"));
        assert_eq!(text.matches("64 bytes from").count(), 3, "{text}");
        assert!(text.contains("3 messages of 64 bytes came back whole"));
        let report = json(&format!(
            "ping client {host} -c 100 -i 0 -s 100K --poll --json"
        ));
        assert_eq!(
            (&report["messages"], &report["bytes"]),
            (&100.into(), &102_400.into())
        );
        assert!(server.until("102400 bytes").contains("100 messages"));
        // Without an end, until it is interrupted.
        let mut endless = Running::start(&format!("ping client {host} -c 0 -i 0.01"));
        endless.until("message 3,");
        endless.signal("INT");
        endless.until("came back whole");
        assert_eq!(endless.end(), (Some(0), String::new()));
        server.signal("TERM");
        assert_eq!(server.end(), (Some(0), String::new()));
    });
}

#[test]
fn a_missing_server_and_wrong_words_are_reported() {
    with_ias("a_missing_server_and_wrong_words_are_reported", 9, |host| {
        // The address is up, and nothing listens there.
        let _ia = Ia::open("server").expect("opens");
        for words in ["perf client", "ping client"] {
            let done = run(&format!("{words} {host}"));
            assert_eq!(done.status.code(), Some(1));
            let text = err(&done);
            assert!(
                text.contains("nothing listens") && text.contains("start `dat serve`"),
                "{text}"
            );
            let sender = format!("asked by IA client at {NETWORK}.10:");
            assert!(text.contains(&sender), "{text} lacks {sender}");
        }
        for (words, part) in [
            (format!("perf client {host} -s 0"), "it must be 1 to"),
            (format!("perf client {host} --op fly"), "[possible values"),
            (format!("perf client {host} --csv --json"), "cannot be used"),
            (format!("ping client {host} -i -1"), "seconds from 0 to"),
        ] {
            let done = run(&words);
            assert_eq!(done.status.code(), Some(2), "{words}: {}", err(&done));
            assert!(err(&done).contains(part), "{words}: {}", err(&done));
        }
        for (words, part) in [
            ("perf nothing 127.0.0.1", "has no IA \"nothing\""),
            ("ping client no-such-host.invalid", "is no address that"),
            ("perf client ::1", "another address family"),
            (
                "ping client 192.0.2.1",
                "no packet can be sent to 192.0.2.1",
            ),
        ] {
            let done = run(words);
            assert_eq!(done.status.code(), Some(1), "{words}");
            assert!(err(&done).contains(part), "{words}: {}", err(&done));
        }
        let first = serve();
        let second = run("serve server");
        assert_eq!(second.status.code(), Some(1));
        assert!(err(&second).contains("runs already"), "{}", err(&second));
        drop(first);
    });
}

/// Magic, version and code of an answer, as `dat serve` of another release would send it.
fn answer(version: u16, code: u8) -> Vec<u8> {
    let mut bytes = b"DATm".to_vec();
    bytes.extend(version.to_be_bytes());
    bytes.extend([code; 18]);
    bytes
}

#[test]
fn another_version_and_another_program_are_told_apart() {
    with_ias(
        "another_version_and_another_program_are_told_apart",
        11,
        |host| {
            let ia = Ia::open("server").expect("opens");
            let requests = ia
                .create_evd(16, Streams::CR | Streams::CONNECTION)
                .expect("an EVD");
            let listener = ia.listen(Some(18_600), &requests).expect("listens");
            for (reply, part) in [
                (answer(2, 1), "speaks version 2 of the measuring protocol"),
                (Vec::new(), "is not `dat serve`"),
                (b"some other server's words".to_vec(), "is not `dat serve`"),
                (answer(1, 3), "refused: it lacks memory"),
                (answer(1, 99), "is not `dat serve`"),
            ] {
                let client = std::thread::spawn({
                    let words = format!("ping client {host} -p 18600");
                    move || run(&words)
                });
                let Ok(Event::Request(request)) = requests.wait(PATIENCE) else {
                    panic!("no request");
                };
                assert!(request.private_data().starts_with(b"DATm\0\x01"));
                request.reject(&reply).expect("rejected");
                let done = client.join().expect("the client ends");
                assert_eq!(done.status.code(), Some(1));
                assert!(err(&done).contains(part), "{reply:?}: {}", err(&done));
            }
            drop(listener);
            a_server_refuses_other_versions(host.parse().expect("an address"));
        },
    );
}

/// A client with another version learns the server's, and the server goes on.
fn a_server_refuses_other_versions(host: IpAddr) {
    let mut server = serve();
    let ia = Ia::open("client").expect("opens");
    let pz = ia.create_pz().expect("a PZ");
    let done = ia.create_evd(16, Streams::DTO).expect("an EVD");
    let connections = ia.create_evd(16, Streams::CONNECTION).expect("an EVD");
    let mut request = answer(9, 0);
    request.extend([0; 16]);
    for (private_data, part) in [
        (request.as_slice(), "version 9"),
        (b"hello".as_slice(), "neither `dat ping` nor `dat perf`"),
        // Of the right version, with 0 bytes and a depth of 0.
        (
            &{
                let mut zero = answer(1, 0);
                zero.extend([0; 16]);
                zero
            },
            "beyond the limits",
        ),
    ] {
        let builder = ia.endpoint(&pz).recv_evd(&done).request_evd(&done);
        let ep = builder.connect_evd(&connections).create().expect("an EP");
        ep.connect(host, 18_516)
            .private_data(private_data)
            .timeout(PATIENCE)
            .start()
            .expect("starts");
        let Ok(Event::PeerRejected { private_data, .. }) = connections.wait(PATIENCE) else {
            panic!("not rejected");
        };
        assert!(private_data.starts_with(b"DATm\0\x01"), "{private_data:?}");
        assert!(server.until("refused").contains(part));
    }
    text(&format!("ping client {host} -c 1"));
}

#[test]
fn a_dead_peer_and_an_interruption_end_a_measurement() {
    with_ias(
        "a_dead_peer_and_an_interruption_end_a_measurement",
        13,
        |host| {
            for op in ["send", "write", "read"] {
                for measure in ["latency", "bandwidth"] {
                    let mut server = serve();
                    let words = format!("perf client {host} --op {op} -m {measure} -D 3600");
                    let mut client = Running::start(&words);
                    client.until("#bytes");
                    server.child.kill().expect("killed");
                    let (status, text) = client.end();
                    assert_eq!(status, Some(1), "{words}: {text}");
                    for part in [op, measure, "the connection to", "`dat serve` still runs"] {
                        assert!(text.contains(part), "{words}: {text} lacks {part}");
                    }
                }
            }
            let mut server = serve();
            let mut client = Running::start(&format!("perf client {host} -m latency -D 3600"));
            client.until("#bytes");
            client.signal("INT");
            let (status, text) = client.end();
            assert_eq!(status, Some(1), "{text}");
            assert!(
                text.contains("interrupted (0 of 1 measurements are complete)"),
                "{text}"
            );
            server.until("echo of 64 bytes");
            // A client that is killed leaves the server as it was.
            let mut client = Running::start(&format!("perf client {host} -m latency -D 3600"));
            client.until("#bytes");
            client.child.kill().expect("killed");
            server.until("echo of 64 bytes");
            text_of_one_ping(host);
            // A server that is interrupted tells its client.
            let mut client = Running::start(&format!("perf client {host} -m latency -D 3600"));
            client.until("#bytes");
            server.signal("INT");
            assert_eq!(server.end().0, Some(0));
            let (status, text) = client.end();
            assert_eq!(status, Some(1), "{text}");
            assert!(text.contains("the connection to"), "{text}");
        },
    );
}

#[test]
fn a_ping_says_that_it_waits() {
    with_ias("a_ping_says_that_it_waits", 17, |host| {
        // What is sent there is never answered.
        let _silent = UdpSocket::bind((host, 4791)).expect("the port is free");
        let mut client = Running::start(&format!("ping client {host}"));
        let mut said = BufReader::new(client.child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).expect("text");
        let wants = format!(
            "dat: waiting for {host}, connection qualifier 18516 to answer IA client at {NETWORK}.18, 30 s at most\n"
        );
        assert_eq!(line, wants);
    });
}

fn text_of_one_ping(host: &str) {
    let text = text(&format!("ping client {host} -c 1 -q"));
    assert!(text.contains("1 message of 64 bytes came"), "{text}");
}

#[test]
fn the_demo_reports_as_json() {
    with_ias("the_demo_reports_as_json", 15, |host| {
        let report = json("demo --ia server --json");
        assert_eq!(
            (&report["pass"], &report["address"]),
            (&true.into(), &host.into())
        );
        let results = report["results"].as_array().expect("results");
        let names: Vec<&str> = results
            .iter()
            .filter_map(|r| r["operation"].as_str())
            .collect();
        assert_eq!(
            names,
            [
                "connect",
                "send/receive, there and back",
                "RDMA write",
                "RDMA read",
                "disconnect"
            ]
        );
        assert!(results.iter().all(|r| r["verified"] == true));
    });
}
