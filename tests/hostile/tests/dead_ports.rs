//! Another user tries to bind the UDP port of a dead process, to which its peers still send.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use dat_hostile::{Actor, Identity, Stage, UNPRIVILEGED, echo, print_line, read_line, run_test};

const ROCE_PORT: u16 = 4791;
const ATTACKER: Identity = Identity::User(UNPRIVILEGED);
/// Time for which the attacker tries to bind the port of a dead process.
const ATTACK: Duration = Duration::from_millis(500);

/// Returns the UDP ports that are bound at `ip` now, without the shared one.
fn ports(ip: IpAddr) -> Vec<u16> {
    let IpAddr::V4(v4) = ip else {
        panic!("{ip} is not of IPv4");
    };
    let wanted = format!("{:08X}:", u32::from_ne_bytes(v4.octets()));
    let list = std::fs::read_to_string("/proc/net/udp").expect("the list of UDP sockets");
    let ports = list.lines().filter_map(|line| {
        let local = line.split_whitespace().nth(1)?;
        u16::from_str_radix(local.strip_prefix(&wanted)?, 16).ok()
    });
    // A keeper is listed beside the socket whose port it keeps.
    let ports: BTreeSet<u16> = ports.filter(|port| *port != ROCE_PORT).collect();
    ports.into_iter().collect()
}

/// Reads the ports that are bound at `address`. After each line of input tries to bind them, and prints how many it
/// got.
fn attacker(address: &str) {
    let ip: IpAddr = address.parse().expect("an address");
    let ports = ports(ip);
    print_line(format_args!("found {}", ports.len()));
    while read_line().is_some() {
        let (begin, mut bound) = (Instant::now(), Vec::new());
        while begin.elapsed() < ATTACK {
            for port in &ports {
                bound.extend(UdpSocket::bind(SocketAddr::new(ip, *port)));
            }
            std::thread::yield_now();
        }
        print_line(format_args!("bound {}", bound.len()));
    }
}

fn start(stage: &Stage, part: &str, who: Identity) -> Actor {
    let actor = stage.start(part, who);
    actor.expect_line("ready");
    actor
}

/// Starts an attacker that finds `count` ports beside the shared one.
fn attack(stage: &Stage, count: usize) -> Actor {
    let attacker = stage.start("attacker", ATTACKER);
    assert_eq!(attacker.expect_line("found "), count.to_string());
    attacker
}

fn binds_nothing(attacker: &mut Actor) {
    attacker.send_line("try");
    assert_eq!(
        attacker.expect_line("bound "),
        "0",
        "ports of dead processes"
    );
}

fn meets(client: &mut Actor, address: &str, server: &Actor, word: &str) {
    client.send_line(&format!("connect {address} 5001 {word}"));
    assert_eq!(server.expect_line("request "), word);
    client.expect_line("established");
    client.send_line("ping 1");
    client.expect_line("pong 1");
}

fn part(name: &str, address: &str) {
    match name {
        "attacker" => attacker(address),
        "holder" => echo::serve(5002),
        "server" => echo::serve(5001),
        _ => echo::ask(),
    }
}

#[test]
fn the_port_of_a_dead_member_is_not_free_for_others() {
    let name = "the_port_of_a_dead_member_is_not_free_for_others";
    let address = "127.60.9.1";
    let scenario = || {
        let stage = Stage::new(name, address, "");
        let holder = start(&stage, "holder", Identity::Root);
        let server = start(&stage, "server", Identity::Root);
        let mut client = start(&stage, "client", Identity::Root);
        meets(&mut client, address, &server, "first");
        // The ports of the server and of the client.
        let mut attacker = attack(&stage, 2);
        server.kill();
        binds_nothing(&mut attacker);
        // The client becomes the holder, with a port of its own, and keeps the port of the second server. The first
        // server's port is free: the ports that a holder keeps are lost when it dies, too.
        holder.kill();
        let server = start(&stage, "server", Identity::Root);
        meets(&mut client, address, &server, "second");
        let mut attacker = attack(&stage, 2);
        server.kill();
        binds_nothing(&mut attacker);
    };
    run_test(name, scenario, |name| part(name, address));
}

#[test]
fn the_own_port_of_a_process_that_took_the_shared_port_over_is_not_free_for_others() {
    let name = "the_own_port_of_a_process_that_took_the_shared_port_over_is_not_free_for_others";
    let address = "127.60.9.2";
    let scenario = || {
        let stage = Stage::new(name, address, "");
        let holder = start(&stage, "holder", Identity::Root);
        let second = start(&stage, "client", Identity::Root);
        holder.kill();
        let server = start(&stage, "server", Identity::Root);
        let mut client = start(&stage, "client", Identity::Root);
        meets(&mut client, address, &server, "first");
        let mut attacker = attack(&stage, 3);
        second.kill();
        binds_nothing(&mut attacker);
    };
    run_test(name, scenario, |name| part(name, address));
}

#[test]
fn the_port_of_a_dead_member_of_the_holder_for_all_users_is_not_free_for_others() {
    let name = "the_port_of_a_dead_member_of_the_holder_for_all_users_is_not_free_for_others";
    let address = "127.60.9.3";
    let scenario = || {
        let stage = Stage::new(name, address, "holder=0");
        let serve = || {
            let mut command = Command::new(dat_tests::built().join("dat"));
            command.args(["serve-port", address]);
            let holder = stage.run("serve-port", command, Identity::Root);
            holder.expect_line("holding UDP port 4791 of");
            holder
        };
        let holder = serve();
        let server = start(&stage, "server", Identity::User(1234));
        let mut client = start(&stage, "client", Identity::User(1235));
        meets(&mut client, address, &server, "first");
        let mut attacker = attack(&stage, 2);
        holder.kill();
        let _holder = serve();
        // Both have joined again.
        meets(&mut client, address, &server, "second");
        server.kill();
        binds_nothing(&mut attacker);
        client.kill();
        binds_nothing(&mut attacker);
    };
    run_test(name, scenario, |name| part(name, address));
}
