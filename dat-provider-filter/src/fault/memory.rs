//! Changes bytes of the program's memory, which may be unmapped by now: then nothing happens.

use std::ffi::c_void;

/// Copies one byte from or to an address of this process through the kernel, which checks the address.
fn copy(address: u64, byte: &mut u8, write: bool) -> bool {
    let local = libc::iovec {
        iov_base: std::ptr::from_mut(byte).cast::<c_void>(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: 1,
    };
    // SAFETY: the local byte lives; the kernel refuses a remote address that is not mapped.
    let copied = unsafe {
        let process = libc::getpid();
        if write {
            libc::process_vm_writev(process, &raw const local, 1, &raw const remote, 1, 0)
        } else {
            libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0)
        }
    };
    copied == 1
}

/// Inverts the bits of `mask` in the byte at `address`. Returns false if there is no writable memory.
pub(crate) fn invert(address: u64, mask: u8) -> bool {
    let mut byte = 0;
    if !copy(address, &mut byte, false) {
        return false;
    }
    byte ^= mask;
    copy(address, &mut byte, true)
}

/// Returns the address of byte `at` of a list of segments.
pub(crate) fn address(segments: &[(u64, u32)], at: u64) -> Option<u64> {
    let mut before = 0;
    for (start, length) in segments {
        let length = u64::from(*length);
        if at < before + length {
            return Some(start + (at - before));
        }
        before += length;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_inverted_and_an_unmapped_address_is_refused() {
        let mut bytes = [1_u8, 2, 3];
        let at = bytes.as_mut_ptr() as u64;
        assert!(invert(at + 1, 0x80));
        // SAFETY: the array lives; it was changed through its address.
        let changed = unsafe { std::ptr::from_ref(&bytes).read_volatile() };
        assert_eq!(changed, [1, 0x82, 3]);
        assert!(!invert(8, 1));
    }

    #[test]
    fn a_byte_is_found_in_the_segment_that_has_it() {
        let segments = [(1000, 4), (5000, 2)];
        let all: Vec<_> = [0, 3, 4, 5, 6].map(|at| address(&segments, at)).to_vec();
        assert_eq!(all, [Some(1000), Some(1003), Some(5000), Some(5001), None]);
    }
}
