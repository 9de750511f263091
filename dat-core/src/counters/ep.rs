//! Counters of an endpoint.

use std::sync::atomic::{AtomicU64, Ordering};

use super::counters;
use crate::event::DtoOp;

counters! {
    /// `DAT_EP_COUNTERS`. `…Data` are bytes.
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

/// A value for each counter.
pub(crate) type EpValues = [u64; EpCounter::ALL.len()];

/// What was posted to one queue. Written under the queue's lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Posted {
    counts: [u64; KINDS],
    /// Apart: were the two sums of a kind neighbours, the compiler would add them as a vector, in three times as many
    /// instructions.
    bytes: [u64; KINDS],
}

/// Operations are numbered below.
const KINDS: usize = DtoOp::ReceiveUd as usize + 1;

impl Posted {
    /// One more, of `bytes`.
    #[inline(always)]
    pub(crate) fn add(&mut self, op: DtoOp, bytes: u64) {
        let (count, sum) = (&mut self.counts[op as usize], &mut self.bytes[op as usize]);
        *count = count.wrapping_add(1);
        *sum = sum.wrapping_add(bytes);
    }

    /// Bytes of one more whose number is told by [`Posted::add_many`] later.
    #[inline(always)]
    pub(crate) fn add_bytes(&mut self, op: DtoOp, bytes: u64) {
        let sum = &mut self.bytes[op as usize];
        *sum = sum.wrapping_add(bytes);
    }

    /// So many more, whose bytes are told already.
    pub(crate) fn add_many(&mut self, op: DtoOp, count: u32) {
        let number = &mut self.counts[op as usize];
        *number = number.wrapping_add(count.into());
    }

    /// What was told of bytes came to nothing.
    pub(crate) fn take_back_bytes(&mut self, op: DtoOp, bytes: u64) {
        let sum = &mut self.bytes[op as usize];
        *sum = sum.wrapping_sub(bytes);
    }

    /// What was added last came to nothing.
    pub(crate) fn take_back(&mut self, op: DtoOp, bytes: u64) {
        let (count, sum) = (&mut self.counts[op as usize], &mut self.bytes[op as usize]);
        *count = count.wrapping_sub(1);
        *sum = sum.wrapping_sub(bytes);
    }

    /// Into the counters that count such operations.
    pub(crate) fn tell(&self, values: &mut EpValues) {
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

/// What was received: messages and bytes of each kind. Written under the lock of the EVD where receives complete, read
/// by anybody.
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

    /// So many more that brought nothing but data, `bytes` in all.
    pub(crate) fn add_plain(&self, messages: u64, bytes: u64) {
        self.add_to(0, messages, bytes);
    }

    /// One more of any kind.
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

    /// Into the counters that count such messages.
    pub(crate) fn tell(&self, values: &mut EpValues) {
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
        posted.tell(&mut values);
        let received = Received::new();
        received.add_plain(1, 3);
        received.add(DtoOp::ReceiveWithInvalidate, 4);
        received.add(DtoOp::ReceiveUd, 40);
        received.add(DtoOp::ReceiveMessageImmediate, 1);
        received.add(DtoOp::ReceiveRdmaImmediate, 9);
        received.tell(&mut values);
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
