//! How a transport becomes a provider shared object: [`Provider`] and [`export_provider!`](crate::export_provider).

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::head::raw;
use dat_core::ia::{AsyncEvd, Ia};
use dat_core::ia_params::IaParams;
#[doc(hidden)]
pub use dat_core::reserve::Reserve;
use dat_core::transport::Transport;

use crate::boundary::{V1_2, V2_0, Version, count, guard, making, need, put};
use crate::fork;
use crate::handle;
pub use crate::handle::owns;
use crate::intern;
use crate::ret::{DAT_SUCCESS, DatReturn};
use crate::types::{DAT_EVD_ASYNC_EXISTS, DAT_HANDLE_NULL, DatCount, DatHandle, DatProviderInfo};
use crate::{v1_2, v2_0};

/// What a shared object provides. Every [`Transport`] is a provider that opens itself; one with several
/// transports implements this and chooses at each open with [`OpenRequest::with`].
pub trait Provider: 'static {
    /// The transport that answers before an IA is open.
    type Transport: Transport;

    /// dat_ia_open: chooses and opens.
    ///
    /// # Errors
    /// As [`Transport::open`].
    fn open(request: &OpenRequest<'_>) -> Result<OpenedIa>;

    /// Whether `handle` is one, alive or dead, of any transport that this provider opens.
    fn owns(handle: DatHandle) -> bool {
        handle::owns::<Self::Transport>(handle)
    }
}

impl<T: Transport> Provider for T {
    type Transport = T;

    fn open(request: &OpenRequest<'_>) -> Result<OpenedIa> {
        request.with::<T>()
    }
}

/// One call of dat_ia_open.
#[derive(Debug)]
pub struct OpenRequest<'a> {
    /// The IA's name.
    pub name: &'a str,
    /// Its parameters from dat.conf.
    pub params: &'a IaParams,
    major: u32,
    async_qlen: u32,
    async_evd: DatHandle,
}

/// An IA that is open.
#[derive(Clone, Copy, Debug)]
pub struct OpenedIa {
    ia: DatHandle,
    async_evd: Option<DatHandle>,
}

impl OpenRequest<'_> {
    /// The same call with other parameters: a provider that has taken out what was meant for itself.
    #[must_use]
    pub fn with_params<'b>(&'b self, params: &'b IaParams) -> OpenRequest<'b> {
        OpenRequest { params, ..*self }
    }

    /// Opens the IA on transport `T`.
    ///
    /// # Errors
    /// As [`Ia::open`]; `DAT_INVALID_HANDLE` for an asynchronous EVD that is none of `T`'s.
    pub fn with<T: Transport>(&self) -> Result<OpenedIa> {
        let async_evd = match self.async_evd {
            DAT_HANDLE_NULL => AsyncEvd::New,
            DAT_EVD_ASYNC_EXISTS => AsyncEvd::OutOfScope,
            other => AsyncEvd::Existing(handle::evd::<T>(other, Subtype::InvalidHandleEvdAsync)?),
        };
        if !said(T::arenas().reserve_all()) {
            return Err(Error::resource(Subtype::ResourceMemory));
        }
        fork::watch::<T>();
        let table = table_address::<T>(self.name, self.major);
        let ia = Ia::<T>::open(self.name, self.params, self.async_qlen, async_evd, table)?;
        Ok(OpenedIa {
            ia: raw(ia),
            async_evd: ia.async_evd().map(raw),
        })
    }
}

/// Returns `reserved`: whether there is the address space that handles need. Says so if it is not there.
fn said(reserved: bool) -> bool {
    if !reserved {
        tracing::error!(
            "a provider cannot be used: the address space for handles (up to 512 MiB for each engine) is not to be had; raise the limit (ulimit -v)"
        );
    }
    reserved
}

/// The table of `T` that a version's IA of this name answers to.
fn table_address<T: Transport>(name: &str, major: u32) -> usize {
    match major {
        V1_2::MAJOR => intern::table::<T, _>(name, major, v1_2::tables::table::<T>),
        _ => intern::table::<T, _>(name, major, v2_0::tables::table::<T>),
    }
}

