//! Counters of an endpoint.

use std::sync::atomic::{AtomicU64, Ordering};

use super::counters;
use crate::event::DtoOp;

counters! {
    /// Counters of an endpoint (`DAT_EP_COUNTERS`). Those with `…Data` count bytes.
    EpCounter: "DCNT_EP_";
    Connect = "CONNECT",
    Disconnect = "DISCONNECT",
    PostSend = "POST_SEND",
    PostSendData = "POST_SEND_DATA",
    PostSendUd = "POST_SEND_UD",
    PostSendUdData = "POST_SEND_UD_DATA",
    PostRecv = "POST_RECV",
    PostRecvData = "POST_RECV_DATA",
    PostWrite = "POST_WRITE",
    PostWriteData = "POST_WRITE_DATA",
    PostWriteImm = "POST_WRITE_IMM",
    PostWriteImmData = "POST_WRITE_IMM_DATA",
    PostRead = "POST_READ",
    PostReadData = "POST_READ_DATA",
    PostCmpSwap = "POST_CMP_SWAP",
    PostFetchAdd = "POST_FETCH_ADD",
    Recv = "RECV",
    RecvData = "RECV_DATA",
    RecvUd = "RECV_UD",
    RecvUdData = "RECV_UD_DATA",
    RecvImm = "RECV_IMM",
    RecvImmData = "RECV_IMM_DATA",
    RecvRdmaImm = "RECV_RDMA_IMM",
    RecvRdmaImmData = "RECV_RDMA_IMM_DATA",
}

/// Values of all counters of an endpoint.
pub(crate) type EpValues = [u64; EpCounter::ALL.len()];

/// Numbers and bytes of the posts to one queue. Written under the queue's lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Posted {
    counts: [u64; KINDS],
    /// A separate array: if the two sums of a kind were neighbours, the compiler would add them as a vector, with three times as
    /// many instructions.
    bytes: [u64; KINDS],
}

/// Number of operations that are posted: all `DtoOp`s up to this one.
const KINDS: usize = DtoOp::ReceiveUd as usize + 1;

impl Posted {
    /// Counts one post of `bytes`.
    #[inline(always)]
    pub(crate) fn add(&mut self, op: DtoOp, bytes: u64) {
        let (count, sum) = (&mut self.counts[op as usize], &mut self.bytes[op as usize]);
        *count = count.wrapping_add(1);
        *sum = sum.wrapping_add(bytes);
    }

    /// Adds the bytes of a post that [`Posted::add_many`] counts later.
    #[inline(always)]
    pub(crate) fn add_bytes(&mut self, op: DtoOp, bytes: u64) {
        let sum = &mut self.bytes[op as usize];
        *sum = sum.wrapping_add(bytes);
    }

    /// Counts `count` posts whose bytes were added before.
    pub(crate) fn add_many(&mut self, op: DtoOp, count: u32) {
        let number = &mut self.counts[op as usize];
        *number = number.wrapping_add(count.into());
    }

    /// Subtracts the bytes of a post that failed.
    pub(crate) fn take_back_bytes(&mut self, op: DtoOp, bytes: u64) {
        let sum = &mut self.bytes[op as usize];
        *sum = sum.wrapping_sub(bytes);
    }

    /// Subtracts a post that failed.
    pub(crate) fn take_back(&mut self, op: DtoOp, bytes: u64) {
        let (count, sum) = (&mut self.counts[op as usize], &mut self.bytes[op as usize]);
        *count = count.wrapping_sub(1);
        *sum = sum.wrapping_sub(bytes);
    }

