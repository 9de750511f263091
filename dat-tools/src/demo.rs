//! `dat demo`: transfers data between two processes by every operation, and verifies every byte.

mod passive;
mod process;
mod results;
mod side;

use std::time::Instant;

use dat::{Close, CompletionFlags, Event, Ia};
use serde_json::json;

use crate::{Outcome, open};
pub(crate) use passive::peer;
use process::Peer;
use results::Results;
use side::{MESSAGE, Side, TIMEOUT, WINDOW, pattern, unexpected, verify};

/// Number of ping-pong rounds.
const ROUNDS: usize = 200;
/// Number of RDMA Writes, and of RDMA Reads.
const TRANSFERS: usize = 32;

/// Returns the IA to use: the named one, or the first of dat.conf that opens. Says which ones it skips.
fn choose(name: Option<&str>, json: bool) -> Outcome<String> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let open::First { name, skipped } = open::first()?;
    if let Some(line) = skipped.line() {
        let text = format!("{line}; using {name}");
        if json {
            eprintln!("demo: {text}");
        } else {
            crate::out::hanging("demo: ", &text);
        }
    }
    Ok(name)
}

/// How the message begins where the other process has opened the IA and this one cannot.
pub(crate) const ONLY_ONE: &str = "only one process at a time opens IA ";

/// Runs both processes and prints the results.
pub(crate) fn run(name: Option<&str>, json: bool) -> Outcome {
    let name = choose(name, json)?;
    let (mut peer, line) = Peer::start(&name)?;
    let (address, qual) = line
        .trim()
        .split_once(' ')
        .ok_or("the other process did not start; its message is above")?;

    let ia = Ia::open(&name).map_err(|error| format!("{ONLY_ONE}{name}: {error}"))?;
    let side = Side::new(ia)?;
    let attributes = side.ia.attributes()?;
    let mut results = Results {
        json,
        rows: Vec::new(),
    };
    if !json {
        println!(
            "IA {name}: {} ({}) at {}",
            attributes.adapter, attributes.vendor, attributes.address
        );
        println!(
            "two processes, {} and {}; every byte below was compared\n",
            std::process::id(),
            peer.child.id()
        );
        println!(
            "{:<30} {:>9} {:>7} {:>12} {:>12}  verified",
            "operation", "bytes", "count", "time each", "rate"
        );
    }

    measure(&side, address, qual, &mut results)?;
    let status = peer.child.wait()?;
    if !status.success() {
        return Err(format!("the other process ended with {status}").into());
    }
    if json {
        let value = json!({
            "ia": name,
            "adapter": attributes.adapter,
            "vendor": attributes.vendor,
            "address": attributes.address,
            "processes": [std::process::id(), peer.child.id()],
            "results": results.rows,
            "pass": true,
        });
        crate::out::json(&value, false);
    } else {
        println!("\ndemo: PASS");
    }
    Ok(())
}

/// Connects to the other process, moves data in each way, and disconnects.
fn measure(side: &Side, address: &str, qual: &str, results: &mut Results) -> Outcome {
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
    let remote = side.exchange_windows()?;

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

    side.window.write(0, &pattern(7));
    let start = Instant::now();
    transfers(side, |cookie| {
        let all = [side.window.slice(0..WINDOW)];
        side.ep
            .post_rdma_write(&all, remote, cookie, CompletionFlags::empty())
    })?;
    let spent = start.elapsed();
    side.send(&[7])?;
    verify("the peer's verdict", &side.exchange(1)?, b"verified")?;
    results.row("RDMA write", WINDOW, TRANSFERS, spent);

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
        &pattern(7 ^ 0xff),
    )?;
    results.row("RDMA read", WINDOW, TRANSFERS, spent);

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

/// Keeps four transfers outstanding until all are done.
fn transfers(side: &Side, post: impl Fn(u64) -> Result<(), dat::PostError>) -> Outcome {
    let mut posted = 0;
    for done in 0..TRANSFERS {
        while posted < TRANSFERS && posted < done + 4 {
            post(100 + posted as u64)?;
            posted += 1;
        }
        let completion = side.done.wait_completion(TIMEOUT)?;
        let expected = 100 + done as u64;
        if completion.cookie != expected {
            let got = completion.cookie;
            return Err(format!("the completion of cookie {got} came, expected {expected}").into());
        }
    }
    Ok(())
}
