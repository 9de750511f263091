//! What a peer may write into shared memory only by a fault or by intent.

/// A value in shared memory that breaks the protocol. The channel cannot be used any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// The consumer's index moved back, or beyond what was sent.
    #[error(
        "the peer's index {freed} of freed bytes is not from {known} to {tail}: its process has a fault; the channel ends"
    )]
    Freed {
        /// The value that was read.
        freed: u64,
        /// The value that was read before.
        known: u64,
        /// The producer's position.
        tail: u64,
    },
    /// The lengths of a record contradict each other or exceed the ring.
    #[error(
        "the peer's record of {length} bytes with a header of {header_length} and a payload of {payload_length} at {payload_at} does not fit in a ring of {size} bytes, or its payload exceeds {mtu}: its process has a fault; the channel ends"
    )]
    Record {
        /// Length of the record.
        length: u32,
        /// Length of the headers.
        header_length: u8,
        /// Where the payload begins.
        payload_at: u8,
        /// Length of the payload.
        payload_length: u32,
        /// Size of the ring in bytes.
        size: u64,
        /// Maximum length of a payload.
        mtu: u32,
    },
}
