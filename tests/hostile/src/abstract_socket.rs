//! Connects to names of the abstract UNIX namespace.

use std::os::fd::{FromRawFd, OwnedFd};

/// Connects to `name` without waiting.
///
/// # Errors
/// As `connect`.
///
/// # Panics
/// When this process can open no socket.
pub fn connect(name: &str, kind: libc::c_int) -> std::io::Result<OwnedFd> {
    // SAFETY: plain system calls on a new descriptor and an address of the length given.
    unsafe {
        let mut at: libc::sockaddr_un = std::mem::zeroed();
        at.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in at.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = libc::socket(libc::AF_UNIX, kind, 0);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        let owned = OwnedFd::from_raw_fd(fd);
        if libc::connect(fd, (&raw const at).cast(), length as libc::socklen_t) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(owned)
    }
}

/// Returns the names in use that begin with `begin`, as every user can read them.
///
/// # Panics
/// When the list cannot be read.
#[must_use]
pub fn listening_names(begin: &str) -> Vec<String> {
    let list = std::fs::read("/proc/net/unix").expect("the list of names");
    let list = String::from_utf8_lossy(&list);
    let names = list.lines().filter_map(|line| line.rsplit_once('@'));
    let mut names: Vec<String> = names
        .map(|(_, name)| name.to_owned())
        .filter(|name| name.starts_with(begin))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}
