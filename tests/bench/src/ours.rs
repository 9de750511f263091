//! The user engine, through an IA of dat.conf and the C function table, as a consumer meets it.

use std::io::Write;
use std::time::{Duration, Instant};

use dat::{
    Access, Close, Completion, CompletionFlags, Ep, Evd, Event, Ia, Pz, Region, Remote, Streams,
};

use crate::Result;
use crate::cost::{Cost, charge};
use crate::pair::{Peer, pin};
use crate::raw::half_of_median;

const CLIENT: &str = "bench-client";
const SERVER: &str = "bench-server";
const PATIENCE: Duration = Duration::from_secs(10);
const MESSAGE: usize = 64;
/// Bytes that each side opens to the other.
const WINDOW: usize = 1 << 20;
/// Receives posted ahead, requests outstanding at most.
const RECEIVES: u32 = 16;
const REQUESTS: u32 = 256;
/// Cookie of receives; requests have others.
const RECEIVE: u64 = 1;
/// How long a rate is measured, after as long a warm-up.
const SPELL: Duration = Duration::from_millis(300);
/// Requests of 64 bytes outstanding, and those of them between two that complete.
pub(crate) const DEEP: u64 = 256;
const SILENT: u64 = 64;

/// One end.
struct Side {
    ia: Ia,
    pz: Pz,
    done: Evd,
    connections: Evd,
    ep: Ep,
    /// Incoming message, outgoing message.
    messages: Region,
    window: Region,
    polled: bool,
}

