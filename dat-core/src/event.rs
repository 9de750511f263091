//! Events in core's form; `dat-abi` converts them to C's layouts (`DAT_EVENT`, 48 bytes in 1.2, 120 in 2.0).

/// C handle as a number: the address of the object, or 0.
pub type RawHandle = usize;

/// `DAT_DTO_COMPLETION_STATUS`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u32)]
pub enum DtoStatus {
    /// The work request succeeded.
    #[default]
    Success = 0,
    /// The connection ended before the work request was done.
    Flushed = 1,
    /// The message is longer than the receive buffer.
    LocalLength = 2,
    /// The local endpoint is broken.
    LocalEp = 3,
    /// A local segment is outside of its LMR, or the LMR lacks the right.
    LocalProtection = 4,
    /// The peer's response is invalid.
    BadResponse = 5,
    /// The peer refused the remote key, range or right.
    RemoteAccess = 6,
    /// The peer could not process the request.
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

/// Operation of a completion, numbered as in 2.0 (`DAT_DTOS`, and `DAT_IB_DTOS` from 8 on).
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
    /// Returns true for the completion of a request, false for that of a receive.
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

/// Completion of a DTO or an RMR bind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dto {
    /// Handle of the endpoint.
    pub ep: RawHandle,
    /// Handle of the RMR of a bind; else 0.
    pub rmr: RawHandle,
    /// Cookie of the post.
    pub cookie: u64,
    /// Status of the work request.
    pub status: DtoStatus,
    /// Operation of the work request.
    pub op: DtoOp,
    /// Length in bytes: of the post for requests, of the message for receives and reads.
    pub length: u64,
    /// Key that the message invalidated, or 0.
    pub rmr_context: u32,
    /// Immediate data, as given to the post.
    pub immediate: u32,
}

/// Connection event by number (`DAT_EVENT_NUMBER`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum ConnectionEvent {
    /// The connection is established.
    Established = 0x4001,
    /// The peer called dat_cr_reject.
    PeerRejected = 0x4002,
    /// The request was rejected, but not by the peer's consumer.
    NonPeerRejected = 0x4003,
    /// dat_cr_accept could not be completed.
    AcceptCompletionError = 0x4004,
    /// The connection ended by a disconnect.
    Disconnected = 0x4005,
    /// The connection broke.
    Broken = 0x4006,
    /// The timeout of dat_ep_connect expired.
    TimedOut = 0x4007,
    /// The address has no route, or nothing answered until the connection manager gave up.
    Unreachable = 0x4008,
}

/// Connection event of a datagram endpoint by number (`DAT_IB_EVENT_NUMBER`, IB extension).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum DatagramEvent {
    /// The peer is found: datagrams can be sent to it.
    Established = 0x4_0002,
    /// The peer called dat_cr_reject.
    Rejected = 0x4_0003,
    /// The peer has no listener, or does not answer.
    Failed = 0x4_0004,
}

/// Asynchronous error by number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum AsyncEvent {
    /// An EVD or its completion queue overflowed.
    EvdOverflow = 0x8001,
    /// The adapter is gone.
    IaCatastrophic = 0x8002,
    /// An endpoint cannot be used any more.
    EpBroken = 0x8003,
    /// A timer of the provider expired.
    TimedOut = 0x8004,
    /// The provider has an internal fault.
    ProviderInternalError = 0x8005,
}

/// Event of an EVD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// `DAT_DTO_COMPLETION_EVENT`, `DAT_RMR_BIND_COMPLETION_EVENT`, or an extension's.
    Dto(Dto),
    /// `DAT_CONNECTION_REQUEST_EVENT`.
    ConnectionRequest {
        /// Handle of the service point: PSP or RSP.
        sp: RawHandle,
        /// Local address that the request was sent to.
        local_address: std::net::IpAddr,
        /// Qualifier of the service point.
        conn_qual: u64,
        /// Handle of the CR.
        cr: RawHandle,
        /// `DAT_IB_UD_CONNECTION_REQUEST_EVENT`: the peer is a datagram endpoint (IB extension).
        datagram: bool,
    },
    /// `DAT_CONNECTION_EVENT_*`. The private data stays in the endpoint until its next connection.
    Connection {
        /// Number of the event.
        number: ConnectionEvent,
        /// Handle of the endpoint.
        ep: RawHandle,
    },
    /// `DAT_IB_UD_CONNECTION_*` (IB extension). The address handle has the details.
    Datagram {
        /// Number of the event.
        number: DatagramEvent,
        /// Handle of the endpoint.
        ep: RawHandle,
        /// Handle of the address handle, also if the lookup failed.
        ah: RawHandle,
    },
    /// `DAT_ASYNC_ERROR_*`.
    Async {
        /// Number of the event.
        number: AsyncEvent,
        /// Handle of the object concerned.
        handle: RawHandle,
        /// Reason code of the specification.
        reason: u32,
    },
    /// `DAT_SOFTWARE_EVENT` with the consumer's pointer.
    Software(usize),
}
