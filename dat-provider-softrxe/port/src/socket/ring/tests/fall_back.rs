//! Processes that get no ring.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use super::{bind, next};
use crate::socket::{Received, Socket};

/// Runs `act` in a thread of its own, whose rights it may drop.
fn in_a_thread(act: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(act).join().unwrap());
}

/// Receives with a socket that gets no ring.
fn works_without(socket: &Socket) {
    let error = socket.use_ring().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    assert!(socket.ring_counters().is_none() && socket.arm() && socket.begin_pause());
    let sender = UdpSocket::bind((socket.local().ip(), 0)).unwrap();
    sender.send_to(b"x", socket.local()).unwrap();
    next(socket, &mut Received::new());
    socket.disarm();
    socket.end_pause();
}

#[test]
fn without_the_capability_the_socket_delivers() {
    in_a_thread(|| {
        // Version 3, this thread; no capabilities. SAFETY: the kernel reads both structures.
        let done = unsafe { libc::syscall(libc::SYS_capset, &[0x2008_0522_u32, 0], &[0_u32; 6]) };
        assert_eq!(done, 0);
        works_without(&bind("127.0.0.1".parse().unwrap()));
    });
}

/// The filter ends the process at the first bpf(2).
#[test]
fn where_system_calls_are_filtered_bpf_is_not_tried() {
    in_a_thread(|| {
        let step = |code: u32, jt, jf, k| libc::sock_filter {
            code: code as u16,
            jt,
            jf,
            k,
        };
        let (load, equal) = (libc::BPF_LD | libc::BPF_W, libc::BPF_JMP | libc::BPF_JEQ);
        let program = [
            step(load | libc::BPF_ABS, 0, 0, 0),
            step(equal | libc::BPF_K, 0, 1, libc::SYS_bpf as u32),
            step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
            step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_ptr().cast_mut(),
        };
        // SAFETY: both concern this thread only; the kernel copies the program.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(
                libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter),
                0
            );
        }
        works_without(&bind("127.0.0.1".parse().unwrap()));
    });
}

#[test]
fn a_socket_that_takes_no_program_delivers() {
    let socket = bind("127.0.0.1".parse().unwrap());
    let lock: libc::c_int = 1;
    // SAFETY: the option is read for its own size.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LOCK_FILTER,
            (&raw const lock).cast(),
            size_of_val(&lock) as libc::socklen_t,
        )
    };
    assert_eq!(done, 0);
    works_without(&socket);
}
