//! A holder of the port that uses a receive ring is killed. Its successor receives what is left in the ring and what comes
//! afterwards. Needs CAP_BPF; without it the test says so and tests nothing.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use softrxe_port::port_share::{Policy, PortShare};
use softrxe_port::socket::{Received, Socket};

const LOCAL: &str = "127.77.12.1:47912";
/// Makes the other process the holder.
const ROLE: &str = "DAT_TEST_HOLDER";

fn take() -> PortShare {
    PortShare::take(LOCAL.parse().unwrap(), 1 << 20, Policy::default()).unwrap()
}

fn holder_socket(share: &PortShare) -> &Socket {
    match share {
        PortShare::Holder(holder) => holder.socket(),
        PortShare::Member(_) => panic!("a member"),
    }
}

/// The other process: admits members, and reads one datagram for each line of its input.
#[test]
fn the_other_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let mut share = take();
    let said = match holder_socket(&share).use_ring() {
        Ok(()) => "ring".to_owned(),
        Err(error) => error.to_string(),
    };
    let mut received = Received::new();
    assert!(!holder_socket(&share).receive(&mut received).unwrap());
    let mut say = std::io::stderr();
    writeln!(say, "holder: {said}").unwrap();
    for _line in std::io::stdin().lines() {
        let PortShare::Holder(holder) = &mut share else {
            unreachable!()
        };
        holder.poll_members();
        let _ = holder.socket().receive(&mut received).unwrap();
        writeln!(say, "holder: read").unwrap();
    }
}

#[test]
fn the_successor_of_a_killed_holder_receives_what_is_left_in_the_ring() {
    if std::env::var_os(ROLE).is_some() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--nocapture"])
        .env(ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut heard = || loop {
        let line = lines.next().expect("the other process ended").unwrap();
        if let Some(said) = line.strip_prefix("holder: ") {
            return said.to_owned();
        }
    };
    let said = heard();
    let mut tell = child.stdin.take().unwrap();
    if said != "ring" {
        dat_untested::untested(said);
        drop(tell);
        child.wait().unwrap();
        return;
    }
    let mut member = take();
    assert!(matches!(member, PortShare::Member(_)));
    let local: SocketAddr = LOCAL.parse().unwrap();
    let sender = UdpSocket::bind((local.ip(), 0)).unwrap();
    let send = |n: u32| {
        sender.send_to(&n.to_ne_bytes(), local).unwrap();
    };
    send(0);
    writeln!(tell, "admit the member and read a datagram").unwrap();
    assert_eq!(heard(), "read");
    let PortShare::Member(joined) = &mut member else {
        unreachable!()
    };
    // The welcome, then the ring.
    let end = Instant::now() + Duration::from_secs(5);
    while joined.shared_socket().is_none() {
        assert!(joined.receive(&mut [0; 100]).unwrap().is_none());
        assert!(Instant::now() < end);
    }
    assert!(joined.receive(&mut [0; 100]).unwrap().is_none());
    // More than the ring has room for.
    (1..100).for_each(send);
    child.kill().unwrap();
    child.wait().unwrap();
    (100..500).for_each(send);
    assert!(member.holder_is_gone());
    let next = member.former_share(Policy::default());
    let next = next.attempt(local, 1 << 20).unwrap();
    let socket = holder_socket(&next);
    assert!(!socket.arm(), "something waits");
    socket.disarm();
    (500..520).for_each(send);
    let mut received = Received::new();
    let mut from_ring = 0;
    for n in 1..520_u32 {
        assert!(socket.receive(&mut received).unwrap(), "{n}");
        let datagrams: Vec<_> = received.datagrams().collect();
        assert_eq!(datagrams, [(0, &n.to_ne_bytes()[..])]);
        from_ring += u32::from(received.is_from_ring());
    }
    assert!((100..500).contains(&from_ring), "{from_ring}");
    assert!(!socket.receive(&mut received).unwrap() && socket.arm());
}
