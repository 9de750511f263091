//! Closes sockets into which another user may have sent descriptors, and descriptors of peers that are not what they should be, without waiting.
//!
//! The close of a UNIX socket closes the descriptors that wait in it. One of them may be a TCP socket with `SO_LINGER` and
//! unsent data. The thread that makes the last close of such a socket waits for as long as the other user chose.
//!
//! Since Linux 6.16 sockets can refuse descriptors (`SO_PASSRIGHTS`, see `unix_socket`), and a plain close does. On
//! older kernels a short-lived thread makes the last close when it exits: the kernel does not linger in a thread that
//! exits.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::sync_channel;

use crate::fork::CloseOnFork;
use crate::unix_socket;

/// A listening socket. Any user can connect to it and send descriptors.
#[derive(Debug)]
pub(crate) struct ListeningSocket(Option<CloseOnFork<OwnedFd>>);

impl ListeningSocket {
    pub(crate) fn new(socket: CloseOnFork<OwnedFd>) -> Self {
        Self(Some(socket))
    }
}

impl std::ops::Deref for ListeningSocket {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        self.0.as_ref().expect("only dropping takes it")
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        discard(self.0.take().into_iter().collect());
    }
}

/// A connection to a process of the own user, which may have sent descriptors.
#[derive(Debug)]
pub struct Connection(Option<CloseOnFork<OwnedFd>>);

impl From<CloseOnFork<OwnedFd>> for Connection {
    fn from(connection: CloseOnFork<OwnedFd>) -> Self {
        Self(Some(connection))
    }
}

impl std::ops::Deref for Connection {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        self.0.as_ref().expect("only dropping takes it")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let connection = self.0.take();
        let waits = |connection: &CloseOnFork<OwnedFd>| unix_socket::end(connection.as_fd());
        if connection.as_ref().is_some_and(waits) {
            close_elsewhere(connection.into_iter().collect());
        }
    }
}

/// Closes `sockets`.
pub(crate) fn discard(sockets: Vec<CloseOnFork<OwnedFd>>) {
    if !unix_socket::refuses_descriptors() {
        close_elsewhere(sockets);
    }
}

#[cfg(test)]
thread_local! {
    static THREADS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns how many threads this thread has started to close descriptors.
#[cfg(test)]
pub(crate) fn threads() -> usize {
    THREADS.get()
}

/// Drops the owners of `descriptors`, which another thread closes last. For those that a peer has sent, and that are not what they should be.
pub fn close_elsewhere<T>(descriptors: Vec<T>) {
    if descriptors.is_empty() {
        return;
    }
    #[cfg(test)]
    THREADS.set(THREADS.get() + 1);
    let (copied, is_copied) = sync_channel(1);
    let (closed, is_closed) = sync_channel::<()>(1);
    let builder = std::thread::Builder::new().name("dat-discard".into());
    let thread = dat_os::signals::spawn(builder, move || {
        let _ = copied.send(copy_descriptor_table());
        // Wait until the caller has dropped its descriptors; this thread's exit is then the last close.
        let _ = is_closed.recv();
    });
    if let Err(error) = &thread {
        tracing::debug!(%error, "no thread to close a descriptor of another process");
    } else if is_copied.recv() != Ok(true) {
        tracing::debug!(
            "no descriptor table of its own for a thread that closes a descriptor of another process"
        );
    }
    drop(descriptors);
    drop(closed);
}

/// Gives this thread a copy of the descriptor table of the process.
fn copy_descriptor_table() -> bool {
    // SAFETY: plain system calls that change the calling thread's table only. Containers may forbid unshare(2); close_range(2)
    // of no descriptor does the same since Linux 5.9.
    unsafe {
        let none = libc::c_uint::MAX;
        libc::syscall(libc::SYS_close_range, none, none, libc::CLOSE_RANGE_UNSHARE) == 0
            || libc::unshare(libc::CLONE_FILES) == 0
    }
}
