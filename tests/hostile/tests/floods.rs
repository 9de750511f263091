//! Floods against the connection manager of a server that leaves strangers unanswered, and an honest client beside them: it connects
//! before, during and after, and the server's memory stays small.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use dat::{Event, Ia, Streams};
use dat_hostile::{
    Actor, Figures, Identity, NOBODY, PATIENCE, Stage, Usage, echo, hear, play, say, tempt,
};
use softrxe_proto::wire::cm::{Answered, CmMessage, Rej};
use softrxe_proto::{Qpn, ROCE_PORT, RejectReason, service_id};

const PORT: u16 = 5001;
/// More than a server may grow by, in KiB: room for all requests that may wait, and what the library keeps for each.
const GROWTH: u64 = 64 << 10;

/// A server that accepts those that say "honest" and answers no other.
fn victim() {
    let ia = Ia::open("user").expect("opens");
    let requests = ia.create_evd(16_384, Streams::CR).expect("an EVD");
    let _listener = ia.listen(Some(PORT.into()), &requests).expect("listens");
    say("ready");
    let (mut unanswered, mut served) = (Vec::new(), Vec::new());
    loop {
        let Ok(Event::Request(request)) = requests.wait(20 * PATIENCE) else {
            continue;
        };
        if !request.private_data().starts_with(b"honest") {
            unanswered.push(request);
            continue;
        }
        let side = echo::Side::new(&ia).expect("an endpoint");
        request.accept(side.ep(), &[]).expect("accepts");
        served.push(side);
        say(format_args!("left {}", unanswered.len()));
    }
}

// The builder of the protocol's own tests.
#[allow(dead_code, unreachable_pub, reason = "this test uses a part of it")]
#[path = "../../../dat-provider-softrxe/proto/tests/common/stranger.rs"]
mod stranger;

/// Returns the REQ with the ids of a flood.
fn req(from: SocketAddr, to: SocketAddr, id: u32) -> CmMessage {
    let ids = (stranger::FOREIGN, id, Qpn::new(id));
    CmMessage::Req(stranger::req(
        from.ip(),
        to.ip(),
        service_id::tcp(PORT),
        ids,
    ))
}

/// Returns a REJ of a request that no connection has.
fn rej(id: u32) -> CmMessage {
    let guid = stranger::FOREIGN;
    match stranger::rej(id, 0, RejectReason::TIMEOUT, guid) {
        CmMessage::Rej(rej) => CmMessage::Rej(Rej {
            message: Answered::Req,
            ..rej
        }),
        other => other,
    }
}

/// REQs of a flood: more than the suite needs to fill every table. `DAT_HOSTILE_REQS` asks for another number.
fn how_many() -> u32 {
    let asked = std::env::var("DAT_HOSTILE_REQS");
    asked.map_or(20_000, |number| number.parse().expect("a number"))
}

