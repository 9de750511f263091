//! The user engine through an IA of dat.conf and the C function table, as consumers use it.

use std::io::Write;
use std::time::{Duration, Instant};

use dat::{
    Access, Close, Completion, CompletionFlags, Ep, Evd, Event, Ia, Pz, Region, Remote, Streams,
};

use crate::Result;
use crate::api;
use crate::cost::{Cost, charge};
use crate::pair::{Peer, pin};
use crate::raw::half_of_median;

/// How the engine's two processes reach each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// By UDP (`near=off`).
    Udp,
    /// By shared memory (`near=auto`).
    Near,
}

impl Link {
    /// Returns the names of the IAs of this process and of the other one.
    const fn names(self) -> [&'static str; 2] {
        match self {
            Self::Udp => [CLIENT, SERVER],
            Self::Near => ["near-client", "near-server"],
        }
    }
}

const CLIENT: &str = "bench-client";
const SERVER: &str = "bench-server";
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const MESSAGE: usize = 64;
/// Size of the memory that each side exposes to the other, in bytes.
const WINDOW: usize = 1 << 20;
/// Number of receives posted ahead, and maximum of outstanding requests.
const RECEIVES: u32 = 16;
const REQUESTS: u32 = 256;
/// Cookie of receives; requests have other cookies.
pub(crate) const RECEIVE: u64 = 1;
/// Duration of a rate measurement, after a warm-up of the same length.
const MEASURED: Duration = Duration::from_millis(300);
/// Outstanding requests of 64 bytes, and the interval of signaled requests.
pub(crate) const DEEP: u64 = 256;
const SILENT: u64 = 64;

