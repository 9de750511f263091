//! `dat ping`: sends messages to `dat serve`, which sends them back.

use std::thread;
use std::time::{Duration, Instant};

use dat::Remote;
use serde_json::json;

use crate::cli::Ping;
use crate::measure::histogram::Histogram;
use crate::measure::interrupt::Interrupt;
use crate::measure::pattern;
use crate::measure::protocol::{ECHO_BUFFERS, HEAD, Request, Task};
use crate::measure::report::latency_json;
use crate::measure::session::{Fault, Link, Session, Shape, Target, buffer};
use crate::out::plural;
use crate::{Outcome, open};

/// Longest sleep without a look at whether the user has interrupted the command.
const SLICE: Duration = Duration::from_millis(50);
/// Cookie of a send; a receive has the number of its buffer.
const SEND: u64 = 1 << 32;

/// Sends and prints.
pub(crate) fn run(arguments: &Ping, json: bool) -> Outcome {
    let interrupt = Interrupt::catch()?;
    open::require_host(arguments.ia.as_deref(), &arguments.host, "ping")?;
    let ia = open::ia(arguments.ia.as_deref())?;
    let most = ia.attributes()?.max_message_size;
    if arguments.size as u64 > most {
        return Err(format!("the IA sends at most {most} bytes; give a smaller --size").into());
    }
    let name = ia.name().to_owned();
    let target = Target::find(ia, &arguments.host, arguments.port)?;
    let mut times = Histogram::default();
    let done = exchange(arguments, json, &target, &interrupt, &mut times);
    let Some(summary) = times.summary(0.001) else {
        return Ok(done?);
    };
    if json {
        let value = json!({
            "ia": name,
            "host": arguments.host,
            "address": target.address,
            "bytes": arguments.size,
            "messages": summary.count,
            "round_trip_us": latency_json(&summary),
        });
        crate::out::json(&value, false);
    } else {
        println!(
            "{} of {} came back whole from {}",
            plural(summary.count as usize, "message", "messages"),
            plural(arguments.size, "byte", "bytes"),
            arguments.host
        );
        println!(
            "round trip in us: min {:.2}, avg {:.2}, max {:.2}, stdev {:.2}; 50% {:.2}, 90% {:.2}, 99% {:.2}, 99.9% {:.2}",
            summary.min,
            summary.average,
            summary.max,
            summary.stdev,
            summary.p50,
            summary.p90,
            summary.p99,
            summary.p999
        );
    }
    match done {
        // The end of messages without end.
        Err(Fault::Interrupted) if arguments.count == 0 => Ok(()),
        done => Ok(done?),
    }
}

/// Exchanges the messages, and adds their durations.
fn exchange(
    arguments: &Ping,
    json: bool,
    target: &Target,
    interrupt: &Interrupt,
    times: &mut Histogram,
) -> Result<(), Fault> {
    let size = arguments.size;
    let request = Request {
        task: Task::Echo,
        wait: !arguments.poll,
        validate: true,
        size: size as u64,
        depth: 1,
        memory: Remote::default(),
    };
    let shape = Shape {
        connections: 1,
        requests: 2,
        receives: ECHO_BUFFERS as u32,
        memory: HEAD + (1 + ECHO_BUFFERS) * size,
        lent: (0, HEAD),
    };
    let session = Session::open(target, interrupt, request, shape, |_, link| {
        (0..ECHO_BUFFERS).try_for_each(|slot| post_receive(link, slot, size))
    })?;
    let mut bytes = vec![0; size];
    let mut number = 0;
    loop {
        number += 1;
        let spent = message(&session, number, &mut bytes)?;
        let nanos = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        times.add(nanos);
        if !arguments.quiet && !json {
            println!(
                "{size} bytes from {}: message {number}, round trip {:.2} us",
                target.address,
                nanos as f64 / 1e3
            );
        }
        if number == arguments.count {
            break;
        }
        pause(arguments.interval, interrupt)?;
    }
    session.close();
    Ok(())
}

fn post_receive(link: &Link, slot: usize, size: usize) -> Result<(), dat::PostError> {
    let range = buffer(HEAD + size, size, slot);
    link.ep.post_recv(&[link.local.slice(range)], slot as u64)
}

/// Sends a message, waits until it is back, and compares it.
fn message(session: &Session<'_>, number: u64, bytes: &mut [u8]) -> Result<Duration, Fault> {
    let (link, size) = (&session.links[0], bytes.len());
    pattern::fill(bytes, number);
    link.local.write(HEAD, bytes);
    let begin = Instant::now();
    link.ep
        .post_send(&[link.local.slice(HEAD..HEAD + size)], SEND)
        .map_err(|error| session.refused(error))?;
    let (mut spent, mut is_sent) = (None, false);
    while spent.is_none() || !is_sent {
        let cookie = session.next()?.cookie;
        if cookie == SEND {
            is_sent = true;
            continue;
        }
        spent = Some(begin.elapsed());
        let slot = cookie as usize;
        let range = buffer(HEAD + size, size, slot);
        link.local.read(range.start, bytes);
        post_receive(link, slot, size).map_err(|error| session.refused(error))?;
    }
    match pattern::difference(bytes, number) {
        None => Ok(spent.unwrap_or_default()),
        Some(difference) => Err(Fault::Damaged {
            message: number,
            difference,
        }),
    }
}

fn pause(time: Duration, interrupt: &Interrupt) -> Result<(), Fault> {
    let begin = Instant::now();
    loop {
        if interrupt.is_set() {
            return Err(Fault::Interrupted);
        }
        let left = time.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(SLICE));
    }
}
