//! A listener that accepts connections of trusted users, at a bounded rate, without a lock of its owner.
//!
//! Any user can connect to a name of the abstract namespace. [`Listener::accept`] takes connections out of the kernel's
//! queue and closes those of other users. [`Listener::take`] then gives the rest to the owner. After a batch with other
//! users' connections the listener pauses, so a flood of connects wakes its process 200 times a second at most.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dat_os::mutex::lock;
use dat_os::sleep::without_cancellation;
use dat_os::timerfd::TimerFd;

use crate::credentials::Trust;
use crate::discard::{ListeningSocket, discard};
use crate::fork::CloseOnFork;
use crate::poll_set::PollSet;
use crate::unix_socket;

/// Connections that are accepted at a time.
const BATCH: usize = 128;
/// Connections of other users that are closed together where a thread has to do that. Each takes a descriptor until then.
const HELD: usize = 32;
/// Where all users are admitted, a batch of this size is followed by a pause.
const LARGE: usize = 64;
/// The pause after a large batch or one with connections of other users, and while the owner has not taken as many as a batch.
const PAUSE: Duration = Duration::from_millis(5);
/// The pause where the process has no descriptor for another connection.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(50);

/// A listener, with the accepted connections that its owner has not taken yet.
#[derive(Debug)]
pub struct Listener {
    socket: ListeningSocket,
    trust: Trust,
    /// Contains the socket, or during a pause the timer.
    ready: Arc<PollSet>,
    pacing: Mutex<Pacing>,
    accepted: Mutex<VecDeque<CloseOnFork<OwnedFd>>>,
}

/// State of the pauses.
#[derive(Debug)]
struct Pacing {
    /// Made beforehand: most pauses are for the lack of descriptors.
    timer: TimerFd,
    paused: bool,
    /// The owner takes no more connections.
    stopped: bool,
}

impl Listener {
    /// Accepts connections of `socket` from users that `trust` covers. `ready` becomes readable when there is something to
    /// accept.
    ///
    /// # Errors
    /// As `epoll_ctl` and `timerfd_create`.
    pub(crate) fn new(
        socket: ListeningSocket,
        trust: Trust,
        ready: Arc<PollSet>,
    ) -> io::Result<Self> {
        ready.add(socket.as_raw_fd())?;
        Ok(Self {
            socket,
            trust,
            ready,
            pacing: Mutex::new(Pacing {
                timer: TimerFd::new()?,
                paused: false,
                stopped: false,
            }),
            accepted: Mutex::default(),
        })
    }

    /// Accepts what waits, unless the listener pauses, as it does while the owner takes fewer than come. Returns true if a connection waits for
    /// [`take`](Self::take).
    pub fn accept(&self) -> bool {
        let mut pacing = lock(&self.pacing);
        self.end_pause(&mut pacing);
        let takes = !pacing.paused && !pacing.stopped;
        if takes && lock(&self.accepted).len() >= BATCH {
            self.pause(&mut pacing, PAUSE);
        } else if takes {
            let (mut own, mut foreign, mut any_foreign) = (VecDeque::new(), Vec::new(), false);
            let mut pause = None;
            for _ in 0..BATCH {
                match CloseOnFork::new(|| unix_socket::accept(self.socket.as_fd())) {
                    Ok(connection) if self.trust.accepts(connection.as_fd()) => {
                        own.push_back(connection);
                    }
                    Ok(connection) => {
                        any_foreign = true;
                        foreign.push(connection);
                        if foreign.len() == held() {
                            discard(std::mem::take(&mut foreign));
                        }
                    }
                    Err(error) => {
                        let harmless = matches!(
                            error.kind(),
                            ErrorKind::WouldBlock | ErrorKind::ConnectionAborted
                        );
                        pause = (!harmless).then_some(NO_DESCRIPTOR_PAUSE);
                        break;
                    }
                }
            }
            let flood = self.trust == Trust::Everyone && own.len() >= LARGE;
            if flood || any_foreign {
                pause = pause.or(Some(PAUSE));
            }
            if let Some(time) = pause {
                self.pause(&mut pacing, time);
            }
            discard(foreign);
            lock(&self.accepted).append(&mut own);
        }
        !lock(&self.accepted).is_empty()
    }

