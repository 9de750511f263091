//! Closes an engine's descriptors in forked children.
//!
//! While a child has a copy of a socket, the port and the names stay taken, and other processes do not notice the death
//! of the parent. So the child closes them before fork(2) returns in it.

use std::cell::Cell;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dat_os::descriptor::above_streams;
use dat_os::fork::Tracked;

use super::address::from_storage;
use super::lock_memory::is_memory;
use crate::ROCE_PORT;

/// Prefix of the names of all engines in the abstract namespace.
pub const NAMES: &str = "dat-rs/roce/";

static TRACKED: Tracked = Tracked::new();

/// Number of threads that are between opening and tracking a descriptor, or between untracking and closing it. A child
/// that is forked then scans for untracked descriptors.
static CHANGING: AtomicU32 = AtomicU32::new(0);
/// Number of times that a thread began or ended such a change. fork copies the descriptors before the memory: a child scans as well if
/// this number is not that of the beginning of the fork.
static CHANGES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// [`CHANGES`] when this thread began to fork.
    static BEFORE_FORK: Cell<u64> = const { Cell::new(0) };
}

/// Time limit for receives that marks the sockets of engines, in seconds. It has no effect: their receives do not wait.
const MARK: libc::time_t = 4791;

/// Number of descriptors that a child scans.
const MAX_SCANNED: RawFd = 4096;

/// Owns a descriptor that forked children close.
#[derive(Debug)]
pub struct CloseOnFork<T: AsRawFd>(ManuallyDrop<T>);

impl<T: AsRawFd + From<OwnedFd> + Into<OwnedFd>> CloseOnFork<T> {
    /// Tracks the descriptor that `open` returns, under a number above those of the standard streams.
    ///
    /// # Errors
    /// As `open`; `EMFILE`.
    pub fn new(open: impl FnOnce() -> io::Result<T>) -> io::Result<Self> {
        watch();
        let _change = Change::begin();
        let opened = open().and_then(|owner| above_streams(owner.into()).map(T::from));
        if let Ok(owner) = &opened {
            mark(owner.as_raw_fd());
            TRACKED.insert(owner.as_raw_fd());
        }
        Ok(Self(ManuallyDrop::new(opened?)))
    }
}

impl<T: AsRawFd> Deref for CloseOnFork<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsRawFd> Drop for CloseOnFork<T> {
    fn drop(&mut self) {
        let _change = Change::begin();
        TRACKED.remove(self.as_raw_fd());
        // SAFETY: dropped once, here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

/// Calls `act`, which creates descriptors and has them tracked. A child that is forked meanwhile scans for all
/// descriptors of engines.
pub fn while_changing_descriptors<R>(act: impl FnOnce() -> R) -> R {
    watch();
    let _change = Change::begin();
    act()
}

/// A change of descriptors and their bits; dropping it ends the change.
struct Change(());

impl Change {
    fn begin() -> Self {
        CHANGING.fetch_add(1, Ordering::SeqCst);
        CHANGES.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        CHANGES.fetch_add(1, Ordering::SeqCst);
        CHANGING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Marks a socket as one of an engine. Other descriptors have no such option. A socket that is connected before it is tracked is to be
/// marked when it is made.
pub(crate) fn mark(fd: RawFd) {
    let limit = libc::timeval {
        tv_sec: MARK,
        tv_usec: 0,
    };
    let length = size_of_val(&limit) as libc::socklen_t;
    // SAFETY: `limit` has `length` bytes.
    let _ = unsafe {
        let value = (&raw const limit).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, value, length)
    };
}

fn is_marked(fd: RawFd) -> bool {
    let mut limit = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let mut length = size_of_val(&limit) as libc::socklen_t;
    // SAFETY: `limit` has room for `length` bytes.
    let code = unsafe {
        let value = (&raw mut limit).cast();
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            value,
            &raw mut length,
        )
    };
    code == 0 && limit.tv_sec == MARK && limit.tv_usec == 0
}

fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the function stays mapped, because providers are not unmapped; it allocates nothing and takes no lock.
        let watched = unsafe { dat_os::fork::at_fork(Some(before), None, Some(close_all)) };
        if let Err(error) = watched {
            tracing::warn!(%error, "pthread_atfork failed: forked children keep sockets open, which hides the end of this process from its peers");
        }
    });
}

/// Runs before fork(2).
extern "C" fn before() {
    BEFORE_FORK.set(CHANGES.load(Ordering::SeqCst));
}

/// Runs in the child before fork(2) returns. Takes no lock and no memory.
extern "C" fn close_all() {
    // SAFETY: this is a child in fork. The descriptors' owner is the parent's engine, which is never dropped in the child: its handles are
    // invalid there. Its thread exists there only if the consumer's agent forked in it, and such a child must not return from the
    // agent (docs/ia_params.md).
    unsafe { TRACKED.close_all() };
    let changed = CHANGES.load(Ordering::SeqCst) != BEFORE_FORK.get();
    if CHANGING.swap(0, Ordering::SeqCst) != 0 || changed {
        // It may run once more.
        BEFORE_FORK.set(CHANGES.load(Ordering::SeqCst));
        for fd in 0..MAX_SCANNED {
            if belongs_to_engine(fd) {
                // SAFETY: as above; the thread that was about to track or close it does not exist in the child.
                unsafe { libc::close(fd) };
            }
        }
    }
}

/// Returns true for a socket that is marked, bound to UDP port 4791 or to a name of an engine, and for the lock of a shared socket.
fn belongs_to_engine(fd: RawFd) -> bool {
    if is_memory(fd) || is_marked(fd) {
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
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};

    use super::*;

    #[test]
    fn a_descriptor_is_tracked_as_long_as_it_is_open() {
        let file = CloseOnFork::new(|| File::open("/dev/null")).unwrap();
        let fd = file.as_raw_fd();
        assert!(TRACKED.contains(fd));
        drop(file);
        assert!(!TRACKED.contains(fd));
        assert!(CloseOnFork::new(|| File::open("/no/such")).is_err());
    }

    /// What fork leaves of a thread that closes a socket after the child got its descriptors, and before it got its memory.
    #[test]
    fn a_child_closes_what_was_untracked_during_fork() {
        let socket = UnixDatagram::unbound().unwrap();
        mark(socket.as_raw_fd());
        before();
        // SAFETY: the child does what a signal handler may do, and ends.
        let status = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                drop(Change::begin());
                close_all();
                let closed = libc::fcntl(socket.as_raw_fd(), libc::F_GETFD) < 0;
                libc::_exit(i32::from(!closed));
            }
            assert!(pid > 0);
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            status
        };
        assert_eq!(status, 0, "exit status of the child");
    }

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
        let marked = CloseOnFork::new(UnixDatagram::unbound).unwrap();
        assert!(belongs_to_engine(marked.as_raw_fd()));
        for fd in [other.as_raw_fd(), unnamed.as_raw_fd(), file.as_raw_fd(), -1] {
            assert!(!belongs_to_engine(fd), "{fd}");
        }
    }
}
