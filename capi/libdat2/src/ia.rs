//! Opening, closing and asking IAs; everything that takes an IA's number.

use std::ffi::{CStr, c_char};

use dat_abi::ret::unpack_v2_0;
use dat_abi::types::{
    DatBoolean, DatCount, DatHandle, DatIaAddressPtr, DatOsWaitProxyAgent, DatRegionDescription,
    DatSrqAttr,
};
use dat_abi::v2_0::table::DatProvider;
use dat_abi::v2_0::types::{DatComm, DatEpAttr, DatIaAttr, DatLmrTriplet, DatProviderAttr};
use dat_c_library::Asked;
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_registry::handles::OpenIa;

use crate::redirect;
use crate::registry::{LIBRARY, registry};

/// `DAT_IA_FIELD_ALL`.
const IA_FIELD_ALL: u64 = 0x3f_ffff_ffff;

const WRONG: Error = Error::handle(Subtype::InvalidHandleIa);

/// The provider's handle behind what a consumer passes as an IA.
fn provider_handle(ia: DatHandle) -> Result<DatHandle> {
    registry()
        .handles
        .find(ia)
        .map(|open| open.provider)
        .ok_or(WRONG)
}

/// The table behind a provider's handle.
///
/// # Safety
/// `handle` is a handle that a provider made.
unsafe fn table(handle: DatHandle) -> &'static DatProvider {
    // SAFETY: the first word of every handle points to its table, which lives for ever.
    unsafe { &**(handle as *const *const DatProvider) }
}

/// Calls `slot` of an IA's table with the provider's handle in place of the number.
fn on<S: Copy>(
    ia: DatHandle,
    slot: impl FnOnce(&DatProvider) -> Option<S>,
    call: impl FnOnce(S, DatHandle) -> u32,
) -> u32 {
    LIBRARY.guard_from_fork(|| {
        let handle = provider_handle(ia)?;
        // SAFETY: it came from a provider's ia_open.
        let slot = slot(unsafe { table(handle) }).ok_or(Error::of(Kind::NotImplemented))?;
        unpack_v2_0(call(slot, handle))
    })
}

/// What the provider of an open IA called `one` says of its relation to `other`; `None` without such an IA, or if the provider has
/// no answer.
pub(crate) fn says_related(one: &str, other: &CStr) -> Option<bool> {
    let ia = registry().handles.named(one)?;
    let mut answer: DatBoolean = 0;
    // SAFETY: it came from a provider's ia_open.
    let slot = unsafe { table(ia.provider) }.ia_ha_related?;
    // SAFETY: a handle of that table, a C string, and room for the answer.
    let code = unsafe { slot(ia.provider, other.as_ptr(), &raw mut answer) };
    unpack_v2_0(code).ok().map(|()| answer != 0)
}

/// Body of dat_ia_openv.
///
/// # Safety
/// As dat_ia_openv: pointers are NULL or valid.
unsafe fn open(
    name: *const c_char,
    qlen: DatCount,
    async_evd: *mut DatHandle,
    ia: *mut DatHandle,
    asked: Asked,
) -> Result<()> {
    // SAFETY: the contract is the same.
    let (text, found) = unsafe { LIBRARY.find(name, async_evd, ia, asked)? };
    // SAFETY: a table that a provider registered as one of 2.0.
    let provider = unsafe { &*(found.0 as *const DatProvider) };
    let mut handle = 0;
    // SAFETY: the slot's contract is that of dat_ia_open.
    let opened = provider
        .ia_open
        .ok_or(Error::of(Kind::NotImplemented))
        .and_then(|slot| unpack_v2_0(unsafe { slot(name, qlen, async_evd, &raw mut handle) }));
    if let Err(error) = opened {
        LIBRARY.close(&text, found);
        return Err(error);
    }
    redirect::opened(handle);
    let mut attr = std::mem::MaybeUninit::<DatIaAttr>::zeroed();
    // SAFETY: a live handle of that table; the attributes have room. All-zero is a valid DAT_IA_ATTR.
    let extension = unsafe {
        let asked = table(handle).ia_query.map_or(1, |query| {
            query(
                handle,
                std::ptr::null_mut(),
                IA_FIELD_ALL,
                attr.as_mut_ptr(),
                0,
                std::ptr::null_mut(),
            )
        });
        if asked == 0 {
            attr.assume_init().extension_supported
        } else {
            0
        }
    };
    let number = registry().handles.insert(OpenIa {
        provider: handle,
        name: text,
        table: found,
        extension,
    });
    // SAFETY: not NULL, so valid by the function's contract.
    unsafe { ia.write_unaligned(number) };
    Ok(())
}

