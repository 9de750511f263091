//! Pure translation between verbs and DAT values. Errors are errno values: verbs' data path calls *return* them, its
//! other calls set `errno`, and the code at the call passes the right one.

use std::net::SocketAddr;

use dat_core::error::{Error, Kind, Subtype};
use dat_core::event::{DtoOp, DtoStatus};
use dat_core::flags::MemPriv;
use dat_core::transport::{Completion, Token, WrId};

use crate::sys::{self, Wc, access, ibv_wc_opcode as opcode, ibv_wc_status as status};

/// Status of a service id resolution when no queue pair serves the id (`IB_SIDR_UNSUPPORTED`).
pub(crate) const SIDR_NO_SERVICE: i32 = 1;
/// Status of a service id resolution that was refused (`IB_SIDR_REJECT`).
pub(crate) const SIDR_REJECT: i32 = 2;
/// Reject reason of the peer's consumer (InfiniBand CM reason 28).
pub(crate) const REJ_CONSUMER: i32 = 28;

/// Returns true if a refusal with this status may be one of the peer's consumer: InfiniBand's reason, or iWARP's errno.
pub(crate) const fn may_be_consumers(status: i32) -> bool {
    status == REJ_CONSUMER || status == -libc::ECONNRESET || status == -libc::ECONNREFUSED
}

/// Returns the verbs access flags for DAT rights, to be tried in order.
///
/// Verbs always allows local reads, and requires local write access wherever a remote access is granted. Registration
/// does not say whether a window will be bound to the region, so every region is registered with window binding first.
/// The kernel requires such memory to be writable, which read-only memory need not be.
pub(crate) fn region_access(rights: MemPriv, windows: bool) -> Vec<u32> {
    let mut flags = remote_access(rights);
    if rights.intersects(MemPriv::LOCAL_WRITE | MemPriv::REMOTE_WRITE | MemPriv::REMOTE_ATOMIC) {
        flags |= access::LOCAL_WRITE;
    }
    match (windows, flags & access::LOCAL_WRITE != 0) {
        (true, true) => vec![flags | access::MW_BIND],
        (true, false) => vec![flags | access::MW_BIND, flags],
        (false, _) => vec![flags],
    }
}

/// Returns the verbs access flags of the remote DAT rights, for windows.
pub(crate) fn remote_access(rights: MemPriv) -> u32 {
    [
        (MemPriv::REMOTE_READ, access::REMOTE_READ),
        (MemPriv::REMOTE_WRITE, access::REMOTE_WRITE),
        (MemPriv::REMOTE_ATOMIC, access::REMOTE_ATOMIC),
    ]
    .iter()
    .filter(|(right, _)| rights.contains(*right))
    .fold(0, |flags, (_, flag)| flags | flag)
}

/// Returns DAT's completion status for a verbs status.
#[inline(always)]
pub(crate) const fn dto_status(status: u32) -> DtoStatus {
    match status {
        status::IBV_WC_SUCCESS => DtoStatus::Success,
        status::IBV_WC_WR_FLUSH_ERR => DtoStatus::Flushed,
        status::IBV_WC_LOC_LEN_ERR => DtoStatus::LocalLength,
        status::IBV_WC_LOC_PROT_ERR | status::IBV_WC_LOC_ACCESS_ERR => DtoStatus::LocalProtection,
        status::IBV_WC_BAD_RESP_ERR => DtoStatus::BadResponse,
        status::IBV_WC_REM_ACCESS_ERR => DtoStatus::RemoteAccess,
        status::IBV_WC_REM_INV_REQ_ERR
        | status::IBV_WC_REM_OP_ERR
        | status::IBV_WC_REM_INV_RD_REQ_ERR
        | status::IBV_WC_REM_ABORT_ERR => DtoStatus::RemoteResponder,
        status::IBV_WC_RETRY_EXC_ERR | status::IBV_WC_RESP_TIMEOUT_ERR => DtoStatus::Transport,
        status::IBV_WC_RNR_RETRY_EXC_ERR => DtoStatus::ReceiverNotReady,
        status::IBV_WC_MW_BIND_ERR => DtoStatus::RmrOperationFailed,
        // LOC_QP_OP, the EEC and RDD statuses, FATAL, GENERAL, and those of later versions.
        _ => DtoStatus::LocalEp,
    }
}