/// One side of a connection.
pub(crate) struct Side {
    ia: Ia,
    pz: Pz,
    pub(crate) done: Evd,
    connections: Evd,
    pub(crate) ep: Ep,
    /// Buffers of an incoming and an outgoing message.
    pub(crate) messages: Region,
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
        // One less: a receive is posted before the next message is awaited.
        for _ in 0..RECEIVES - 1 {
            side.expect()?;
        }
        Ok(side)
    }

    #[inline(always)]
    pub(crate) fn expect(&self) -> Result<()> {
        Ok(self
            .ep
            .post_recv(&[self.messages.slice(0..MESSAGE)], RECEIVE)?)
    }

    #[inline(always)]
    pub(crate) fn send(&self) -> Result<()> {
        Ok(self
            .ep
            .post_send(&[self.messages.slice(MESSAGE..2 * MESSAGE)], 2)?)
    }

    /// Sends the message `round` of a series, of which one in [`SILENT`] completes.
    #[inline(always)]
    fn send_silently(&self, round: u64) -> Result<()> {
        let message = [self.messages.slice(MESSAGE..2 * MESSAGE)];
        Ok(self.ep.post_send_with(&message, 2, silent(round))?)
    }

    /// Takes completions, which must be successes, up to one for which `is_last` returns true. As in `near.c`, nothing is between the
    /// loop and the call: a function that returns each completion in a `Result` of its own added 35 ns to half a round trip.
    #[inline(always)]
    fn take(&self, mut is_last: impl FnMut(Completion) -> bool) -> Result<()> {
        if !self.polled {
            while !is_last(self.done.wait_completion(TIMEOUT)?) {}
            return Ok(());
        }
        // The clock is read late: the measurement of raw sockets reads none.
        let mut begin = None;
        for turn in 0u32.. {
            if let Some(done) = self.done.poll_completion()?
                && is_last(done.result()?)
            {
                return Ok(());
            }
            if turn % 65_536 == 65_535 && begin.get_or_insert_with(Instant::now).elapsed() > TIMEOUT
            {
                break;
            }
        }
        Err(format!("no completion in {TIMEOUT:?}").into())
    }

    /// Waits for the next completion, and returns its cookie.
    fn completion(&self) -> Result<u64> {
        let mut cookie = 0;
        self.take(|done| {
            cookie = done.cookie;
            true
        })?;
        Ok(cookie)
    }

    /// Polls for a completion.
    fn poll_completion(&self) -> Result<Option<Completion>> {
        match self.done.poll_completion()? {
            None => Ok(None),
            Some(done) => Ok(Some(done.result()?)),
        }
    }

    /// Waits for a message of the peer; skips completions of our own requests.
    pub(crate) fn message(&self) -> Result<()> {
        self.take(|done| done.cookie == RECEIVE)
    }

    /// Exchanges the addresses of the exposed memory with the peer.
    fn introduce(&self) -> Result<Remote> {
        self.messages
            .write(MESSAGE, &self.window.remote(0..WINDOW).to_bytes());
        self.send()?;
        // Both completions are taken, so that later counts concern later posts.
        let first = self.completion()?;
        if self.completion()? == first {
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

    /// Waits for the peer's write; false if the connection has ended.
    fn raised(&self, flag: u8) -> Result<bool> {
        for turn in 0u32.. {
            if self.window.load(MESSAGE - 1) == flag {
                break;
            }
            self.poll_completion()?;
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

/// Returns the flags of request `round`: one of every [`SILENT`] completes.
fn silent(round: u64) -> CompletionFlags {
    if round % SILENT == SILENT - 1 {
        CompletionFlags::empty()
    } else {
        CompletionFlags::SUPPRESS
    }
}

/// Connects to a new process that serves `mode`; also returns the peer's memory.
pub(crate) fn connected(link: Link, mode: &str, polled: bool) -> Result<(Peer, Side, Remote)> {
    let [client, server] = link.names();
    let (peer, line) = Peer::ourselves(&["serve-ours", server, mode])?;
    pin(0);
    let (address, qual) = line
        .split_once(' ')
        .ok_or("the peer printed no qualifier")?;
    let side = Side::new(client, polled)?;
    side.ep
        .connect(address.parse()?, qual.parse()?)
        .timeout(TIMEOUT)
        .start()?;
    match side.connections.wait(TIMEOUT)? {
        Event::Established { .. } => {}
        other => return Err(format!("not connected: {other:?}").into()),
    }
    let remote = side.introduce()?;
    Ok((peer, side, remote))
}

/// Measures half the round trip of 64-byte messages in microseconds.
pub(crate) fn send(link: Link, polled: bool) -> Result<f64> {
    let (_peer, side, _) = connected(link, if polled { "echo" } else { "echo-wait" }, polled)?;
    let once = |round| -> Result<()> {
        side.send_silently(round)?;
        side.expect()?;
        side.message()
    };
    for round in 0..500 {
        once(round)?;
    }
    let rounds = 10_000;
    let mut times = Vec::with_capacity(rounds as usize);
    for round in 0..rounds {
        let begin = Instant::now();
        once(round)?;
        times.push(begin.elapsed());
    }
    Ok(half_of_median(&mut times))
}

/// Measures half the round trip of 64-byte RDMA writes in microseconds: each side polls the last byte.
pub(crate) fn write_latency(link: Link) -> Result<f64> {
    let (_peer, side, remote) = connected(link, "flag", true)?;
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

/// RDMA writes of 64 bytes, one after the other, each until its completion is polled. The target spins on its memory
/// and makes no calls.
struct Puts {
    _peer: Peer,
    side: Side,
    to: Remote,
}

impl Puts {
    fn new() -> Result<Self> {
        let (peer, side, remote) = connected(Link::Udp, "spin", true)?;
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

/// Measures such a write in microseconds while another pair of processes does the same: two processes on each of two
/// processors.
pub(crate) fn crowd() -> Result<f64> {
    let (_other, _) = Peer::ourselves(&["put-beside"])?;
    let puts = Puts::new()?;
    let (mut begin, mut done, mut warm) = (Instant::now(), 0u32, false);
    loop {
        puts.put()?;
        done += 1;
        if begin.elapsed() >= MEASURED {
            if warm {
                return Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(done));
            }
            (warm, begin, done) = (true, Instant::now(), 0);
        }
    }
}

/// Runs the other pair's first process, until it is killed.
pub(crate) fn put_beside() -> Result<()> {
    let puts = Puts::new()?;
    println!("putting");
    std::io::stdout().flush()?;
    loop {
        puts.put()?;
    }
}

/// Measures the rate of `post`, called with a running number, while at most `deep` requests are outstanding. One of
/// `SILENT` completes if `deep` is larger than that, else each.
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
        while side.poll_completion()?.is_some() {
            done += step;
        }
        if begin.elapsed() >= MEASURED {
            if warm {
                return Ok((done - base) as f64 / begin.elapsed().as_secs_f64());
            }
            (warm, begin, base) = (true, Instant::now(), done);
        }
    }
}

/// Measures million 64-byte RDMA writes a second.
pub(crate) fn messages(link: Link) -> Result<f64> {
    let (_peer, side, remote) = connected(link, "target", true)?;
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

/// Measures GB/s of RDMA reads or writes of `size` bytes, `deep` outstanding.
pub(crate) fn bandwidth(link: Link, read: bool, size: usize, deep: usize) -> Result<f64> {
    let (_peer, side, remote) = connected(link, "target", true)?;
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

/// Measures microseconds of an RDMA write of `size` bytes, from its post to its completion.
pub(crate) fn alone(link: Link, size: usize) -> Result<f64> {
    let per_second = bandwidth(link, false, size, 1)? * 1e9 / size as f64;
    Ok(1e6 / per_second)
}

/// Measures connections established and ended a second, one after the other, each with a new endpoint.
pub(crate) fn connections() -> Result<f64> {
    let (_peer, line) = Peer::ourselves(&["serve-ours", SERVER, "accept"])?;
    pin(0);
    let (address, qual) = line
        .split_once(' ')
        .ok_or("the peer printed no qualifier")?;
    let (address, qual) = (address.parse()?, qual.parse()?);
    let side = Side::new(CLIENT, false)?;
    let rounds = 200;
    let begin = Instant::now();
    for _ in 0..rounds {
        let ep = endpoint(&side.ia, &side.pz, &side.done, &side.connections)?;
        ep.connect(address, qual).timeout(TIMEOUT).start()?;
        match side.connections.wait(TIMEOUT)? {
            Event::Established { .. } => {}
            other => return Err(format!("not connected: {other:?}").into()),
        }
        ep.disconnect(Close::Abrupt)?;
        side.connections.wait(TIMEOUT)?;
    }
    Ok(f64::from(rounds) / begin.elapsed().as_secs_f64())
}

/// Returns both sides, connected, in this thread, and the server's memory.
fn both() -> Result<(Side, Side, Remote)> {
    let server = Side::new(SERVER, true)?;
    let listener = server.ia.listen(None, &server.connections)?;
    let client = Side::new(CLIENT, true)?;
    client
        .ep
        .connect(server.ia.attributes()?.address, listener.conn_qual())
        .timeout(TIMEOUT)
        .start()?;
    let Event::Request(request) = server.connections.wait(TIMEOUT)? else {
        return Err("the first event is no connection request".into());
    };
    request.accept(&server.ep, b"")?;
    server.connections.wait(TIMEOUT)?;
    client.connections.wait(TIMEOUT)?;
    let remote = server.window.remote(0..WINDOW);
    Ok((client, server, remote))
}

/// Sends messages of 64 bytes there and back.
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

/// Performs RDMA writes of `size` bytes, `deep` outstanding, from successive parts of `from` bytes.
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
            while client.poll_completion()?.is_some() {
                done += 1;
            }
            Ok(())
        })?;
        charge(&mut cost.receiver, || server.poll_completion())?;
        if begin.elapsed() > 2 * TIMEOUT {
            return Err("the writes do not complete".into());
        }
    }
    cost.messages = messages;
    Ok(cost)
}

/// Measures the KiB of resident memory that an endpoint adds when there are `count`, in a process of its own.
pub(crate) fn memory(count: usize, connected: bool) -> Result<f64> {
    let kind = if connected {
        "memory-connected"
    } else {
        "memory"
    };
    let (_peer, line) = Peer::ourselves(&[kind, &count.to_string()])?;
    Ok(line.parse()?)
}

/// Returns the resident memory of this process in bytes.
fn resident() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = status
        .split_whitespace()
        .nth(1)
        .ok_or("no resident size in /proc/self/statm")?
        .parse()?;
    Ok(pages * 4096.0)
}

/// Runs the process of [`memory`].
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

/// Runs the process of [`memory`] for endpoints that are connected to each other in pairs.
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
        ours.connect(address, qual).timeout(TIMEOUT).start()?;
        let Event::Request(request) = there.3.wait(TIMEOUT)? else {
            return Err("the first event is no connection request".into());
        };
        request.accept(&theirs, b"")?;
        for evd in [&here.3, &there.3] {
            match evd.wait(TIMEOUT)? {
                Event::Established { .. } => {}
                other => return Err(format!("not connected: {other:?}").into()),
            }
        }
        endpoints.extend([ours, theirs]);
    }
    let each = (resident()? - before) / endpoints.len() as f64;
    println!("{}", each / 1024.0);
    std::io::stdout().flush()?;
    // Ending so many connections one by one would add no information.
    std::process::exit(0);
}

