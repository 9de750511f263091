//! CNO slots of 2.0, where a CNO may have a file descriptor.

use dat_core::cno::{Cno, CnoProxy, ProxyInfo};
use dat_core::error::Subtype;
use dat_core::head::raw;
use dat_core::transport::Transport;

use super::{guard, guard_allocating};
use crate::boundary::{put, require};
use crate::handle;
use crate::thunk::agent_out;
use crate::types::DatHandle;
use crate::v2_0::types::{DatCnoParam, DatCnoProxy};

const PROXY_TYPE_NONE: u32 = 0;
const PROXY_TYPE_AGENT: u32 = 1;
const PROXY_TYPE_FD: u32 = 2;

pub(crate) unsafe extern "C" fn cno_fd_create<T: Transport>(
    ia: DatHandle,
    fd: *mut i32,
    cno: *mut DatHandle,
) -> u32 {
    guard_allocating(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        require(fd, 2)?;
        require(cno, 3)?;
        let made = Cno::create(ia, CnoProxy::Fd)?;
        let descriptor = made.fd()?;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe {
            put(fd, 2, descriptor)?;
            put(cno, 3, raw(made))
        }
    })
}

pub(crate) unsafe extern "C" fn cno_trigger<T: Transport>(
    cno: DatHandle,
    evd: *mut DatHandle,
) -> u32 {
    guard(|| {
        let cno = handle::cno::<T>(cno, Subtype::InvalidHandleCno)?;
        require(evd, 2)?;
        let woken = cno.trigger();
        // Without an event the handle is NULL.
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(evd, 2, woken.unwrap_or(0))? };
        woken.map(|_| ())
    })
}

pub(crate) unsafe extern "C" fn cno_query<T: Transport>(
    cno: DatHandle,
    _mask: u32,
    param: *mut DatCnoParam,
) -> u32 {
    guard(|| {
        let cno = handle::cno::<T>(cno, Subtype::InvalidHandleCno)?;
        require(param, 3)?;
        let info = cno.info()?;
        let (proxy_type, proxy) = match info.proxy {
            ProxyInfo::None => (
                PROXY_TYPE_NONE,
                DatCnoProxy {
                    none: std::ptr::null_mut(),
                },
            ),
            ProxyInfo::Agent {
                instance_data,
                function,
            } => (
                PROXY_TYPE_AGENT,
                DatCnoProxy {
                    agent: agent_out(instance_data, function),
                },
            ),
            ProxyInfo::Fd(fd) => (PROXY_TYPE_FD, DatCnoProxy { fd }),
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe {
            put(
                param,
                3,
                DatCnoParam {
                    ia_handle: info.ia,
                    proxy_type,
                    proxy,
                },
            )
        }
    })
}