/// Returns the operation of a completion. For requests the value is a hint only: after a failure verbs leaves the
/// opcode undefined, so core keeps its own record.
#[inline(always)]
pub(crate) const fn dto_op(wc: &Wc) -> DtoOp {
    match wc.opcode {
        opcode::IBV_WC_RECV if wc.wc_flags & sys::wc_flag::WITH_IMM != 0 => {
            DtoOp::ReceiveMessageImmediate
        }
        opcode::IBV_WC_RECV if wc.wc_flags & sys::wc_flag::WITH_INV != 0 => {
            DtoOp::ReceiveWithInvalidate
        }
        opcode::IBV_WC_RECV => DtoOp::Receive,
        opcode::IBV_WC_RECV_RDMA_WITH_IMM => DtoOp::ReceiveRdmaImmediate,
        opcode::IBV_WC_RDMA_WRITE => DtoOp::RdmaWrite,
        opcode::IBV_WC_RDMA_READ => DtoOp::RdmaRead,
        opcode::IBV_WC_COMP_SWAP => DtoOp::CompareSwap,
        opcode::IBV_WC_FETCH_ADD => DtoOp::FetchAdd,
        opcode::IBV_WC_BIND_MW => DtoOp::BindMw,
        opcode::IBV_WC_LOCAL_INV => DtoOp::LmrInvalidate,
        _ => DtoOp::Send,
    }
}

/// Converts a completion. `ep` is the endpoint of a receive from an SRQ.
#[inline(always)]
pub(crate) const fn completion(wc: &Wc, ep: Token) -> Completion {
    let op = dto_op(wc);
    let invalidated = matches!(op, DtoOp::ReceiveWithInvalidate);
    let mut completion = Completion::new(WrId(wc.wr_id), dto_status(wc.status));
    completion.op = op;
    completion.length = wc.byte_len;
    completion.ep = ep;
    if invalidated {
        completion.invalidated = wc.imm_or_rkey;
    } else {
        completion.immediate = wc.imm_or_rkey;
    }
    completion
}

/// Returns the code for the errno of a call that creates an object; `what` is the resource that ran short.
pub(crate) const fn errno(errno: i32, what: Subtype) -> Error {
    match errno {
        libc::EINVAL | libc::EFAULT => Error::of(Kind::InvalidParameter),
        libc::EPERM | libc::EACCES => Error::of(Kind::PrivilegesViolation),
        libc::ENOSYS | libc::EOPNOTSUPP => Error::of(Kind::NotImplemented),
        libc::ENODEV | libc::EIO => Error::of(Kind::InternalError),
        _ => Error::resource(what),
    }
}

/// Returns the code for the errno that a post returned. siw returns negative ones.
#[cold]
pub(crate) const fn posted(errno: i32) -> Error {
    match errno.saturating_abs() {
        libc::EINVAL => Error::of(Kind::InvalidParameter),
        libc::EOPNOTSUPP | libc::ENOSYS => Error::of(Kind::NotImplemented),
        libc::EIO | libc::ENODEV => Error::of(Kind::InternalError),
        // ENOMEM and EAGAIN: the queue is full.
        _ => Error::resource(Subtype::ResourceMemory),
    }
}

/// Returns the code for the errno of a listen.
pub(crate) const fn listening(errno: i32) -> Error {
    match errno {
        libc::EADDRINUSE | libc::EADDRNOTAVAIL | libc::EBUSY => Error::of(Kind::ConnQualInUse),
        libc::EACCES | libc::EPERM => Error::of(Kind::ConnQualUnavailable),
        libc::EINVAL => Error::of(Kind::InvalidParameter),
        _ => Error::resource(Subtype::ResourceDevice),
    }
}

/// Returns why a TCP socket cannot listen at `at`, and what helps.
pub(crate) fn tcp_listening_text(at: SocketAddr, errno: i32) -> String {
    let what = format!("cannot listen on {at}: {}", text(errno));
    match errno {
        libc::EADDRINUSE => format!("{what}; choose another qualifier"),
        libc::EADDRNOTAVAIL => format!(
            "{what}; the address that the IA was opened with is not on this machine any more: close the IA and open it again"
        ),
        libc::EACCES => {
            format!("{what}; ports below 1024 need CAP_NET_BIND_SERVICE: choose another qualifier")
        }
        _ => what,
    }
}

/// Logs that `call` failed and returns the code.
#[cold]
pub(crate) fn failed(call: &str, number: i32, what: Subtype) -> Error {
    tracing::error!("{call}: {}", text(number));
    errno(number, what)
}