    /// Returns the next connection that was accepted.
    pub fn take(&self) -> Option<CloseOnFork<OwnedFd>> {
        lock(&self.accepted).pop_front()
    }

    /// Stops accepting while the owner has no room for connections, or accepts again. Connections wait in the kernel's queue
    /// meanwhile.
    pub(crate) fn stop(&self, stop: bool) {
        let mut pacing = lock(&self.pacing);
        if std::mem::replace(&mut pacing.stopped, stop) != stop && !pacing.paused {
            self.watch_socket(!stop);
        }
    }

    fn watch_socket(&self, watch: bool) {
        if !watch {
            self.ready.remove(self.socket.as_raw_fd());
        } else if let Err(error) = self.ready.add(self.socket.as_raw_fd()) {
            tracing::warn!(%error, "no more processes can connect to this one; see fs.epoll.max_user_watches");
        }
    }

    fn pause(&self, pacing: &mut Pacing, time: Duration) {
        let timer = &pacing.timer;
        // Add the timer before removing the socket: if adding fails, the listener does not pause.
        timer.set(time);
        if self.ready.add(timer.as_raw_fd()).is_ok() {
            self.ready.remove(self.socket.as_raw_fd());
            pacing.paused = true;
        }
    }

    fn end_pause(&self, pacing: &mut Pacing) {
        let timer = &pacing.timer;
        if pacing.paused && without_cancellation(timer.as_raw_fd(), libc::POLLIN, Duration::ZERO) {
            timer.clear();
            self.ready.remove(timer.as_raw_fd());
            pacing.paused = false;
            if !pacing.stopped {
                self.watch_socket(true);
            }
        }
    }
}

/// Returns how many connections of other users are closed together: the descriptors that a flood of connects takes.
pub(crate) fn held() -> usize {
    if unix_socket::refuses_descriptors() {
        1
    } else {
        HELD
    }
}

impl AsRawFd for Listener {
    /// The descriptor of the set that is readable when there is something to accept.
    fn as_raw_fd(&self) -> RawFd {
        self.ready.as_raw_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        discard(lock(&self.accepted).drain(..).collect());
    }
}

#[cfg(test)]
mod tests {
    use crate::names;
    use crate::unix_socket::Kind;

    use super::*;

    fn listener(ip: &str, trust: Trust) -> (Listener, String) {
        let name = names::user_name(ip.parse().unwrap(), "port");
        let socket = names::listen_exact(Kind::Stream, &name).unwrap();
        let ready = Arc::new(PollSet::new().unwrap());
        (Listener::new(socket, trust, ready).unwrap(), name)
    }

    #[test]
    fn connections_of_trusted_users_are_accepted_and_others_closed() {
        let (own, name) = listener("127.77.10.1", Trust::Own);
        let connect = || names::connect_exact(Kind::Stream, &name, Trust::Own).unwrap();
        assert!(!own.ready.is_readable() && !own.accept());
        let lines = [(); 3].map(|()| connect());
        assert!(own.ready.is_readable() && own.accept() && !own.ready.is_readable());
        assert_eq!(std::iter::from_fn(|| own.take()).count(), lines.len());
        drop(own);
        let uid = crate::credentials::own_uid() + 1;
        let (foreign, _) = listener("127.77.10.1", Trust::User(uid));
        let line = connect();
        assert!(foreign.ready.is_readable() && !foreign.accept());
        assert!(crate::packets::is_closed(line.as_fd()));
        // More connections make nothing readable until the pause is over.
        let begin = std::time::Instant::now();
        let line = connect();
        while !foreign.ready.is_readable() {
            assert!(begin.elapsed() < Duration::from_secs(5));
        }
        assert!(begin.elapsed() > PAUSE / 2, "{:?}", begin.elapsed());
        assert!(!foreign.accept() && crate::packets::is_closed(line.as_fd()));
    }

