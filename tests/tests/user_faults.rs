//! Registered memory that loses its mapping, its rights or its file. Whatever a peer or the own side does with it on
//! the user engine then, the process survives, the connection ends with an error, and other connections continue.
//! Faults of the application itself remain its own.

use std::os::unix::process::ExitStatusExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat::{
    Access, Completion, CompletionFlags, DtoStatus, Ep, Evd, Event, Ia, Pz, Region, Streams,
};
use dat_tests::engine::LINKS;

const PATIENCE: Duration = Duration::from_secs(30);
const PAGE: usize = 4096;
/// Size of the lost memory; less than the C library or a thread would map in its place.
const LOST: usize = 2 * PAGE;
/// Longer than the library's cached knowledge of a thread's signal mask is valid.
const KNOWN: Duration = Duration::from_millis(5);
/// Exit status of the application's fault handler.
const HANDLED: i32 = 42;
const FLAGS: CompletionFlags = CompletionFlags::empty();

/// The way in which registered memory is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loss {
    Unmapped,
    Protected,
    ReadOnly,
    Truncated,
}

/// The operation on lost memory. `true`: a long one, whose payload is sent without a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Written(bool),
    Read,
    SentTo,
    Send(bool),
    Write(bool),
    ReadInto,
}

/// The thread of the target that drives the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Drive {
    /// The library's helper thread.
    Helper,
    /// A polling thread of the application.
    Poll,
    /// The same, with the fault signals blocked.
    PollBlocked,
}

/// One side of a connection.
struct Side {
    ep: Ep,
    done: Evd,
    connections: Evd,
}

/// One adapter, with memory to lose and memory that stays.
struct Host {
    ia: Ia,
    pz: Pz,
    losing: Region,
    staying: Region,
    /// Offset of a page boundary in `losing`.
    at: usize,
}

impl Host {
    fn open(name: &str) -> Self {
        let ia = Ia::open(name).expect("the IA opens");
        let pz = ia.create_pz().expect("a PZ");
        let losing = pz.allocate(LOST + 3 * PAGE, Access::ALL).expect("memory");
        let staying = pz.allocate(LOST, Access::ALL).expect("memory");
        let address = losing.remote(0..1).address as usize;
        let at = (address + PAGE).next_multiple_of(PAGE) - address;
        Self {
            ia,
            pz,
            losing,
            staying,
            at,
        }
    }

    fn side(&self) -> Side {
        let done = self.ia.create_evd(64, Streams::DTO).expect("an EVD");
        let streams = Streams::CR | Streams::CONNECTION;
        let connections = self.ia.create_evd(16, streams).expect("an EVD");
        let builder = self.ia.endpoint(&self.pz).recv_evd(&done);
        let builder = builder.request_evd(&done).connect_evd(&connections);
        let ep = builder.max_recv(4).max_requests(4).create().expect("EP");
        Side {
            ep,
            done,
            connections,
        }
    }

    /// Returns a range across the edge of the lost memory, or all of it.
    fn lost(&self, long: bool) -> std::ops::Range<usize> {
        if long {
            self.at..self.at + LOST
        } else {
            self.at - 8..self.at + 56
        }
    }

    fn lose(&self, how: Loss) {
        let at = (self.losing.remote(0..1).address as usize + self.at) as *mut libc::c_void;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: pages inside an allocation of ours, of which nothing else is in use until they are put back.
        unsafe {
            match how {
                Loss::Unmapped => assert_eq!(libc::munmap(at, LOST), 0),
                Loss::Protected => assert_eq!(libc::mprotect(at, LOST, libc::PROT_NONE), 0),
                Loss::ReadOnly => assert_eq!(libc::mprotect(at, LOST, libc::PROT_READ), 0),
                Loss::Truncated => {
                    let file = libc::memfd_create(c"short".as_ptr(), 0);
                    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                    assert_eq!(libc::mmap(at, LOST, both, flags, file, 0), at);
                    libc::close(file);
                }
            }
        }
    }

    fn put_back(&self) {
        let at = (self.losing.remote(0..1).address as usize + self.at) as *mut libc::c_void;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_ANONYMOUS;
        // SAFETY: where `lose` took pages away.
        unsafe { assert_eq!(libc::mmap(at, LOST, both, flags, -1, 0), at) };
    }
}

fn connect(a: &Host, b: &Host) -> (Side, Side) {
    let (one, two) = (a.side(), b.side());
    let (active, passive) = ((&one.ep, &one.connections), (&two.ep, &two.connections));
    dat_tests::engine::connect(active, passive, &b.ia);
    (one, two)
}

