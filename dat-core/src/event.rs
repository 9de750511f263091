//! Events as core keeps them; `dat-abi` lays them out for C (`DAT_EVENT`, 48 bytes in 1.2, 120 in 2.0).

/// A C handle as a number: the address of the object, or 0.
pub type RawHandle = usize;

/// `DAT_DTO_COMPLETION_STATUS`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u32)]
pub enum DtoStatus {
    /// Done.
    #[default]
    Success = 0,
    /// Not done: the connection ended first.
    Flushed = 1,
    /// The message is longer than the receive buffer.
    LocalLength = 2,
    /// The local endpoint is broken.
    LocalEp = 3,
    /// A local segment is outside its LMR, or lacks the right.
    LocalProtection = 4,
    /// The peer's answer made no sense.
    BadResponse = 5,
    /// The peer refused the remote key, range or right.
    RemoteAccess = 6,
    /// The peer could not do it.
    RemoteResponder = 7,
    /// The transport's retries are used up.
    Transport = 8,
    /// The peer had no receive posted, and retries are used up.
    ReceiverNotReady = 9,
    /// A part of the message was lost.
    PartialPacket = 10,
    /// The bind failed.
    RmrOperationFailed = 11,
}

/// What completed, numbered as in 2.0 (`DAT_DTOS`, and `DAT_IB_DTOS` from 8 on).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u32)]
pub enum DtoOp {
    /// dat_ep_post_send.
    #[default]
    Send = 0,
    /// dat_ep_post_rdma_write.
    RdmaWrite = 1,
    /// dat_ep_post_rdma_read.
    RdmaRead = 2,
    /// dat_ep_post_recv, dat_srq_post_recv.
    Receive = 3,
    /// A receive whose message invalidated an RMR.
    ReceiveWithInvalidate = 4,
    /// dat_rmr_bind.
    BindMw = 5,
    /// A local invalidate.
    LmrInvalidate = 7,
    /// IB extension: RDMA Write with immediate data.
    RdmaWriteImmediate = 8,
    /// IB extension: receive of immediate data that came with an RDMA Write.
    ReceiveRdmaImmediate = 9,
    /// IB extension: fetch and add.
    FetchAdd = 10,
    /// IB extension: compare and swap.
    CompareSwap = 11,
    /// IB extension: receive of a message with immediate data.
    ReceiveMessageImmediate = 12,
    /// IB extension: unreliable datagram sent.
    SendUd = 13,
    /// IB extension: unreliable datagram received.
    ReceiveUd = 14,
}

impl DtoOp {
    /// Whether this completes a request (and not a receive).
    #[must_use]
    pub const fn is_request(self) -> bool {
        !matches!(
            self,
            Self::Receive
                | Self::ReceiveWithInvalidate
                | Self::ReceiveRdmaImmediate
                | Self::ReceiveMessageImmediate
                | Self::ReceiveUd
        )
    }
}

/// A completion of a DTO or an RMR bind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dto {
    /// The endpoint's handle.
    pub ep: RawHandle,
    /// For a bind, the RMR's handle; else 0.
    pub rmr: RawHandle,
    /// The cookie of the post.
    pub cookie: u64,
    /// How it ended.
    pub status: DtoStatus,
    /// What it was.
    pub op: DtoOp,
    /// Bytes: of the post for requests, of the message for receives and reads.
    pub length: u64,
    /// Key that the message invalidated.
    pub rmr_context: u32,
    /// Immediate data, as it was given to the post.
    pub immediate: u32,
}

/// Numbers of the connection events (`DAT_EVENT_NUMBER`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum ConnectionEvent {
    /// Connected.
    Established = 0x4001,
    /// The peer called dat_cr_reject.
    PeerRejected = 0x4002,
    /// Refused on the way.
    NonPeerRejected = 0x4003,
    /// dat_cr_accept could not be completed.
    AcceptCompletionError = 0x4004,
    /// The connection ended in order.
    Disconnected = 0x4005,
    /// The connection broke.
    Broken = 0x4006,
    /// The time given to dat_ep_connect is over.
    TimedOut = 0x4007,
    /// No way to the address.
    Unreachable = 0x4008,
}

/// Numbers of the IB extension's connection events of datagram endpoints (`DAT_IB_EVENT_NUMBER`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum DatagramEvent {
    /// The peer is found: datagrams may go there.
    Established = 0x4_0002,
    /// The peer called dat_cr_reject.
    Rejected = 0x4_0003,
    /// Nobody there, or no answer.
    Failed = 0x4_0004,
}

/// Numbers of the asynchronous errors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum AsyncEvent {
    /// An EVD had no room.
    EvdOverflow = 0x8001,
    /// The adapter is gone.
    IaCatastrophic = 0x8002,
    /// An endpoint is unusable.
    EpBroken = 0x8003,
    /// A timer of the provider ran out.
    TimedOut = 0x8004,
    /// A fault of the provider.
    ProviderInternalError = 0x8005,
}

/// One event of an EVD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// `DAT_DTO_COMPLETION_EVENT`, `DAT_RMR_BIND_COMPLETION_EVENT`, or an extension's.
    Dto(Dto),
    /// `DAT_CONNECTION_REQUEST_EVENT`.
    ConnectionRequest {
        /// PSP or RSP.
        sp: RawHandle,
        /// Where the request came in: family and address.
        local_address: std::net::IpAddr,
        /// The service point's qualifier.
        conn_qual: u64,
        /// The CR.
        cr: RawHandle,
        /// `DAT_IB_UD_CONNECTION_REQUEST_EVENT`: the peer is a datagram endpoint (IB extension).
        datagram: bool,
    },
    /// `DAT_CONNECTION_EVENT_*`. Private data stays in the endpoint until its next connection.
    Connection {
        /// Which.
        number: ConnectionEvent,
        /// The endpoint.
        ep: RawHandle,
    },
    /// `DAT_IB_UD_CONNECTION_*` (IB extension). What it tells, the address handle knows.
    Datagram {
        /// Which.
        number: DatagramEvent,
        /// The endpoint.
        ep: RawHandle,
        /// The address handle, also where there was none to be had.
        ah: RawHandle,
    },
    /// `DAT_ASYNC_ERROR_*`.
    Async {
        /// Which.
        number: AsyncEvent,
        /// Object concerned.
        handle: RawHandle,
        /// The specification's reason code.
        reason: u32,
    },
    /// `DAT_SOFTWARE_EVENT` with the consumer's pointer.
    Software(usize),
}
