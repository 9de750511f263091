//! Common service points, which listen on an address and a port as a TCP server does.

use std::ffi::c_void;
use std::net::IpAddr;

use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::head::raw;
use dat_core::sp::{Sp, SpKind};
use dat_core::transport::Transport;

use super::{guard, guard_allocating};
use crate::boundary::{bytes, put, require, structure, to_timeout};
use crate::handle;
use crate::intern;
use crate::sockaddr::{read, read_canonical};
use crate::thunk::find;
use crate::types::{DatCount, DatHandle, DatIaAddressPtr, DatTimeout};
use crate::v2_0::types::{DatComm, DatCspParam};

const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const SOCK_STREAM: i32 = 1;
const IPPROTO_TCP: i32 = 6;

/// Returns the protocol family of an address.
const fn domain_of(ip: IpAddr) -> i32 {
    match ip {
        IpAddr::V4(_) => AF_INET,
        IpAddr::V6(_) => AF_INET6,
    }
}

/// Returns the `DAT_COMM` of a service point that listens on `ip`.
const fn comm_of(ip: IpAddr) -> DatComm {
    DatComm {
        domain: domain_of(ip),
        r#type: SOCK_STREAM,
        protocol: IPPROTO_TCP,
    }
}

/// Checks that `comm` requests a stream over TCP, for which an RDMA connection can stand. Protocol 0 is a stream's default one.
///
/// # Errors
/// `DAT_COMM_NOT_SUPPORTED`.
fn check(comm: &DatComm) -> Result<()> {
    let known = matches!(comm.domain, AF_INET | AF_INET6)
        && comm.r#type == SOCK_STREAM
        && matches!(comm.protocol, 0 | IPPROTO_TCP);
    if known {
        Ok(())
    } else {
        Err(Error::of(Kind::CommNotSupported))
    }
}

pub(crate) unsafe extern "C" fn csp_create<T: Transport>(
    ia: DatHandle,
    comm: *mut DatComm,
    address: DatIaAddressPtr,
    evd: DatHandle,
    csp: *mut DatHandle,
) -> u32 {
    guard_allocating(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        // SAFETY: NULL or valid by the slot's contract.
        let comm = unsafe { structure(comm.cast_const(), 2)? };
        check(&comm)?;
        require(address, 3)?;
        let evd = handle::evd(evd, Subtype::InvalidHandleEvdCr)?;
        require(csp, 5)?;
        // SAFETY: NULL or valid by the slot's contract.
        let at = unsafe { read(address.cast()) };
        // As with bind(2), the address has the family of the socket. An IPv4-mapped one has that of IPv6.
        let at = at.filter(|at| domain_of(at.ip()) == comm.domain);
        let at = at.ok_or(Error::of(Kind::InvalidAddress))?;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(csp, 5, raw(Sp::csp_create(ia, at, evd)?)) }
    })
}

pub(crate) unsafe extern "C" fn csp_query<T: Transport>(
    csp: DatHandle,
    _mask: u32,
    param: *mut DatCspParam,
) -> u32 {
    guard_allocating(|| {
        let csp = handle::csp::<T>(csp)?;
        require(param, 3)?;
        let info = csp.info()?;
        let SpKind::Common(at) = info.kind else {
            return Err(Error::handle(Subtype::InvalidHandleCsp));
        };
        let value = DatCspParam {
            ia_handle: raw(info.ia),
            comm: intern::comm(comm_of(at.ip())),
            address_ptr: intern::address_with_port(
                Some(at.ip()),
                intern::scope_of(info.ia),
                info.conn_qual as u16,
            ),
            evd_handle: raw(info.evd),
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(param, 3, value) }
    })
}

pub(crate) unsafe extern "C" fn csp_free<T: Transport>(csp: DatHandle) -> u32 {
    guard(|| handle::csp::<T>(csp)?.free())
}

pub(crate) unsafe extern "C" fn ep_common_connect<T: Transport>(
    ep: DatHandle,
    address: DatIaAddressPtr,
    timeout: DatTimeout,
    size: DatCount,
    private_data: *const c_void,
) -> u32 {
    guard_allocating(|| {
        let ep = find::<T>(ep)?;
        require(address, 2)?;
        // SAFETY: NULL or valid by the slot's contract.
        let (remote, data) = unsafe {
            (
                read_canonical(address.cast()),
                bytes(size, private_data, 4)?,
            )
        };
        let remote = remote.ok_or(Error::of(Kind::InvalidAddress))?;
        ep.common_connect(remote, to_timeout(timeout), data)
    })
}
