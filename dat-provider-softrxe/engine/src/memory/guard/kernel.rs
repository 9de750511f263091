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
///
/// # Safety
/// `ours` is memory of this crate of that length. `theirs` is registered memory, or not mapped.
unsafe fn transfer(
    call: Call,
    ours: usize,
    theirs: usize,
    length: usize,
) -> Option<Result<(), Fault>> {
    let vector = |at: usize| libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: length,
    };
    let (local, remote) = (vector(ours), vector(theirs));
    // SAFETY: the caller's promises; the kernel checks `theirs`.
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
///
/// # Safety
/// As [`super::read`].
pub(super) unsafe fn read(from: usize, to: usize, length: usize) -> Result<(), Fault> {
    if length == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promises.
    let copied = unsafe { transfer(libc::process_vm_readv, to, from, length) };
    // SAFETY: the caller's promises. Without the system call a fault raises the consumer's signal.
    copied.unwrap_or_else(|| unsafe { recovery::copy(to, from, length) })
}

/// Copies `length` bytes from `from` to `to`, which may fault.
///
/// # Safety
/// As [`super::write`].
pub(super) unsafe fn write(to: usize, from: usize, length: usize) -> Result<(), Fault> {
    if length == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promises.
    let copied = unsafe { transfer(libc::process_vm_writev, from, to, length) };
    // SAFETY: as in `read`.
    copied.unwrap_or_else(|| unsafe { recovery::copy(to, from, length) })
}

/// Replaces the 8 bytes at `at`, not atomically.
///
/// # Safety
/// As [`super::write`].
pub(super) unsafe fn update(at: usize, mut f: impl FnMut(u64) -> u64) -> Result<u64, Fault> {
    let mut word = [0; 8];
    // SAFETY: the caller's promise; the destination is `word`.
    unsafe { read(at, word.as_mut_ptr() as usize, word.len())? };
    let old = u64::from_ne_bytes(word);
    let new = f(old).to_ne_bytes();
    // SAFETY: the caller's promise; the source is `new`.
    unsafe { write(at, new.as_ptr() as usize, new.len())? };
    Ok(old)
}
