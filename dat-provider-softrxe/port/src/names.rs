//! Names of the abstract UNIX namespace under which processes find each other.
//!
//! A name is only a hint: any user of the network namespace can take any name, and the user at the other end decides.
//! An attacker can guess and take the well-known name of a service in advance. Then its owner takes a random name that
//! begins with the well-known one. A process that finds an untrusted user or no listener at the well-known name searches the
//! kernel's list for random names.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

use crate::credentials::{Trust, own_uid};
use crate::discard::{ListeningSocket, discard};
use crate::fork::{CloseOnFork, NAMES};
use crate::unix_socket::{self, Kind};

/// The kernel's list of names.
const LIST: &str = "/proc/net/unix";
/// Maximum number of random names that are tried. Each name costs an attacker a descriptor.
const MAX_TRIED: usize = 4096;
/// Attempts at a name whose program does not listen, and the pause after each.
const ATTEMPTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(1);

/// Returns the name of `role` at `ip` for processes of the own user.
#[must_use]
pub fn user_name(ip: IpAddr, role: &str) -> String {
    format!("{NAMES}{}/{ip}/{role}", own_uid())
}

/// Returns the name of the holder of `ip` for all users.
#[must_use]
pub fn system_name(ip: IpAddr) -> String {
    format!("{NAMES}system/{ip}/port")
}

/// Returns whether a process of the own user accepts connections under `prefix` and a number; false if the kernel does not show the names.
pub(crate) fn own_user_listens(kind: Kind, prefix: &str) -> bool {
    let is_number = |ending: &String| ending.parse::<u16>().is_ok();
    let numbers: BTreeSet<String> = endings(prefix).into_iter().filter(is_number).collect();
    let listens =
        |number: &String| connect_exact(kind, &format!("{prefix}{number}"), Trust::Own).is_ok();
    numbers.iter().take(MAX_TRIED).any(listens)
}

/// Returns the name that the engine in `slot` of `ip` has as long as it lives.
pub(crate) fn slot_name(ip: IpAddr, slot: &str) -> String {
    user_name(ip, &format!("life/{slot}"))
}

/// Returns the name that a process has as long as it has a service of `ip`; `id` is [`service_word`] of that.
pub(crate) fn service_name(ip: IpAddr, id: &str) -> String {
    user_name(ip, &format!("sid/{id}"))
}

/// Returns the word for a service in its name.
pub(crate) fn service_word(id: u64) -> String {
    format!("{id:016x}")
}

/// Returns what follows `prefix` in the names of the network namespace that begin with it; nothing if the kernel does not show them.
pub(crate) fn endings(prefix: &str) -> Vec<String> {
    let Ok(list) = std::fs::File::open(LIST) else {
        return Vec::new();
    };
    // The last word of a line; `@` stands for the zero byte of an abstract name.
    let wanted = format!(" @{prefix}");
    let lines = BufReader::new(list).split(b'\n').map_while(Result::ok);
    lines
        .filter_map(|line| {
            let line = String::from_utf8_lossy(&line);
            let (_, ending) = line.split_once(&wanted)?;
            Some(ending.to_owned())
        })
        .collect()
}

fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

/// Listens under `name`, or under a random name that begins with it if `name` is taken.
///
/// # Errors
/// As `socket`, `bind`, `listen`.
pub(crate) fn listen(kind: Kind, name: &str) -> io::Result<ListeningSocket> {
    match listen_exact(kind, name) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {}
        other => return other,
    }
    let mut random = [0_u8; 16];
    getrandom::fill(&mut random)?;
    let random = u128::from_ne_bytes(random);
    listen_exact(kind, &format!("{name}/{random:032x}"))
}

/// Listens under `name` and no other.
///
/// # Errors
/// `AddrInUse` when it is taken; else as `socket`, `bind`, `listen`.
pub(crate) fn listen_exact(kind: Kind, name: &str) -> io::Result<ListeningSocket> {
    let address = address(name)?;
    CloseOnFork::new(|| unix_socket::listen(kind, &address)).map(ListeningSocket::new)
}

