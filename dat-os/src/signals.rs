//! Signal masks of the library's own threads (pthread_sigmask(3)).

/// Signals that an instruction of the thread itself raises. They stay unblocked: the consumer may handle them, for instance to
/// track its memory with mprotect(2).
const SYNCHRONOUS: [libc::c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
];

/// Blocks all signals in the calling thread but those that its own instructions raise. Each thread of the library calls it: the
/// kernel delivers a signal for the process to any thread that does not block it, and these signals are for the consumer's threads.
pub fn block_asynchronous() {
    if cfg!(miri) {
        // Miri implements neither signals nor these functions.
        return;
    }
    // SAFETY: sigfillset initialises the set before it is used.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        for signal in SYNCHRONOUS {
            libc::sigdelset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no signals")]
    fn only_signals_of_own_instructions_stay_unblocked() {
        let blocked = std::thread::spawn(|| {
            block_asynchronous();
            // SAFETY: the call fills the set.
            unsafe {
                let mut set = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
                [libc::SIGTERM, libc::SIGALRM, libc::SIGSEGV, libc::SIGBUS]
                    .map(|signal| libc::sigismember(&raw const set, signal))
            }
        });
        assert_eq!(blocked.join().unwrap(), [1, 1, 0, 0]);
    }
}
