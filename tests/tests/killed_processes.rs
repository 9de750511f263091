//! Several processes on one address of softrxe's user engine: the effects of killing one of them.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dat::{Access, ConnectionEvent, DtoStatus, Ep, Evd, Event, Ia, Pz, Region, Streams};

/// Time limit on a loaded machine; a dead peer is detected after seven retries, about seven seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// No other test uses it: UDP port 4791 of an address belongs to one set of processes.
const ADDRESS: &str = "127.88.1.1";
const TEST: &str = "processes_are_killed_and_the_others_go_on";
/// Active sides that are killed before they are answered.
const CALLERS: &str = "callers_are_killed_while_they_ask";
/// The same test over IPv6.
const TEST6: &str = "over_ipv6_as_well";
const UDP: &str = "over_udp_as_well";
const ADDRESS_UDP: &str = "127.88.1.3";
/// Variable with the address family.
const OVER: &str = "DAT_TEST_OVER";
const ROLE: &str = "DAT_TEST_ROLE";
const BYTES: usize = 64;

struct Side {
    ep: Ep,
    done: Evd,
    connections: Evd,
    region: Region,
}

fn side(ia: &Ia, pz: &Pz, connections: &Evd) -> Side {
    let done = ia.create_evd(64, Streams::DTO).expect("an EVD");
    let builder = ia.endpoint(pz).recv_evd(&done).request_evd(&done);
    let ep = builder.connect_evd(connections).create().expect("an EP");
    let region = pz.allocate(2 * BYTES, Access::ALL).expect("memory");
    ep.post_recv(&[region.slice(0..BYTES)], 1).expect("posts");
    Side {
        ep,
        done,
        connections: connections.clone(),
        region,
    }
}

fn events(ia: &Ia) -> Evd {
    ia.create_evd(64, Streams::CR | Streams::CONNECTION)
        .expect("an EVD")
}

fn connect(ia: &Ia, pz: &Pz, port: u64) -> Side {
    let side = side(ia, pz, &events(ia));
    let address: IpAddr = over().1.parse().expect("an address");
    side.ep
        .connect(address, port)
        .timeout(PATIENCE)
        .start()
        .expect("starts");
    match side.connections.wait(PATIENCE) {
        Ok(Event::Established { .. }) => side,
        other => panic!("port {port}: {other:?}"),
    }
}

impl Side {
    /// Sends `mark` and waits for its echo.
    fn ping(&self, mark: u8) {
        self.region.write(BYTES, &[mark; BYTES]);
        self.ep
            .post_send(&[self.region.slice(BYTES..2 * BYTES)], 2)
            .expect("posts");
        for _ in 0..2 {
            let done = self.done.wait_completion(PATIENCE).expect("the peer lives");
            if done.cookie == 1 {
                assert_eq!(self.region.to_vec(0..BYTES), [mark; BYTES]);
                self.ep
                    .post_recv(&[self.region.slice(0..BYTES)], 1)
                    .expect("posts");
            }
        }
    }
}

/// Keeps the IA open, and with it port 4791 if this process is the first.
fn hold() {
    let _ia = Ia::open("user").expect("opens");
    println!("ready");
    std::thread::sleep(10 * PATIENCE);
}

/// Like [`hold`], with a child that outlives this process.
fn fork_and_hold() {
    let _ia = Ia::open("user").expect("opens");
    // SAFETY: the child only sleeps and exits; what other threads held is not looked at.
    if unsafe { libc::fork() } == 0 {
        for stream in 0..3 {
            // SAFETY: the runner waits for the end of these.
            unsafe { libc::close(stream) };
        }
        // Longer than the other processes take to detect the death of the parent.
        std::thread::sleep(Duration::from_secs(40));
        // SAFETY: nothing of this process is to be run at its end.
        unsafe { libc::_exit(0) };
    }
    println!("ready");
    std::thread::sleep(10 * PATIENCE);
}

/// Requests a connection to `port`, and prints that it did.
fn call(port: u64) {
    let ia = Ia::open("user").expect("opens");
    let pz = ia.create_pz().expect("a PZ");
    let side = side(&ia, &pz, &events(&ia));
    let address: IpAddr = over().1.parse().expect("an address");
    let asked = side.ep.connect(address, port).timeout(10 * PATIENCE);
    asked.start().expect("starts");
    println!("ready");
    std::thread::sleep(10 * PATIENCE);
}