/// Returns the text of an errno.
pub(crate) fn text(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

/// Explains why a registration failed and what helps.
pub(crate) fn registration_text(address: usize, length: usize, errno: i32) -> String {
    let what = format!(
        "cannot register {length} bytes at {address:#x}: {}",
        text(errno)
    );
    match errno {
        libc::ENOMEM | libc::EAGAIN | libc::EPERM => format!(
            "{what}; registered memory is locked memory: raise the limit (`ulimit -l unlimited`, or a memlock line in \
             /etc/security/limits.conf, or LimitMEMLOCK=infinity for a service)"
        ),
        libc::EFAULT => format!(
            "{what}; the range is not mapped, or not writable although write rights are asked for"
        ),
        libc::EINVAL => {
            format!("{what}; length 0 and ranges that wrap around cannot be registered")
        }
        _ => what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers any number that a provider's verb may return or leave in errno.
    #[test]
    fn a_post_that_failed_is_never_a_success() {
        for number in -200..200 {
            let code = posted(number).code();
            assert_ne!(code & 0x8000_0000, 0, "{number}: {code:#x}");
            assert!(posted(number).kind().is_some(), "{number}: {code:#x}");
        }
        for sign in [1, -1] {
            let full = Error::resource(Subtype::ResourceMemory);
            assert_eq!(posted(sign * libc::ENOMEM), full);
            assert_eq!(
                posted(sign * libc::EINVAL),
                Error::of(Kind::InvalidParameter)
            );
        }
    }

    #[test]
    fn remote_writes_bring_local_ones_and_nothing_else_does() {
        for bits in 0..0x80 {
            let rights = MemPriv::from_bits_retain(bits);
            let list = region_access(rights, false);
            let flags = list[0];
            assert_eq!((list.len(), flags & access::MW_BIND), (1, 0));
            assert_eq!(flags & !access::LOCAL_WRITE, remote_access(rights));
            assert_eq!(
                flags & access::LOCAL_WRITE != 0,
                bits & 0x70 != 0,
                "rights {bits:#x}"
            );
            assert_eq!(flags & access::REMOTE_READ != 0, bits & 0x02 != 0);
            assert_eq!(flags & access::REMOTE_WRITE != 0, bits & 0x20 != 0);
            assert_eq!(flags & access::REMOTE_ATOMIC != 0, bits & 0x40 != 0);
            let windows = region_access(rights, true);
            assert_eq!(windows[0], flags | access::MW_BIND);
            let read_only = flags & access::LOCAL_WRITE == 0;
            assert_eq!(windows.get(1), read_only.then_some(&flags));
        }
    }

    #[test]
    fn every_status_has_a_meaning() {
        let success: Vec<u32> = (0..64)
            .filter(|s| dto_status(*s) == DtoStatus::Success)
            .collect();
        assert_eq!(success, [status::IBV_WC_SUCCESS]);
        let flushed: Vec<u32> = (0..64)
            .filter(|s| dto_status(*s) == DtoStatus::Flushed)
            .collect();
        assert_eq!(flushed, [status::IBV_WC_WR_FLUSH_ERR]);
        assert_eq!(
            dto_status(status::IBV_WC_REM_ACCESS_ERR),
            DtoStatus::RemoteAccess
        );
        assert_eq!(
            dto_status(status::IBV_WC_RETRY_EXC_ERR),
            DtoStatus::Transport
        );
        assert_eq!(
            dto_status(status::IBV_WC_MW_BIND_ERR),
            DtoStatus::RmrOperationFailed
        );
    }

    #[test]
    fn a_receive_says_what_came() {
        let mut wc = Wc {
            wr_id: 7,
            opcode: opcode::IBV_WC_RECV,
            byte_len: 5,
            imm_or_rkey: 0x1234,
            ..Wc::default()
        };
        assert_eq!(completion(&wc, Token(3)).op, DtoOp::Receive);
        wc.wc_flags = sys::wc_flag::WITH_IMM;
        let c = completion(&wc, Token(3));
        assert_eq!(
            (c.op, c.immediate, c.invalidated),
            (DtoOp::ReceiveMessageImmediate, 0x1234, 0)
        );
        wc.wc_flags = sys::wc_flag::WITH_INV;
        let c = completion(&wc, Token(3));
        assert_eq!(
            (c.op, c.immediate, c.invalidated),
            (DtoOp::ReceiveWithInvalidate, 0, 0x1234)
        );
        assert_eq!((c.id, c.length, c.ep), (WrId(7), 5, Token(3)));
    }

    #[test]
    fn errors_say_what_to_do() {
        assert_eq!(
            errno(libc::ENOMEM, Subtype::ResourceMemoryRegion),
            Error::resource(Subtype::ResourceMemoryRegion)
        );
        assert_eq!(listening(libc::EADDRINUSE), Error::of(Kind::ConnQualInUse));
        let at = SocketAddr::from(([192, 0, 2, 1], 80));
        let helps = |errno| tcp_listening_text(at, errno);
        assert!(helps(libc::EADDRINUSE).ends_with("choose another qualifier"));
        let gone = helps(libc::EADDRNOTAVAIL);
        assert!(
            gone.contains("open it again") && !gone.contains("qualifier"),
            "{gone}"
        );
        assert!(registration_text(4096, 1, libc::ENOMEM).contains("ulimit -l"));
        assert!(registration_text(4096, 0, libc::EINVAL).contains("length 0"));
    }
}
