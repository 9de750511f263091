//! Another user takes the names under which processes of an address find each other, before the victims open their
//! adapters and while they live. For a taken name there is a fallback, and no connection breaks.

use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::Duration;

use dat_hostile::shared_memory::mappings;
use dat_hostile::{
    Actor, Figures, Identity, Stage, UNPRIVILEGED, attack_then_wait, echo, print_line, read_line,
    run_test,
};
use softrxe_port::liveness::{Liveness, LocalPeers};
use softrxe_port::poll_set::PollSet;

/// Returns the names that processes of the victim's user would take on `address`, and those of older versions.
fn names(address: &str, kind: &str) -> Vec<String> {
    let prefixes = ["dat-rs/roce/0/", "dat-rs/roce/65534/", "dat-rs/roce/"];
    let things: Vec<String> = match kind {
        "port" => vec!["port".into(), "porter".into()],
        "slots" => (0..1024)
            .flat_map(|slot| [format!("life/{slot}"), format!("qpn/{slot}")])
            .collect(),
        "services" => (5000..5010_u64)
            .flat_map(|port| [0x0106_0000, 0x0111_0000].map(|base| base | port))
            .map(|id| format!("sid/{id:016x}"))
            .collect(),
        other => panic!("{other}"),
    };
    let of = |prefix: &str| {
        let begin = format!("{prefix}{address}/");
        things
            .iter()
            .map(move |thing| format!("{begin}{thing}"))
            .collect::<Vec<_>>()
    };
    prefixes.into_iter().flat_map(of).collect()
}

enum How {
    /// Takes the name and does not listen.
    Bound,
    /// Listens and never accepts a connection.
    Listening,
}

/// Takes each of `names` that is free, for connections and for datagrams.
fn squat(names: &[String], how: &How) -> Vec<OwnedFd> {
    let mut held = Vec::new();
    for name in names {
        let address = SocketAddr::from_abstract_name(name).expect("a name");
        if let Ok(socket) = UnixDatagram::bind_addr(&address) {
            held.push(socket.into());
        }
        for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
            held.extend(listener(name, kind, how));
        }
    }
    held
}

fn listener(name: &str, kind: libc::c_int, how: &How) -> Option<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: plain system calls on a new descriptor and an address of the length given.
    unsafe {
        let mut at: libc::sockaddr_un = std::mem::zeroed();
        at.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in at.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        let fd = libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        let owned = OwnedFd::from_raw_fd(fd);
        if libc::bind(fd, (&raw const at).cast(), length as libc::socklen_t) != 0 {
            return None;
        }
        if matches!(how, How::Listening) {
            assert_eq!(libc::listen(fd, 128), 0);
        }
        Some(owned)
    }
}

