//! `dat serve`: the other side of `dat ping` and `dat perf`. It serves several clients at once, until it is interrupted.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dat::{ConnRequest, Evd, Event, Ia, Streams};
use serde_json::json;

use crate::cli::Serve;
use crate::doctor::quoted;
use crate::measure::interrupt::Interrupt;
use crate::measure::protocol::{Answer, PORT, Refusal, Request, Unreadable};
use crate::measure::service::{Service, Visit, memory_of};
use crate::out::plural;
use crate::{Outcome, open};

/// Longest sleep without a look at whether the user has interrupted the command.
const SLICE: Duration = Duration::from_millis(200);
/// Connections at a time.
const MAX_CONNECTIONS: usize = 1024;
/// Memory of all connections in bytes.
const MAX_MEMORY: usize = 2 << 30;
/// Connection requests that wait to be looked at.
const BACKLOG: u32 = 256;

/// Lines about refused requests within [`PERIOD`]: any program of the network can cause one.
const MAX_LINES: u32 = 100;
const PERIOD: Duration = Duration::from_secs(60);

/// What all connections use at present.
#[derive(Debug, Default)]
struct Used {
    connections: AtomicUsize,
    memory: AtomicUsize,
}

/// Serves until it is interrupted.
pub(crate) fn run(arguments: &Serve, json: bool) -> Outcome {
    let interrupt = Interrupt::catch()?;
    let ia = open::ia(arguments.ia.as_deref())?;
    let requests = ia.create_evd(BACKLOG, Streams::CR)?;
    let _listener = ia
        .listen(Some(arguments.port), &requests)
        .map_err(|error| match error {
            dat::Error::AddressInUse { .. } => format!(
                "connection qualifier {} is in use: `dat serve` runs already, or another program listens there; \
                 give another --port here and to the clients",
                arguments.port
            ),
            error => error.to_string(),
        })?;
    let address = ia.attributes()?.address;
    if json {
        let value = json!({ "ia": ia.name(), "address": address, "port": arguments.port });
        crate::out::json(&value, true);
    } else {
        println!("{}", invitation(ia.name(), address, arguments.port));
    }
    let used = Used::default();
    let mut lines = Lines::new(Instant::now());
    thread::scope(|scope| {
        loop {
            if interrupt.is_set() {
                return Ok(());
            }
            if let Some(count) = lines.left_out(Instant::now()) {
                print_left_out(count, json);
            }
            let Some(request) = next_request(&requests)? else {
                continue;
            };
            let begun = begin(&ia, &interrupt, &used, &request);
            let (service, bytes) = match begun {
                Ok(begun) => begun,
                Err(why) => {
                    let (left_out, print) = lines.next(Instant::now());
                    if let Some(count) = left_out {
                        print_left_out(count, json);
                    }
                    refuse(request, why, print, json);
                    continue;
                }
            };
            let used = &used;
            let serve = move || {
                let visit = service.run(request);
                used.memory.fetch_sub(bytes, Ordering::Relaxed);
                used.connections.fetch_sub(1, Ordering::Relaxed);
                print(&visit, json);
            };
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, serve) {
                // The request was dropped, which rejects it.
                eprintln!("dat: cannot start a thread for a client: {error}");
                used.memory.fetch_sub(bytes, Ordering::Relaxed);
                used.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })
}

/// Says where this command listens, and what to type elsewhere. Without the name of an IA the first one of dat.conf would send, which may
/// reach this host only.
fn invitation(ia: &str, address: IpAddr, port: u64) -> String {
    let name = quoted(ia);
    let option = match port {
        PORT => String::new(),
        port => format!(" --port {port}"),
    };
    let from = if address.is_loopback() {
        "from another process on this host only"
    } else {
        "from another process or host; the name is that of an IA there"
    };
    format!(
        "IA {ia} at {address}, connection qualifier {port}: `dat ping {name} {address}{option}` and `dat perf {name} {address}{option}` \
         measure {from}"
    )
}

/// Waits for the next request.
fn next_request(requests: &Evd) -> Result<Option<ConnRequest>, dat::Error> {
    match requests.wait(SLICE) {
        Ok(Event::Request(request)) => Ok(Some(request)),
        Ok(_) | Err(dat::Error::TimedOut { .. } | dat::Error::Interrupted { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Why a request is refused: what the client is told, and what is printed here.
struct Refused(Refusal, String);

/// Makes what a request needs, and counts it.
fn begin(
    ia: &Ia,
    interrupt: &Interrupt,
    used: &Used,
    asked: &ConnRequest,
) -> Result<(Service, usize), Refused> {
    let request = Request::from_bytes(&asked.private_data()).map_err(|why| {
        let text = match why {
            Unreadable::Foreign => "it is neither `dat ping` nor `dat perf`".to_owned(),
            Unreadable::Version(theirs) => {
                format!("it has version {theirs} of the measuring protocol; install the same release on both hosts")
            }
            Unreadable::Malformed => "its request cannot be read".to_owned(),
        };
        Refused(Refusal::Version, text)
    })?;
    if interrupt.is_set() {
        return Err(Refused(Refusal::Ending, "this command ends".to_owned()));
    }
    if !request.is_within_limits() {
        let text = format!(
            "{} bytes, {} times, are beyond the limits",
            request.size, request.depth
        );
        return Err(Refused(Refusal::Limits, text));
    }
    let bytes = memory_of(&request);
    let connections = used.connections.load(Ordering::Relaxed);
    let memory = used.memory.load(Ordering::Relaxed);
    if connections >= MAX_CONNECTIONS || memory + bytes > MAX_MEMORY {
        let text =
            format!("{connections} connections use {memory} bytes, and it needs {bytes} more");
        return Err(Refused(Refusal::Resources, text));
    }
    let service = Service::new(ia, request, interrupt)
        .map_err(|error| Refused(Refusal::Resources, error.to_string()))?;
    used.connections.fetch_add(1, Ordering::Relaxed);
    used.memory.fetch_add(bytes, Ordering::Relaxed);
    Ok((service, bytes))
}

/// The lines about refused requests of the present [`PERIOD`].
#[derive(Debug)]
struct Lines {
    begun: Instant,
    printed: u32,
    left_out: u64,
}

impl Lines {
    fn new(now: Instant) -> Self {
        Self {
            begun: now,
            printed: 0,
            left_out: 0,
        }
    }

    /// Returns whether the next line is printed; else it is counted. Returns also what [`Lines::left_out`] does, which comes first.
    fn next(&mut self, now: Instant) -> (Option<u64>, bool) {
        let left_out = self.left_out(now);
        if now.duration_since(self.begun) >= PERIOD {
            *self = Self::new(now);
        }
        let prints = self.printed < MAX_LINES;
        if prints {
            self.printed += 1;
        } else {
            self.left_out += 1;
        }
        (left_out, prints)
    }

    /// Returns how many lines were left out, once, when the period is over.
    fn left_out(&mut self, now: Instant) -> Option<u64> {
        let is_over = self.left_out > 0 && now.duration_since(self.begun) >= PERIOD;
        is_over.then(|| std::mem::replace(self, Self::new(now)).left_out)
    }
}

fn print_left_out(count: u64, json: bool) {
    if json {
        crate::out::json(&json!({ "more_refused": count }), true);
    } else {
        let requests = plural(count as usize, "more request", "more requests");
        println!("{requests} refused within {} s", PERIOD.as_secs());
    }
}

/// Refuses the request, and says so here if it may `print`.
fn refuse(request: ConnRequest, Refused(why, text): Refused, print: bool, json: bool) {
    let client = request.remote();
    // A client that has gone away needs no answer.
    let _ = request.reject(&Answer::Refused(why).to_bytes());
    if !print {
        return;
    }
    if json {
        let value = json!({ "client": client, "refused": text });
        crate::out::json(&value, true);
    } else {
        println!("{client}: refused: {text}");
    }
}

fn print(visit: &Visit, json: bool) {
    let request = &visit.request;
    let task = request.task.name();
    if json {
        let value = json!({
            "client": visit.client,
            "task": task,
            "bytes": request.size,
            "messages": visit.messages,
            "damaged": visit.damaged,
            "error": visit.fault,
        });
        crate::out::json(&value, true);
        return;
    }
    let damaged = match visit.damaged {
        Some(number) => format!("; message {number} was damaged"),
        None => String::new(),
    };
    let end = match &visit.fault {
        Some(why) => format!("; {why}"),
        None => String::new(),
    };
    println!(
        "{}: {task} of {}, {}{damaged}{end}",
        visit.client,
        plural(request.size as usize, "byte", "bytes"),
        plural(visit.messages as usize, "message", "messages")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refused_requests_prints_a_hundred_lines_a_minute() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut lines = Lines::new(begun);
        let printed = (0..1000).filter(|_| lines.next(after(1)).1).count();
        assert_eq!(printed, MAX_LINES as usize);
        assert_eq!(lines.left_out(after(59)), None);
        assert_eq!(lines.left_out(after(60)), Some(900));
        assert_eq!(lines.left_out(after(61)), None);
        assert_eq!(lines.next(after(62)), (None, true));
        // Few requests leave nothing out.
        assert_eq!(lines.left_out(after(600)), None);
        assert_eq!(lines.next(after(600)), (None, true));
    }

    #[test]
    fn the_number_left_out_is_kept_at_the_end_of_the_period() {
        let begun = Instant::now();
        let mut lines = Lines::new(begun);
        let mut told = 0;
        let mut printed = 0;
        // As `run`: looks at the count, waits for a request for 1 ms, refuses it, 1 ms.
        for step in 0..70_000 {
            let now = begun + Duration::from_millis(2 * step + 1);
            told += lines.left_out(now).unwrap_or(0);
            let (left_out, prints) = lines.next(now + Duration::from_millis(1));
            told += left_out.unwrap_or(0);
            printed += u64::from(prints);
        }
        let now = begun + Duration::from_secs(1000);
        told += lines.left_out(now).unwrap_or(0);
        assert_eq!(printed + told, 70_000);
    }

    #[test]
    fn the_commands_for_the_other_side_name_the_ia() {
        let far = invitation("softrxe-eth0", [192, 0, 2, 2].into(), PORT);
        for part in [
            "`dat ping softrxe-eth0 192.0.2.2`",
            "`dat perf softrxe-eth0 192.0.2.2`",
            "or host",
        ] {
            assert!(far.contains(part), "{far} lacks {part}");
        }
        let near = invitation("an ia", [127, 0, 0, 1].into(), 7);
        for part in ["`dat ping 'an ia' 127.0.0.1 --port 7`", "on this host only"] {
            assert!(near.contains(part), "{near} lacks {part}");
        }
    }
}
