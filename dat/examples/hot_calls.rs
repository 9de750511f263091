//! The calls with a fast path through the low layer, each in a function that callgrind counts by itself: `scripts/hotpath-ceilings.sh`
//! compares them with the same calls of a C program. Without valgrind it only makes the calls.
//!
//! ```sh
//! hot_calls ADAPTER     # of a dat.conf; prints "hot_calls: PASS"
//! ```

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::Duration;

use udapl::{
    Access, Close, CompletionFlags, DtoStatus, Ep, Evd, Event, Ia, Pz, Region, Remote, Streams,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Calls of each kind.
const CALLS: usize = 512;
const SIZE: usize = 64;
const LIMIT: Duration = Duration::from_secs(60);

struct Side {
    ep: Ep,
    done: Evd,
    connections: Evd,
    memory: Region,
}

impl Side {
    fn new(ia: &Ia, pz: &Pz) -> Result<Self> {
        let room = CALLS as u32 + 64;
        let done = ia.create_evd(2 * room, Streams::DTO)?;
        let connections = ia.create_evd(20, Streams::CR | Streams::CONNECTION)?;
        let builder = ia.endpoint(pz).recv_evd(&done).request_evd(&done);
        let builder = builder.connect_evd(&connections).max_recv(room);
        Ok(Self {
            ep: builder.max_requests(room).create()?,
            done,
            connections,
            memory: pz.allocate(SIZE, Access::ALL)?,
        })
    }

    fn drain(&self) -> Result<()> {
        for _ in 0..CALLS {
            self.done.wait_completion(LIMIT)?;
        }
        Ok(())
    }
}

// The functions return the number of successes, which is checked outside: a check would be counted.

#[inline(never)]
fn count_post_recv(side: &Side) -> usize {
    let bytes = [side.memory.slice(0..SIZE)];
    (0..CALLS)
        .filter(|_| side.ep.post_recv(black_box(&bytes), 7).is_ok())
        .count()
}

#[inline(never)]
fn count_post_send(side: &Side) -> usize {
    let bytes = [side.memory.slice(0..SIZE)];
    (0..CALLS)
        .filter(|_| side.ep.post_send(black_box(&bytes), 7).is_ok())
        .count()
}

#[inline(never)]
fn count_post_rdma_write(side: &Side, to: Remote) -> usize {
    let bytes = [side.memory.slice(0..SIZE)];
    let flags = CompletionFlags::empty();
    let post = || side.ep.post_rdma_write(black_box(&bytes), to, 7, flags);
    (0..CALLS).filter(|_| post().is_ok()).count()
}

#[inline(never)]
fn count_empty_poll(side: &Side) -> usize {
    (0..CALLS)
        .filter(|_| matches!(side.done.poll(), Ok(None)))
        .count()
}

fn is_done(event: &Event) -> bool {
    matches!(event, Event::Completion(done) if done.status == DtoStatus::Success && done.cookie == 7)
}

#[inline(never)]
fn count_poll(side: &Side) -> usize {
    (0..CALLS)
        .filter(|_| matches!(side.done.poll(), Ok(Some(event)) if is_done(&event)))
        .count()
}

#[inline(never)]
fn count_wait(side: &Side) -> usize {
    (0..CALLS)
        .filter(|_| matches!(side.done.wait(Duration::MAX), Ok(event) if is_done(&event)))
        .count()
}

fn all(what: &str, good: usize) -> Result<()> {
    if good == CALLS {
        return Ok(());
    }
    Err(format!("{what}: {good} of {CALLS} calls succeeded").into())
}

/// Lets the posts complete; a poll would remove their events.
fn settle() {
    std::thread::sleep(Duration::from_secs(1));
}

fn main() -> Result<()> {
    let name = std::env::args().nth(1).ok_or("usage: hot_calls ADAPTER")?;
    let ia = Ia::open(&name)?;
    let pz = ia.create_pz()?;
    let (a, b) = (Side::new(&ia, &pz)?, Side::new(&ia, &pz)?);
    let listener = ia.listen(None, &b.connections)?;
    let attempt = a.ep.connect(ia.attributes()?.address, listener.conn_qual());
    attempt.timeout(LIMIT).start()?;
    let Event::Request(request) = b.connections.wait(LIMIT)? else {
        return Err("the first event is no connection request".into());
    };
    request.accept(&b.ep, b"")?;
    a.connections.wait(LIMIT)?;
    b.connections.wait(LIMIT)?;

    all("poll of an empty queue", count_empty_poll(&a))?;
    all("post_recv", count_post_recv(&b))?;
    all("post_send", count_post_send(&a))?;
    settle();
    all("poll of a request", count_poll(&a))?;
    all("poll of a receive", count_poll(&b))?;
    let to = b.memory.remote(0..SIZE);
    all("post_rdma_write", count_post_rdma_write(&a, to))?;
    settle();
    all("wait", count_wait(&a))?;
    all("post_rdma_write", count_post_rdma_write(&a, to))?;
    a.drain()?;
    a.ep.disconnect(Close::Abrupt)?;
    println!("hot_calls: PASS");
    Ok(())
}
