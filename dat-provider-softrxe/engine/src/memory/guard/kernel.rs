//! Copies by the kernel from this process to itself. The kernel returns EFAULT where a thread would get a signal.

use super::{Fault, recovery};

type Call = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> libc::ssize_t;

/// Copies by `call`. Returns `None` if the kernel lacks the system call, or a seccomp filter refuses it.
fn transfer(call: Call, ours: usize, theirs: usize, length: usize) -> Option<Result<(), Fault>> {
    let vector = |at: usize| libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: length,
    };
    let (local, remote) = (vector(ours), vector(theirs));
    // SAFETY: `ours` is memory of this crate of that length; the kernel checks `theirs`.
    let done = unsafe { call(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    if done < 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT) {
        return None;
    }
    Some(if done == length as isize {
        Ok(())
    } else {
        Err(Fault)
    })
}

/// Copies `length` bytes from `from`, which may fault, to `to`.
pub(super) fn read(from: usize, to: usize, length: usize) -> Result<(), Fault> {
    if length == 0 {
        return Ok(());
    }
    transfer(libc::process_vm_readv, to, from, length)
        // SAFETY: registered memory. Without the system call a fault raises the consumer's signal.
        .unwrap_or_else(|| unsafe { recovery::copy(to, from, length) })
}

/// Copies `length` bytes from `from` to `to`, which may fault.
pub(super) fn write(to: usize, from: usize, length: usize) -> Result<(), Fault> {
    if length == 0 {
        return Ok(());
    }
    transfer(libc::process_vm_writev, from, to, length)
        // SAFETY: as above.
        .unwrap_or_else(|| unsafe { recovery::copy(to, from, length) })
}

/// Replaces the 8 bytes at `at`, not atomically.
pub(super) fn update(at: usize, mut f: impl FnMut(u64) -> u64) -> Result<u64, Fault> {
    let mut word = [0; 8];
    read(at, word.as_mut_ptr() as usize, word.len())?;
    let old = u64::from_ne_bytes(word);
    let new = f(old).to_ne_bytes();
    write(at, new.as_ptr() as usize, new.len())?;
    Ok(old)
}
