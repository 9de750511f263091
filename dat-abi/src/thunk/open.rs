//! Slot `ia_open`, and the entries of dat.conf that it opens.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::{LazyLock, Mutex, MutexGuard};

use dat_core::error::{Error, Kind, Result};
use dat_core::ia_params::IaParams;
use dat_os::mutex::lock;

use crate::boundary::{Version, count, guard_allocating, put, require};
use crate::provider::{OpenRequest, OpenedIa, Provider};
use crate::ret::DatReturn;
use crate::types::{DatCount, DatHandle, DatProviderInfo};

/// What the registry passes for a name (dat_provider_init).
#[derive(Clone, Debug)]
struct Entry {
    params: String,
    thread_safe: bool,
}

/// Entries by name and major version.
type Entries = HashMap<(String, u32), Entry>;

/// The entries that this shared object was initialised for.
fn entries() -> MutexGuard<'static, Entries> {
    static ENTRIES: LazyLock<Mutex<Entries>> = LazyLock::new(Mutex::default);
    lock(&ENTRIES)
}

fn key(info: &DatProviderInfo) -> (String, u32) {
    (info.name(), info.dapl_version_major)
}

/// Adds the entry of an IA, or replaces it.
pub(crate) fn add_entry(info: &DatProviderInfo, params: String) {
    let entry = Entry {
        params,
        thread_safe: info.is_thread_safe != 0,
    };
    entries().insert(key(info), entry);
}

/// Removes the entry of an IA. Returns whether none is left.
pub(crate) fn remove_entry(info: &DatProviderInfo) -> bool {
    let mut entries = entries();
    entries.remove(&key(info));
    entries.is_empty()
}

/// Returns true if `name` was registered as thread safe. The provider's attributes must say the same: dat_ia_close of a
/// classic registry finds the entry by them.
pub(crate) fn registered_thread_safe(name: &str, major: u32) -> bool {
    let entries = entries();
    let entry = entries.get(&(name.to_owned(), major));
    entry.is_none_or(|entry| entry.thread_safe)
}

/// Opens `name` as dat_ia_open does.
///
/// # Errors
/// `DAT_PROVIDER_NOT_FOUND` for a name that was never passed to `dat_provider_init`; the errors of [`Provider::open`].
pub(crate) fn open_named<P: Provider>(
    name: &str,
    major: u32,
    async_qlen: u32,
    async_evd: DatHandle,
) -> Result<OpenedIa> {
    let entry = entries().get(&(name.to_owned(), major)).cloned();
    let entry = entry.ok_or(Error::of(Kind::ProviderNotFound))?;
    let params = IaParams::parse(&entry.params).map_err(|error| {
        tracing::error!(ia = name, %error, "the dat.conf entry cannot be used");
        Error::of(Kind::InvalidParameter)
    })?;
    P::open(&OpenRequest {
        name,
        params: &params,
        major,
        async_qlen,
        async_evd,
    })
}

pub(crate) unsafe extern "C" fn ia_open<P: Provider, V: Version>(
    name: *const c_char,
    async_qlen: DatCount,
    async_evd: *mut DatHandle,
    ia: *mut DatHandle,
) -> DatReturn {
    guard_allocating::<V>(|| {
        require(name, 1)?;
        let async_qlen = count(async_qlen, 2)?;
        require(async_evd, 3)?;
        require(ia, 4)?;
        // SAFETY: not NULL, so a C string by the slot's contract.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        // SAFETY: not NULL, so valid by the slot's contract.
        let existing = unsafe { async_evd.read_unaligned() };
        let opened = open_named::<P>(&name, V::MAJOR, async_qlen, existing)?;
        // SAFETY: not NULL, so valid by the slot's contract.
        unsafe {
            if let Some(evd) = opened.async_evd {
                put(async_evd, 3, evd)?;
            }
            put(ia, 4, opened.ia)
        }
    })
}
