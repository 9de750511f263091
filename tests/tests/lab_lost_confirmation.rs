//! Connections to real rdma_rxe whose confirmation (RTU) is lost. The client is the user engine in the namespace `peer`; the
//! server is the kernel's connection manager, which reports neither of these as a connection by itself: a disconnect, and
//! the first message.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::Duration;

use dat_tests::{Process, first_message};

const PATIENCE: Duration = Duration::from_secs(120);
const KERNEL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const PEER: [&str; 4] = ["ip", "netns", "exec", "peer"];
const CONNECTIONS: u32 = 3;

/// Drops each RTU that leaves v1, until dropped itself.
struct Filter;

impl Filter {
    fn new() -> Self {
        let filter = Self;
        // The attribute of a CM message follows the headers of IP, UDP, BTH and DETH, and 16 bytes of its own.
        for line in [
            "qdisc add dev v1 root handle 1: prio",
            "filter add dev v1 parent 1: protocol ip u32 match u8 17 0xff at 9 match u16 0x0014 0xffff at 64 action drop",
        ] {
            assert!(filter.tc(line).is_some(), "{line}");
        }
        filter
    }

    /// Returns what tc prints, if it succeeds.
    fn tc(&self, line: &str) -> Option<String> {
        let done = Command::new(PEER[0])
            .args(&PEER[1..])
            .arg("tc")
            .args(line.split(' '))
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        done.status.success().then_some(text)
    }

    /// Returns true if a packet was dropped.
    fn has_dropped(&self) -> bool {
        let shown = self.tc("-s filter show dev v1 parent 1:");
        shown.is_some_and(|shown| shown.contains("(dropped ") && !shown.contains("(dropped 0,"))
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        self.tc("qdisc del dev v1 root");
    }
}

fn without_confirmations(name: &str, speaks: bool) {
    match dat_tests::role().as_deref() {
        Some("kernel") => return first_message::serve("kernel", CONNECTIONS),
        Some(_) => return first_message::call("user", KERNEL, CONNECTIONS, speaks),
        None => {}
    }
    let (_dir, conf) = dat_tests::kernel_and_user("");
    let filter = Filter::new();
    let kernel = Process::start(name, "kernel", &conf, &[]);
    assert!(kernel.says("listening", PATIENCE).is_some());
    let user = Process::start(name, "user", &conf, &PEER);
    assert!(kernel.says("served", PATIENCE).is_some());
    assert!(user.says("called", PATIENCE).is_some());
    assert!(filter.has_dropped(), "no RTU was dropped");
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_disconnect_implies_the_connection() {
    without_confirmations("a_disconnect_implies_the_connection", false);
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn the_first_message_implies_the_connection() {
    without_confirmations("the_first_message_implies_the_connection", true);
}
