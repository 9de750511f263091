//! The calls with a fast path through the low layer, each in a function that callgrind counts by itself: `scripts/hotpath-ceilings.sh`
//! compares them with the same calls of a C program. Without valgrind it only makes the calls.
//!
//! ```sh
//! hot_calls ADAPTER     # of a dat.conf; prints "hot_calls: PASS"
//! ```

#![forbid(unsafe_code)]

use std::time::Duration;

use udapl::{
    Access, Close, CompletionFlags, DtoStatus, Ep, Evd, Event, Ia, PostError, Pz, Region, Remote,
    Streams,
};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

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

// Each function is a loop as programs have it: an error ends it.

#[inline(never)]
fn count_post_recv(side: &Side) -> Result<(), PostError> {
    let bytes = [side.memory.slice(0..SIZE)];
    for _ in 0..CALLS {
        side.ep.post_recv(&bytes, 7)?;
    }
    Ok(())
}

#[inline(never)]
fn count_post_send(side: &Side) -> Result<(), PostError> {
    let bytes = [side.memory.slice(0..SIZE)];
    for _ in 0..CALLS {
        side.ep.post_send(&bytes, 7)?;
    }
    Ok(())
}

#[inline(never)]
fn count_post_rdma_write(side: &Side, to: Remote) -> Result<(), PostError> {
    let bytes = [side.memory.slice(0..SIZE)];
    for _ in 0..CALLS {
        let flags = CompletionFlags::empty();
        side.ep.post_rdma_write(&bytes, to, 7, flags)?;
    }
    Ok(())
}

#[inline(never)]
fn count_empty_poll(side: &Side) -> Result<()> {
    for _ in 0..CALLS {
        if side.done.poll()?.is_some() {
            return Err("an event in an empty queue".into());
        }
    }
    Ok(())
}

#[inline(never)]
fn count_poll(side: &Side) -> Result<()> {
    for _ in 0..CALLS {
        match side.done.poll()? {
            Some(Event::Completion(done))
                if done.status == DtoStatus::Success && done.cookie == 7 => {}
            _ => return Err("not the completion".into()),
        }
    }
    Ok(())
}

#[inline(never)]
fn count_poll_completion(side: &Side) -> Result<()> {
    for _ in 0..CALLS {
        match side.done.poll_completion()? {
            Some(done) if done.status == DtoStatus::Success && done.cookie == 7 => {}
            _ => return Err("not the completion".into()),
        }
    }
    Ok(())
}

#[inline(never)]
fn count_wait(side: &Side) -> Result<()> {
    for _ in 0..CALLS {
        if side.done.wait_completion(LIMIT)?.cookie != 7 {
            return Err("not the completion".into());
        }
    }
    Ok(())
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

    count_empty_poll(&a)?;
    count_post_recv(&b)?;
    count_post_send(&a)?;
    settle();
    count_poll(&a)?;
    count_poll_completion(&b)?;
    let to = b.memory.remote(0..SIZE);
    count_post_rdma_write(&a, to)?;
    settle();
    count_wait(&a)?;
    count_post_rdma_write(&a, to)?;
    a.drain()?;
    a.ep.disconnect(Close::Abrupt)?;
    println!("hot_calls: PASS");
    Ok(())
}
