//! IA, CNO, CR and EP slots of 1.2.

use dat_core::cno::ProxyInfo;
use dat_core::error::Subtype;
use dat_core::head::raw;
use dat_core::transport::Transport;

use super::{guard, guard_allocating};
use crate::boundary::{put, require, structure};
use crate::handle;
use crate::intern;
use crate::thunk::{agent_out, find};
use crate::types::{DAT_EVD_OUT_OF_SCOPE, DatHandle, DatOsWaitProxyAgent};
use crate::v1_2::convert::{ep_attr_out, ep_mask_in, ep_param_in, ia_attr, provider_attr};
use crate::v1_2::types::{DatCnoParam, DatEpParam, DatIaAttr, DatProviderAttr};

pub(crate) unsafe extern "C" fn ia_query<T: Transport>(
    ia: DatHandle,
    async_evd: *mut DatHandle,
    ia_mask: u64,
    attr: *mut DatIaAttr,
    provider_mask: u64,
    provider: *mut DatProviderAttr,
) -> u32 {
    guard_allocating(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        let attributes = ia.attributes()?;
        // SAFETY: each is NULL or valid by the slot's contract. A structure is filled completely or not at all.
        unsafe {
            if !async_evd.is_null() {
                let evd = ia.async_evd().map_or(DAT_EVD_OUT_OF_SCOPE, raw);
                put(async_evd, 2, evd)?;
            }
            if ia_mask != 0 {
                put(attr, 4, ia_attr(&attributes))?;
            }
            if provider_mask != 0 {
                put(provider, 6, provider_attr(&ia.name(), &attributes))?;
            }
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn cr_reject<T: Transport>(cr: DatHandle) -> u32 {
    guard_allocating(|| handle::cr::<T>(cr, Subtype::InvalidHandleCr)?.reject(&[]))
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
        let agent = match info.proxy {
            ProxyInfo::Agent {
                instance_data,
                function,
            } => agent_out(instance_data, function),
            // 1.2 creates no CNO with a file descriptor.
            ProxyInfo::None | ProxyInfo::Fd(_) => DatOsWaitProxyAgent {
                instance_data: std::ptr::null_mut(),
                proxy_agent_func: None,
            },
        };
        let value = DatCnoParam {
            ia_handle: info.ia,
            agent,
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(param, 3, value) }
    })
}

pub(crate) unsafe extern "C" fn ep_query<T: Transport>(
    ep: DatHandle,
    _mask: u64,
    param: *mut DatEpParam,
) -> u32 {
    guard_allocating(|| {
        let ep = find::<T>(ep)?;
        require(param, 3)?;
        let info = ep.info()?;
        let scope = intern::scope_of(info.ia);
        let value = DatEpParam {
            ia_handle: raw(info.ia),
            ep_state: info.state as u32,
            local_ia_address_ptr: intern::address(Some(info.local_address), scope),
            local_port_qual: info.local_port,
            remote_ia_address_ptr: intern::address(info.remote_address, scope),
            remote_port_qual: info.remote_port,
            pz_handle: info.pz.map_or(0, raw),
            recv_evd_handle: info.recv_evd.map_or(0, raw),
            request_evd_handle: info.request_evd.map_or(0, raw),
            connect_evd_handle: info.connect_evd.map_or(0, raw),
            srq_handle: info.srq.map_or(0, raw),
            ep_attr: ep_attr_out(&info.attr),
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(param, 3, value) }
    })
}

pub(crate) unsafe extern "C" fn ep_modify<T: Transport>(
    ep: DatHandle,
    mask: u64,
    param: *const DatEpParam,
) -> u32 {
    guard_allocating(|| {
        let ep = find::<T>(ep)?;
        let mask = ep_mask_in(mask)?;
        // SAFETY: NULL or valid by the slot's contract.
        let param = unsafe { structure(param, 3)? };
        ep.modify(&ep_param_in(&param).change(mask)?)
    })
}
