//! Conversion of requests, completions and errors between core's types and the protocol's.

use std::hint::black_box;
use std::io;

use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::event::{DtoOp, DtoStatus};
use dat_core::flags::MemPriv;
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::transport::{Completion, Op, Token, Transport, WrId};
use softrxe_proto as proto;
use softrxe_proto::{
    CmError, CompletedOp, DatagramPeer, PostError, Qpn, Remote, Rights, Sge, Status,
};

use crate::adapter::datagram::AddressHandle;

/// Largest number of segments of a request or receive.
pub(super) const MAX_IOV: usize = 16;

/// A limit was reached.
pub(super) const FULL: Error = Error::of(Kind::InsufficientResources);
/// A failure for which core has no error.
pub(super) const INTERNAL: Error = Error::of(Kind::InternalError);

/// Converts the rights of a region or window.
pub(super) fn rights(of: MemPriv) -> Rights {
    let mut rights = Rights::LOCAL_READ;
    for (from, to) in [
        (MemPriv::LOCAL_WRITE, Rights::LOCAL_WRITE),
        (MemPriv::REMOTE_READ, Rights::REMOTE_READ),
        (MemPriv::REMOTE_WRITE, Rights::REMOTE_WRITE),
        (MemPriv::REMOTE_ATOMIC, Rights::REMOTE_ATOMIC),
    ] {
        if of.contains(from) {
            rights |= to;
        }
    }
    rights
}

/// Converts a segment.
#[inline(always)]
pub(super) fn sge(segment: &LmrTriplet) -> Sge {
    Sge {
        address: segment.virtual_address,
        // Opaque, so that compilers do not load it together with the key: the program stored both apart just before, for which such a load
        // would wait.
        length: black_box(segment.segment_length),
        key: segment.lmr_context,
    }
}

/// Room for converted segments. Most posts have one, for which the larger room is not initialised.
#[derive(Default)]
pub(super) struct Sges {
    one: [Sge; 1],
    several: Option<[Sge; MAX_IOV]>,
}

impl Sges {
    /// Converts segments. Refuses more than [`MAX_IOV`].
    #[inline]
    pub(super) fn convert(&mut self, iov: &[LmrTriplet]) -> Result<&[Sge]> {
        if let [segment] = iov {
            self.one = [sge(segment)];
            return Ok(&self.one);
        }
        self.convert_several(iov)
    }

    #[inline(never)]
    fn convert_several(&mut self, iov: &[LmrTriplet]) -> Result<&[Sge]> {
        let room = self.several.insert([Sge::default(); MAX_IOV]);
        let used = room.get_mut(..iov.len()).ok_or(FULL)?;
        for (to, segment) in used.iter_mut().zip(iov) {
            *to = sge(segment);
        }
        Ok(used)
    }
}

/// Converts a remote address.
pub(super) const fn remote(at: RmrTriplet) -> Remote {
    Remote {
        address: at.virtual_address,
        key: at.rmr_context,
    }
}

/// Converts the error of a queue or queue pair that cannot be created.
pub(super) fn create_error(error: proto::QpError) -> Error {
    tracing::warn!(%error, "a queue or queue pair was not created");
    FULL
}

/// Converts the error of a refused post.
pub(super) fn post_error(error: PostError) -> Error {
    tracing::debug!(%error, "a request was not posted");
    match error {
        PostError::Full(_) | PostError::TooManySges { .. } | PostError::NoMemory(_) => FULL,
        PostError::State(_) => Error::of(Kind::InvalidState),
        PostError::Unsupported(_) => Error::of(Kind::NotImplemented),
        _ => Error::of(Kind::InvalidParameter),
    }
}