impl Side {
    fn new(name: &str, polled: bool) -> Result<Self> {
        let ia = Ia::open(name)?;
        let pz = ia.create_pz()?;
        let done = ia.create_evd(512, Streams::DTO)?;
        let connections = ia.create_evd(64, Streams::CR | Streams::CONNECTION)?;
        let ep = endpoint(&ia, &pz, &done, &connections)?;
        let messages = pz.allocate(2 * MESSAGE, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
        let window = pz.allocate(WINDOW, Access::ALL)?;
        let side = Self {
            ia,
            pz,
            done,
            connections,
            ep,
            messages,
            window,
            polled,
        };
        for _ in 0..RECEIVES {
            side.expect()?;
        }
        Ok(side)
    }

    fn expect(&self) -> Result<()> {
        Ok(self
            .ep
            .post_recv(&[self.messages.slice(0..MESSAGE)], RECEIVE)?)
    }

    fn send(&self) -> Result<()> {
        Ok(self
            .ep
            .post_send(&[self.messages.slice(MESSAGE..2 * MESSAGE)], 2)?)
    }

    /// The next completion, which is a success.
    fn completion(&self) -> Result<Completion> {
        if !self.polled {
            return Ok(self.done.wait_completion(PATIENCE)?);
        }
        // The clock is read late: who polls raw sockets reads none.
        let mut begin = None;
        for turn in 0u32.. {
            if let Some(done) = self.glance()? {
                return Ok(done);
            }
            if turn % 65_536 == 65_535
                && begin.get_or_insert_with(Instant::now).elapsed() > PATIENCE
            {
                break;
            }
        }
        Err(format!("no completion in {PATIENCE:?}").into())
    }

    /// A completion, if there is one.
    fn glance(&self) -> Result<Option<Completion>> {
        match self.done.poll()? {
            None => Ok(None),
            Some(Event::Completion(done)) if done.status == dat::DtoStatus::Success => {
                Ok(Some(done))
            }
            Some(other) => Err(format!("not a success: {other:?}").into()),
        }
    }

    /// Waits for a message of the peer's; the completions of our own requests pass by.
    fn message(&self) -> Result<()> {
        while self.completion()?.cookie != RECEIVE {}
        Ok(())
    }

    /// Tells the peer where our memory is, and hears where its is.
    fn introduce(&self) -> Result<Remote> {
        self.messages
            .write(MESSAGE, &self.window.remote(0..WINDOW).to_bytes());
        self.send()?;
        // Both its completions, so that what is counted later is of what is posted later.
        let first = self.completion()?.cookie;
        if self.completion()?.cookie == first {
            return Err("two completions of one kind".into());
        }
        let mut bytes = [0; Remote::SIZE];
        self.messages.read(0, &mut bytes);
        self.expect()?;
        Ok(Remote::from_bytes(bytes))
    }

    /// Writes our 64 bytes, the last one `flag`, to the peer.
    fn raise(&self, to: Remote, flag: u8, round: u64) -> Result<()> {
        self.messages.write(2 * MESSAGE - 1, &[flag]);
        let flags = silent(round);
        let bytes = [self.messages.slice(MESSAGE..2 * MESSAGE)];
        Ok(self
            .ep
            .post_rdma_write(&bytes, Remote { length: 64, ..to }, 3, flags)?)
    }

    /// Waits until the peer's write is here; whether the connection still stands.
    fn raised(&self, flag: u8) -> Result<bool> {
        for turn in 0u32.. {
            if self.window.load(MESSAGE - 1) == flag {
                break;
            }
            self.glance()?;
            if turn % 4096 == 4095 && self.connections.poll()?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn endpoint(ia: &Ia, pz: &Pz, done: &Evd, connections: &Evd) -> Result<Ep> {
    let builder = ia
        .endpoint(pz)
        .recv_evd(done)
        .request_evd(done)
        .connect_evd(connections);
    Ok(builder
        .max_recv(RECEIVES)
        .max_requests(REQUESTS)
        .max_reads(8)
        .create()?)
}

/// Every so many requests one completes.
fn silent(round: u64) -> CompletionFlags {
    if round % SILENT == SILENT - 1 {
        CompletionFlags::empty()
    } else {
        CompletionFlags::SUPPRESS
    }
}

/// Connects to a new process that serves `mode`; also says where the peer's memory is.
fn connected(mode: &str, polled: bool) -> Result<(Peer, Side, Remote)> {
    let (peer, line) = Peer::ourselves(&["serve-ours", mode])?;
    pin(0);
    let (address, qual) = line
        .split_once(' ')
        .ok_or("the peer did not say where it listens")?;
    let side = Side::new(CLIENT, polled)?;
    side.ep
        .connect(address.parse()?, qual.parse()?)
        .timeout(PATIENCE)
        .start()?;
    match side.connections.wait(PATIENCE)? {
        Event::Established { .. } => {}
        other => return Err(format!("not connected: {other:?}").into()),
    }
    let remote = side.introduce()?;
    Ok((peer, side, remote))
}

/// Half round trip of 64-byte messages in microseconds.
pub(crate) fn send(polled: bool) -> Result<f64> {
    let (_peer, side, _) = connected(if polled { "echo" } else { "echo-wait" }, polled)?;
    let once = || -> Result<()> {
        side.send()?;
        side.message()?;
        side.expect()
    };
    for _ in 0..500 {
        once()?;
    }
    let rounds = 10_000;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let begin = Instant::now();
        once()?;
        times.push(begin.elapsed());
    }
    Ok(half_of_median(&mut times))
}

/// Half round trip of 64-byte RDMA writes in microseconds: each side polls the last byte.
pub(crate) fn write_latency() -> Result<f64> {
    let (_peer, side, remote) = connected("flag", true)?;
    let rounds = 10_500;
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let flag = (round % 2) as u8 + 1;
        let begin = Instant::now();
        side.raise(remote, flag, round as u64)?;
        side.raised(flag)?;
        if round >= 500 {
            times.push(begin.elapsed());
        }
    }
    Ok(half_of_median(&mut times))
}

/// RDMA writes of 64 bytes, one after the other, until the completion is polled. The target spins on its memory and calls nothing.
struct Puts {
    _peer: Peer,
    side: Side,
    to: Remote,
}

impl Puts {
    fn new() -> Result<Self> {
        let (peer, side, remote) = connected("spin", true)?;
        let to = Remote {
            length: 64,
            ..remote
        };
        Ok(Self {
            _peer: peer,
            side,
            to,
        })
    }

    fn put(&self) -> Result<()> {
        let bytes = [self.side.messages.slice(MESSAGE..2 * MESSAGE)];
        let always = CompletionFlags::empty();
        self.side.ep.post_rdma_write(&bytes, self.to, 3, always)?;
        self.side.completion()?;
        Ok(())
    }
}

/// Microseconds of such a write, while another pair of processes does the same: two processes on each of two processors.
pub(crate) fn crowd() -> Result<f64> {
    let (_other, _) = Peer::ourselves(&["put-beside"])?;
    let puts = Puts::new()?;
    let (mut begin, mut done, mut warm) = (Instant::now(), 0u32, false);
    loop {
        puts.put()?;
        done += 1;
        if begin.elapsed() >= SPELL {
            if warm {
                return Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(done));
            }
            (warm, begin, done) = (true, Instant::now(), 0);
        }
    }
}

/// The other pair's first process, until it is killed.
pub(crate) fn put_beside() -> Result<()> {
    let puts = Puts::new()?;
    println!("putting");
    std::io::stdout().flush()?;
    loop {
        puts.put()?;
    }
}

/// Rate of `post`, called with a running number, while at most `deep` are outstanding; one in `SILENT` completes if `deep` is
/// larger than that, else each.
fn rate(side: &Side, deep: u64, post: impl Fn(u64, CompletionFlags) -> Result<()>) -> Result<f64> {
    let step = if deep > SILENT { SILENT } else { 1 };
    let (mut posted, mut done) = (0, 0);
    let (mut begin, mut base, mut warm) = (Instant::now(), 0, false);
    loop {
        while posted - done < deep {
            let flags = if step == 1 {
                CompletionFlags::empty()
            } else {
                silent(posted)
            };
            post(posted, flags)?;
            posted += 1;
        }
        side.completion()?;
        done += step;
        while side.glance()?.is_some() {
            done += step;
        }
        if begin.elapsed() >= SPELL {
            if warm {
                return Ok((done - base) as f64 / begin.elapsed().as_secs_f64());
            }
            (warm, begin, base) = (true, Instant::now(), done);
        }
    }
}

/// Million 64-byte RDMA writes a second.
pub(crate) fn messages() -> Result<f64> {
    let (_peer, side, remote) = connected("target", true)?;
    let to = Remote {
        length: 64,
        ..remote
    };
    let bytes = [side.messages.slice(MESSAGE..2 * MESSAGE)];
    let per_second = rate(&side, DEEP, |_, flags| {
        Ok(side.ep.post_rdma_write(&bytes, to, 3, flags)?)
    })?;
    Ok(per_second / 1e6)
}

/// GB/s of RDMA reads or writes of `size` bytes, `deep` outstanding.
pub(crate) fn bandwidth(read: bool, size: usize, deep: usize) -> Result<f64> {
    let (_peer, side, remote) = connected("target", true)?;
    let at = Remote {
        length: size as u32,
        ..remote
    };
    let bytes = [side.window.slice(0..size)];
    let per_second = rate(&side, deep as u64, |_, flags| {
        if read {
            side.ep.post_rdma_read(&bytes, at, 3, flags)?;
        } else {
            side.ep.post_rdma_write(&bytes, at, 3, flags)?;
        }
        Ok(())
    })?;
    Ok(per_second * size as f64 / 1e9)
}

/// Connections made and ended a second, one after the other, with a new endpoint each.
pub(crate) fn connections() -> Result<f64> {
    let (_peer, line) = Peer::ourselves(&["serve-ours", "accept"])?;
    pin(0);
    let (address, qual) = line
        .split_once(' ')
        .ok_or("the peer did not say where it listens")?;
    let (address, qual) = (address.parse()?, qual.parse()?);
    let side = Side::new(CLIENT, false)?;
    let rounds = 200;
    let begin = Instant::now();
    for _ in 0..rounds {
        let ep = endpoint(&side.ia, &side.pz, &side.done, &side.connections)?;
        ep.connect(address, qual).timeout(PATIENCE).start()?;
        match side.connections.wait(PATIENCE)? {
            Event::Established { .. } => {}
            other => return Err(format!("not connected: {other:?}").into()),
        }
        ep.disconnect(Close::Abrupt)?;
        side.connections.wait(PATIENCE)?;
    }
    Ok(f64::from(rounds) / begin.elapsed().as_secs_f64())
}

/// Both ends in this thread, connected; and where the server's memory is.
fn both() -> Result<(Side, Side, Remote)> {
    let server = Side::new(SERVER, true)?;
    let listener = server.ia.listen(None, &server.connections)?;
    let client = Side::new(CLIENT, true)?;
    client
        .ep
        .connect(server.ia.attributes()?.address, listener.conn_qual())
        .timeout(PATIENCE)
        .start()?;
    let Event::Request(request) = server.connections.wait(PATIENCE)? else {
        return Err("the first event is no connection request".into());
    };
    request.accept(&server.ep, b"")?;
    server.connections.wait(PATIENCE)?;
    client.connections.wait(PATIENCE)?;
    let remote = server.window.remote(0..WINDOW);
    Ok((client, server, remote))
}

/// Messages of 64 bytes there and back.
pub(crate) fn exchange() -> Result<Cost> {
    let (client, server, _) = both()?;
    let mut cost = Cost::default();
    let (mut send, mut answer) = (Duration::ZERO, Duration::ZERO);
    let rounds = 20_000;
    for round in 0..rounds + 500 {
        if round == 500 {
            (send, answer) = (Duration::ZERO, Duration::ZERO);
        }
        charge(&mut send, || client.send())?;
        charge(&mut answer, || -> Result<()> {
            server.message()?;
            server.send()?;
            server.expect()
        })?;
        charge(&mut send, || -> Result<()> {
            client.message()?;
            client.expect()
        })?;
    }
    (cost.sender, cost.receiver, cost.messages) = (send, answer, rounds);
    Ok(cost)
}

/// RDMA writes of `size` bytes, `deep` outstanding, each of the next ones of `from` bytes.
pub(crate) fn transfer(size: usize, deep: u64, from: usize) -> Result<Cost> {
    let (client, server, remote) = both()?;
    let source = client.pz.allocate(from, Access::LOCAL_READ)?;
    let parts = (from / size) as u64;
    let to = Remote {
        length: size as u32,
        ..remote
    };
    let mut cost = Cost::default();
    let (mut posted, mut done) = (0, 0);
    let messages = (400 << 20) / size as u64;
    let begin = Instant::now();
    while done < messages {
        charge(&mut cost.sender, || -> Result<()> {
            while posted - done < deep {
                let at = (posted % parts) as usize * size;
                let bytes = [source.slice(at..at + size)];
                client
                    .ep
                    .post_rdma_write(&bytes, to, 3, CompletionFlags::empty())?;
                posted += 1;
            }
            while client.glance()?.is_some() {
                done += 1;
            }
            Ok(())
        })?;
        charge(&mut cost.receiver, || server.glance())?;
        if begin.elapsed() > 2 * PATIENCE {
            return Err("the writes do not come to an end".into());
        }
    }
    cost.messages = messages;
    Ok(cost)
}

/// KiB of resident memory that an endpoint adds when there are `count`, measured in a process of its own.
pub(crate) fn memory(count: usize, connected: bool) -> Result<f64> {
    let kind = if connected {
        "memory-connected"
    } else {
        "memory"
    };
    let (_peer, line) = Peer::ourselves(&[kind, &count.to_string()])?;
    Ok(line.parse()?)
}

/// Resident bytes of this process.
fn resident() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = status
        .split_whitespace()
        .nth(1)
        .ok_or("no resident size in /proc/self/statm")?
        .parse()?;
    Ok(pages * 4096.0)
}

