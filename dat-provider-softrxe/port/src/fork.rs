//! Closes an engine's descriptors in forked children.

use std::os::fd::RawFd;

use dat_os::close_on_fork::Strays;
pub(crate) use dat_os::close_on_fork::{mark, while_changing_descriptors};

use super::address::from_storage;
use super::lock_memory::is_memory;
use crate::ROCE_PORT;

/// Prefix of the names of all engines in the abstract namespace.
pub const NAMES: &str = "dat-rs/roce/";

/// Owns a descriptor that forked children close.
pub type CloseOnFork<T> = dat_os::close_on_fork::CloseOnFork<T, OfEngines>;

/// Descriptors of engines.
#[derive(Debug)]
pub struct OfEngines;

// SAFETY: plain system calls; no other program has such descriptors.
unsafe impl Strays for OfEngines {
    fn is_one(fd: RawFd) -> bool {
        belongs_to_engine(fd)
    }
}

/// Returns true for a socket that is bound to UDP port 4791 or to a name of an engine, and for the lock of a shared socket.
fn belongs_to_engine(fd: RawFd) -> bool {
    if is_memory(fd) {
        return true;
    }
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: `address` has room for `length` bytes.
    if unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut length) } != 0 {
        return false;
    }
    if libc::c_int::from(address.ss_family) == libc::AF_UNIX {
        // SAFETY: the kernel wrote an address of this family.
        let path = unsafe { &(*(&raw const address).cast::<libc::sockaddr_un>()).sun_path };
        let name = path[1..].iter().map(|c| *c as u8);
        return path[0] == 0 && name.take(NAMES.len()).eq(NAMES.bytes());
    }
    from_storage(&address).is_some_and(|at| at.port() == ROCE_PORT)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};

    use super::*;

    #[test]
    fn a_socket_of_an_engine_is_recognized_by_its_address() {
        // Another program may run this test at the same time.
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        let ip = Ipv4Addr::new(127, 78, high, low.max(1));
        let name = UnixAddr::from_abstract_name(format!("{NAMES}{ip}/child")).unwrap();
        let ours = UnixDatagram::bind_addr(&name).unwrap();
        assert!(belongs_to_engine(ours.as_raw_fd()));
        let roce = UdpSocket::bind((ip, ROCE_PORT)).unwrap();
        assert!(belongs_to_engine(roce.as_raw_fd()));
        let other = UdpSocket::bind((ip, 0)).unwrap();
        let unnamed = UnixDatagram::unbound().unwrap();
        let file = File::open("/dev/null").unwrap();
        for fd in [other.as_raw_fd(), unnamed.as_raw_fd(), file.as_raw_fd(), -1] {
            assert!(!belongs_to_engine(fd), "{fd}");
        }
    }
}
