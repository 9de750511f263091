//! Two processes of a host on the user engine: when their connections take shared memory and when UDP, and how they end when a process is
//! stopped, killed, forks or exits in a stream.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dat::{Access, Close, DtoStatus, Ep, Evd, Event, Ia, Pz, Region, Streams};
use dat_tests::{Process, say};

const PATIENCE: Duration = Duration::from_secs(60);
const QUAL: u64 = 7350;
const BYTES: usize = 64;
/// Receives of a server.
const RECEIVES: usize = 64;
/// Messages of a caller that are not acknowledged.
const WINDOW: u64 = 16;
/// Cookies from this one on are those of receives.
const RECEIVE: u64 = 1 << 32;

/// An endpoint of a process, with one EVD for all events.
struct Side {
    ep: Ep,
    events: Evd,
    memory: Region,
    _pz: Pz,
    ia: Ia,
    /// The mappings of this process. It may have no descriptor left when it looks.
    maps: File,
}

impl Side {
    fn open(ia: &str) -> Self {
        let ia = Ia::open(ia).expect("the IA opens");
        let pz = ia.create_pz().expect("a PZ");
        let streams = Streams::DTO | Streams::CONNECTION;
        let events = ia.create_evd(256, streams).expect("an EVD");
        let builder = ia.endpoint(&pz).recv_evd(&events).request_evd(&events);
        let ep = builder.connect_evd(&events).max_recv(RECEIVES as u32);
        let ep = ep.max_requests(2 * WINDOW as u32).create().expect("an EP");
        let memory = pz.allocate((RECEIVES + 1) * BYTES, Access::ALL);
        Self {
            ep,
            events,
            memory: memory.expect("memory"),
            _pz: pz,
            ia,
            maps: File::open("/proc/self/maps").expect("its mappings"),
        }
    }

    fn receive(&self, slot: usize) {
        let bytes = self.memory.slice(slot * BYTES..(slot + 1) * BYTES);
        let posted = self.ep.post_recv(&[bytes], RECEIVE + slot as u64);
        posted.expect("a receive");
    }

