//! Words for operations, their results, ends of connections, and streams, in messages of errors.

use dat_core::event::{ConnectionEvent, DtoOp, DtoStatus};

use crate::Streams;

/// Names an operation.
pub(crate) fn name(op: DtoOp) -> &'static str {
    match op {
        DtoOp::Send => "a send",
        DtoOp::RdmaWrite => "an RDMA Write",
        DtoOp::RdmaRead => "an RDMA Read",
        DtoOp::RdmaWriteImmediate => "an RDMA Write with immediate data",
        DtoOp::FetchAdd => "a fetch-and-add",
        DtoOp::CompareSwap => "a compare-and-swap",
        DtoOp::BindMw => "a bind of a window",
        DtoOp::LmrInvalidate => "an invalidation",
        DtoOp::SendUd => "a datagram",
        DtoOp::ReceiveUd => "a receive of a datagram",
        DtoOp::Receive
        | DtoOp::ReceiveWithInvalidate
        | DtoOp::ReceiveRdmaImmediate
        | DtoOp::ReceiveMessageImmediate => "a receive",
    }
}

/// Says what to do where a function lacks a resource. What an open lacks is rarely exhausted: another user's process may have the port.
pub(crate) fn scarce(call: &str) -> &'static str {
    match call {
        "dat_ia_open" => {
            "the provider lacks a device, port or memory; its message says which (set DAT_LOG=error if there is none), and `dat doctor` what mends it"
        }
        _ => "out of resources; free objects, or raise the limits of memory and open files",
    }
}

/// Says which state a function needs.
pub(crate) fn forbidden(call: &str) -> &'static str {
    match call {
        "dat_ep_modify" => {
            "only an endpoint that is not connected, and on which nothing is posted, can be changed"
        }
        _ => "the state of the object does not allow this",
    }
}

/// Says what is wrong with an address. That of an open is the device field of dat.conf.
pub(crate) fn no_address(call: &str) -> &'static str {
    match call {
        "dat_ia_open" => {
            "this machine has no such device, or it has no address that peers can connect to; the provider's message says which (set DAT_LOG=error if there is none)"
        }
        _ => "the address cannot be reached",
    }
}

/// Describes the status of an operation that failed, and what mends it.
pub(crate) fn result(op: DtoOp, status: DtoStatus) -> &'static str {
    let is_atomic = matches!(op, DtoOp::FetchAdd | DtoOp::CompareSwap);
    match status {
        DtoStatus::RemoteAccess if is_atomic => {
            "the peer's key, range or rights do not allow it; the region must live, be of the zone of the peer's endpoint, and grant Access::REMOTE_ATOMIC, which Access::ALL does not have"
        }
        DtoStatus::RemoteResponder if is_atomic => {
            "the peer could not process it; the word must be 8 bytes at an address that is a multiple of 8"
        }
        DtoStatus::RemoteResponder if op == DtoOp::Send => {
            "the peer could not process it; look there at the length of its receives, for which the message may be too long"
        }
        DtoStatus::Success => "it succeeded",
        DtoStatus::Flushed => "the connection ended before it was done",
        DtoStatus::LocalLength => {
            "the message is longer than the receive; the side that receives must post larger ones (Options::message_size)"
        }
        DtoStatus::LocalEp => {
            "the endpoint is broken; connect again, with another endpoint or after a reset"
        }
        DtoStatus::LocalProtection => {
            "the local memory or its rights do not allow it; look at the access of the region"
        }
        DtoStatus::BadResponse => "the peer's response is invalid",
        DtoStatus::RemoteAccess => {
            "the peer's key, range or rights do not allow it; the region must live, be of the zone of the peer's endpoint, and grant peers this access"
        }
        DtoStatus::RemoteResponder => "the peer could not process it",
        DtoStatus::Transport => "the peer does not answer any more; connect again when it is back",
        DtoStatus::ReceiverNotReady => {
            "the peer has no receive posted; it must post receives before messages arrive"
        }
        DtoStatus::PartialPacket => "a part of the message was lost",
        DtoStatus::RmrOperationFailed => "the bind of the window failed",
    }
}

/// Describes the end of a connection.
pub(crate) fn end(how: ConnectionEvent) -> &'static str {
    match how {
        ConnectionEvent::Established => "the connection is established",
        ConnectionEvent::PeerRejected => "the peer rejected the connection request",
        ConnectionEvent::NonPeerRejected => {
            "nothing listens at the peer's address; check the qualifier, and that the peer runs"
        }
        ConnectionEvent::AcceptCompletionError => {
            "the peer went away while the request was accepted"
        }
        ConnectionEvent::Disconnected => "the connection was closed",
        ConnectionEvent::Broken => {
            "the connection broke: the peer does not answer any more, or an operation failed"
        }
        ConnectionEvent::TimedOut => "the peer did not answer the connection request in time",
        ConnectionEvent::Unreachable => {
            "the peer's host does not answer, or no route leads to it; check the address, the firewalls, and that the peer runs"
        }
    }
}

/// Names streams as a program writes them.
pub(crate) fn streams(streams: Streams) -> String {
    let names = streams
        .iter_names()
        .map(|(name, _)| format!("Streams::{name}"));
    names.collect::<Vec<_>>().join(" | ")
}
