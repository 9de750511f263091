//! Makes a process see a kernel before Linux 6.16, which has no `SO_PASSRIGHTS`.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// From Linux's include/uapi/asm-generic/socket.h.
const SO_PASSRIGHTS: u32 = 83;
/// Offsets in `struct seccomp_data`: number of the system call; lower half of the third argument.
const NUMBER: u32 = 0;
const OPTION: u32 = 16 + 2 * 8;

const fn filter(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

/// Makes `setsockopt(SO_PASSRIGHTS)` fail with ENOPROTOOPT in the process that `command` starts, by a filter of system
/// calls. The option stays on for its sockets, as on an old kernel.
pub(crate) fn mask_pass_rights(command: &mut Command) {
    let mask = || {
        const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
        let refused = libc::SECCOMP_RET_ERRNO | libc::ENOPROTOOPT.cast_unsigned();
        let mut program = [
            filter(LOAD, NUMBER, 0, 0),
            filter(EQUAL, libc::SYS_setsockopt as u32, 0, 3),
            filter(LOAD, OPTION, 0, 0),
            filter(EQUAL, SO_PASSRIGHTS, 0, 1),
            filter(RETURN, refused, 0, 0),
            filter(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
        ];
        let program = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: plain system calls; the program lives until the return.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) == 0
        };
        if done {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(mask) };
}
