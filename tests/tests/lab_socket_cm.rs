//! `cm=socket` on real rdma_rxe: private data, refusals, disconnects of either side, peers that die or send invalid
//! messages. Well-behaved peers are ours here; `tests/lab/clients.sh` has DAPL's.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use dat::{Access, Close, CompletionFlags, ConnectionEvent, Event};
use dat_tests::socket_cm::{HERE, PATIENCE, PORT_OFFSET, ROLE, side, victim, with_params};

/// Runs `body` where an IA called `ia` connects over sockets with a time limit of 2 s.
fn with_ia(name: &str, body: impl FnOnce()) {
    with_patient_ia(name, 1, body);
}

/// Like [`with_ia`], with a time limit of twice `seconds`.
fn with_patient_ia(name: &str, seconds: u32, body: impl FnOnce()) {
    let time = seconds * 1000;
    let params = format!("v0 0 cm=socket resolve_timeout={time} resolve_retry=1");
    with_params(name, &params, body);
}

fn port(conn_qual: u64) -> u16 {
    u16::try_from(conn_qual + PORT_OFFSET).expect("a port")
}

fn dial(conn_qual: u64) -> TcpStream {
    let stream = TcpStream::connect((HERE, port(conn_qual))).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Returns a peer's message for a queue pair that does not exist: REQ is 1, REP 2, REJ by the provider 4.
fn message(operation: u8, private_data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 148];
    bytes[1] = 9;
    bytes[3] = operation;
    bytes[17] = u8::try_from(private_data.len()).expect("short");
    bytes[28] = 4;
    bytes[32] = 3;
    bytes[41..44].copy_from_slice(&[0, 0x70, 0x11]);
    let gid = std::fs::read_to_string("/sys/class/infiniband/rxe0/ports/1/gids/0").expect("sysfs");
    let gid: Ipv6Addr = gid.trim().parse().expect("a GID");
    bytes[44..60].copy_from_slice(&gid.octets());
    bytes[63] = 2;
    bytes.extend_from_slice(private_data);
    bytes
}

