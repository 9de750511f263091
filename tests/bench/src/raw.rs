//! The limit: bare sockets that exchange the engine's datagrams, with their checksums and one copy.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

// The engine's own socket, without the engine.
use softrxe_port::socket::{Received, Socket};

use crate::Result;
use crate::cost::{Cost, charge};
use crate::pair::{Peer, pin};

/// Size of a message of 64 bytes on the wire (transport header, data, checksum), and of an acknowledgement.
const MESSAGE: usize = 80;
const ACK: usize = 20;
const CHECK: usize = 4;
/// Size of the transport header of a packet in the middle of a message, and of an RDMA write of one packet.
pub(crate) const MIDDLE: usize = 12;
pub(crate) const ONLY: usize = 28;
/// Maximum bytes and datagrams of one run.
const RUN: usize = 61_680;
const SEGMENTS: usize = 60;

/// The way to wait for the next datagram.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Spin,
    Block,
}

fn socket(ip: &str) -> Result<Socket> {
    Ok(Socket::bind(ip.parse::<IpAddr>()?, 0, 4 << 20)?)
}

fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// Sends `pieces`, split into `segment` bytes each.
fn send(socket: &Socket, to: &SocketAddr, pieces: &[libc::iovec], segment: usize) -> Result<()> {
    let total: usize = pieces.iter().map(|p| p.iov_len).sum();
    // SAFETY: every caller's pieces are slices that live until the call returns.
    unsafe { socket.send(to, pieces, (total > segment).then_some(segment as u16))? };
    Ok(())
}

fn receive(socket: &Socket, into: &mut Received, wait: Wait) -> Result<()> {
    while !socket.receive(into)? {
        if wait == Wait::Block {
            let mut poll = libc::pollfd {
                fd: socket.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one pollfd.
            unsafe { libc::poll(&raw mut poll, 1, 1000) };
        }
    }
    Ok(())
}

fn seal(datagram: &mut [u8]) {
    let end = datagram.len() - CHECK;
    let crc = crc32fast::hash(&datagram[..end]);
    datagram[end..].copy_from_slice(&crc.to_le_bytes());
}

fn intact(datagram: &[u8]) -> bool {
    let (body, crc) = datagram.split_at(datagram.len().saturating_sub(CHECK));
    crc32fast::hash(body).to_le_bytes() == crc
}

/// Sends a run of datagrams: each of `parts` after `header`, with a checksum over both.
fn send_run<'a>(
    socket: &Socket,
    to: &SocketAddr,
    header: &[u8],
    parts: impl Iterator<Item = &'a [u8]> + Clone,
) -> Result<()> {
    let mut checks = [[0u8; CHECK]; SEGMENTS];
    for (check, part) in checks.iter_mut().zip(parts.clone()) {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(header);
        hasher.update(part);
        *check = hasher.finalize().to_le_bytes();
    }
    let mut pieces = Vec::with_capacity(3 * SEGMENTS);
    let mut size = 0;
    for (check, part) in checks.iter().zip(parts) {
        pieces.extend([vector(header), vector(part), vector(check)]);
        size = header.len() + part.len() + CHECK;
    }
    send(socket, to, &pieces, size)
}

/// Destination of the datagrams' data, filled in order and cyclically.
struct Destination {
    memory: Vec<u8>,
    at: usize,
}

impl Destination {
    fn new(size: usize) -> Self {
        Self {
            memory: vec![0; size],
            at: 0,
        }
    }

    /// Checks the received datagrams and copies the data after each `header`; returns the number of datagrams.
    fn take(&mut self, received: &Received, header: usize) -> Result<u64> {
        let mut count = 0;
        for (_, datagram) in received.datagrams() {
            if !intact(datagram) {
                return Err("a datagram has a wrong checksum".into());
            }
            let data = &datagram[header..datagram.len() - CHECK];
            if self.at + data.len() > self.memory.len() {
                self.at = 0;
            }
            self.memory[self.at..self.at + data.len()].copy_from_slice(data);
            self.at += data.len();
            count += 1;
        }
        Ok(count)
    }
}

/// Returns a message, followed by the acknowledgement of the peer's last message if requested.
fn message(acknowledged: bool) -> Vec<u8> {
    let mut bytes = vec![7; MESSAGE];
    seal(&mut bytes);
    if acknowledged {
        let mut ack = vec![1; ACK];
        seal(&mut ack);
        bytes.extend(ack);
    }
    bytes
}

/// Waits for the peer's message.
fn await_message(socket: &Socket, received: &mut Received, wait: Wait) -> Result<()> {
    loop {
        receive(socket, received, wait)?;
        let mut found = false;
        for (_, datagram) in received.datagrams() {
            if !intact(datagram) {
                return Err("a datagram has a wrong checksum".into());
            }
            found |= datagram.len() == MESSAGE;
        }
        if found {
            return Ok(());
        }
    }
}

/// Measures half the round trip of a 64-byte message in microseconds. `acknowledged`: a datagram after the answer
/// acknowledges each message.
pub(crate) fn echo(wait: Wait, acknowledged: bool) -> Result<f64> {
    let mode = match (wait, acknowledged) {
        (Wait::Spin, true) => "spin",
        (Wait::Spin, false) => "spin-bare",
        (Wait::Block, _) => "block",
    };
    let (_peer, line) = Peer::ourselves(&["serve-raw", mode])?;
    let to: SocketAddr = line.parse()?;
    pin(0);
    let socket = socket("127.0.0.1")?;
    let mut received = Received::new();
    let bytes = message(acknowledged);
    let mut once = || -> Result<()> {
        send(&socket, &to, &[vector(&bytes)], MESSAGE)?;
        await_message(&socket, &mut received, wait)
    };
    let rounds = if wait == Wait::Spin { 20_000 } else { 4_000 };
    for _ in 0..500 {
        once()?;
    }
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let begin = Instant::now();
        once()?;
        times.push(begin.elapsed());
    }
    Ok(half_of_median(&mut times))
}