/// The IAs that this shared object was initialised for, by name and major version.
static ENTRIES: LazyLock<Mutex<HashMap<(String, u32), Entry>>> = LazyLock::new(Mutex::default);

/// What the registry gave with a name.
#[derive(Clone, Debug)]
struct Entry {
    params: String,
    thread_safe: bool,
}

fn entry(name: &str, major: u32) -> Option<Entry> {
    ENTRIES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&(name.to_owned(), major))
        .cloned()
}

/// Whether `name` was registered as thread safe. Its attributes must say the same: dat_ia_close of a classic
/// registry finds the entry by them.
pub(crate) fn registered_thread_safe(name: &str, major: u32) -> bool {
    entry(name, major).is_none_or(|e| e.thread_safe)
}

/// Opens `name` as dat_ia_open would.
///
/// # Errors
/// `DAT_PROVIDER_NOT_FOUND` for a name that was never given to `dat_provider_init`; as [`Provider::open`].
pub(crate) fn open_named<P: Provider>(
    name: &str,
    major: u32,
    async_qlen: u32,
    async_evd: DatHandle,
) -> Result<OpenedIa> {
    let known = entry(name, major).ok_or(Error::of(Kind::ProviderNotFound))?;
    let params = IaParams::parse(&known.params).map_err(|error| {
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

impl OpenedIa {
    /// The IA's handle.
    pub(crate) fn ia(&self) -> DatHandle {
        self.ia
    }
}

/// Slot `ia_open` of provider `P`.
pub(crate) unsafe extern "C" fn ia_open<P: Provider, V: Version>(
    name: *const c_char,
    async_qlen: DatCount,
    async_evd: *mut DatHandle,
    ia: *mut DatHandle,
) -> DatReturn {
    making::<V>(|| {
        need(name, 1)?;
        let async_qlen = count(async_qlen, 2)?;
        need(async_evd, 3)?;
        need(ia, 4)?;
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

/// `dat_registry_add_provider` and `dat_registry_remove_provider`, with a table of the version that the info names.
#[doc(hidden)]
pub type RegistryFn = unsafe extern "C" fn(*const c_void, *const DatProviderInfo) -> DatReturn;

/// The registry that loaded this shared object: whoever exports `name` to the whole process. Looked up and not
/// linked, so that a provider loads (and says what is missing) also where there is none.
fn registry(name: &CStr) -> Option<RegistryFn> {
    // SAFETY: dlsym only looks up.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if at.is_null() {
        tracing::error!(
            ?name,
            "no registry in this process exports it: load providers through libdat2 or libdat"
        );
        return None;
    }
    // SAFETY: the registry exports that name with this signature (dat_registry.h).
    Some(unsafe { std::mem::transmute::<*mut libc::c_void, RegistryFn>(at) })
}

/// Body of `dat_provider_init` (`add` `None`: the registry is looked for) and of `dat_rs_provider_init`.
///
/// # Safety
/// `info` is NULL or valid; `params` is NULL or a C string; `add` registers a table.
///
/// Returns `DAT_INSUFFICIENT_RESOURCES` if it registered nothing for want of memory: it may be called again when there is more.
#[doc(hidden)]
pub unsafe fn init<P: Provider>(
    info: *const DatProviderInfo,
    params: *const c_char,
    add: Option<RegistryFn>,
) -> DatReturn {
    crate::log::install();
    making::<V2_0>(|| {
        // SAFETY: NULL or valid by the caller's promise.
        let given = unsafe { crate::boundary::structure(info, 1)? };
        let text = if params.is_null() {
            String::new()
        } else {
            // SAFETY: not NULL, so a C string by the caller's promise.
            unsafe { CStr::from_ptr(params) }
                .to_string_lossy()
                .into_owned()
        };
        let key = (given.name(), given.dapl_version_major);
        if !said(P::Transport::arenas().reserve()) {
            return Err(Error::resource(Subtype::ResourceMemory));
        }
        let Some(table) = provider_table::<P>(given.dapl_version_major) else {
            tracing::error!(
                name = key.0,
                major = key.1,
                "this provider speaks uDAPL 1.2 and 2.0 only"
            );
            return Ok(());
        };
        let entry = Entry {
            params: text,
            thread_safe: given.is_thread_safe != 0,
        };
        ENTRIES
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, entry);
        if let Some(add) = add.or_else(|| registry(c"dat_registry_add_provider")) {
            // SAFETY: a table that lives for ever and the info that the registry gave us.
            let code = unsafe { add(table, info) };
            if code != DAT_SUCCESS {
                tracing::error!(
                    name = given.name(),
                    code = format_args!("{code:#x}"),
                    "the registry refused this provider"
                );
            }
        }
        Ok(())
    })
}

/// Body of `dat_provider_fini`.
///
/// # Safety
/// `info` is NULL or valid.
#[doc(hidden)]
pub unsafe fn fini<P: Provider>(info: *const DatProviderInfo) {
    guard::<V2_0>(|| {
        // SAFETY: NULL or valid by the caller's promise.
        let given = unsafe { crate::boundary::structure(info, 1)? };
        let key = (given.name(), given.dapl_version_major);
        let last = {
            let mut entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
            entries.remove(&key);
            entries.is_empty()
        };
        if last {
            // The library may be unmapped next: no thread of core may be in it.
            dat_core::timer::shut_down();
        }
        if let (Some(table), Some(remove)) = (
            provider_table::<P>(given.dapl_version_major),
            registry(c"dat_registry_remove_provider"),
        ) {
            // SAFETY: the arguments that registered this entry.
            unsafe { remove(table, info) };
        }
        Ok(())
    });
}

/// The table to register for a major version; `None` for one that we do not speak.
fn provider_table<P: Provider>(major: u32) -> Option<*const c_void> {
    match major {
        V1_2::MAJOR => Some(std::ptr::from_ref(v1_2::tables::provider_table::<P>()).cast()),
        V2_0::MAJOR => Some(std::ptr::from_ref(v2_0::tables::provider_table::<P>()).cast()),
        _ => None,
    }
}

/// Makes a `cdylib` a DAT provider: exports `dat_provider_init` and `dat_provider_fini` for a
/// [`Provider`](crate::export::Provider), which every [`Transport`](dat_core::transport::Transport) is. The library's allocator is
/// [`Reserve`](dat_core::reserve::Reserve), so that a process without memory gets an error and does not end.
#[macro_export]
macro_rules! export_provider {
    ($provider:ty) => {
        #[global_allocator]
        static DAT_RESERVE: $crate::export::Reserve = $crate::export::Reserve;

        /// Called by the registry once for each dat.conf entry that names this library.
        ///
        /// # Safety
        /// `info` is valid; `params` is NULL or a C string.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn dat_provider_init(
            info: *const $crate::types::DatProviderInfo,
            params: *const ::std::ffi::c_char,
        ) {
            // SAFETY: the registry's promise is the same.
            unsafe { $crate::export::init::<$provider>(info, params, None) };
        }

        /// The same for a registry of ours, which brings the function to register with: nothing needs to be
        /// global in the process then. Returns `DAT_INSUFFICIENT_RESOURCES` if nothing was registered for want of memory.
        ///
        /// # Safety
        /// `info` is valid; `params` is NULL or a C string; `add` registers a table.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn dat_rs_provider_init(
            info: *const $crate::types::DatProviderInfo,
            params: *const ::std::ffi::c_char,
            add: $crate::export::RegistryFn,
        ) -> u32 {
            // SAFETY: the registry's promise is the same.
            unsafe {
                $crate::export::init::<$provider>(info, params, ::std::option::Option::Some(add))
            }
        }

        /// Whether a number is a handle of this library, so that a registry of ours may follow it.
        #[unsafe(no_mangle)]
        pub extern "C" fn dat_rs_owns(handle: usize) -> bool {
            <$provider as $crate::export::Provider>::owns(handle)
        }

        /// Called by the registry before it unloads an entry.
        ///
        /// # Safety
        /// `info` is valid.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn dat_provider_fini(info: *const $crate::types::DatProviderInfo) {
            // SAFETY: the registry's promise is the same.
            unsafe { $crate::export::fini::<$provider>(info) }
        }
    };
}
