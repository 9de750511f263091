//! Random words from the kernel.

use std::io;

/// Returns random words.
///
/// # Errors
/// As `getrandom`.
pub(crate) fn random<const N: usize>() -> io::Result<[u64; N]> {
    let mut words = [0_u64; N];
    let length = size_of_val(&words);
    // SAFETY: writes at most `length` bytes to `words`, for which any bits are valid.
    let got = unsafe { libc::getrandom(words.as_mut_ptr().cast(), length, 0) };
    if got == length as isize {
        Ok(words)
    } else {
        Err(io::Error::last_os_error())
    }
}