/// The process of [`memory`].
pub(crate) fn print_memory(count: &str) -> Result<()> {
    let count: usize = count.parse()?;
    let ia = Ia::open(CLIENT)?;
    let pz = ia.create_pz()?;
    let done = ia.create_evd(512, Streams::DTO)?;
    let connections = ia.create_evd(64, Streams::CR | Streams::CONNECTION)?;
    let before = resident()?;
    let mut endpoints = Vec::with_capacity(count);
    for _ in 0..count {
        let builder = ia
            .endpoint(&pz)
            .recv_evd(&done)
            .request_evd(&done)
            .connect_evd(&connections);
        endpoints.push(builder.create()?);
    }
    println!("{}", (resident()? - before) / count as f64 / 1024.0);
    Ok(())
}

/// The same for endpoints that are connected, in pairs, to each other.
pub(crate) fn print_memory_connected(count: &str) -> Result<()> {
    let count: usize = count.parse()?;
    let [here, there] = [Ia::open(CLIENT)?, Ia::open(SERVER)?];
    let ends = [&here, &there].map(|ia| -> Result<_> {
        let done = ia.create_evd(512, Streams::DTO)?;
        let connections = ia.create_evd(64, Streams::CR | Streams::CONNECTION)?;
        Ok((ia, ia.create_pz()?, done, connections))
    });
    let [here, there] = ends;
    let (here, there) = (here?, there?);
    let listener = there.0.listen(None, &there.3)?;
    let (address, qual) = (there.0.attributes()?.address, listener.conn_qual());
    let pairs = count.div_ceil(2);
    let mut endpoints = Vec::with_capacity(2 * pairs);
    let before = resident()?;
    for _ in 0..pairs {
        let [ours, theirs] = [&here, &there].map(|(ia, pz, done, connections)| {
            let builder = ia
                .endpoint(pz)
                .recv_evd(done)
                .request_evd(done)
                .connect_evd(connections);
            builder.create()
        });
        let (ours, theirs) = (ours?, theirs?);
        ours.connect(address, qual).timeout(PATIENCE).start()?;
        let Event::Request(request) = there.3.wait(PATIENCE)? else {
            return Err("the first event is no connection request".into());
        };
        request.accept(&theirs, b"")?;
        for evd in [&here.3, &there.3] {
            match evd.wait(PATIENCE)? {
                Event::Established { .. } => {}
                other => return Err(format!("not connected: {other:?}").into()),
            }
        }
        endpoints.extend([ours, theirs]);
    }
    let each = (resident()? - before) / endpoints.len() as f64;
    println!("{}", each / 1024.0);
    std::io::stdout().flush()?;
    // Ending so many connections one by one would tell nothing more.
    std::process::exit(0);
}

