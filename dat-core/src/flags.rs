//! Flag words of the DAT API. The types keep unknown bits, so that a check can refuse them.

use bitflags::bitflags;

bitflags! {
    /// Access rights of a memory region or window (`DAT_MEM_PRIV_FLAGS`, dat_lmr_create).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct MemPriv: u32 {
        /// A local DTO may read the memory.
        const LOCAL_READ = 0x01;
        /// A remote RDMA Read may read the memory.
        const REMOTE_READ = 0x02;
        /// A local DTO may write the memory.
        const LOCAL_WRITE = 0x10;
        /// A remote RDMA Write may write the memory.
        const REMOTE_WRITE = 0x20;
        /// A remote atomic operation may change the memory (IB extension).
        const REMOTE_ATOMIC = 0x40;
        /// All rights but atomics (`DAT_MEM_PRIV_ALL_FLAG`). The method `all()` returns them with atomics.
        const ALL = 0x33;
        /// All rights that a remote peer can use.
        const REMOTE = 0x62;
    }

    /// Event streams that may feed an EVD (`DAT_EVD_FLAGS`, dat_evd_create).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct EvdFlags: u32 {
        /// Software events (dat_evd_post_se).
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
        /// Streams whose events come out of a completion queue.
        const QUEUED = 0x0a0;
    }

    /// Flags of a post (`DAT_COMPLETION_FLAGS`, dat_ep_post_send).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct CompletionFlags: u32 {
        /// A success causes no local event.
        const SUPPRESS = 0x01;
        /// The peer's receive completion is a notification event.
        const SOLICITED_WAIT = 0x02;
        /// The local completion is not a notification event.
        const UNSIGNALLED = 0x04;
        /// The request starts after all earlier RDMA Reads of this EP have completed.
        const BARRIER_FENCE = 0x08;
        /// Completions count for the EVD's threshold (endpoint attribute).
        const EVD_THRESHOLD = 0x10;
        /// The request starts after a local invalidate has completed (2.0).
        const LMR_INVALIDATE_FENCE = 0x20;
    }
}

/// How a disconnect or close treats outstanding work (`DAT_CLOSE_FLAGS`, dat_ep_disconnect, dat_ia_close).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Close {
    /// It takes effect at once and flushes outstanding work. Value 0, the default.
    #[default]
    Abrupt,
    /// It takes effect when outstanding requests have completed. Value 1.
    Graceful,
}

/// Kind of memory of an LMR (`DAT_MEM_TYPE`, dat_lmr_create).
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

/// Origin of a region's addresses (`DAT_VA_TYPE` of 2.0).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u32)]
pub enum VaType {
    /// Addresses are the owner's virtual addresses.
    #[default]
    Va = 0,
    /// Addresses are offsets from the start of the region, those of local segments and of binds too.
    ZeroBased = 1,
}
