//! `dat demo`: transfers data between two processes by every operation, and verifies every byte.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dat::{
    Access, Close, Completion, CompletionFlags, Ep, Evd, Event, Ia, Listener, Region, Remote,
    Streams,
};
use serde_json::{Value, json};

use crate::measure::events::described;
use crate::{Outcome, open};

/// Time to wait for an event.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Length of the memory that each process opens to the other.
const WINDOW: usize = 1 << 20;
/// Length of a message.
const MESSAGE: usize = 64;
/// Number of ping-pong rounds.
const ROUNDS: usize = 200;
/// Number of RDMA Writes, and of RDMA Reads.
const TRANSFERS: usize = 32;
/// Offset of received messages in the message region.
const RECV: usize = 0;
/// Offset of messages to send.
const SEND: usize = MESSAGE;

/// The objects of one process.
struct Side {
    ep: Ep,
    done: Evd,
    connections: Evd,
    messages: Region,
    /// Messages that no call has returned yet.
    arrived: RefCell<VecDeque<[u8; MESSAGE]>>,
    window: Region,
    ia: Ia,
}

impl Side {
    fn new(ia: Ia) -> Result<Self, dat::Error> {
        let pz = ia.create_pz()?;
        let done = ia.create_evd(256, Streams::DTO)?;
        let connections = ia.create_evd(16, Streams::CR | Streams::CONNECTION)?;
        let builder = ia
            .endpoint(&pz)
            .recv_evd(&done)
            .request_evd(&done)
            .connect_evd(&connections);
        let ep = builder.max_recv(32).max_requests(64).create()?;
        let messages = pz.allocate(2 * MESSAGE, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
        let window = pz.allocate(WINDOW, Access::ALL)?;
        Ok(Self {
            ep,
            done,
            connections,
            messages,
            arrived: RefCell::default(),
            window,
            ia,
        })
    }

    /// Posts a receive. One is always posted before the peer can send.
    fn post_recv(&self) -> Result<(), dat::PostError> {
        self.ep
            .post_recv(&[self.messages.slice(RECV..RECV + MESSAGE)], 1)
    }

    fn send(&self, bytes: &[u8]) -> Result<(), dat::PostError> {
        let mut message = [0; MESSAGE];
        message[..bytes.len()].copy_from_slice(bytes);
        self.messages.write(SEND, &message);
        self.ep
            .post_send(&[self.messages.slice(SEND..SEND + MESSAGE)], 2)
    }

    /// Waits for `sends` completions of requests and for one message, and posts the next receive. A message after that one may complete before
    /// our request does: it is the next call's.
    fn exchange(&self, sends: usize) -> Result<[u8; MESSAGE], dat::Error> {
        let mut left = sends;
        let mut messages = self.arrived.borrow_mut();
        loop {
            if left == 0
                && let Some(message) = messages.pop_front()
            {
                return Ok(message);
            }
            match self.done.wait_completion(TIMEOUT)? {
                Completion { cookie: 1, .. } => {
                    let mut bytes = [0; MESSAGE];
                    self.messages.read(RECV, &mut bytes);
                    messages.push_back(bytes);
                    self.post_recv()?;
                }
                _ => left -= 1,
            }
        }
    }

    /// Sends the address of our window to the peer and receives the peer's.
    fn exchange_windows(&self) -> Result<Remote, dat::Error> {
        self.send(&self.window.remote(0..WINDOW).to_bytes())?;
        let message = self.exchange(1)?;
        let mut bytes = [0; Remote::SIZE];
        bytes.copy_from_slice(&message[..Remote::SIZE]);
        Ok(Remote::from_bytes(bytes))
    }
}

/// Returns bytes that memory does not contain by accident.
fn pattern(seed: u8) -> Vec<u8> {
    (0..WINDOW)
        .map(|i| {
            (i as u8)
                .wrapping_mul(31)
                .wrapping_add((i >> 8) as u8)
                .wrapping_add(seed)
        })
        .collect()
}

/// Fails unless `got` begins with `expected`; the error has the offset of the first difference.
fn verify(what: &str, got: &[u8], expected: &[u8]) -> Outcome {
    let equal = got.iter().zip(expected).take_while(|(a, b)| a == b).count();
    let Some(byte) = expected.get(equal) else {
        return Ok(());
    };
    let found = got
        .get(equal)
        .map_or_else(|| "missing".to_owned(), |byte| format!("{byte:#04x}"));
    Err(
        format!("{what} differs from what was sent: byte {equal} is {found}, expected {byte:#04x}")
            .into(),
    )
}

/// Runs the passive process: prints its address, listens, and answers.
pub(crate) fn peer(name: &str) -> Outcome {
    let side = Side::new(open::in_own_process(name)?)?;
    let listener = side.ia.listen(None, &side.connections)?;
    println!("{} {}", side.ia.attributes()?.address, listener.conn_qual());
    side.post_recv()?;
    accept(&side, &listener)?;
    side.exchange_windows()?;
    let mut message = side.exchange(0)?;
    for _ in 0..ROUNDS {
        side.send(&message)?;
        // Our completion and the next message arrive in either order. The last message has the seed of the bytes in our window.
        message = side.exchange(1)?;
    }
    let seed = message[0];
    verify(
        "RDMA written memory",
        &side.window.to_vec(0..WINDOW),
        &pattern(seed),
    )?;
    // The peer reads the window next.
    side.window.write(0, &pattern(seed ^ 0xff));
    side.send(b"verified")?;
    side.exchange(1)?;
    match side.connections.wait(TIMEOUT)? {
        Event::Ended { .. } => Ok(()),
        other => Err(unexpected("disconnect", &other)),
    }
}

/// Returns the error for an event that comes in the place of `awaited`.
fn unexpected(awaited: &str, event: &Event) -> Box<dyn std::error::Error> {
    format!("waited for the {awaited}: {}", described(event)).into()
}

fn accept(side: &Side, _listening: &Listener) -> Outcome {
    let request = match side.connections.wait(TIMEOUT)? {
        Event::Request(request) => request,
        other => {
            return Err(unexpected("connection request", &other));
        }
    };
    verify(
        "private data of the request",
        &request.private_data(),
        b"dat demo",
    )?;
    request.accept(&side.ep, b"welcome")?;
    match side.connections.wait(TIMEOUT)? {
        Event::Established { .. } => Ok(()),
        other => Err(unexpected("connection", &other)),
    }
}

/// The other process; dropping this kills it.
struct Peer {
    child: Child,
    /// Set when it has opened the IA.
    has_opened: Arc<AtomicBool>,
    /// Returns what it wrote to standard error before.
    reader: Option<JoinHandle<String>>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Peer {
    /// Starts the process, and returns its address and connection qualifier.
    fn start(name: &str) -> Outcome<(Self, String)> {
        // A limit stops these first of all.
        let cannot = |error| {
            format!(
                "cannot start the second process: {error}; the limits of processes (`ulimit -u`, the control group's pids.max) \
                 and of descriptors (`ulimit -n`) may be too low, or /dev and /proc missing"
            )
        };
        let own = std::env::current_exe().map_err(cannot)?;
        let mut child = Command::new(own)
            .args(["demo-peer", name])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let has_opened = Arc::new(AtomicBool::new(false));
        let reader = {
            let has_opened = Arc::clone(&has_opened);
            let follow = move || follow(stderr, &has_opened);
            thread::Builder::new().spawn(follow).map_err(cannot)?
        };
        let mut peer = Self {
            child,
            has_opened,
            reader: Some(reader),
        };
        let mut line = String::new();
        BufReader::new(stdout.ok_or("no pipe to the other process")?).read_line(&mut line)?;
        if line.ends_with('\n') {
            peer.has_opened.store(true, Ordering::Relaxed);
            return Ok((peer, line));
        }
        let status = peer.child.wait()?;
        let log = peer.reader.take().and_then(|reader| reader.join().ok());
        let why = open::Unopened::of(name, &log.unwrap_or_default(), status);
        Err(why.message(name).into())
    }
}

/// Passes on what the other process writes to standard error. While it opens the IA, errors are kept and returned: the caller tells them.
fn follow(stderr: Option<ChildStderr>, has_opened: &AtomicBool) -> String {
    let mut kept = String::new();
    let lines = stderr.map(BufReader::new).map(BufRead::lines);
    for line in lines.into_iter().flatten().map_while(Result::ok) {
        let is_open = has_opened.load(Ordering::Relaxed);
        if !is_open {
            kept.push_str(&line);
            kept.push('\n');
        }
        if is_open || open::is_verbose() {
            // Without standard error there is nothing to tell it to.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
    kept
}

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

/// What was transferred: printed at once, or kept for JSON.
struct Results {
    json: bool,
    rows: Vec<Value>,
}

impl Results {
    /// Adds what was transferred and compared.
    fn row(&mut self, what: &str, bytes: usize, count: usize, spent: Duration) {
        let each = spent.as_secs_f64() / count as f64;
        if self.json {
            self.rows.push(json!({
                "operation": what,
                "bytes": bytes,
                "count": count,
                "microseconds_each": each * 1e6,
                "verified": true,
            }));
            return;
        }
        let rate = match bytes {
            0 => String::new(),
            n if n < 4096 => format!("{:.0} /s", 1.0 / each),
            n => format!("{:.1} MB/s", n as f64 / each / 1e6),
        };
        let each = format!("{:.1} us", each * 1e6);
        println!("{what:<30} {bytes:>9} {count:>7} {each:>12} {rate:>12}  yes");
    }
}
