//! Speed of the bare ring between two processes, each on a processor of its own, both of which poll.
//!
//! usage: ring_bench [ROUNDS [LINE]]: prints the best of so many short rounds, 60 by default; only lines that begin with LINE. Each payload is copied into the
//! ring and out of it; both buffers stay in the cache.

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use softrxe_near::agreement::ring_size;
use softrxe_near::layout::{payload_at, record_length};
use softrxe_near::{Channel, Receiver, Sender, WIDE_RING, prefers_wide_rings};

/// Headers of the records, as long as those of an RDMA write.
const HEADER: [u8; 28] = [7; 28];
/// Length of a round.
const ROUND: Duration = Duration::from_millis(10);
/// Records that are written before they are published, and read before room is reported.
const RUN: usize = 16;

/// What the child does in a round; its parent tells it in a record's payload.
const ECHO: u8 = 1;
const READ: u8 = 2;
const END: u8 = 3;

fn send(sender: &mut Sender, header: &[u8], payload: &[u8]) -> bool {
    let at = payload_at(header.len(), payload.len());
    let space = sender.space().expect("the peer is correct");
    if space.room < record_length(at, payload.len()) {
        return false;
    }
    // SAFETY: the room was checked.
    unsafe {
        let to = space.at.add(at);
        to.copy_from_nonoverlapping(NonNull::from(payload).cast(), payload.len());
    }
    sender.commit(header, at, payload.len());
    true
}

fn receive(receiver: &mut Receiver, into: &mut [u8]) -> Option<(u8, usize)> {
    let record = receiver.next().expect("the peer is correct")?;
    let to = &mut into[..record.payload_length];
    let length = to.len();
    // SAFETY: the payload is within the record.
    unsafe {
        record
            .payload()
            .copy_to_nonoverlapping(NonNull::from(to).cast(), length);
    }
    receiver.release();
    Some((record.header[0], length))
}

/// Waits for the next record.
fn await_record(receiver: &mut Receiver, into: &mut [u8]) -> (u8, usize) {
    loop {
        if let Some(received) = receive(receiver, into) {
            receiver.flush();
            return received;
        }
        std::hint::spin_loop();
    }
}

/// Sends when there is room.
fn send_at_last(sender: &mut Sender, header: &[u8], payload: &[u8]) {
    while !send(sender, header, payload) {
        sender.publish();
        std::hint::spin_loop();
    }
}

/// The child: echoes each record whose header begins with ECHO, reads the others, and answers the last one of a stream.
fn serve(channel: &mut Channel) {
    let mut buffer = vec![0; WIDE_RING];
    loop {
        let mut run = 0;
        while run < RUN
            && let Some((order, length)) = receive(&mut channel.receiver, &mut buffer)
        {
            run += 1;
            if order == END {
                return;
            }
            if order == ECHO {
                channel.receiver.flush();
                send_at_last(&mut channel.sender, &HEADER, &buffer[..length]);
                channel.sender.publish();
            }
        }
        channel.receiver.flush();
        if run == 0 {
            std::hint::spin_loop();
        }
    }
}

/// Half round trips of records with `payload` bytes after `header` bytes, in nanoseconds.
fn latency(channel: &mut Channel, header: usize, payload: usize) -> f64 {
    let (mut buffer, payload) = (vec![0; WIDE_RING], vec![1; payload]);
    let header = &[ECHO; 40][..header];
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < ROUND {
        for _ in 0..100 {
            send_at_last(&mut channel.sender, header, &payload);
            channel.sender.publish();
            await_record(&mut channel.receiver, &mut buffer);
        }
        count += 200;
    }
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}

/// Sends messages of `length` bytes in packets of the MTU one way; returns messages per second.
fn stream(channel: &mut Channel, header: usize, length: usize) -> f64 {
    let mut buffer = vec![0; WIDE_RING];
    let message = vec![3; length];
    let header = &[READ; 40][..header];
    let mtu = channel.sender.mtu();
    let (begin, mut count) = (Instant::now(), 0_u32);
    while begin.elapsed() < ROUND {
        for _ in 0..(1 << 20) / length.clamp(1 << 12, 1 << 20) {
            for packet in message.chunks(mtu) {
                send_at_last(&mut channel.sender, header, packet);
            }
            count += 1;
            if count.is_multiple_of(RUN as u32) {
                channel.sender.publish();
            }
        }
    }
    send_at_last(&mut channel.sender, &[ECHO], &[]);
    channel.sender.publish();
    await_record(&mut channel.receiver, &mut buffer);
    f64::from(count) / begin.elapsed().as_secs_f64()
}

fn pin(processor: usize) {
    // SAFETY: plain calls; the set is initialised.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

fn main() {
    let rounds: usize = std::env::args()
        .nth(1)
        .map_or(60, |rounds| rounds.parse().expect("a number of rounds"));
    let wanted = std::env::args().nth(2).unwrap_or_default();
    // The first rings of an engine here.
    let size = ring_size(0, prefers_wide_rings()).expect("a first ring");
    let (mut channel, memory) = Channel::create(size).expect("memory for a channel");
    // SAFETY: one thread runs. The child has the descriptor but not the mapping.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        // SAFETY: a plain system call: the child does not poll for ever without its parent.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        pin(1);
        serve(&mut Channel::adopt(&memory, size).expect("the parent's memory"));
        std::process::exit(0);
    }
    drop(memory);
    pin(0);
    let mut line = |what: &str,
                    best: fn(f64, f64) -> f64,
                    unit: &str,
                    take: &mut dyn FnMut(&mut Channel) -> f64| {
        if !what.starts_with(&wanted) {
            return;
        }
        let all = (0..rounds).map(|_| take(&mut channel));
        let best = all.reduce(best).unwrap_or(f64::NAN);
        println!("{what:<40} {best:>8.2} {unit}");
    };
    line("one line, half round trip", f64::min, "ns", &mut |c| {
        latency(c, 12, 8)
    });
    line(
        "64 B after 28 B, half round trip",
        f64::min,
        "ns",
        &mut |c| latency(c, 28, 64),
    );
    line("one line, one way", f64::max, "million/s", &mut |c| {
        stream(c, 12, 8) / 1e6
    });
    line(
        "64 B after 28 B, one way",
        f64::max,
        "million/s",
        &mut |c| stream(c, 28, 64) / 1e6,
    );
    for length in [4096, 65_536, 1 << 20] {
        let what = format!("{} KiB one way", length / 1024);
        line(&what, f64::max, "GB/s", &mut |c| {
            stream(c, 28, length) * length as f64 / 1e9
        });
    }
    for length in [65_536, 1 << 20] {
        let what = format!("{} KiB, one at a time", length / 1024);
        line(&what, f64::min, "us", &mut |c| {
            one_at_a_time(c, length) / 1e3
        });
    }
    send_at_last(&mut channel.sender, &[END], &[]);
    channel.sender.publish();
    // SAFETY: a plain system call.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}

/// Sends messages of `length` bytes, each after the acknowledgement of the one before; returns nanoseconds of one.
fn one_at_a_time(channel: &mut Channel, length: usize) -> f64 {
    let mut buffer = vec![0; WIDE_RING];
    let message = vec![3; length];
    let mtu = channel.sender.mtu();
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < ROUND {
        for packet in message.chunks(mtu) {
            send_at_last(&mut channel.sender, &[READ; 28], packet);
        }
        send_at_last(&mut channel.sender, &[ECHO], &[]);
        channel.sender.publish();
        await_record(&mut channel.receiver, &mut buffer);
        count += 1;
    }
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}
