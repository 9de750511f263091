//! `cm=socket` on real rdma_rxe where something is short or goes away: descriptors, ports, the peer's host, the device.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use dat::{AsyncEvent, ConnectionEvent, Error, Event};
use dat_tests::socket_cm::{HERE, PATIENCE, PORT_OFFSET, ROLE, Side, side, victim, with_params};

/// A listening socket that is no provider's, and its qualifier.
fn listener() -> (TcpListener, u64) {
    let listener = TcpListener::bind((HERE, 0)).expect("listens");
    let port = listener.local_addr().expect("its address").port();
    (listener, u64::from(port) - PORT_OFFSET)
}

/// Starts to connect `active` to a peer of this test; returns its end of the TCP connection, once the request is there.
fn requested(active: &Side) -> (TcpStream, SocketAddr) {
    let (listener, qual) = listener();
    active.connect(qual, b"");
    let (mut stream, from) = listener.accept().expect("the active side connects");
    stream.read_exact(&mut [0; 148]).expect("REQ");
    (stream, from)
}

/// Limits the descriptors of this process.
fn limit_descriptors(count: u64) {
    let limit = libc::rlimit {
        rlim_cur: count,
        rlim_max: count,
    };
    // SAFETY: `limit` is valid for the call.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(result, 0);
}

