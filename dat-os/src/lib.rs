//! What this project requests from the operating system: one small module with a safe interface for each kind of request.
//!
//! | module | system interface |
//! |---|---|
//! | [`sleep`] | futex(2) and ppoll(2): the calls in which a thread sleeps |
//! | [`cancel`] | `pthread_cancel`: which calls are cancellation points |
//! | [`permit`] | a one-token semaphore on a futex |
//! | [`eventfd`], [`poll_set`], [`timerfd`], [`descriptor`] | eventfd(2), epoll(7), timerfd_create(2), fcntl(2) |
//! | [`netdev`] | getifaddrs(3) |
//! | [`mutex`] | a mutex of the standard library, whatever panicked |
//! | [`discard`] | madvise(2): memory that is given back |
//! | [`held_stderr`] | memfd_create(2), dup2(2) |
//! | [`fork`], [`close_on_fork`], [`signals`] | pthread_atfork(3), pthread_sigmask(3), kill(2) |
//! | [`schedule`], [`clock`] | sched_setattr(2), prctl(2), getrusage(2), clock_gettime(2) |
//! | [`quick_clock`], [`processor`] | the processor's counter of ticks, and its kind |
//! | [`spin`] | none: how long to poll before one of those calls |
//!
//! The crate imports `libc` and no crate of this project; every crate may import it. It runs on Linux only, and a port to another
//! system begins here. Start to read at [`cancel`], which explains why the other modules call `syscall` where libc has a function:
//! most libc functions that may block are cancellation points, `syscall` is not.

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "this library is for processors of 64 bits: the layouts of verbs and of the DAT interface are those of LP64, and a handle is an \
     address of a range that is never given back, for which 32 bits have no room"
);

pub mod cancel;
pub mod clock;
pub mod close_on_fork;
pub mod descriptor;
pub mod discard;
pub mod eventfd;
pub mod fork;
pub mod held_stderr;
pub mod mutex;
pub mod netdev;
pub mod permit;
pub mod poll_set;
pub mod processor;
pub mod quick_clock;
pub mod schedule;
pub mod signals;
pub mod sleep;
pub mod spin;
pub mod timerfd;
