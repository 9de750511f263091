//! Opening and closing IAs.

use std::ffi::{CString, c_char};

use dat_abi::ret::{from_v1_2, unpack_v2_0};
use dat_abi::types::{DatBoolean, DatCount, DatHandle};
use dat_abi::v1_2::table::DatProvider;
use dat_c_library::Requested;
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_registry::handles::OpenIa;

use crate::registry::{LIBRARY, registry};

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
    // SAFETY: a table that a provider registered as one of 1.2.
    let provider = unsafe { &*(found.table.0 as *const DatProvider) };
    let mut handle = 0;
    let opened = provider
        .ia_open
        .ok_or(Error::of(Kind::NotImplemented))
        .and_then(|slot| {
            // SAFETY: the slot's contract is that of dat_ia_open.
            let code = unsafe { slot(name.as_ptr(), qlen, async_evd, &raw mut handle) };
            unpack_v2_0(from_v1_2(code))
        });
    if let Err(error) = opened {
        LIBRARY.not_opened(&found, error);
        return Err(error);
    }
    // 1.2 does not use the number that is returned: the consumer gets the provider's handle.
    registry().handles.insert(OpenIa {
        provider: handle,
        name: found.name,
        table: found.table,
    });
    // SAFETY: not NULL, so valid by the function's contract.
    unsafe { ia.write_unaligned(handle) };
    Ok(())
}

/// Closes an IA (dat_ia_close).
fn close(ia: DatHandle, flags: u32) -> Result<()> {
    // Small numbers are no handles in 1.2, though the registry keeps them.
    let known = registry().handles.find(ia);
    if known.is_none_or(|known| known.provider != ia) {
        return Err(Error::handle(Subtype::InvalidHandleIa));
    }
    LIBRARY.close(ia, |open| {
        // SAFETY: it came from a provider's ia_open, so its first word is its table.
        let slot = unsafe { (**(open.provider as *const *const DatProvider)).ia_close };
        let slot = slot.ok_or(Error::of(Kind::NotImplemented))?;
        // SAFETY: the slot's contract is that of dat_ia_close.
        unpack_v2_0(from_v1_2(unsafe { slot(open.provider, flags) }))
    })
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

    /// Returns the provider's handle of an IA, which is the one that dat_ia_open returned. Programs for compat-dapl's library, where
    /// that is a small number, call this before they call a provider's table themselves. A small number is accepted, too.
    fn dats_get_ia_handle(ia: DatHandle, handle: *mut DatHandle) -> u32 {
        LIBRARY.guard_from_fork(|| {
            let open = registry().handles.find(ia);
            let open = open.ok_or(Error::handle(Subtype::InvalidHandleIa))?;
            if handle.is_null() {
                return Err(Error::arg(2));
            }
            // SAFETY: not NULL, so valid by the function's contract.
            unsafe { handle.write(open.provider) };
            Ok(())
        })
    }

    /// Closes an IA (dat_ia_close).
    fn dat_ia_close(ia: DatHandle, flags: u32) -> u32 {
        LIBRARY.guard_from_fork(|| close(ia, flags))
    }
}
