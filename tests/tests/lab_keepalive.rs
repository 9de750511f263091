//! `keepalive=`: the user engine, in the namespace `peer`, is connected to real rdma_rxe and only waits for a message
//! when packets stop arriving. It must detect that by itself.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::{Duration, Instant};

use dat::{Access, ConnectionEvent, DtoStatus, Ep, Evd, Event, Ia, Pz, Region, Streams};
use dat_tests::Process;

const PATIENCE: Duration = Duration::from_secs(30);
const KERNEL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const QUAL: u64 = 7310;
/// Time limit: within two intervals of a second and five more (docs/ia_params.md), plus eight for the emulated guest.
const BOUND: Duration = Duration::from_secs(7 + 8);
/// Silence before the cut, during which all works: several intervals.
const SILENCE: Duration = Duration::from_secs(4);

/// One side of a connection, with a receive posted.
struct Side {
    ep: Ep,
    done: Evd,
    connections: Evd,
    _memory: Region,
    _pz: Pz,
    ia: Ia,
}

fn side(name: &str) -> Side {
    let ia = Ia::open(name).expect("the IA opens");
    let pz = ia.create_pz().expect("a PZ");
    let done = ia.create_evd(16, Streams::DTO).expect("an EVD");
    let streams = Streams::CR | Streams::CONNECTION;
    let connections = ia.create_evd(16, streams).expect("an EVD");
    let builder = ia.endpoint(&pz).recv_evd(&done).request_evd(&done);
    let ep = builder
        .connect_evd(&connections)
        .create()
        .expect("an endpoint");
    let memory = pz.allocate(64, Access::ALL).expect("memory");
    ep.post_recv(&[memory.slice(0..64)], 1).expect("posts");
    Side {
        ep,
        done,
        connections,
        _memory: memory,
        _pz: pz,
        ia,
    }
}

fn established(side: &Side) {
    let event = side.connections.wait(PATIENCE);
    assert!(matches!(event, Ok(Event::Established { .. })), "{event:?}");
}

/// The kernel's side: accepts, and then does nothing.
fn kernel() {
    let side = side("kernel");
    let _listener = side
        .ia
        .listen(Some(QUAL), &side.connections)
        .expect("listens");
    println!("\nlistening");
    let Ok(Event::Request(request)) = side.connections.wait(PATIENCE) else {
        panic!("no request")
    };
    request.accept(&side.ep, b"").expect("accepts");
    established(&side);
    let _ = side.connections.wait(10 * PATIENCE);
}

/// The user engine's side: connects, and waits for a message.
fn user() {
    let side = side("user");
    let attempt = side.ep.connect(KERNEL, QUAL).timeout(PATIENCE);
    attempt.start().expect("starts");
    established(&side);
    println!("\nconnected");
    match side.connections.wait(3 * PATIENCE) {
        Ok(Event::Ended { how, .. }) => {
            assert_eq!(how, ConnectionEvent::Broken);
            match side.done.wait(PATIENCE) {
                Ok(Event::Completion(done)) => assert_eq!(done.status, DtoStatus::Flushed),
                other => panic!("the receive did not come back: {other:?}"),
            }
            println!("\nbroken");
        }
        other => println!("\nother {other:?}"),
    }
}

/// Drops packets that leave `netdev` in the namespace of `within`, until dropped itself.
struct Cut<'a> {
    within: &'a [&'a str],
    netdev: &'a str,
}

impl<'a> Cut<'a> {
    fn new(within: &'a [&'a str], netdev: &'a str) -> Self {
        let cut = Self { within, netdev };
        assert!(cut.tc("add", &["netem", "loss", "100%"]));
        cut
    }

    fn tc(&self, verb: &str, how: &[&str]) -> bool {
        let line = ["tc", "qdisc", verb, "dev", self.netdev, "root"];
        let words = [self.within, &line, how].concat();
        let done = Command::new(words[0]).args(&words[1..]).status();
        done.is_ok_and(|status| status.success())
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.tc("del", &[]);
    }
}

const PEER: [&str; 4] = ["ip", "netns", "exec", "peer"];

/// Connects with `keepalive`, cuts what leaves `netdev`, and returns the time until our side detects it, if within
/// `patience`.
fn cut_off(
    name: &str,
    keepalive: u32,
    (within, netdev): (&[&str], &str),
    patience: Duration,
) -> Option<Duration> {
    let settings = format!("retry=3 keepalive={keepalive}");
    let (_dir, conf) = dat_tests::kernel_and_user(&settings);
    let kernel = Process::start(name, "kernel", &conf, &[]);
    assert!(kernel.says("listening", PATIENCE).is_some());
    let user = Process::start(name, "user", &conf, &PEER);
    assert!(user.says("connected", PATIENCE).is_some());
    // A living peer answers although it is silent.
    assert_eq!(user.says("", SILENCE).filter(|line| !line.is_empty()), None);
    let cut = Cut::new(within, netdev);
    let begin = Instant::now();
    let found = user.says("broken", patience).map(|_| begin.elapsed());
    drop(cut);
    found
}

/// Runs `body` in the process that nextest starts, and the role in the others.
fn with_roles(body: impl FnOnce()) {
    match dat_tests::role().as_deref() {
        Some("kernel") => kernel(),
        Some(_) => user(),
        None => body(),
    }
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_peer_that_no_longer_answers_is_found_dead_in_bounded_time() {
    with_roles(|| {
        let name = "a_peer_that_no_longer_answers_is_found_dead_in_bounded_time";
        // First the peer's answers are lost, then our probes.
        for place in [(&[][..], "v0"), (&PEER, "v1")] {
            let found = cut_off(name, 1, place, PATIENCE);
            let found = found.expect("the connection breaks");
            assert!(found < BOUND, "{place:?}: only after {found:?}");
        }
    });
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn without_keepalive_no_probe_is_sent() {
    with_roles(|| {
        let name = "without_keepalive_no_probe_is_sent";
        let found = cut_off(name, 0, (&PEER, "v1"), BOUND);
        assert_eq!(found, None);
    });
}
