//! The `Memory` trait: the engine's only access to memory.

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

/// A protection domain, numbered by the driver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pd(pub u32);

/// An access to registered memory: its key, its queue pair and the right that it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// L_Key for the `LOCAL_*` rights, R_Key for the `REMOTE_*` rights.
    pub key: u32,
    /// Protection domain of the queue pair.
    pub pd: Pd,
    /// The queue pair: windows of type 2 belong to one.
    pub qpn: Qpn,
    /// The required right, exactly one.
    pub need: Rights,
}

/// An atomic operation on eight aligned bytes in host order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Store `swap` if the value is `compare`.
    CompareSwap {
        /// Value expected.
        compare: u64,
        /// Value to store.
        swap: u64,
    },
    /// Add with wrap-around.
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
    /// Name of the window for [`Memory`], which stays the same when its key changes.
    pub window: u64,
    /// Number of this bind among those of the window, in the order of posting. Binds that were posted to different queue pairs may be executed
    /// in another order; the one that was posted last decides. It wraps.
    pub order: u32,
    /// The window's new key, which no other memory has.
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

/// Reason to refuse an access. The peer receives only "remote access error".
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccessError {
    /// No live region or window has the key.
    #[error("key {0:#010x} names no live region or window; it may have been freed or invalidated")]
    Key(u32),
    /// The key belongs to another protection domain or queue pair.
    #[error("key {0:#010x} belongs to another protection domain or queue pair")]
    Scope(u32),
    /// The range is not within what the key grants.
    #[error("range {va:#x}+{length} is not within what key {key:#010x} grants")]
    Bounds {
        /// The key used.
        key: u32,
        /// First byte of the range.
        va: u64,
        /// Bytes of the range.
        length: u64,
    },
    /// The right is not granted.
    #[error("key {key:#010x} does not grant {need:?}")]
    Right {
        /// The key used.
        key: u32,
        /// The required right, exactly one.
        need: Rights,
    },
    /// The access is granted, but the memory is not mapped any more or has lost the right.
    #[error("key {key:#010x} grants {va:#x}+{length}, but the memory is missing or protected now")]
    Fault {
        /// The key used.
        key: u32,
        /// First byte of the range.
        va: u64,
        /// Bytes of the range.
        length: u64,
    },
    /// The access is granted, but the peer's memory, which the record lends, could not be read or was taken back.
    #[error(
        "key {key:#010x} grants {va:#x}+{length}, but the memory that the peer lends for it cannot be read"
    )]
    Withdrawn {
        /// The key used.
        key: u32,
        /// First byte of the range.
        va: u64,
        /// Bytes of the range.
        length: u64,
    },
    /// The address of an atomic is not a multiple of eight.
    #[error("address {0:#x} of an atomic is not 8-byte aligned")]
    Alignment(u64),
    /// The window's state does not allow the bind or invalidation.
    #[error("window key {0:#010x} cannot be bound or invalidated in its present state")]
    Window(u32),
}

/// Registered memory, implemented by the driver.
///
/// Every call checks key, protection domain, queue pair (windows of type 2), right and `va..va + length` (without overflow)
/// before it touches a byte, and touches none if the check fails. After a deregistration or invalidation has returned, no
/// call with that key may touch memory. The memory may change at any time: implementations copy it and never make
/// references to it.
pub trait Memory {
    /// Checks an access to `length` bytes at `va`.
    ///
    /// # Errors
    /// See [`AccessError`].
    fn check(&self, access: &Access, va: u64, length: u64) -> Result<(), AccessError>;

    /// Copies registered memory at `va` to `into`.
    ///
    /// # Errors
    /// See [`AccessError`]; the contents of `into` are unspecified then.
    fn read(&self, access: &Access, va: u64, into: &mut [u8]) -> Result<(), AccessError>;

    /// Lends `length` bytes at `va` to the run that is being written: the driver sends them from their place, at `at` of
    /// the buffer, whose bytes there stay unwritten. The engine asks only for payload of SENDs and RDMA WRITEs, which the
    /// consumer must not change before they complete. If it does, the checksum is wrong, the peer drops the packet, and it
    /// is sent again. Returns `crc`, the CRC-32 of what precedes, continued over these bytes; `None`: not lent, the engine
    /// copies.
    ///
    /// # Errors
    /// See [`AccessError`]; nothing was lent then.
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

