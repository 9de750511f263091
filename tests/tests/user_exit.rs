//! Processes of the user engine that end by exit(3), without a disconnect: what their peers learn of it.
//!
//! A peer on the same host learns of the death of a process by itself, and reports a broken connection. So the event tells whether
//! the process said that it ends.

mod messenger;

use std::net::IpAddr;
use std::process::exit;
use std::time::Duration;

use dat::{ConnectionEvent, Evd, Ia, Listener, Pz, Streams};
use dat_tests::{Process, role};
use messenger::{PATIENCE, RECEIVED, SENT, Side};

const QUAL: u64 = 7360;
/// Connections of the client that has many.
const MANY: usize = 100;
/// Clients that exit right after their last answer.
const CLIENTS: usize = 20;

/// What a client does in a process of its own, until it ends without a disconnect.
fn client(how: &str, server: IpAddr) -> ! {
    let ia = Ia::open("client").expect("opens");
    let pz = ia.create_pz().expect("a PZ");
    let (waits, polls) = (how == "waits", how == "polls");
    let count = if how == "many" { MANY } else { 1 };
    let sides: Vec<_> = (0..count)
        .map(|_| Side::connect(&ia, &pz, server, QUAL))
        .collect();
    let side = &sides[0];
    if how == "forks" {
        // SAFETY: the child calls exit, as programs do; no other thread holds what it needs.
        let child = unsafe { libc::fork() };
        if child == 0 {
            exit(0);
        }
        let mut status = 1;
        // SAFETY: `status` has room for the result.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
    side.send();
    side.completed(RECEIVED);
    if waits || polls {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            exit(0)
        });
        loop {
            if waits {
                let _ = side.done.wait_completion(PATIENCE);
            } else {
                let _ = side.done.poll();
            }
        }
    }
    exit(0)
}

/// The server, which starts clients.
struct Server {
    ia: Ia,
    pz: Pz,
    requests: Evd,
    _listener: Listener,
    name: &'static str,
}

impl Server {
    fn new(name: &'static str) -> Self {
        let ia = Ia::open("server").expect("opens");
        let requests = ia.create_evd(2 * MANY as u32, Streams::CR).expect("an EVD");
        Self {
            pz: ia.create_pz().expect("a PZ"),
            _listener: ia.listen(Some(QUAL), &requests).expect("listens"),
            requests,
            ia,
            name,
        }
    }

    fn start(&self, how: &str) -> Process {
        let conf = std::env::var_os("DAT_OVERRIDE").expect("within `inside`");
        let address = self.ia.attributes().expect("attributes").address;
        Process::start(self.name, &format!("{how} {address}"), conf.as_ref(), &[])
    }

    fn accept(&self) -> Side {
        Side::accept(&self.ia, &self.pz, &self.requests)
    }
}

/// Runs `body` in a process with a server's and a client's IA of these `settings`, and the clients in the others.
/// No other test uses the addresses of `network`.
fn with_clients(name: &'static str, network: &str, settings: &str, body: impl FnOnce(&Server)) {
    if let Some(role) = role() {
        let (how, server) = role.split_once(' ').expect("two words");
        client(how, server.parse().expect("an address"));
    }
    let lines = || {
        let library = dat_tests::softrxe();
        let line = |ia, host| {
            let params = format!("{network}.{host} 0 engine=user {settings}");
            dat_tests::line(ia, &library, &params)
        };
        line("server", 1) + &line("client", 2)
    };
    dat_tests::inside(name, lines, || body(&Server::new(name)));
}

/// With several lanes each has connections of its own.
#[test]
fn a_process_that_exits_disconnects_all_its_connections() {
    let name = "a_process_that_exits_disconnects_all_its_connections";
    with_clients(name, "127.88.4", "near=off lanes=2", |server| {
        let client = server.start("many");
        let sides: Vec<_> = (0..MANY).map(|_| server.accept()).collect();
        sides[0].completed(RECEIVED);
        sides[0].send();
        for side in &sides {
            assert_eq!(side.end(), ConnectionEvent::Disconnected);
        }
        sides[0].completed(SENT);
        drop(client);
    });
}

/// The client has acknowledged nothing yet when it has its last answer: it might have more to say.
#[test]
fn the_last_answer_to_a_process_that_exits_is_no_error() {
    let name = "the_last_answer_to_a_process_that_exits_is_no_error";
    with_clients(name, "127.88.5", "near=off", last_answers);
}

#[test]
fn the_last_answer_over_a_channel_is_no_error_either() {
    let name = "the_last_answer_over_a_channel_is_no_error_either";
    with_clients(name, "127.88.6", "", last_answers);
}

fn last_answers(server: &Server) {
    for _ in 0..CLIENTS {
        one_answer(server, "one");
    }
}

/// Answers the message of a client, which then ends.
fn one_answer(server: &Server, how: &str) {
    let client = server.start(how);
    let side = server.accept();
    side.completed(RECEIVED);
    side.send();
    side.completed(SENT);
    assert_eq!(side.end(), ConnectionEvent::Disconnected);
    drop(client);
}

/// The thread that waits or polls drives the engine in place of the helper thread.
#[test]
fn a_process_exits_while_another_thread_waits_or_polls() {
    let name = "a_process_exits_while_another_thread_waits_or_polls";
    with_clients(name, "127.88.8", "near=off", |server| {
        for how in ["waits", "polls"] {
            let client = server.start(how);
            let side = server.accept();
            side.completed(RECEIVED);
            side.send();
            assert_eq!(side.end(), ConnectionEvent::Disconnected, "{how}");
            side.completed(SENT);
            drop(client);
        }
    });
}

#[test]
fn a_forked_child_that_exits_disconnects_nothing() {
    let name = "a_forked_child_that_exits_disconnects_nothing";
    with_clients(name, "127.88.7", "near=off", |server| {
        // The child has ended when the message comes.
        one_answer(server, "forks");
    });
}
