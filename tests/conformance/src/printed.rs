//! What a call prints, kept out of the report.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use crate::verdict::{Check, broken};

/// Standard output and standard error.
const STREAMS: [i32; 2] = [libc::STDOUT_FILENO, libc::STDERR_FILENO];

/// Writes out what the C library holds back.
fn flush() {
    // It fails only where nothing can be written to.
    let _ = io::stdout().flush();
    // SAFETY: NULL means all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Returns a new descriptor of what `fd` writes to.
fn copy(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: a plain call.
    let copied = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copied < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it.
    Ok(unsafe { OwnedFd::from_raw_fd(copied) })
}

/// Lets both streams write to `files`.
fn redirect(files: [i32; 2]) {
    for (stream, file) in STREAMS.into_iter().zip(files) {
        // SAFETY: plain calls with open descriptors.
        unsafe { libc::dup2(file, stream) };
    }
}

/// Makes a call; returns its result and what it printed to standard output and standard error. What other threads print meanwhile is
/// part of that.
pub(crate) fn printed<T>(call: impl FnOnce() -> T) -> Check<(T, String)> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: a C string, and no other pointer.
    let file = unsafe { libc::memfd_create(c"printed".as_ptr(), libc::MFD_CLOEXEC) };
    let (Ok(out), Ok(err), 0..) = (copy(STREAMS[0]), copy(STREAMS[1]), file) else {
        return broken("there is no descriptor to keep what is printed");
    };
    // SAFETY: the kernel has just made it.
    let mut file = unsafe { File::from_raw_fd(file) };
    flush();
    redirect([file.as_raw_fd(); 2]);
    let result = call();
    flush();
    redirect([out.as_raw_fd(), err.as_raw_fd()]);
    let mut text = Vec::new();
    if let Err(error) = file.rewind().and_then(|()| file.read_to_end(&mut text)) {
        return broken(format!("what was printed cannot be read: {error}"));
    }
    Ok((result, String::from_utf8_lossy(&text).into_owned()))
}
