//! A process of the same user owns the other end of a channel of shared memory, and writes anything there at any time. Its victim goes on:
//! with its other connections, without a change to memory that was not granted, and without a trace after the attacker's end.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat::{Access, Close, CompletionFlags, Ep, Error, Evd, Event, Ia, Pz, Region, Remote, Streams};
use dat_hostile::shared_memory::{SharedMemory, flood_connections, mappings, shut_connections};
use dat_hostile::{
    Actor, Figures, Identity, STEP_TIMEOUT, Stage, Usage, attack_then_wait, echo, print_line,
    read_line, run_test,
};

const ADDRESS: &str = "127.60.9.1";
const ADDRESS_ALONE: &str = "127.60.9.2";
const PORT: u64 = 5001;
/// Bytes of each region of the victim.
const BYTES: usize = 64 << 10;
/// Contents of memory that no peer was granted.
const UNTOUCHED: u8 = 0x5a;
/// What an attacker writes.
const KINDS: [&str; 8] = [
    "anything", "indices", "flags", "records", "seals", "headers", "wakes", "lending",
];
const ATTACK: Duration = Duration::from_secs(1);
/// Longest life of a connection of an attacker.
const ROUND: Duration = Duration::from_millis(300);

/// One end of a connection to or from the attacker.
struct Side {
    ep: Ep,
    done: Evd,
    connections: Evd,
    region: Region,
}

impl Side {
    fn new(ia: &Ia, pz: &Pz) -> Result<Self, Error> {
        let done = ia.create_evd(256, Streams::DTO)?;
        let connections = ia.create_evd(16, Streams::CONNECTION)?;
        let builder = ia.endpoint(pz).recv_evd(&done).request_evd(&done);
        let ep = builder.connect_evd(&connections).create()?;
        let region = pz.allocate(BYTES, Access::ALL)?;
        for cookie in 0..8 {
            ep.post_recv(&[region.slice(0..64)], cookie)?;
        }
        Ok(Self {
            ep,
            done,
            connections,
            region,
        })
    }

    /// Echoes messages until the connection ends.
    fn answer(&self) -> Result<(), Error> {
        let event = self.connections.wait(STEP_TIMEOUT)?;
        if !matches!(event, Event::Established { .. }) {
            return Ok(());
        }
        loop {
            if self.done.wait_completion(20 * STEP_TIMEOUT)?.cookie < 8 {
                self.ep.post_recv(&[self.region.slice(0..64)], 0)?;
                self.ep.post_send(&[self.region.slice(64..128)], 9)?;
            }
        }
    }
}

/// Serves both the attackers, which get a region to write to, and honest peers. Answers `check` by `intact`.
fn victim() {
    let ia = Ia::open("user").expect("opens");
    let (pz, other) = (ia.create_pz().expect("a PZ"), ia.create_pz().expect("a PZ"));
    let granted = pz.allocate(BYTES, Access::ALL).expect("memory");
    // The attacker's endpoint is in another protection zone than the second one.
    let kept = [
        pz.allocate(BYTES, Access::LOCAL_READ).expect("memory"),
        other.allocate(BYTES, Access::ALL).expect("memory"),
    ];
    for region in &kept {
        region.write(0, &[UNTOUCHED; BYTES]);
    }
    let key = |region: &Region| {
        let remote = region.remote(0..BYTES);
        format!("{} {}", remote.address, remote.key)
    };
    print_line(format_args!("keys {} {}", key(&granted), key(&kept[1])));
    let requests = ia.create_evd(256, Streams::CR).expect("an EVD");
    let _listener = ia.listen(Some(PORT), &requests).expect("listens");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let Ok(Event::Request(request)) = requests.wait(20 * STEP_TIMEOUT) else {
                    continue;
                };
                let side = Side::new(&ia, &pz).expect("a connection takes no more than before");
                if request.accept(&side.ep, &[]).is_ok() {
                    scope.spawn(move || drop(side.answer()));
                }
            }
        });
        print_line("ready");
        while read_line().is_some() {
            let same = |region: &Region| region.to_vec(0..BYTES) == [UNTOUCHED; BYTES];
            let intact = kept.iter().all(same);
            print_line(if intact { "intact" } else { "changed" });
        }
        std::process::exit(0);
    });
}

/// Holds the UDP port of the address, and keeps the ports of attackers that have ended.
fn holder() {
    let _ia = Ia::open("user").expect("opens");
    attack_then_wait("holds", || ());
}

