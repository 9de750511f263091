//! The users that processes of a test run as.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Uid of the user that every Linux system has for programs without rights, and that owns nothing.
pub const UNPRIVILEGED: u32 = 65_534;

/// The rights of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Identity {
    /// Root with all capabilities of the test.
    Root,
    /// A user other than root, with this uid: no capabilities, and only the group with the same number; in the
    /// namespaces of the test.
    User(u32),
    /// The user with this uid as the root of a new user and network namespace, whose `lo` is up.
    Isolated(u32),
}

impl Identity {
    /// Makes `command` start with this identity.
    pub(crate) fn apply(self, command: &mut Command) {
        let (uid, isolated) = match self {
            Self::Root => return,
            Self::User(uid) => (uid, false),
            Self::Isolated(uid) => (uid, true),
        };
        let uid_map = format!("0 {uid} 1");
        let change = move || {
            become_user(uid)?;
            if isolated {
                isolate(&uid_map)?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec only system calls are made; no memory is allocated (the path names are C
        // strings and literals) and no lock is taken.
        unsafe { command.pre_exec(change) };
    }
}

fn checked(code: libc::c_int) -> io::Result<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Drops all privileges of root. An exec drops the remaining capabilities.
fn become_user(uid: u32) -> io::Result<()> {
    // SAFETY: plain system calls; the calling process has one thread.
    unsafe {
        checked(libc::setgroups(0, std::ptr::null()))?;
        checked(libc::setresgid(uid, uid, uid))?;
        checked(libc::setresuid(uid, uid, uid))?;
        checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    }
}

/// Enters a new user namespace, as its root, and a new network namespace.
fn isolate(uid_map: &str) -> io::Result<()> {
    // SAFETY: plain system calls. A process that changed its uid may not write its own maps until it is dumpable.
    unsafe {
        checked(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0))?;
        checked(libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET))?;
    }
    write(c"/proc/self/setgroups", b"deny")?;
    write(c"/proc/self/gid_map", uid_map.as_bytes())?;
    write(c"/proc/self/uid_map", uid_map.as_bytes())?;
    raise_loopback()
}

fn write(path: &std::ffi::CStr, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the path ends with a zero, the bytes are readable, the descriptor is closed once.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let written = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        let error = io::Error::last_os_error();
        libc::close(fd);
        if written == bytes.len() as isize {
            Ok(())
        } else {
            Err(error)
        }
    }
}

fn raise_loopback() -> io::Result<()> {
    // SAFETY: an all-zero ifreq is valid, and the calls read and write within it.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let done = checked(libc::ioctl(fd, libc::SIOCSIFFLAGS, &raw const request));
        libc::close(fd);
        done
    }
}

/// Returns a command that runs this program, also as a user without access to its folder. The file must stay open until
/// the command has started.
pub(crate) fn this_program() -> io::Result<(Command, File)> {
    let program = File::open("/proc/self/exe")?;
    // SAFETY: plain system calls on an open descriptor, which exec no longer closes.
    unsafe {
        let flags = libc::fcntl(program.as_raw_fd(), libc::F_GETFD);
        checked(libc::fcntl(
            program.as_raw_fd(),
            libc::F_SETFD,
            flags & !libc::FD_CLOEXEC,
        ))?;
    }
    let path = format!("/proc/self/fd/{}", program.as_raw_fd());
    Ok((Command::new(path), program))
}
