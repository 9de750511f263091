//! Rings on sockets of the loopback device. They need CAP_BPF; without it they say so and test nothing.

mod fall_back;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::socket::{Received, Socket};

fn bind(ip: IpAddr) -> Socket {
    Socket::bind(ip, 0, 4 << 20).unwrap()
}

/// Attaches a ring, or says why not.
fn use_ring(socket: &Socket) -> bool {
    match socket.use_ring() {
        Ok(()) => true,
        Err(error) if super::bpf::obstacle().is_none() => panic!("{error}"),
        Err(error) => {
            dat_untested::untested(error);
            false
        }
    }
}

/// Receives the next read within 5 s.
fn next(socket: &Socket, into: &mut Received) {
    let begin = Instant::now();
    while !socket.receive(into).unwrap() {
        assert!(begin.elapsed() < Duration::from_secs(5), "nothing arrived");
    }
}

#[test]
fn short_datagrams_come_from_the_ring_and_long_ones_from_the_socket() {
    for ip in ["127.0.0.1", "::1"] {
        let socket = bind(ip.parse().unwrap());
        if !use_ring(&socket) {
            return;
        }
        let sender = UdpSocket::bind((socket.local().ip(), 0)).unwrap();
        let mut received = Received::new();
        assert!(!socket.receive(&mut received).unwrap());
        for round in 0..1000_usize {
            let length = if round % 3 == 2 {
                3000
            } else {
                1 + round % 400
            };
            let datagram = vec![round as u8; length];
            sender.send_to(&datagram, socket.local()).unwrap();
            next(&socket, &mut received);
            assert_eq!(received.from, sender.local_addr().unwrap());
            let all: Vec<_> = received.datagrams().collect();
            assert_eq!(all, [(0, &datagram[..])]);
            assert_eq!(received.is_from_ring(), length < 3000, "{round}");
            assert!(!socket.receive(&mut received).unwrap());
        }
    }
}

#[test]
fn a_thread_that_sleeps_on_the_socket_is_woken() {
    let socket = bind("127.0.0.1".parse().unwrap());
    if !use_ring(&socket) {
        return;
    }
    let sender = UdpSocket::bind((socket.local().ip(), 0)).unwrap();
    let to = socket.local();
    let (wanted, mut count) = (20_000_u32, 0_u32);
    let mut random = fastrand::Rng::with_seed(1);
    let taken = &AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..wanted {
                // On a busy machine the receiver may have no processor while the ring and the socket fill up.
                while n - taken.load(Ordering::Relaxed) > 256 {
                    std::thread::yield_now();
                }
                sender.send_to(&n.to_ne_bytes(), to).unwrap();
                if n % 64 == 63 {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        });
        let mut received = Received::new();
        while count < wanted {
            // Polls for a while before it sleeps, so that the sleep begins while datagrams go to the ring.
            let mut empty = 0;
            let polls = random.u32(1..2000);
            while empty < polls {
                empty += 1;
                while socket.receive(&mut received).unwrap() {
                    empty = 0;
                    for (_, datagram) in received.datagrams() {
                        assert_eq!(datagram, count.to_ne_bytes());
                        count += 1;
                    }
                    taken.store(count, Ordering::Relaxed);
                }
            }
            if count < wanted && socket.arm() {
                let mut poll = libc::pollfd {
                    fd: socket.as_raw_fd(),
                    events: libc::POLLIN,
                    revents: 0,
                };
                // SAFETY: one pollfd.
                let ready = unsafe { libc::poll(&raw mut poll, 1, 5000) };
                assert_eq!(ready, 1, "not woken after {count}");
            }
            socket.disarm();
        }
    });
    let counters = socket.ring_counters().unwrap();
    assert!(
        counters.from_ring > 0 && counters.from_socket > 0,
        "{counters:?}"
    );
}

/// Sends a datagram, or a run of datagrams of `segment` bytes each.
fn send(from: &Socket, to: SocketAddr, bytes: &[u8], segment: Option<u16>) {
    let piece = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the bytes outlive the call.
    unsafe { from.send(&to, &[piece], segment).unwrap() };
}

/// The datagrams of one source, each with its index in its read.
type Datagrams = Vec<(u16, Vec<u8>)>;

/// Adds what arrives at `socket` until each source has as many datagrams as it has sent.
fn collect(
    socket: &Socket,
    sent: &HashMap<SocketAddr, usize>,
    into: &mut HashMap<SocketAddr, Datagrams>,
) {
    let begin = Instant::now();
    let mut received = Received::new();
    while sent
        .iter()
        .any(|(from, count)| into.get(from).map_or(0, Vec::len) < *count)
    {
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "datagrams are missing"
        );
        while socket.receive(&mut received).unwrap() {
            let read = received.datagrams().map(|(n, bytes)| (n, bytes.to_vec()));
            into.entry(received.from).or_default().extend(read);
        }
    }
}

