//! CNOs: in 2.0 they have a proxy that is an agent, a descriptor, or nothing.

use dat_core::cno::{Agent, Cno, CnoProxy, ProxyInfo};
use dat_core::error::Subtype;
use dat_core::head::raw;
use dat_core::transport::Transport;

use super::{guard, making};
use crate::boundary::{need, put};
use crate::handle;
use crate::types::{DatHandle, DatOsWaitProxyAgent};
use crate::v2_0::types::{DatCnoParam, DatCnoProxy};

const PROXY_TYPE_NONE: u32 = 0;
const PROXY_TYPE_AGENT: u32 = 1;
const PROXY_TYPE_FD: u32 = 2;

/// The consumer's function as core calls it; `None` for `DAT_OS_WAIT_PROXY_AGENT_NULL`.
pub(crate) fn agent(given: DatOsWaitProxyAgent) -> Option<Agent> {
    let function = given.proxy_agent_func?;
    let instance_data = given.instance_data as usize;
    // SAFETY: the consumer promises (dat_cno_create) that its function may be called with its data from any
    // thread while the CNO lives.
    let call = move |evd| unsafe { function(instance_data as *mut std::ffi::c_void, evd) };
    // It may be run by a thread of the consumer that is in a hot call, or in a wait.
    let call = move |evd| dat_os::cancel::defer(|| call(evd));
    Some(Agent {
        call: Box::new(call),
        instance_data,
        function: function as usize,
    })
}

/// The same back, for dat_cno_query.
pub(crate) fn agent_out(instance_data: usize, function: usize) -> DatOsWaitProxyAgent {
    type Function = unsafe extern "C" fn(*mut std::ffi::c_void, DatHandle);
    // SAFETY: the number came from such a pointer in `agent`.
    let function = unsafe { std::mem::transmute::<usize, Function>(function) };
    DatOsWaitProxyAgent {
        instance_data: instance_data as *mut std::ffi::c_void,
        proxy_agent_func: Some(function),
    }
}

pub(crate) unsafe extern "C" fn cno_create<T: Transport>(
    ia: DatHandle,
    given: DatOsWaitProxyAgent,
    cno: *mut DatHandle,
) -> u32 {
    making(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        need(cno, 3)?;
        let proxy = agent(given).map_or(CnoProxy::None, CnoProxy::Agent);
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(cno, 3, raw(Cno::create(ia, proxy)?)) }
    })
}

pub(crate) unsafe extern "C" fn cno_fd_create<T: Transport>(
    ia: DatHandle,
    fd: *mut i32,
    cno: *mut DatHandle,
) -> u32 {
    making(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        need(fd, 2)?;
        need(cno, 3)?;
        let made = Cno::create(ia, CnoProxy::Fd)?;
        let descriptor = made.fd()?;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe {
            put(fd, 2, descriptor)?;
            put(cno, 3, raw(made))
        }
    })
}

pub(crate) unsafe extern "C" fn cno_modify_agent<T: Transport>(
    cno: DatHandle,
    given: DatOsWaitProxyAgent,
) -> u32 {
    making(|| handle::cno::<T>(cno, Subtype::InvalidHandleCno)?.modify_agent(agent(given)))
}

pub(crate) unsafe extern "C" fn cno_trigger<T: Transport>(
    cno: DatHandle,
    evd: *mut DatHandle,
) -> u32 {
    guard(|| {
        let cno = handle::cno::<T>(cno, Subtype::InvalidHandleCno)?;
        need(evd, 2)?;
        let woken = cno.trigger();
        // When the time is over the handle is a null one.
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
        need(param, 3)?;
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
