//! Engines of this process, and memory as a peer sends it.

use std::net::IpAddr;
use std::os::fd::{FromRawFd, OwnedFd};

use softrxe_near::agreement::End;

/// Returns an engine of this test: other tests and other runs have other addresses.
pub(crate) fn end(test: u8, slot: u16) -> End {
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    let ip = IpAddr::from([127, test, high, low.max(1)]);
    let guid = 0x1000 + u64::from(slot);
    End { ip, slot, guid }
}

/// Returns memory of `length` bytes with these seals.
pub(crate) fn memory(length: i64, seals: i32) -> OwnedFd {
    // SAFETY: plain system calls on a new descriptor.
    unsafe {
        let fd = libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0);
        assert_eq!(libc::ftruncate(fd, length), 0);
        assert_eq!(libc::fcntl(fd, libc::F_ADD_SEALS, seals), 0);
        OwnedFd::from_raw_fd(fd)
    }
}