/// Converts the operation of a request; an error for one that the protocol does not have.
pub(super) fn op<T: Transport<AddressHandle = AddressHandle>>(op: Op<'_, T>) -> Result<proto::Op> {
    Ok(match op {
        Op::Send => proto::Op::Send,
        Op::SendWithInvalidate(key) => proto::Op::SendInvalidate(key),
        Op::SendWithImmediate(data) => proto::Op::SendImm(data.to_ne_bytes()),
        Op::RdmaWrite(at) => proto::Op::Write(remote(at)),
        Op::RdmaWriteWithImmediate(at, data) => proto::Op::WriteImm(remote(at), data.to_ne_bytes()),
        Op::RdmaRead(at) => proto::Op::Read(remote(at)),
        Op::CompareSwap {
            remote: at,
            compare,
            swap,
        } => proto::Op::CompareSwap {
            remote: remote(at),
            compare,
            swap,
        },
        Op::FetchAdd { remote: at, add } => proto::Op::FetchAdd {
            remote: remote(at),
            add,
        },
        Op::SendUd { to, qpn } => proto::Op::Datagram {
            to: DatagramPeer {
                address: to.address,
                qpn: Qpn::new(qpn),
                qkey: to.qkey,
            },
            immediate: None,
        },
        _ => return Err(Error::of(Kind::NotImplemented)),
    })
}

/// Converts a completion.
pub(super) fn completion(raw: &proto::Completion) -> Completion {
    let op = match (raw.op, raw.immediate, raw.invalidated) {
        (CompletedOp::Receive, Some(_), _) => DtoOp::ReceiveMessageImmediate,
        (CompletedOp::Receive, _, Some(_)) => DtoOp::ReceiveWithInvalidate,
        (CompletedOp::Receive, ..) => DtoOp::Receive,
        (CompletedOp::ReceiveWriteImm, ..) => DtoOp::ReceiveRdmaImmediate,
        (CompletedOp::Send, ..) => DtoOp::Send,
        (CompletedOp::Write, ..) => DtoOp::RdmaWrite,
        (CompletedOp::Read, ..) => DtoOp::RdmaRead,
        (CompletedOp::CompareSwap, ..) => DtoOp::CompareSwap,
        (CompletedOp::FetchAdd, ..) => DtoOp::FetchAdd,
        (CompletedOp::LocalInvalidate, ..) => DtoOp::LmrInvalidate,
        (CompletedOp::Bind, ..) => DtoOp::BindMw,
    };
    let mut completion = Completion::new(WrId(raw.wr_id), status(raw.status));
    completion.op = op;
    completion.length = raw.length;
    completion.immediate = raw.immediate.map_or(0, u32::from_ne_bytes);
    completion.invalidated = raw.invalidated.unwrap_or(0);
    completion.ep = Token(raw.token);
    completion
}

/// Converts an error of the connection manager.
pub(super) fn cm_error(error: CmError) -> Error {
    tracing::warn!(%error, "a call of the connection manager failed");
    match error {
        CmError::PrivateData { .. } => Error::of(Kind::InvalidParameter),
        CmError::ServiceInUse(_) => Error::of(Kind::ConnQualInUse),
        CmError::Family(_) => Error::new(Kind::InvalidAddress, Subtype::InvalidAddressUnsupported),
        CmError::NoMemory => FULL,
        _ => INTERNAL,
    }
}

const fn status(of: Status) -> DtoStatus {
    match of {
        Status::Success => DtoStatus::Success,
        Status::LocalLength => DtoStatus::LocalLength,
        Status::LocalProtection => DtoStatus::LocalProtection,
        Status::LocalOperation => DtoStatus::LocalEp,
        Status::Flushed => DtoStatus::Flushed,
        Status::MemoryWindowBind => DtoStatus::RmrOperationFailed,
        Status::RemoteAccess => DtoStatus::RemoteAccess,
        Status::RemoteInvalidRequest | Status::RemoteOperation => DtoStatus::RemoteResponder,
        Status::RetryExceeded => DtoStatus::Transport,
        Status::RnrRetryExceeded => DtoStatus::ReceiverNotReady,
    }
}

/// Returns what is lacking and what to do, if `error` is a lack of descriptors.
pub(super) fn lack_of_descriptors(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error() {
        Some(libc::EMFILE) => Some("this process has no descriptor left: raise `ulimit -n`"),
        Some(libc::ENFILE) => Some("this machine has no descriptor left: raise fs.file-max"),
        _ => None,
    }
}
