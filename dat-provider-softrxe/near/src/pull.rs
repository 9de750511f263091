//! Copies out of the memory of the peer, which the peer lends. [`Lender`](crate::Lender) describes both sides.

use std::io;

use crate::access::RingAccess;
use crate::ring;
use crate::sync::Ordering;

/// Failed copies after which the peer is told to lend no more: its memory may be of a kind that the kernel does not copy.
const MAX_FAILURES: u32 = 8;

/// A payload in the memory of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lent {
    /// Where the peer has it.
    pub(crate) address: u64,
    /// Where the record begins.
    pub(crate) position: u64,
}

/// Why the peer's memory was not copied.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The system call failed, or copied less.
    #[error(
        "process_vm_readv from process {pid}: {error}; its data goes through shared memory, with two copies; see kernel.yama.ptrace_scope; near=copy silences this"
    )]
    Call {
        /// The peer's process.
        pid: i32,
        /// `EPERM`: see kernel.yama.ptrace_scope, the container's seccomp filter and capabilities. `EFAULT`: the memory is not mapped,
        /// or is a device's.
        error: io::Error,
    },
    /// Another process has the number.
    #[error("process {0} is not the peer: it is in another PID namespace, or has ended")]
    Stranger(i32),
    /// The peer took the memory back.
    #[error("the peer took the memory back")]
    Withdrawn,
}

/// Reads the memory of the peer of a channel.
#[derive(Debug)]
pub struct Puller {
    ring: RingAccess,
    pid: i32,
    /// Where the peer has its nonce, and the nonce, once it has shown them.
    nonce: Option<(u64, [u64; 2])>,
    failures: u32,
}

impl Puller {
    pub(crate) const fn new(ring: RingAccess, pid: i32) -> Self {
        Self {
            ring,
            pid,
            nonce: None,
            failures: 0,
        }
    }

    /// Tries to read the peer's nonce once the peer has shown it. Returns `None` before.
    ///
    /// # Errors
    /// [`PullError`]: the peer's memory cannot be read.
    pub fn probe(&mut self) -> Option<Result<(), PullError>> {
        let lines = self.ring.lines();
        let at = lines.nonce_at.load(Ordering::Acquire);
        if at == 0 {
            return None;
        }
        let nonce = [0, 1].map(|index: usize| lines.nonce[index].load(Ordering::Relaxed));
        self.nonce = Some((at, nonce));
        // SAFETY: there is no destination but the nonce's.
        Some(unsafe { self.copy(0, [(0, 0); 2]) })
    }

    /// Tells the peer whether to lend its payloads, or to copy them into the ring. After many failures it is never to lend.
    pub fn announce(&self, pulls: bool) {
        let pulls = pulls && self.failures < MAX_FAILURES;
        self.ring
            .lines()
            .pulls
            .store(pulls.into(), Ordering::Relaxed);
    }

    /// Returns how long the peer says that it takes to copy a MiB of payload into the ring, in nanoseconds; 0 if it does not know.
    #[must_use]
    pub fn copy_time(&self) -> u32 {
        self.ring.lines().copy_time.load(Ordering::Relaxed)
    }

    /// Copies from `offset` of `lent` to the two parts `to`, each an address and a length. What it copied is of no use after an error.
    ///
    /// # Errors
    /// [`PullError`].
    ///
    /// # Safety
    /// This process may write `to`, which need not be mapped, and has no Rust references there.
    pub unsafe fn pull(
        &mut self,
        lent: Lent,
        offset: usize,
        to: [(usize, usize); 2],
    ) -> Result<(), PullError> {
        let from = lent.address.wrapping_add(offset as u64);
        // SAFETY: the caller's promise.
        let copied = unsafe { self.copy(from, to) };
        if ring::is_withdrawn(self.ring.lines(), lent.position) {
            return Err(PullError::Withdrawn);
        }
        if copied.is_err() {
            self.failures += 1;
            if self.failures >= MAX_FAILURES {
                self.announce(false);
            }
        }
        copied
    }

    /// Copies from the peer's address `from` to `to`, and checks that it is the peer.
    ///
    /// # Safety
    /// As [`pull`](Self::pull).
    unsafe fn copy(&self, from: u64, to: [(usize, usize); 2]) -> Result<(), PullError> {
        let (nonce_at, nonce) = self.nonce.ok_or(PullError::Stranger(self.pid))?;
        let mut found = [0_u64; 2];
        let [body, tail] = to;
        let length = body.1 + tail.1;
        let local = [
            vector(body.0, body.1),
            vector(tail.0, tail.1),
            vector((&raw mut found) as usize, size_of_val(&found)),
        ];
        let remote = [
            vector(from as usize, length),
            vector(nonce_at as usize, size_of_val(&found)),
        ];
        // SAFETY: the caller promises the parts; the last one is `found`, for which any bits are valid. The kernel checks all addresses.
        let done = unsafe {
            libc::process_vm_readv(
                self.pid,
                local.as_ptr(),
                local.len() as libc::c_ulong,
                remote.as_ptr(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        if done != (length + size_of_val(&found)) as isize {
            let error = match done {
                ..0 => io::Error::last_os_error(),
                _ => io::Error::from_raw_os_error(libc::EFAULT),
            };
            return Err(PullError::Call {
                pid: self.pid,
                error,
            });
        }
        if found == nonce {
            Ok(())
        } else {
            Err(PullError::Stranger(self.pid))
        }
    }
}

const fn vector(at: usize, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: length,
    }
}