/// Answers each line by `pong` after a few messages to the victim and back. `ia` is the IA to use.
fn friend(ia: &str) {
    let ia = Ia::open(ia).expect("opens");
    let side = echo::Side::new(&ia).expect("a connection");
    let event = side.connect(address(&ia), PORT, b"").expect("connects");
    assert!(matches!(event, Event::Established { .. }), "{event:?}");
    let near = mappings(std::process::id()) > 0;
    print_line(if near { "link near" } else { "link udp" });
    while read_line().is_some() {
        for mark in 0..20 {
            side.ping(mark).expect("the victim answers");
        }
        print_line("pong");
    }
}

/// Returns the address that all processes of a test have.
fn address(ia: &Ia) -> IpAddr {
    ia.attributes().expect("attributes").address
}

/// What an attacker knows of its victim.
struct Keys {
    granted: Remote,
    /// In a protection zone that it is not in.
    foreign: Remote,
}

/// Connects again and again, and writes to the shared memory of each connection meanwhile.
fn attack(kind: &str, seed: u64, keys: &Keys) -> Result<u32, Error> {
    let ia = Ia::open("user")?;
    let pz = ia.create_pz()?;
    let mut copies = HashSet::new();
    let mut random = fastrand::Rng::with_seed(seed);
    let begin = Instant::now();
    let mut rounds = 0;
    while begin.elapsed() < ATTACK {
        let side = Side::new(&ia, &pz)?;
        side.ep
            .connect(address(&ia), PORT)
            .timeout(STEP_TIMEOUT)
            .start()?;
        let connected = side.connections.wait(STEP_TIMEOUT)?;
        let memory = SharedMemory::find(&mut copies);
        if let (Event::Established { .. }, Some(memory)) = (connected, memory) {
            rounds += 1;
            let over = AtomicBool::new(false);
            let mut random = random.fork();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        scribble(&memory, kind, &mut random, keys);
                        std::thread::sleep(Duration::from_micros(random.u64(0..2000)));
                    }
                });
                use_connection(&side, keys);
                over.store(true, Ordering::Relaxed);
            });
        }
        let _ = side.ep.disconnect(Close::Abrupt);
        drop(side);
        // Until both ends have noticed the end of a channel.
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(rounds)
}

/// Posts requests of all kinds, as far as the connection lives.
fn use_connection(side: &Side, keys: &Keys) {
    let begin = Instant::now();
    let (region, to) = (&side.region, keys.granted);
    let flags = CompletionFlags::empty();
    while begin.elapsed() < ROUND {
        let posted = [
            side.ep.post_send(&[region.slice(64..128)], 9),
            side.ep
                .post_rdma_write(&[region.slice(0..BYTES)], to, 10, flags),
            side.ep
                .post_rdma_read(&[region.slice(0..BYTES)], to, 11, flags),
        ];
        if posted.iter().all(Result::is_err) {
            return;
        }
        for _ in 0..4 {
            match side.done.wait_completion(Duration::from_millis(5)) {
                Ok(done) if done.cookie < 8 => {
                    let _ = side.ep.post_recv(&[region.slice(0..64)], 0);
                }
                _ => {}
            }
        }
        if let Ok(Some(_)) = side.connections.poll() {
            return;
        }
    }
}

