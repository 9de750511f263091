//! Reads the user at the other end of a connection, and decides which users are trusted.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

/// Uid of the user whose holder serves all users.
pub const SYSTEM_UID: u32 = 0;

/// Returns the effective user of this process.
#[must_use]
pub fn own_uid() -> u32 {
    // SAFETY: a plain system call that cannot fail.
    unsafe { libc::geteuid() }
}

/// Returns the effective user of the process at the other end of a connected UNIX socket, as of its listen(2) or
/// connect(2). The kernel records it; the process cannot choose it.
///
/// # Errors
/// As `getsockopt`.
pub fn peer_uid(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(peer(socket)?.uid)
}

/// Returns the process at the other end of a connected UNIX socket, as of its listen(2) or connect(2); `None` if this process's PID
/// namespace does not contain it. Its number may be in use by another process once it has ended.
///
/// # Errors
/// As `getsockopt`.
pub fn peer_pid(socket: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    Ok(Some(peer(socket)?.pid).filter(|pid| *pid > 0))
}

fn peer(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    // SAFETY: all-zero is a valid ucred.
    let mut peer: libc::ucred = unsafe { zeroed() };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` has room for `length` bytes.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if done == 0 {
        Ok(peer)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The users with whose processes a process communicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// The own user.
    Own,
    /// The user with this uid.
    User(u32),
    /// All users, which only a holder for all users accepts.
    Everyone,
}

impl Trust {
    /// Returns true if the process at the other end belongs to a trusted user.
    #[must_use]
    pub fn accepts(self, socket: BorrowedFd<'_>) -> bool {
        match peer_uid(socket) {
            Ok(uid) => match self {
                Self::Own => uid == own_uid() && !is_ambiguous(uid),
                Self::User(user) => uid == user && !is_ambiguous(uid),
                Self::Everyone => true,
            },
            Err(error) => {
                tracing::warn!(%error, "cannot read the user of a process that connects (SO_PEERCRED): its connection is refused");
                false
            }
        }
    }
}

/// Returns true for the uid that the kernel reports for each user without a mapping in this user namespace: such users
/// cannot be distinguished. The initial namespace maps all users.
pub(crate) fn is_ambiguous(uid: u32) -> bool {
    static OVERFLOW: OnceLock<Option<u32>> = OnceLock::new();
    let overflow = OVERFLOW.get_or_init(|| {
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        let overflow = overflow.trim().parse().unwrap_or(65_534);
        (!maps_all(&map)).then_some(overflow)
    });
    *overflow == Some(uid)
}

/// Returns true for the map of the initial user namespace.
fn maps_all(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn trust_depends_on_the_user_of_the_peer() {
        let (a, _b) = UnixStream::pair().unwrap();
        let own = own_uid();
        assert_eq!(peer_uid(a.as_fd()).unwrap(), own);
        assert!(Trust::Own.accepts(a.as_fd()) && Trust::Everyone.accepts(a.as_fd()));
        assert!(Trust::User(own).accepts(a.as_fd()));
        assert!(!Trust::User(own + 1).accepts(a.as_fd()));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(!Trust::Everyone.accepts(file.as_fd()));
    }

    #[test]
    fn the_initial_namespace_is_recognized() {
        assert!(maps_all("         0          0 4294967295\n"));
        for map in ["", "0 1000 1\n", "0 0 65536\n", "0 0 1\n1 1 4294967294\n"] {
            assert!(!maps_all(map), "{map:?}");
        }
    }
}
