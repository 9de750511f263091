//! Another user sends descriptors that the victim did not request: TCP sockets with SO_LINGER and unsent data. The last
//! close of such a socket waits in the kernel for the time that the attacker chose. No process of the victim may make
//! that close, or it must not wait.

use std::io::{ErrorKind, Write};
use std::mem::size_of;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::time::Instant;

use dat_hostile::abstract_socket::{connect, listening_names};
use dat_hostile::{
    Actor, Identity, STEP_TIMEOUT, Stage, UNPRIVILEGED, attack_then_wait, echo, print_line,
    run_test,
};
use softrxe_port::message::{Destination, FromMember};
use softrxe_port::packets;
use softrxe_port::poll_set::PollSet;

const ATTACKER: Identity = Identity::User(UNPRIVILEGED);
/// Messages for each name. One for which the connection was closed too early is sent again.
const SENT: usize = 8;
/// Port that the victim serves.
const PORT: u64 = 5001;

/// Returns a socket whose last close waits longer than any step of a test, and its other end, which never reads.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let mut near = TcpStream::connect(address).expect("a connection");
    let (far, _) = listener.accept().expect("it is in the queue");
    near.set_nonblocking(true).expect("a socket");
    let full = loop {
        if let Err(error) = near.write(&[0; 1 << 16]) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 20 * STEP_TIMEOUT.as_secs() as libc::c_int,
    };
    // SAFETY: the option is read for its own size.
    let done = unsafe {
        libc::setsockopt(
            near.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    (near, far)
}

/// Sends lingering sockets to the listener of `name`, and closes the own copy of those that the kernel accepted.
/// Returns what must stay open, and the number of messages that the kernel refused.
fn attack(name: &str, kind: libc::c_int) -> (Vec<OwnedFd>, usize) {
    let (mut kept, mut refused) = (Vec::new(), 0);
    for _ in 0..SENT {
        let (near, far) = lingering();
        // The queue of a blocked victim is full in the end.
        for _ in 0..100_000 {
            let Ok(connection) = connect(name, kind) else {
                continue;
            };
            match packets::send(connection.as_fd(), &[1; 10], &[near.as_raw_fd()]) {
                Ok(()) => {
                    // If the victim was faster, this is the last close, and it waits.
                    std::thread::spawn(move || drop(near));
                    kept.extend([far.into(), connection]);
                    break;
                }
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                    refused += 1;
                    kept.extend([near.into(), far.into(), connection]);
                    break;
                }
                // The connection was closed before.
                Err(_) => {}
            }
        }
    }
    (kept, refused)
}

/// Joins the holder at `name`, and returns the connection with an answer that waits in it.
fn join(name: &str) -> OwnedFd {
    let connection = connect(name, libc::SOCK_SEQPACKET).expect("a place in the queue");
    packets::send(connection.as_fd(), &FromMember::Hello.encode(), &[]).expect("an open one");
    let ready = PollSet::new().expect("a set");
    ready.add(connection.as_raw_fd()).expect("a place in it");
    let begin = Instant::now();
    while !ready.is_readable() {
        assert!(begin.elapsed() < STEP_TIMEOUT, "no answer");
    }
    connection
}

/// Sends the holder at `name` sockets that linger over connections that end without reading its answer, which is an error of its end of them. Other
/// connections keep it busy meanwhile, so that it sees the error before the descriptors.
fn attack_as_member(name: &str) -> Vec<TcpStream> {
    let (near, far): (Vec<_>, Vec<_>) = (0..8 * SENT).map(|_| lingering()).unzip();
    let connections: Vec<_> = near.iter().map(|_| join(name)).collect();
    let busy: Vec<_> = (0..8).map(|_| join(name)).collect();
    for (near, connection) in near.into_iter().zip(connections) {
        let claim = FromMember::Claim(Destination::Service(1)).encode();
        for other in &busy {
            while packets::send(other.as_fd(), &claim, &[]).is_ok() {}
        }
        packets::send(connection.as_fd(), &[1; 10], &[near.as_raw_fd()]).expect("an open one");
        drop(connection);
        // If the victim was faster, this is the last close, and it waits.
        std::thread::spawn(move || drop(near));
    }
    far
}

/// Attacks all names that begin with one of `begins`; prints the numbers of messages and of refused messages.
fn attacker(begins: &[String]) {
    attack_then_wait("over", || {
        let mut kept = Vec::new();
        for begin in begins {
            let names = listening_names(begin);
            assert!(!names.is_empty(), "no process listens under {begin}");
            for name in names {
                let kind = if name.contains("/life/") {
                    libc::SOCK_STREAM
                } else {
                    libc::SOCK_SEQPACKET
                };
                let (held, refused) = attack(&name, kind);
                print_line(format_args!("attacked {name}: {refused} of {SENT} refused"));
                kept.push(held);
            }
        }
        kept
    });
}

fn pings(client: &mut Actor) {
    for mark in 1..=20 {
        client.send_line(&format!("ping {mark}"));
        assert_eq!(client.expect_line("pong "), mark.to_string());
    }
}

fn meets(client: &mut Actor, address: &str, server: &Actor, word: &str) {
    client.send_line(&format!("connect {address} {PORT} {word}"));
    assert_eq!(server.expect_line("request "), word);
    client.expect_line("established");
    pings(client);
}