/// Returns what the other side sends until it closes; a reset counts as a close.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    let mut piece = [0; 256];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return said,
            Ok(n) => said.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return said,
            Err(e) => panic!("neither data nor the end of the stream: {e}"),
        }
    }
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn private_data_goes_both_ways_and_either_side_ends_it() {
    with_ia(
        "private_data_goes_both_ways_and_either_side_ends_it",
        || {
            let (mut active, mut passive) = (side(), side());
            let listener = passive.listen();
            let most = [0xa5; 68];
            for (asked, answered) in [(&b"hello"[..], &b"welcome"[..]), (&most, &most), (b"", b"")]
            {
                for active_ends in [true, false] {
                    active.connect(listener.conn_qual(), asked);
                    let request = passive.request();
                    assert_eq!(
                        (request.remote(), &request.private_data()[..]),
                        (HERE, asked)
                    );
                    request.accept(&passive.ep, answered).expect("accepts");
                    active.established(answered);
                    passive.established(b"");

                    let (ours, theirs) = [&active, &passive]
                        .map(|side| side.pz.allocate(64, Access::ALL).expect("memory"))
                        .into();
                    ours.write(0, b"moved");
                    let to = theirs.remote(0..5);
                    let post = active.ep.post_rdma_write(
                        &[ours.slice(0..5)],
                        to,
                        1,
                        CompletionFlags::empty(),
                    );
                    post.expect("posts");
                    active.done.wait_completion(PATIENCE).expect("written");
                    assert_eq!(theirs.to_vec(0..5), b"moved");

                    let ends = if active_ends { &active } else { &passive };
                    ends.ep.disconnect(Close::Abrupt).expect("disconnects");
                    for side in [&active, &passive] {
                        side.ended(ConnectionEvent::Disconnected);
                        side.nothing_more();
                    }
                    active.renew();
                    passive.renew();
                }
            }
            let long = active
                .ep
                .connect(HERE, listener.conn_qual())
                .private_data(&[0; 69])
                .start();
            assert!(long.is_err(), "69 bytes are one too many");
        },
    );
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn refusals_name_the_consumer_or_the_provider() {
    with_ia("refusals_name_the_consumer_or_the_provider", || {
        let (mut active, passive) = (side(), side());
        let listener = passive.listen();
        for words in [&b"no, thanks"[..], b""] {
            active.connect(listener.conn_qual(), b"");
            passive.request().reject(words).expect("rejects");
            match active.connections.wait(PATIENCE) {
                Ok(Event::PeerRejected { ep, private_data }) => {
                    assert_eq!((ep, &private_data[..]), (active.ep.id(), words));
                }
                other => panic!("not refused: {other:?}"),
            }
            active.renew();
        }
        let qual = listener.conn_qual();
        drop(listener);
        active.connect(qual, b"");
        active.ended(ConnectionEvent::NonPeerRejected);
    });
}

fn be_the_victim(accepts: bool) -> ! {
    let side = side();
    let listener = side.listen();
    println!("listens at {}", listener.conn_qual());
    let request = side.request();
    if accepts {
        request.accept(&side.ep, b"").expect("accepts");
        side.established(b"");
    } else {
        // The process has the request. The parent cannot see that on the wire; it waits for the output.
        println!("has it");
        std::mem::forget(request);
    }
    loop {
        std::thread::park();
    }
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_peer_that_is_killed_ends_the_connection_or_the_attempt() {
    let name = "a_peer_that_is_killed_ends_the_connection_or_the_attempt";
    with_ia(name, || {
        match std::env::var(ROLE).as_deref() {
            Ok("accepts") => be_the_victim(true),
            Ok("waits") => be_the_victim(false),
            _ => {}
        }
        let mut active = side();
        let (mut child, qual) = victim(name, "accepts");
        active.connect(qual, b"");
        active.established(b"");
        child.kill().expect("kills");
        active.ended(ConnectionEvent::Disconnected);
        child.wait().expect("dead");

        active.renew();
        let (mut child, qual) = victim(name, "waits");
        active.connect(qual, b"");
        assert!(active.connections.wait(Duration::from_millis(200)).is_err());
        child.kill().expect("kills");
        active.ended(ConnectionEvent::NonPeerRejected);
        child.wait().expect("dead");
        active.nothing_more();
    });
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn what_is_no_request_is_turned_away_and_the_next_one_served() {
    with_ia(
        "what_is_no_request_is_turned_away_and_the_next_one_served",
        || {
            let (active, passive) = (side(), side());
            let listener = passive.listen();
            let qual = listener.conn_qual();
            let mut long = message(1, b"");
            long[17] = 69;
            for nonsense in [
                &b"GET / HTTP/1.1\r\n\r\n"[..],
                &long,
                &message(2, b""),
                &[0; 400],
            ] {
                let mut stream = dial(qual);
                stream.write_all(nonsense).ok();
                assert_eq!(rest(stream), b"");
            }
            // Half a request, followed by a close, a reset, or nothing.
            let half = &message(1, b"hello")[..150];
            let mut ends = dial(qual);
            ends.write_all(half).expect("sends");
            ends.shutdown(Shutdown::Write).expect("closes");
            assert_eq!(rest(ends), b"");
            drop(dial(qual));
            let mut silent = dial(qual);
            silent.write_all(half).expect("sends");
            let begin = Instant::now();
            assert_eq!(rest(silent), b"");
            assert!(
                begin.elapsed() >= Duration::from_millis(1500),
                "{:?}",
                begin.elapsed()
            );
            // A datagram request is refused with a message.
            let mut datagram = message(1, b"");
            datagram[63] = 4;
            let mut stream = dial(qual);
            stream.write_all(&datagram).expect("sends");
            let refusal = rest(stream);
            assert_eq!((refusal.len(), refusal.get(3)), (148, Some(&4)));

            passive.nothing_more();
            active.connect(qual, b"");
            passive.request().accept(&passive.ep, b"").expect("accepts");
            active.established(b"");
        },
    );
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn an_active_peer_that_stops_half_way_is_an_accept_error() {
    with_ia(
        "an_active_peer_that_stops_half_way_is_an_accept_error",
        || {
            let mut passive = side();
            let listener = passive.listen();
            for last_words in [None, Some(&[][..]), Some(&b"what?"[..]), Some(&[0, 9][..])] {
                let mut stream = dial(listener.conn_qual());
                // The end of the request is sent byte by byte.
                let request = message(1, b"hello");
                stream.set_nodelay(true).expect("an option");
                stream.write_all(&request[..140]).expect("sends");
                for byte in &request[140..] {
                    stream.write_all(&[*byte]).expect("sends");
                }
                let request = passive.request();
                assert_eq!(request.private_data(), b"hello");
                let gone = last_words.is_none();
                if gone {
                    // Closed before the answer.
                    drop(stream);
                    request.accept(&passive.ep, b"").expect("starts to accept");
                } else {
                    request.accept(&passive.ep, b"").expect("accepts");
                    let mut reply = [0; 148];
                    stream.read_exact(&mut reply).expect("REP");
                    assert_eq!(reply[..4], [0, 9, 0, 2]);
                    let words = last_words.unwrap_or_default();
                    stream.write_all(words).expect("sends");
                    if words.is_empty() {
                        // The peer is alive and silent: the time limit ends the attempt.
                        passive.ended(ConnectionEvent::AcceptCompletionError);
                        passive.renew();
                        continue;
                    }
                    stream.shutdown(Shutdown::Write).expect("closes");
                }
                passive.ended(ConnectionEvent::AcceptCompletionError);
                passive.nothing_more();
                passive.renew();
            }
        },
    );
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_farewell_that_comes_along_with_the_last_word_is_heard() {
    with_ia(
        "a_farewell_that_comes_along_with_the_last_word_is_heard",
        || {
            let passive = side();
            let listener = passive.listen();
            let mut stream = dial(listener.conn_qual());
            stream.write_all(&message(1, b"")).expect("sends");
            let request = passive.request();
            request.accept(&passive.ep, b"").expect("accepts");
            stream.read_exact(&mut [0; 148]).expect("REP");
            stream
                .write_all(&[0, 9, 0, 5, 0, 0, 0xde, 0xad])
                .expect("sends");
            passive.established(b"");
            passive.ended(ConnectionEvent::Disconnected);
            passive.nothing_more();
        },
    );
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn an_attempt_goes_on_when_the_peers_system_lets_it_in_late() {
    with_patient_ia(
        "an_attempt_goes_on_when_the_peers_system_lets_it_in_late",
        10,
        || {
            let active = side();
            let listener = TcpListener::bind((HERE, 0)).expect("listens");
            // The backlog has room for one connection: a further one retries, after one second.
            // SAFETY: no pointers are involved.
            assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
            let qual = u64::from(listener.local_addr().expect("its port").port()) - PORT_OFFSET;
            let _first = dial(qual);
            active.connect(qual, b"hello");
            let _peer_of_first = listener.accept().expect("the first comes");
            let (mut stream, _) = listener.accept().expect("the second comes");
            stream.read_exact(&mut [0; 153]).expect("REQ");
            stream.write_all(&message(2, b"welcome")).expect("sends");
            active.established(b"welcome");
            drop(stream);
            active.ended(ConnectionEvent::Disconnected);
        },
    );
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_passive_peer_that_answers_nonsense_or_nothing_ends_the_attempt() {
    with_ia(
        "a_passive_peer_that_answers_nonsense_or_nothing_ends_the_attempt",
        || {
            let mut active = side();
            let listener = TcpListener::bind((HERE, 0)).expect("listens");
            let qual = u64::from(listener.local_addr().expect("its port").port()) - PORT_OFFSET;
            let take = |length: usize| {
                let (mut stream, _) = listener.accept().expect("the active side connects");
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                let mut request = vec![0; length];
                stream.read_exact(&mut request).expect("REQ");
                assert_eq!(request[..4], [0, 9, 0, 1]);
                assert_eq!(request[length - 5..], *b"hello");
                stream
            };
            let half = &message(2, b"welcome")[..150];
            for answer in [&b"220 mail.example.org\r\n"[..], half, b""] {
                active.connect(qual, b"hello");
                // The second attempt assumes a peer before version 8, whose messages are two bytes longer.
                for length in [153, 155] {
                    take(length).write_all(answer).expect("sends");
                }
                active.ended(ConnectionEvent::NonPeerRejected);
                active.renew();
            }
            // The provider at the other side refuses.
            active.connect(qual, b"hello");
            take(153).write_all(&message(4, b"")).expect("sends");
            active.ended(ConnectionEvent::NonPeerRejected);
            active.renew();
            // The peer never answers: the consumer's timeout ends the attempt, and the peer sees the close.
            let connect = active.ep.connect(HERE, qual).private_data(b"hello");
            connect
                .timeout(Duration::from_secs(1))
                .start()
                .expect("starts");
            let stream = take(153);
            active.ended(ConnectionEvent::TimedOut);
            assert_eq!(rest(stream), b"");
            active.renew();
            // The peer accepts in two pieces, receives RTU, and closes.
            active.connect(qual, b"hello");
            let mut stream = take(153);
            let reply = message(2, b"welcome");
            stream.write_all(&reply[..100]).expect("sends");
            std::thread::sleep(Duration::from_millis(50));
            active.nothing_more();
            stream.write_all(&reply[100..]).expect("sends");
            let mut confirmed = [0; 4];
            stream.read_exact(&mut confirmed).expect("RTU");
            assert_eq!(confirmed, [0, 9, 0, 5]);
            active.established(b"welcome");
            drop(stream);
            active.ended(ConnectionEvent::Disconnected);
            active.nothing_more();
        },
    );
}
