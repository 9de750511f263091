//! Completion of an RDMA read on real rdma_rxe whose response is lost, when the user engine in the namespace `peer`
//! disconnects before the read is retried. rdma_rxe takes an acknowledgement that covers the read for its response,
//! and completes it without the data.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::{Duration, Instant};

use dat::{
    Access, Close, CompletionFlags, DtoStatus, Ep, Evd, Event, Ia, Pz, Region, Remote, Streams,
};
use dat_tests::Process;

const PATIENCE: Duration = Duration::from_secs(30);
const USER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));
const QUAL: u64 = 7320;
const PEER: [&str; 4] = ["ip", "netns", "exec", "peer"];
/// The bytes in the read memory, and those in the destination before the read.
const THERE: [u8; 8] = [0x5a; 8];
const HERE: [u8; 8] = [0xa5; 8];

/// Drops packets READ RESPONSE Only that leave v1, until dropped itself.
struct Filter;

impl Filter {
    fn new() -> Self {
        let filter = Self;
        // The opcode follows the headers of IP and UDP.
        for line in [
            "qdisc add dev v1 root handle 1: prio",
            "filter add dev v1 parent 1: protocol ip u32 match u8 17 0xff at 9 match u8 16 0xff at 28 action drop",
        ] {
            assert!(filter.tc(line), "{line}");
        }
        filter
    }

    fn tc(&self, line: &str) -> bool {
        let done = Command::new(PEER[0])
            .args(&PEER[1..])
            .arg("tc")
            .args(line.split(' '))
            .status();
        done.is_ok_and(|status| status.success())
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        self.tc("qdisc del dev v1 root");
    }
}

/// Waits, in the namespace of v1, until the filter dropped a packet.
fn response_is_lost() {
    let end = Instant::now() + PATIENCE;
    loop {
        let shown = Command::new("tc")
            .args(["-s", "filter", "show", "dev", "v1", "parent", "1:"])
            .output()
            .expect("tc runs");
        let shown = String::from_utf8_lossy(&shown.stdout);
        if shown.contains("(dropped ") && !shown.contains("(dropped 0,") {
            return;
        }
        assert!(Instant::now() < end, "nothing was dropped: {shown}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One side of a connection; its memory holds `bytes`.
struct Side {
    ep: Ep,
    done: Evd,
    connections: Evd,
    memory: Region,
    _pz: Pz,
    ia: Ia,
}

fn side(name: &str, bytes: &[u8]) -> Side {
    let ia = Ia::open(name).expect("the IA opens");
    let pz = ia.create_pz().expect("a PZ");
    let done = ia.create_evd(16, Streams::DTO).expect("an EVD");
    let streams = Streams::CR | Streams::CONNECTION;
    let connections = ia.create_evd(16, streams).expect("an EVD");
    let builder = ia.endpoint(&pz).recv_evd(&done).request_evd(&done);
    let builder = builder.connect_evd(&connections);
    let ep = builder.create().expect("an endpoint");
    let memory = pz.allocate(bytes.len(), Access::ALL).expect("memory");
    memory.write(0, bytes);
    Side {
        ep,
        done,
        connections,
        memory,
        _pz: pz,
        ia,
    }
}

impl Side {
    /// Returns the private data that came with the connection.
    fn established(&self) -> Vec<u8> {
        match self.connections.wait(PATIENCE) {
            Ok(Event::Established { private_data, .. }) => private_data,
            other => panic!("not established: {other:?}"),
        }
    }
}

/// The user engine's side: exposes its memory, and disconnects once a read was tried.
fn user() {
    let side = side("user", &THERE);
    let listener = side.ia.listen(Some(QUAL), &side.connections);
    let _listener = listener.expect("listens");
    println!("\nlistening");
    let Ok(Event::Request(request)) = side.connections.wait(PATIENCE) else {
        panic!("no request")
    };
    let granted = side.memory.remote(0..THERE.len()).to_bytes();
    request.accept(&side.ep, &granted).expect("accepts");
    side.established();
    response_is_lost();
    side.ep.disconnect(Close::Abrupt).expect("disconnects");
    let _ = side.connections.wait(PATIENCE);
}

/// The kernel's side: reads, and prints the result.
fn kernel() {
    let side = side("kernel", &HERE);
    let attempt = side.ep.connect(USER, QUAL).timeout(PATIENCE);
    attempt.start().expect("starts");
    let granted = side.established();
    let granted = granted[..Remote::SIZE].try_into().expect("so many");
    let into = [side.memory.slice(0..HERE.len())];
    side.ep
        .post_rdma_read(
            &into,
            Remote::from_bytes(granted),
            1,
            CompletionFlags::empty(),
        )
        .expect("posts");
    let Ok(Event::Completion(done)) = side.done.wait(PATIENCE) else {
        panic!("no completion")
    };
    let bytes = side.memory.to_vec(0..HERE.len());
    assert_eq!((done.status, &bytes[..]), (DtoStatus::Flushed, &HERE[..]));
    println!("\nflushed");
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_read_whose_response_is_lost_when_we_hang_up_is_no_success() {
    match dat_tests::role().as_deref() {
        Some("user") => return user(),
        Some(_) => return kernel(),
        None => {}
    }
    let name = "a_read_whose_response_is_lost_when_we_hang_up_is_no_success";
    let (_dir, conf) = dat_tests::kernel_and_user("");
    let _filter = Filter::new();
    let user = Process::start(name, "user", &conf, &PEER);
    assert!(user.says("listening", PATIENCE).is_some());
    let kernel = Process::start(name, "kernel", &conf, &[]);
    assert!(kernel.says("flushed", 2 * PATIENCE).is_some());
}
