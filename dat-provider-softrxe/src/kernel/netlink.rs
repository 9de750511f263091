//! Creates an rxe device over rdma netlink (`RDMA_NLDEV_CMD_NEWLINK` of `linux/rdma_netlink.h`), as
//! `rdma link add NAME type rxe netdev NETDEV` does.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `NETLINK_RDMA`.
const PROTOCOL: i32 = 20;
/// `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_NEWLINK)`.
const NEWLINK: u16 = (5 << 10) + 3;
const ATTR_DEV_NAME: u16 = 2;
const ATTR_NDEV_NAME: u16 = 51;
const ATTR_LINK_TYPE: u16 = 65;
const LINK_TYPE: &str = "rxe";

/// Reason why the kernel did not create a device. The texts say what to type.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NewLinkError {
    /// The kernel has no RDMA.
    #[error("this kernel has no RDMA loaded; as root: `modprobe rdma_rxe`")]
    NoRdma,
    /// The kernel has no rdma_rxe.
    #[error(
        "the kernel has no link type rxe; as root: `modprobe rdma_rxe` (Debian has the module in linux-image-amd64, \
         not in the cloud kernel)"
    )]
    NoModule,
    /// CAP_NET_ADMIN is missing.
    #[error(
        "this needs root (CAP_NET_ADMIN); as root, once: `rdma link add {name} type rxe netdev {netdev}`"
    )]
    Permission {
        /// Name for the device.
        name: String,
        /// The netdev.
        netdev: String,
    },
    /// The netdev has an rxe device.
    #[error("it has one already")]
    Exists,
    /// Another device has the name.
    #[error("there is a device of that name")]
    NameTaken,
    /// The netdev does not exist any more.
    #[error("the kernel has no netdev of that name")]
    NoNetdev,
    /// Another error.
    #[error("{0}; try as root: `rdma link add NAME type rxe netdev NETDEV`, and look at `dmesg`")]
    Other(String),
}

impl NewLinkError {
    /// Returns whether only rights are missing.
    #[must_use]
    pub const fn is_permission(&self) -> bool {
        matches!(self, Self::Permission { .. })
    }

    fn of(errno: i32, name: &str, netdev: &str) -> Self {
        match errno {
            libc::EPERM | libc::EACCES => Self::Permission {
                name: name.to_owned(),
                netdev: netdev.to_owned(),
            },
            libc::EINVAL => Self::NoModule,
            libc::EEXIST => Self::Exists,
            // `assign_name` in Linux' `drivers/infiniband/core/device.c`.
            libc::ENFILE => Self::NameTaken,
            libc::ENODEV => Self::NoNetdev,
            libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT => Self::NoRdma,
            other => Self::Other(io::Error::from_raw_os_error(other).to_string()),
        }
    }
}