/// Runs the other process.
pub(crate) fn serve(name: &str, mode: &str) -> Result<()> {
    pin(1);
    let polled = mode != "echo-wait";
    let side = Side::new(name, polled)?;
    let listener = side.ia.listen(None, &side.connections)?;
    println!("{} {}", side.ia.attributes()?.address, listener.conn_qual());
    std::io::stdout().flush()?;
    if mode == "accept" {
        return accept_all(&side);
    }
    let Event::Request(request) = side.connections.wait(TIMEOUT)? else {
        return Err("the first event is no connection request".into());
    };
    request.accept(&side.ep, b"")?;
    side.connections.wait(TIMEOUT)?;
    let remote = side.introduce()?;
    // When the measurement is done, the other process disconnects and the receives posted here are flushed. Errors of
    // that process are printed there.
    if side.connections.poll()?.is_none() {
        let _ = answer(&side, mode, remote);
    }
    Ok(())
}

/// Performs the server's part of a measurement until the connection ends.
fn answer(side: &Side, mode: &str, remote: Remote) -> Result<()> {
    match mode {
        "echo" | "echo-wait" => {
            for round in 0.. {
                side.message()?;
                side.send_silently(round)?;
                side.expect()?;
            }
            Ok(())
        }
        api::POLLED | api::WAITING => api::answer(side, mode),
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
        // No call drives the engine; the end of the connection is checked from time to time.
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
            side.poll_completion()?;
        },
    }
}

fn accept_all(side: &Side) -> Result<()> {
    let mut endpoints = std::collections::HashMap::new();
    loop {
        match side.connections.wait(TIMEOUT)? {
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