    /// Copies `from` to registered memory at `va`: all but the last eight bytes, a release fence, then those eight (one
    /// aligned store where the end is aligned, otherwise in ascending order). So a consumer that polls the last byte finds
    /// the rest in place.
    ///
    /// # Errors
    /// See [`AccessError`]; nothing was written then, except perhaps a part for `Fault`.
    fn write(&self, access: &Access, va: u64, from: &[u8]) -> Result<(), AccessError>;

    /// Copies `length` bytes of registered memory at `va` to position `at` of the record that the driver prepared for
    /// `Engine::poll_near`. Only an engine with [channels](crate::near) calls it.
    ///
    /// # Errors
    /// See [`AccessError`]; what the record has from `at` on is unspecified then.
    fn fill(&self, access: &Access, va: u64, length: usize, at: usize) -> Result<(), AccessError> {
        let _ = at;
        Err(without_channel(access, va, length))
    }

    /// Returns true if the record that the driver prepared for `Engine::poll_near` may lend its payload.
    fn lends(&self) -> bool {
        false
    }

    /// Lends `length` bytes of registered memory at `va` to the peer, which copies them itself when it handles the record. Writes
    /// what the peer needs for that, [`LENT_LEN`](crate::near::LENT_LEN) bytes, to position `at` of the record. Only called
    /// after [`lends`](Self::lends) returned true for the record.
    ///
    /// A deregistration, an invalidation, or a [`recall`](Self::recall) takes the bytes back before it returns: a copy that
    /// ends later fails with [`AccessError::Withdrawn`] at the peer, and the packet is repeated, copied.
    ///
    /// # Errors
    /// See [`AccessError`]; nothing is lent then.
    fn lend_record(
        &self,
        access: &Access,
        va: u64,
        length: usize,
        at: usize,
    ) -> Result<(), AccessError> {
        let _ = at;
        Err(without_channel(access, va, length))
    }

    /// Takes back what is lent for queue pair `qpn`, whose requests have ended: the consumer may change their memory.
    fn recall(&self, qpn: Qpn) {
        let _ = qpn;
    }

    /// Copies `length` bytes at position `at` of the record that is being handled by `Engine::handle_near`, or of the memory that it
    /// lends, to registered memory at `va`: for `REMOTE_WRITE` in the order of [`write`](Self::write), for a receive in any order. Only an
    /// engine with [channels](crate::near) calls it.
    ///
    /// # Errors
    /// See [`AccessError`]; nothing was written then, except perhaps a part for `Fault` and `Withdrawn`.
    fn place(&self, access: &Access, va: u64, at: usize, length: usize) -> Result<(), AccessError> {
        let _ = at;
        Err(without_channel(access, va, length))
    }

    /// Executes `op` on the eight bytes at `va`, atomically with respect to all atomics of the driver. Returns the value
    /// before.
    ///
    /// # Errors
    /// See [`AccessError`]; nothing was changed then.
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

/// Returns the error of memory that has no records.
const fn without_channel(access: &Access, va: u64, length: usize) -> AccessError {
    AccessError::Fault {
        key: access.key,
        va,
        length: length as u64,
    }
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

    fn fill(&self, access: &Access, va: u64, length: usize, at: usize) -> Result<(), AccessError> {
        (**self).fill(access, va, length, at)
    }

    fn lends(&self) -> bool {
        (**self).lends()
    }

    fn lend_record(
        &self,
        access: &Access,
        va: u64,
        length: usize,
        at: usize,
    ) -> Result<(), AccessError> {
        (**self).lend_record(access, va, length, at)
    }

    fn recall(&self, qpn: Qpn) {
        (**self).recall(qpn);
    }

    fn place(&self, access: &Access, va: u64, at: usize, length: usize) -> Result<(), AccessError> {
        (**self).place(access, va, at, length)
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