/// Sends the same random datagrams and runs to a socket with a ring and to one without, and returns what each received. No
/// datagram is longer than `longest`.
fn compare(
    [with, without]: [&Socket; 2],
    senders: &[Socket],
    longest: usize,
    seed: u64,
) -> [HashMap<SocketAddr, Datagrams>; 2] {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sent: HashMap<SocketAddr, usize> = HashMap::new();
    let mut found = [HashMap::new(), HashMap::new()];
    for _ in 0..2000 {
        let mut room = 150_000_i32;
        for _ in 0..random.usize(1..12) {
            let sender = random.choice(senders).unwrap();
            let (length, segment) = match random.u32(0..10) {
                0 => (random.usize(1..longest), None),
                1 => (random.usize(400..600), None),
                // Runs, which arrive as one read each.
                2 => (random.usize(41..450), Some(random.usize(20..40))),
                3 => (random.usize(2000..20_000), Some(random.usize(500..1400))),
                _ => (random.usize(1..300), None),
            };
            room -= 2 * length as i32 + 4000;
            if room < 0 {
                break;
            }
            let mut bytes = vec![0; length];
            random.fill(&mut bytes);
            for to in [with, without] {
                send(sender, to.local(), &bytes, segment.map(|n| n as u16));
            }
            *sent.entry(sender.local()).or_default() += length.div_ceil(segment.unwrap_or(length));
        }
        collect(with, &sent, &mut found[0]);
        collect(without, &sent, &mut found[1]);
    }
    let counters = with.ring_counters().unwrap();
    assert!(
        counters.from_ring > 1000 && counters.from_socket > 500,
        "{counters:?}"
    );
    found
}

#[test]
fn ring_and_socket_deliver_the_same() {
    for (ip, seed) in [("127.0.0.1", 1), ("::1", 2)] {
        let ip = ip.parse().unwrap();
        let [with, without] = [(); 2].map(|()| bind(ip));
        if !use_ring(&with) {
            return;
        }
        let senders = [(); 4].map(|()| bind(ip));
        let [a, b] = compare([&with, &without], &senders, 60_000, seed);
        assert!(a == b, "what arrives differs ({ip})");
    }
}

/// Runs `act` in a new thread and network namespace, with the number of the thread; `None` without the right to do that.
fn in_a_namespace<T: Send>(act: impl FnOnce(u32) -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: plain system calls that concern this thread only.
            let (done, thread) = unsafe { (libc::unshare(libc::CLONE_NEWNET), libc::gettid()) };
            (done == 0).then(|| act(thread as u32))
        });
        thread.join().unwrap()
    })
}

/// Runs ip(8) or ethtool(8) in the namespace of this thread.
fn command(words: &str) -> bool {
    let mut words = words.split(' ');
    let done = std::process::Command::new(words.next().unwrap())
        .args(words)
        .status();
    done.is_ok_and(|status| status.success())
}

/// Two namespaces with a pair of veth devices of two queues, which coalesce: the kernel receives on the processor of a queue,
/// not on that of the sender.
#[test]
fn ring_and_socket_deliver_the_same_between_two_hosts() {
    let addresses = |host: u8| [format!("10.77.9.{host}"), format!("fd77::{host}")];
    let up = |device: &str, host| {
        let [v4, v6] = addresses(host);
        // Without ethtool(8) nothing is coalesced.
        let _ = command(&format!("ethtool -K {device} gro on"));
        command(&format!("ip addr add {v4}/24 dev {device}"))
            && command(&format!("ip addr add {v6}/64 dev {device} nodad"))
            && command(&format!("ip link set {device} up"))
    };
    let (with_name, name) = std::sync::mpsc::channel();
    let (with_ready, ready) = std::sync::mpsc::channel();
    let (with_sockets, sockets) = std::sync::mpsc::channel::<Option<Vec<[Socket; 2]>>>();
    let tested = std::thread::scope(|scope| {
        let receivers = scope.spawn(move || {
            in_a_namespace(move |thread| {
                with_name.send(thread).unwrap();
                let made = ready.recv().unwrap_or(false) && up("dat1", 2);
                let bound = || addresses(2).map(|ip| [(); 2].map(|()| bind(ip.parse().unwrap())));
                with_sockets.send(made.then(bound).map(Vec::from)).unwrap();
            })
        });
        let tested = in_a_namespace(move |_| {
            let Ok(thread) = name.recv() else {
                return false;
            };
            let made = command(&format!(
                "ip link add dat0 numrxqueues 2 numtxqueues 2 type veth peer name dat1 numrxqueues 2 numtxqueues 2 netns {thread}"
            )) && up("dat0", 1);
            with_ready.send(made).unwrap();
            let Some(pairs) = sockets.recv().unwrap_or(None) else {
                return false;
            };
            for (ip, [with, without]) in addresses(1).into_iter().zip(pairs) {
                if !use_ring(&with) {
                    return false;
                }
                let senders = [(); 4].map(|()| bind(ip.parse().unwrap()));
                let [a, b] = compare([&with, &without], &senders, 1400, 3);
                // The kernel may coalesce the same datagrams differently.
                for (from, datagrams) in a {
                    let bytes = |all: &Datagrams| -> Vec<_> {
                        all.iter().map(|(_, bytes)| bytes.clone()).collect()
                    };
                    assert!(bytes(&datagrams) == bytes(&b[&from]), "from {from}");
                }
            }
            true
        });
        receivers.join().unwrap();
        tested
    });
    if tested != Some(true) {
        dat_untested::untested("it takes root, ip(8) and CAP_BPF");
    }
}

