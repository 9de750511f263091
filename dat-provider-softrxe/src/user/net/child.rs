//! What a forked child must not keep open: as long as it has a copy of a socket, the port and the names are taken and the process does
//! not look dead to others, though it may be gone. So the child closes them before fork(2) returns in it.

use std::os::fd::RawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// One bit a descriptor; those beyond are kept by children, as without this.
static OPEN: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

const fn place(fd: RawFd) -> (usize, u64) {
    (fd as usize / 64, 1 << (fd as usize % 64))
}

/// Has children close a descriptor, until it is dropped: to be declared before what owns the descriptor, so that it goes first.
#[derive(Debug)]
pub(crate) struct NotInherited(RawFd);

impl NotInherited {
    pub(crate) fn new(fd: RawFd) -> Self {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| {
            // SAFETY: the function is of the type that pthread_atfork wants and stays: providers are not unmapped.
            let code = unsafe { libc::pthread_atfork(None, None, Some(close_all)) };
            if code != 0 {
                tracing::warn!(code, "pthread_atfork: forked children keep sockets open");
            }
        });
        let (word, bit) = place(fd);
        if let Some(word) = OPEN.get(word) {
            word.fetch_or(bit, Ordering::AcqRel);
        }
        Self(fd)
    }
}

impl Drop for NotInherited {
    fn drop(&mut self) {
        let (word, bit) = place(self.0);
        if let Some(word) = OPEN.get(word) {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
    }
}

/// In the child, before fork(2) returns: no locks and no memory.
extern "C" fn close_all() {
    for (number, word) in OPEN.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::AcqRel);
        while bits != 0 {
            let fd = number * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            // SAFETY: the child's copy of a descriptor whose owner, the parent's engine, nobody drops in the child: its handles
            // are dead there and its thread is not there.
            unsafe { libc::close(fd as RawFd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn is_noted(fd: RawFd) -> bool {
        let (word, bit) = place(fd);
        OPEN[word].load(Ordering::Acquire) & bit != 0
    }

    #[test]
    fn a_descriptor_is_noted_as_long_as_it_is_wanted() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let noted = NotInherited::new(file.as_raw_fd());
        assert!(is_noted(file.as_raw_fd()));
        drop(noted);
        assert!(!is_noted(file.as_raw_fd()));
        // Beyond the table.
        drop(NotInherited::new(RawFd::MAX));
    }
}
