//! Properties of the lab (docs/lab.md) that its tests rely on. Runs there only: `make lab-test`.

use std::fs::{read_to_string, write};
use std::net::UdpSocket;
use std::process::Command;

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn rxe0_is_an_active_verbs_device_on_v0() {
    let device = "/sys/class/infiniband/rxe0";
    let netdev = read_to_string(format!("{device}/parent")).expect("rxe0 says its netdev");
    assert_eq!(netdev.trim(), "v0");
    let state = read_to_string(format!("{device}/ports/1/state")).expect("rxe0 has port 1");
    assert_eq!(state.trim(), "4: ACTIVE");
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn locked_memory_is_unlimited() {
    let limits = read_to_string("/proc/self/limits").expect("limits");
    let locked = limits
        .lines()
        .find(|line| line.starts_with("Max locked memory"))
        .expect("a line for locked memory");
    assert!(locked.contains("unlimited"), "{locked}");
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn rdma_rxe_owns_the_roce_port_here_and_not_in_the_peer_namespace() {
    let here = UdpSocket::bind("10.9.0.1:4791");
    assert!(
        here.is_err(),
        "UDP port 4791 is free although rdma_rxe is loaded"
    );
    let peer = Command::new("ip")
        .args(["netns", "exec", "peer", "cat", "/proc/net/udp"])
        .output()
        .expect("ip runs");
    let sockets = String::from_utf8_lossy(&peer.stdout);
    assert!(sockets.contains("local_address"), "no table: {sockets}");
    assert!(!sockets.contains(":12B7"), "taken in the peer: {sockets}");
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn the_lab_can_be_written_to() {
    write("/tmp/lab-rxe-test", "x").expect("/tmp takes files");
    let out = std::env::var("DAT_LAB_OUT").expect("DAT_LAB_OUT is set");
    write(format!("{out}/lab-rxe-test"), "x").expect("DAT_LAB_OUT takes files");
}