/// Checks that a passive side is notified at once when an active side is killed, before it has its answer, and before
/// it has confirmed it.
fn answer_the_dead() {
    let ia = Ia::open("user").expect("opens");
    let pz = ia.create_pz().expect("a PZ");
    let connections = events(&ia);
    let _listener = ia.listen(Some(5001), &connections).expect("listens");
    for answered_first in [false, true] {
        let caller = Process::start("call 5001");
        let Ok(Event::Request(request)) = connections.wait(PATIENCE) else {
            panic!("no request");
        };
        let side = side(&ia, &pz, &events(&ia));
        let begin = if answered_first {
            // Stopped, it does not confirm the answer.
            caller.stop();
            request.accept(&side.ep, &[]).expect("accepts");
            caller.kill();
            Instant::now()
        } else {
            caller.kill();
            let begin = Instant::now();
            request.accept(&side.ep, &[]).expect("accepts");
            begin
        };
        let event = side.connections.wait(PATIENCE);
        assert!(
            matches!(
                event,
                Ok(Event::Ended {
                    how: ConnectionEvent::AcceptCompletionError,
                    ..
                })
            ),
            "{event:?}"
        );
        // The connection manager waits 27 seconds for a silent active side.
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
    // The next one is served normally.
    let _caller = Process::start("call 5001");
    let Ok(Event::Request(request)) = connections.wait(PATIENCE) else {
        panic!("no request");
    };
    let side = side(&ia, &pz, &events(&ia));
    request.accept(&side.ep, &[]).expect("accepts");
    let event = side.connections.wait(PATIENCE);
    assert!(matches!(event, Ok(Event::Established { .. })), "{event:?}");
}

/// Sends back the messages of connections to `port`.
fn echo(port: u64) {
    let ia = Ia::open("user").expect("opens");
    let pz = ia.create_pz().expect("a PZ");
    let connections = events(&ia);
    let _listener = ia.listen(Some(port), &connections).expect("listens");
    println!("ready");
    std::thread::scope(|scope| {
        loop {
            let Ok(Event::Request(request)) = connections.wait(10 * PATIENCE) else {
                continue;
            };
            let (ia, pz) = (&ia, &pz);
            scope.spawn(move || {
                let side = side(ia, pz, &events(ia));
                request.accept(&side.ep, &[]).expect("accepts");
                let event = side.connections.wait(PATIENCE);
                assert!(matches!(event, Ok(Event::Established { .. })), "{event:?}");
                while let Ok(done) = side.done.wait_completion(10 * PATIENCE) {
                    if done.cookie == 1 {
                        let message = side.region.to_vec(0..BYTES);
                        side.region.write(BYTES, &message);
                        side.ep
                            .post_recv(&[side.region.slice(0..BYTES)], 1)
                            .expect("posts");
                        side.ep
                            .post_send(&[side.region.slice(BYTES..2 * BYTES)], 2)
                            .expect("posts");
                    }
                }
            });
        }
    });
}

/// A process of this test in another role, ready; killed when dropped.
struct Process(Child);

impl Process {
    fn start(role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", over().0, "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        // libtest's output may stand on the same line.
        let ready = out
            .lines()
            .map_while(Result::ok)
            .any(|line| line.ends_with("ready"));
        assert!(ready, "{role} ended before it was ready");
        Self(child)
    }

    /// Stops the process. Returns when each of its threads has stopped: kill(2) returns before that.
    fn stop(&self) {
        let pid = self.0.id().cast_signed();
        let mut status = 0;
        // SAFETY: plain system calls on a child that was not waited for; `status` outlives the call.
        unsafe {
            assert_eq!(libc::kill(pid, libc::SIGSTOP), 0);
            assert_eq!(libc::waitpid(pid, &raw mut status, libc::WUNTRACED), pid);
        }
        assert!(libc::WIFSTOPPED(status), "status {status:#x}");
    }

    /// Sends SIGKILL, so that nothing is closed in order.
    fn kill(mut self) {
        self.0.kill().expect("kills");
        self.0.wait().expect("ends");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn scenario() {
    // The first process of the address holds the port; all others are reached through it.
    let holder = Process::start("fork");
    let _first = Process::start("echo 5001");
    let second = Process::start("echo 5002");
    let ia = Ia::open("user").expect("opens");
    let pz = ia.create_pz().expect("a PZ");
    let (a, b) = (connect(&ia, &pz, 5001), connect(&ia, &pz, 5002));
    a.ping(1);
    b.ping(2);

    holder.kill();
    let begin = Instant::now();
    for mark in 3..20 {
        a.ping(mark);
        b.ping(mark);
    }
    // Another process holds the port now.
    let c = connect(&ia, &pz, 5001);
    c.ping(20);
    assert!(
        begin.elapsed() < Duration::from_secs(30),
        "its child keeps what it had"
    );

    // Killed while this process only receives: no transmission fails, but the death is reported at once.
    let third = Process::start("echo 5003");
    let d = connect(&ia, &pz, 5003);
    d.ping(20);
    third.kill();
    let begin = Instant::now();
    let event = d.connections.wait(PATIENCE);
    assert!(
        matches!(
            event,
            Ok(Event::Ended {
                how: ConnectionEvent::Broken,
                ..
            })
        ),
        "{event:?}"
    );
    // A silent remote peer is probed after five seconds of silence, at the earliest.
    assert!(begin.elapsed() < Duration::from_secs(5));
    match d.done.wait(PATIENCE) {
        Ok(Event::Completion(done)) => {
            assert_eq!((done.cookie, done.status), (1, DtoStatus::Flushed));
        }
        other => panic!("{other:?}"),
    }
    a.ping(21);

    // Killed with requests in flight: only this connection breaks.
    b.ep.post_send(&[b.region.slice(BYTES..2 * BYTES)], 2)
        .expect("posts");
    second.kill();
    let begin = Instant::now();
    let mut posted = true;
    loop {
        match b.connections.poll().expect("polls") {
            Some(Event::Ended { .. }) => break,
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        assert!(
            begin.elapsed() < PATIENCE,
            "the peer is dead, but no event reports it"
        );
        a.ping(21);
        c.ping(22);
        while let Ok(Some(_)) = b.done.poll() {}
        // The kill may have come after the last answer.
        posted = posted
            && b.ep
                .post_send(&[b.region.slice(BYTES..2 * BYTES)], 2)
                .is_ok();
        std::thread::sleep(Duration::from_millis(50));
    }
    a.ping(23);
    // The dead process's service is free for another process.
    let _second = Process::start("echo 5002");
    connect(&ia, &pz, 5002).ping(24);
}

/// Returns test name and address.
fn over() -> (&'static str, &'static str) {
    match std::env::var(OVER).as_deref() {
        Ok(TEST6) => (TEST6, "::1"),
        Ok(UDP) => (UDP, ADDRESS_UDP),
        Ok(_) => (CALLERS, "127.88.1.2"),
        Err(_) => (TEST, ADDRESS),
    }
}

#[test]
fn callers_are_killed_while_they_ask() {
    play((CALLERS, "127.88.1.2"));
}

#[test]
fn processes_are_killed_and_the_others_go_on() {
    play((TEST, ADDRESS));
}

#[test]
fn over_udp_as_well() {
    play((UDP, ADDRESS_UDP));
}

#[test]
fn over_ipv6_as_well() {
    play((TEST6, "::1"));
}

fn play((test, address): (&str, &str)) {
    let near = if test == UDP { "off" } else { "auto" };
    match std::env::var(ROLE).as_deref() {
        Ok("hold") => return hold(),
        Ok("fork") => return fork_and_hold(),
        Ok("scenario") if test == CALLERS => return answer_the_dead(),
        Ok("scenario") => return scenario(),
        Ok(role) => {
            let (what, port) = role.split_once(' ').expect("a port");
            let port = port.parse().expect("a number");
            return if what == "call" {
                call(port);
            } else {
                echo(port);
            };
        }
        Err(_) => {}
    }
    let conf = dat_tests::line(
        "user",
        &dat_tests::softrxe(),
        &format!("{address} 0 engine=user near={near}"),
    );
    let (mut inner, _conf) = dat_tests::again(test, &conf);
    if test != TEST {
        inner.env(OVER, test);
    }
    let inner = inner.env(ROLE, "scenario").status();
    assert!(inner.expect("the test runs").success());
}
