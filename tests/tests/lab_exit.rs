//! A process of the user engine, in the namespace `peer`, ends by exit(3) without a disconnect. Its peer on real rdma_rxe only receives,
//! so nothing but a DREQ tells it. The peer has just answered, and its answer must not fail.

mod messenger;

use std::net::{IpAddr, Ipv4Addr};
use std::process::exit;

use dat::{ConnectionEvent, Ia, Streams};
use dat_tests::Process;
use messenger::{PATIENCE, RECEIVED, SENT, Side};

const KERNEL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const QUAL: u64 = 7370;
/// Connections of the process that exits.
const COUNT: usize = 20;

/// The kernel's side: answers a message on each connection, and waits for their ends.
fn kernel() {
    let ia = Ia::open("kernel").expect("opens");
    let pz = ia.create_pz().expect("a PZ");
    let requests = ia.create_evd(64, Streams::CR).expect("an EVD");
    let _listener = ia.listen(Some(QUAL), &requests).expect("listens");
    println!("\nlistening");
    let accept = |_| Side::accept(&ia, &pz, &requests);
    let sides: Vec<_> = (0..COUNT).map(accept).collect();
    for side in &sides {
        side.completed(RECEIVED);
        side.send();
    }
    for side in &sides {
        assert_eq!(side.end(), ConnectionEvent::Disconnected);
        side.completed(SENT);
    }
    println!("\nended");
}

/// The user engine's side: sends a message on each connection, and ends when it has all answers.
fn user() -> ! {
    let ia = Ia::open("user").expect("opens");
    let pz = ia.create_pz().expect("a PZ");
    let connect = |_| Side::connect(&ia, &pz, KERNEL, QUAL);
    let sides: Vec<_> = (0..COUNT).map(connect).collect();
    for side in &sides {
        side.send();
    }
    for side in &sides {
        side.completed(RECEIVED);
    }
    exit(0)
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_process_of_the_user_engine_that_exits_disconnects() {
    match dat_tests::role().as_deref() {
        Some("kernel") => return kernel(),
        Some(_) => user(),
        None => {}
    }
    let name = "a_process_of_the_user_engine_that_exits_disconnects";
    let (_dir, conf) = dat_tests::kernel_and_user("");
    let kernel = Process::start(name, "kernel", &conf, &[]);
    assert!(kernel.says("listening", PATIENCE).is_some());
    let user = Process::start(name, "user", &conf, &["ip", "netns", "exec", "peer"]);
    assert!(kernel.says("ended", 2 * PATIENCE).is_some());
    drop(user);
}
