//! Datagrams of two processes of a host on the user engine: they take shared memory, and UDP without it. A sender stays usable when the
//! receiver is killed or stopped.

use std::time::{Duration, Instant};

use dat::{
    Access, CompletionFlags, DATAGRAM_HEADER, DatagramEvent, DtoStatus, Ep, Error, Evd, Event, Ia,
    Peer, Pz, Region, Streams,
};
use dat_tests::{Process, say};

const PATIENCE: Duration = Duration::from_secs(60);
/// A datagram over UDP may be lost: it is sent again after this time.
const REPEAT: Duration = Duration::from_millis(500);
const QUAL: u64 = 7450;
const BYTES: usize = 64;
const SLOT: usize = DATAGRAM_HEADER + BYTES;
const RECEIVES: usize = 32;
const PINGS: u64 = 1000;
/// More than fit into a ring.
const FLOOD: u64 = 20_000;
/// Numbers from this one on arrive in order.
const ORDERED: u64 = 1 << 32;
/// Cookies below this one are those of receives.
const SENT: u64 = 1 << 32;

/// A datagram endpoint, its receives posted.
struct Side {
    ep: Ep,
    events: Evd,
    memory: Region,
    _pz: Pz,
    ia: Ia,
}

impl Side {
    fn open() -> Self {
        let ia = Ia::open("user").expect("opens");
        let pz = ia.create_pz().expect("a PZ");
        let streams = Streams::DTO | Streams::CONNECTION | Streams::CR;
        let events = ia.create_evd(512, streams).expect("an EVD");
        let builder = ia.endpoint(&pz).datagrams().max_recv(RECEIVES as u32);
        let builder = builder.recv_evd(&events).request_evd(&events);
        let ep = builder.connect_evd(&events).create().expect("an EP");
        let memory = pz.allocate((RECEIVES + 1) * SLOT, Access::ALL);
        let side = Self {
            ep,
            events,
            memory: memory.expect("memory"),
            _pz: pz,
            ia,
        };
        (0..RECEIVES).for_each(|slot| side.receive(slot));
        side
    }

    fn receive(&self, slot: usize) {
        let room = self.memory.slice(slot * SLOT..(slot + 1) * SLOT);
        self.ep.post_recv(&[room], slot as u64).expect("a receive");
    }

    /// Takes the number out of a receive, and posts the receive again.
    fn take(&self, slot: usize) -> u64 {
        let at = slot * SLOT + DATAGRAM_HEADER;
        let bytes = self.memory.to_vec(at..at + 8);
        self.receive(slot);
        u64::from_ne_bytes(bytes.try_into().expect("eight"))
    }

    fn send(&self, peer: &Peer, number: u64) {
        let at = RECEIVES * SLOT;
        self.memory.write(at, &number.to_ne_bytes());
        let message = self.memory.slice(at..at + BYTES);
        let flags = CompletionFlags::SUPPRESS;
        let sent = self.ep.post_send_datagram(&[message], peer, SENT, flags);
        sent.expect("posts");
    }

