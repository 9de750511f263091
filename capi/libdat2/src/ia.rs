//! Functions whose first argument is an IA's number: opening, closing, and the calls of slots with the provider's handle.

use std::ffi::{CStr, CString, c_char};

use dat_abi::ret::unpack_v2_0;
use dat_abi::types::*;
use dat_abi::v2_0::table::DatProvider;
use dat_abi::v2_0::types::*;
use dat_c_library::Requested;
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_registry::handles::OpenIa;

use crate::redirect;
use crate::registry::{LIBRARY, registry};

const WRONG: Error = Error::handle(Subtype::InvalidHandleIa);

/// Returns the provider's handle for the IA that a consumer passes.
fn provider_handle(ia: DatHandle) -> Option<DatHandle> {
    registry().handles.find(ia).map(|open| open.provider)
}

/// Returns the function table of a provider's handle.
///
/// # Safety
/// `handle` is a handle that a provider made.
unsafe fn table(handle: DatHandle) -> &'static DatProvider {
    // SAFETY: the first word of every handle points to its table, which lives for ever.
    unsafe { &**(handle as *const *const DatProvider) }
}

/// Calls a slot of an IA's table with the provider's handle instead of the number.
fn on<S: Copy>(
    ia: DatHandle,
    wrong: Error,
    slot: impl FnOnce(&DatProvider) -> Option<S>,
    call: impl FnOnce(S, DatHandle) -> u32,
) -> u32 {
    LIBRARY.guard_from_fork(|| {
        let handle = provider_handle(ia).ok_or(wrong)?;
        // SAFETY: it came from a provider's ia_open.
        let slot = slot(unsafe { table(handle) }).ok_or(Error::of(Kind::NotImplemented))?;
        unpack_v2_0(call(slot, handle))
    })
}

/// Returns true if the provider of the open IA `one` says that it is related to `other`, else false; `None` if no such IA is open or its
/// provider does not answer.
pub(crate) fn query_related(one: &str, other: &CStr) -> Option<bool> {
    let ia = registry().handles.named(one)?;
    let mut answer: DatBoolean = 0;
    // SAFETY: it came from a provider's ia_open.
    let slot = unsafe { table(ia.provider) }.ia_ha_related?;
    // SAFETY: a handle of that table, a C string, and room for the answer.
    let code = unsafe { slot(ia.provider, other.as_ptr(), &raw mut answer) };
    unpack_v2_0(code).ok().map(|()| answer != 0)
}

/// Opens an IA (dat_ia_openv).
///
/// # Safety
/// Pointers are NULL or valid.
unsafe fn open(
    name: *const c_char,
    qlen: DatCount,
    async_evd: *mut DatHandle,
    ia: *mut DatHandle,
    requested: Requested,
) -> Result<()> {
    // SAFETY: the contract is the same.
    let found = unsafe { LIBRARY.find(name, async_evd, ia, requested)? };
    // Another one than the program's if that was an alias.
    let name = CString::new(found.name.as_str()).map_err(|_| Error::arg(1))?;
    // SAFETY: a table that a provider registered as one of 2.0.
    let provider = unsafe { &*(found.table.0 as *const DatProvider) };
    let mut handle = 0;
    let opened = provider
        .ia_open
        .ok_or(Error::of(Kind::NotImplemented))
        .and_then(|slot| {
            // SAFETY: the slot's contract is that of dat_ia_open.
            unpack_v2_0(unsafe { slot(name.as_ptr(), qlen, async_evd, &raw mut handle) })
        });
    if let Err(error) = opened {
        LIBRARY.not_opened(&found, error);
        return Err(error);
    }
    redirect::ia_opened(handle);
    let number = registry().handles.insert(OpenIa {
        provider: handle,
        name: found.name,
        table: found.table,
    });
    // SAFETY: not NULL, so valid by the function's contract.
    unsafe { ia.write_unaligned(number) };
    Ok(())
}

export! {
    /// Opens an IA by name, version and thread safety (dat_ia_openv).
    fn dat_ia_openv(
        name: *const c_char,
        qlen: DatCount,
        async_evd: *mut DatHandle,
        ia: *mut DatHandle,
        major: u32,
        minor: u32,
        thread_safe: DatBoolean,
    ) -> u32 {
        let requested = Requested { major, minor, thread_safe };
        // SAFETY: the contract is the same.
        LIBRARY.guard_from_fork(|| unsafe { open(name, qlen, async_evd, ia, requested) })
    }

    /// Closes an IA (dat_ia_close).
    fn dat_ia_close(ia: DatHandle, flags: u32) -> u32 {
        LIBRARY.guard_from_fork(|| {
            LIBRARY.close(ia, |open| {
                // SAFETY: it came from a provider's ia_open.
                let slot = unsafe { table(open.provider) }.ia_close;
                let slot = slot.ok_or(Error::of(Kind::NotImplemented))?;
                // SAFETY: the slot's contract is that of dat_ia_close.
                unpack_v2_0(unsafe { slot(open.provider, flags) })
            })
        })
    }

    /// Returns the provider's handle of an IA's number.
    fn dats_get_ia_handle(ia: DatHandle, handle: *mut DatHandle) -> u32 {
        LIBRARY.guard_from_fork(|| {
            let provider = provider_handle(ia).ok_or(WRONG)?;
            if handle.is_null() {
                return Err(Error::arg(2));
            }
            // SAFETY: not NULL, so valid by the function's contract.
            unsafe { handle.write_unaligned(provider) };
            Ok(())
        })
    }
}

