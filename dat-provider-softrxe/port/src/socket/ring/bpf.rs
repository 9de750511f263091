//! The bpf(2) system calls that a receive ring needs.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use super::program::Instruction;

const MAP_CREATE: libc::c_int = 0;
const PROG_LOAD: libc::c_int = 5;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
/// User space can map the memory (Linux 5.5).
const F_MMAPABLE: u32 = 1 << 10;
/// No helper function that the program calls requires the GPL.
const LICENSE: &CStr = c"MIT OR Apache-2.0";
/// What `bpftool` shows.
const NAME: [u8; 16] = *b"dat_receive_ring";
/// Capabilities, as bits of the effective set.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_BPF: u32 = 39;

/// The part of `union bpf_attr` that creates a map.
#[repr(C)]
struct MapAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
}

/// The part of `union bpf_attr` that loads a program.
#[repr(C)]
struct ProgramAttr {
    prog_type: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// What later kernels and memcheck may read behind the part, as zeros.
#[repr(C)]
struct Attr<T> {
    part: T,
    rest: [u32; 16],
}

/// Returns why this thread is not to call bpf(2), if there is a reason.
pub(super) fn obstacle() -> Option<&'static str> {
    // SAFETY: a plain system call. 2 is the mode with a filter.
    if unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) } == libc::SECCOMP_MODE_FILTER as i32
    {
        // Filters of services and containers end the process for a call that they do not list.
        return Some("the process has a system call filter (seccomp)");
    }
    (!has_capability()).then_some("the process has no CAP_BPF")
}

fn has_capability() -> bool {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Sets {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut sets = [Sets::default(); 2];
    // SAFETY: version 3 writes two sets, for which `sets` has room.
    let done = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) } == 0;
    let has =
        |capability: u32| sets[capability as usize / 32].effective & 1 << (capability % 32) != 0;
    done && (has(CAP_BPF) || has(CAP_SYS_ADMIN))
}

/// Creates an array map of one value of `bytes` bytes, which can be mapped.
pub(super) fn create_map(bytes: usize) -> io::Result<OwnedFd> {
    let attr = MapAttr {
        map_type: MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: bytes as u32,
        max_entries: 1,
        map_flags: F_MMAPABLE,
        inner_map_fd: 0,
        numa_node: 0,
        name: terminated(NAME),
    };
    bpf(MAP_CREATE, attr)
}

/// Loads a socket filter, which the kernel verifies.
pub(super) fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let attr = ProgramAttr {
        prog_type: PROG_TYPE_SOCKET_FILTER,
        instructions: program.len() as u32,
        code: program.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buffer: 0,
        kernel_version: 0,
        flags: 0,
        name: terminated(NAME),
    };
    bpf(PROG_LOAD, attr)
}

fn terminated(mut name: [u8; 16]) -> [u8; 16] {
    name[15] = 0;
    name
}

fn bpf<T>(command: libc::c_int, part: T) -> io::Result<OwnedFd> {
    let attr = Attr {
        part,
        rest: [0; 16],
    };
    // SAFETY: the kernel reads `attr`, and the program and the licence that it points to, until the call returns. Both
    // commands return a new descriptor, which has no other owner.
    unsafe {
        let size = size_of::<Attr<T>>();
        let fd = libc::syscall(libc::SYS_bpf, command, &raw const attr, size);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Attaches `program` to `socket`.
pub(super) fn attach(socket: RawFd, program: RawFd) -> io::Result<()> {
    option(socket, libc::SO_ATTACH_BPF, program)
}

/// Detaches the program of `socket`, if there is one.
pub(super) fn detach(socket: RawFd) -> io::Result<()> {
    match option(socket, libc::SO_DETACH_FILTER, 0) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        done => done,
    }
}

fn option(socket: RawFd, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is read for its own size.
    let done = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            name,
            (&raw const value).cast(),
            length,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