fn scribble(memory: &SharedMemory, kind: &str, random: &mut fastrand::Rng, keys: &Keys) {
    let slot = memory.record(random.usize(..1 << 20));
    match kind {
        "anything" => {
            for _ in 0..64 {
                let word = random.u64(..).to_ne_bytes();
                memory.write(random.usize(0..memory.length() / 8) * 8, &word);
            }
        }
        "indices" => {
            let line = memory.line(random.usize(0..2), random.usize(0..2));
            let now = memory.word(line);
            let value = match random.u8(0..6) {
                0 => random.u64(..),
                1 => now.wrapping_add(64 * random.u64(0..8)),
                2 => now.wrapping_sub(64),
                3 => u64::MAX - 63,
                4 => now + 1,
                _ => memory.word(memory.line(random.usize(0..2), 0)),
            };
            memory.write(line, &value.to_ne_bytes());
        }
        "flags" => {
            for _ in 0..16 {
                let line = memory.line(random.usize(0..2), random.usize(2..4));
                let value = [0, 1, random.u32(..)][random.usize(0..3)];
                memory.write(line, &value.to_ne_bytes());
            }
        }
        "records" => {
            let (at, bytes) = match random.u8(0..4) {
                // The seal; the lengths of record and headers; the length of the payload; the flag of a lent one with it.
                0 => (0, random.u32(..).to_ne_bytes()),
                1 => (8, random.u32(..).to_ne_bytes()),
                2 => (12, random.u32(0..1 << 18).to_ne_bytes()),
                _ => (12, random.u32(..).to_ne_bytes()),
            };
            memory.write(slot + at, &bytes);
        }
        // Records with right seals and any content, from about where the victim reads next.
        "seals" => {
            for ring in 0..2 {
                let secret = memory.word(memory.line(ring, 0)) | 1;
                let mut position = memory.word(memory.line(ring, 1)) / 64 * 64;
                for _ in 0..64 {
                    let record = memory.record_after(ring, position);
                    let lines = random.u8(0..4);
                    let (header, payload) = (random.u8(0..48), random.u8(0..80));
                    memory.write(record + 8, &[lines, 0, header, 16 + header]);
                    memory.write(record + 12, &[payload, 0, 0, random.u8(0..8) / 7]);
                    if random.bool() {
                        let opcode = [0x04, 0x0a, 0x0c, 0x10, 0x11, random.u8(..)];
                        memory.write(record + 16, &[opcode[random.usize(0..6)]]);
                    }
                    memory.write(record, &(secret ^ position).to_ne_bytes());
                    position += 64 * u64::from(lines.max(1));
                }
            }
        }
        // Numbers of headers are big endian: BTH at 16, RETH at 28.
        "headers" => {
            let Keys { granted, foreign } = keys;
            for slot in (0..1 << 13).map(|slot| memory.record(slot)) {
                match random.u8(0..16) {
                    0 => memory.write(slot + 16, &[random.u8(..)]),
                    1 => memory.write(slot + 21, &random.u32(..1 << 24).to_be_bytes()[1..]),
                    2 => memory.write(slot + 24, &random.u32(..).to_be_bytes()),
                    3 => memory.write(slot + 28, &foreign.address.to_be_bytes()),
                    4 => {
                        memory.write(slot + 28, &foreign.address.to_be_bytes());
                        memory.write(slot + 36, &foreign.key.to_be_bytes());
                    }
                    5 => {
                        let beside = granted.address.wrapping_sub(random.u64(0..8192));
                        memory.write(slot + 28, &beside.to_be_bytes());
                    }
                    6 => memory.write(slot + 36, &random.u32(..).to_be_bytes()),
                    7 => memory.write(slot + 40, &random.u32(..).to_be_bytes()),
                    _ => {}
                }
            }
        }
        "wakes" => {
            for length in [0, 1, 8, 200] {
                flood_connections(&vec![1; length]);
            }
        }
        // The nonce, its address and the time of a copy; whether to lend; what is withdrawn.
        "lending" => {
            for _ in 0..16 {
                let line = memory.line(random.usize(0..2), random.usize(4..7));
                let at = line + 8 * random.usize(0..4);
                let now = memory.word(at);
                let value = match random.u8(0..6) {
                    0 => random.u64(..),
                    1 => now ^ 1 << random.u32(0..64),
                    2 => now.wrapping_add(64 * random.u64(0..64)),
                    3 => u64::MAX,
                    value => u64::from(value & 1),
                };
                memory.write(at, &value.to_ne_bytes());
            }
        }
        other => panic!("no kind {other}"),
    }
}

/// Plays the part `name`.
fn part(name: &str) {
    match name.split(' ').collect::<Vec<_>>()[..] {
        ["holder"] => holder(),
        ["sleeper"] => sleeper(),
        ["closer"] => closer(),
        ["victim"] => victim(),
        ["friend", ia] => friend(ia),
        ["attacker", kind, seed, ref numbers @ ..] => {
            let number = |at: usize| numbers[at].parse::<u64>().expect("a number");
            let remote = |at| Remote {
                address: number(at),
                length: BYTES as u32,
                key: number(at + 1) as u32,
            };
            let keys = Keys {
                granted: remote(0),
                foreign: remote(2),
            };
            let seed = seed.parse().expect("a seed");
            attack_then_wait("over", || {
                print_line(match attack(kind, seed, &keys) {
                    Ok(rounds) => format!("rounds {rounds}"),
                    Err(error) => format!("rounds 0 {error}"),
                });
            });
        }
        _ => panic!("no part {name}"),
    }
}

fn friends_go_on(friends: &mut [Actor]) {
    for friend in friends.iter_mut() {
        friend.send_line("ping");
    }
    for friend in friends {
        friend.expect_line("pong");
    }
}

