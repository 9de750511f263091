//! A holder of UDP port 4791 for the processes of all users: `dat serve-port`.
//!
//! It has no engine. It keeps the slots and services of its members apart, and gives each datagram to the one member that
//! it is for. When it is restarted its members come back by themselves; until they had time to, what a user had is kept
//! for that user, by a file.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::ROCE_PORT;
use crate::credentials::own_uid;
use crate::holder::Holder;
use crate::letter::Addressee;
use crate::route::Requests;
use crate::socket::{Received, Socket};
use crate::wake::{Bundle, sleep};

/// Bytes asked for in the receive buffer of a port.
const BUFFER: usize = 4 << 20;
/// Reads of a port before the others, and the members, have their turn.
const READS: usize = 64;
/// How long what a user had before a restart is kept for it.
const KEPT: Duration = Duration::from_secs(10);
/// The file is written so long after a change, with all changes until then.
const WRITTEN: Duration = Duration::from_millis(50);
/// Pause when there is no descriptor for a process that waits to be taken in.
const PAUSE: Duration = Duration::from_millis(50);
/// The first descriptor that systemd passes on.
const FIRST_PASSED: RawFd = 3;

/// Why a port cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There is nothing to serve.
    #[error("name the addresses whose UDP port 4791 is to be served; systemd passed no socket on")]
    NoAddress,
    /// The port is taken.
    #[error("cannot hold UDP port {} of {}: {error}; end the process that has it (`ss -lunp`)", .local.port(), .local.ip())]
    Port {
        /// Address and port.
        local: SocketAddr,
        /// What the kernel says.
        error: io::Error,
    },
    /// A socket of systemd is not bound to the port.
    #[error("systemd passed on a socket of {local}, which is not UDP port 4791 of one address")]
    Passed {
        /// Where the socket is bound.
        local: SocketAddr,
    },
    /// The folder for the file cannot be used.
    #[error("cannot keep the registry in {}: {error}", .folder.display())]
    State {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        error: io::Error,
    },
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The file with what users have on an address.
#[derive(Debug)]
struct Record {
    path: PathBuf,
    due: Option<Instant>,
}

#[derive(Debug)]
struct Port {
    local: SocketAddr,
    holder: Holder,
    requests: Requests,
    record: Option<Record>,
}

/// Holds UDP port 4791 of some addresses for all users.
#[derive(Debug)]
pub struct Server {
    ports: Vec<Port>,
    bundle: Bundle,
    received: Received,
    /// Until then reservations hold.
    kept_until: Option<Instant>,
}