    /// Finds the queue pair of the server, which may not listen yet.
    fn find(&self) -> Peer {
        let to = self.ia.attributes().expect("attributes").address;
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            self.ep.connect(to, QUAL).start().expect("starts");
            loop {
                match self.events.wait(PATIENCE).expect("an event") {
                    Event::Datagram {
                        how: DatagramEvent::Established,
                        peer: Some(peer),
                        ..
                    } => return peer,
                    Event::Datagram { .. } => break,
                    // A late answer.
                    Event::Completion(done) => drop(self.take(done.cookie as usize)),
                    other => panic!("{other:?}"),
                }
            }
        }
        panic!("no server");
    }

    /// Sends a number, and waits for it to come back. Returns false if it does not within [`PATIENCE`], or `limit`.
    fn ping(&self, peer: &Peer, number: u64, limit: Duration) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < limit {
            self.send(peer, number);
            match self.events.wait(REPEAT.min(limit)) {
                Ok(Event::Completion(done)) => {
                    assert_eq!(done.status, DtoStatus::Success);
                    assert_eq!(done.length as usize, SLOT);
                    if self.take(done.cookie as usize) == number {
                        return true;
                    }
                }
                Err(Error::TimedOut { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        false
    }

    /// Returns the process of the server.
    fn server(&self, peer: &Peer) -> i32 {
        loop {
            self.send(peer, WHO);
            if let Ok(Event::Completion(done)) = self.events.wait(REPEAT) {
                return self.take(done.cookie as usize) as i32;
            }
        }
    }

    fn near_datagrams(&self) -> u64 {
        let counters = self.ia.provider_counters().expect("its counters");
        let counter = counters.iter().find(|(name, _)| name == "near_datagrams");
        counter.expect("it is there").1
    }
}

/// Sends back what arrives, to the caller that was accepted last: one that has given up may be accepted before it.
fn serve() {
    let side = Side::open();
    let listener = side.ia.listen(Some(QUAL), &side.events);
    let _listener = listener.expect("listens");
    say(format_args!("ready {}", std::process::id()));
    let (mut caller, mut last) = (None, ORDERED - 1);
    loop {
        match side.events.wait(PATIENCE) {
            Ok(Event::Request(request)) => request.accept(&side.ep, b"").expect("accepts"),
            Ok(Event::Datagram { peer, .. }) => caller = peer.or(caller),
            Ok(Event::Completion(done)) => {
                let number = match side.take(done.cookie as usize) {
                    WHO => std::process::id().into(),
                    number => number,
                };
                if (ORDERED..WHO >> 1).contains(&number) {
                    assert!(number > last, "{number} after {last}");
                    last = number;
                }
                if let Some(caller) = &caller {
                    side.send(caller, number);
                }
            }
            _ => return,
        }
    }
}

/// The number to which the server answers with its process id.
const WHO: u64 = u64::MAX;

fn call() {
    let side = Side::open();
    let peer = side.find();
    let begin = Instant::now();
    for number in 0..PINGS {
        assert!(side.ping(&peer, number, PATIENCE), "{number}");
    }
    let each = begin.elapsed() / PINGS as u32;
    let near = side.near_datagrams();
    say(format_args!("pinged {near} {each:?}"));

    let server = side.server(&peer);
    let signal = |number| {
        // SAFETY: the call takes two numbers.
        assert_eq!(unsafe { libc::kill(server, number) }, 0);
    };
    // A stopped server consumes nothing. What does not fit into the ring goes over UDP, where it may be lost, and so does what follows.
    signal(libc::SIGSTOP);
    (0..FLOOD).for_each(|number| side.send(&peer, ORDERED + number));
    signal(libc::SIGCONT);
    (FLOOD..2 * FLOOD).for_each(|number| side.send(&peer, ORDERED + number));
    assert!(side.ping(&peer, PINGS + 1, PATIENCE));
    signal(libc::SIGKILL);
    while side.ping(&peer, PINGS + 2, 2 * REPEAT) {}
    say("silent");
    let peer = side.find();
    let before = side.near_datagrams();
    for number in 0..PINGS {
        assert!(side.ping(&peer, number, PATIENCE), "{number}");
    }
    say(format_args!("again {}", side.near_datagrams() - before));
    std::thread::sleep(2 * PATIENCE);
}

/// Runs a caller against a server, with these parameters of each. Returns how many datagrams of the caller took shared memory: to the first
/// server, and to the next one.
fn run(test: &str, of_server: &str, of_caller: &str) -> (u64, u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |role: &str, more: &str| {
        let conf = folder.path().join(role);
        let params = format!("127.93.1.1 0 engine=user {more}");
        let line = dat_tests::line("user", &dat_tests::softrxe(), &params);
        std::fs::write(&conf, line).expect("dat.conf");
        Process::start(test, role, &conf, &[])
    };
    let server = start("server", of_server);
    server.says("ready ", PATIENCE).expect("it serves");
    let caller = start("caller", of_caller);
    let said = caller.says("pinged ", PATIENCE).expect("it is answered");
    println!("server {of_server}, caller {of_caller}: {said}");
    caller.says("silent", PATIENCE).expect("it goes on");
    let next = start("server", of_server);
    next.says("ready ", PATIENCE).expect("it serves");
    let again = caller.says("again ", PATIENCE).expect("it is answered");
    let count = |said: &str| {
        let count = said.split(' ').next().expect("a count");
        count.parse().expect("a number")
    };
    (count(&said), count(&again))
}

#[test]
fn datagrams_take_shared_memory_and_survive_their_peers() {
    match dat_tests::role().as_deref() {
        Some("server") => return serve(),
        Some(_) => return call(),
        None => {}
    }
    const TEST: &str = "datagrams_take_shared_memory_and_survive_their_peers";
    let (first, next) = run(TEST, "", "");
    assert!(first >= PINGS && next >= PINGS, "{first}, {next}");
    for (server, caller) in [("near=off", ""), ("", "near=off"), ("near=off", "near=off")] {
        assert_eq!(run(TEST, server, caller), (0, 0));
    }
}
