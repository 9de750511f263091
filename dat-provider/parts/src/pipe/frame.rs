//! What two queue pairs send each other: requests, an answer for each of them in order, and the two ends.

use dat_core::event::DtoStatus;
use dat_core::iov::RmrTriplet;
use dat_core::transport::{Op, Transport};

/// Longest message or RDMA operation in bytes.
pub const MAX_MESSAGE: usize = 64 << 20;

/// Length of a frame without its data.
const HEADER: usize = 42;

/// Greatest length of a frame.
pub const MAX_FRAME: usize = HEADER + MAX_MESSAGE;

/// Kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Send,
    SendImmediate,
    Write,
    WriteImmediate,
    Read,
    CompareSwap,
    FetchAdd,
    /// Answer to the oldest request that has none.
    Answer,
    /// The sender disconnects.
    Goodbye,
    /// The sender found an error that breaks the connection.
    Broken,
}

const KINDS: [Kind; 10] = [
    Kind::Send,
    Kind::SendImmediate,
    Kind::Write,
    Kind::WriteImmediate,
    Kind::Read,
    Kind::CompareSwap,
    Kind::FetchAdd,
    Kind::Answer,
    Kind::Goodbye,
    Kind::Broken,
];

/// The statuses that an answer may have.
const STATUSES: [DtoStatus; 3] = [
    DtoStatus::Success,
    DtoStatus::RemoteAccess,
    DtoStatus::RemoteResponder,
];

/// A frame. Which fields mean something depends on the kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) solicited: bool,
    pub(super) status: DtoStatus,
    pub(super) immediate: u32,
    pub(super) key: u32,
    pub(super) address: u64,
    /// Bytes to read. The length of other operations is that of the data.
    pub(super) length: u64,
    /// Operands of an atomic: the summand, or the expected and the new value.
    pub(super) operands: [u64; 2],
    pub(super) data: Vec<u8>,
}

impl Frame {
    pub(super) const fn of(kind: Kind) -> Self {
        Self {
            kind,
            solicited: false,
            status: DtoStatus::Success,
            immediate: 0,
            key: 0,
            address: 0,
            length: 0,
            operands: [0; 2],
            data: Vec::new(),
        }
    }

    pub(super) fn answer(status: DtoStatus, data: Vec<u8>) -> Self {
        let mut frame = Self::of(Kind::Answer);
        frame.status = status;
        frame.data = data;
        frame
    }

    const fn at(kind: Kind, remote: RmrTriplet) -> Self {
        let mut frame = Self::of(kind);
        frame.key = remote.rmr_context;
        frame.address = remote.virtual_address;
        frame
    }

    /// Returns the frame of an operation without its data; `None` if pipes do not have that operation.
    pub(super) fn request<T: Transport>(op: Op<'_, T>) -> Option<Self> {
        let mut frame = match op {
            Op::Send => Self::of(Kind::Send),
            Op::SendWithImmediate(_) => Self::of(Kind::SendImmediate),
            Op::RdmaWrite(remote) => Self::at(Kind::Write, remote),
            Op::RdmaWriteWithImmediate(remote, _) => Self::at(Kind::WriteImmediate, remote),
            Op::RdmaRead(remote) => Self::at(Kind::Read, remote),
            Op::CompareSwap { remote, .. } => Self::at(Kind::CompareSwap, remote),
            Op::FetchAdd { remote, .. } => Self::at(Kind::FetchAdd, remote),
            _ => return None,
        };
        match op {
            Op::SendWithImmediate(data) | Op::RdmaWriteWithImmediate(_, data) => {
                frame.immediate = data;
            }
            Op::CompareSwap { compare, swap, .. } => frame.operands = [compare, swap],
            Op::FetchAdd { add, .. } => frame.operands = [add, 0],
            _ => {}
        }
        Some(frame)
    }

    /// Returns true if the answer brings bytes to local memory.
    pub(super) fn reads(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::CompareSwap | Kind::FetchAdd)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.data.len());
        let kind = KINDS.iter().position(|kind| *kind == self.kind);
        let status = STATUSES.iter().position(|status| *status == self.status);
        bytes.push(kind.unwrap_or_default() as u8);
        bytes.push(status.unwrap_or(STATUSES.len() - 1) as u8 | u8::from(self.solicited) << 7);
        bytes.extend(self.immediate.to_be_bytes());
        bytes.extend(self.key.to_be_bytes());
        for word in [
            self.address,
            self.length,
            self.operands[0],
            self.operands[1],
        ] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(&self.data);
        bytes
    }

    /// Reads a frame; `None` if it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, data) = bytes.split_at_checked(HEADER)?;
        let word = |at: usize| -> Option<u64> {
            Some(u64::from_be_bytes(header[at..at + 8].try_into().ok()?))
        };
        let half = |at: usize| -> Option<u32> {
            Some(u32::from_be_bytes(header[at..at + 4].try_into().ok()?))
        };
        Some(Self {
            kind: *KINDS.get(usize::from(header[0]))?,
            solicited: header[1] & 0x80 != 0,
            status: *STATUSES.get(usize::from(header[1] & 0x7f))?,
            immediate: half(2)?,
            key: half(6)?,
            address: word(10)?,
            length: word(18)?,
            operands: [word(26)?, word(34)?],
            data: data.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_survives_the_pipe_and_nonsense_is_refused() {
        for kind in KINDS {
            for status in STATUSES {
                let frame = Frame {
                    kind,
                    solicited: kind == Kind::Send,
                    status,
                    immediate: 1,
                    key: 0x8000_0002,
                    address: 3 << 40,
                    length: 4,
                    operands: [5, u64::MAX],
                    data: vec![7; 3],
                };
                assert_eq!(Frame::decode(&frame.encode()), Some(frame));
            }
        }
        let good = Frame::of(Kind::Goodbye).encode();
        assert_eq!(Frame::decode(&good[..HEADER - 1]), None);
        let mut unknown = good.clone();
        unknown[0] = KINDS.len() as u8;
        assert_eq!(Frame::decode(&unknown), None);
        unknown[..2].copy_from_slice(&[0, STATUSES.len() as u8]);
        assert_eq!(Frame::decode(&unknown), None);
    }
}