    /// Runs `body` of `test` in a process of its own, as it changes what all threads of one share. `cargo test` has the other tests there.
    fn in_own_process(test: &str, body: fn()) {
        const ROLE: &str = "DAT_IN_OWN_PROCESS";
        if std::env::var_os(ROLE).is_some() {
            return body();
        }
        let (_, module) = module_path!().split_once("::").unwrap();
        let mut program = std::process::Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", &format!("{module}::{test}")]);
        let output = program.env(ROLE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("1 passed"), "{said}");
    }

    /// Lets this process open `count` more descriptors. Returns the limit before.
    fn leave_descriptors(count: usize) -> libc::rlimit {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
        // SAFETY: plain calls; `limit` is valid.
        unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            let few = libc::rlimit {
                rlim_cur: next as libc::rlim_t + count as libc::rlim_t,
                ..limit
            };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few);
        }
        limit
    }

    fn restore(limit: libc::rlimit) {
        // SAFETY: a plain call; `limit` is valid.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }

    #[test]
    fn a_flood_of_other_users_takes_few_descriptors() {
        in_own_process("a_flood_of_other_users_takes_few_descriptors", || {
            let own = crate::credentials::own_uid();
            let (foreign, name) = listener("127.77.10.4", Trust::User(own + 1));
            let connect = |_| names::connect_exact(Kind::Stream, &name, Trust::Own).unwrap();
            let lines: Vec<_> = (0..BATCH).map(connect).collect();
            let limit = leave_descriptors(held());
            assert!(!foreign.accept());
            restore(limit);
            let open = |line: &&CloseOnFork<OwnedFd>| !crate::packets::is_closed(line.as_fd());
            assert_eq!(lines.iter().filter(open).count(), 0, "of {BATCH}");
        });
    }

    #[test]
    fn without_descriptors_the_listener_pauses_and_accepts_later() {
        in_own_process(
            "without_descriptors_the_listener_pauses_and_accepts_later",
            || {
                let (listener, name) = listener("127.77.10.3", Trust::Own);
                let _line = names::connect_exact(Kind::Stream, &name, Trust::Own).unwrap();
                let limit = leave_descriptors(0);
                assert!(listener.ready.is_readable() && !listener.accept());
                assert!(!listener.ready.is_readable() && !listener.accept());
                restore(limit);
                std::thread::sleep(NO_DESCRIPTOR_PAUSE);
                assert!(listener.ready.is_readable() && listener.accept());
            },
        );
    }

    /// Each takes a descriptor.
    #[test]
    fn connections_that_the_owner_does_not_take_are_few() {
        let (listener, name) = listener("127.77.10.5", Trust::Own);
        let connect = |_| names::connect_exact(Kind::Stream, &name, Trust::Own).unwrap();
        let lines: Vec<_> = (0..3 * BATCH).map(connect).collect();
        let accept = || {
            (0..8).for_each(|_| assert!(listener.accept()));
            std::iter::from_fn(|| listener.take()).count()
        };
        let mut accepted = accept();
        assert!((BATCH..2 * BATCH).contains(&accepted), "{accepted}");
        // No thread is woken for the others until the pause is over.
        let begin = std::time::Instant::now();
        while accepted < lines.len() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{accepted}");
            if listener.ready.is_readable() && listener.accept() {
                accepted += std::iter::from_fn(|| listener.take()).count();
            }
        }
    }

    #[test]
    fn a_stopped_listener_leaves_connections_in_the_queue() {
        let (listener, name) = listener("127.77.10.2", Trust::Own);
        listener.stop(true);
        let _line = names::connect_exact(Kind::Stream, &name, Trust::Own).unwrap();
        assert!(!listener.ready.is_readable() && !listener.accept());
        listener.stop(false);
        assert!(listener.ready.is_readable() && listener.accept());
    }
}
