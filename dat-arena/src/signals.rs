//! Signals are for the consumer's threads: the kernel gives one that is sent to the process to any thread that does not block it.

/// Signals that an instruction of this thread's own causes. The consumer may handle them, as where it watches its memory by mprotect(2).
const OWN_FAULTS: [libc::c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
];

/// For a thread of ours: from now on it takes no signal that was meant for the consumer's threads.
pub fn leave_to_the_consumer() {
    if cfg!(miri) {
        // It has neither signals nor these functions.
        return;
    }
    // SAFETY: the set is initialised by sigfillset before it is used.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        for fault in OWN_FAULTS {
            libc::sigdelset(&raw mut set, fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}