/// Runs a line of shell to its end.
fn shell(line: &str) {
    let status = Command::new("sh").args(["-c", line]).status();
    assert!(status.expect("a shell").success(), "{line}");
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn an_attempt_without_a_time_limit_asks_whether_the_peers_host_is_there() {
    let name = "an_attempt_without_a_time_limit_asks_whether_the_peers_host_is_there";
    with_params(name, "v0 0 cm=socket", || {
        let active = side();
        let (_stream, from) = requested(&active);
        // Columns of the kernel's list: local and remote address, state, queues, timer. A timer of type 2 is keepalive's.
        let own = format!(":{:04X}", from.port());
        let probes = || {
            let list = std::fs::read_to_string("/proc/net/tcp").expect("readable");
            list.lines().any(|line| {
                let columns: Vec<_> = line.split_whitespace().collect();
                columns[1].ends_with(&own) && columns[5].starts_with("02:")
            })
        };
        let begin = Instant::now();
        while !probes() {
            assert!(begin.elapsed() < PATIENCE, "no keepalive");
            std::thread::sleep(Duration::from_millis(200));
        }
        active.nothing_more();
    });
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn connections_that_say_nothing_keep_no_client_out() {
    let name = "connections_that_say_nothing_keep_no_client_out";
    with_params(name, "v0 0 cm=socket", || {
        if std::env::var(ROLE).as_deref() == Ok("server") {
            limit_descriptors(128);
            let side = side();
            let listener = side.listen();
            println!("listens at {}", listener.conn_qual());
            loop {
                let request = side.connections.wait(Duration::from_secs(600));
                if let Ok(Event::Request(request)) = request {
                    request.reject(b"served").expect("rejects");
                }
            }
        }
        let (mut server, qual) = victim(name, "server");
        let to = SocketAddr::new(HERE, u16::try_from(qual + PORT_OFFSET).expect("a port"));
        // More than the server has descriptors. Its system takes them from the queue a second after they came.
        let silent: Vec<_> = (0..400)
            .filter_map(|_| TcpStream::connect_timeout(&to, Duration::from_millis(50)).ok())
            .collect();
        assert!(silent.len() > 128, "{}", silent.len());
        std::thread::sleep(Duration::from_secs(2));
        let mut active = side();
        for _ in 0..3 {
            active.connect(qual, b"");
            match active.connections.wait(PATIENCE) {
                Ok(Event::PeerRejected { private_data, .. }) => assert_eq!(private_data, b"served"),
                other => panic!("not served: {other:?}"),
            }
            active.renew();
        }
        server.kill().expect("kills");
        server.wait().expect("dead");
    });
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn without_a_descriptor_the_call_fails_and_the_next_one_works() {
    let name = "without_a_descriptor_the_call_fails_and_the_next_one_works";
    with_params(name, "v0 0 cm=socket", || {
        let active = side();
        let (listener, qual) = listener();
        limit_descriptors(64);
        let taken: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        let refused = active.ep.connect(HERE, qual).start();
        drop(taken);
        assert!(
            matches!(refused, Err(Error::Resources { .. })),
            "{refused:?}"
        );
        active.nothing_more();
        // An address of the other family.
        let v6 = IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1));
        let refused = active.ep.connect(v6, qual).start();
        assert!(
            matches!(refused, Err(Error::Unreachable { .. })),
            "{refused:?}"
        );
        active.connect(qual, b"");
        listener.accept().expect("the active side connects");
    });
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_service_point_listens_on_the_port_of_an_own_connection() {
    let name = "a_service_point_listens_on_the_port_of_an_own_connection";
    with_params(name, "v0 0 cm=socket", || {
        let active = side();
        let (_stream, from) = requested(&active);
        let qual = u64::from(from.port()) - PORT_OFFSET;
        let first = active.ia.listen(Some(qual), &active.connections);
        let first = first.expect("the port of a connection is free for a service point");
        let second = active.ia.listen(Some(qual), &active.connections);
        assert!(
            matches!(second, Err(Error::AddressInUse { .. })),
            "{second:?}"
        );
        let mut client = TcpStream::connect((HERE, from.port())).expect("connects");
        client.write_all(b"no REQ").expect("sends");
        assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
        drop(first);
    });
}

/// Makes a device of its own for `body`, which removes it: the removal ends with the process.
fn with_device(name: &str, params: &str, body: impl FnOnce()) {
    let main = std::env::var_os(ROLE).is_none();
    if main {
        // What a test that failed has left.
        shell("ip link del v9 2>/dev/null; true");
        shell("ip link add v9 type dummy && ip addr add 10.9.9.1/24 dev v9 && ip link set v9 up");
        shell("rdma link add rxe9 type rxe netdev v9");
    }
    with_params(name, params, body);
    if main {
        shell("ip link del v9");
    }
}

/// Begins to remove the device. The verbs context that librdmacm keeps open until the end of the process holds that up.
fn remove() {
    shell("rdma link del rxe9 >/dev/null 2>&1 &");
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_device_that_is_removed_ends_what_connects_over_sockets() {
    let name = "a_device_that_is_removed_ends_what_connects_over_sockets";
    with_device(name, "v9 0 cm=socket", || {
        let (active, passive) = (side(), side());
        let listener = passive.listen();
        let connect = active
            .ep
            .connect(IpAddr::from([10, 9, 9, 1]), listener.conn_qual());
        connect.start().expect("starts");
        passive.request().accept(&passive.ep, b"").expect("accepts");
        active.established(b"");
        passive.established(b"");
        remove();
        // The end that is told of the removal first closes its socket. The other one may notice that before the removal.
        let ends = [active.end(), passive.end()];
        let known = [ConnectionEvent::Broken, ConnectionEvent::Disconnected];
        assert!(ends.iter().all(|end| known.contains(end)), "{ends:?}");
        assert!(ends.contains(&ConnectionEvent::Broken), "{ends:?}");
    });
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_device_that_is_removed_is_reported_without_a_connection() {
    let name = "a_device_that_is_removed_is_reported_without_a_connection";
    with_device(name, "v9 0", || {
        let side = side();
        remove();
        let event = side.ia.async_evd().wait(PATIENCE);
        let lost = AsyncEvent::IaCatastrophic;
        assert!(
            matches!(&event, Ok(Event::Async { number, .. }) if *number == lost),
            "{event:?}"
        );
    });
}

/// Listens, accepts a connection, and forks a child that lives on without an exec.
fn leave_a_child() -> ! {
    let side = side();
    let listener = side.listen();
    println!("listens at {}", listener.conn_qual());
    side.request().accept(&side.ep, b"").expect("accepts");
    let _ = side.connections.wait(PATIENCE).expect("connected");
    // SAFETY: the child makes two system calls, and ends.
    unsafe {
        if libc::fork() == 0 {
            libc::sleep(100);
            libc::_exit(0);
        }
    }
    loop {
        std::thread::park();
    }
}

/// A process with a living child is killed: its peer notices that, and its service point is gone.
fn a_parent_is_killed(name: &str) {
    if std::env::var(ROLE).as_deref() == Ok("parent") {
        leave_a_child();
    }
    let (mut parent, qual) = victim(name, "parent");
    let mut active = side();
    active.connect(qual, b"");
    let connected = active.connections.wait(PATIENCE);
    assert!(
        matches!(connected, Ok(Event::Established { .. })),
        "{connected:?}"
    );
    // Each thread has a list of the children that it forked.
    let tasks = format!("/proc/{}/task", parent.id());
    let has_child = || {
        let mut tasks = std::fs::read_dir(&tasks).expect("readable").flatten();
        tasks.any(|task| {
            let children = std::fs::read_to_string(task.path().join("children"));
            children.is_ok_and(|list| !list.is_empty())
        })
    };
    let begin = Instant::now();
    while !has_child() {
        assert!(begin.elapsed() < PATIENCE, "no child");
        std::thread::sleep(Duration::from_millis(20));
    }
    parent.kill().expect("kills");
    parent.wait().expect("dead");
    active.ended(ConnectionEvent::Disconnected);
    active.renew();
    active.connect(qual, b"");
    active.ended(ConnectionEvent::NonPeerRejected);
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_child_does_not_hide_the_end_of_its_parent_over_sockets() {
    let name = "a_child_does_not_hide_the_end_of_its_parent_over_sockets";
    with_params(name, "v0 0 cm=socket", || a_parent_is_killed(name));
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_child_does_not_hide_the_end_of_its_parent_over_rdma_cm() {
    let name = "a_child_does_not_hide_the_end_of_its_parent_over_rdma_cm";
    with_params(name, "v0 0", || a_parent_is_killed(name));
}