/// Waits until the attacker has attacked `names` names, and checks that the kernel refused each message.
fn is_refused(attacker: &Actor, names: usize) {
    for _ in 0..names {
        let said = attacker.expect_line("attacked ");
        let all = format!(": {SENT} of {SENT} refused");
        assert!(said.ends_with(&all), "{said}");
    }
}

/// Returns true if the kernel has SO_PASSRIGHTS (Linux 6.16).
fn is_refusable() -> bool {
    let (near, _far) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let value: libc::c_int = 0;
    // SAFETY: the option is read for its own size.
    let done = unsafe {
        libc::setsockopt(
            near.as_raw_fd(),
            libc::SOL_SOCKET,
            83,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done != 0 {
        dat_untested::untested("this kernel has no SO_PASSRIGHTS");
    }
    done == 0
}

fn start(stage: &Stage, part: &str, who: Identity) -> Actor {
    let actor = stage.start(part, who);
    actor.expect_line("ready");
    actor
}

/// Attacks an engine with sockets that linger. On an `old` kernel they are not refused, but closed without a wait.
fn attack_engines(name: &str, address: &'static str, old: bool) {
    let scenario = || {
        if !old && !is_refusable() {
            return;
        }
        let stage = Stage::new(name, address, "");
        let victim = |part: &str| {
            stage.on_old_kernel(old);
            let victim = start(&stage, part, Identity::Root);
            stage.on_old_kernel(false);
            victim
        };
        let server = victim("server");
        let mut client = victim("client");
        meets(&mut client, address, &server, "before");
        for part in ["attacker of the port", "attacker of liveness connections"] {
            let attacker = stage.start(part, ATTACKER);
            attacker.expect_line("over");
            pings(&mut client);
            meets(&mut client, address, &server, "beside");
            // A new process is admitted.
            let mut second = victim("client");
            meets(&mut second, address, &server, "second");
        }
        if !old {
            let attacker = stage.start("attacker of the port", ATTACKER);
            is_refused(&attacker, 1);
            let attacker = stage.start("attacker of liveness connections", ATTACKER);
            is_refused(&attacker, 2);
        }
        // Descriptors of the holder still arrive: the new holder has the port.
        server.kill();
        let server = victim("server");
        meets(&mut client, address, &server, "heir");
    };
    run_test(name, scenario, |part| match part {
        "server" => echo::serve(PORT),
        "client" => echo::ask(),
        "attacker of the port" => attacker(&[format!("dat-rs/roce/0/{address}/port")]),
        _ => attacker(&[format!("dat-rs/roce/0/{address}/life/")]),
    });
}

#[test]
fn sockets_that_linger_freeze_no_engine() {
    attack_engines("sockets_that_linger_freeze_no_engine", "127.60.8.1", false);
}

#[test]
fn sockets_that_linger_freeze_no_engine_on_an_old_kernel() {
    let name = "sockets_that_linger_freeze_no_engine_on_an_old_kernel";
    attack_engines(name, "127.60.8.3", true);
}

/// Attacks `dat serve-port` in the same way.
fn attack_system_holder(name: &str, address: &'static str, old: bool) {
    let scenario = || {
        if !old && !is_refusable() {
            return;
        }
        let stage = Stage::new(name, address, "holder=0");
        let mut command = Command::new(dat_tests::built().join("dat"));
        command.args(["serve-port", address]);
        stage.on_old_kernel(old);
        let holder = stage.run("holder", command, Identity::Root);
        holder.expect_line("holding UDP port 4791 of");
        stage.on_old_kernel(false);
        let server = start(&stage, "server", Identity::User(1234));
        let mut client = start(&stage, "client", Identity::User(1234));
        meets(&mut client, address, &server, "before");
        let attacker = stage.start("attacker", ATTACKER);
        attacker.expect_line("over");
        let mut second = start(&stage, "client", Identity::User(1234));
        meets(&mut second, address, &server, "second");
        if old {
            let member = stage.start("member", ATTACKER);
            member.expect_line("over");
            let mut third = start(&stage, "client", Identity::User(1234));
            meets(&mut third, address, &server, "third");
        } else {
            let attacker = stage.start("attacker", ATTACKER);
            is_refused(&attacker, 1);
        }
    };
    run_test(name, scenario, |part| match part {
        "server" => echo::serve(PORT),
        "client" => echo::ask(),
        "member" => attack_then_wait("over", || {
            attack_as_member(&format!("dat-rs/roce/system/{address}/port"))
        }),
        _ => attacker(&[format!("dat-rs/roce/system/{address}/port")]),
    });
}

#[test]
fn sockets_that_linger_do_not_freeze_the_holder_for_all_users() {
    let name = "sockets_that_linger_do_not_freeze_the_holder_for_all_users";
    attack_system_holder(name, "127.60.8.2", false);
}

#[test]
fn sockets_that_linger_do_not_freeze_the_holder_for_all_users_on_an_old_kernel() {
    let name = "sockets_that_linger_do_not_freeze_the_holder_for_all_users_on_an_old_kernel";
    attack_system_holder(name, "127.60.8.4", true);
}
