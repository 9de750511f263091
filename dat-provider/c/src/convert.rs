//! Numbers and addresses of C as core's types. A number that has no meaning becomes an error, and a line of the log.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dat_core::error::{Error, Kind, Result};
use dat_core::event::{DtoOp, DtoStatus};
use dat_core::transport::{Completion, Token, WrId};
use dat_core::upcall::{ConnOutcome, Fault};
use dat_provider_parts::cq::Entry;

use crate::table::{Code, Done};

/// Returns the result that a return code says.
pub fn result(code: Code, slot: &'static str) -> Result<()> {
    match Error::from_code(code) {
        None if code == 0 => Ok(()),
        Some(error) if error.kind().is_some() && error.subtype().is_some() => Err(error),
        _ => {
            tracing::error!(
                slot,
                code = format_args!("{code:#x}"),
                "the transport in C returned a number that is no DAT_RETURN"
            );
            Err(Error::of(Kind::InternalError))
        }
    }
}

/// Statuses by their number in C.
const STATUSES: [DtoStatus; 12] = [
    DtoStatus::Success,
    DtoStatus::Flushed,
    DtoStatus::LocalLength,
    DtoStatus::LocalEp,
    DtoStatus::LocalProtection,
    DtoStatus::BadResponse,
    DtoStatus::RemoteAccess,
    DtoStatus::RemoteResponder,
    DtoStatus::Transport,
    DtoStatus::ReceiverNotReady,
    DtoStatus::PartialPacket,
    DtoStatus::RmrOperationFailed,
];

/// What arrived, by its number in C; the first is a request's.
const RECEIVES: [DtoOp; 5] = [
    DtoOp::Send,
    DtoOp::Receive,
    DtoOp::ReceiveWithInvalidate,
    DtoOp::ReceiveMessageImmediate,
    DtoOp::ReceiveRdmaImmediate,
];

/// Returns the entry of a completion. A status or an operation that does not exist makes it fail with `DAT_DTO_ERR_LOCAL_EP`.
pub fn entry(done: &Done) -> Entry {
    let status = STATUSES.get(done.status as usize).copied();
    let op = RECEIVES.get(done.receive as usize).copied();
    if status.is_none() || op.is_none() {
        tracing::error!(
            ?done,
            "the transport in C completed a request with a number that has no meaning"
        );
    }
    let failed = op.map_or(DtoStatus::LocalEp, |_| status.unwrap_or(DtoStatus::LocalEp));
    let op = op.unwrap_or(DtoOp::Receive);
    let mut completion = Completion::new(WrId(done.id), failed);
    completion.op = op;
    completion.length = done.length;
    completion.immediate = done.immediate;
    completion.invalidated = done.invalidated;
    completion.ep = Token(done.ep);
    Entry {
        completion,
        solicited: (!op.is_request()).then_some(done.solicited != 0),
    }
}

/// Returns the outcome of a number; one that does not exist ends the connection.
pub fn outcome(number: u32) -> ConnOutcome {
    ConnOutcome::ALL
        .get(number as usize)
        .copied()
        .unwrap_or_else(|| {
            tracing::error!(
                number,
                "the transport in C reported an outcome that does not exist"
            );
            ConnOutcome::Broken
        })
}

/// Returns the fault of a number.
pub fn fault(number: u32, token: Token) -> Option<Fault> {
    match number {
        0 => Some(Fault::Adapter),
        1 => Some(Fault::Ep(token)),
        2 => Some(Fault::SrqLow(token)),
        3 => Some(Fault::LastReceive(token)),
        _ => {
            tracing::error!(
                number,
                "the transport in C reported a fault that does not exist"
            );
            None
        }
    }
}

/// Returns an address without scope as C has it.
pub fn to_c(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: zeros are a value of this structure.
    let mut to: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let at = &raw mut to;
    match address {
        SocketAddr::V4(v4) => {
            // SAFETY: the storage is aligned and large enough for the address of every family.
            let v4_to = unsafe { &mut *at.cast::<libc::sockaddr_in>() };
            v4_to.sin_family = libc::AF_INET as libc::sa_family_t;
            v4_to.sin_port = v4.port().to_be();
            v4_to.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above.
            let v6_to = unsafe { &mut *at.cast::<libc::sockaddr_in6>() };
            v6_to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            v6_to.sin6_port = v6.port().to_be();
            v6_to.sin6_addr.s6_addr = v6.ip().octets();
        }
    }
    to
}

/// Returns the address that C has; `None` if it is neither IPv4 nor IPv6.
pub fn from_c(from: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let at = std::ptr::from_ref(from);
    match i32::from(from.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is aligned and large enough for the address of every family.
            let v4 = unsafe { &*at.cast::<libc::sockaddr_in>() };
            let address = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some((IpAddr::V4(address), u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*at.cast::<libc::sockaddr_in6>() };
            let address = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some((IpAddr::V6(address), u16::from_be(v6.sin6_port)).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use dat_core::error::Subtype;

    use super::*;

    #[test]
    fn numbers_without_meaning_are_errors() {
        assert_eq!(result(0, "open"), Ok(()));
        let in_use = Error::of(Kind::ConnQualInUse);
        assert_eq!(result(in_use.code(), "listen"), Err(in_use));
        let memory = Error::resource(Subtype::ResourceMemory);
        assert_eq!(result(memory.code(), "open"), Err(memory));
        let internal = Error::of(Kind::InternalError);
        for wrong in [1, 0x8000_0000, u32::MAX, 12, 0x8fff_0000] {
            assert_eq!(result(wrong, "open"), Err(internal), "{wrong:#x}");
        }
        assert_eq!(outcome(0), ConnOutcome::Established);
        assert_eq!(outcome(7), ConnOutcome::Broken);
        assert_eq!(fault(9, Token(1)), None);
    }

    #[test]
    fn a_completion_without_meaning_has_failed() {
        let good = Done {
            id: 7,
            ep: 0,
            status: 0,
            receive: 1,
            length: 5,
            immediate: 0,
            invalidated: 0,
            solicited: 1,
        };
        assert_eq!(entry(&good).completion.length, 5);
        assert_eq!(entry(&good).solicited, Some(true));
        for (index, status) in STATUSES.iter().enumerate() {
            assert_eq!(*status as usize, index);
        }
        for wrong in [Done { status: 12, ..good }, Done { receive: 5, ..good }] {
            let completion = entry(&wrong).completion;
            assert_eq!(
                (completion.id, completion.status),
                (WrId(7), DtoStatus::LocalEp)
            );
        }
    }

    #[test]
    fn addresses_survive_both_ways() {
        for text in ["127.0.0.1:7", "[fe80::1]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(from_c(&to_c(address)), Some(address));
        }
        let mut none = to_c(([0; 4], 0).into());
        none.ss_family = libc::AF_UNIX as libc::sa_family_t;
        assert_eq!(from_c(&none), None);
    }
}