/// Raises the attacker's limit of descriptors to that of root.
fn raise_descriptors() {
    // SAFETY: plain system calls on a structure of the right type.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}

/// Starts victims that transfer data over a connection, and over another one after the holder was replaced.
fn victims_work(stage: &Stage, address: &str, who: Identity) {
    let start = |part: &str| -> Actor {
        let actor = stage.start(part, who);
        actor.expect_line("ready");
        actor
    };
    let holder = start("holder");
    let server = start("server");
    let mut client = start("client");
    let mut figures = Figures::new("squatted names");
    figures.note("client, open", &client);
    let mut meets = |client: &mut Actor, word: &str| {
        client.send_line(&format!("connect {address} 5001 {word}"));
        assert_eq!(server.expect_line("request "), word);
        client.expect_line("established");
        for mark in 1..20 {
            client.send_line(&format!("ping {mark}"));
            assert_eq!(client.expect_line("pong "), mark.to_string());
        }
        figures.note(word, client);
    };
    meets(&mut client, "first");
    // A service of one process is given to no other one, even if its name is taken.
    let second = stage.start("server", who);
    second.expect_line("error ");
    holder.kill();
    for mark in 20..30 {
        client.send_line(&format!("ping {mark}"));
        assert_eq!(client.expect_line("pong "), mark.to_string());
    }
    meets(&mut client, "second");
    figures.show();
}

fn run_with(test: &str, address: &'static str, kind: &'static str, who: Identity) {
    let scenario = || {
        let stage = Stage::new(test, address, "");
        for how in ["bound", "listening"] {
            let attacker = stage.start(&format!("squat {how}"), Identity::User(1234));
            attacker.expect_line("squats");
            victims_work(&stage, address, who);
        }
        // The attacker takes names that the victims give up while they live.
        let attacker = stage.start("snatch", Identity::User(1234));
        attacker.expect_line("snatches");
        victims_work(&stage, address, who);
    };
    run_test(test, scenario, |part| match part {
        "holder" => echo::serve(5002),
        "server" => echo::serve(5001),
        "client" => echo::ask(),
        "snatch" => {
            raise_descriptors();
            let names = names(address, kind);
            let mut held = squat(&names[..1], &How::Listening);
            print_line("snatches");
            loop {
                held.extend(squat(&names, &How::Listening));
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        how => {
            raise_descriptors();
            let how = match how {
                "squat bound" => How::Bound,
                _ => How::Listening,
            };
            attack_then_wait("squats", || squat(&names(address, kind), &how));
        }
    });
}

#[test]
fn the_holders_name_is_squatted() {
    run_with(
        "the_holders_name_is_squatted",
        "127.60.3.1",
        "port",
        Identity::Root,
    );
}

#[test]
fn all_slots_names_are_squatted() {
    run_with(
        "all_slots_names_are_squatted",
        "127.60.3.2",
        "slots",
        Identity::User(UNPRIVILEGED),
    );
}

#[test]
fn the_services_names_are_squatted() {
    run_with(
        "the_services_names_are_squatted",
        "127.60.3.3",
        "services",
        Identity::Root,
    );
}

#[test]
fn the_names_for_shared_memory_are_squatted() {
    let (name, address) = ("the_names_for_shared_memory_are_squatted", "127.60.3.8");
    let scenario = || {
        let stage = Stage::new(name, address, "");
        for how in ["bound", "listening"] {
            let attacker = stage.start(how, Identity::User(1234));
            attacker.expect_line("squats");
            let server = stage.start("server", Identity::Root);
            server.expect_line("ready");
            // On a busy machine a call may get no answer in time.
            let uses_it = (0..10).any(|_| {
                let mut client = stage.start("client", Identity::Root);
                client.expect_line("ready");
                client.send_line(&format!("connect {address} 5001 hello"));
                client.expect_line("established");
                client.send_line("ping 7");
                client.expect_line("pong 7");
                mappings(client.pid()) > 0
            });
            assert!(uses_it, "{how}");
        }
    };
    run_test(name, scenario, |part| match part {
        "server" => echo::serve(5001),
        "client" => echo::ask(),
        how => {
            raise_descriptors();
            let how = match how {
                "bound" => How::Bound,
                _ => How::Listening,
            };
            let squats = || {
                let name = |slot| format!("dat-rs/roce/0/{address}/near/{slot}");
                let of = |slot| listener(&name(slot), libc::SOCK_SEQPACKET, &how);
                (0..1024)
                    .map(|slot| of(slot).expect("the name is free"))
                    .collect::<Vec<_>>()
            };
            attack_then_wait("squats", squats);
        }
    });
}

/// A name shows the end of a peer on this host. The same name for an address of another host may be an attacker's: its
/// end must not end the connection to that host.
#[test]
fn the_liveness_connection_of_a_remote_host_is_squatted() {
    let name = "the_liveness_connection_of_a_remote_host_is_squatted";
    let (here, there) = ("127.60.3.4", "127.60.3.5");
    let scenario = || {
        let stage = Stage::new(name, here, "");
        let far = Stage::new(name, there, "");
        // The server belongs to another user, so the client does not find its names: as if it were on another host.
        let server = far.start("server", Identity::User(UNPRIVILEGED));
        server.expect_line("ready");
        let attacker = stage.start("attacker", Identity::User(1234));
        attacker.expect_line("squats");
        let mut client = stage.start("client", Identity::Root);
        client.expect_line("ready");
        client.send_line(&format!("connect {there} 5001 hello"));
        client.expect_line("established");
        client.send_line("ping 1");
        client.expect_line("pong 1");
        // All its listeners close.
        attacker.kill();
        let end = std::time::Instant::now() + Duration::from_secs(1);
        for mark in (2..100).cycle() {
            client.send_line(&format!("ping {mark}"));
            assert_eq!(client.expect_line("pong "), mark.to_string());
            if std::time::Instant::now() > end {
                break;
            }
        }
    };
    run_test(name, scenario, |part| match part {
        "server" => echo::serve(5001),
        "client" => echo::ask(),
        _ => {
            raise_descriptors();
            let names: Vec<String> = (0..1024)
                .flat_map(|slot| {
                    let old = format!("dat-rs/roce/{there}/life/{slot}");
                    [old, format!("dat-rs/roce/0/{there}/life/{slot}")]
                })
                .collect();
            attack_then_wait("squats", || {
                let mut held = Vec::new();
                for name in &names {
                    let address = SocketAddr::from_abstract_name(name).expect("a name");
                    held.extend(UnixListener::bind_addr(&address));
                }
                held
            });
        }
    });
}

/// An attacker has the name that a process of the victim's user would have, for an engine of another host.
#[test]
fn a_liveness_connection_of_another_user_is_not_watched() {
    let name = "a_liveness_connection_of_another_user_is_not_watched";
    let (there, slot) = ("127.60.3.6", 7);
    let scenario = || {
        let stage = Stage::new(name, there, "");
        let attacker = stage.start("attacker", Identity::User(1234));
        attacker.expect_line("squats");
        let mut victim = stage.start("victim", Identity::Root);
        assert_eq!(victim.expect_line("watches "), "false");
        attacker.kill();
        victim.send_line("go on");
        // The name is free, and a process of the own user takes it: now it is watched.
        assert_eq!(victim.expect_line("watches "), "true");
    };
    run_test(name, scenario, |part| {
        if part == "attacker" {
            let taken = format!("dat-rs/roce/0/{there}/life/{slot}");
            let squats = || listener(&taken, libc::SOCK_STREAM, &How::Listening);
            return attack_then_wait("squats", || squats().expect("the name is free"));
        }
        let ip = there.parse().expect("an address");
        let lives = PollSet::new().expect("an epoll descriptor");
        let mut neighbours = LocalPeers::default();
        let watched = neighbours.watch((ip, slot), &lives);
        print_line(format_args!("watches {watched}"));
        let _ = read_line();
        let _own = Liveness::listen(ip, slot).expect("the name is free");
        let watched = neighbours.watch((ip, slot), &lives);
        print_line(format_args!("watches {watched}"));
        while read_line().is_some() {}
    });
}
