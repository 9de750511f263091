//! Many processes of a host on the user engine, each connected to each other one in both directions at the same time.

use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use dat::{Access, Ep, Evd, Event, Ia, Pz, Region, Streams};
use dat_tests::Process;

const PATIENCE: Duration = Duration::from_secs(60);
const PROCESSES: u64 = 24;
const ADDRESS: &str = "127.92.1.1";
const TEST: &str = "every_process_talks_to_every_other_one_through_shared_memory";
const QUAL: u64 = 7400;
const BYTES: usize = 64;

/// One end of a connection, with one receive posted.
struct Side {
    ep: Ep,
    events: Evd,
    memory: Region,
}

impl Side {
    fn new(ia: &Ia, pz: &Pz) -> Self {
        let streams = Streams::DTO | Streams::CONNECTION;
        let events = ia.create_evd(8, streams).expect("an EVD");
        let builder = ia.endpoint(pz).recv_evd(&events).request_evd(&events);
        let ep = builder.connect_evd(&events).create().expect("an EP");
        let memory = pz.allocate(2 * BYTES, Access::ALL).expect("memory");
        ep.post_recv(&[memory.slice(0..BYTES)], 1).expect("posts");
        Self { ep, events, memory }
    }

    /// Connects to process `rank`, which may not listen yet.
    fn connect(ia: &Ia, pz: &Pz, rank: u64) -> Self {
        let to: IpAddr = ADDRESS.parse().expect("an address");
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            let side = Self::new(ia, pz);
            let attempt = side.ep.connect(to, QUAL + rank).timeout(PATIENCE);
            attempt.start().expect("starts");
            if let Event::Established { .. } = side.events.wait(PATIENCE).expect("an event") {
                return side;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no connection to process {rank}");
    }

    fn send(&self, rank: u64) {
        self.memory.write(BYTES, &rank.to_ne_bytes());
        let message = self.memory.slice(BYTES..2 * BYTES);
        self.ep.post_send(&[message], 2).expect("posts");
    }

    /// Waits for the message; returns the rank in it.
    fn receive(&self) -> u64 {
        loop {
            match self.events.wait(PATIENCE).expect("an event") {
                Event::Completion(done) if done.cookie == 1 => {
                    let bytes = self.memory.to_vec(0..8);
                    return u64::from_ne_bytes(bytes.try_into().expect("eight"));
                }
                Event::Completion(_) | Event::Established { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Accepts a connection of each other process; sends the own rank on each, and sums those that arrive.
fn serve(ia: &Ia, pz: &Pz, rank: u64) -> u64 {
    let requests = ia.create_evd(256, Streams::CR).expect("an EVD");
    let _listener = ia.listen(Some(QUAL + rank), &requests).expect("listens");
    let accept = |_| {
        let Ok(Event::Request(request)) = requests.wait(PATIENCE) else {
            panic!("no request");
        };
        let side = Side::new(ia, pz);
        request.accept(&side.ep, b"").expect("accepts");
        side
    };
    let sides: Vec<Side> = (1..PROCESSES).map(accept).collect();
    let received = sides.iter().map(Side::receive).sum();
    for side in &sides {
        side.send(rank);
    }
    // A side that is dropped ends its connection, whose message may be on its way.
    std::mem::forget(sides);
    received
}

fn play(rank: u64) {
    let ia = Ia::open("user").expect("opens");
    let pz = ia.create_pz().expect("a PZ");
    let sum = |rank| PROCESSES * (PROCESSES - 1) / 2 - rank;
    let received = std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&ia, &pz, rank));
        let others = (0..PROCESSES).filter(|other| *other != rank);
        let sides: Vec<Side> = others.map(|other| Side::connect(&ia, &pz, other)).collect();
        for side in &sides {
            side.send(rank);
        }
        let answers: u64 = sides.iter().map(Side::receive).sum();
        assert_eq!(answers, sum(rank));
        std::mem::forget(sides);
        server.join().expect("serves")
    });
    assert_eq!(received, sum(rank));
    let maps = std::fs::read_to_string("/proc/self/maps").expect("its mappings");
    let inode = |line: &str| line.split_whitespace().nth(4).map(str::to_owned);
    let lines = maps
        .lines()
        .filter(|line| line.contains("memfd:dat-rs-near"));
    let channels: std::collections::HashSet<_> = lines.filter_map(inode).collect();
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nchannels {}", channels.len()).expect("the scenario reads");
    out.flush().expect("the scenario reads");
    std::thread::sleep(2 * PATIENCE);
}

#[test]
fn every_process_talks_to_every_other_one_through_shared_memory() {
    if let Some(rank) = dat_tests::role() {
        return play(rank.parse().expect("a number"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let conf = folder.path().join("dat.conf");
    let params = format!("{ADDRESS} 0 engine=user");
    let line = dat_tests::line("user", &dat_tests::softrxe(), &params);
    std::fs::write(&conf, line).expect("dat.conf");
    let start = |rank: u64| Process::start(TEST, &rank.to_string(), &conf, &[]);
    let processes: Vec<Process> = (0..PROCESSES).map(start).collect();
    let count = |process: &Process| -> u64 {
        let channels = process.says("channels ", PATIENCE).expect("it is done");
        channels.parse().expect("a number")
    };
    let channels: Vec<u64> = processes.iter().map(count).collect();
    println!("channels of each process: {channels:?}");
    // Where a process did not answer in time, the connection uses UDP.
    assert!(
        channels.iter().any(|channels| *channels > 0),
        "{channels:?}"
    );
}
