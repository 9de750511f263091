//! Opening and closing IAs.

use std::ffi::{CStr, c_char};

use dat_abi::ret::{from_v1_2, unpack_v2_0};
use dat_abi::types::{DatBoolean, DatCount, DatHandle};
use dat_abi::v1_2::table::DatProvider;
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_registry::catalog::Request;
use dat_registry::handles::OpenIa;

use crate::export::guard;
use crate::registry::{add_ours, registry};

/// Body of dat_ia_openv.
///
/// # Safety
/// As dat_ia_openv: pointers are NULL or valid.
unsafe fn open(
    name: *const c_char,
    qlen: DatCount,
    async_evd: *mut DatHandle,
    ia: *mut DatHandle,
    (major, minor, thread_safe): (u32, u32, DatBoolean),
) -> Result<()> {
    for (null, number) in [
        (name.is_null(), 1),
        (async_evd.is_null(), 3),
        (ia.is_null(), 4),
    ] {
        if null {
            return Err(Error::arg(number));
        }
    }
    // SAFETY: not NULL, so a C string by the function's contract.
    let text = unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned();
    if major != 1 {
        tracing::error!(
            "dat_ia_open({text:?}): version {major}.{minor} is asked for; this is libdat.so.1, which has 1.2 only"
        );
        return Err(Error::new(Kind::ProviderNotFound, Subtype::MajorNotFound));
    }
    let request = Request {
        name: &text,
        major,
        minor,
        thread_safe: thread_safe != 0,
    };
    let found = registry().lookup(&request, add_ours).map_err(|error| {
        tracing::error!("dat_ia_open({text:?}): {error}");
        Error::new(Kind::ProviderNotFound, Subtype::NameNotRegistered)
    })?;
    // SAFETY: a table that a provider registered as one of 1.2.
    let provider = unsafe { &*(found.0 as *const DatProvider) };
    let mut handle = 0;
    let opened = provider
        .ia_open
        .ok_or(Error::of(Kind::NotImplemented))
        .and_then(|slot| {
            // SAFETY: the slot's contract is that of dat_ia_open.
            let code = unsafe { slot(name, qlen, async_evd, &raw mut handle) };
            unpack_v2_0(from_v1_2(code))
        });
    if let Err(error) = opened {
        registry().close(&text, 1, found);
        return Err(error);
    }
    // The number is nobody's business in 1.2: the consumer has the provider's handle.
    registry().handles.insert(OpenIa {
        provider: handle,
        name: text,
        table: found,
        extension: 0,
    });
    // SAFETY: not NULL, so valid by the function's contract.
    unsafe { ia.write(handle) };
    Ok(())
}

/// Closes the IA, which is in nobody else's hands.
fn close(ia: DatHandle, flags: u32) -> Result<()> {
    const WRONG: Error = Error::handle(Subtype::InvalidHandleIa);
    let handles = &registry().handles;
    // Small numbers are no handles in 1.2, though the registry keeps them. Taken out first, so that of two closes
    // at a time one finds nothing.
    let known = handles.find(ia).ok_or(WRONG)?;
    if known.provider != ia {
        return Err(WRONG);
    }
    let open = handles.remove(ia).ok_or(WRONG)?;
    // SAFETY: it came from a provider's ia_open, so its first word is its table.
    let slot = unsafe { (**(ia as *const *const DatProvider)).ia_close };
    let closed = slot
        .ok_or(Error::of(Kind::NotImplemented))
        .and_then(|slot| {
            // SAFETY: the slot's contract is that of dat_ia_close.
            unpack_v2_0(from_v1_2(unsafe { slot(ia, flags) }))
        });
    match closed {
        Ok(()) => registry().close(&open.name, 1, open.table),
        Err(_) => drop(handles.insert(open)),
    }
    closed
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
        // SAFETY: the contract is the same.
        guard(|| unsafe { open(name, qlen, async_evd, ia, (major, minor, thread_safe)) })
    }

    /// Closes an IA (dat_ia_close).
    fn dat_ia_close(ia: DatHandle, flags: u32) -> u32 {
        guard(|| close(ia, flags))
    }
}