/// Returns the next completion, with any status.
fn completion(evd: &Evd) -> Completion {
    match evd.wait(PATIENCE) {
        Ok(Event::Completion(done)) => done,
        other => panic!("no completion: {other:?}"),
    }
}

/// Sends a message each way, to show that the connection works.
fn greet(a: &Host, b: &Host, pair: &(Side, Side)) {
    let ends = [(a, &pair.0), (b, &pair.1)];
    for ((from, sender), (to, receiver)) in [(ends[0], ends[1]), (ends[1], ends[0])] {
        let word = [from.staying.slice(0..64)];
        receiver
            .ep
            .post_recv(&[to.staying.slice(64..128)], 1)
            .expect("posted");
        sender.ep.post_send(&word, 2).expect("posted");
        for side in [receiver, sender] {
            let done = completion(&side.done);
            assert_eq!(done.status, DtoStatus::Success);
        }
    }
}

fn block_faults(how: i32) {
    // SAFETY: a set that is initialised, of this thread.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGSEGV);
        libc::sigaddset(&raw mut set, libc::SIGBUS);
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
    std::thread::sleep(KNOWN);
}

/// Returns the status of the request at A, and of the receive at B if one is involved.
fn expected(act: Act, loss: Loss) -> (DtoStatus, Option<DtoStatus>) {
    let reads = matches!(act, Act::Read | Act::Send(_) | Act::Write(_));
    let lost = loss != Loss::ReadOnly || !reads;
    match (act, lost) {
        (Act::Send(_), false) => (DtoStatus::Success, Some(DtoStatus::Success)),
        (_, false) => (DtoStatus::Success, None),
        (Act::Written(_), true) => (DtoStatus::RemoteResponder, None),
        (Act::Read, true) => (DtoStatus::RemoteAccess, None),
        (Act::SentTo, true) => (DtoStatus::RemoteResponder, Some(DtoStatus::LocalProtection)),
        (Act::Send(_), true) => (DtoStatus::LocalProtection, Some(DtoStatus::Flushed)),
        (Act::Write(_) | Act::ReadInto, true) => (DtoStatus::LocalProtection, None),
    }
}

fn post(act: Act, a: &Host, b: &Host, pair: &(Side, Side)) {
    let (one, two) = pair;
    let (all, head) = (0..LOST, 0..64);
    match act {
        Act::Written(long) => {
            let range = if long { all } else { head };
            let (from, to) = ([a.staying.slice(range)], b.losing.remote(b.lost(long)));
            one.ep.post_rdma_write(&from, to, 3, FLAGS)
        }
        Act::Read => {
            let (into, from) = ([a.staying.slice(all)], b.losing.remote(b.lost(true)));
            one.ep.post_rdma_read(&into, from, 3, FLAGS)
        }
        Act::SentTo => {
            let into = [b.losing.slice(b.lost(false))];
            two.ep.post_recv(&into, 4).expect("posted");
            one.ep.post_send(&[a.staying.slice(head)], 3)
        }
        Act::Send(long) => {
            let into = [b.staying.slice(0..LOST)];
            two.ep.post_recv(&into, 4).expect("posted");
            one.ep.post_send(&[a.losing.slice(a.lost(long))], 3)
        }
        Act::Write(long) => {
            let from = [a.losing.slice(a.lost(long))];
            let to = b.staying.remote(0..a.lost(long).len());
            one.ep.post_rdma_write(&from, to, 3, FLAGS)
        }
        Act::ReadInto => {
            let (into, from) = ([a.losing.slice(a.lost(true))], b.staying.remote(all));
            one.ep.post_rdma_read(&into, from, 3, FLAGS)
        }
    }
    .expect("posted");
}

