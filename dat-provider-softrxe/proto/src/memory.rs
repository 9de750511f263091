//! The only way the engine touches memory.

use std::sync::Arc;

use bitflags::bitflags;

use crate::Qpn;

bitflags! {
    /// Rights of a region, a window or a queue pair; what an access needs.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Rights: u8 {
        /// Read by work requests of this side; every region has it.
        const LOCAL_READ = 1;
        /// Written by receives and READ responses of this side.
        const LOCAL_WRITE = 1 << 1;
        /// Target of a peer's READ.
        const REMOTE_READ = 1 << 2;
        /// Target of a peer's WRITE.
        const REMOTE_WRITE = 1 << 3;
        /// Target of a peer's atomics.
        const REMOTE_ATOMIC = 1 << 4;
        /// Windows may be bound to it.
        const WINDOW_BIND = 1 << 5;
    }
}

/// A protection domain: a number of the driver's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pd(pub u32);

/// Who accesses with which key, and for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// L_Key for the `LOCAL_*` rights, R_Key for the `REMOTE_*` rights.
    pub key: u32,
    /// Protection domain of the queue pair.
    pub pd: Pd,
    /// The queue pair: windows of type 2 belong to one.
    pub qpn: Qpn,
    /// The right needed, exactly one.
    pub need: Rights,
}

/// An atomic operation on eight aligned bytes in host order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Store `swap` if the value is `compare`.
    CompareSwap {
        /// Value expected.
        compare: u64,
        /// Value stored then.
        swap: u64,
    },
    /// Add, wrapping.
    FetchAdd(u64),
}

/// Kind of memory window (IBTA 10.6.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowType {
    /// Usable from every queue pair of the protection domain.
    Type1,
    /// Belongs to the queue pair that bound it; a peer may invalidate it.
    Type2,
}

/// Arguments of [`Memory::bind`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MwBind {
    /// The window's key until now.
    pub old_key: u32,
    /// The window's key from now on; no other's.
    pub new_key: u32,
    /// L_Key of the region below; ignored if `length` is 0.
    pub lkey: u32,
    /// First byte of the window.
    pub address: u64,
    /// Bytes; 0 unbinds a window of type 1.
    pub length: u64,
    /// Remote rights of the window.
    pub rights: Rights,
    /// Kind of the window.
    pub kind: WindowType,
}

/// Why an access was refused. A peer learns "remote access error" only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccessError {
    /// No live region or window has the key.
    #[error("key {0:#010x} names no live region or window; it may have been freed or invalidated")]
    Key(u32),
    /// The key belongs to another protection domain or queue pair.
    #[error("key {0:#010x} belongs to another protection domain or queue pair")]
    Scope(u32),
    /// The range leaves what the key grants.
    #[error("range {va:#x}+{length} leaves what key {key:#010x} grants")]
    Bounds {
        /// The key used.
        key: u32,
        /// First byte asked for.
        va: u64,
        /// Bytes asked for.
        length: u64,
    },
    /// The right is not granted.
    #[error("key {key:#010x} does not grant {need:?}")]
    Right {
        /// The key used.
        key: u32,
        /// The right needed.
        need: Rights,
    },
    /// The access is granted, but the memory is not mapped any more, or not with the right that it had.
    #[error("key {key:#010x} grants {va:#x}+{length}, where memory is missing or protected now")]
    Fault {
        /// The key used.
        key: u32,
        /// First byte asked for.
        va: u64,
        /// Bytes asked for.
        length: u64,
    },
    /// The address of an atomic is not a multiple of eight.
    #[error("address {0:#x} of an atomic is not 8-byte aligned")]
    Alignment(u64),
    /// The window cannot be bound or invalidated as asked.
    #[error("window key {0:#010x} cannot be bound or invalidated in its present state")]
    Window(u32),
}

