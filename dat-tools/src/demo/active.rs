//! The process that connects: it moves data in each way, measures that, and compares it.

use std::time::Instant;

use dat::{Close, CompletionFlags, Event, Remote};

use super::results::Results;
use super::side::{MESSAGE, ROUNDS, Side, TIMEOUT, WINDOW, pattern, unexpected, verify};
use crate::Outcome;

/// Number of RDMA Writes, and of RDMA Reads.
const TRANSFERS: usize = 32;
/// Transfers that are outstanding at a time.
const OUTSTANDING: usize = 4;
/// Cookie of the first transfer.
const FIRST_COOKIE: u64 = 100;
/// Seed of the bytes that are written to the other process. It answers with those of the inverted seed.
const SEED: u8 = 7;

/// Connects to the other process, moves data in each way, and disconnects.
pub(super) fn measure(side: &Side, address: &str, qual: &str, results: &mut Results) -> Outcome {
    connect(side, address, qual, results)?;
    let remote = side.exchange_windows()?;
    exchange_messages(side, results)?;
    write(side, remote, results)?;
    read(side, remote, results)?;
    disconnect(side, results)
}

fn connect(side: &Side, address: &str, qual: &str, results: &mut Results) -> Outcome {
    side.post_recv()?;
    let start = Instant::now();
    side.ep
        .connect(address.parse()?, qual.parse()?)
        .private_data(b"dat demo")
        .timeout(TIMEOUT)
        .start()?;
    let private_data = match side.connections.wait(TIMEOUT)? {
        Event::Established { private_data, .. } => private_data,
        other => return Err(unexpected("connection", &other)),
    };
    verify("private data of the answer", &private_data, b"welcome")?;
    results.row("connect", 0, 1, start.elapsed());
    Ok(())
}

fn exchange_messages(side: &Side, results: &mut Results) -> Outcome {
    let start = Instant::now();
    for round in 0..ROUNDS {
        let message = [round as u8; MESSAGE];
        side.send(&message)?;
        verify("an answer", &side.exchange(1)?, &message)?;
    }
    results.row(
        "send/receive, there and back",
        MESSAGE,
        ROUNDS,
        start.elapsed(),
    );
    Ok(())
}

/// Writes to the window of the other process, which verifies it.
fn write(side: &Side, remote: Remote, results: &mut Results) -> Outcome {
    side.window.write(0, &pattern(SEED));
    let start = Instant::now();
    transfers(side, |cookie| {
        let all = [side.window.slice(0..WINDOW)];
        side.ep
            .post_rdma_write(&all, remote, cookie, CompletionFlags::empty())
    })?;
    let spent = start.elapsed();
    side.send(&[SEED])?;
    verify("the peer's verdict", &side.exchange(1)?, b"verified")?;
    results.row("RDMA write", WINDOW, TRANSFERS, spent);
    Ok(())
}

/// Reads the window of the other process, and verifies it.
fn read(side: &Side, remote: Remote, results: &mut Results) -> Outcome {
    let start = Instant::now();
    transfers(side, |cookie| {
        let all = [side.window.slice(0..WINDOW)];
        side.ep
            .post_rdma_read(&all, remote, cookie, CompletionFlags::empty())
    })?;
    let spent = start.elapsed();
    verify(
        "RDMA read memory",
        &side.window.to_vec(0..WINDOW),
        &pattern(!SEED),
    )?;
    results.row("RDMA read", WINDOW, TRANSFERS, spent);
    Ok(())
}

fn disconnect(side: &Side, results: &mut Results) -> Outcome {
    side.send(b"bye")?;
    side.done.wait_completion(TIMEOUT)?;
    let start = Instant::now();
    side.ep.disconnect(Close::Graceful)?;
    match side.connections.wait(TIMEOUT)? {
        Event::Ended { .. } => results.row("disconnect", 0, 1, start.elapsed()),
        other => return Err(unexpected("disconnect", &other)),
    }
    Ok(())
}

/// Keeps [`OUTSTANDING`] transfers outstanding until all are done.
fn transfers(side: &Side, post: impl Fn(u64) -> Result<(), dat::PostError>) -> Outcome {
    let mut posted = 0;
    for done in 0..TRANSFERS {
        while posted < TRANSFERS && posted < done + OUTSTANDING {
            post(FIRST_COOKIE + posted as u64)?;
            posted += 1;
        }
        let completion = side.done.wait_completion(TIMEOUT)?;
        let expected = FIRST_COOKIE + done as u64;
        if completion.cookie != expected {
            let got = completion.cookie;
            return Err(format!("the completion of cookie {got} came, expected {expected}").into());
        }
    }
    Ok(())
}