/// Appends an attribute with a NUL-terminated string, padded to 4 bytes.
fn string(message: &mut Vec<u8>, kind: u16, text: &str) {
    let length = 4 + text.len() + 1;
    message.extend((length as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(text.as_bytes());
    message.push(0);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// Makes the request for device `name` on `netdev`.
#[must_use]
pub fn request(name: &str, netdev: &str, sequence: u32) -> Vec<u8> {
    let mut message = vec![0; 16];
    string(&mut message, ATTR_DEV_NAME, name);
    string(&mut message, ATTR_LINK_TYPE, LINK_TYPE);
    string(&mut message, ATTR_NDEV_NAME, netdev);
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&NEWLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message[8..12].copy_from_slice(&sequence.to_ne_bytes());
    message
}

/// Returns the errno (0 for success) in the acknowledgement of `sequence`; `None` if `reply` is something else.
#[must_use]
pub fn acknowledgement(reply: &[u8], sequence: u32) -> Option<i32> {
    let bytes = |at: usize| reply.get(at..at + 4)?.try_into().ok();
    let kind = u16::from_ne_bytes(reply.get(4..6)?.try_into().ok()?);
    let answers = u32::from_ne_bytes(bytes(8)?);
    (i32::from(kind) == libc::NLMSG_ERROR && answers == sequence)
        .then(|| bytes(16).map(|b| -i32::from_ne_bytes(b)))?
}

/// Creates the rxe device `name` on `netdev`. The kernel loads the module if that is allowed.
///
/// # Errors
/// See [`NewLinkError`].
pub fn new_link(name: &str, netdev: &str) -> Result<(), NewLinkError> {
    let sequence = 1;
    let errno = match exchange(&request(name, netdev, sequence), sequence) {
        Ok(errno) => errno,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    };
    if errno == 0 {
        Ok(())
    } else {
        Err(NewLinkError::of(errno, name, netdev))
    }
}

/// Sends `message` to the kernel; returns the errno of its acknowledgement.
fn exchange(message: &[u8], sequence: u32) -> io::Result<i32> {
    // SAFETY: no pointers are involved.
    let fd = unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            PROTOCOL,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just opened and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // An unanswered request must not hang dat_ia_open.
    let timeout = libc::timeval {
        tv_sec: 10,
        tv_usec: 0,
    };
    // SAFETY: `timeout` is valid for its size. Without a destination address the message goes to the kernel.
    let sent = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const timeout).cast(),
            size_of::<libc::timeval>() as libc::socklen_t,
        );
        libc::send(
            socket.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            0,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut reply = [0_u8; 4096];
    loop {
        // SAFETY: `reply` is writable for its length.
        let n = unsafe {
            libc::recv(
                socket.as_raw_fd(),
                reply.as_mut_ptr().cast(),
                reply.len(),
                0,
            )
        };
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        if let Some(errno) = acknowledgement(&reply[..n], sequence) {
            return Ok(errno);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_what_the_rdma_tool_sends() {
        // Recorded from `rdma link add rxe0 type rxe netdev v0`, with its sequence number 1.
        let expected: [u8; 44] = [
            44, 0, 0, 0, 0x03, 0x14, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0, // header
            9, 0, 2, 0, b'r', b'x', b'e', b'0', 0, 0, 0, 0, // device
            8, 0, 65, 0, b'r', b'x', b'e', 0, // type
            7, 0, 51, 0, b'v', b'0', 0, 0, // netdev
        ];
        assert_eq!(request("rxe0", "v0", 1), expected);
    }

    #[test]
    fn only_the_acknowledgement_of_the_request_counts() {
        let reply = |kind: u16, sequence: u32, error: i32| {
            let mut m = vec![36, 0, 0, 0];
            m.extend(kind.to_ne_bytes());
            m.extend([0, 0]);
            m.extend(sequence.to_ne_bytes());
            m.extend([0; 4]);
            m.extend(error.to_ne_bytes());
            m
        };
        assert_eq!(acknowledgement(&reply(2, 1, 0), 1), Some(0));
        assert_eq!(
            acknowledgement(&reply(2, 1, -libc::EPERM), 1),
            Some(libc::EPERM)
        );
        assert_eq!(acknowledgement(&reply(2, 7, 0), 1), None);
        assert_eq!(acknowledgement(&reply(3, 1, 0), 1), None);
        assert_eq!(acknowledgement(&reply(2, 1, 0)[..18], 1), None);
        assert_eq!(acknowledgement(&[], 1), None);
    }

    #[test]
    fn each_error_says_what_to_type() {
        let text = |errno| NewLinkError::of(errno, "rxe0", "eth7").to_string();
        assert!(text(libc::EPERM).contains("rdma link add rxe0 type rxe netdev eth7"));
        assert!(text(libc::EINVAL).contains("modprobe rdma_rxe"));
        assert!(text(libc::EPROTONOSUPPORT).contains("modprobe rdma_rxe"));
        assert!(text(libc::EBUSY).contains("dmesg"));
        assert_eq!(
            NewLinkError::of(libc::ENFILE, "rxe0", "v0"),
            NewLinkError::NameTaken
        );
    }
}
