//! Querying and modifying endpoints in 2.0's layout.

use dat_core::head::raw;
use dat_core::transport::Transport;

use super::guard_allocating;
use crate::boundary::{put, require, structure};
use crate::intern;
use crate::thunk::find;
use crate::types::DatHandle;
use crate::v2_0::convert::{ep_attr_out, ep_param_in};
use crate::v2_0::types::{DatComm, DatEpParam};

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
            comm: DatComm {
                domain: 0,
                r#type: 0,
                protocol: 0,
            },
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
        // SAFETY: NULL or valid by the slot's contract.
        let param = unsafe { structure(param, 3)? };
        ep.modify(&ep_param_in(&param).change(mask)?)
    })
}