/// Takes `name` as a lock among the processes of the own user. `None` if another user's program has it: then the name
/// decides nothing.
///
/// # Errors
/// `AddrInUse` when a process of the own user has it; else as `socket`, `bind`, `listen`.
pub(crate) fn claim_name(name: &str) -> io::Result<Option<ListeningSocket>> {
    for _ in 0..ATTEMPTS {
        match listen_exact(Kind::Stream, name) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            other => return other.map(Some),
        }
        // The kernel shows the user of a listener only. A process of the own user listens shortly after it took the
        // name.
        match connect_exact(Kind::Stream, name, Trust::Own) {
            Ok(_) => return Err(ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                std::thread::sleep(PAUSE);
            }
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

/// Connects to `name`, to a process of a trusted user.
///
/// # Errors
/// `PermissionDenied` when an untrusted user has the name; `ConnectionRefused` when no process listens there;
/// `WouldBlock` when the listener's queue is full.
pub(crate) fn connect_exact(
    kind: Kind,
    name: &str,
    trust: Trust,
) -> io::Result<CloseOnFork<OwnedFd>> {
    let address = address(name)?;
    let peer = CloseOnFork::new(|| unix_socket::connect(kind, &address))?;
    if trust.accepts(peer.as_fd()) {
        Ok(peer)
    } else {
        discard(vec![peer]);
        Err(ErrorKind::PermissionDenied.into())
    }
}

/// Connects to `name`, or to a random name that begins with it, to a process of a trusted user.
///
/// # Errors
/// As [`connect_exact`], for the well-known name.
pub(crate) fn connect(kind: Kind, name: &str, trust: Trust) -> io::Result<CloseOnFork<OwnedFd>> {
    let first_error = match connect_exact(kind, name, trust) {
        Err(error) => error,
        found => return found,
    };
    // A name without a listener, or one with a full queue, may be an attacker's.
    for other in random_names(name)? {
        if let Ok(found) = connect_exact(kind, &other, trust) {
            return Ok(found);
        }
    }
    Err(first_error)
}

/// Returns the random names that begin with `name`, in order from a random one on.
fn random_names(name: &str) -> io::Result<Vec<String>> {
    let mut found = match std::fs::File::open(LIST) {
        Ok(file) => parse_list(BufReader::new(file), name)?,
        Err(error) => {
            tracing::debug!(%error, "{LIST} is not readable: only well-known names are found");
            Vec::new()
        }
    };
    if !found.is_empty() {
        let first = getrandom::u64()? as usize % found.len();
        found.rotate_left(first);
    }
    found.truncate(MAX_TRIED);
    Ok(found)
}

/// Returns the random names that begin with `name` in a list in the format of /proc/net/unix, sorted, without
/// duplicates. Any user can put any bytes into that list, line breaks too.
///
/// # Errors
/// As reading the list.
pub fn parse_list(list: impl BufRead, name: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for line in list.split(b'\n') {
        // Paths of other programs need not be text.
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let path = line
            .split(' ')
            .next_back()
            .and_then(|p| p.strip_prefix('@'));
        let random = path.and_then(|path| path.strip_prefix(name)?.strip_prefix('/'));
        let is_random =
            |word: &str| word.len() == 32 && word.bytes().all(|b| b.is_ascii_hexdigit());
        if let (Some(path), true) = (path, random.is_some_and(is_random)) {
            found.push(path.to_owned());
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_name_is_replaced_by_a_random_one() {
        let ip: IpAddr = "127.77.6.1".parse().unwrap();
        let name = user_name(ip, "port");
        let refused = connect(Kind::Packets, &name, Trust::Own).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        // A squatter that does not listen.
        let squatter = unix_socket::bind(Kind::Packets, &address(&name).unwrap()).unwrap();
        let listener = listen(Kind::Packets, &name).unwrap();
        let near = connect(Kind::Packets, &name, Trust::Own).unwrap();
        drop(unix_socket::accept(listener.as_fd()).unwrap());
        drop((near, squatter, listener));
        let _listener = listen(Kind::Packets, &name).unwrap();
        connect_exact(Kind::Packets, &name, Trust::Own).unwrap();
        let denied = connect(Kind::Packets, &name, Trust::User(own_uid() + 1)).unwrap_err();
        assert_eq!(denied.kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_user_takes_a_lock_once_and_a_squatter_decides_nothing() {
        let ip: IpAddr = "127.77.6.2".parse().unwrap();
        let name = user_name(ip, "sid/1");
        let held = claim_name(&name).unwrap();
        assert!(held.is_some());
        assert_eq!(claim_name(&name).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(held);
        // A squatter that does not listen shows no user.
        let squatter = unix_socket::bind(Kind::Stream, &address(&name).unwrap()).unwrap();
        assert!(claim_name(&name).unwrap().is_none());
        drop(squatter);
        assert!(claim_name(&name).unwrap().is_some());
    }

    #[test]
    fn the_list_is_read_for_random_names_of_the_thing() {
        let random = "00112233445566778899aabbccddeeff";
        let list = format!(
            "Num       RefCount Protocol Flags    Type St Inode Path\n\
             ffff: 00000002 00000000 00010000 0005 01 7 @a/b/{random}\n\
             ffff: 00000002 00000000 00010000 0005 01 7 @a/b/{random}\n\
             ffff: 00000003 00000000 00000000 0001 03 8\n\
             ffff: 00000002 00000000 00010000 0005 01 7 @a/bc/{random}\n\
             ffff: 00000002 00000000 00010000 0005 01 7 /a/b/{random}\n\
             ffff: 00000002 00000000 00010000 0005 01 7 @a/b/{random}0\n\
             ffff: 00000002 00000000 00010000 0005 01 7 @a/b\n"
        );
        let found = parse_list(list.as_bytes(), "a/b").unwrap();
        assert_eq!(found, [format!("a/b/{random}")]);
        assert!(
            parse_list(&b"@\xff\xfe @a/b/\xff\n"[..], "a/b")
                .unwrap()
                .is_empty()
        );
    }
}