/// Waits until `victim` has as many descriptors and mappings as before the attack.
fn nothing_is_left(victim: &Actor, (before, mapped): (Usage, usize)) {
    let end = Instant::now() + STEP_TIMEOUT;
    loop {
        let (descriptors, now) = (victim.usage().descriptors, mappings(victim.pid()));
        if descriptors <= before.descriptors && now <= mapped {
            return;
        }
        assert!(
            Instant::now() < end,
            "{descriptors} descriptors and {now} mappings are left of {} and {mapped}",
            before.descriptors
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn plays(name: &str, address_of: &str, kinds: &[&str], seeds: std::ops::Range<u64>) {
    let scenario = || {
        let stage = Stage::new(name, address_of, "");
        stage.adapter("udp", address_of, "near=off");
        let holder = stage.start("holder", Identity::Root);
        holder.expect_line("holds");
        let mut victim = stage.start("victim", Identity::Root);
        let keys = victim.expect_line("keys ");
        victim.expect_line("ready");
        let mut friends =
            ["user", "udp"].map(|ia| stage.start(&format!("friend {ia}"), Identity::Root));
        assert_eq!(friends[0].expect_line("link "), "near");
        assert_eq!(friends[1].expect_line("link "), "udp");
        friends_go_on(&mut friends);
        let mut figures = Figures::new(name);
        let before = (figures.note("before", &victim), mappings(victim.pid()));
        for seed in seeds {
            let start = |kind: &&str| {
                let part = format!("attacker {kind} {seed} {keys}");
                stage.start(&part, Identity::Root)
            };
            let attackers: Vec<Actor> = kinds.iter().map(start).collect();
            for (kind, attacker) in kinds.iter().zip(attackers) {
                friends_go_on(&mut friends);
                let rounds = attacker.expect_line("rounds ");
                assert_ne!(rounds.split(' ').next(), Some("0"), "{kind}: {rounds}");
                attacker.kill();
            }
        }
        figures.note("the attacks", &victim);
        nothing_is_left(&victim, before);
        friends_go_on(&mut friends);
        let idle = figures.note("their end", &victim);
        std::thread::sleep(Duration::from_secs(1));
        let later = figures.note("a second later", &victim);
        figures.show();
        let spent = later.processor - idle.processor;
        assert!(spent < Duration::from_millis(200), "{spent:?} in a second");
        victim.send_line("check");
        victim.expect_line("intact");
        assert!(victim.close_input_and_wait().success());
    };
    run_test(name, scenario, part);
}

#[test]
fn a_peer_that_writes_anything_ends_only_its_own_connections() {
    let name = "a_peer_that_writes_anything_ends_only_its_own_connections";
    plays(name, ADDRESS, &KINDS, 0..2);
}

/// Connects, and prints `broken` when the connection breaks. It never waits in the library.
fn sleeper() {
    let ia = Ia::open("user").expect("opens");
    let side = echo::Side::new(&ia).expect("a connection");
    let event = side.connect(address(&ia), PORT, b"").expect("connects");
    assert!(matches!(event, Event::Established { .. }), "{event:?}");
    side.ping(1).expect("the peer answers");
    print_line("connected");
    let begin = Instant::now();
    while begin.elapsed() < STEP_TIMEOUT {
        std::thread::sleep(Duration::from_millis(20));
        match side.connections().poll().expect("polls") {
            Some(Event::Ended { .. }) => return attack_then_wait("broken", || ()),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
    panic!("no event reports the end of the channel");
}

/// Serves until it is told to close all its connections to processes of this host. Then it stops, and does not say goodbye.
fn closer() {
    std::thread::spawn(|| echo::serve(PORT));
    let _ = read_line();
    shut_connections();
    // SAFETY: a plain system call.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
}

#[test]
fn the_end_of_a_channel_is_noticed_though_its_process_lives() {
    let name = "the_end_of_a_channel_is_noticed_though_its_process_lives";
    let scenario = || {
        let stage = Stage::new(name, ADDRESS_ALONE, "keepalive=0");
        let holder = stage.start("holder", Identity::Root);
        holder.expect_line("holds");
        let mut closer = stage.start("closer", Identity::Root);
        closer.expect_line("ready");
        let mut victim = stage.start("sleeper", Identity::Root);
        victim.expect_line("connected");
        assert_ne!(mappings(victim.pid()), 0);
        closer.send_line("close");
        victim.expect_line("broken");
        assert!(victim.is_running());
    };
    run_test(name, scenario, part);
}