/// The other process.
pub(crate) fn serve(mode: &str) -> Result<()> {
    pin(1);
    let polled = mode != "echo-wait";
    let side = Side::new(SERVER, polled)?;
    let listener = side.ia.listen(None, &side.connections)?;
    println!("{} {}", side.ia.attributes()?.address, listener.conn_qual());
    std::io::stdout().flush()?;
    if mode == "accept" {
        return accept_all(&side);
    }
    let Event::Request(request) = side.connections.wait(PATIENCE)? else {
        return Err("the first event is no connection request".into());
    };
    request.accept(&side.ep, b"")?;
    side.connections.wait(PATIENCE)?;
    let remote = side.introduce()?;
    // When the other process is done it leaves, and what is posted here flushes: the end. Had it failed, it would say so.
    if side.connections.poll()?.is_none() {
        let _ = answer(&side, mode, remote);
    }
    Ok(())
}

/// Does the server's half of a measurement until the connection ends.
fn answer(side: &Side, mode: &str, remote: Remote) -> Result<()> {
    match mode {
        "echo" | "echo-wait" => loop {
            side.message()?;
            side.send()?;
            side.expect()?;
        },
        "flag" => {
            for round in 0u64.. {
                let flag = (round % 2) as u8 + 1;
                if !side.raised(flag)? {
                    break;
                }
                side.raise(remote, flag, round)?;
            }
            Ok(())
        }
        // No call that drives the engine; the end of the connection is looked for now and then.
        "spin" => {
            for turn in 0u32.. {
                let _ = side.window.load(MESSAGE - 1);
                if turn % 65_536 == 65_535 && side.connections.poll()?.is_some() {
                    break;
                }
            }
            Ok(())
        }
        _ => loop {
            side.glance()?;
        },
    }
}

fn accept_all(side: &Side) -> Result<()> {
    let mut endpoints = std::collections::HashMap::new();
    loop {
        match side.connections.wait(PATIENCE)? {
            Event::Request(request) => {
                let ep = endpoint(&side.ia, &side.pz, &side.done, &side.connections)?;
                request.accept(&ep, b"")?;
                endpoints.insert(ep.id(), ep);
            }
            Event::Ended { ep, .. } => drop(endpoints.remove(&ep)),
            _ => {}
        }
    }
}
