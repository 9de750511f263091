//! Floods against the connection manager of a server that does not answer unknown clients, beside an honest client. The
//! client connects before, during and after the flood, and the server's memory stays small.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat::{Event, Ia, Streams};
use dat_hostile::abstract_socket::{connect, listening_names};
use dat_hostile::{
    Actor, Figures, Identity, STEP_TIMEOUT, Stage, UNPRIVILEGED, Usage, attack_then_wait, echo,
    print_line, read_line, run_test,
};
use softrxe_proto::wire::cm::{Answered, CmMessage, Rej};
use softrxe_proto::{Qpn, ROCE_PORT, RejectReason, service_id};

const PORT: u16 = 5001;
/// Limit for the growth of a server in KiB: room for all requests that may wait, and what the library keeps for each.
const GROWTH: u64 = 64 << 10;

/// Runs a server that accepts requests with "honest" and answers no other.
fn victim() {
    let ia = Ia::open("user").expect("opens");
    let requests = ia.create_evd(16_384, Streams::CR).expect("an EVD");
    let _listener = ia.listen(Some(PORT.into()), &requests).expect("listens");
    print_line("ready");
    let (mut unanswered, mut served) = (Vec::new(), Vec::new());
    loop {
        let Ok(Event::Request(request)) = requests.wait(20 * STEP_TIMEOUT) else {
            continue;
        };
        if !request.private_data().starts_with(b"honest") {
            unanswered.push(request);
            continue;
        }
        let side = echo::Side::new(&ia).expect("an endpoint");
        request.accept(side.ep(), &[]).expect("accepts");
        served.push(side);
        print_line(format_args!("left {}", unanswered.len()));
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

/// Returns the number of REQs in a flood: enough to fill every table, or `DAT_HOSTILE_REQS`.
fn how_many() -> u32 {
    let asked = std::env::var("DAT_HOSTILE_REQS");
    asked.map_or(20_000, |number| number.parse().expect("a number"))
}

/// Sends `count` messages from `sources` addresses of 127/8 in turn, with pauses in which the receiver can read.
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
        // Lost if the receiver is slow, which makes no difference to an attacker.
        let _ = socket.send_to(&stranger::datagram(from, to, 7, &message(from, id + 1)), to);
        if id % 32 == 31 {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

/// Returns the time that the client takes to connect.
#[track_caller]
fn connects(client: &mut Actor, address: &str) -> Duration {
    let begin = Instant::now();
    client.send_line(&format!("connect {address} {PORT} honest"));
    client.expect_line("established");
    begin.elapsed()
}

fn show(figures: &Figures, connecting: &[(&str, Duration)]) {
    figures.show();
    for (when, took) in connecting {
        println!("connecting {when}: {:.2} ms", took.as_secs_f64() * 1e3);
    }
}

/// Sends thousands of requests from `sources` addresses, and REJs after them.
fn requests(test: &str, address: &str, sources: u16) {
    let to: IpAddr = address.parse().expect("an address");
    let scenario = || {
        let stage = Stage::new(test, address, "");
        let victim = stage.start("victim", Identity::Root);
        victim.expect_line("ready");
        let mut client = stage.start("client", Identity::Root);
        client.expect_line("ready");
        let mut connecting = vec![("before", connects(&mut client, address))];
        let mut figures = Figures::new(&format!("{} REQs from {sources}", how_many()));
        let before = figures.note("before", &victim);
        let mut attacker = stage.start("attacker", Identity::User(UNPRIVILEGED));
        attacker.expect_line("begins");
        connecting.push(("during the REQs", connects(&mut client, address)));
        attacker.expect_line("asked");
        figures.note("after the REQs", &victim);
        connecting.push(("after the REQs", connects(&mut client, address)));
        attacker.send_line("go on");
        let begin = Instant::now();
        connecting.push(("during the REJs", connects(&mut client, address)));
        attacker.expect_line("attacked");
        let after: Usage = figures.note("after 20,000 REJs", &victim);
        println!("20,000 REJs in {:.2} s", begin.elapsed().as_secs_f64());
        let grown = after.memory.saturating_sub(before.memory);
        assert!(grown < GROWTH, "{grown} KiB");
        assert!(after.descriptors < before.descriptors + 32);
        show(&figures, &connecting);
    };
    run_test(test, scenario, |part| match part {
        "victim" => victim(),
        "client" => echo::ask(),
        _ => {
            print_line("begins");
            let at = SocketAddr::new(to, ROCE_PORT);
            flood(to, sources, how_many(), |from, id| req(from, at, id));
            print_line("asked");
            let _ = read_line();
            attack_then_wait("attacked", || {
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

#[test]
fn thousands_of_idle_liveness_connections_stop_no_client() {
    let test = "thousands_of_idle_liveness_connections_stop_no_client";
    let address = "127.60.7.3";
    let scenario = || {
        let stage = Stage::new(test, address, "");
        let victim = stage.start("victim", Identity::Root);
        victim.expect_line("ready");
        let mut client = stage.start("client", Identity::Root);
        client.expect_line("ready");
        let mut connecting = vec![("before", connects(&mut client, address))];
        let mut figures = Figures::new("15,000 liveness connections");
        let before = figures.note("before", &victim);
        let attacker = stage.start("attacker", Identity::User(UNPRIVILEGED));
        println!("{} lines are held", attacker.expect_line("lines "));
        let during = figures.note("during", &victim);
        connecting.push(("during", connects(&mut client, address)));
        for _ in 0..10 {
            let mut another = stage.start("client", Identity::Root);
            another.expect_line("ready");
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
    run_test(test, scenario, |part| match part {
        "victim" => victim(),
        "client" => echo::ask(),
        _ => {
            let mut lines = Vec::new();
            for name in listening_names(&format!("dat-rs/roce/0/{address}/life/")) {
                while lines.len() < 15_000
                    && let Ok(line) = connect(&name, libc::SOCK_STREAM)
                {
                    lines.push(line);
                }
            }
            attack_then_wait(&format!("lines {}", lines.len()), || lines);
        }
    });
}

/// Pings of the client that is not flooded, while the other one is.
const PINGS: u32 = 1500;
/// Connects of the attacker after each of these pings: some 10,000 a second on an idle machine. The flood is counted, since it would win
/// over the clients on a busy machine if it kept a pace of its own.
const CONNECTS: usize = 16;

fn ping(client: &mut Actor) {
    client.send_line("ping 7");
    client.expect_line("pong 7");
}

/// Lets both clients ping at the same time, until `beside` has made [`PINGS`] pings, each followed by `then`. Returns the number of pings
/// of both. Other work on the machine slows both alike.
fn race(flooded: &mut Actor, beside: &mut Actor, mut then: impl FnMut()) -> [u32; 2] {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pinging = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                ping(flooded);
                count += 1;
            }
            count
        });
        for _ in 0..PINGS {
            ping(beside);
            then();
        }
        is_over.store(true, Ordering::Relaxed);
        [pinging.join().expect("its pings came back"), PINGS]
    })
}

/// Connects to the names of processes at `address` in turn and disconnects, [`CONNECTS`] times for each line of standard input.
fn connect_flood(address: &str) {
    let begin = format!("dat-rs/roce/0/{address}/");
    let names: Vec<(String, libc::c_int)> = listening_names(&begin)
        .into_iter()
        // The names of services are locks, whose connections are never accepted.
        .filter(|name| !name.contains("/sid/"))
        .map(|name| {
            let packets = name.ends_with("/port");
            (
                name,
                if packets {
                    libc::SOCK_SEQPACKET
                } else {
                    libc::SOCK_STREAM
                },
            )
        })
        .collect();
    print_line(format_args!("floods {}", names.len()));
    let mut names = names.iter().cycle();
    while read_line().is_some() {
        for (name, kind) in names.by_ref().take(CONNECTS) {
            // The listener's queue may be full.
            drop(connect(name, *kind));
        }
        print_line("connected");
    }
}

#[test]
fn a_flood_of_connects_takes_little_processor_time_and_stops_no_client() {
    let test = "a_flood_of_connects_takes_little_processor_time_and_stops_no_client";
    let address = "127.60.7.4";
    let scenario = || {
        let pair = |address: &str| {
            let stage = Stage::new(test, address, "");
            let start = |part: &str| {
                let actor = stage.start(part, Identity::Root);
                actor.expect_line("ready");
                actor
            };
            let server = start("server");
            let mut client = start("client");
            connects(&mut client, address);
            (stage, server, client)
        };
        let (stage, server, mut client) = pair(address);
        // What the same load of the machine leaves to a client without a flood.
        let (_stage, _server, mut beside) = pair("127.60.7.5");
        let quiet = race(&mut client, &mut beside, || {});
        let mut attacker = stage.start("attacker", Identity::User(UNPRIVILEGED));
        // The holder's name, and two for each process: for its watchers, and for calls for shared memory.
        assert_eq!(attacker.expect_line("floods "), "5");
        let mut flood = || {
            attacker.send_line("go on");
            attacker.expect_line("connected");
        };
        let used = |client: &Actor| [server.usage().processor, client.usage().processor];
        let begin = used(&client);
        let [during, other] = race(&mut client, &mut beside, &mut flood);
        let end = used(&client);
        let spent = [end[0] - begin[0], end[1] - begin[1]];
        // A new process is admitted during the flood.
        let mut another = stage.start("client", Identity::Root);
        let time = std::thread::scope(|scope| {
            let connecting = scope.spawn(|| {
                another.expect_line("ready");
                connects(&mut another, address)
            });
            while !connecting.is_finished() {
                flood();
            }
            connecting.join().expect("it connects")
        });
        println!(
            "pings, and those of a client that is not flooded: {quiet:?} before, {:?} during the flood",
            [during, other]
        );
        println!("processor time during the flood: server and client {spent:?}");
        println!("another process connects during the flood in {time:?}");
        assert!(
            during >= other / 10,
            "{during} pings while another client made {other}"
        );
    };
    run_test(test, scenario, |part| match part {
        "server" => echo::serve(PORT.into()),
        "client" => echo::ask(),
        _ => connect_flood(address),
    });
}