/// Sends `count` messages from so many addresses of 127/8 in turn; a pause now and then leaves the receiver time to read.
fn flood(to: IpAddr, sources: u16, count: u32, message: impl Fn(SocketAddr, u32) -> CmMessage) {
    let to = SocketAddr::new(to, ROCE_PORT);
    let sockets: Vec<UdpSocket> = (1..=sources)
        .map(|n| {
            let [high, low] = n.to_be_bytes();
            let address = Ipv4Addr::new(127, 61, high, low);
            UdpSocket::bind((address, 0)).expect("all of 127/8 is ours")
        })
        .collect();
    for id in 0..count {
        let socket = &sockets[id as usize % sockets.len()];
        let from = socket.local_addr().expect("it is bound");
        // Lost where the receiver is slow: the same to an attacker.
        let _ = socket.send_to(&stranger::datagram(from, to, 7, &message(from, id + 1)), to);
        if id % 32 == 31 {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

/// How long the client takes to connect.
#[track_caller]
fn connects(client: &mut Actor, address: &str) -> Duration {
    let begin = Instant::now();
    client.tell(&format!("connect {address} {PORT} honest"));
    client.says("established");
    begin.elapsed()
}

fn show(figures: &Figures, connecting: &[(&str, Duration)]) {
    figures.show();
    for (when, took) in connecting {
        println!("connecting {when}: {:.2} ms", took.as_secs_f64() * 1e3);
    }
}

/// Requests by the thousand from `sources` addresses, and REJs behind them.
fn requests(test: &str, address: &str, sources: u16) {
    let to: IpAddr = address.parse().expect("an address");
    let scenario = || {
        let stage = Stage::new(test, address, "");
        let victim = stage.start("victim", Identity::Root);
        victim.says("ready");
        let mut client = stage.start("client", Identity::Root);
        client.says("ready");
        let mut connecting = vec![("before", connects(&mut client, address))];
        let mut figures = Figures::new(&format!("{} REQs from {sources}", how_many()));
        let before = figures.note("before", &victim);
        let mut attacker = stage.start("attacker", Identity::User(NOBODY));
        attacker.says("begins");
        connecting.push(("during the REQs", connects(&mut client, address)));
        attacker.says("asked");
        figures.note("after the REQs", &victim);
        connecting.push(("after the REQs", connects(&mut client, address)));
        attacker.tell("go on");
        let begin = Instant::now();
        connecting.push(("during the REJs", connects(&mut client, address)));
        attacker.says("attacked");
        let after: Usage = figures.note("after 20,000 REJs", &victim);
        println!("20,000 REJs in {:.2} s", begin.elapsed().as_secs_f64());
        let grown = after.memory.saturating_sub(before.memory);
        assert!(grown < GROWTH, "{grown} KiB");
        assert!(after.descriptors < before.descriptors + 32);
        show(&figures, &connecting);
    };
    play(test, scenario, |part| match part {
        "victim" => victim(),
        "client" => echo::ask(),
        _ => {
            say("begins");
            let at = SocketAddr::new(to, ROCE_PORT);
            flood(to, sources, how_many(), |from, id| req(from, at, id));
            say("asked");
            let _ = hear();
            tempt("attacked", || {
                flood(to, sources, 20_000, |_, id| rej(id + 1_000_000));
            });
        }
    });
}

#[test]
fn a_flood_of_requests_from_one_address_stops_no_client() {
    requests(
        "a_flood_of_requests_from_one_address_stops_no_client",
        "127.60.7.1",
        1,
    );
}

#[test]
fn a_flood_of_requests_from_a_thousand_addresses_stops_no_client() {
    requests(
        "a_flood_of_requests_from_a_thousand_addresses_stops_no_client",
        "127.60.7.2",
        1000,
    );
}

/// Connects to the abstract name `name` without waiting.
fn line(name: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: all-zero is a valid sockaddr_un; the calls read and write within it, and the descriptor is owned at once.
    unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
            *to = from.cast_signed();
        }
        let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = libc::socket(libc::AF_UNIX, kind, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = OwnedFd::from_raw_fd(fd);
        let raw = std::os::fd::AsRawFd::as_raw_fd(&fd);
        let at = (&raw const address).cast();
        if libc::connect(raw, at, length as libc::socklen_t) == 0 {
            Ok(fd)
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// The names of processes at `address` that take lifelines in, as every user can read them.
fn lives(address: &str) -> Vec<String> {
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("readable for all");
    let names = sockets.lines().filter_map(|line| line.rsplit_once('@'));
    let names = names.map(|(_, name)| name.to_owned());
    let mut names: Vec<String> = names
        .filter(|name| name.contains(address) && name.contains("life"))
        .collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn thousands_of_idle_lifelines_stop_no_client() {
    let test = "thousands_of_idle_lifelines_stop_no_client";
    let address = "127.60.7.3";
    let scenario = || {
        let stage = Stage::new(test, address, "");
        let victim = stage.start("victim", Identity::Root);
        victim.says("ready");
        let mut client = stage.start("client", Identity::Root);
        client.says("ready");
        let mut connecting = vec![("before", connects(&mut client, address))];
        let mut figures = Figures::new("15,000 lifelines");
        let before = figures.note("before", &victim);
        let attacker = stage.start("attacker", Identity::User(NOBODY));
        println!("{} lines are held", attacker.says("lines "));
        let during = figures.note("during", &victim);
        connecting.push(("during", connects(&mut client, address)));
        for _ in 0..10 {
            let mut another = stage.start("client", Identity::Root);
            another.says("ready");
            connecting.push(("of another process", connects(&mut another, address)));
        }
        figures.note("after ten more clients", &victim);
        drop(attacker);
        connecting.push(("after", connects(&mut client, address)));
        figures.note("after", &victim);
        // Twice: as an engine, and as the holder of the port.
        let most = before.descriptors + 2 * 4096 + 64;
        assert!(during.descriptors < most, "{}", during.descriptors);
        show(&figures, &connecting);
    };
    play(test, scenario, |part| match part {
        "victim" => victim(),
        "client" => echo::ask(),
        _ => {
            let mut lines = Vec::new();
            for name in lives(address) {
                while lines.len() < 15_000
                    && let Ok(line) = line(name.as_bytes())
                {
                    lines.push(line);
                }
            }
            tempt(&format!("lines {}", lines.len()), || lines);
        }
    });
}
