//! Several users share an address through `dat serve-port`. Data moves between them, no user gets another one's
//! connections, and the holder may be killed and started again while an attacker waits for that moment.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dat::{Ia, Streams};
use dat_hostile::abstract_socket::connect;
use dat_hostile::shared_memory::mappings;
use dat_hostile::{
    Actor, Figures, Identity, Stage, UNPRIVILEGED, attack_then_wait, echo, print_line, run_test,
};
use softrxe_port::message::{Destination, FromMember};

const ROCE_PORT: u16 = 4791;
const ALICE: Identity = Identity::User(1234);
const BOB: Identity = Identity::User(UNPRIVILEGED);

fn dat() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(dat_tests::built);
    folder.join("dat")
}

fn holder(stage: &Stage, address: &str, identity: Identity) -> Actor {
    let mut command = Command::new(dat());
    command.args(["serve-port", address]);
    let holder = stage.run("holder", command, identity);
    holder.expect_line("holding UDP port 4791 of");
    holder
}

/// Starts the holder as systemd does: with a socket that stays bound when the holder ends.
fn holder_on(stage: &Stage, socket: &UdpSocket) -> Actor {
    let mut command = Command::new("sh");
    let state = stage.path("state");
    let script = r#"LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" serve-port --state "$1""#;
    command.args(["-c", script]).arg(dat()).arg(state);
    let fd = socket.as_raw_fd();
    let pass = move || {
        // SAFETY: plain system calls between fork and exec. A copy onto itself would be closed by exec.
        let passed = unsafe { libc::dup2(fd, 3) == 3 && libc::fcntl(3, libc::F_SETFD, 0) == 0 };
        if passed {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    // SAFETY: the function makes system calls only.
    unsafe { command.pre_exec(pass) };
    let holder = stage.run("holder", command, Identity::Root);
    holder.expect_line("holding UDP port 4791 of");
    holder
}

fn start(stage: &Stage, part: &str, who: Identity) -> Actor {
    let actor = stage.start(part, who);
    actor.expect_line("ready");
    actor
}

fn meets(client: &mut Actor, address: &str, port: u16, server: &Actor, word: &str) {
    client.send_line(&format!("connect {address} {port} {word}"));
    assert_eq!(server.expect_line("request "), word);
    client.expect_line("established");
    pings(client, 20);
}

fn pings(client: &mut Actor, count: u8) {
    for mark in 1..=count {
        client.send_line(&format!("ping {mark}"));
        assert_eq!(client.expect_line("pong "), mark.to_string());
    }
}

fn part(name: &str) {
    match name {
        "server 5001" => echo::serve(5001),
        "server 5002" => echo::serve(5002),
        "client" => echo::ask(),
        other => panic!("no part {other}"),
    }
}

#[test]
fn users_share_an_address_and_get_only_what_is_theirs() {
    let name = "users_share_an_address_and_get_only_what_is_theirs";
    let address = "127.60.5.1";
    let scenario = || {
        let stage = Stage::new(name, address, "");
        let holder = holder(&stage, address, Identity::Root);
        let mut figures = Figures::new("dat serve-port");
        figures.note("no member", &holder);
        let alices = start(&stage, "server 5001", ALICE);
        let bobs = start(&stage, "server 5002", BOB);
        let mut alice = start(&stage, "client", ALICE);
        let mut bob = start(&stage, "client", BOB);
        let mut root = start(&stage, "client", Identity::Root);
        // Each client connects to each server.
        for (client, word) in [
            (&mut alice, "alice"),
            (&mut bob, "bob"),
            (&mut root, "root"),
        ] {
            meets(client, address, 5001, &alices, word);
            meets(client, address, 5002, &bobs, word);
        }
        figures.note("five members, six connections", &holder);
        // Alice and Bob share memory with their own servers, and root with no server.
        assert!(mappings(alice.pid()) > 0 && mappings(bob.pid()) > 0);
        assert_eq!(mappings(root.pid()), 0);
        // A service belongs to the user that has it while that process lives.
        for who in [BOB, Identity::Root, ALICE] {
            let second = stage.start("server 5001", who);
            assert!(second.expect_line("error ").contains("CONN_QUAL_IN_USE"));
        }
        meets(&mut bob, address, 5001, &alices, "again");
        alices.kill();
        let now_bobs = start(&stage, "server 5001", BOB);
        meets(&mut alice, address, 5001, &now_bobs, "third");
        figures.note("seven connections more", &holder);
        figures.show();
    };
    run_test(name, scenario, part);
}

#[test]
fn the_holder_is_killed_and_started_again() {
    let name = "the_holder_is_killed_and_started_again";
    let address = "127.60.5.2";
    let scenario = || {
        let stage = Stage::new(name, address, "holder=0");
        let local = SocketAddr::new(address.parse::<IpAddr>().expect("one"), ROCE_PORT);
        let socket = UdpSocket::bind(local).expect("the port is free");
        let mut holding = holder_on(&stage, &socket);
        let server = start(&stage, "server 5001", ALICE);
        let mut client = start(&stage, "client", BOB);
        meets(&mut client, address, 5001, &server, "first");
        // Shared memory is for processes of one user.
        for actor in [&server, &client] {
            assert_eq!(mappings(actor.pid()), 0);
        }
        let attacker = stage.start("attacker", BOB);
        attacker.expect_line("waits");
        for round in 0..3 {
            // By then the file contains what was registered.
            std::thread::sleep(Duration::from_millis(200));
            holding.kill();
            // Connections between engines work without the holder.
            pings(&mut client, 20);
            holding = holder_on(&stage, &socket);
            meets(
                &mut client,
                address,
                5001,
                &server,
                &format!("round{round}"),
            );
        }
        assert_eq!(attacker.line_within("stole", Duration::ZERO), None);
    };
    run_test(name, scenario, |name| match name {
        "attacker" => {
            let ia = Ia::open("user").expect("the holder takes all users in");
            let requests = ia.create_evd(8, Streams::CR).expect("an EVD");
            print_line("waits");
            loop {
                let local: SocketAddr = (address.parse::<IpAddr>().expect("one"), ROCE_PORT).into();
                if let Ok(socket) = UdpSocket::bind(local) {
                    attack_then_wait("stole the port", || socket);
                }
                if let Ok(listener) = ia.listen(Some(5001), &requests) {
                    attack_then_wait("stole the service", || listener);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        other => part(other),
    });
}

#[test]
fn only_the_holder_that_is_asked_for_is_joined() {
    let name = "only_the_holder_that_is_asked_for_is_joined";
    let address = "127.60.5.3";
    let scenario = || {
        // Without a holder the process does not take the port itself.
        let strict = Stage::new(name, address, "holder=0");
        let victim = strict.start("server 5001", ALICE);
        victim.expect_log("no `dat serve-port 127.60.5.3` of user 0 holds UDP port 4791");
        victim.expect_line("error ");
        // The holder's user is not root.
        let stage = Stage::new(name, address, "");
        let _holder = holder(&stage, address, BOB);
        for victim in [
            stage.start("server 5001", ALICE),
            strict.start("server 5001", ALICE),
            stage.start("server 5001", Identity::Root),
        ] {
            victim.expect_log("UDP port 4791");
            victim.expect_line("error ");
        }
        let agreed = Stage::new(name, address, "holder=65534");
        let server = start(&agreed, "server 5001", ALICE);
        let mut client = start(&agreed, "client", Identity::Root);
        meets(&mut client, address, 5001, &server, "agreed");
    };
    run_test(name, scenario, part);
}

/// Returns a member's claim of a service.
fn claim(service: u64) -> [u8; 10] {
    FromMember::Claim(Destination::Service(service)).encode()
}

/// Sends `packet`. Returns false if the connection has no room for it.
fn send(line: &OwnedFd, packet: &[u8]) -> bool {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: reads `packet` only.
    let sent = unsafe {
        libc::send(
            line.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            flags,
        )
    };
    sent > 0
}

/// Joins the holder of `address`.
fn join(address: &str) -> Option<OwnedFd> {
    let name = format!("dat-rs/roce/system/{address}/port");
    connect(&name, libc::SOCK_SEQPACKET).ok()
}

/// A member with as many services as a user may have, while others come and go.
fn churn(address: &str) -> ! {
    let line = join(address).expect("a place");
    let mut answer = [0_u8; 64];
    // On a busy machine each wait for the holder takes some milliseconds: one for each claim would take minutes.
    for first in (0..16_384).step_by(64) {
        for service in first..first + 64 {
            while !send(&line, &claim(service)) {
                std::thread::yield_now();
            }
        }
        for _ in 0..64 {
            // SAFETY: writes to `answer` only.
            unsafe {
                libc::recv(
                    line.as_raw_fd(),
                    answer.as_mut_ptr().cast(),
                    answer.len(),
                    0,
                )
            };
        }
    }
    print_line("attacks");
    loop {
        drop(join(address));
    }
}

/// Members that send claims without an end, and datagrams for a slot without an owner.
fn claims(address: &str) -> ! {
    let mut lines = Vec::new();
    while lines.len() < 200 {
        match join(address) {
            Some(line) => lines.push(line),
            None => std::thread::yield_now(),
        }
    }
    let socket = UdpSocket::bind((address, 0)).expect("a port");
    // The queue pair number has slot 900, which has no owner.
    let junk = [
        0,
        0,
        0,
        0,
        0,
        900_u32.to_be_bytes()[2],
        900_u32.to_be_bytes()[3],
        0,
    ];
    print_line(format_args!("attacks {}", lines.len()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                for _ in 0..32 {
                    let _ = socket.send_to(&junk, (address, ROCE_PORT));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        loop {
            for line in &lines {
                while send(line, &claim(7)) {}
            }
        }
    })
}

#[test]
fn members_that_flood_their_holder_stop_no_other_user() {
    let name = "members_that_flood_their_holder_stop_no_other_user";
    let address = "127.60.5.4";
    let scenario = || {
        let stage = Stage::new(name, address, "holder=0");
        let holder = holder(&stage, address, Identity::Root);
        let server = start(&stage, "server 5001", ALICE);
        let mut client = start(&stage, "client", ALICE);
        let mut figures = Figures::new("dat serve-port");
        meets(&mut client, address, 5001, &server, "before");
        for attack in ["churn", "claims"] {
            let attacker = stage.start(attack, BOB);
            attacker.expect_line("attacks");
            let (begin, before) = (Instant::now(), figures.note(attack, &holder));
            for _ in 0..10 {
                meets(&mut client, address, 5001, &server, attack);
            }
            let (time, after) = (begin.elapsed(), figures.note("after it", &holder));
            let used = after.processor - before.processor;
            println!("{attack}: ten connections in {time:?}, holder {used:?}");
            // A search among all services for each member that ends takes a whole processor.
            assert!(attack != "churn" || used < time / 2, "{used:?} of {time:?}");
            drop(attacker);
        }
        figures.show();
    };
    run_test(name, scenario, |name| match name {
        "churn" => churn(address),
        "claims" => claims(address),
        other => part(other),
    });
}
