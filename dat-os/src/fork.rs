//! Functions that run around fork(2) (pthread_atfork(3)).

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A function that the C library calls around fork.
pub type Handler = unsafe extern "C" fn();

/// Functions for a forked child, at most `N`. Neither method takes a lock or memory.
#[derive(Debug)]
pub struct Children<const N: usize>([AtomicUsize; N]);

impl<const N: usize> Children<N> {
    /// Returns an empty list.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "lists are statics")]
    pub const fn new() -> Self {
        Self([const { AtomicUsize::new(0) }; N])
    }

    /// Adds a function, unless the list has it, or is full.
    ///
    /// # Safety
    /// The function stays mapped. In a forked child it may run twice, and does only what a signal handler may do.
    pub unsafe fn add(&self, child: Handler) {
        let function = child as usize;
        for slot in &self.0 {
            let placed = slot.compare_exchange(0, function, Ordering::AcqRel, Ordering::Acquire);
            if placed.is_ok() || placed == Err(function) {
                return;
            }
        }
    }

    /// Calls the functions.
    ///
    /// # Safety
    /// This process is a forked child, in which fork has not returned yet, or has just returned. Elsewhere the functions would
    /// close descriptors that other threads use.
    pub unsafe fn run(&self) {
        for slot in &self.0 {
            let function = slot.load(Ordering::Acquire);
            if function != 0 {
                // SAFETY: the promise of `add`, which alone stores here, holds in a child; the caller says that this is one.
                unsafe { std::mem::transmute::<usize, Handler>(function)() };
            }
        }
    }
}

/// Descriptors that forked children close, by their numbers. Children keep those with numbers beyond its range. No method takes a lock
/// or memory.
#[derive(Debug)]
pub struct Tracked([AtomicU64; 1024]);

impl Tracked {
    /// Returns an empty set.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "sets are statics")]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 1024])
    }

    /// Returns the word and the bit of a descriptor.
    fn bit_of(&self, fd: RawFd) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        Some((self.0.get(fd / 64)?, 1 << (fd % 64)))
    }

    /// Adds `fd`.
    pub fn insert(&self, fd: RawFd) {
        if let Some((word, bit)) = self.bit_of(fd) {
            word.fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// Removes `fd`. To be called before it is closed, as another descriptor may get the number.
    pub fn remove(&self, fd: RawFd) {
        if let Some((word, bit)) = self.bit_of(fd) {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    /// Returns whether `fd` is in the set.
    #[must_use]
    pub fn contains(&self, fd: RawFd) -> bool {
        let bit = self.bit_of(fd);
        bit.is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
    }

    /// Closes all, and empties the set.
    ///
    /// # Safety
    /// This process is a forked child in which fork has not returned yet, or has just returned, and the owners of the descriptors are
    /// never dropped in it.
    pub unsafe fn close_all(&self) {
        for (number, word) in self.0.iter().enumerate() {
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                let fd = number * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                // SAFETY: this is the child's copy, and the caller says that its owner does not close it.
                unsafe { libc::close(fd as RawFd) };
            }
        }
    }
}

/// The `child` functions of this shared object, which has at most four.
static CHILDREN: Children<8> = Children::new();

/// Runs the `child` functions of this shared object once more. The C library calls only those that were registered before fork began, and
/// a thread may register others while fork waits for it.
///
/// # Safety
/// That of [`Children::run`].
pub unsafe fn run_child_functions() {
    // SAFETY: the caller's promise is the same.
    unsafe { CHILDREN.run() };
}

/// Registers functions for every later fork of this process: `before` runs in the parent before it, `parent` and `child` run after
/// it in the two processes.
///
/// # Safety
/// The functions stay mapped as long as the process may fork, except where the C library drops the registrations of a shared object
/// that it unloads, as glibc does. `child` does only what a signal handler may do: other threads may have held any lock, that of
/// the allocator included, and do not exist in the child. It may run twice.
///
/// # Errors
/// `ENOMEM`.
pub unsafe fn at_fork(
    before: Option<Handler>,
    parent: Option<Handler>,
    child: Option<Handler>,
) -> io::Result<()> {
    // SAFETY: the caller's promise.
    let code = unsafe {
        if let Some(child) = child {
            CHILDREN.add(child);
        }
        libc::pthread_atfork(before, parent, child)
    };
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Forks; returns the status of the child, which is 0 if `holds` returns true there.
///
/// # Safety
/// `holds` does only what a signal handler may do.
#[cfg(test)]
pub(crate) unsafe fn status_of_child(holds: impl FnOnce() -> bool) -> libc::c_int {
    // SAFETY: the caller's promise; the child ends at once.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::_exit(i32::from(!holds()));
        }
        assert!(pid > 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        status
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static CALLS: AtomicU32 = AtomicU32::new(0);
    static LATE: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C" fn before() {
        CALLS.fetch_add(1, Ordering::SeqCst);
    }
    unsafe extern "C" fn parent() {
        CALLS.fetch_add(10, Ordering::SeqCst);
    }
    unsafe extern "C" fn child() {
        CALLS.fetch_add(100, Ordering::SeqCst);
    }
    unsafe extern "C" fn late() {
        LATE.fetch_add(1, Ordering::SeqCst);
    }
    unsafe extern "C" fn registers_late() {
        // SAFETY: stores only.
        let _ = unsafe { at_fork(None, None, Some(late)) };
    }

    #[test]
    fn each_process_runs_its_functions() {
        // SAFETY: the functions store to an atomic, and the child reads it.
        let status = unsafe {
            at_fork(Some(before), Some(parent), Some(child)).unwrap();
            status_of_child(|| CALLS.load(Ordering::SeqCst) == 101)
        };
        assert_eq!(status, 0, "exit status of the child");
        assert_eq!(CALLS.load(Ordering::SeqCst), 11);
    }

    #[test]
    fn a_function_that_came_during_fork_runs_on_request() {
        // SAFETY: as above.
        let status = unsafe {
            at_fork(Some(registers_late), None, None).unwrap();
            status_of_child(|| {
                let before = LATE.load(Ordering::SeqCst);
                run_child_functions();
                (before, LATE.load(Ordering::SeqCst)) == (0, 1)
            })
        };
        assert_eq!(status, 0, "exit status of the child");
    }
}
