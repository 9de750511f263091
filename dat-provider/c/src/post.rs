//! Requests of core as `dat_transport.h` has them.

use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::transport::{Op, Request};

use crate::CTransport;
use crate::table::{FENCE, Post, SIGNALED, SOLICITED, op};

/// Returns pointer and number of segments.
pub(crate) fn segments(iov: &[LmrTriplet]) -> (*const LmrTriplet, u32) {
    (iov.as_ptr(), iov.len() as u32)
}

/// Returns the flags of a request or a bind.
pub(crate) fn flags(signaled: bool, solicited: bool, fence: bool) -> u32 {
    let bit = |on: bool, bit| if on { bit } else { 0 };
    bit(signaled, SIGNALED) | bit(solicited, SOLICITED) | bit(fence, FENCE)
}

/// Returns the request as C has it; `None` if C has no such operation.
pub(crate) fn request(request: &Request<'_, CTransport>) -> Option<Post> {
    let (iov, iov_count) = segments(request.iov);
    let mut post = Post {
        id: request.id.0,
        op: op::SEND,
        flags: flags(request.signaled, request.solicited, request.fence),
        iov,
        length: request.length,
        remote_address: 0,
        operands: [0; 2],
        iov_count,
        key: 0,
        immediate: 0,
        reserved: 0,
    };
    let mut at = |operation: u32, remote: RmrTriplet| {
        post.op = operation;
        post.remote_address = remote.virtual_address;
        post.key = remote.rmr_context;
    };
    match request.op {
        Op::Send => {}
        Op::SendWithInvalidate(key) => (post.op, post.key) = (op::SEND_INVALIDATE, key),
        Op::SendWithImmediate(data) => (post.op, post.immediate) = (op::SEND_IMMEDIATE, data),
        Op::RdmaWrite(remote) => at(op::WRITE, remote),
        Op::RdmaWriteWithImmediate(remote, data) => {
            at(op::WRITE_IMMEDIATE, remote);
            post.immediate = data;
        }
        Op::RdmaRead(remote) => at(op::READ, remote),
        Op::CompareSwap {
            remote,
            compare,
            swap,
        } => {
            at(op::COMPARE_SWAP, remote);
            post.operands = [compare, swap];
        }
        Op::FetchAdd { remote, add } => {
            at(op::FETCH_ADD, remote);
            post.operands = [add, 0];
        }
        _ => return None,
    }
    Some(post)
}
