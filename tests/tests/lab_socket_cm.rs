//! `cm=socket` on real rdma_rxe: private data, refusals, disconnects of either side, peers that die or send invalid
//! messages. Well-behaved peers are ours here; `tests/lab/clients.sh` has DAPL's.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dat::{
    Access, Close, CompletionFlags, ConnRequest, ConnectionEvent, Ep, Evd, Event, Ia, Listener, Pz,
    Streams,
};

const PATIENCE: Duration = Duration::from_secs(20);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
/// Variable with the role of a process; unset in the process that nextest started.
const ROLE: &str = "DAT_TEST_ROLE";
/// Offset of TCP ports from the qualifier.
const PORT_OFFSET: u64 = 1000;

/// Returns the command that runs this test in a process with the dat.conf.
fn again(name: &str, role: &str, conf: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .env("DAT_OVERRIDE", conf)
        .env(ROLE, role);
    command
}

/// Runs `body` where an IA called `ia` connects over sockets with a time limit of 2 s.
fn with_ia(name: &str, body: impl FnOnce()) {
    with_patient_ia(name, 1, body);
}

/// Like [`with_ia`], with a time limit of twice `seconds`.
fn with_patient_ia(name: &str, seconds: u32, body: impl FnOnce()) {
    if std::env::var_os(ROLE).is_some() {
        return body();
    }
    let exe = std::env::current_exe().expect("this test has a path");
    let dist = exe.ancestors().nth(3).expect("target").join("dist");
    let library = dist.join("lib/libdat-provider-ibverbs.so.2");
    assert!(library.exists(), "run make dist first");
    let dir = tempfile::tempdir().expect("a folder");
    let conf = dir.path().join("dat.conf");
    let line = format!(
        "ia u2.0 threadsafe default {} dat.2.0 \"v0 0 cm=socket resolve_timeout={} resolve_retry=1\" \"\"\n",
        library.display(),
        seconds * 1000
    );
    std::fs::write(&conf, line).expect("written");
    let status = again(name, "main", &conf).status().expect("the test runs");
    assert!(status.success());
}

struct Side {
    ep: Ep,
    done: Evd,
    connections: Evd,
    pz: Pz,
    ia: Ia,
}

fn side() -> Side {
    let ia = Ia::open("ia").expect("the IA opens");
    let pz = ia.create_pz().expect("a PZ");
    let done = ia.create_evd(64, Streams::DTO).expect("an EVD");
    let streams = Streams::CR | Streams::CONNECTION;
    let connections = ia.create_evd(16, streams).expect("an EVD");
    let ep = endpoint(&ia, &pz, &done, &connections);
    Side {
        ep,
        done,
        connections,
        pz,
        ia,
    }
}

fn endpoint(ia: &Ia, pz: &Pz, done: &Evd, connections: &Evd) -> Ep {
    let builder = ia.endpoint(pz).recv_evd(done).request_evd(done);
    builder.connect_evd(connections).create().expect("an EP")
}

impl Side {
    /// Replaces the endpoint by one that has not connected yet.
    fn renew(&mut self) {
        self.ep = endpoint(&self.ia, &self.pz, &self.done, &self.connections);
    }

    fn listen(&self) -> Listener {
        let listener = self.ia.listen(None, &self.connections);
        listener.expect("listens")
    }

    fn connect(&self, conn_qual: u64, private_data: &[u8]) {
        let connect = self.ep.connect(HERE, conn_qual).private_data(private_data);
        connect.start().expect("starts");
    }

    fn request(&self) -> ConnRequest {
        match self.connections.wait(PATIENCE) {
            Ok(Event::Request(request)) => request,
            other => panic!("no request: {other:?}"),
        }
    }

    fn established(&self, words: &[u8]) {
        match self.connections.wait(PATIENCE) {
            Ok(Event::Established { ep, private_data }) => {
                assert_eq!(ep, self.ep.id());
                assert_eq!(private_data, words);
            }
            other => panic!("not established: {other:?}"),
        }
    }

    #[track_caller]
    fn ended(&self, wanted: ConnectionEvent) {
        match self.connections.wait(PATIENCE) {
            Ok(Event::Ended { ep, how }) => assert_eq!((ep, how), (self.ep.id(), wanted)),
            other => panic!("not {wanted:?}: {other:?}"),
        }
    }

    fn nothing_more(&self) {
        let event = self.connections.poll().expect("an EVD");
        assert!(event.is_none(), "{event:?}");
    }
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

/// Starts a process that listens, prints its qualifier, accepts if told to, and runs until it is killed.
fn victim(name: &str, role: &str) -> (Child, u64) {
    let conf = std::env::var("DAT_OVERRIDE").expect("a dat.conf");
    let mut child = again(name, role, Path::new(&conf))
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut out = child.stdout.take().expect("its stdout");
    let mut said = Vec::new();
    let qual = loop {
        let mut byte = [0];
        assert_eq!(out.read(&mut byte).expect("reads"), 1, "{said:?}");
        said.push(byte[0]);
        let text = String::from_utf8_lossy(&said);
        if let Some((_, qual)) = text.split_once("listens at ")
            && let Some(qual) = qual.strip_suffix('\n')
        {
            break qual.parse().expect("a number");
        }
    };
    // The rest is discarded, but must be read.
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    (child, qual)
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