/// More processes than processors send at the same time, each its numbers in order.
#[test]
fn datagrams_of_each_source_stay_in_order_while_several_processors_send() {
    const SOURCES: usize = 6;
    const EACH: u32 = 20_000;
    let socket = bind("127.0.0.1".parse().unwrap());
    if !use_ring(&socket) {
        return;
    }
    let to = socket.local();
    let taken = [const { AtomicU32::new(0) }; SOURCES];
    std::thread::scope(|scope| {
        let mut sources = HashMap::new();
        for (index, taken) in taken.iter().enumerate() {
            let sender = UdpSocket::bind((to.ip(), 0)).unwrap();
            sources.insert(sender.local_addr().unwrap(), index);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(index as u64);
                for n in 0..EACH {
                    let mut datagram = [0; 1200];
                    datagram[..4].copy_from_slice(&n.to_ne_bytes());
                    let length = if random.u32(0..200) == 0 {
                        1200
                    } else {
                        random.usize(4..200)
                    };
                    sender.send_to(&datagram[..length], to).unwrap();
                    while n - taken.load(Ordering::Acquire).min(n) > 60 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut received = Received::new();
        let mut last = Instant::now();
        let mut left = SOURCES as u32 * EACH;
        while left > 0 {
            if !socket.receive(&mut received).unwrap() {
                assert!(
                    last.elapsed() < Duration::from_secs(5),
                    "{left} are missing"
                );
                std::thread::yield_now();
                continue;
            }
            last = Instant::now();
            let taken = &taken[sources[&received.from]];
            let [(_, datagram)] = received.datagrams().collect::<Vec<_>>()[..] else {
                panic!("a run");
            };
            let number = u32::from_ne_bytes(datagram[..4].try_into().unwrap());
            assert_eq!(number, taken.load(Ordering::Relaxed), "{}", received.from);
            taken.store(number + 1, Ordering::Release);
            left -= 1;
        }
    });
    let counters = socket.ring_counters().unwrap();
    assert!(
        counters.from_ring > 0 && counters.from_socket > 0,
        "{counters:?}"
    );
}

#[test]
fn a_full_ring_and_a_full_socket_lose_no_more_than_the_socket() {
    let socket = bind("127.0.0.1".parse().unwrap());
    if !use_ring(&socket) {
        return;
    }
    let sender = UdpSocket::bind((socket.local().ip(), 0)).unwrap();
    let mut received = Received::new();
    let mut arrived = |count: u32, length: usize| -> Vec<u32> {
        let mut numbers = Vec::new();
        assert!(!socket.receive(&mut received).unwrap());
        for n in 0..count {
            let mut datagram = vec![0; length];
            datagram[..4].copy_from_slice(&n.to_ne_bytes());
            sender.send_to(&datagram, socket.local()).unwrap();
        }
        let end = Instant::now() + Duration::from_millis(20);
        while Instant::now() < end {
            while socket.receive(&mut received).unwrap() {
                let (_, datagram) = received.datagrams().next().unwrap();
                numbers.push(u32::from_ne_bytes(datagram[..4].try_into().unwrap()));
            }
        }
        numbers
    };
    let all: Vec<u32> = (0..400).collect();
    assert_eq!(arrived(400, 64), all);
    let before = socket.ring_counters().unwrap();
    assert!(
        before.from_ring >= 192 && before.from_socket > 0,
        "{before:?}"
    );
    // Beyond the socket's buffer.
    let some = arrived(2000, 8000);
    assert!(some.len() < 2000 && some.is_sorted(), "{}", some.len());
    // The ring is used again once it is certain that these do not arrive any more.
    let begin = Instant::now();
    loop {
        assert_eq!(arrived(3, 64), [0, 1, 2]);
        if socket.ring_counters().unwrap().from_ring > before.from_ring {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn a_process_that_sleeps_is_not_woken_by_the_past() {
    let socket = bind("127.0.0.1".parse().unwrap());
    if !use_ring(&socket) {
        return;
    }
    let sender = UdpSocket::bind((socket.local().ip(), 0)).unwrap();
    let mut received = Received::new();
    for round in 0..50 {
        assert!(!socket.receive(&mut received).unwrap());
        assert!(socket.arm());
        sender.send_to(b"x", socket.local()).unwrap();
        if round % 2 == 0 {
            socket.disarm();
        }
        next(&socket, &mut received);
        assert!(!socket.receive(&mut received).unwrap());
        let mut poll = libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd.
        assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 0) }, 0);
        socket.disarm();
    }
}
