//! Another user takes the names under which processes of an address meet, before the victims open their adapters and
//! again and again while they live. A name that is taken makes them fall back, and never breaks a connection.

use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::Duration;

use dat_hostile::{Actor, Figures, Identity, NOBODY, Stage, echo, hear, play, say, tempt};
use softrxe_port::liveness::{Liveness, LocalPeers};
use softrxe_port::wake::PollSet;

/// Names that processes of the victim's user would take on `address`, and those of older versions.
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
    /// Listens, and never takes a connection in.
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

/// Lets the attacker have as many descriptors as root has.
fn raise_descriptors() {
    // SAFETY: plain system calls on a structure of the right type.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}

/// Victims that move data over a connection, and over another one after the port changed hands.
fn victims_work(stage: &Stage, address: &str, who: Identity) {
    let start = |part: &str| -> Actor {
        let actor = stage.start(part, who);
        actor.says("ready");
        actor
    };
    let holder = start("holder");
    let server = start("server");
    let mut client = start("client");
    let mut figures = Figures::new("squatted names");
    figures.note("client, open", &client);
    let mut meets = |client: &mut Actor, word: &str| {
        client.tell(&format!("connect {address} 5001 {word}"));
        assert_eq!(server.says("request "), word);
        client.says("established");
        for mark in 1..20 {
            client.tell(&format!("ping {mark}"));
            assert_eq!(client.says("pong "), mark.to_string());
        }
        figures.note(word, client);
    };
    meets(&mut client, "first");
    // A service that a process has is not given to another one, also where the name is lost.
    let second = stage.start("server", who);
    second.says("error ");
    holder.kill();
    for mark in 20..30 {
        client.tell(&format!("ping {mark}"));
        assert_eq!(client.says("pong "), mark.to_string());
    }
    meets(&mut client, "second");
    figures.show();
}

fn play_with(test: &str, address: &'static str, kind: &'static str, who: Identity) {
    let scenario = || {
        let stage = Stage::new(test, address, "");
        for how in ["bound", "listening"] {
            let attacker = stage.start(&format!("squat {how}"), Identity::User(1234));
            attacker.says("squats");
            victims_work(&stage, address, who);
        }
        // While the victims live the names that they give up are taken at once.
        let attacker = stage.start("snatch", Identity::User(1234));
        attacker.says("snatches");
        victims_work(&stage, address, who);
    };
    play(test, scenario, |part| match part {
        "holder" => echo::serve(5002),
        "server" => echo::serve(5001),
        "client" => echo::ask(),
        "snatch" => {
            raise_descriptors();
            let names = names(address, kind);
            let mut held = squat(&names[..1], &How::Listening);
            say("snatches");
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
            tempt("squats", || squat(&names(address, kind), &how));
        }
    });
}

#[test]
fn the_holders_name_is_squatted() {
    play_with(
        "the_holders_name_is_squatted",
        "127.60.3.1",
        "port",
        Identity::Root,
    );
}

#[test]
fn all_slots_names_are_squatted() {
    play_with(
        "all_slots_names_are_squatted",
        "127.60.3.2",
        "slots",
        Identity::User(NOBODY),
    );
}

#[test]
fn the_services_names_are_squatted() {
    play_with(
        "the_services_names_are_squatted",
        "127.60.3.3",
        "services",
        Identity::Root,
    );
}

/// The end of a peer of this host is noticed by a name. The same name for an address of another host is an attacker's: it
/// must not end the connection to that host.
#[test]
fn the_lifeline_of_a_remote_host_is_squatted() {
    let name = "the_lifeline_of_a_remote_host_is_squatted";
    let (here, there) = ("127.60.3.4", "127.60.3.5");
    let scenario = || {
        let stage = Stage::new(name, here, "");
        let far = Stage::new(name, there, "");
        // Of another user, so the names of its own user do not exist for the client: as if on another host.
        let server = far.start("server", Identity::User(NOBODY));
        server.says("ready");
        let attacker = stage.start("attacker", Identity::User(1234));
        attacker.says("squats");
        let mut client = stage.start("client", Identity::Root);
        client.says("ready");
        client.tell(&format!("connect {there} 5001 hello"));
        client.says("established");
        client.tell("ping 1");
        client.says("pong 1");
        // All its listeners hang up.
        attacker.kill();
        let end = std::time::Instant::now() + Duration::from_secs(1);
        for mark in (2..100).cycle() {
            client.tell(&format!("ping {mark}"));
            assert_eq!(client.says("pong "), mark.to_string());
            if std::time::Instant::now() > end {
                break;
            }
        }
    };
    play(name, scenario, |part| match part {
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
            tempt("squats", || {
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

/// The name that a process of the victim's user would have, for an engine of another host.
#[test]
fn a_lifeline_of_another_user_is_not_watched() {
    let name = "a_lifeline_of_another_user_is_not_watched";
    let (there, slot) = ("127.60.3.6", 7);
    let scenario = || {
        let stage = Stage::new(name, there, "");
        let attacker = stage.start("attacker", Identity::User(1234));
        attacker.says("squats");
        let mut victim = stage.start("victim", Identity::Root);
        assert_eq!(victim.says("watches "), "false");
        attacker.kill();
        victim.tell("go on");
        // The name is free, and one of the own user has it: the watch works.
        assert_eq!(victim.says("watches "), "true");
    };
    play(name, scenario, |part| {
        if part == "attacker" {
            let taken = format!("dat-rs/roce/0/{there}/life/{slot}");
            let squats = || listener(&taken, libc::SOCK_STREAM, &How::Listening);
            return tempt("squats", || squats().expect("the name is free"));
        }
        let ip = there.parse().expect("an address");
        let lives = PollSet::new().expect("an epoll descriptor");
        let mut neighbours = LocalPeers::default();
        let watched = neighbours.watch((ip, slot), &lives);
        say(format_args!("watches {watched}"));
        let _ = hear();
        let _own = Liveness::listen(ip, slot).expect("the name is free");
        let watched = neighbours.watch((ip, slot), &lives);
        say(format_args!("watches {watched}"));
        while hear().is_some() {}
    });
}