    fn is_connected(&self) {
        let event = self.events.wait(PATIENCE).expect("an event");
        assert!(matches!(event, Event::Established { .. }), "{event:?}");
        let mut maps = String::new();
        let read = (&self.maps).read_to_string(&mut maps);
        read.expect("its mappings");
        let near = maps.contains("memfd:dat-rs-near");
        say(if near { "link near" } else { "link udp" });
        // A message may establish the connection before another thread counts it.
        let end = Instant::now() + PATIENCE;
        let mut counted = self.fallbacks();
        while !near && counted.is_empty() && Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(1));
            counted = self.fallbacks();
        }
        say(format_args!("counters {}", counted.join(" ")));
    }

    /// Returns the counters of connections that stayed on UDP, but for those of 0.
    fn fallbacks(&self) -> Vec<String> {
        let counters = self.ia.provider_counters().expect("its counters");
        let is_counted =
            |(name, value): &&(String, u64)| name.starts_with("near_fallback") && *value > 0;
        let counted = counters.iter().filter(is_counted);
        counted
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    /// Connects to the server at `to`.
    fn connect(&self, to: &str) {
        let to: IpAddr = to.parse().expect("an address");
        let attempt = self.ep.connect(to, QUAL).timeout(PATIENCE);
        attempt.start().expect("starts");
        self.is_connected();
    }

    /// Sends numbered messages until the connection ends, or `limit` are acknowledged. Reports every 64th. Returns whether it lives.
    fn stream(&self, numbers: &mut std::ops::Range<u64>, limit: u64) -> bool {
        loop {
            while numbers.end - numbers.start < WINDOW {
                let at = RECEIVES * BYTES;
                self.memory.write(at, &numbers.end.to_ne_bytes());
                let message = self.memory.slice(at..at + BYTES);
                if self.ep.post_send(&[message], numbers.end).is_err() {
                    break;
                }
                numbers.end += 1;
            }
            match self.events.wait(PATIENCE) {
                Ok(Event::Completion(done)) if done.status == DtoStatus::Success => {
                    numbers.start += 1;
                    if numbers.start.is_multiple_of(64) {
                        say(format_args!("acknowledged {}", numbers.start));
                    }
                    if numbers.start >= limit {
                        return true;
                    }
                }
                Ok(Event::Completion(_)) => {}
                Ok(Event::Ended { how, .. }) => {
                    say(format_args!("ended {how:?}"));
                    return false;
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Accepts one connection and counts its messages, which must come in order.
fn serve(prepare: impl FnOnce()) {
    let side = Side::open("server");
    let requests = side.ia.create_evd(4, Streams::CR).expect("an EVD");
    let _listener = side.ia.listen(Some(QUAL), &requests).expect("listens");
    for slot in 0..RECEIVES {
        side.receive(slot);
    }
    prepare();
    say(format_args!("ready {}", std::process::id()));
    let Ok(Event::Request(request)) = requests.wait(PATIENCE) else {
        panic!("no request");
    };
    request.accept(&side.ep, b"").expect("accepts");
    side.is_connected();
    let mut count = 0;
    loop {
        match side.events.wait(PATIENCE).expect("an event") {
            Event::Completion(done) if done.status == DtoStatus::Success => {
                assert_eq!((done.cookie - RECEIVE) as usize, count % RECEIVES);
                side.receive(count % RECEIVES);
                count += 1;
            }
            Event::Completion(_) => {}
            Event::Ended { how, .. } => {
                say(format_args!("received {count}"));
                say(format_args!("ended {how:?}"));
                // Its process and its mappings stay for the scenario.
                std::thread::sleep(PATIENCE);
                return;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Connects to the server at `to`, prints its pid, and streams; `then` follows after some messages.
fn call(to: &str, prepare: impl FnOnce(), then: impl FnOnce(&Side)) {
    let side = Side::open("caller");
    prepare();
    say(format_args!("ready {}", std::process::id()));
    side.connect(to);
    let mut numbers = 0..0;
    if side.stream(&mut numbers, 256) {
        then(&side);
        side.stream(&mut numbers, u64::MAX);
    }
    std::thread::sleep(PATIENCE);
}

/// Starts a child that does nothing, and waits for its end.
fn fork_in_a_stream() {
    // SAFETY: the child makes one system call.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: nothing of this process is to be run at its end.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: writes to `status` only.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    say("forked");
}

/// Uses up the descriptors of this process.
fn exhaust_descriptors() {
    let limit = libc::rlimit {
        rlim_cur: 128,
        rlim_max: 128,
    };
    // SAFETY: a plain system call.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(set, 0);
    while let Ok(file) = File::open("/dev/null") {
        std::mem::forget(file);
    }
}

/// Makes memfd_create fail in all threads of this process, as on a kernel or in a container without it.
fn lose_memfd() {
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            libc::SYS_memfd_create as u32,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refused),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: plain system calls; the program lives until they return.
    let done = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Gives up the rights of the superuser: to other engines this process is another user's from now on.
fn become_another_user() {
    const NOBODY: libc::uid_t = 65_534;
    // SAFETY: a plain system call; the C library makes it in all threads.
    let done = unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Takes the name under which the engine in `slot` of `ip` takes calls for shared memory.
fn take_name(ip: &str, slot: u16) -> OwnedFd {
    // SAFETY: plain system calls on a new descriptor and an address of the length given.
    unsafe {
        let name = format!("dat-rs/roce/{}/{ip}/near/{slot}", libc::getuid());
        let mut at: libc::sockaddr_un = std::mem::zeroed();
        at.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in at.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        let bound = libc::bind(fd, (&raw const at).cast(), length as libc::socklen_t);
        assert_eq!(bound, 0, "{name}");
        OwnedFd::from_raw_fd(fd)
    }
}

/// Two processes and their dat.conf.
struct Pair {
    /// What the server logged before it was ready.
    server_log: String,
    server: Process,
    server_pid: libc::pid_t,
    caller: Process,
    caller_pid: libc::pid_t,
    _folder: tempfile::TempDir,
}

/// A process, its pid, and what it logged before it was ready.
fn start(test: &str, role: &str, conf: &Path) -> (Process, libc::pid_t, String) {
    // The log comes with the lines.
    let shell = ["sh", "-c", r#"DAT_LOG=info exec "$@" 2>&1"#, "sh"];
    let process = Process::start(test, role, conf, &shell);
    let mut log = String::new();
    loop {
        let line = process.says("", PATIENCE).expect("it starts");
        if let Some(pid) = line.strip_prefix("ready ") {
            return (process, pid.parse().expect("a number"), log);
        }
        log += &line;
        log.push('\n');
    }
}

impl Pair {
    /// Starts both on the addresses 1 and 2 of the /24 `network` with these settings and roles.
    fn new(test: &str, network: &str, settings: [&str; 2], roles: [&str; 2]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let conf: PathBuf = folder.path().join("dat.conf");
        let library = dat_tests::softrxe();
        let line = |ia: &str, host: u8, more: &str| {
            dat_tests::line(
                ia,
                &library,
                &format!("{network}.{host} 0 engine=user {more}"),
            )
        };
        let lines = line("server", 1, settings[0]) + &line("caller", 2, settings[1]);
        std::fs::write(&conf, lines).expect("dat.conf");
        let (server, server_pid, server_log) = start(test, roles[0], &conf);
        let caller = format!("{} {network}.1", roles[1]);
        let (caller, caller_pid, _) = start(test, &caller, &conf);
        Self {
            server_log,
            server,
            server_pid,
            caller,
            caller_pid,
            _folder: folder,
        }
    }

    /// Starts both until both ends use `link`. Where the machine is so busy that one does not answer the other in time, they take UDP
    /// and say so, and start again.
    fn over(link: &str, test: &str, network: &str, settings: [&str; 2], roles: [&str; 2]) -> Self {
        for _ in 0..10 {
            let pair = Self::new(test, network, settings, roles);
            let ends = [&pair.server, &pair.caller];
            let links = ends.map(|end| end.says("link ", PATIENCE).expect("its link"));
            if links == [link, link] {
                return pair;
            }
            let counted = pair.server.says("counters", PATIENCE);
            let silent = Some("near_fallback_silent=1");
            assert_eq!(counted.as_deref(), silent, "{links:?}");
        }
        panic!("the ends never agree in time");
    }

    /// Checks which counter of connections that stayed on UDP is 1 at the server and at the caller: one of the words, or none.
    fn counts(&self, reasons: [&str; 2]) {
        for (end, reasons) in [&self.server, &self.caller].into_iter().zip(reasons) {
            let counted = end.says("counters", PATIENCE).expect("its counters");
            let mut reasons = reasons.split('|');
            let is_one = |reason: &str| match reason {
                "" => counted.is_empty(),
                reason => counted == format!("near_fallback_{reason}=1"),
            };
            assert!(reasons.any(is_one), "{counted}");
        }
    }

    /// Waits for 64 more messages; returns how many were acknowledged.
    fn moves(&self) -> usize {
        let count = self.caller.says("acknowledged ", PATIENCE);
        count.expect("data moves").parse().expect("a number")
    }
}

fn signal(pid: libc::pid_t, signal: libc::c_int) {
    // SAFETY: a plain system call on a process of this test.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Plays the role of this process. Returns false in the process that nextest started.
fn plays() -> bool {
    let Some(role) = dat_tests::role() else {
        return false;
    };
    let nothing = |_: &Side| {};
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["serve"] => serve(|| {}),
        ["serve-without-descriptors"] => serve(exhaust_descriptors),
        ["serve-as-another-user"] => serve(become_another_user),
        ["call", to] => call(to, || {}, nothing),
        ["call-without-memfd", to] => call(to, lose_memfd, nothing),
        ["call-and-fork", to] => call(to, || {}, |_| fork_in_a_stream()),
        ["call-and-exit", to] => call(
            to,
            || {},
            |side| {
                side.ep.disconnect(Close::Abrupt).expect("disconnects");
                std::process::exit(0);
            },
        ),
        _ => panic!("no role {role}"),
    }
    true
}

#[test]
fn a_connection_takes_shared_memory_if_both_sides_offer_it() {
    let test = "a_connection_takes_shared_memory_if_both_sides_offer_it";
    if plays() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let capture = format!("pcap={}", folder.path().join("packets").display());
    for (settings, link, reasons) in [
        (["", ""], "near", ["", ""]),
        (["near=auto", "near=off"], "udp", ["peer", "off"]),
        (["near=off", "near=auto"], "udp", ["off", "peer"]),
        ([capture.as_str(), "near=auto"], "udp", ["off", "peer"]),
        (["near=auto", capture.as_str()], "udp", ["peer", "off"]),
    ] {
        let (network, roles) = ("127.91.1", ["serve", "call"]);
        let pair = if link == "udp" {
            let pair = Pair::new(test, network, settings, roles);
            pair.uses_udp_and_logs("a connection stays on UDP");
            pair
        } else {
            Pair::over(link, test, network, settings, roles)
        };
        pair.counts(reasons);
        assert!(pair.moves() > 0);
    }
}

#[test]
fn a_connection_that_finds_no_memory_or_descriptor_takes_udp_and_says_so() {
    let test = "a_connection_that_finds_no_memory_or_descriptor_takes_udp_and_says_so";
    if plays() {
        return;
    }
    // A process without memfd refuses the server's call, on a busy machine too late; one without descriptors makes none, so its peer
    // does not learn why.
    let refused = ["resources|silent", "resources|peer"];
    for (roles, reasons) in [
        (["serve", "call-without-memfd"], refused),
        (["serve-without-descriptors", "call"], ["resources", "peer"]),
    ] {
        let pair = Pair::new(test, "127.91.2", ["", ""], roles);
        pair.uses_udp_and_logs("stay on UDP");
        pair.counts(reasons);
        assert!(pair.moves() > 0, "{roles:?}");
    }
}

#[test]
fn engines_of_two_users_take_udp_and_say_so() {
    let test = "engines_of_two_users_take_udp_and_say_so";
    if plays() {
        return;
    }
    // SAFETY: a plain system call.
    if unsafe { libc::geteuid() } != 0 {
        dat_untested::untested("only the superuser can become another user");
        return;
    }
    let roles = ["serve-as-another-user", "call"];
    let pair = Pair::new(test, "127.91.8", ["", ""], roles);
    pair.uses_udp_and_logs("it is another user");
    pair.counts(["user", "peer"]);
    assert!(pair.moves() > 0);
    // The caller watches for the end of the server, which was of its own user at first.
    let ended = pair
        .caller
        .says("ended", std::time::Duration::from_millis(500));
    assert_eq!(ended, None);
}

#[test]
fn an_engine_whose_name_is_taken_has_another_one() {
    let test = "an_engine_whose_name_is_taken_has_another_one";
    if plays() {
        return;
    }
    // The slots are random.
    let names: Vec<OwnedFd> = ["127.91.7.1", "127.91.7.2"]
        .into_iter()
        .flat_map(|ip| (0..1024).map(move |slot| take_name(ip, slot)))
        .collect();
    let pair = Pair::over("near", test, "127.91.7", ["", ""], ["serve", "call"]);
    let says_so = pair.server_log.contains("datagrams stay on UDP");
    assert!(says_so, "{}", pair.server_log);
    assert!(pair.moves() > 0);
    drop(names);
}

impl Pair {
    /// Checks that both ends use UDP, and that the server logs a line with `words`. Another thread writes that than the one that says which
    /// link it uses.
    fn uses_udp_and_logs(&self, words: &str) {
        let end = Instant::now() + PATIENCE;
        let (mut logged, mut named) = (false, false);
        while !(logged && named)
            && let Some(line) = self.server.says("", end - Instant::now().min(end))
        {
            logged |= line.contains(words);
            if let Some(link) = line.strip_prefix("link ") {
                assert_eq!(link, "udp");
                named = true;
            }
        }
        assert!(logged, "the server logs no line with {words:?}");
        assert_eq!(self.caller.says("link ", PATIENCE).as_deref(), Some("udp"));
    }
}

#[test]
fn a_stopped_peer_breaks_the_connection_in_time_and_one_that_goes_on_does_not() {
    let test = "a_stopped_peer_breaks_the_connection_in_time_and_one_that_goes_on_does_not";
    if plays() {
        return;
    }
    for (near, link) in [("auto", "near"), ("off", "udp")] {
        let settings = format!("near={near} keepalive=1 retry=3");
        let settings = [settings.as_str(); 2];
        let pair = Pair::over(link, test, "127.91.3", settings, ["serve", "call"]);
        let before = pair.moves();
        signal(pair.server_pid, libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(50));
        signal(pair.server_pid, libc::SIGCONT);
        let mut after = before;
        while after < before + 2048 {
            after = pair.moves();
        }
        signal(pair.server_pid, libc::SIGSTOP);
        let begin = Instant::now();
        let ended = pair.caller.says("ended ", PATIENCE);
        assert_eq!(ended.as_deref(), Some("Broken"), "{near}");
        println!("{near}: broken after {:?}", begin.elapsed());
        signal(pair.server_pid, libc::SIGCONT);
    }
}

#[test]
fn a_killed_process_breaks_its_stream_and_what_was_acknowledged_is_there() {
    let test = "a_killed_process_breaks_its_stream_and_what_was_acknowledged_is_there";
    if plays() {
        return;
    }
    for near in dat_tests::engine::LINKS {
        let settings = format!("near={near} keepalive=0");
        for kills_server in [true, false] {
            let pair = Pair::new(test, "127.91.4", [&settings, &settings], ["serve", "call"]);
            let acknowledged = pair.moves();
            if kills_server {
                signal(pair.server_pid, libc::SIGKILL);
                let ended = pair.caller.says("ended ", PATIENCE);
                assert_eq!(ended.as_deref(), Some("Broken"));
            } else {
                signal(pair.caller_pid, libc::SIGKILL);
                let received = pair.server.says("received ", PATIENCE);
                let received: usize = received.expect("an end").parse().expect("a number");
                assert!(received >= acknowledged, "{received} of {acknowledged}");
                let ended = pair.server.says("ended ", PATIENCE);
                assert_eq!(ended.as_deref(), Some("Broken"));
            }
        }
    }
}

#[test]
fn a_process_that_forks_in_a_stream_goes_on() {
    let test = "a_process_that_forks_in_a_stream_goes_on";
    if plays() {
        return;
    }
    let roles = ["serve", "call-and-fork"];
    let pair = Pair::over("near", test, "127.91.5", ["", ""], roles);
    pair.caller.says("forked", PATIENCE).expect("a fork");
    let before = pair.moves();
    while pair.moves() < before + 1024 {}
}

#[test]
fn a_process_that_disconnects_and_exits_is_disconnected() {
    let test = "a_process_that_disconnects_and_exits_is_disconnected";
    if plays() {
        return;
    }
    for near in dat_tests::engine::LINKS {
        let settings = format!("near={near}");
        for _ in 0..4 {
            let settings = [settings.as_str(); 2];
            let pair = Pair::new(test, "127.91.6", settings, ["serve", "call-and-exit"]);
            let received = pair.server.says("received ", PATIENCE);
            let received: usize = received.expect("an end").parse().expect("a number");
            assert!(received >= 256, "{received}");
            let ended = pair.server.says("ended ", PATIENCE);
            assert_eq!(ended.as_deref(), Some("Disconnected"), "{near}");
        }
    }
}

#[test]
fn dat_info_lists_the_counters_of_connections_that_stay_on_udp() {
    let folder = tempfile::tempdir().expect("a folder");
    let conf = folder.path().join("dat.conf");
    let line = dat_tests::line("ia", &dat_tests::softrxe(), "127.91.9.1 0 engine=user");
    std::fs::write(&conf, line).expect("dat.conf");
    let run = |arguments: &[&str]| {
        let mut dat = Command::new(dat_tests::built().join("dat"));
        let output = dat.args(arguments).env("DAT_OVERRIDE", &conf).output();
        let output = output.expect("dat runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let names = [
        "off",
        "peer",
        "user",
        "elsewhere",
        "version",
        "resources",
        "silent",
        "protocol",
    ];
    let [text, json] = [&["info", "ia"][..], &["--json", "info", "ia"]].map(run);
    for name in names {
        let name = format!("near_fallback_{name}");
        let mut lines = text.lines();
        let line = lines.find(|line| line.split_whitespace().eq([name.as_str(), "0"]));
        assert!(line.is_some(), "{name}: {text}");
        assert!(json.contains(&format!("\"{name}\": 0")), "{name}: {json}");
    }
}