/// Returns half the median, in microseconds.
pub(crate) fn half_of_median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6 / 2.0
}

/// Measures datagrams a second of `data` bytes after a `header`, to a peer that checks each, copies it and
/// acknowledges each batch; at most `window` of them are in flight.
pub(crate) fn stream(header: usize, data: usize, window: usize) -> Result<f64> {
    let mode = if header == ONLY { "sink-only" } else { "sink" };
    let (_peer, line) = Peer::ourselves(&["serve-raw", mode])?;
    let to: SocketAddr = line.parse()?;
    pin(0);
    let socket = socket("127.0.0.1")?;
    let mut received = Received::new();
    let size = header + data + CHECK;
    let payload = vec![5u8; data];
    let in_run = (RUN / size).min(SEGMENTS).min(window);
    let header = vec![9u8; header];
    let mut sent = 0u64;
    let mut done = 0u64;
    let spell = Duration::from_millis(300);
    let (mut begin, mut base) = (Instant::now(), 0);
    let mut warm = false;
    loop {
        while sent - done + in_run as u64 <= window as u64 {
            let parts = (0..in_run).map(|_| &payload[..]);
            send_run(&socket, &to, &header, parts)?;
            sent += in_run as u64;
        }
        receive(&socket, &mut received, Wait::Spin)?;
        for (_, ack) in received.datagrams() {
            let count: [u8; 8] = ack[..8].try_into()?;
            done = done.max(u64::from_le_bytes(count));
        }
        if begin.elapsed() >= spell {
            if warm {
                return Ok((done - base) as f64 / begin.elapsed().as_secs_f64());
            }
            // The first interval is the warm-up.
            (warm, begin, base) = (true, Instant::now(), done);
        }
    }
}

/// Exchanges messages like [`crate::ours::exchange`].
pub(crate) fn exchange() -> Result<Cost> {
    let (here, there) = (socket("127.0.91.1")?, socket("127.0.91.2")?);
    let mut received = Received::new();
    let bytes = message(true);
    let mut cost = Cost {
        messages: 20_000,
        ..Cost::default()
    };
    for _ in 0..cost.messages {
        charge(&mut cost.sender, || {
            send(&here, &there.local(), &[vector(&bytes)], MESSAGE)
        })?;
        charge(&mut cost.receiver, || -> Result<()> {
            await_message(&there, &mut received, Wait::Spin)?;
            send(&there, &here.local(), &[vector(&bytes)], MESSAGE)
        })?;
        charge(&mut cost.sender, || {
            await_message(&here, &mut received, Wait::Spin)
        })?;
    }
    Ok(cost)
}

/// Transfers data like [`crate::ours::transfer`].
pub(crate) fn transfer(size: usize, deep: u64, from: usize) -> Result<Cost> {
    let (here, there) = (socket("127.0.91.1")?, socket("127.0.91.2")?);
    let (mut back, mut received) = (Received::new(), Received::new());
    let source = vec![5u8; from];
    let mut place = Destination::new(size);
    let header = [9u8; MIDDLE];
    let datagram = MIDDLE + 4096 + CHECK;
    let in_run = RUN / datagram;
    let datagrams = (400u64 << 20) / 4096;
    let window = deep * size as u64 / 4096;
    let (mut sent, mut done) = (0u64, 0u64);
    let mut cost = Cost::default();
    while done < datagrams {
        charge(&mut cost.sender, || -> Result<()> {
            while sent - done + in_run as u64 <= window {
                let first = sent as usize;
                let parts = (first..first + in_run).map(|n| &source[n * 4096 % from..][..4096]);
                send_run(&here, &there.local(), &header, parts)?;
                sent += in_run as u64;
            }
            Ok(())
        })?;
        charge(&mut cost.receiver, || -> Result<()> {
            while done < sent && there.receive(&mut received)? {
                done += place.take(&received, MIDDLE)?;
            }
            let mut ack = [0u8; ACK];
            seal(&mut ack);
            send(&there, &here.local(), &[vector(&ack)], ACK)
        })?;
        charge(&mut cost.sender, || here.receive(&mut back))?;
    }
    cost.messages = datagrams * 4096 / size as u64;
    Ok(cost)
}

/// Runs the other process.
pub(crate) fn serve(mode: &str) -> Result<()> {
    pin(1);
    let socket = socket("127.0.0.1")?;
    println!("{}", socket.local());
    std::io::stdout().flush()?;
    let mut received = Received::new();
    match mode {
        "sink" => return sink(&socket, &mut received, MIDDLE),
        "sink-only" => return sink(&socket, &mut received, ONLY),
        _ => {}
    }
    let wait = if mode == "block" {
        Wait::Block
    } else {
        Wait::Spin
    };
    let bytes = message(mode != "spin-bare");
    loop {
        await_message(&socket, &mut received, wait)?;
        let to = received.from;
        send(&socket, &to, &[vector(&bytes)], MESSAGE)?;
    }
}

fn sink(socket: &Socket, received: &mut Received, header: usize) -> Result<()> {
    let mut place = Destination::new(1 << 20);
    let mut count = 0u64;
    loop {
        receive(socket, received, Wait::Spin)?;
        count += place.take(received, header)?;
        let mut ack = [0u8; ACK];
        ack[..8].copy_from_slice(&count.to_le_bytes());
        seal(&mut ack);
        let to = received.from;
        send(socket, &to, &[vector(&ack)], ACK)?;
    }
}
