//! Finds out whether memory can be read and written, without a signal and without changing it: other threads may store to it
//! meanwhile.

use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

/// Makes `pages`, whole pages of `page` bytes, present: readable, and writable if `writable`.
///
/// # Errors
/// `ENOMEM` if a page is not mapped, `EINVAL` if a right is missing, `EFAULT` if an access would raise a signal (beyond the end of
/// a file).
pub(super) fn present(pages: Range<usize>, page: usize, writable: bool) -> io::Result<()> {
    if populate_is_supported(page) {
        populate(&pages, writable)
    } else {
        probe_each_page(pages, page, writable)
    }
}

/// Makes pages present by `MADV_POPULATE_*` (Linux 5.14).
fn populate(pages: &Range<usize>, writable: bool) -> io::Result<()> {
    let advice = if writable {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    loop {
        // SAFETY: the advice faults pages in and changes no contents, or fails.
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

/// Returns whether the kernel has that advice. Tests it once on a page of this function: the error for other memory is the same as
/// for missing rights.
fn populate_is_supported(page: usize) -> bool {
    static SUPPORTED: OnceLock<bool> = OnceLock::new();
    *SUPPORTED.get_or_init(|| {
        // SAFETY: a new private mapping that nothing else uses, and that is unmapped again.
        unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(ptr::null_mut(), page, rights, flags, -1, 0);
            if at == libc::MAP_FAILED {
                return false;
            }
            let supported = populate(&(at as usize..at as usize + page), true).is_ok();
            libc::munmap(at, page);
            supported
        }
    })
}

/// Accesses one word of each page, for older kernels.
fn probe_each_page(pages: Range<usize>, page: usize, writable: bool) -> io::Result<()> {
    pages.step_by(page).try_for_each(|at| {
        if writable {
            probe_write(at)
        } else {
            probe_read(at)
        }
    })
}

/// Reads a byte by a system call, which returns `EFAULT` instead of raising a signal.
fn probe_read(at: usize) -> io::Result<()> {
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

/// Tests a write to the word at `at`, which is aligned to 4: the kernel sets no bit of it, in one atomic operation (`FUTEX_WAKE_OP`,
/// futex(2)). Stores of other threads stay, and the call fails where a store would.
fn probe_write(at: usize) -> io::Result<()> {
    /// `FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_LT, -2048)`.
    const OR_ZERO: u32 = 2 << 28 | 2 << 24 | 0x800;
    // No thread waits on this word, so none is woken. If the word at `at` is a futex with a value below -2048, a thread that waits on it
    // is woken spuriously, which waiters on a futex must expect.
    let own = 0u32;
    // SAFETY: the first word is `own`, the kernel checks the second; the other arguments are numbers.
    let code = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const own,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            1,
            1_usize,
            at as *mut u32,
            OR_ZERO,
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

    /// Makes a mapping that stays until the test's process ends.
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

    /// Probes both with the advice and without it.
    fn both(pages: Range<usize>, writable: bool) -> (bool, bool) {
        assert!(
            populate_is_supported(PAGE),
            "the kernel lacks MADV_POPULATE, so there is nothing to compare"
        );
        (
            populate(&pages, writable).is_ok(),
            probe_each_page(pages, PAGE, writable).is_ok(),
        )
    }

    const READ: i32 = libc::PROT_READ;
    const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

    #[test]
    fn rights_and_holes_are_found_without_access() {
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
        // Addresses of the kernel, and a range far larger than the mapping.
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
            // Each probe fails at the second page.
            for _ in 0..50_000 {
                assert!(probe_each_page(at..at + 2 * PAGE, PAGE, true).is_err());
                assert!(populate(&(at..at + 2 * PAGE), true).is_err());
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(undone.join().unwrap(), 0, "stores undone");
        });
    }
}
