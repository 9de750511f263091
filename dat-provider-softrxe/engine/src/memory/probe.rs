//! Whether memory can be read and written, found out without a signal and without changing it: other threads store to it meanwhile.

use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

/// Makes the pages of `[pages.start, pages.end)`, whole pages of `page` bytes, present: readable, and writable if `writable`.
///
/// # Errors
/// `ENOMEM` where nothing is mapped, `EINVAL` for missing rights, `EFAULT` where an access would be a signal (beyond the end of a file).
pub(super) fn present(pages: Range<usize>, page: usize, writable: bool) -> io::Result<()> {
    if knows_populate(page) {
        populate(&pages, writable)
    } else {
        one_by_one(pages, page, writable)
    }
}

/// `MADV_POPULATE_*` (Linux 5.14).
fn populate(pages: &Range<usize>, writable: bool) -> io::Result<()> {
    let advice = if writable {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    loop {
        // SAFETY: the advice faults pages in and changes no contents; where that is not possible it fails.
        let code = unsafe { libc::madvise(pages.start as *mut _, pages.len(), advice) };
        if code == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Whether the kernel knows that advice, asked once of a page of our own: of other memory its answer is the same as for missing rights.
fn knows_populate(page: usize) -> bool {
    static KNOWS: OnceLock<bool> = OnceLock::new();
    *KNOWS.get_or_init(|| {
        // SAFETY: a new private mapping, used by nothing else, which is unmapped again.
        unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(ptr::null_mut(), page, rights, flags, -1, 0);
            if at == libc::MAP_FAILED {
                return false;
            }
            let knows = populate(&(at as usize..at as usize + page), true).is_ok();
            libc::munmap(at, page);
            knows
        }
    })
}

/// The same of an older kernel: one word of each page.
fn one_by_one(pages: Range<usize>, page: usize, writable: bool) -> io::Result<()> {
    pages.step_by(page).try_for_each(|at| {
        if writable {
            write_nothing(at)
        } else {
            read_one(at)
        }
    })
}

/// Reads a byte by way of the kernel, which answers `EFAULT` instead of a signal.
fn read_one(at: usize) -> io::Result<()> {
    let mut byte = 0u8;
    let local = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: 1,
    };
    // SAFETY: both vectors are of one byte; the kernel checks the remote one.
    let read = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    if read == 1 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Has the kernel set no bit of the word at `at`, which is aligned to 4, in one atomic operation (`FUTEX_WAKE_OP`, futex(2)): what other
/// threads store there stays, and it fails where a store would.
fn write_nothing(at: usize) -> io::Result<()> {
    /// `FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_LT, -2048)`.
    const OR_NOTHING: u32 = 2 << 28 | 2 << 24 | 0x800;
    // Nothing waits on it, so nothing is woken. Of the word at `at` a waiter of this process is, if its number is below -2048: once too
    // often, which waiters on a futex must expect.
    let own = 0u32;
    // SAFETY: the first word is ours, the kernel checks the second; numbers, and no time-out.
    let code = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const own,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            1,
            1_usize,
            at as *mut u32,
            OR_NOTHING,
        )
    };
    if code >= 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;

    use super::*;

    const PAGE: usize = 4096;

    /// A mapping that goes away with the test's process.
    fn mapped(pages: usize, rights: i32, file: Option<&File>) -> usize {
        let kind = file.map_or(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, |_| {
            libc::MAP_SHARED
        });
        let fd = file.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe { libc::mmap(ptr::null_mut(), pages * PAGE, rights, kind, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at as usize
    }

    fn protect(at: usize, rights: i32) {
        // SAFETY: a page of a mapping of this test.
        let code = unsafe { libc::mprotect(at as *mut _, PAGE, rights) };
        assert_eq!(code, 0);
    }

    /// Both ways: with the advice and without.
    fn both(pages: Range<usize>, writable: bool) -> (bool, bool) {
        assert!(knows_populate(PAGE), "the other way could not be compared");
        (
            populate(&pages, writable).is_ok(),
            one_by_one(pages, PAGE, writable).is_ok(),
        )
    }

    const READ: i32 = libc::PROT_READ;
    const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

    #[test]
    fn rights_and_holes_are_found_without_touching() {
        let yes = (true, true);
        let no = (false, false);
        let at = mapped(4, BOTH, None);
        assert_eq!(both(at..at + 4 * PAGE, true), yes);
        protect(at + 2 * PAGE, READ);
        assert_eq!(both(at..at + 4 * PAGE, false), yes);
        assert_eq!(both(at..at + 4 * PAGE, true), no);
        assert_eq!(both(at..at + 2 * PAGE, true), yes);
        protect(at + 2 * PAGE, libc::PROT_NONE);
        assert_eq!(both(at..at + 4 * PAGE, false), no);
        // SAFETY: the last page of the mapping above.
        assert_eq!(unsafe { libc::munmap((at + 3 * PAGE) as *mut _, PAGE) }, 0);
        assert_eq!(both(at + 3 * PAGE..at + 4 * PAGE, false), no);
        assert_eq!(both(at + 3 * PAGE..at + 4 * PAGE, true), no);
        assert_eq!(both(0..PAGE, false), no);
        // The kernel's half, and far more than there is.
        assert_eq!(both(1 << 63..(1 << 63) + PAGE, true), no);
        assert_eq!(both(at..at + (1 << 45), true), no);
    }

    #[test]
    fn a_file_can_be_registered_up_to_its_end() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE as u64).unwrap();
        let at = mapped(2, BOTH, Some(&file));
        for writable in [false, true] {
            assert_eq!(both(at..at + PAGE, writable), (true, true));
            assert_eq!(both(at..at + 2 * PAGE, writable), (false, false));
        }
        let read_only = mapped(1, READ, Some(&file));
        assert_eq!(both(read_only..read_only + PAGE, false), (true, true));
        assert_eq!(both(read_only..read_only + PAGE, true), (false, false));
    }

    #[test]
    fn other_threads_stores_stay() {
        let at = mapped(2, BOTH, None);
        protect(at + PAGE, READ);
        // SAFETY: an aligned word of the mapping, which stays.
        let word = unsafe { AtomicU64::from_ptr(at as *mut u64) };
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let undone = scope.spawn(|| {
                let mut undone = 0;
                for number in 1.. {
                    word.store(number, Ordering::SeqCst);
                    for _ in 0..20 {
                        undone += u64::from(word.load(Ordering::SeqCst) != number);
                    }
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
                undone
            });
            // Refused each time, for the second page.
            for _ in 0..50_000 {
                assert!(one_by_one(at..at + 2 * PAGE, PAGE, true).is_err());
                assert!(populate(&(at..at + 2 * PAGE), true).is_err());
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(undone.join().unwrap(), 0, "stores undone");
        });
    }
}