/// Registered memory, implemented by the driver.
///
/// Every call checks key, protection domain, queue pair (windows of type 2), right and
/// `va..va + length` (without overflow) before it touches a byte, and touches none if the check fails.
/// Once a deregistration or invalidation has returned, no call with that key may touch memory. The memory may be
/// changed by others at any time: implementations copy, they never make references.
pub trait Memory {
    /// Would an access to `length` bytes at `va` be allowed?
    ///
    /// # Errors
    /// As [`AccessError`] says.
    fn check(&self, access: &Access, va: u64, length: u64) -> Result<(), AccessError>;

    /// Copies registered memory at `va` to `into`.
    ///
    /// # Errors
    /// As [`AccessError`] says; then the contents of `into` are unspecified.
    fn read(&self, access: &Access, va: u64, into: &mut [u8]) -> Result<(), AccessError>;

    /// Lends `length` bytes at `va` to the run that is being made: its driver sends them from where they lie, at `at` of the
    /// buffer, whose bytes there stay unwritten. Only payload of SENDs and RDMA WRITEs is asked for, which the consumer must not
    /// change before they complete; if it does, the checksum is wrong, the peer drops the packet and it is sent again.
    /// Returns `crc`, the CRC-32 of what stands before, continued over these bytes; `None`: not lent, the engine copies.
    ///
    /// # Errors
    /// As [`AccessError`] says; then nothing was lent.
    fn lend(
        &self,
        access: &Access,
        va: u64,
        length: usize,
        at: usize,
        crc: u32,
    ) -> Result<Option<u32>, AccessError> {
        let _ = (access, va, length, at, crc);
        Ok(None)
    }

    /// Copies `from` to registered memory at `va`: all but the last eight bytes, a release fence, then
    /// those (one aligned store where the end is aligned, else ascending), so that a consumer that polls the last byte
    /// finds the rest in place.
    ///
    /// # Errors
    /// As [`AccessError`] says; then nothing was written, but for `Fault` perhaps a part.
    fn write(&self, access: &Access, va: u64, from: &[u8]) -> Result<(), AccessError>;

    /// Executes `op` on the eight bytes at `va`, atomic among all atomics of the driver; returns the value before.
    ///
    /// # Errors
    /// As [`AccessError`] says; then nothing was changed.
    fn atomic(&self, access: &Access, va: u64, op: AtomicOp) -> Result<u64, AccessError>;

    /// Invalidates `key`, for a peer (SEND with Invalidate: windows of type 2 of this queue pair only) or a local request.
    ///
    /// # Errors
    /// `Key`, `Scope` or `Window`.
    fn invalidate(&self, key: u32, pd: Pd, qpn: Qpn, remote: bool) -> Result<(), AccessError>;

    /// Binds a window.
    ///
    /// # Errors
    /// `Window` for the window; `Key`, `Scope`, `Bounds` or `Right` for the region below.
    fn bind(&self, bind: &MwBind, pd: Pd, qpn: Qpn) -> Result<(), AccessError>;
}

impl<M: Memory + ?Sized> Memory for Arc<M> {
    fn check(&self, access: &Access, va: u64, length: u64) -> Result<(), AccessError> {
        (**self).check(access, va, length)
    }

    fn read(&self, access: &Access, va: u64, into: &mut [u8]) -> Result<(), AccessError> {
        (**self).read(access, va, into)
    }

    fn lend(
        &self,
        access: &Access,
        va: u64,
        length: usize,
        at: usize,
        crc: u32,
    ) -> Result<Option<u32>, AccessError> {
        (**self).lend(access, va, length, at, crc)
    }

    fn write(&self, access: &Access, va: u64, from: &[u8]) -> Result<(), AccessError> {
        (**self).write(access, va, from)
    }

    fn atomic(&self, access: &Access, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        (**self).atomic(access, va, op)
    }

    fn invalidate(&self, key: u32, pd: Pd, qpn: Qpn, remote: bool) -> Result<(), AccessError> {
        (**self).invalidate(key, pd, qpn, remote)
    }

    fn bind(&self, bind: &MwBind, pd: Pd, qpn: Qpn) -> Result<(), AccessError> {
        (**self).bind(bind, pd, qpn)
    }
}
