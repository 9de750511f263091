//! Descriptors that forked children close.
//!
//! While a child has a copy of a socket, its port and its name stay taken, and other processes do not notice the death of the parent. So
//! the child closes them before fork(2) returns in it. One gap is left: a socket that another thread has made and not marked yet, which
//! takes it a system call, stays with the child.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::descriptor::above_streams;
use crate::fork::{Tracked, at_fork};

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

/// Time limit for receives that marks sockets, in seconds. It has no effect: their receives do not wait.
const MARK: libc::time_t = 4791;

/// Number of descriptors that a child scans.
const MAX_SCANNED: RawFd = 4096;

/// Tells which descriptors are to be closed although they are not tracked.
///
/// # Safety
/// `is_one` does only what a signal handler may do, and is true for no descriptor of another program.
pub unsafe trait Strays: 'static {
    /// Returns true if `fd` is one of them. A socket that is [marked](mark) is one in any case.
    fn is_one(fd: RawFd) -> bool;
}

/// No descriptors but marked sockets.
#[derive(Debug)]
pub struct MarkedOnly;

// SAFETY: it does nothing.
unsafe impl Strays for MarkedOnly {
    fn is_one(_fd: RawFd) -> bool {
        false
    }
}

/// The functions of all [`Strays`]. One may have several addresses.
static STRAYS: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

fn add_strays(is_one: fn(RawFd) -> bool) {
    let function = is_one as usize;
    for slot in &STRAYS {
        let placed = slot.compare_exchange(0, function, Ordering::AcqRel, Ordering::Acquire);
        if placed.is_ok() || placed == Err(function) {
            return;
        }
    }
}

fn is_stray(fd: RawFd) -> bool {
    is_marked(fd)
        || STRAYS.iter().any(|slot| {
            let function = slot.load(Ordering::Acquire);
            // SAFETY: only `add_strays` stores there.
            function != 0
                && unsafe { std::mem::transmute::<usize, fn(RawFd) -> bool>(function)(fd) }
        })
}

/// Owns a descriptor that forked children close.
#[derive(Debug)]
pub struct CloseOnFork<T: AsRawFd, S: Strays = MarkedOnly>(ManuallyDrop<T>, PhantomData<fn() -> S>);

impl<T: AsRawFd + From<OwnedFd> + Into<OwnedFd>, S: Strays> CloseOnFork<T, S> {
    /// Tracks the descriptor that `open` returns, under a number above those of the standard streams. A socket is marked then.
    ///
    /// # Errors
    /// As `open`; `EMFILE`; `ENOMEM` if the process cannot have functions around fork.
    pub fn new(open: impl FnOnce() -> io::Result<T>) -> io::Result<Self> {
        watch()?;
        add_strays(S::is_one);
        let _change = Change::begin();
        let opened = open().and_then(|owner| above_streams(owner.into()).map(T::from));
        if let Ok(owner) = &opened {
            mark(owner.as_raw_fd());
            TRACKED.insert(owner.as_raw_fd());
        }
        Ok(Self(ManuallyDrop::new(opened?), PhantomData))
    }
}

impl<T: AsRawFd, S: Strays> Deref for CloseOnFork<T, S> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsRawFd, S: Strays> Drop for CloseOnFork<T, S> {
    fn drop(&mut self) {
        let _change = Change::begin();
        TRACKED.remove(self.as_raw_fd());
        // SAFETY: dropped once, here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

/// Has children close `fd`, until [`untrack`]: for a descriptor that a library owns.
///
/// # Errors
/// `ENOMEM` if the process cannot have functions around fork.
pub fn track(fd: RawFd) -> io::Result<()> {
    watch()?;
    TRACKED.insert(fd);
    Ok(())
}

/// Lets children keep `fd`, which is about to be closed.
pub fn untrack(fd: RawFd) {
    TRACKED.remove(fd);
}

/// Calls `act`, which creates descriptors and has them tracked. A child that is forked meanwhile scans for
/// descriptors that are not.
pub fn while_changing_descriptors<R>(act: impl FnOnce() -> R) -> R {
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

/// Marks a socket as one that children close. Other descriptors have no such option. A socket that is connected before it is tracked is to
/// be marked when it is made. Connections that a marked socket accepts are marked, too.
pub fn mark(fd: RawFd) {
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

/// Registers the functions around fork. Two threads may both do it the first time; each function may run twice.
fn watch() -> io::Result<()> {
    static WATCHES: AtomicBool = AtomicBool::new(false);
    if !WATCHES.load(Ordering::Acquire) {
        // SAFETY: the functions stay mapped, because providers are not unmapped; they allocate nothing and take no lock.
        unsafe { at_fork(Some(before), None, Some(close_all)) }?;
        WATCHES.store(true, Ordering::Release);
    }
    Ok(())
}

/// Runs before fork(2).
extern "C" fn before() {
    BEFORE_FORK.set(CHANGES.load(Ordering::SeqCst));
}

/// Runs in the child before fork(2) returns. Takes no lock and no memory.
extern "C" fn close_all() {
    // SAFETY: this is a child in fork. The descriptors' owners are objects of the parent, which are never dropped in the child: its handles
    // are invalid there. A thread of theirs exists there only if the consumer's agent forked in it, and such a child must not return
    // from the agent (docs/ia_params.md).
    unsafe { TRACKED.close_all() };
    let changed = CHANGES.load(Ordering::SeqCst) != BEFORE_FORK.get();
    if CHANGING.swap(0, Ordering::SeqCst) != 0 || changed {
        // It may run once more.
        BEFORE_FORK.set(CHANGES.load(Ordering::SeqCst));
        for fd in 0..MAX_SCANNED {
            if is_stray(fd) {
                // SAFETY: as above; the thread that was about to track or close it does not exist in the child.
                unsafe { libc::close(fd) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::unix::net::UnixDatagram;

    use super::*;

    type Owner<T> = CloseOnFork<T>;

    #[test]
    fn a_descriptor_is_tracked_as_long_as_it_is_open() {
        let file = Owner::new(|| File::open("/dev/null")).unwrap();
        let fd = file.as_raw_fd();
        assert!(TRACKED.contains(fd));
        drop(file);
        assert!(!TRACKED.contains(fd));
        assert!(Owner::new(|| File::open("/no/such")).is_err());
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
    fn accepted_connections_are_marked() {
        let listener = Owner::new(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(is_marked(accepted.as_raw_fd()));
        assert!(!is_marked(caller.as_raw_fd()));
    }
}
