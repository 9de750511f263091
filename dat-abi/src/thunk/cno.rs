//! CNO slots that both versions share, and the conversion of agents.

use dat_core::cno::{Agent, Cno, CnoProxy};
use dat_core::error::Subtype;
use dat_core::head::raw;
use dat_core::transport::Transport;

use crate::boundary::{Version, guard, guard_allocating, put, require, to_timeout};
use crate::handle;
use crate::types::{DatHandle, DatOsWaitProxyAgent, DatTimeout};

/// Returns the consumer's agent in core's form; `None` for `DAT_OS_WAIT_PROXY_AGENT_NULL`.
pub(crate) fn agent(given: DatOsWaitProxyAgent) -> Option<Agent> {
    let function = given.proxy_agent_func?;
    let instance_data = given.instance_data as usize;
    // SAFETY: the consumer promises (dat_cno_create) that its function may be called with its data from any
    // thread while the CNO lives.
    let call = move |evd| unsafe { function(instance_data as *mut std::ffi::c_void, evd) };
    // The agent may run in a consumer's thread that has cancellation enabled: in a call on the fast path, or in a wait.
    let call = move |evd| dat_os::cancel::defer(|| call(evd));
    Some(Agent {
        call: Box::new(call),
        instance_data,
        function: function as usize,
    })
}

/// Returns an agent in C's form, for dat_cno_query.
pub(crate) fn agent_out(instance_data: usize, function: usize) -> DatOsWaitProxyAgent {
    type Function = unsafe extern "C" fn(*mut std::ffi::c_void, DatHandle);
    // SAFETY: `agent` made the number from a pointer to such a function.
    let function = unsafe { std::mem::transmute::<usize, Function>(function) };
    DatOsWaitProxyAgent {
        instance_data: instance_data as *mut std::ffi::c_void,
        proxy_agent_func: Some(function),
    }
}

pub(crate) unsafe extern "C" fn cno_create<T: Transport, V: Version>(
    ia: DatHandle,
    given: DatOsWaitProxyAgent,
    cno: *mut DatHandle,
) -> u32 {
    guard_allocating::<V>(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        require(cno, 3)?;
        let proxy = agent(given).map_or(CnoProxy::None, CnoProxy::Agent);
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(cno, 3, raw(Cno::create(ia, proxy)?)) }
    })
}

pub(crate) unsafe extern "C" fn cno_modify_agent<T: Transport, V: Version>(
    cno: DatHandle,
    given: DatOsWaitProxyAgent,
) -> u32 {
    guard_allocating::<V>(|| {
        handle::cno::<T>(cno, Subtype::InvalidHandleCno)?.modify_agent(agent(given))
    })
}

pub(crate) unsafe extern "C" fn cno_free<T: Transport, V: Version>(cno: DatHandle) -> u32 {
    guard::<V>(|| handle::cno::<T>(cno, Subtype::InvalidHandleCno)?.free())
}

/// Waits for an event of a CNO. A cancellation point.
pub(crate) unsafe extern "C-unwind" fn cno_wait<T: Transport, V: Version>(
    cno: DatHandle,
    timeout: DatTimeout,
    evd: *mut DatHandle,
) -> u32 {
    let body = || {
        guard::<V>(|| {
            let cno = handle::cno::<T>(cno, Subtype::InvalidHandleCno)?;
            require(evd, 3)?;
            let woken = cno.wait(to_timeout(timeout));
            // After a time-out the handle is NULL.
            // SAFETY: NULL or valid by the slot's contract.
            unsafe { put(evd, 3, woken.unwrap_or(0))? };
            woken.map(|_| ())
        })
    };
    // SAFETY: this function has no values to drop.
    unsafe { dat_os::cancel::point(body) }
}