export! {
    /// Opens an IA by name, version and thread safety.
    fn dat_ia_openv(
        name: *const c_char,
        qlen: DatCount,
        async_evd: *mut DatHandle,
        ia: *mut DatHandle,
        major: u32,
        minor: u32,
        thread_safe: DatBoolean,
    ) -> u32 {
        let asked = Asked { major, minor, thread_safe };
        // SAFETY: the contract is the same.
        LIBRARY.guard_from_fork(|| unsafe { open(name, qlen, async_evd, ia, asked) })
    }

    /// Closes an IA (dat_ia_close).
    fn dat_ia_close(ia: DatHandle, flags: u32) -> u32 {
        LIBRARY.guard_from_fork(|| {
            // Taken out first, so that of two closes at a time one finds nothing.
            let open = registry().handles.remove(ia).ok_or(WRONG)?;
            // SAFETY: it came from a provider's ia_open.
            let slot = unsafe { table(open.provider) }.ia_close.ok_or(Error::of(Kind::NotImplemented))?;
            // SAFETY: the slot's contract is that of dat_ia_close.
            match unpack_v2_0(unsafe { slot(open.provider, flags) }) {
                Ok(()) => {
                    LIBRARY.close(&open.name, open.table);
                    Ok(())
                }
                Err(error) => {
                    registry().handles.restore(ia, open);
                    Err(error)
                }
            }
        })
    }

    /// The provider's handle behind an IA number.
    fn dats_get_ia_handle(ia: DatHandle, handle: *mut DatHandle) -> u32 {
        LIBRARY.guard_from_fork(|| {
            let provider = provider_handle(ia)?;
            if handle.is_null() {
                return Err(Error::arg(2));
            }
            // SAFETY: not NULL, so valid by the function's contract.
            unsafe { handle.write_unaligned(provider) };
            Ok(())
        })
    }

    /// Attributes of an IA (dat_ia_query).
    fn dat_ia_query(
        ia: DatHandle,
        async_evd: *mut DatHandle,
        ia_mask: u64,
        attr: *mut DatIaAttr,
        provider_mask: u64,
        provider: *mut DatProviderAttr,
    ) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.ia_query, |slot, h| unsafe { slot(h, async_evd, ia_mask, attr, provider_mask, provider) })
    }

    /// Whether two IAs are related for high availability.
    fn dat_ia_ha_related(ia: DatHandle, name: *const c_char, answer: *mut DatBoolean) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.ia_ha_related, |slot, h| unsafe { slot(h, name, answer) })
    }

    /// dat_cno_create.
    fn dat_cno_create(ia: DatHandle, agent: DatOsWaitProxyAgent, cno: *mut DatHandle) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.cno_create, |slot, h| unsafe { slot(h, agent, cno) })
    }

    /// dat_cno_fd_create.
    fn dat_cno_fd_create(ia: DatHandle, fd: *mut i32, cno: *mut DatHandle) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.cno_fd_create, |slot, h| unsafe { slot(h, fd, cno) })
    }

    /// dat_evd_create.
    fn dat_evd_create(ia: DatHandle, qlen: DatCount, cno: DatHandle, flags: u32, evd: *mut DatHandle) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.evd_create, |slot, h| unsafe { slot(h, qlen, cno, flags, evd) })
    }

    /// dat_ep_create.
    fn dat_ep_create(
        ia: DatHandle,
        pz: DatHandle,
        recv: DatHandle,
        request: DatHandle,
        connect: DatHandle,
        attr: *const DatEpAttr,
        ep: *mut DatHandle,
    ) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.ep_create, |slot, h| unsafe { slot(h, pz, recv, request, connect, attr, ep) })
    }

    /// dat_ep_create_with_srq.
    fn dat_ep_create_with_srq(
        ia: DatHandle,
        pz: DatHandle,
        recv: DatHandle,
        request: DatHandle,
        connect: DatHandle,
        srq: DatHandle,
        attr: *const DatEpAttr,
        ep: *mut DatHandle,
    ) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.ep_create_with_srq, |slot, h| unsafe { slot(h, pz, recv, request, connect, srq, attr, ep) })
    }

    /// dat_lmr_create.
    fn dat_lmr_create(
        ia: DatHandle,
        mem_type: u32,
        region: DatRegionDescription,
        length: u64,
        pz: DatHandle,
        privileges: u32,
        va_type: u32,
        lmr: *mut DatHandle,
        lmr_context: *mut u32,
        rmr_context: *mut u32,
        size: *mut u64,
        address: *mut u64,
    ) -> u32 {
        on(ia, |t| t.lmr_create, |slot, h| {
            // SAFETY: the slot's contract is the function's.
            unsafe {
                slot(h, mem_type, region, length, pz, privileges, va_type, lmr, lmr_context, rmr_context, size, address)
            }
        })
    }

    /// dat_lmr_sync_rdma_read.
    fn dat_lmr_sync_rdma_read(ia: DatHandle, segments: *const DatLmrTriplet, count: u64) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.lmr_sync_rdma_read, |slot, h| unsafe { slot(h, segments, count) })
    }

    /// dat_lmr_sync_rdma_write.
    fn dat_lmr_sync_rdma_write(ia: DatHandle, segments: *const DatLmrTriplet, count: u64) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.lmr_sync_rdma_write, |slot, h| unsafe { slot(h, segments, count) })
    }

    /// dat_psp_create.
    fn dat_psp_create(ia: DatHandle, qual: u64, evd: DatHandle, flags: u32, psp: *mut DatHandle) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.psp_create, |slot, h| unsafe { slot(h, qual, evd, flags, psp) })
    }

    /// dat_psp_create_any.
    fn dat_psp_create_any(ia: DatHandle, qual: *mut u64, evd: DatHandle, flags: u32, psp: *mut DatHandle) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.psp_create_any, |slot, h| unsafe { slot(h, qual, evd, flags, psp) })
    }

    /// dat_rsp_create.
    fn dat_rsp_create(ia: DatHandle, qual: u64, ep: DatHandle, evd: DatHandle, rsp: *mut DatHandle) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.rsp_create, |slot, h| unsafe { slot(h, qual, ep, evd, rsp) })
    }

    /// dat_csp_create.
    fn dat_csp_create(
        ia: DatHandle,
        comm: *mut DatComm,
        address: DatIaAddressPtr,
        evd: DatHandle,
        csp: *mut DatHandle,
    ) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.csp_create, |slot, h| unsafe { slot(h, comm, address, evd, csp) })
    }

    /// dat_pz_create.
    fn dat_pz_create(ia: DatHandle, pz: *mut DatHandle) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.pz_create, |slot, h| unsafe { slot(h, pz) })
    }

    /// dat_srq_create.
    fn dat_srq_create(ia: DatHandle, pz: DatHandle, attr: *mut DatSrqAttr, srq: *mut DatHandle) -> u32 {
        // SAFETY: the slot's contract is the function's.
        on(ia, |t| t.srq_create, |slot, h| unsafe { slot(h, pz, attr, srq) })
    }
}