impl Server {
    /// Takes the port of each address, and of each socket that systemd passes on. `state` is a folder of the own user that
    /// outlives a restart; without it a service may be taken by another user while the server is down.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn new(addresses: &[IpAddr], state: Option<&Path>) -> Result<Self, ServeError> {
        let mut sockets = passed()?;
        for ip in addresses {
            let local = SocketAddr::new(*ip, ROCE_PORT);
            if !sockets.iter().any(|socket| socket.local() == local) {
                let bound = Socket::bind(*ip, ROCE_PORT, BUFFER);
                sockets.push(bound.map_err(|error| ServeError::Port { local, error })?);
            }
        }
        if sockets.is_empty() {
            return Err(ServeError::NoAddress);
        }
        if let Some(folder) = state {
            prepare(folder).map_err(|error| ServeError::State {
                folder: folder.to_owned(),
                error,
            })?;
        }
        let bundle = Bundle::new()?;
        let mut ports = Vec::new();
        for socket in sockets {
            let local = socket.local();
            bundle.add(socket.as_raw_fd())?;
            let mut holder = Holder::for_everyone(local.ip(), socket.into())?;
            bundle.add(holder.as_raw_fd())?;
            let record = state.map(|folder| Record {
                path: folder.join(local.ip().to_string()),
                due: None,
            });
            if let Some(record) = &record {
                for (what, uid) in read(&record.path) {
                    holder.registry().reserve(what, uid);
                }
            }
            ports.push(Port {
                local,
                holder,
                requests: Requests::default(),
                record,
            });
        }
        Ok(Self {
            ports,
            bundle,
            received: Received::new(),
            kept_until: Some(Instant::now() + KEPT),
        })
    }

    /// Addresses and port that are served.
    pub fn locals(&self) -> impl Iterator<Item = SocketAddr> {
        self.ports.iter().map(|port| port.local)
    }

    /// Serves until the process ends.
    pub fn run(mut self) -> ! {
        loop {
            let due = self
                .ports
                .iter()
                .filter_map(|port| port.record.as_ref()?.due);
            let next = due.chain(self.kept_until).min();
            let limit = next.map(|at| at.saturating_duration_since(Instant::now()));
            let _ = sleep([self.bundle.as_raw_fd()], limit);
            if self.step() {
                continue;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Does what there is to do. `false`: a process waits to be taken in, and there is no descriptor for it.
    fn step(&mut self) -> bool {
        let now = Instant::now();
        let opens = self.kept_until.is_some_and(|end| end <= now);
        if opens {
            self.kept_until = None;
        }
        let ready = self.bundle.ready();
        let mut all = true;
        for port in &mut self.ports {
            if opens {
                port.holder.registry().open_to_all();
            }
            if ready.contains(&port.holder.as_raw_fd()) {
                all &= port.holder.look_after();
            }
            if ready.contains(&port.holder.socket().as_raw_fd()) {
                port.pass_on(&mut self.received);
            }
            port.write(now);
        }
        all
    }
}

impl Port {
    fn pass_on(&mut self, received: &mut Received) {
        let socket = std::sync::Arc::clone(self.holder.socket());
        for _ in 0..READS {
            match socket.receive(received) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(%error, local = %self.local, "cannot read the port");
                    return;
                }
            }
            let from = received.from;
            for (_, datagram) in received.datagrams() {
                if let Some(to) = self.requests.addressee(from.ip(), datagram) {
                    self.holder.deliver(to, from, 0, datagram);
                }
            }
        }
    }

    /// Writes the record if it is due.
    fn write(&mut self, now: Instant) {
        let Some(record) = &mut self.record else {
            return;
        };
        match record.due {
            None if self.holder.registry().has_changed() => record.due = Some(now + WRITTEN),
            Some(due) if due <= now => {
                record.due = None;
                let all = self.holder.registry().changes().unwrap_or_default();
                if let Err(error) = write(&record.path, &all) {
                    tracing::error!(%error, path = %record.path.display(), "the registry is not kept");
                }
            }
            _ => {}
        }
    }
}

/// The sockets that systemd passes on (sd_listen_fds(3)).
fn passed() -> Result<Vec<Socket>, ServeError> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS").unwrap_or(0);
    let mut sockets = Vec::new();
    for index in 0..count.min(64) {
        let socket = Socket::inherit(FIRST_PASSED + index.cast_signed(), BUFFER)?;
        let local = socket.local();
        if local.port() != ROCE_PORT || local.ip().is_unspecified() {
            return Err(ServeError::Passed { local });
        }
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Makes the folder, or makes sure that no other user can write there.
fn prepare(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        done => return done,
    }
    let found = std::fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != own_uid() || found.mode() & 0o022 != 0 {
        let words = format!(
            "it must be a folder of user {} in which no other user can write",
            own_uid()
        );
        return Err(io::Error::other(words));
    }
    Ok(())
}

/// One line each: `slot` or `service`, number, user.
fn write(path: &Path, all: &[(Addressee, u32)]) -> io::Result<()> {
    let mut lines = Vec::new();
    for (what, uid) in all {
        match what {
            Addressee::Slot(slot) => writeln!(lines, "slot {slot} {uid}")?,
            Addressee::Service(id) => writeln!(lines, "service {id} {uid}")?,
        }
    }
    let next = path.with_extension("next");
    File::create(&next)?.write_all(&lines)?;
    std::fs::rename(next, path)
}

fn read(path: &Path) -> Vec<(Addressee, u32)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| {
        let (what, uid) = line.rsplit_once(' ')?;
        let what = match what.split_once(' ')? {
            ("slot", slot) => Addressee::Slot(slot.parse().ok()?),
            ("service", id) => Addressee::Service(id.parse().ok()?),
            _ => return None,
        };
        Some((what, uid.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_had_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        prepare(&state).unwrap();
        prepare(&state).unwrap();
        let path = state.join("127.0.0.1");
        assert_eq!(read(&path), []);
        let all = [
            (Addressee::Slot(5), 0),
            (Addressee::Service(u64::MAX), 65_534),
        ];
        write(&path, &all).unwrap();
        assert_eq!(read(&path), all);
        std::fs::write(
            &path,
            "slot 5\nslot 70000 1\nservice x 1\nother 1 1\n\nslot 6 7\n",
        )
        .unwrap();
        assert_eq!(read(&path), [(Addressee::Slot(6), 7)]);
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.path(), open).unwrap();
        assert!(prepare(folder.path()).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        assert!(prepare(&link).is_err());
    }
}