    /// Adds the numbers to the counters of these operations.
    pub(crate) fn add_into(&self, values: &mut EpValues) {
        use EpCounter as C;
        for (op, count, bytes) in [
            (DtoOp::Send, C::PostSend, Some(C::PostSendData)),
            (DtoOp::SendUd, C::PostSendUd, Some(C::PostSendUdData)),
            (DtoOp::Receive, C::PostRecv, Some(C::PostRecvData)),
            (DtoOp::RdmaWrite, C::PostWrite, Some(C::PostWriteData)),
            (
                DtoOp::RdmaWriteImmediate,
                C::PostWriteImm,
                Some(C::PostWriteImmData),
            ),
            (DtoOp::RdmaRead, C::PostRead, Some(C::PostReadData)),
            (DtoOp::CompareSwap, C::PostCmpSwap, None),
            (DtoOp::FetchAdd, C::PostFetchAdd, None),
        ] {
            values[count as usize] += self.counts[op as usize];
            if let Some(bytes) = bytes {
                values[bytes as usize] += self.bytes[op as usize];
            }
        }
    }
}

/// Numbers and bytes of received messages of each kind. Written under the lock of the EVD where receives complete; any thread may
/// read them.
#[derive(Debug)]
pub(crate) struct Received {
    counts: [AtomicU64; 4],
    bytes: [AtomicU64; 4],
}

impl Received {
    pub(crate) const fn new() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; 4],
            bytes: [const { AtomicU64::new(0) }; 4],
        }
    }

    /// Counts `messages` that have no immediate data, with `bytes` in all.
    pub(crate) fn add_plain(&self, messages: u64, bytes: u64) {
        self.add_to(0, messages, bytes);
    }

    /// Counts one message of any kind.
    pub(crate) fn add(&self, op: DtoOp, bytes: u64) {
        self.add_to(
            match op {
                DtoOp::ReceiveUd => 1,
                DtoOp::ReceiveMessageImmediate => 2,
                DtoOp::ReceiveRdmaImmediate => 3,
                _ => 0,
            },
            1,
            bytes,
        );
    }

    fn add_to(&self, kind: usize, messages: u64, bytes: u64) {
        // One writer at a time: no locked instruction is needed.
        let more = |to: &AtomicU64, by: u64| {
            to.store(
                to.load(Ordering::Relaxed).wrapping_add(by),
                Ordering::Relaxed,
            );
        };
        more(&self.counts[kind], messages);
        more(&self.bytes[kind], bytes);
    }

    /// Adds the numbers to the counters of these messages.
    pub(crate) fn add_into(&self, values: &mut EpValues) {
        let first = EpCounter::Recv as usize;
        let seen = std::iter::zip(&self.counts, &self.bytes).flat_map(|(count, sum)| [count, sum]);
        for (value, counted) in values[first..].iter_mut().zip(seen) {
            *value += counted.load(Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_its_counters() {
        use EpCounter as C;
        let mut values = [0; EpCounter::ALL.len()];
        let mut posted = Posted::default();
        posted.add(DtoOp::Send, 10);
        posted.add(DtoOp::Send, 5);
        posted.add(DtoOp::RdmaWriteImmediate, 7);
        posted.add(DtoOp::FetchAdd, 8);
        posted.add_bytes(DtoOp::Receive, 60);
        posted.add_bytes(DtoOp::Receive, 40);
        posted.take_back_bytes(DtoOp::Receive, 40);
        posted.add_many(DtoOp::Receive, 1);
        posted.add_into(&mut values);
        let received = Received::new();
        received.add_plain(1, 3);
        received.add(DtoOp::ReceiveWithInvalidate, 4);
        received.add(DtoOp::ReceiveUd, 40);
        received.add(DtoOp::ReceiveMessageImmediate, 1);
        received.add(DtoOp::ReceiveRdmaImmediate, 9);
        received.add_into(&mut values);
        for (counter, value) in [
            (C::PostSend, 2),
            (C::PostSendData, 15),
            (C::PostWriteImm, 1),
            (C::PostWriteImmData, 7),
            (C::PostFetchAdd, 1),
            (C::PostCmpSwap, 0),
            (C::PostRecv, 1),
            (C::PostRecvData, 60),
            (C::Recv, 2),
            (C::RecvData, 7),
            (C::RecvUd, 1),
            (C::RecvUdData, 40),
            (C::RecvImm, 1),
            (C::RecvImmData, 1),
            (C::RecvRdmaImm, 1),
            (C::RecvRdmaImmData, 9),
        ] {
            assert_eq!(values[counter as usize], value, "{}", counter.name());
        }
    }
}
