//! Flag words of the DAT API. Unknown bits are kept, so that a check can refuse them.

use bitflags::bitflags;

bitflags! {
    /// `DAT_MEM_PRIV_FLAGS`: what may be done with a memory region or window (dat_lmr_create).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct MemPriv: u32 {
        /// A local DTO may read it.
        const LOCAL_READ = 0x01;
        /// A remote RDMA Read may read it.
        const REMOTE_READ = 0x02;
        /// A local DTO may write it.
        const LOCAL_WRITE = 0x10;
        /// A remote RDMA Write may write it.
        const REMOTE_WRITE = 0x20;
        /// IB extension: remote atomic operations.
        const REMOTE_ATOMIC = 0x40;
        /// `DAT_MEM_PRIV_ALL_FLAG`.
        const ALL = 0x33;
        /// Any right a remote peer could use.
        const REMOTE = 0x62;
    }

    /// `DAT_EVD_FLAGS`: the event streams that may feed an EVD (dat_evd_create).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct EvdFlags: u32 {
        /// dat_evd_post_se.
        const SOFTWARE = 0x001;
        /// Connection requests.
        const CR = 0x010;
        /// DTO completions.
        const DTO = 0x020;
        /// Connection events.
        const CONNECTION = 0x040;
        /// RMR bind completions.
        const RMR_BIND = 0x080;
        /// Asynchronous errors.
        const ASYNC = 0x100;
        /// Streams that come out of a completion queue.
        const QUEUED = 0x0a0;
    }

    /// `DAT_COMPLETION_FLAGS` of a post (dat_ep_post_send).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct CompletionFlags: u32 {
        /// No local event on success.
        const SUPPRESS = 0x01;
        /// The peer's receive completion is a notification event.
        const SOLICITED_WAIT = 0x02;
        /// No notification for the local completion.
        const UNSIGNALLED = 0x04;
        /// Wait for all earlier RDMA Reads of this EP.
        const BARRIER_FENCE = 0x08;
        /// Completion counts for the EVD's threshold (endpoint attribute).
        const EVD_THRESHOLD = 0x10;
        /// 2.0: wait for a local invalidate.
        const LMR_INVALIDATE_FENCE = 0x20;
    }
}

/// `DAT_CLOSE_FLAGS` (dat_ep_disconnect, dat_ia_close).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Close {
    /// At once: outstanding work is flushed. Value 0, the default.
    #[default]
    Abrupt,
    /// Outstanding requests complete first. Value 1.
    Graceful,
}

/// `DAT_MEM_TYPE` of an LMR (dat_lmr_create).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum MemType {
    /// A range of the caller's virtual memory.
    Virtual = 0,
    /// The range of another LMR.
    Lmr = 1,
    /// Memory shared between processes, named by a 40-byte cookie.
    SharedVirtual = 2,
}

/// 2.0 `DAT_VA_TYPE`: how remote addresses of a region are counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u32)]
pub enum VaType {
    /// By virtual address.
    #[default]
    Va = 0,
    /// From zero.
    ZeroBased = 1,
}