/// Exports functions on an IA's number. The form of a line is that of `redirects!`.
macro_rules! calls_on_an_ia {
    ($($(#[$meta:meta])* $export:ident = $slot:ident / $wrong:ident ($ia:ident $(, $arg:ident: $ty:ty)*);)*) => {
        export! {$(
            $(#[$meta])*
            fn $export($ia: DatHandle $(, $arg: $ty)*) -> u32 {
                let wrong = Error::handle(Subtype::$wrong);
                // SAFETY: the slot's contract is the function's.
                on($ia, wrong, |table| table.$slot, |slot, handle| unsafe { slot(handle $(, $arg)*) })
            }
        )*}
    };
}

calls_on_an_ia! {
    // BEGIN slots.txt: exports 2.0 ia
    /// Queries the attributes of an IA and of its provider (dat_ia_query).
    dat_ia_query = ia_query / InvalidHandleIa (ia, async_evd: *mut DatHandle, ia_mask: u64, ia_attr: *mut DatIaAttr, provider_mask: u64, provider_attr: *mut DatProviderAttr);
    /// Creates a CNO, with an agent or without (dat_cno_create).
    dat_cno_create = cno_create / InvalidHandleIa (ia, agent: DatOsWaitProxyAgent, cno: *mut DatHandle);
    /// Creates an EVD (dat_evd_create).
    dat_evd_create = evd_create / InvalidHandleIa (ia, min_qlen: DatCount, cno: DatHandle, flags: u32, evd: *mut DatHandle);
    /// Creates an endpoint (dat_ep_create).
    dat_ep_create = ep_create / InvalidHandleIa (ia, pz: DatHandle, recv_evd: DatHandle, request_evd: DatHandle, connect_evd: DatHandle, attr: *const DatEpAttr, ep: *mut DatHandle);
    /// Registers memory (dat_lmr_create).
    dat_lmr_create = lmr_create / InvalidHandleIa (ia, mem_type: u32, region: DatRegionDescription, length: u64, pz: DatHandle, privileges: u32, va_type: u32, lmr: *mut DatHandle, lmr_context: *mut u32, rmr_context: *mut u32, registered_length: *mut u64, registered_address: *mut u64);
    /// Creates a public service point on a connection qualifier (dat_psp_create).
    dat_psp_create = psp_create / InvalidHandleIa (ia, conn_qual: u64, evd: DatHandle, flags: u32, psp: *mut DatHandle);
    /// Creates a reserved service point: one endpoint, one request (dat_rsp_create).
    dat_rsp_create = rsp_create / InvalidHandleIa (ia, conn_qual: u64, ep: DatHandle, evd: DatHandle, rsp: *mut DatHandle);
    /// Creates a protection zone (dat_pz_create).
    dat_pz_create = pz_create / InvalidHandleIa (ia, pz: *mut DatHandle);
    /// Creates a public service point on a free connection qualifier (dat_psp_create_any).
    dat_psp_create_any = psp_create_any / InvalidHandleIa (ia, conn_qual: *mut u64, evd: DatHandle, flags: u32, psp: *mut DatHandle);
    /// Makes local writes visible to incoming RDMA Reads (dat_lmr_sync_rdma_read).
    dat_lmr_sync_rdma_read = lmr_sync_rdma_read / InvalidHandleIa (ia, segments: *const DatLmrTriplet, count: u64);
    /// Makes incoming RDMA Writes visible locally (dat_lmr_sync_rdma_write).
    dat_lmr_sync_rdma_write = lmr_sync_rdma_write / InvalidHandleIa (ia, segments: *const DatLmrTriplet, count: u64);
    /// Creates an endpoint that takes its receives from an SRQ (dat_ep_create_with_srq).
    dat_ep_create_with_srq = ep_create_with_srq / InvalidHandleIa (ia, pz: DatHandle, recv_evd: DatHandle, request_evd: DatHandle, connect_evd: DatHandle, srq: DatHandle, attr: *const DatEpAttr, ep: *mut DatHandle);
    /// Creates a shared receive queue (dat_srq_create).
    dat_srq_create = srq_create / InvalidHandleIa (ia, pz: DatHandle, attr: *mut DatSrqAttr, srq: *mut DatHandle);
    /// Creates a common service point on a socket address (dat_csp_create).
    dat_csp_create = csp_create / InvalidHandleIa (ia, comm: *mut DatComm, address: DatIaAddressPtr, evd: DatHandle, csp: *mut DatHandle);
    /// Creates a CNO with a file descriptor that is readable after an event (dat_cno_fd_create).
    dat_cno_fd_create = cno_fd_create / InvalidHandleIa (ia, fd: *mut i32, cno: *mut DatHandle);
    /// Reports whether two IAs are related for high availability (dat_ia_ha_related).
    dat_ia_ha_related = ia_ha_related / InvalidHandleIa (ia, name: *const c_char, answer: *mut DatBoolean);
    // END slots.txt
}
