//! Copies by the kernel from this process to itself. The kernel returns EFAULT where a thread would get a signal.

use super::{Fault, machine};

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
    // SAFETY: `ours` is a slice of the callers of that length; the kernel checks `theirs`.
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

/// Copies `into.len()` bytes from `from`.
pub(super) fn read(from: usize, into: &mut [u8]) -> Result<(), Fault> {
    if into.is_empty() {
        return Ok(());
    }
    let (to, length) = (into.as_mut_ptr() as usize, into.len());
    transfer(libc::process_vm_readv, to, from, length)
        // SAFETY: registered memory. Without the system call a fault raises the consumer's signal.
        .unwrap_or_else(|| unsafe { machine::copy(to, from, length) })
}

/// Copies `bytes` to `to`.
pub(super) fn write(to: usize, bytes: &[u8]) -> Result<(), Fault> {
    if bytes.is_empty() {
        return Ok(());
    }
    let from = bytes.as_ptr() as usize;
    transfer(libc::process_vm_writev, from, to, bytes.len())
        // SAFETY: as above.
        .unwrap_or_else(|| unsafe { machine::copy(to, from, bytes.len()) })
}

/// Replaces the 8 bytes at `at`, not atomically.
pub(super) fn update(at: usize, mut f: impl FnMut(u64) -> u64) -> Result<u64, Fault> {
    let mut word = [0; 8];
    read(at, &mut word)?;
    let old = u64::from_ne_bytes(word);
    write(at, &f(old).to_ne_bytes())?;
    Ok(old)
}