fn try_one(a: &Host, b: &Host, act: Act, loss: Loss, drive: Drive) {
    let pair = connect(a, b);
    let (one, two) = &pair;
    let what = (act, loss, drive);
    let (over, completed) = (AtomicBool::new(false), Mutex::new(Vec::<Completion>::new()));
    let (mine, theirs) = expected(act, loss);
    std::thread::scope(|scope| {
        if drive != Drive::Helper {
            let ready = AtomicBool::new(false);
            let (ready, over, completed) = (&*Box::leak(Box::new(ready)), &over, &completed);
            scope.spawn(move || {
                if drive == Drive::PollBlocked {
                    block_faults(libc::SIG_BLOCK);
                }
                while !over.load(Ordering::Acquire) {
                    if let Some(Event::Completion(done)) = two.done.poll().expect("polled") {
                        completed.lock().unwrap().push(done);
                    }
                    ready.store(true, Ordering::Release);
                    std::thread::yield_now();
                }
            });
            while !ready.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        }
        if drive == Drive::PollBlocked {
            block_faults(libc::SIG_BLOCK);
        }
        let loser = match act {
            Act::Written(_) | Act::Read | Act::SentTo => b,
            _ => a,
        };
        loser.lose(loss);
        post(act, a, b, &pair);
        let done = completion(&one.done);
        loser.put_back();
        assert_eq!((done.cookie, done.status), (3, mine), "{what:?}");
        let begin = Instant::now();
        while theirs.is_some() && completed.lock().unwrap().is_empty() {
            if drive == Drive::Helper {
                let done = completion(&two.done);
                completed.lock().unwrap().push(done);
            }
            assert!(begin.elapsed() < PATIENCE, "{what:?}: no completion at B");
            std::thread::yield_now();
        }
        if mine != DtoStatus::Success {
            for side in [one, two] {
                let event = side.connections.wait(PATIENCE).expect("an event");
                assert!(matches!(event, Event::Ended { .. }), "{what:?}: {event:?}");
            }
        }
        over.store(true, Ordering::Release);
        block_faults(libc::SIG_UNBLOCK);
    });
    let statuses: Vec<_> = completed
        .into_inner()
        .unwrap()
        .iter()
        .map(|d| d.status)
        .collect();
    assert_eq!(statuses, theirs.into_iter().collect::<Vec<_>>(), "{what:?}");
}

extern "C" fn handle(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's argument; the process ends without anything else.
    unsafe {
        let own = (*info).si_addr() as usize == 16;
        libc::_exit(if own { HANDLED } else { 13 });
    }
}

fn install_handler() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: a handler of the type that the flag says.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(
                libc::sigaction(signal, &raw const action, std::ptr::null_mut()),
                0
            );
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Handler {
    None,
    Before,
    After,
}

/// Loses all kinds of memory in every way, in one process, which then faults itself.
fn run(name: &str, net: u8, handler: Handler) {
    if !dat_tests::is_inner() {
        let library = dat_tests::softrxe();
        for near in LINKS {
            let line = |ia: &str, host: u8| {
                let params = format!("127.67.{net}.{host} 0 engine=user near={near}");
                dat_tests::line(ia, &library, &params)
            };
            let (mut inner, _conf) = dat_tests::again(name, &(line("a", 1) + &line("b", 2)));
            let status = inner.status().expect("the test runs");
            if handler == Handler::None {
                assert_eq!(
                    status.signal(),
                    Some(libc::SIGSEGV),
                    "near={near}: {status}"
                );
            } else {
                assert_eq!(status.code(), Some(HANDLED), "near={near}: {status}");
            }
        }
        return;
    }
    if handler == Handler::Before {
        install_handler();
    }
    let (a, b) = (Host::open("a"), Host::open("b"));
    let bystanders = connect(&a, &b);
    greet(&a, &b, &bystanders);
    if handler == Handler::After {
        install_handler();
        std::thread::sleep(KNOWN);
    }
    for drive in [Drive::Helper, Drive::Poll, Drive::PollBlocked] {
        for loss in [
            Loss::Unmapped,
            Loss::Protected,
            Loss::ReadOnly,
            Loss::Truncated,
        ] {
            for act in [
                Act::Written(false),
                Act::Written(true),
                Act::Read,
                Act::SentTo,
                Act::Send(false),
                Act::Send(true),
                Act::Write(false),
                Act::Write(true),
                Act::ReadInto,
            ] {
                try_one(&a, &b, act, loss, drive);
                greet(&a, &b, &bystanders);
            }
        }
    }
    // Prevents a core file at every run of the test.
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a limit of this process; then a fault, on purpose: it must reach the handler of the application.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {0}, qword ptr [{1}]", out(reg) _, in(reg) 16usize);
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("ldr {0}, [{1}]", out(reg) _, in(reg) 16usize);
    }
}

#[test]
fn lost_memory_ends_its_connection_only() {
    run("lost_memory_ends_its_connection_only", 1, Handler::None);
}

#[test]
fn lost_memory_is_no_business_of_a_handler_from_before() {
    let name = "lost_memory_is_no_business_of_a_handler_from_before";
    run(name, 2, Handler::Before);
}

#[test]
fn lost_memory_is_no_business_of_a_handler_from_afterwards() {
    let name = "lost_memory_is_no_business_of_a_handler_from_afterwards";
    run(name, 3, Handler::After);
}
